"""A virtual commissioning: every case under every strategy, and the verdicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from hilserver.compiler import compiled_program
from hilserver.errors import HilserverError
from hilserver.fidelity.segments import CycleSegment, TripInRun, passes, trip_in
from hilserver.fidelity.strategies import usable
from hilserver.rig.available_strategies import possible
from hilserver.rig.rig import Rig
from hilserver.virtual_commissioning.cases import SECONDS, Case, cases
from hilserver.virtual_commissioning.criteria import CRITERIA, Criterion, Suitability
from hilserver.virtual_commissioning.exclusions import Exclusion, exclusion
from hilserver.virtual_commissioning.figures import CaseFigures, Scales, figures, harmful, until
from hilserver.virtual_commissioning.remedies import remedies
from hilserver.virtual_commissioning.sensor_ranges import Pressures, outside_ranges, pressures, saturated, too_small
from hilserver.virtual_commissioning.subject import CaseRun, Subject
from hilserver.virtual_commissioning.turned_loads import of_unstated_loads

MIN_JUDGED = 0.3
"""s of a case; with less there is nothing to judge."""
NO_FIGURES = CaseFigures({})

Progress = Callable[[str, float], None]
"""Is called with the name of each case before it runs, and the fraction of the work that is done."""


@dataclass(frozen=True)
class CaseResult:
    """A case under a strategy. ``trip``: how it ended early; ``exclusion``: why, or from when on, it is not judged.

    ``trip_counts``: whether the strategy is the cause of the trip; ``pressures``: at the ports in the reference
    simulation, until the case is no longer judged; ``saturated``: channels at an end of their range.
    """

    case: Case
    figures: CaseFigures
    trip: TripInRun | None = None
    exclusion: str = ""
    judged: bool = True
    trip_counts: bool = True
    pressures: Pressures = field(default_factory=dict)
    saturated: tuple[str, ...] = ()

    @property
    def verdict(self) -> Suitability:
        """The worst verdict on its figures."""
        if self.trip is not None and self.trip_counts:
            return Suitability.UNFIT
        return max((c.verdict(v) for c, v in self.values()), default=Suitability.FIT)

    def values(self) -> list[tuple[Criterion, float]]:
        """The figures that are judged, with their criteria."""
        return [(c, self.figures.judged[c.name]) for c in CRITERIA if c.name in self.figures.judged and self.judged]


@dataclass(frozen=True)
class StrategyResult:
    """All cases under a strategy."""

    strategy: str
    cases: tuple[CaseResult, ...]

    @property
    def verdict(self) -> Suitability:
        """The worst verdict on a case; unfit where no case could be judged."""
        judged = [found.verdict for found in self.cases if found.judged]
        return max(judged, default=Suitability.UNFIT)

    @property
    def trips(self) -> list[CaseResult]:
        """The cases that ended before their time, through the strategy's own fault."""
        return [found for found in self.cases if found.trip is not None and found.trip_counts]

    def worst(self, name: str) -> tuple[float, CaseResult] | None:
        """The largest value of a figure, and its case; None if no case has it."""
        known = [
            (found.figures.judged[name], found) for found in self.cases if found.judged and name in found.figures.judged
        ]
        return max(known, key=lambda pair: pair[0], default=None)


