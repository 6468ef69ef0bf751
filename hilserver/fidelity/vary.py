"""How the fidelity of a rig depends on properties unknown to the bridge: each unknown alone, and all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, isfinite

import numpy as np

from hilserver.circuit.program import Program
from hilserver.compiler import compiled_program
from hilserver.errors import HilserverError
from hilserver.fidelity.comparison import Comparison, simulated_device
from hilserver.fidelity.cycle_run import NotCompletedError, run_cycle_on
from hilserver.fidelity.results import ComparedQuantity
from hilserver.fidelity.step import IntegrationStep
from hilserver.fidelity.strategies import usable
from hilserver.fidelity.unknowns import Unknown, applicable, varied
from hilserver.rig.build import assemble
from hilserver.rig.rig import Rig
from hilserver.simulation.step_error import HALVINGS

DRAWS = 3
"""Number of random values of each unknown alone."""
RIGS = 20
"""Default number of randomised rigs."""
NOISE = "noise"
"""The figure of the command's noise; all others are quantities of the comparison."""

Progress = Callable[[str, float], None]
"""Is called with the name of the present run and the fraction of the work that is done."""


@dataclass(frozen=True)
class VariedRun:
    """A work cycle on a rig, and the seed that repeats it.

    ``figures``: NRMSE of each quantity against the reference simulation on the same machine, and `NOISE`, RMS as a
    fraction of full command. ``trip``: why there are none; empty otherwise. ``step_errors``: by how much each figure
    changes with half of every integration step; infinite if it is not known then.
    """

    seed: int
    figures: Mapping[str, float]
    trip: str = ""
    step_errors: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class UnknownResult:
    """One unknown alone: runs with several random values of it."""

    unknown: Unknown
    runs: tuple[VariedRun, ...]

    @property
    def trips(self) -> int:
        """Number of runs that tripped."""
        return sum(bool(run.trip) for run in self.runs)

    def increase(self, figure: str, exact: VariedRun) -> tuple[float, float]:
        """Median and largest increase of a figure over the exact rig, of the runs without a trip; NaN without one."""
        found = [run.figures[figure] - exact.figures[figure] for run in self.runs if not run.trip]
        return (float(np.median(found)), max(found)) if found else (float("nan"), float("nan"))


@dataclass(frozen=True)
class VaryResult:
    """A rig as described, with each unknown alone, and with all at once (randomised rigs), under one strategy.

    ``followed``: the figures by which unknowns and rigs are sorted: positions, and flows into the valves' own ports.
    """

    rig: str
    strategy: str
    followed: tuple[str, ...]
    exact: VariedRun
    unknowns: tuple[UnknownResult, ...]
    randomised: tuple[VariedRun, ...]

    @property
    def figures(self) -> tuple[str, ...]:
        """Names of all figures."""
        return tuple(self.exact.figures)

    @property
    def completed(self) -> tuple[VariedRun, ...]:
        """The randomised rigs that did not trip."""
        return tuple(run for run in self.randomised if not run.trip)

    def percentile(self, figure: str, share: float) -> float:
        """Percentile of a figure over the randomised rigs that did not trip; NaN without one."""
        found = [run.figures[figure] for run in self.completed]
        return float(np.percentile(found, share)) if found else float("nan")

    def worst(self) -> VariedRun | None:
        """The randomised rig with the largest deviation of the figures in ``followed``; None if all tripped."""
        return max(self.completed, key=lambda run: max(run.figures[name] for name in self.followed), default=None)

    def influence(self, result: UnknownResult) -> tuple[int, float]:
        """How much an unknown makes the rig deviate from its reference: its trips, then its largest increase."""
        increases = [result.increase(name, self.exact)[1] for name in self.followed]
        return result.trips, max(filter(isfinite, increases), default=0.0)

    @property
    def runs(self) -> Iterator[tuple[str, VariedRun]]:
        """All runs with what is unknown in them."""
        yield "as described", self.exact
        yield from ((result.unknown.name, run) for result in self.unknowns for run in result.runs)
        yield from (("all unknowns", run) for run in self.randomised)

    def step_error(self, figure: str) -> tuple[float, str, int]:
        """The largest error of a figure by the step, and in which run: its unknown and seed."""
        return max((run.step_errors.get(figure, inf), name, run.seed) for name, run in self.runs if not run.trip)

    def trips(self) -> Iterator[tuple[str, VariedRun]]:
        """Runs that tripped, with the name of the unknown; "all" for randomised rigs."""
        yield from ((result.unknown.name, run) for result in self.unknowns for run in result.runs if run.trip)
        yield from (("all", run) for run in self.randomised if run.trip)


