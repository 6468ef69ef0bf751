"""Values of the unknowns of a rig: at random from their usual ranges, or as given by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from hilserver.units import value_and_unit


class Draw(Protocol):
    """Gives the values of an unknown. ``name``: which of its values; empty if it has one only."""

    def uniform(self, low: float, high: float, unit: str = "", name: str = "") -> float:
        """A value between these limits, in ``unit``."""
        ...


@dataclass(frozen=True)
class RandomDraw:
    """All values within a range are equally probable; each use of a value has its own."""

    random: np.random.Generator

    def uniform(self, low: float, high: float, unit: str = "", name: str = "") -> float:
        """As `Draw`."""
        return float(self.random.uniform(low, high))


@dataclass(frozen=True)
class UsualRange:
    """The usual values of an unknown, in the SI ``unit``."""

    low: float
    high: float
    unit: str

    @property
    def middle(self) -> float:
        """The middle of the range."""
        return 0.5 * (self.low + self.high)


@dataclass(frozen=True)
class NamedDraw:
    """Values by name, SI, otherwise the middle of the usual range; each use of a value has the same.

    ``ranges``: the usual ranges of what was asked for, by name.
    """

    values: Mapping[str, float] = field(default_factory=dict)
    ranges: dict[str, UsualRange] = field(default_factory=dict)

    def uniform(self, low: float, high: float, unit: str = "", name: str = "") -> float:
        """As `Draw`."""
        factor, si = value_and_unit(f"1 {unit}") if unit else (1.0, "")
        return self._of(name, UsualRange(low * factor, high * factor, si)) / factor

    def _of(self, name: str, usual: UsualRange) -> float:
        self.ranges[name] = usual
        return self.values.get(name, usual.middle)
