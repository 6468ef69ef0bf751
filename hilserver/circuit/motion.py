"""The kinds of motion of a node: along a line, and of a shaft."""

from __future__ import annotations

from dataclasses import dataclass
from math import pi

from hilserver.circuit.model import NodeStart


@dataclass(frozen=True)
class Motion:
    """A kind of motion: names of position and speed, unit, and the property that a node of this kind must have."""

    place: str
    speed: str
    unit: str
    resists: str
    remedy: str

    def start(self, node: NodeStart) -> tuple[float, float]:
        """Initial position and speed, SI (radians for a shaft)."""
        if self.place == "x":
            return node.position, node.velocity
        return node.angle, 2.0 * pi * node.speed


STRAIGHT = Motion("x", "v", "m", "mass", "a load_mass")
TURNING = Motion("phi", "w", "rad", "inertia", "an inertia")
