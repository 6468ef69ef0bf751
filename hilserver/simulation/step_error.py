"""The error of a circuit run that is due to its step: its difference from a run with half the step; and a sufficient

step. With half the step, a method of order p has 2^-p of the error. The difference is therefore the error itself, minus
this part (Richardson): half of the error of a method of first order, 94 % of it for RK4 where the circuit is smooth.
``rosenbrock`` divides its step at corners of the circuit, and would divide half of the step into the same parts: in the
second run its parts are at most a quarter of the step, and held to a sixteenth of the linearisation error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Any

import numpy as np

from hilserver.circuit.model import MAX_SUBSTEPS, Solver
from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.report.document import Grid
from hilserver.units import shown_value

TOLERANCE = 0.01
"""Difference from the run of half the step, as a fraction of the largest value of the quantity, that is accepted."""
MAX_STEPS = 20_000_000
"""Limit of the steps of one run in the search for a sufficient step: some tens of seconds."""
PATIENCE = 3
"""Halvings of a ``rosenbrock`` step that must at least halve the difference; no shorter step would be sufficient."""
HALVINGS = 2
"""Of the parts of a ``rosenbrock`` step in the second run, see ``engine.HALVINGS``."""


def check_tolerance(tolerance: float) -> None:
    """Raises HilserverError if this is no tolerance."""
    if not 0.0 < tolerance <= 1.0:
        raise HilserverError(f"tolerance: {tolerance:g} is outside the range 0 … 1.")


Quantity = tuple[str, str, Mapping[str, Floats]]
"""Label, SI unit, and the values over time by name."""


@dataclass(frozen=True)
class StepDeviation:
    """The largest difference of a quantity from a run of half the step, SI: of which value, at which time in s.

    ``size``: the largest value of the quantity anywhere in the run.
    """

    quantity: str
    unit: str
    name: str
    time: float
    largest: float
    size: float

    @property
    def relative(self) -> float:
        """Fraction of the size; infinite if the run, or the run with half the step, is not finite."""
        if not isfinite(self.largest):
            return inf
        return self.largest / self.size if self.size > 0.0 else 0.0

    def __str__(self) -> str:
        of = f"{self.quantity} {self.name}: {shown_value(self.largest, self.unit, 3)} at {self.time:.4g} s"
        return f"{of}, {100 * self.relative:.2g} % of {shown_value(self.size, self.unit, 3)}"


@dataclass(frozen=True)
class StepError:
    """The error of a run by its step: the largest deviation of each quantity; ``remedy``: what to change, if too long.

    ``step``: s.
    """

    step: float
    integrator: str
    deviations: tuple[StepDeviation, ...]
    tolerance: float = TOLERANCE
    remedy: str = ""

    @property
    def judged(self) -> tuple[StepDeviation, ...]:
        """The deviations on which the verdict depends: those of the states.

        Flows follow from them, and where a valve shifts or a pressure drop is small, they change fast with them.
        """
        return tuple(each for each in self.deviations if each.quantity != "flow") or self.deviations

    @property
    def too_long(self) -> bool:
        """Whether the step is too long for the tolerance."""
        return not all(each.relative <= self.tolerance for each in self.judged)

    @property
    def worst(self) -> StepDeviation:
        """The largest of these deviations, as a fraction of its quantity."""
        return max(self.judged, key=lambda each: each.relative)

    def verdict(self) -> str:
        """One or two sentences: whether the step is short enough, and if not, which step is."""
        step = f"step of {self.step * 1e6:g} µs"
        if not self.deviations:
            return f"The {step} can't be judged: nothing moves."
        if self.too_long:
            return f"The {step} is too long for {self.integrator}: {self.worst}. {self.remedy}"
        error = f"{100 * self.worst.relative:.2g} %"
        return f"Discretisation error with a {step}, from a run with half the step: at most {error}."

    def grid(self) -> Grid:
        """The deviations as a table."""
        rows = (
            (each.quantity, each.name, shown_value(each.largest, each.unit, 3), f"{each.time:.4g} s",
             shown_value(each.size, each.unit, 3), f"{100 * each.relative:.2g} %")
            for each in self.deviations
        )  # fmt: skip
        head = ("quantity", "value", "largest difference", "at", "largest value", "of it")
        return Grid(head, tuple(rows), "Differences from a run with half the step: the discretisation error.")

    def figures(self) -> dict[str, Any]:
        """All of it for a JSON file, SI."""
        return {
            "step": self.step,
            "integrator": self.integrator,
            "tolerance": self.tolerance,
            "too_long": self.too_long,
            "verdict": self.verdict(),
            "quantities": {
                each.quantity: {
                    "largest_difference": each.largest,
                    "unit": each.unit,
                    "of": each.name,
                    "at": each.time,
                    "size": each.size,
                }
                for each in self.deviations
            },
        }


def deviations(time: Floats, run: list[Quantity], finer: list[Quantity]) -> tuple[StepDeviation, ...]:
    """The largest deviation of each quantity of a run from a finer one; infinite if one is not finite."""
    return tuple(_deviations(time, run, finer))


def _deviations(time: Floats, run: list[Quantity], finer: list[Quantity]) -> Iterator[StepDeviation]:
    for (label, unit, lines), (_, _, exact) in zip(run, finer, strict=True):
        size, largest, where, at = 0.0, -1.0, "", 0.0
        for name, line in ((name, line) for name, line in lines.items() if name in exact):
            with np.errstate(invalid="ignore", over="ignore"):
                difference = np.abs(line - exact[name])
            difference[~np.isfinite(difference)] = np.inf
            finite = exact[name][np.isfinite(exact[name])]
            size = max(size, float(np.abs(finite).max(initial=0.0)))
            k = int(np.argmax(difference))
            if difference[k] > largest:
                largest, where, at = float(difference[k]), name, float(time[k])
        if where:
            yield StepDeviation(label, unit, where, at, largest, size)


# --- a step that suffices ---------------------------------------------------------------------------------------------

RunWith = Callable[[int, str, int], list[Quantity]]
"""Runs a circuit with this number of substeps, this integrator, and this number of halvings of the parts of its
step."""


def step_error(
    solver: Solver,
    tick: float,
    ticks: int,
    time: Floats,
    run_with: RunWith,
    tolerance: float = TOLERANCE,
    words: Callable[[int], str] | None = None,
) -> StepError:
    """The error of a run that is due to its step, from a run with half the step; if it is too large, also what to
    change.

    ``words``: how a number of substeps is set, if one number is not sufficient.
    """

    divides = solver.integrator == "rosenbrock"

    def error_of(coarse: list[Quantity], fine: list[Quantity]) -> StepError:
        found = deviations(time, coarse, fine)
        return StepError(tick / solver.substeps, solver.integrator, found, tolerance)

    finer = run_with(2 * solver.substeps, solver.integrator, HALVINGS)
    error = error_of(run_with(solver.substeps, solver.integrator, 0), finer)
    if not error.too_long:
        return error
    substeps, ways, found, stalls = 2 * solver.substeps, list[str](), [error.worst.relative], False
    while not stalls and substeps <= MAX_SUBSTEPS and 2 * substeps * ticks <= MAX_STEPS:
        coarse = run_with(substeps, solver.integrator, 0) if divides else finer
        finer = run_with(2 * substeps, solver.integrator, HALVINGS)
        now = error_of(coarse, finer)
        if not now.too_long:
            ways.append(words(substeps) if words else f"at least {substeps} solver.substeps{_shared(solver, substeps)}")
            break
        found.append(now.worst.relative)
        stalls = divides and len(found) > PATIENCE and isfinite(found[-1]) and found[-1] > 0.5 * found[-1 - PATIENCE]
        substeps *= 2
    if not divides and not error_of(run_with(solver.substeps, "rosenbrock", 0), finer).too_long:
        ways.append('integrator = "rosenbrock"')
    remedy = f"Use {', or '.join(ways)}."
    if not ways:
        remedy = f"No step down to {tick / substeps * 1e6:.3g} µs agrees with half of it within {100 * tolerance:g} %."
        if stalls:
            remedy += " Shorter steps bring them no closer: the run amplifies small differences, as oscillations do."
    return replace(error, remedy=remedy)


def _shared(solver: Solver, substeps: int) -> str:
    """The solutions of mechanisms for this number of substeps: the number of steps that share one remains the same."""
    solutions = solver.mechanics_substeps
    return "" if solutions is None else f" with {solutions * substeps // solver.substeps} mechanics_substeps"
