"""The result of a virtual commissioning as tables, sentences and data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path
from typing import Any

from hilserver.fidelity.tables import NOTHING, number
from hilserver.report.document import Block, Document, Grid, Heading, Listing
from hilserver.report.figures import write_json
from hilserver.tick.bridge.strategies import Strategy
from hilserver.units import shown_unit, shown_value
from hilserver.virtual_commissioning.criteria import CRITERIA, Criterion, Suitability
from hilserver.virtual_commissioning.trial import CaseResult, StrategyResult, TrialResult

MARKS = {Suitability.FIT: "", Suitability.DOUBTFUL: "?", Suitability.UNFIT: "!"}
"""After a figure: the verdict on it."""
ALIKE = 5e-4
"""Difference of two errors of position or speed (shares) that the noise of the sensors explains."""
MOTIONS = ("position", "speed")
"""The figures of what moves: of rods and of shafts."""
HEADS = {
    "position": "posi-\ntion",
    "pressure": "pres-\nsure",
    "oscillation": "oscil-\nlation",
    "saturated": "satu-\nrated",
}
MEANING = "In % of the quantity that the criteria state, against the reference simulation; ?: doubtful, !: unfit."


def write_report(result: TrialResult, folder: Path) -> list[Path]:
    """The report as HTML (self-contained) and Markdown, and the figures as JSON; returns the files."""
    stem = f"{result.rig}-virtual-commissioning"
    written = Document(f"Virtual commissioning of {result.rig}", tuple(_blocks(result))).write(folder, stem)
    return [*written, write_json(figures(result), folder / f"{stem}.json")]


def _blocks(result: TrialResult) -> Iterator[Block]:
    yield overview(result)
    yield Listing(tuple(sentences(result)))
    shown = shown_criteria(result)
    for found in result.results:
        yield Heading(f"{found.strategy}: {found.verdict.word}")
        yield case_grid(found, shown)
    yield Heading("Criteria")
    yield criteria_grid()


def shown_criteria(result: TrialResult) -> tuple[Criterion, ...]:
    """All criteria, but of position and speed only those that this machine has."""
    known = {name for found in result.results for name in MOTIONS if found.worst(name) is not None}
    return tuple(c for c in CRITERIA if c.name in known or c.name not in MOTIONS)


def _heads(shown: Sequence[Criterion]) -> tuple[str, ...]:
    return tuple(HEADS.get(c.name, c.name) for c in shown)


def overview(result: TrialResult) -> Grid:
    """All strategies side by side: the verdict, and the worst value of each figure over all cases."""
    rows, shown = [], shown_criteria(result)
    for found in result.results:
        name = f"{found.strategy} *" if found.strategy in result.configured else found.strategy
        verdict = f"{found.verdict.word}, {len(found.trips)} trips" if found.trips else found.verdict.word
        rows.append((name, verdict, *(_worst_cell(found, c) for c in shown)))
    caption = f"Worst value of each figure over all cases. {MEANING} *: configured."
    return Grid(("strategy", "verdict", *_heads(shown)), tuple(rows), caption)


def case_grid(found: StrategyResult, shown: Sequence[Criterion]) -> Grid:
    """The cases of a strategy, with their figures, and the largest errors of position and speed."""
    rows = []
    for each in found.cases:
        judged = {c.name: value for c, value in each.values()}
        rows.append((str(each.case), _outcome(each), *(_cell(c, judged.get(c.name)) for c in shown), _largest(each)))
    return Grid(("case", "verdict", *_heads(shown), "error at most"), tuple(rows), MEANING)


def _largest(found: CaseResult) -> str:
    """The largest errors of what moves: "1.2 mm, 3 rpm"."""
    known = ((found.figures.moved, "m"), (found.figures.turned, "rad/s"))
    errors = [shown_value(value, unit, 3) for value, unit in known if value is not None and found.judged]
    return ", ".join(errors) or NOTHING


def _outcome(found: CaseResult) -> str:
    """The verdict on a case, with its trip, and why it is not judged, or from when."""
    verdict = found.verdict.word if found.judged else "not judged"
    return "; ".join(
        [verdict, *([str(found.trip)] if found.trip else []), *([found.exclusion] if found.exclusion else [])]
    )


def _worst_cell(found: StrategyResult, criterion: Criterion) -> str:
    worst = found.worst(criterion.name)
    return _cell(criterion, worst[0] if worst is not None else None)


def _cell(criterion: Criterion, value: float | None) -> str:
    return f"{_number(value)}{MARKS[criterion.verdict(value)]}" if value is not None else NOTHING


def _number(share: float) -> str:
    """A share in per cent: 0.04, 2.6, 14."""
    return number(100.0 * share) if share > 5e-5 else "0"


def _percent(share: float) -> str:
    return f"{_number(share)} %"


def criteria_grid() -> Grid:
    """The criteria with their limits and reasons."""
    rows = tuple(
        (c.name, c.meaning, _percent(c.doubtful), _percent(c.unfit) if c.unfit < 1.0 else NOTHING, c.reason)
        for c in CRITERIA
    )
    return Grid(("figure", "meaning", "doubtful above", "unfit above", "reason"), rows)


# --- sentences --------------------------------------------------------------------------------------------------------


def sentences(result: TrialResult) -> list[str]:
    """The verdicts in words, those on configured strategies first; then remedies, what was not judged, notes."""
    ordered = sorted(result.results, key=lambda found: found.strategy not in result.configured)
    found = [sentence(each, configured=each.strategy in result.configured) for each in ordered]
    found += result.remedies
    found += further_off(result)
    found += _exclusions(result)
    found += [f"Not tried: {reason}." for reason in result.left_out.values()]
    return found + list(result.notes)


def refusals(result: TrialResult, *, strict: bool = False) -> list[str]:
    """Why the rig must not be armed with its configured strategies. ``strict``: also where one is doubtful."""
    limit = Suitability.DOUBTFUL if strict else Suitability.UNFIT
    return [
        f"virtual commissioning: {sentence(found, configured=True)}"
        for found in result.results
        if found.strategy in result.configured and found.verdict >= limit
    ]


def sentence(found: StrategyResult, *, configured: bool = False) -> str:
    """The verdict on a strategy with the figures that decide."""
    name = f"{found.strategy} (configured)" if configured else found.strategy
    reasons = [*_trips(found), *_reasons(found)]
    return f"{name}: {found.verdict.word}. {' '.join(reasons) or _good(found)}"


def _trips(found: StrategyResult) -> Iterator[str]:
    """The first trip, and how many more there are."""
    if found.trips:
        first = found.trips[0]
        others = f"; so did {len(found.trips) - 1} more of {len(found.cases)} cases" if len(found.trips) > 1 else ""
        yield f"The rig {first.trip} in case “{first.case}”{others}."


def _reasons(found: StrategyResult) -> Iterator[str]:
    """The worst case of each figure that is not fit, the unfit ones first."""
    for wanted in (Suitability.UNFIT, Suitability.DOUBTFUL):
        for criterion in CRITERIA:
            worst = found.worst(criterion.name)
            if worst is not None and criterion.verdict(worst[0]) is wanted:
                yield _reason(criterion, *worst)


def _reason(criterion: Criterion, value: float, found: CaseResult) -> str:
    limit = criterion.unfit if criterion.verdict(value) is Suitability.UNFIT else criterion.doubtful
    detail = _detail(criterion.name, found)
    return (
        f"{criterion.name.capitalize()} {_percent(value)}{f' ({detail})' if detail else ''}, "
        f"{criterion.verdict(value).word} above {_percent(limit)}, in case “{found.case}”."
    )


def _detail(name: str, found: CaseResult) -> str:
    """The figure in units of the machine."""
    f, (unit, factor) = found.figures, shown_unit("m^3/s")
    if name == "drift":
        text = f"{f.flow * factor:+.2g} {unit} at port {f.port}"
        text += f"; the machine is up to {1e3 * abs(f.lost):.3g} mm off" if f.lost else ""
        return f"{text}; the speed is up to {shown_value(abs(f.turning), 'rad/s', 2)} off" if f.turning else text
    if name == "oscillation":
        return f"at {shown_value(f.frequency, 'Hz', 2)}"
    if name == "position" and f.moved is not None:
        return f"{1e3 * f.moved:.3g} mm at most"
    if name == "speed" and f.turned is not None:
        return f"{shown_value(f.turned, 'rad/s', 3)} at most"
    if name == "saturated" and f.limited:
        return f"range or slew: {_percent(f.limited)}"
    return ""


def _good(found: StrategyResult) -> str:
    """The figures of a strategy without any fault."""
    judged = [each for each in found.cases if each.judged]
    if not judged:
        return f"No case could be judged: {found.cases[0].exclusion}." if found.cases else "There is no case."
    parts, rest = [], found.worst("drift")
    if within := " and ".join(_within(judged)):
        parts.append(f"{within} of the reference simulation")
    if rest is not None:
        (unit, factor), figures = shown_unit("m^3/s"), rest[1].figures
        parts.append(f"at rest the flow at port {figures.port} is {abs(figures.flow) * factor:.2g} {unit} off")
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}."


def _within(judged: Sequence[CaseResult]) -> Iterator[str]:
    """The largest errors of what moves."""
    if moved := [f.figures.moved for f in judged if f.figures.moved is not None]:
        yield f"position within {1e3 * max(moved):.3g} mm"
    if turned := [f.figures.turned for f in judged if f.figures.turned is not None]:
        yield f"speed within {shown_value(max(turned), 'rad/s', 3)}"


def further_off(result: TrialResult) -> Iterator[str]:
    """The strategies that are not fit and whose position or speed is further off than with a lower level, not unfit."""
    for name in MOTIONS:
        yield from _further_off(result, name)


def _further_off(result: TrialResult, name: str) -> Iterator[str]:
    lower: list[tuple[str, float]] = []
    for found in sorted(result.results, key=lambda each: Strategy[each.strategy]):
        worst = found.worst(name)
        if worst is None or found.trips:
            continue
        closest, least = min(lower, key=lambda pair: pair[1], default=("", inf))
        if found.verdict is not Suitability.FIT and worst[0] > least + ALIKE:
            yield (
                f"{found.strategy} is less accurate than {closest}, which compensates less: {name} "
                f"{_percent(worst[0])} instead of {_percent(least)}. Use {closest}, or a strategy that is fit."
            )
        if found.verdict is not Suitability.UNFIT:
            lower.append((found.strategy, worst[0]))


def _exclusions(result: TrialResult) -> list[str]:
    """Cases that could not be judged to their end, by reason; the same for all strategies and flows of a case."""
    cases: dict[str, dict[str, None]] = {}
    for found in result.results:
        for each in (case for case in found.cases if case.exclusion and case.case.flow == 1.0):
            reason = each.exclusion.rpartition(" at ")[0] or each.exclusion
            text = f"Judged only until {reason}" if each.judged else f"Not judged, because {reason}"
            cases.setdefault(text, {})[str(each.case)] = None
    return [f"{text}: {'; '.join(names)}." for text, names in cases.items()]


# --- data -------------------------------------------------------------------------------------------------------------


def figures(result: TrialResult) -> dict[str, Any]:
    """The result as data for JSON, SI units and shares."""
    return {
        "rig": result.rig,
        "verdict": result.verdict.word,
        "configured": list(result.configured),
        "criteria": {
            c.name: {"meaning": c.meaning, "doubtful_above": c.doubtful, "unfit_above": c.unfit} for c in CRITERIA
        },
        "strategies": {found.strategy: _strategy(found) for found in result.results},
        "remedies": list(result.remedies),
        "left_out": dict(result.left_out),
        "notes": list(result.notes),
    }


def _strategy(found: StrategyResult) -> dict[str, Any]:
    worst = {c.name: pair for c in CRITERIA if (pair := found.worst(c.name)) is not None}
    return {
        "verdict": found.verdict.word,
        "trips": len(found.trips),
        "worst": {name: {"value": value, "case": str(each.case)} for name, (value, each) in worst.items()},
        "cases": [_case(each) for each in found.cases],
    }


def _case(found: CaseResult) -> dict[str, Any]:
    f = found.figures
    return {
        "case": str(found.case),
        "verdict": found.verdict.word if found.judged else None,
        "not_judged": found.exclusion or None,
        "trip": {"mode": found.trip.mode, "cause": found.trip.cause, "time": found.trip.time} if found.trip else None,
        "figures": dict(f.judged),
        "position_error": f.moved,
        "position_lost_at_rest": f.lost,
        "speed_error": f.turned,
        "speed_error_at_rest": f.turning,
        "flow_error_at_rest": f.flow,
        "frequency": f.frequency,
        "range_or_slew": f.limited,
    }
