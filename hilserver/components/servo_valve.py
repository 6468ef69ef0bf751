"""Servo valve: the real valve of a simulated rig."""

from __future__ import annotations

from math import inf, pi

from pydantic import Field, model_validator

from hilserver.components.base import Datasheet, Fluid, Memory, Parameters, State, kernel, sampled
from hilserver.components.shared.edges import ValveWithEdges
from hilserver.components.shared.spool import NO_LAG, NoLag, one_motion
from hilserver.numerics.shape import clip
from hilserver.numerics.spool import FOLLOWS, spool_target, within_play
from hilserver.numerics.valve import four_edges, leakage_fade, opening_past_overlap
from hilserver.units import Frequency, Number, Rate


class EdgeFlows(Datasheet):
    """Flow of each edge at full opening, as a fraction of the nominal flow: no two edges are quite alike."""

    PA: Number = Field(default=1.0, gt=0, le=2, description="edge P-A")
    PB: Number = Field(default=1.0, gt=0, le=2, description="edge P-B")
    AT: Number = Field(default=1.0, gt=0, le=2, description="edge A-T")
    BT: Number = Field(default=1.0, gt=0, le=2, description="edge B-T")


class ServoValve(ValveWithEdges):
    r"""Servo valve: four edges on a second-order spool, with limited opening rate, overlap, null offset, hysteresis.

    .. math:: \ddot U = \omega^2 (U_{in} - U) - 2 d\,\omega\,\dot U, \quad |\dot U| \le r, \qquad
       Q_{edge} = \left(e\,C_v \langle\pm w(U)\rangle + C_{leak}\,s(|U|)\right) g(\Delta p)

    The command u, clipped to -1 … 1, reaches the spool through a backlash (``hysteresis`` h; full command still gives
    full stroke):

    .. math:: u_h \leftarrow \min(\max(u_h,\; u - h/2),\; u + h/2), \qquad U_{in} = \frac{u_h}{1 - h/2} + U_0

    w is the opening past the overlap, e the flow of an edge as a fraction (``edges``). A second-order spool lags by 90°
    at its natural frequency at any damping: the datasheet's -90° frequency. The spool's position is the value
    ``<name>.U``, its speed ``<name>.W``. Edges and leakage as in ``proportional_valve_4_3``. With ``lag = "none"`` the
    spool is where the command is, at any time: :math:`U = U_{in}`, W = 0. Source: theory §3; [Linjama]; for the
    backlash Brokate & Sprekels, Hysteresis and Phase Transitions, 1996, ch. 2.
    """

    type_name = "servo_valve"
    states = (State("U", "1", lower=-1.0, upper=1.0), State("W", "1/s", lower="least_rate", upper="rate"))
    closed = {"U": 0.0, "W": 0.0}
    memories = (Memory("play"),)

    f90: Frequency | None = Field(
        default=None, gt=0, description="-90° frequency of the datasheet's Bode plot, omega/(2·pi)"
    )
    lag: NoLag | None = NO_LAG
    damping: Number = Field(
        default=0.8, gt=0, le=5, description="damping ratio of the spool, d; the Bode plot's gain at f90 is 1/(2·d)"
    )
    opening_rate: Rate | None = Field(
        default=None, gt=0, description="maximum spool speed in full strokes per second; unlimited if not given"
    )
    overlap: Number = Field(
        default=0.0, ge=0, lt=0.5, description="spool travel before an edge opens, as a fraction of full stroke"
    )
    null_offset: Number = Field(default=0.0, gt=-0.5, lt=0.5, description="spool position at command 0")
    hysteresis: Number = Field(
        default=0.0,
        ge=0,
        le=0.5,
        description="width of the hysteresis loop between rising and falling command, as a fraction of full command",
    )
    edges: EdgeFlows = Field(
        default=EdgeFlows(),
        description="flow of each edge at full opening, as a fraction of nominal_flow, like { PB = 0.95, BT = 1.03 }",
    )

    @model_validator(mode="after")
    def _one_motion(self) -> ServoValve:
        one_motion(self, "f90", "damping", "opening_rate")
        return self

    def is_sampled(self) -> bool:
        return self.lag is not None or self.hysteresis > 0.0

    def parameters(self, fluid: Fluid) -> Parameters:
        rate = self.opening_rate if self.opening_rate is not None else inf
        given = self.edge_parameters()
        C_v = given.pop("C_v")
        return {
            "omega": 2.0 * pi * self.f90 if self.f90 is not None else 1.0 / FOLLOWS,
            "ideal": float(self.f90 is None),
            "d": self.damping,
            "rate": rate,
            "least_rate": -rate,
            "overlap": self.overlap,
            "half_loop": 0.5 * self.hysteresis,
            "U_0": self.null_offset,
            **{f"C_{edge}": share * C_v for edge, share in self.edges},
            **given,
        }


@sampled(ServoValve)
def servo_valve_at_a_step(u_command, U, W, play, ideal, half_loop, U_0):
    next_play = within_play(play, clip(u_command, -1.0, 1.0), half_loop)
    next_U, next_W = U, W
    if ideal > 0.0:
        next_U, next_W = spool_target(next_play, half_loop, U_0, -1.0), 0.0
    return next_play, next_U, next_W


@kernel(ServoValve)
def servo_valve(
    p_P,
    p_T,
    p_A,
    p_B,
    u_command,
    U,
    W,
    play,
    omega,
    ideal,
    d,
    overlap,
    half_loop,
    U_0,
    C_PA,
    C_PB,
    C_AT,
    C_BT,
    C_leak,
    U_leak,
    p_tr,
):
    u = clip(u_command, -1.0, 1.0)
    target = spool_target(within_play(play, u, half_loop), half_loop, U_0, -1.0)
    dU = W
    dW = omega * omega * (target - U) - 2.0 * d * omega * W
    spool = target if ideal > 0.0 else U
    w = opening_past_overlap(spool, overlap)
    leak = C_leak * leakage_fade(abs(spool), U_leak)
    q_P, q_T, q_A, q_B = four_edges(w, leak, p_P, p_T, p_A, p_B, C_PA, C_PB, C_AT, C_BT, p_tr)
    return q_P, q_T, q_A, q_B, dU, dW
