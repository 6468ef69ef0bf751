"""Rigs of three sizes for the circuits of `port_circuits`, with light and heavy loads, and their work cycles.

The machine is a cylinder under a constant load of 40 bar on its piston, with a mass from which its hydraulic natural
frequency follows: 30 Hz (light) or 5 Hz (heavy).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi
from typing import Any

Table = dict[str, Any]

BULK = 1.5e9  # Pa, of mineral oil without air
LOAD = 40e5  # Pa on the piston area: the constant part of the load
START = 0.4  # share of the stroke at which the work cycle begins
BACK = 10.0  # bar in chamber B at the start
RETURN = "3 bar"  # virtual return line: the real valve needs 2 bar for the flow from the rod side
SUPPLY = 140.0  # bar, virtual
FLUID = {"bulk_modulus": "1.5e9 Pa", "density": "870 kg/m^3", "air_fraction": 0.0}


@dataclass(frozen=True)
class Size:
    """A rig: cylinder (mm; l at either port, with hoses), speed at full virtual flow (m/s), real valve, sensors.

    ``f90`` in Hz; ``delay`` of the valve and ``sensors``, those of the sensors, in ms.
    """

    name: str
    bore: float
    rod: float
    stroke: float
    dead: float
    speed: float
    f90: float
    delay: float
    sensors: float

    @property
    def areas(self) -> tuple[float, float]:
        """Piston and annulus area, m²."""
        return 0.25e-6 * pi * self.bore**2, 0.25e-6 * pi * (self.bore**2 - self.rod**2)

    @property
    def full(self) -> float:
        """Virtual flow into A at full speed, l/min."""
        return 6e4 * self.speed * self.areas[0]

    @property
    def stiffness(self) -> float:
        """Of both closed chambers at the start of the work cycle, N/m."""
        a, b = self.areas
        dead, x = 1e-3 * self.dead, 1e-3 * self.stroke * START
        return BULK * (a * a / (dead + a * x) + b * b / (dead + b * (1e-3 * self.stroke - x)))

    def mass(self, frequency: float) -> float:
        """Mass whose natural frequency on the closed chambers is this, kg."""
        return self.stiffness / (2.0 * pi * frequency) ** 2

    def flow(self, share: float) -> str:
        """A share of the full virtual flow."""
        return f"{share * self.full:.6g} l/min"

    def at(self, share: float, drop: float) -> Table:
        """A point of a datasheet: this share of the full virtual flow at a drop in bar."""
        return {"flow": self.flow(share), "drop": f"{drop:g} bar"}

    def edge(self, share: float, drop: float = 35.0) -> Table:
        """The same of one edge of a valve."""
        return {**self.at(share, drop), "per": "edge"}

    def volume(self, share: float) -> str:
        """A volume: ``share`` ms of the full virtual flow."""
        return f"{share * self.full / 6e4:.6g} l"


SIZES = {
    "small": Size("small", 32, 18, 200, 0.2, 0.10, 100.0, 1.0, 1.0),
    "middle": Size("middle", 63, 36, 800, 0.3, 0.15, 80.0, 2.0, 1.0),
    "large": Size("large", 125, 80, 1500, 1.0, 0.20, 60.0, 3.0, 1.0),
}
LOADS = {"light": 30.0, "heavy": 5.0}
"""Hydraulic natural frequency, Hz."""
CYCLES: dict[str, tuple[tuple[float, float], ...]] = {
    "light": (
        *((0, 0), (0.3, 0), (0.32, 0.7), (0.9, 0.7), (0.92, 0), (1.6, 0)),
        *((2.0, -0.6), (2.3, -0.6), (2.6, 0), (3.2, 0)),
    ),
    "heavy": (
        *((0, 0), (0.3, 0), (0.7, 0.7), (1.0, 0.7), (1.4, 0), (2.2, 0)),
        *((2.6, -0.6), (2.8, -0.6), (3.2, 0), (4.0, 0)),
    ),
}
"""Time (s) and joystick: up (a step, or a ramp of two natural periods), standstill, down on ramps, standstill."""
STANDSTILLS = {"light": ((1.3, 1.6), (2.9, 3.2)), "heavy": ((1.9, 2.2), (3.7, 4.0))}
"""s, in which the machine should stand still."""
