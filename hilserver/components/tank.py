"""Tank: a constant pressure."""

from __future__ import annotations

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.units import Pressure


class Tank(Component):
    r"""Oil at a constant pressure, independent of the flow.

    .. math:: p_T = p_{tank}

    Several components may connect to one tank. Its level and the oil's temperature are not modelled.
    """

    type_name = "tank"
    hydraulic = ("T",)

    pressure: Pressure = Field(
        default="0 bar", gt=-101_325, description="gauge pressure; above 0 with a preloaded tank"
    )

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"p_tank": self.pressure}


@kernel(Tank)
def tank(p_tank):
    p_T = p_tank
    return p_T
