"""Shared by the datasheets of all pumps: the pressure that they need at their suction port."""

from __future__ import annotations

from pydantic import Field

from hilserver.components.base import Datasheet, Fluid
from hilserver.units import Pressure

TYPICAL_SHARE = 0.2
"""Of the vapour pressure (gauge): the minimum inlet pressure by default, 0.8 bar absolute as on many datasheets."""


class Suction(Datasheet):
    """A machine that fills at its suction port, and incompletely where the pressure there is too low."""

    min_inlet_pressure: Pressure | None = Field(
        default=None,
        description="minimum gauge pressure at the suction port for complete filling, p_in: below it the filling "
        "falls from 1 to 0 at the vapour pressure; -0.2 bar at the usual vapour pressure of -1 bar if not given; no "
        "limit if it is "
        "not above the vapour pressure",
    )

    def full_from(self, fluid: Fluid) -> float:
        """The pressure above which it fills completely, Pa."""
        if self.min_inlet_pressure is None:
            return TYPICAL_SHARE * fluid.vapour_pressure
        return self.min_inlet_pressure

    def suction_parameters(self, fluid: Fluid) -> dict[str, float]:
        """Kernel parameters of the filling."""
        return {"p_in": self.full_from(fluid), "p_v": fluid.vapour_pressure}
