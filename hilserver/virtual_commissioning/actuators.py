"""Virtual commissioning of actuators: their work cycle under each strategy, as described and with what is not known.

A delay that nobody has stated, of one tick in the command and one in the force, must be withstood; and, where the
devices are real, actuator and specimen may differ from the rig file by twice the stated uncertainty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from math import inf
from typing import Any

from hilserver.errors import HilserverError
from hilserver.hybrid.rig_runs import HybridRig, StrategyRun, chosen_strategies
from hilserver.hybrid.stand_in import simulated
from hilserver.report.document import Grid
from hilserver.rig.build import assemble
from hilserver.rig.rig import Rig
from hilserver.tick.hybrid.displacement import FOLLOWING
from hilserver.units import to_si
from hilserver.virtual_commissioning.criteria import Suitability
from hilserver.virtual_commissioning.request import COMPARE, REMEDY, Findings

DOUBTFUL, UNFIT = 0.02, 0.10
"""Largest RMS error against the reference simulation of a strategy that is fit, and of one that is doubtful."""
DEVIATIONS = 2.0
"""Standard deviations by which uncertain values are shifted."""
SHORT = 10.0
"""s of the work cycle before arming."""
TESTED = "as described"
NOTHING = "–"
Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class TriedStrategy:
    """A strategy in all cases, by their names."""

    strategy: str
    runs: Mapping[str, StrategyRun]

    @property
    def verdict(self) -> Suitability:
        """The worst of all cases."""
        return max(map(verdict, self.runs.values()), default=Suitability.FIT)

    def worst(self) -> tuple[str, StrategyRun]:
        """The case with the worst result."""
        return max(self.runs.items(), key=lambda found: (verdict(found[1]), largest_error(found[1])))


def largest_error(run: StrategyRun) -> float:
    """RMS error of the worst position against the reference simulation; infinite after a trip."""
    if run.trip:
        return inf
    return max([*(each.off for each in run.actuators.values()), *run.positions.values()], default=0.0)


def verdict(run: StrategyRun) -> Suitability:
    """Of a run: a trip is unfit."""
    error = largest_error(run)
    if error > UNFIT:
        return Suitability.UNFIT
    return Suitability.DOUBTFUL if error > DOUBTFUL else Suitability.FIT


def commission_actuators(
    rig: Rig, names: Sequence[str] | None = None, tell: Progress = lambda what, done: None
) -> list[TriedStrategy]:
    """Run all cases under each strategy, of all actuators at the same time. Raises HilserverError without a cycle."""
    if rig.cycle is None:
        raise HilserverError(f"{rig.file}: --run needs a work cycle to move the actuators (cycle = …).")
    strategies = chosen_strategies(rig, names)
    subjects = {what: HybridRig.of(varied) for what, varied in cases(rig)}
    found = []
    for number, strategy in enumerate(strategies):
        runs = {}
        for place, (what, subject) in enumerate(subjects.items()):
            tell(f"{strategy}, {what}", (number + place / len(subjects)) / len(strategies))
            runs[what] = subject.run(dict.fromkeys(rig.settings.actuators, strategy))
        found.append(TriedStrategy(strategy, runs))
    return found


def cases(rig: Rig) -> Iterator[tuple[str, Rig]]:
    """The simulated rigs that are tried, by their names."""
    nominal = simulated(rig)
    yield TESTED, nominal
    yield "command and force a tick late", _late(nominal)
    if nominal is not rig and any(a.uncertainty for a in rig.settings.actuators.values()):
        for sign, word in ((1.0, "larger"), (-1.0, "smaller")):
            yield f"uncertain values {word}", simulated(_shifted(rig, sign * DEVIATIONS), rig)


def _late(rig: Rig) -> Rig:
    """The simulated rig with a tick of delay more in the commands of its actuators and in their forces."""
    sources = deepcopy(dict(rig.sources))
    tick = 1.0 / rig.settings.loop.rate
    for actuator in rig.settings.actuators.values():
        force = rig.settings.channels[actuator.force]
        devices = sources["rig"]["devices"]
        _delay(devices[actuator.device]["actuators"][actuator.output], tick)
        if force.device is not None and force.source is not None:
            _delay(devices[force.device]["sensors"][force.source], tick)
    return assemble(sources, rig.file, rig.library)


def _delay(table: dict[str, Any], more: float) -> None:
    table["delay"] = f"{to_si(table.get('delay', '0 s'), 's') + more!r} s"


def _shifted(rig: Rig, deviations: float) -> Rig:
    """The rig with other values of actuators and specimens: those that are simulated, not those that are known."""
    sources = deepcopy(dict(rig.sources))
    for name, actuator in rig.settings.actuators.items():
        table = sources["rig"]["actuators"][name]
        for key, size in actuator.spread().items():
            part = key.removeprefix("specimen_")
            inside, settings = ("specimen", actuator.specimen) if part != key else ("servo", actuator.servo)
            value = getattr(settings, part) + deviations * size
            table[inside][part] = _written(inside, part, max(value, 0.0))
        table["uncertainty"] = {}
    return assemble(sources, rig.file, rig.library)


UNITS = {
    "stiffness": "N/m",
    "velocity_gain": "1/s",
    "f90": "Hz",
    "oil_stiffness": "N/m",
    "force_decay": "1/s",
}


def _written(table: str, key: str, value: float) -> str | float:
    if (table, key) == ("specimen", "damping"):
        return f"{value!r} N*s/m"
    return f"{value!r} {UNITS[key]}" if key in UNITS else value


def examined_actuators(rig: Rig, present: Mapping[str, str]) -> Findings:
    """Try a rig with the present strategies of its actuators: the beginning of its work cycle, as described.

    One that trips, or is far from the reference simulation, is harmful.
    """
    if any(strategy not in FOLLOWING for strategy in present.values()):
        return Findings()  # moved by hand
    if rig.cycle is None:
        return Findings(unexamined="there is no work cycle to move the actuators")
    run = HybridRig.of(simulated(rig)).run(present, SHORT)
    found = TriedStrategy(run.strategy, {TESTED: run})
    text = f"virtual commissioning: {sentence(found)}"
    if found.verdict is Suitability.UNFIT:
        return Findings(refusals=(f"{text} {REMEDY}",))
    return Findings(doubts=(f"{text} {COMPARE}",) if found.verdict is Suitability.DOUBTFUL else ())


def overview(found: Sequence[TriedStrategy], configured: Mapping[str, str]) -> Grid:
    """All strategies with their verdicts."""
    names = list(found[0].runs) if found else []
    rows = []
    for each in found:
        mark = " (configured)" if each.strategy in configured.values() else ""
        cells = (run.trip or f"{100.0 * largest_error(run):.2f} %" for run in each.runs.values())
        rows.append((each.strategy + mark, each.verdict.word, *cells))
    caption = (
        f"RMS error of the worst position against the reference simulation; up to {DOUBTFUL:.0%} fit, up to "
        f"{UNFIT:.0%} doubtful. A run that ends early is unfit."
    )
    return Grid(("strategy", "verdict", *names), tuple(rows), caption)


def refusals(found: Sequence[TriedStrategy], configured: Mapping[str, str], strict: bool) -> list[str]:
    """Why configured strategies are not suitable; ``strict``: also where they are doubtful."""
    least = Suitability.DOUBTFUL if strict else Suitability.UNFIT
    return [
        f"virtual commissioning: {sentence(each)}"
        for each in found
        if each.strategy in configured.values() and each.verdict >= least
    ]


def sentence(found: TriedStrategy) -> str:
    """The verdict on a strategy, in words."""
    what, run = found.worst()
    if run.trip:
        return f"With {found.strategy}, {what}, the run {run.trip}."
    error = 100.0 * largest_error(run)
    return f"{found.strategy} is {found.verdict.word}: {error:.2f} % off the reference simulation, {what}."


def figures(found: Sequence[TriedStrategy]) -> dict[str, Any]:
    """The verdicts as data."""
    return {
        each.strategy: {
            "verdict": each.verdict.word,
            "cases": {
                what: {"trip": run.trip, "error": None if run.trip else largest_error(run)}
                for what, run in each.runs.items()
            },
        }
        for each in found
    }
