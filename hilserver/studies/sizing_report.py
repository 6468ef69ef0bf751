"""The page on the size of a real valve: candidates, and the reasons for each refusal."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hilserver.report.document import Block, Document, Facts, Grid, Heading, Listing
from hilserver.report.figures import write_json
from hilserver.studies.catalogue import FLOW_TOLERANCE
from hilserver.studies.sizing import JudgedValve, Sizing
from hilserver.units import shown_value


def write_sizing(result: Sizing, folder: Path) -> list[Path]:
    """The page as HTML and Markdown, and the results as JSON; returns the files. Raises HilserverError."""
    stem = f"{result.rig.stem}-size"
    page = Document(f"{result.rig.name}: the size of the real valve", tuple(_blocks(result))).write(folder, stem)
    return [*page, write_json(sizing_data(result), folder / f"{stem}.json")]


def _blocks(result: Sizing) -> Iterator[Block]:
    yield Facts(tuple(sizing_facts(result)))
    yield Listing((verdict(result),))
    yield candidates_grid(result)
    for each in result.judged:
        if each.reasons:
            yield Heading(f"Why not {each.candidate.name}")
            yield Listing(each.reasons)
    yield Heading("Sources")
    yield Listing(tuple(dict.fromkeys(each.candidate.source for each in result.judged)))


def sizing_facts(result: Sizing) -> Iterator[tuple[str, str]]:
    """What was examined."""
    yield "Rig", f"{result.rig}, strategy {result.strategy}, valves {', '.join(result.valves)}"
    if result.varied:
        yield "Tolerances", ", ".join(each.key for each in result.varied)
    yield "Limits", ", ".join(f"{each.name} {each.below:g}" for each in result.figures)
    if any(each.candidate.tolerated for each in result.judged):
        yield "Nominal flows", f"{FLOW_TOLERANCE} where the catalogue states no tolerance"
    yield "Software", f"hilserver {version('hilserver')}"


def verdict(result: Sizing) -> str:
    """The smallest valve that holds."""
    if result.chosen is None:
        return "None of these valves has sufficient margins and fidelity."
    return f"{result.chosen.candidate.name} is the smallest valve with sufficient margins and fidelity."


def candidates_grid(result: Sizing) -> Grid:
    """All candidates, the smallest first."""
    rows = []
    for each in result.judged:
        valve = each.candidate.valve
        flow = f"{shown_value(valve.nominal_flow.flow, 'm^3/s')} at {shown_value(valve.nominal_flow.drop, 'Pa')}"
        frequency = f"{valve.frequency():.3g} Hz" + ("" if valve.f90 is not None else " *")
        figures = (f"{each.worst[f.name]:.3g}" if f.name in each.worst else "–" for f in result.figures)
        margin = f"{each.capacity:.3g}" if each.capacity == each.capacity else "–"
        rows.append((each.candidate.name, flow, frequency, margin, *figures, outcome(each)))
    head = ("valve", "nominal flow", "-90°", "capacity", *(f.name for f in result.figures), "")
    caption = (
        "Capacity: smallest margin, at the lower end of the flow's tolerance. Figures: largest within the tolerances."
    )
    if any(each.candidate.valve.f90 is None for each in result.judged):
        caption += " * From the time of a step response."
    return Grid(head, tuple(rows), caption)


def outcome(each: JudgedValve) -> str:
    """What came of a candidate, in short."""
    if not each.examined:
        return "larger than needed: not examined"
    if each.holds:
        return "holds"
    return "rejected: " + ("margins" if not each.worst else "fidelity")


def refusals(result: Sizing) -> Iterator[str]:
    """The first reason of each refusal."""
    for each in result.judged:
        if each.reasons:
            more = f" ({len(each.reasons) - 1} more: see the page)" if len(each.reasons) > 1 else ""
            yield f"{each.candidate.name} is rejected: {each.reasons[0]}{more}"


def sizing_data(result: Sizing) -> dict[str, Any]:
    """The results as data, SI."""
    return {
        "rig": str(result.rig),
        "strategy": result.strategy,
        "chosen": result.chosen.candidate.name if result.chosen is not None else None,
        "limits": {each.name: each.below for each in result.figures},
        "valves": {
            each.candidate.name: {
                "nominal_flow": each.candidate.valve.nominal_flow.flow,
                "drop": each.candidate.valve.nominal_flow.drop,
                "f90": each.candidate.valve.frequency(),
                "source": each.candidate.source,
                "examined": each.examined,
                "holds": each.holds,
                "reasons": list(each.reasons),
                "capacity_margin": each.capacity if each.capacity == each.capacity else None,
                "worst": dict(each.worst),
                "runs": each.runs,
            }
            for each in result.judged
        },
    }
