"""Pump with a power controller."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import ClassVar

from pydantic import Field, model_validator

from hilserver.components.base import Fluid, Parameters, kernel
from hilserver.components.shared.variable_pump import VariablePump
from hilserver.numerics.pump import controlled_flow, filling, power_limit
from hilserver.units import Power, Pressure


class PowerLimitedPump(VariablePump):
    r"""Variable pump with a power (torque) controller: full flow up to a set power, from T to P.

    .. math:: \dot Q = \frac{\min\left(Q_{max},\; P_{max}\,u_{power}\,\eta_{tot}/\Delta p,\;
       k\,(p_{max} - \Delta p)\right) - Q}{\tau}, \qquad 0 \le Q \le Q_{max}

    At rest Q·dp is constant: the hyperbola of the datasheet. Here the displacement itself is controlled, so in a fast
    rise of the pressure the power is exceeded for a few tau; the ``max_power`` of other pumps is the limit of the
    motor. The signal ``power`` lowers the setting (electronic override, engine droop); ``drive``, speed over rated
    speed, scales flow and power; the filling at T is that of ``fixed_pump``. Source: theory §3 (hyperbola, lag and
    limits); [Virtual hydraulics] ch. 4.2.
    """

    type_name = "power_limited_pump"
    inputs = ("drive", "power")
    input_defaults: ClassVar[Mapping[str, float]] = {"drive": 1.0, "power": 1.0}

    max_power: Power = Field(gt=0, description="setting of the power controller, at the shaft, P_max")
    max_pressure: Pressure | None = Field(
        default=None, gt=0, description="cut-off: the flow is zero from this pressure upwards, p_max; none if not given"
    )

    @model_validator(mode="after")
    def _range_below_cut_off(self) -> PowerLimitedPump:
        if self.max_pressure is not None:
            self.refuse_range_from(self.max_pressure, "max_pressure")
        return self

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"p_max": self.max_pressure if self.max_pressure is not None else inf, **self.pump_parameters(fluid)}


@kernel(PowerLimitedPump)
def power_limited_pump(p_P, p_T, u_drive, u_power, Q, k, p_max, tau, Q_max, P_max, eta_tot, p_v, p_in):
    dp = p_P - p_T
    target = min(Q_max, power_limit(P_max * max(u_power, 0.0) * eta_tot, dp), k * (p_max - dp))
    q, dQ = controlled_flow(Q, target, Q_max, tau)
    q_P = filling(p_T, p_v, p_in) * max(u_drive, 0.0) * q
    q_T = -q_P
    return q_P, q_T, dQ
