"""Dimensions of a hydraulic line: its oil."""

from __future__ import annotations

from math import pi

from pydantic import Field

from hilserver.components.base import Datasheet, Fluid
from hilserver.units import Length


class LineSize(Datasheet):
    """Inner diameter and length of a pipe or hose."""

    inner_diameter: Length = Field(gt=0, description="inner diameter")
    length: Length = Field(gt=0, description="length")

    def area(self) -> float:
        """Cross-section of the oil, m²."""
        return 0.25 * pi * self.inner_diameter * self.inner_diameter

    def oil_volume(self) -> float:
        """Volume of the oil, m³."""
        return self.area() * self.length

    def oil_mass(self, fluid: Fluid) -> float:
        """Mass of the oil, kg."""
        return self.oil_volume() * fluid.density
