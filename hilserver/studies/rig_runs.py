"""Runs of a simulated rig with other values, in lockstep, each reduced to figures: no file per run."""

from __future__ import annotations

import time as clock
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.circuit.library import library_of
from hilserver.circuit.own import OwnFile
from hilserver.circuit.program import Program
from hilserver.compiler import compiled_program
from hilserver.fidelity.comparison import RunOf
from hilserver.fidelity.cycle_run import NotCompletedError, run_cycle_on
from hilserver.fidelity.results import LIMITED, SegmentResult
from hilserver.fidelity.step import IntegrationStep
from hilserver.fidelity.strategies import with_cycle
from hilserver.fidelity.vary import strategy_for
from hilserver.margins.margins import margins
from hilserver.numerics.arrays import Floats
from hilserver.rig.build import assemble
from hilserver.rig.rig import Rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.simulation.pacing import Unpaced
from hilserver.simulation.step_error import HALVINGS
from hilserver.studies.figures import FIDELITY, MARGIN, SATURATED, Figure
from hilserver.studies.subject import VariantFailedError, reason_of
from hilserver.studies.sweep_figures import OVER_FREQUENCY, figure_over_frequency
from hilserver.studies.varied_rig import CIRCUIT, RigValues
from hilserver.tick.bridge.strategies import Strategy
from hilserver.tick.plan import Plan, plan_on

STRATEGY = "strategy"
"""The key of the strategy of all valves."""
BLOCK = 4000
"""Ticks from one look at the clock to the next."""
Course = tuple[Floats, Floats, Floats | None]
"""A quantity of a run: time, s, values, and what a deviation is measured from; None: the nominal run."""


@dataclass(frozen=True)
class RigSubject:
    """A simulated rig, its varied quantities, and the figures of a run of its work cycle.

    ``varied``: keys, see `RigValues`; ``choices``: for some of them, the strategies or tables of components that they
    are chosen from. ``strategy``: of all valves, where it is not varied; empty: those of the rig file. ``written``:
    machine and drive as they are written. ``sweep``: the work cycle that gives figures over frequency.
    """

    file: str
    sources: Mapping[str, Any]
    written: Mapping[str, Mapping[str, Any]]
    own: tuple[OwnFile, ...]
    varied: tuple[str, ...]
    strategy: str
    figures: tuple[Figure, ...] = ()
    limit: float = np.inf
    choices: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    sweep: Mapping[str, Any] | None = None

    def values(self) -> RigValues:
        """The rig with its values."""
        return RigValues(assemble(self.sources, Path(self.file), library_of(self.own)), self.written)

    def prepare(self) -> RunsOfRig:
        """Loaded, and run once as it is described."""
        return CycleRuns(self)


class RunsOfRig(ABC):
    """The runs of a rig in this process, see `StudyRuns`."""

    def __init__(self, subject: RigSubject) -> None:
        self.subject, self.values = subject, subject.values()
        self.program: Program = compiled_program(self.values.rig.library)
        self._plans: dict[str, tuple[Plan, Plan]] = {}
        self.in_place = tuple(False for _ in subject.varied)
        self.without_effect: tuple[str, ...] = ()
        self.nominal_end: str | None = None
        self._nominal = self.courses(self.values.rig, subject.strategy, np.inf)
        self.nominal = self._figures(self._nominal)

    def __call__(self, values: Floats) -> Floats:
        """The figures of a variant. Raises VariantFailedError."""
        return self._figures(self.courses(*self.rig_of(values), self.subject.limit))

    def of_half_the_step(self, values: Floats | None = None) -> Floats:
        """The same with half of every integration step; without values: of the rig as it is described."""
        rig, strategy = self.rig_of(values) if values is not None else (self.values.rig, self.subject.strategy)
        return self._figures(self.courses(IntegrationStep(2, halvings=HALVINGS).rig(rig), strategy, np.inf))

    def rig_of(self, values: Sequence[float] | Floats) -> tuple[Rig, str]:
        """The rig of a variant, and its strategy. Raises VariantFailedError if it can't have these values."""
        subject, plain, chosen, strategy = self.subject, dict[str, float](), dict[str, Any](), self.subject.strategy
        for key, x in zip(subject.varied, values, strict=True):
            if key == STRATEGY:
                strategy = subject.choices[key][int(x)]
            elif key in subject.choices:
                chosen[key] = subject.choices[key][int(x)]
            else:
                plain[key] = float(x)
        try:
            return self.values.changed(plain, chosen), strategy
        except Exception as error:
            raise VariantFailedError(f"this variant can't be built: {reason_of(error)}") from error

    def with_strategy(self, rig: Rig, strategy: str) -> Rig:
        """The rig with this strategy for all valves; empty: as it is."""
        own, plan = self._plans.get(strategy, (None, rig.plan))
        if own is not rig.plan:  # most variants have the same one
            plan = with_strategy(rig, strategy).plan
            self._plans[strategy] = rig.plan, plan
        return replace(rig, plan=plan)

    @abstractmethod
    def courses(self, rig: Rig, strategy: str, limit: float) -> list[Course]:
        """What the figures are made of, in their order. ``limit``: s of computing time.

        Raises VariantFailedError.
        """

    def _figures(self, courses: Sequence[Course]) -> Floats:
        return np.array(
            [
                _figure(figure, course, nominal[1])
                for figure, course, nominal in zip(self.subject.figures, courses, self._nominal, strict=True)
            ]
        )