def vary(
    rig: Rig,
    strategy: str | None = None,
    rigs: int = RIGS,
    seed: int = 1,
    progress: Progress = lambda what, done: None,
) -> VaryResult:
    """Run the work cycle on the exact rig, with each unknown alone, and on ``rigs`` randomised ones from ``seed`` on.

    ``strategy``: default the rig file's. The unknowns alone have the values of the first randomised rigs. Raises
    HilserverError if the rig has no simulated machine or work cycle, or does not complete it as described.
    """
    if not any(device.is_simulated for device in rig.devices):
        text = (
            "--vary changes a simulated machine, and this rig has none: describe it in a device with driver simulated."
        )
        raise HilserverError(f"{rig.file}: {text}")
    device, chosen = simulated_device(rig).name, strategy_for(rig, strategy)
    if rig.cycle is None:
        raise HilserverError(f"{rig.file}: --vary runs the work cycle, which this rig file does not name (cycle = …).")
    bench = _Bench(rig, device, chosen, compiled_program(rig.library))
    progress("the rig as described", 0.0)
    exact = bench.run((), seed)
    if exact.trip:
        raise HilserverError(f"{rig.file}: with strategy {chosen} the rig as described {exact.trip}.")
    unknowns = applicable(rig, device)
    tasks = [((unknown,), seed + n) for unknown in unknowns for n in range(min(DRAWS, rigs))]
    every = [(unknowns, seed + n) for n in range(rigs)]
    runs = []
    for done, (drawn, own) in enumerate([*tasks, *every]):
        what = drawn[0].name if done < len(tasks) else "all unknowns"
        progress(f"{what}, seed {own}", (done + 1) / (len(tasks) + rigs + 1))
        runs.append(bench.run(drawn, own))
    each = min(DRAWS, rigs)
    alone = [UnknownResult(unknown, tuple(runs[n * each : (n + 1) * each])) for n, unknown in enumerate(unknowns)]
    found = VaryResult(rig.settings.name, chosen, bench.followed, exact, tuple(alone), tuple(runs[len(tasks) :]))
    return replace(found, unknowns=tuple(sorted(alone, key=found.influence, reverse=True)))


def strategy_for(rig: Rig, named: str | None) -> str:
    """The strategy of all valves. Raises HilserverError if a valve can't use it."""
    own = [valve.bridge.strategy for valve in rig.settings.valves.values() if valve.bridge.strategy != "manual"]
    if named is None and len(set(own)) != 1:
        raise HilserverError(f"{rig.file}: the rig file does not name one strategy for all valves: give --strategy.")
    ((chosen,), _) = usable(rig, [named or own[0]], by_user=True)
    return chosen


@dataclass(frozen=True)
class _Bench:
    """Runs the work cycle of a rig on changed devices, under one strategy."""

    rig: Rig
    device: str
    strategy: str
    program: Program

    @cached_property
    def quantities(self) -> dict[str, ComparedQuantity]:
        """Those of the rig as described."""
        return {quantity.name: quantity for quantity in Comparison.of(self.rig, self.program).quantities()}

    @property
    def followed(self) -> tuple[str, ...]:
        return tuple(q.name for q in self.quantities.values() if q.unit != "Pa" and not q.other_edge)

    def run(self, unknowns: Iterable[Unknown], seed: int) -> VariedRun:
        """With these unknowns, drawn with this seed; and again with half of every step."""
        changed = assemble(varied(self.rig, self.device, unknowns, seed), self.rig.file, self.rig.library)
        found = self.run_on(changed, seed)
        if found.trip:
            return found
        finer = self.run_on(IntegrationStep(2, halvings=HALVINGS).rig(changed), seed).figures
        errors = {name: abs(value - finer.get(name, inf)) for name, value in found.figures.items()}
        return replace(found, step_errors=errors)

    def run_on(self, changed: Rig, seed: int) -> VariedRun:
        """On a rig with a changed device."""
        try:
            run = run_cycle_on(changed, self.device, self.strategy, self.program)
        except NotCompletedError as error:
            return VariedRun(seed, {}, str(error))
        segment = run.result
        figures = {name: segment.deviations[name].nrmse for name in self.quantities}
        figures[NOISE] = max(segment.noise(valve, run.comparison.dt) for valve in segment.command)
        return VariedRun(seed, figures)
