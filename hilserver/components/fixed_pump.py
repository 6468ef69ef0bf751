"""Fixed displacement pump."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import ClassVar

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.components.shared.suction import Suction
from hilserver.numerics.pump import filling, power_limit
from hilserver.units import Displacement, Number, Power, Speed


class FixedPump(Suction, Component):
    r"""Pump of fixed displacement at a fixed speed, from T to P; its motor limits the power.

    .. math:: Q = \varphi(p_T)\,\min\left(V_{rev}\,n,\; \frac{P_{max}\,\eta_{tot}}{\Delta p}\right)

    No volumetric losses, no pulsation. A relief valve is required: nothing else limits the pressure. The signal
    ``drive``, speed over rated speed, scales flow and power (the motor's torque is limited). The filling phi is 1
    above the minimum inlet pressure at T, and 0 at the vapour pressure. For leakage, friction and a shaft use
    ``hydraulic_motor``, which is a pump where its shaft is driven.
    Source: theory §3; [Virtual hydraulics] ch. 4.2.
    """

    type_name = "fixed_pump"
    hydraulic = ("P", "T")
    inputs = ("drive",)
    input_defaults: ClassVar[Mapping[str, float]] = {"drive": 1.0}

    displacement: Displacement = Field(gt=0, description="volume per revolution, V_rev")
    speed: Speed = Field(ge=0, description="rated speed of the shaft, n")
    max_power: Power | None = Field(
        default=None, gt=0, description="maximum power of the motor, P_max; unlimited if not given"
    )
    efficiency: Number = Field(default=0.85, gt=0, le=1, description="total efficiency, eta_tot")

    def parameters(self, fluid: Fluid) -> Parameters:
        power = self.max_power if self.max_power is not None else inf
        machine = {"V_rev": self.displacement, "n": self.speed, "P_max": power, "eta_tot": self.efficiency}
        return machine | self.suction_parameters(fluid)


@kernel(FixedPump)
def fixed_pump(p_P, p_T, u_drive, V_rev, n, P_max, eta_tot, p_v, p_in):
    full = max(u_drive, 0.0) * min(V_rev * n, power_limit(P_max * eta_tot, p_P - p_T))
    q_P = filling(p_T, p_v, p_in) * full
    q_T = -q_P
    return q_P, q_T
