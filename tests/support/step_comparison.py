"""Circuit runs of random machines compared with the independent reference: true and stated error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from independent_reference import Case, random_case

from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.errors import HilserverError
from hilserver.rig.cycle import CycleSettings
from hilserver.simulation.circuit_run import CircuitRun, run_circuit

FACTOR = 3.0
"""Largest ratio of the true error to the stated one, of a run whose step is reported to be short enough."""
KINDS = {"pressure": "p", "position": "x", "velocity": "v"}
ROUNDING = 2e-6
"""Of a quantity's largest value: below it, the reference's own error counts too."""


@dataclass(frozen=True)
class Compared:
    """A run: ``stated`` and ``true`` errors, as fractions of the largest value, by quantity; ``said``: the verdict."""

    what: str
    good: bool
    said: str
    stated: dict[str, float]
    true: dict[str, float]

    @property
    def wrong(self) -> list[str]:
        """Quantities whose true error is over three times the stated one, of a step that passes as short enough."""
        if not self.good:
            return []
        return [name for name, true in self.true.items() if not true <= FACTOR * self.stated[name] + ROUNDING]

    @property
    def largest(self) -> float:
        """The largest true error."""
        return max(self.true.values())


def run_of(case: Case, integrator: str, substeps: int) -> CircuitRun:
    """A run with inputs evaluated within the stages."""
    library = standard_library()
    raw = case.circuit | {"solver": {"integrator": integrator, "substeps": substeps}}
    inputs = {name: {"points": [[f"{t} s", v] for t, v in line]} for name, line in case.points.items()}
    cycle = CycleSettings.model_validate({"inputs": inputs})
    return run_circuit(read_circuit(raw, library), library, cycle, case.duration)


def compared(seed: int) -> Compared:
    """A random machine, run with a random solver and compared with the independent reference."""
    name, case, integrator, substeps = random_case(seed)
    what = f"{seed}: {name}, {integrator} × {substeps}"
    try:
        run = run_of(case, integrator, substeps)
    except HilserverError as error:
        return Compared(what, False, str(error), {}, {"all": np.inf})
    assert run.error is not None
    exact = case.solved(run.time)
    true: dict[str, float] = {}
    for deviation in run.error.deviations:
        label = deviation.quantity
        if label in KINDS:
            nodes = [state.split()[1] for state in case.states if state.startswith(label)]
            differences = [np.abs(run.series[f"{n}.{KINDS[label]}"] - _shown(exact, label, n)).max() for n in nodes]
            true[label] = float(max(differences)) / deviation.size
    stated = {each.quantity: each.relative for each in run.error.deviations}
    return Compared(what, not run.error.too_long, run.error.verdict(), stated, true)


def _shown(exact: dict[str, np.ndarray], label: str, node: str) -> np.ndarray:
    values = exact[f"{label} {node}"]
    return np.maximum(values, -1e5) if label == "pressure" else values
