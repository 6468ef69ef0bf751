"""All strategies of the displacement bridge on the benchmark, at nominal and at perturbed plants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hilserver.hybrid.benchmark import (
    CASES,
    DT,
    PUBLISHED,
    SENSORS,
    SPECIMEN,
    BenchmarkCase,
    Run,
    plants,
    reference,
    simulate,
)
from hilserver.hybrid.criteria import Criteria
from hilserver.hybrid.critical_delay import critical_delay
from hilserver.numerics.arrays import Floats
from hilserver.report.document import Grid
from hilserver.tick.hybrid.displacement import DisplacementStrategy

Progress = Callable[[str, float], None]
"""Is told what is run, and the share of the work that is done."""
NOTHING = "–"
SHOWN = slice(int(5.0 / DT), int(20.0 / DT))
"""The ticks of the strong part of the earthquake."""
CASE, STRATEGY = "case", "strategy"


@dataclass(frozen=True)
class PlantResult:
    """A run with one plant: criteria as in the benchmark, and with the true displacement instead of the measured one.

    ``unstable_at``: s, if the run became unstable, without criteria then. ``force``: the largest of the actuator, N.
    """

    measured: Criteria | None
    noise_free: Criteria | None
    force: float
    unstable_at: float | None


@dataclass(frozen=True)
class StudyRow:
    """A strategy in a case: the nominal plant first, then the perturbed ones.

    ``first_floor``: its position with the nominal plant during `SHOWN`, m.
    """

    case: BenchmarkCase
    strategy: DisplacementStrategy
    runs: tuple[PlantResult, ...]
    first_floor: Floats

    def largest(self, noise_free: bool) -> Criteria | None:
        """The largest value of each criterion over the perturbed plants; None if one of them is unstable."""
        found = [run.noise_free if noise_free else run.measured for run in self.runs[1:]]
        values = [each for each in found if each is not None]
        if not values or len(values) < len(found):
            return None
        return Criteria(*(float(value) for value in np.max(values, axis=0)))


def study(
    strategies: Sequence[DisplacementStrategy],
    cases: Sequence[BenchmarkCase] = CASES,
    perturbed: int = 0,
    seed: int = 1,
    tell: Progress = lambda what, done: None,
) -> list[StudyRow]:
    """Run the strategies in the cases, with the nominal plant and with others drawn at random, starting with ``seed``.

    The same plants, with the same noise, for each strategy and case.
    """
    rows: list[StudyRow] = []
    for case in cases:
        for strategy in strategies:
            tell(f"case {case.name}, {strategy.name}", len(rows) / (len(cases) * len(strategies)))
            results, first_floor = [], np.zeros(0)
            for number, plant in enumerate(plants(perturbed, seed)):
                run = simulate(case, strategy, plant, seed=number + 1)
                results.append(_result(run))
                if number == 0:
                    first_floor = run.positions[SHOWN, 0].copy()
            rows.append(StudyRow(case, strategy, tuple(results), first_floor))
    return rows


def _result(run: Run) -> PlantResult:
    if run.unstable_at is not None:
        return PlantResult(None, None, float("nan"), run.unstable_at)
    return PlantResult(run.criteria(), run.criteria(noise_free=True), run.largest_force(), None)


def nominal_grid(rows: Sequence[StudyRow]) -> Grid:
    """The criteria of the nominal plant, with the published ones."""
    lines: list[tuple[str, ...]] = []
    for row in rows:
        if row.strategy is DisplacementStrategy.pi_lead:
            lines.append((row.case.name, "Table 3", *_numbers(PUBLISHED[row.case.name], "{:.1f}"), NOTHING, NOTHING))
        run = row.runs[0]
        lines.append((row.case.name, row.strategy.name, *_cells(run), *_noise_free(run)))
    caption = (
        "Nominal plant. J1 in ms, all others in %; the last two columns use the true displacement instead of the "
        "measured one. Table 3: the values of the paper for pi_lead."
    )
    return Grid((CASE, STRATEGY, *Criteria._fields, "J2 true", "J4 true"), tuple(lines), caption)


def perturbed_grid(rows: Sequence[StudyRow]) -> Grid:
    """The largest criteria over the perturbed plants."""
    lines = []
    for row in rows:
        measured, true = row.largest(False), row.largest(True)
        force = max((run.force for run in row.runs[1:]), default=float("nan"))
        if measured is None or true is None:
            lost = sum(run.unstable_at is not None for run in row.runs[1:])
            note = f"{lost} unstable"
            lines.append((row.case.name, row.strategy.name, note, *[NOTHING] * (len(Criteria._fields) + 2)))
            continue
        lines.append(
            (
                row.case.name,
                row.strategy.name,
                *_numbers(measured, "{:.2f}"),
                *_numbers((true.J2, true.J4), "{:.2f}"),
                f"{force:.0f}",
            )
        )
    count = len(rows[0].runs) - 1
    caption = f"The largest value of each criterion over {count} perturbed plants, and the largest force, N."
    return Grid((CASE, STRATEGY, *Criteria._fields, "J2 true", "J4 true", "force"), tuple(lines), caption)


def cases_grid(cases: Sequence[BenchmarkCase] = CASES) -> Grid:
    """The cases, with their critical delays and the share of the sensor's noise in J2 and J4."""
    lines = []
    for case in cases:
        delay, frequency = critical_delay(case.structure().without(SPECIMEN), SPECIMEN)
        noise = 100.0 * SENSORS.displacement / float(np.std(reference(case)[:, 0]))
        natural = ", ".join(f"{f:.2f}" for f in case.structure().frequencies())
        cells = (f"{case.floor_mass:g} kg, {100 * case.damping:g} %", natural)
        lines.append((case.name, *cells, f"{1e3 * delay:.2f} ms at {frequency:.2f} Hz", f"{noise:.2f} %"))
    head = (CASE, "mass per floor,\ndamping", "natural frequencies,\nHz", "critical delay", "noise of\nthe sensor")
    caption = (
        f"One tick is {1e3 * DT:.3f} ms. Noise of the displacement sensor: its RMS relative to that of the first "
        f"floor in the reference. J2 and J4 include it: they have this value if the displacement is correct."
    )
    return Grid(head, tuple(lines), caption)


def _cells(run: PlantResult) -> tuple[str, ...]:
    if run.measured is None:
        return (f"unstable at {run.unstable_at:.1f} s", *[NOTHING] * (len(Criteria._fields) - 1))
    return _numbers(run.measured, "{:.2f}")


def _noise_free(run: PlantResult) -> tuple[str, ...]:
    return _numbers((run.noise_free.J2, run.noise_free.J4), "{:.2f}") if run.noise_free else (NOTHING, NOTHING)


def _numbers(values: Sequence[float], form: str) -> tuple[str, ...]:
    return tuple(form.format(value) for value in values)
