"""Start pressures that carry the load, of the machine of a real rig, or of a load heavier than that in the files.

From other pressures, it would compress the enclosed oil on one side of the piston, and the other side would cavitate,
although the load on a rig is held before a case begins. (A lighter load raises the pressure there.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hilserver.circuit.model import Circuit, Placed
from hilserver.circuit.program import Program
from hilserver.components.shared.piston import Piston
from hilserver.fidelity.reference import ReferenceSimulation, run_signals
from hilserver.units import ATMOSPHERE

PROBE = 1e5
"""Pa, by which a pressure is raised to see how it accelerates the rod."""
TIME = 5e-4
"""s, for which the rods move freely: much less than the period of an oscillation on the oil."""
ROUNDS = 3
"""Rods that a mechanism couples accelerate one another."""
HIGHEST = 1e8
"""Pa; no pressure is raised beyond it: that load rests on something else."""


@dataclass(frozen=True)
class LoadBalance:
    """The directly connected circuit, with the inputs at rest at these levels."""

    reference: ReferenceSimulation
    program: Program
    inputs: Mapping[str, float]

    def pressures(self, known: Mapping[str, float]) -> dict[str, float]:
        """Start values of the cylinders' pressures with which no rod accelerates; none is below that in ``known``."""
        machine, found = self.reference.machine.circuit, dict(known)
        cylinders = [placed for placed in machine.placed if isinstance(placed.component, Piston)]
        for _ in range(ROUNDS):
            for placed in cylinders:
                found |= self._raised(placed, machine, found)
        return {name: value for name, value in found.items() if name not in known or value != known[name]}

    def _raised(self, placed: Placed, machine: Circuit, known: Mapping[str, float]) -> dict[str, float]:
        """The pressures on the side that the load presses on, as high as holds the rod."""
        rod = placed.ports["rod"]
        moved = self._moved(rod, known)
        side = placed.ports.get("A" if moved < 0.0 else "B")
        names = [
            f"{node}.content" for node in _joined(side, machine) if f"{node}.content" in self.reference.packed.values
        ]
        if side is None or not names:
            return {}
        before = dict(zip(self.reference.packed.values, self.reference.start(known), strict=False))
        slope = self._moved(rod, {**known, **{name: before[name] + PROBE for name in names}}) - moved
        if slope * moved >= 0.0:  # it is held, or by something else
            return {}
        raised = {name: before[name] - moved / slope * PROBE for name in names}
        return {name: float(p) for name, p in raised.items() if -ATMOSPHERE < p < HIGHEST}

    def _moved(self, rod: str, known: Mapping[str, float]) -> float:
        """How far a rod moves from its start in this time, m."""
        start = self.reference.start(known)
        signals = {name: np.full(1, level) for name, level in self.inputs.items()}
        rows = run_signals(self.program, self.reference.packed, TIME, signals, start)
        place = self.reference.packed.values.index(f"{rod}.x")
        return float(rows[-1, place] - start[place])


def _joined(node: str | None, machine: Circuit) -> list[str]:
    """A node and those from which oil flows to it within the machine; alone if one of them is a source or a tank."""
    found = [node] if node is not None else []
    for one in found:
        for placed in machine.placed:
            ports = [placed.ports[port] for port in placed.component.hydraulic]
            if one in ports and not isinstance(placed.component, Piston):
                if len(ports) == 1 and placed.component.type_name in ("tank", "pressure_source"):
                    return found[:1]
                found += [other for other in ports if other not in found]
    return found