@dataclass(frozen=True)
class TrialResult:
    """The result of a virtual commissioning.

    ``configured``: the strategies in the rig file; ``left_out``: those that were not tried, with the reason;
    ``remedies``: for those that are not fit; ``notes``: what the reader must know of the simulated rig.
    """

    rig: str
    configured: tuple[str, ...]
    results: tuple[StrategyResult, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    remedies: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Suitability:
        """The worst verdict on a configured strategy."""
        return max((r.verdict for r in self.results if r.strategy in self.configured), default=Suitability.FIT)


def commission(
    rig: Rig,
    named: Sequence[str] | None = None,
    *,
    seconds: float = SECONDS,
    progress: Progress = lambda case, done: None,
) -> TrialResult:
    """Virtual commissioning of a rig: all cases, under the strategies of these names.

    ``named``: default all that the rig can use; the configured ones are always included. ``seconds``: duration of
    rest. Raises HilserverError if the rig has neither a simulated machine nor what is needed to make one.
    """
    subject, own = Subject(rig, compiled_program(rig.library)), configured(rig)
    tried, left_out = usable(rig, [*(named or possible(rig.settings)), *own], by_user=bool(named))
    every = cases(rig, seconds, stroke=subject.varies_stroke, loads=subject.loads, home=subject.home)
    chosen = tuple(of_unstated_loads(subject, every))
    results = run_cases(subject, [name for name in tried if name not in left_out], chosen, progress)
    found = [each for result in results for each in result.cases]
    seen = {str(each.case): each.pressures for each in found if each.pressures}
    ends = {str(each.case): each.saturated for each in found if each.saturated}
    ranges = [*outside_ranges(rig.settings, seen), *too_small(rig.settings, ends)]

    def again(changed: Subject, names: Sequence[str]) -> tuple[StrategyResult, ...]:
        return run_cases(changed, names, chosen, lambda case, done: progress(f"{case}, with a remedy", done))

    remedied = tuple(remedies(subject, own, results, again))
    return TrialResult(rig.settings.name, own, results, left_out, remedied, (*subject.notes, *ranges))


def run_cases(
    subject: Subject, strategies: Sequence[str], chosen: Sequence[Case], progress: Progress = lambda case, done: None
) -> tuple[StrategyResult, ...]:
    """Run cases under these strategies."""
    found: dict[str, list[CaseResult]] = {name: [] for name in strategies}
    scales = subject.scales()
    for number, case in enumerate(chosen):
        run = subject.of(case)
        for turn, name in enumerate(strategies):
            progress(str(case), (number + turn / len(strategies)) / len(chosen))
            found[name].append(_result(run, name, scales))
    return tuple(StrategyResult(name, tuple(results)) for name, results in found.items())


def configured(rig: Rig) -> tuple[str, ...]:
    """The strategies in a rig file that follow the virtual flow."""
    return tuple(
        dict.fromkeys(v.bridge.strategy for v in rig.settings.valves.values() if v.bridge.strategy != "manual")
    )


def _result(run: CaseRun, strategy: str, scales: Scales) -> CaseResult:
    """A case under a strategy."""
    comparison, case = run.comparison, run.case
    try:
        record, true_values = run.run(strategy)
    except HilserverError as error:
        return CaseResult(case, NO_FIGURES, exclusion=str(error).removesuffix("."), judged=False)
    trip, found = trip_in(record, comparison.rig), passes(record)
    if not found:
        return CaseResult(case, NO_FIGURES, trip)
    segment, _ = comparison.evaluated(record, true_values, CycleSegment(found[0], 0.0))
    excluded = exclusion(comparison, case.kind, segment)
    ticks = min(excluded.tick if excluded else len(segment.time), len(segment.time))
    if ticks * comparison.dt < MIN_JUDGED and not (trip and trip.row < found[0].start + ticks):
        return CaseResult(case, NO_FIGURES, trip, _sentence(excluded, comparison.dt), judged=False, trip_counts=False)
    part = until(segment, ticks)
    supplies = [record.columns[f"channel.{v.supply}"][found[0]] for v in comparison.rig.settings.valves.values()]
    scales = replace(scales, supply=max(float(np.max(values)) for values in supplies))
    judged = figures(case.kind, part, comparison.rig.settings, scales, comparison.dt)
    judged = judged if case.flow == 1.0 else harmful(judged)
    trip_counts = excluded is None or trip is None or trip.row < found[0].start + excluded.tick - 1
    excluding, seen = _sentence(excluded, comparison.dt), pressures(part, comparison.rig.settings)
    ends = saturated(record.columns, found[0], comparison.rig.settings)
    return CaseResult(case, judged, trip, excluding, trip_counts=trip_counts, pressures=seen, saturated=ends)


def _sentence(excluded: Exclusion | None, dt: float) -> str:
    return f"{excluded.reason} at {excluded.tick * dt:.2f} s" if excluded is not None else ""
