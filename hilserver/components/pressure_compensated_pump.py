"""Pressure-compensated pump."""

from __future__ import annotations

from math import inf

from pydantic import Field, model_validator

from hilserver.components.base import Component, Fluid, Parameters, State, kernel
from hilserver.units import Flow, Number, Power, Pressure, Time


class PressureCompensatedPump(Component):
    r"""Variable pump that cuts its flow back at a set pressure, from T to P.

    .. math:: \dot Q = \frac{k\,(p_{ref} - \Delta p) - Q}{\tau}, \qquad
       0 \le Q \le Q_{lim} = \min\left(Q_{max},\; \frac{P_{max}\,\eta_{tot}}{\Delta p}\right)

    The limits stop the state itself: no wind-up. At rest the flow is zero at p_ref and full at ``control_range`` below
    it: k = Q_max/control_range. Where the power limit sinks below Q with rising pressure, the pump delivers no more
    than the limit and Q follows with tau. Source: THEORY §3; seeds/001 ch. 4.2.
    """

    type_name = "pressure_compensated_pump"
    hydraulic = ("P", "T")
    states = (State("Q", "m^3/s", lower=0.0, upper="Q_max", scale="Q_max"),)

    max_flow: Flow = Field(gt=0, description="largest flow, Q_max")
    set_pressure: Pressure = Field(gt=0, description="pressure at which the flow is cut back to zero, p_ref")
    control_range: Pressure = Field(default="10 bar", gt=0, description="how far below set_pressure the flow is full")
    response_time: Time = Field(default="20 ms", gt=0, description="time constant of the displacement control, tau")
    max_power: Power | None = Field(default=None, gt=0, description="of the motor, P_max; unlimited if not given")
    efficiency: Number = Field(default=0.85, gt=0, le=1, description="total efficiency, eta_tot")

    @model_validator(mode="after")
    def _range_below_set_pressure(self) -> PressureCompensatedPump:
        if self.control_range >= self.set_pressure:
            raise ValueError(
                f"control_range {self.control_range / 1e5:g} bar must be less than set_pressure "
                f"{self.set_pressure / 1e5:g} bar: it is the pressure below set_pressure at which the flow is full, "
                "typically 5 to 20 bar"
            )
        return self

    def parameters(self, fluid: Fluid) -> Parameters:
        return {
            "k": self.max_flow / self.control_range,
            "p_ref": self.set_pressure,
            "tau": self.response_time,
            "Q_max": self.max_flow,
            "P_max": self.max_power if self.max_power is not None else inf,
            "eta_tot": self.efficiency,
        }


@kernel(PressureCompensatedPump)
def pressure_compensated_pump(p_P, p_T, Q, k, p_ref, tau, Q_max, P_max, eta_tot):
    dp = p_P - p_T
    Q_lim = min(Q_max, P_max * eta_tot / max(dp, 1.0))  # 1 Pa: the power limit is no limit at no pressure
    dQ = (k * (p_ref - dp) - Q) / tau
    room = Q_lim - Q
    if room <= 0.0:  # at the limit, or past it where the power limit has sunk
        dQ = min(dQ, room / tau)
    q_P = min(Q, Q_lim)
    q_T = -q_P
    return q_P, q_T, dQ
