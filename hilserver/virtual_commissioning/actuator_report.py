"""The report on a virtual commissioning of actuators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from hilserver.hybrid.rig_report import actuator_grid, motion_figure, position_grid
from hilserver.hybrid.rig_runs import RigRuns
from hilserver.report.document import Block, Document, Heading, Listing, Picture
from hilserver.report.figures import write_json
from hilserver.rig.rig import Rig
from hilserver.tick.hybrid.displacement import DisplacementStrategy
from hilserver.virtual_commissioning.actuators import TESTED, TriedStrategy, figures, overview, sentence


def write_report(found: Sequence[TriedStrategy], rig: Rig, folder: Path) -> list[Path]:
    """The report as HTML and Markdown with its plots, and the figures as JSON; returns the files."""
    name = rig.settings.name
    stem, title = f"{name}-virtual-commissioning-actuators", f"Virtual commissioning of the actuators of {name}"
    written = Document(title, tuple(_blocks(found, rig))).write(folder, stem)
    return [*written, write_json({"actuators": figures(found)}, folder / f"{stem}.json")]


def _blocks(found: Sequence[TriedStrategy], rig: Rig) -> Iterator[Block]:
    yield overview(found, {name: a.bridge.strategy for name, a in rig.settings.actuators.items()})
    yield Listing(tuple(map(sentence, found)))
    for case in found[0].runs if found else ():
        runs = _of_case(found, rig, case)
        yield Heading(f"{case[0].upper()}{case[1:]}")
        yield actuator_grid(runs)
        if (grid := position_grid(runs)) is not None:
            yield grid
    described = _of_case(found, rig, TESTED)
    for name in dict.fromkeys(name for run in described.runs for name in run.actuators):
        yield Picture(f"actuator-{name}", motion_figure(described, name), f"Displacement of {name} as described")
    yield Heading("Strategies")
    yield Listing(tuple(f"{each.strategy}: {DisplacementStrategy[each.strategy].text}" for each in found))


def _of_case(found: Sequence[TriedStrategy], rig: Rig, case: str) -> RigRuns:
    """All strategies in one case."""
    return RigRuns(rig.settings.name, "the simulated specimens", tuple(each.runs[case] for each in found))
