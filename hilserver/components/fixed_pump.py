"""Fixed displacement pump."""

from __future__ import annotations

from math import inf

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.units import Displacement, Number, Power, Speed


class FixedPump(Component):
    r"""Pump of fixed displacement at a fixed speed, from T to P; its motor limits the power.

    .. math:: Q = \min\left(V_{rev}\,n,\; \frac{P_{max}\,\eta_{tot}}{\Delta p}\right)

    No volumetric losses, no pulsation. Needs a relief valve: nothing else limits the pressure.
    Source: THEORY §3; seeds/001 ch. 4.2.
    """

    type_name = "fixed_pump"
    hydraulic = ("P", "T")

    displacement: Displacement = Field(gt=0, description="volume per revolution, V_rev")
    speed: Speed = Field(ge=0, description="speed of its shaft, n")
    max_power: Power | None = Field(default=None, gt=0, description="of the motor, P_max; unlimited if not given")
    efficiency: Number = Field(default=0.85, gt=0, le=1, description="total efficiency, eta_tot")

    def parameters(self, fluid: Fluid) -> Parameters:
        power = self.max_power if self.max_power is not None else inf
        return {"V_rev": self.displacement, "n": self.speed, "P_max": power, "eta_tot": self.efficiency}


@kernel(FixedPump)
def fixed_pump(p_P, p_T, V_rev, n, P_max, eta_tot):
    dp = max(p_P - p_T, 1.0)  # 1 Pa: the power limit is no limit at no pressure
    q_P = min(V_rev * n, P_max * eta_tot / dp)
    q_T = -q_P
    return q_P, q_T
