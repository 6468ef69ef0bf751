"""How accurately an actuator whose position is controlled followed its node, from the columns of a log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from hilserver.numerics.arrays import Floats
from hilserver.tick.codes import Saturation

COMPARED = ("position", "measured", "force_measured", "saturation")
"""Columns of an actuator from which its accuracy follows; one that was recorded without them is not summarised."""
LIMITS = Saturation.RANGE | Saturation.SLEW


def actuators_in(columns: Iterable[str]) -> list[str]:
    """The actuators whose accuracy follows from these columns of a log, in order."""
    known = list(columns)
    first, last = "actuator.", f".{COMPARED[0]}"
    named = [name.removeprefix(first).removesuffix(last) for name in known if name.startswith(first)]
    return [name for name in named if all(f"{first}{name}.{word}" in known for word in COMPARED)]


@dataclass
class ActuatorSums:
    """Sums over the rows in mode RUNNING. Displacements in m, forces in N; ``known``: rows with a new sample."""

    rows: int = 0
    known: int = 0
    squares: float = 0.0
    largest: float = 0.0
    low: float = np.inf
    high: float = -np.inf
    force: float = 0.0
    limited: int = 0

    def add(self, name: str, columns: Mapping[str, Floats], running: Floats) -> None:
        """Add the rows of the actuator ``name`` in which the rig is ``running``."""
        position, measured, force, flags = (columns[f"actuator.{name}.{word}"][running] for word in COMPARED)
        error = measured - position
        error = error[np.isfinite(error)]
        self.rows += len(position)
        self.known += len(error)
        self.squares += float(np.square(error).sum())
        self.largest = max(self.largest, float(np.abs(error).max(initial=0.0)))
        self.low = min(self.low, float(position.min(initial=np.inf)))
        self.high = max(self.high, float(position.max(initial=-np.inf)))
        self.force = max(self.force, float(np.abs(force[np.isfinite(force)]).max(initial=0.0)))
        self.limited += int(np.count_nonzero(flags.astype(np.int64) & LIMITS))

    @property
    def rms(self) -> float:
        """RMS of the measured displacement minus that to follow, m; NaN: not known."""
        return float((self.squares / self.known) ** 0.5) if self.known else float("nan")

    @property
    def span(self) -> float:
        """Range of the displacement to follow, m; 0 if it never ran."""
        return self.high - self.low if self.rows else 0.0

    @property
    def share_limited(self) -> float:
        """Fraction of the time in which the command was at its range or slew limit."""
        return self.limited / self.rows if self.rows else 0.0
