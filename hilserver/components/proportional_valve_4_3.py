"""Proportional directional valve 4/3."""

from __future__ import annotations

from math import pi

from pydantic import Field, model_validator

from hilserver.components.base import Fluid, Parameters, State, kernel, sampled
from hilserver.components.shared.edges import ValveWithEdges
from hilserver.components.shared.spool import NO_LAG, NoLag, one_motion
from hilserver.numerics.shape import clip
from hilserver.numerics.spool import FOLLOWS
from hilserver.numerics.valve import equal_edges, leakage_fade
from hilserver.units import Frequency


class ProportionalValve43(ValveWithEdges):
    r"""Proportional 4/3 valve: four edges on a spool that follows the command with a first-order lag.

    .. math:: \dot U = (U_{in} - U)/\tau, \quad \tau = \frac{1}{2\pi f_{45}}, \qquad
       Q_{edge} = \left(C_v \langle\pm U\rangle + C_{leak}\,s(|U|)\right) g(\Delta p)

    With ``lag = "none"`` the spool is where the command is, at any time: :math:`U = U_{in}`.
    U > 0 opens P-A and B-T, U < 0 opens P-B and A-T; the command is clipped to -1 … 1. Each port has two leakage flows,
    from P and to T: full at null, faded out by a STEP s at 10 % of the opening. g is the square root law, laminar
    below p_tr. All edges open linearly and equally, without overlap.
    Source: theory §3; [Virtual hydraulics] eqs. 3.44-3.46, 4.4; Ellman & Piché 1999.
    """

    type_name = "proportional_valve_4_3"
    states = (State("U", "1", lower=-1.0, upper=1.0),)
    closed = {"U": 0.0}

    f45: Frequency | None = Field(default=None, gt=0, description="-45° frequency of the datasheet's Bode plot")
    lag: NoLag | None = NO_LAG

    @model_validator(mode="after")
    def _one_motion(self) -> ProportionalValve43:
        one_motion(self, "f45")
        return self

    def is_sampled(self) -> bool:
        return self.lag is not None

    def parameters(self, fluid: Fluid) -> Parameters:
        tau = 1.0 / (2.0 * pi * self.f45) if self.f45 is not None else FOLLOWS
        return {"tau": tau, "ideal": float(self.f45 is None), **self.edge_parameters()}


@sampled(ProportionalValve43)
def proportional_valve_4_3_without_lag(u_command):
    next_U = clip(u_command, -1.0, 1.0)
    return next_U


@kernel(ProportionalValve43)
def proportional_valve_4_3(p_P, p_T, p_A, p_B, u_command, U, tau, ideal, C_v, C_leak, U_leak, p_tr):
    target = clip(u_command, -1.0, 1.0)
    dU = (target - U) / tau
    spool = target if ideal > 0.0 else U
    leak = C_leak * leakage_fade(abs(spool), U_leak)
    q_P, q_T, q_A, q_B = equal_edges(spool, leak, p_P, p_T, p_A, p_B, C_v, p_tr)
    return q_P, q_T, q_A, q_B, dU
