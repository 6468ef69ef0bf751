"""Remedies for strategies that are not fit: only those that the runs of this rig support."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hilserver.rig.build import assemble
from hilserver.rig.rig import Rig
from hilserver.rig.settings import RigSettings
from hilserver.tick.bridge.effects import Compensates, includes
from hilserver.tick.bridge.strategies import Strategy
from hilserver.units import shown_value
from hilserver.virtual_commissioning.cases import MORE_FLOW
from hilserver.virtual_commissioning.criteria import CRITERIA, Suitability
from hilserver.virtual_commissioning.subject import Subject
from hilserver.virtual_commissioning.variations import times

if TYPE_CHECKING:
    from hilserver.virtual_commissioning.trial import StrategyResult

LONGER, LONGEST = 10.0, 10.0
"""Multiple of its ``feedback_time`` with which a strategy that oscillates is tried, and the longest possible one, s."""
LIMITS = {criterion.name: criterion for criterion in CRITERIA}

Change = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Changes the source of a rig file."""
Run = Callable[[Subject, Sequence[str]], Sequence["StrategyResult"]]
"""Runs all cases of a subject under strategies of these names."""


def remedies(subject: Subject, own: Sequence[str], results: Sequence[StrategyResult], run: Run) -> Iterator[str]:
    """What helps those strategies that are not fit, one sentence each. ``own``: the configured strategies."""
    settings = subject.rig.settings
    any_fit = any(each.verdict is Suitability.FIT for each in results)
    texts: dict[str, list[str]] = {}
    for found in results:
        if found.verdict is Suitability.FIT or not any(each.judged for each in found.cases):
            continue
        second = [] if any_fit else [*_second_valves(settings, found)]  # with one that is fit, it is not for this port
        said = second or [*_larger_valve(found)]
        if found.strategy in own:
            said += _better(found, results)
            said += _known_flow(found)
            said += [] if any_fit or second else _calmer(subject, found, run)
        for text in said:
            texts.setdefault(text, []).append(found.strategy)
    for text, names in texts.items():
        yield f"Remedy for {_listed(names)}: {text}."


def _better(found: StrategyResult, results: Sequence[StrategyResult]) -> Iterator[str]:
    """The strategies with the best verdict."""
    best = min(each.verdict for each in results)
    if best < found.verdict:
        names = [each.strategy for each in results if each.verdict is best]
        verdict = best.word if best is Suitability.FIT else f"only {best.word}"
        yield f"use {_listed(names, 'or')}, which {'is' if len(names) == 1 else 'are'} {verdict}"


def _known_flow(found: StrategyResult) -> Iterator[str]:
    """Identified valves, where what they may pass more is the cause of the verdict."""
    stated = [each for each in found.cases if each.case.flow == 1.0]
    verdict = max((each.verdict for each in stated if each.judged), default=Suitability.UNFIT)
    if verdict < found.verdict and any(each.case.flow == MORE_FLOW for each in found.cases):
        yield f"identify the valves (hilserver identify); with exactly the stated flow it is {verdict.word}"


def _calmer(subject: Subject, found: StrategyResult, run: Run) -> Iterator[str]:
    """Changes of the rig that are tried where a strategy oscillates: each alone; if neither helps, both."""
    if not _is_exceeded(found, "oscillation", "noise"):
        return
    changes = _changes(subject.rig, found.strategy)
    alone = [text for change in changes if (text := _tried(subject, found, run, change))]
    yield from alone
    if len(changes) > 1 and not alone and (text := _tried(subject, found, run, *changes)):
        yield text


def _tried(subject: Subject, found: StrategyResult, run: Run, *changes: tuple[str, Change]) -> str:
    """The verdict on a strategy after these changes; empty if it is no better."""
    rig, source = subject.rig, subject.rig.sources["rig"]
    for _, change in changes:
        source = change(source)
    changed = assemble({**rig.sources, "rig": source}, rig.file, rig.library)
    (again,) = run(replace(subject, rig=changed), [found.strategy])
    what = " and ".join(text for text, _ in changes)
    return f"with {what} it is {again.verdict.word}" if again.verdict < found.verdict else ""


def _changes(rig: Rig, strategy: str) -> list[tuple[str, Change]]:
    """What may calm a strategy, in words, and as a change of the rig's source."""
    found: list[tuple[str, Change]] = []
    longer = {name: LONGER * valve.bridge.feedback_time for name, valve in rig.settings.valves.items()}
    if includes(Strategy[strategy].compensates, Compensates.VOLUME_ERROR) and max(longer.values()) <= LONGEST:
        text = f"a feedback_time of {shown_value(max(longer.values()), 's')}"
        found.append((text, lambda source: _with_feedback_times(source, longer)))
    if _halved_delays(rig.sources["rig"]) != rig.sources["rig"]:
        found.append(("half the delay of valves and sensors", _halved_delays))
    return found


def _with_feedback_times(source: Mapping[str, Any], seconds: Mapping[str, float]) -> dict[str, Any]:
    valves = {
        name: {**valve, "bridge": {**valve.get("bridge", {}), "feedback_time": f"{seconds[name]!r} s"}}
        for name, valve in source["valves"].items()
    }
    return {**source, "valves": valves}


def _halved_delays(table: Mapping[str, Any]) -> dict[str, Any]:
    """All delays: those that the rig file states, and those of simulated sensors and valves."""
    return {
        key: _halved_delays(value) if isinstance(value, Mapping) else times(value, 0.5) if key == "delay" else value
        for key, value in table.items()
    }


def _second_valves(settings: RigSettings, found: StrategyResult) -> Iterator[str]:
    """Ports without a valve of their own, whose flow is wrong."""
    for name, valve in settings.valves.items():
        errors = [each.figures.other_flows.get(valve.other_port or "", 0.0) for each in found.cases if each.judged]
        if max(errors, default=0.0) > LIMITS["flow"].doubtful:
            yield (
                f"a separate valve at port {valve.other_port}: no strategy can correct the flow there, which the other "
                f"edges of valve {name} supply"
            )


def _larger_valve(found: StrategyResult) -> Iterator[str]:
    """A larger valve, where one can't pass the flow, and not only because the command oscillates."""
    worst = found.worst("saturated")
    if worst is None or worst[0] <= LIMITS["saturated"].doubtful or _is_exceeded(found, "oscillation"):
        return
    figures = worst[1].figures
    if worst[0] > 2.0 * figures.limited:
        yield "the flow is not achievable; use a larger real valve, a higher real supply, or a smaller virtual valve"


def _is_exceeded(found: StrategyResult, *names: str) -> bool:
    """Whether one of these figures is not fit."""
    worst = [(name, found.worst(name)) for name in names]
    return any(LIMITS[name].verdict(pair[0]) is not Suitability.FIT for name, pair in worst if pair is not None)


def _listed(names: Sequence[str], joint: str = "and") -> str:
    """The names as a list in a sentence."""
    return f" {joint} ".join([*([", ".join(names[:-1])] if len(names) > 1 else []), names[-1]])
