"""How accurately an actuator whose position is controlled followed its node, from the columns of a log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from hilserver.numerics.arrays import Floats
from hilserver.record.deviations import Deviations
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
class ActuatorSums(Deviations):
    """Displacements in m; ``force``: the largest measured one, N."""

    force: float = 0.0

    def add(self, name: str, columns: Mapping[str, Floats], running: Floats) -> None:
        """Add the rows of the actuator ``name`` in which the rig is ``running``."""
        position, measured, force, flags = (columns[f"actuator.{name}.{word}"][running] for word in COMPARED)
        self.compare(position, measured, flags, LIMITS)
        self.force = max(self.force, float(np.abs(force[np.isfinite(force)]).max(initial=0.0)))
