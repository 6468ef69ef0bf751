"""Pressure-compensated pump."""

from __future__ import annotations

from pydantic import Field, model_validator

from hilserver.components.base import Fluid, Parameters, kernel
from hilserver.components.shared.variable_pump import VariablePump
from hilserver.numerics.pump import controlled_flow, filling, power_limit
from hilserver.units import Pressure


class PressureCompensatedPump(VariablePump):
    r"""Variable pump that reduces its flow to 0 at a set pressure, from T to P.

    .. math:: \dot Q = \frac{k\,(p_{ref} - \Delta p) - Q}{\tau}, \qquad
       0 \le Q \le Q_{lim} = \min\left(Q_{max},\; \frac{P_{max}\,\eta_{tot}}{\Delta p}\right)

    The limits act on the state itself: no wind-up. At rest the flow is zero at p_ref and full at ``control_range``
    below it: k = Q_max/control_range. Where the power limit falls below Q with rising pressure, the pump delivers no
    more than the limit and Q follows with tau. Q is the flow at the rated speed: the signal ``drive``, speed over rated
    speed, scales what is delivered; max_power then is a limit of the motor's torque. What is delivered is also scaled
    by the filling at T: 1 above the minimum inlet pressure, 0 at the vapour pressure (``fixed_pump``).
    Source: theory §3; [Virtual hydraulics] ch. 4.2.
    """

    type_name = "pressure_compensated_pump"

    set_pressure: Pressure = Field(gt=0, description="pressure at which the flow is zero, p_ref")

    @model_validator(mode="after")
    def _range_below_set_pressure(self) -> PressureCompensatedPump:
        self.refuse_range_from(self.set_pressure, "set_pressure")
        return self

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"p_ref": self.set_pressure, **self.pump_parameters(fluid)}


@kernel(PressureCompensatedPump)
def pressure_compensated_pump(p_P, p_T, u_drive, Q, k, p_ref, tau, Q_max, P_max, eta_tot, p_v, p_in):
    dp = p_P - p_T
    q, dQ = controlled_flow(Q, k * (p_ref - dp), min(Q_max, power_limit(P_max * eta_tot, dp)), tau)
    q_P = filling(p_T, p_v, p_in) * max(u_drive, 0.0) * q
    q_T = -q_P
    return q_P, q_T, dQ
