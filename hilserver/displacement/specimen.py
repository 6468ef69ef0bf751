"""The real part of a structure, which an actuator moves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Specimen:
    """The real part of a structure, at the interface: mass kg, damping N s/m, stiffness N/m."""

    mass: float
    damping: float
    stiffness: float

    def faster(self, ratio: float) -> Specimen:
        """The one that moves alike, this many times as fast."""
        return Specimen(self.mass / ratio**2, self.damping / ratio, self.stiffness)