def _figure(figure: Figure, course: Course, nominal: Floats) -> float:
    time, values, reference = course
    other = nominal if reference is None else reference
    n = min(len(values), len(other))  # a sequence may have ended early
    return figure.of(time[:n], values[:n], other[:n])


def with_strategy(rig: Rig, strategy: str) -> Rig:
    """The rig with this strategy for all valves; empty: as it is."""
    if not strategy:
        return rig
    plan = plan_on(rig.plan.block.copy())
    plan.valve["strategy_first"][:] = Strategy[strategy]
    return replace(rig, plan=plan)


def within(limit: float) -> Unpaced:
    """Ends a run, or several runs one after the other, after this computing time, s."""
    begun = clock.thread_time()

    def look(ticks: int, values: Floats) -> None:
        if clock.thread_time() - begun > limit:
            raise VariantFailedError(f"aborted after {limit:g} s of computing time, at tick {ticks}")

    return Unpaced(BLOCK, look)


class CycleRuns(RunsOfRig):
    """Runs of the work cycle, each compared with the reference simulation of the same variant."""

    def courses(self, rig: Rig, strategy: str, limit: float) -> list[Course]:
        """What the figures are made of. Raises VariantFailedError, also if the rig trips."""
        device, pacing = self.values.device, within(limit)

        def run_of(rig: Rig, program: Program) -> LockstepRun:
            return LockstepRun(rig, program=program, trace=True, pacing=pacing)

        try:
            run = run_cycle_on(rig, device, strategy, self.program, run_of)
        except NotCompletedError as error:
            raise VariantFailedError(str(error)) from None
        part = run.record
        series = {
            **part.columns,
            **{f"{CIRCUIT}.{name}": part.values[:, k] for k, name in enumerate(part.circuit.names)},
            **{
                plant_key(rig, device, name): run.true_values[:, k] for k, name in enumerate(run.comparison.plant.names)
            },
        }
        if any(figure.reduction == MARGIN for figure in self.subject.figures):  # takes some tenths of a second
            known = dict(_margins(rig, strategy or strategy_for(rig, None), self.program))
            series |= {name: np.full(len(run.result.time), known[name]) for name in known}
        sweep = self._sweep(rig, strategy, run_of)
        return [
            _course(figure, run.result, series) if figure.reduction not in OVER_FREQUENCY else _swept(figure, sweep)
            for figure in self.subject.figures
        ]

    def _sweep(self, rig: Rig, strategy: str, run_of: RunOf) -> SegmentResult | None:
        """The sweep of a variant, if a figure needs it. Raises VariantFailedError."""
        if self.subject.sweep is None or not any(f.reduction in OVER_FREQUENCY for f in self.subject.figures):
            return None
        swept = with_cycle(rig, self.subject.sweep)
        try:
            return run_cycle_on(swept, self.values.device, strategy, self.program, run_of, swept=True).result
        except NotCompletedError as error:
            raise VariantFailedError(f"in the sweep: {error}") from None


def margin_names(valves: Iterable[str]) -> list[str]:
    """The margins of a rig with these valves."""
    return [*(f"{what} {valve}" for valve in valves for what in ("capacity", "speed")), "delay"]


def _margins(rig: Rig, strategy: str, program: Program) -> Iterator[tuple[str, float]]:
    """The smallest margins of each valve, and that of the delay, by name; NaN if it is unknown."""
    found = margins(rig, program)
    least = dict.fromkeys(margin_names(rig.settings.valves), np.nan)
    for each in found.capacity.capacities:
        least[f"capacity {each.valve}"] = np.fmin(least[f"capacity {each.valve}"], each.margin)
    for speed in found.capacity.speeds:
        least[f"speed {speed.valve}"] = np.fmin(least[f"speed {speed.valve}"], speed.margin)
    if (delay := found.delay.of(strategy)) is not None:
        least["delay"] = delay.margin
    for name, margin in least.items():
        yield name, float(margin)


def _swept(figure: Figure, sweep: SegmentResult | None) -> Course:
    value = figure_over_frequency(figure.reduction, figure.quantity, sweep) if sweep is not None else np.nan
    return np.zeros(1), np.array([value]), None


def _course(figure: Figure, result: SegmentResult, series: Mapping[str, Floats]) -> Course:
    if figure.reduction == FIDELITY:
        return result.time, result.actual[figure.quantity], result.reference[figure.quantity]
    if figure.reduction == SATURATED:
        limited = result.saturation[figure.quantity].astype(np.int64) & LIMITED
        return result.time, (limited > 0).astype(np.float64), None
    if figure.quantity not in series:
        raise VariantFailedError(f"has no quantity {figure.quantity}: the components chosen don't have it")
    return result.time, series[figure.quantity].astype(np.float64), None


def plant_key(rig: Rig, device: str, name: str) -> str:
    """The key of a value of the simulated machine with its drive: the component says of which of the two it is."""
    drive = rig.sources["devices"][device]["drive"]
    return f"{'drive' if name.rpartition('.')[0] in drive.get('components', {}) else 'machine'}.{name}"
