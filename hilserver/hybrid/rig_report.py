"""Tables and report of a rig with actuators: its work cycle under each strategy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from hilserver.hybrid.rig_runs import ActuatorResult, RigRuns, StrategyRun
from hilserver.report.document import Block, Document, Grid, Heading, Listing, Picture
from hilserver.report.figures import write_json
from hilserver.report.plots import REFERENCE, panels_figure
from hilserver.tick.hybrid.displacement import DisplacementStrategy
from hilserver.units import shown_value

NOTHING = "–"
CAPTION = (
    "delay: of the displacement behind the virtual position. error, peak: of the displacement against the virtual "
    "position (J2, J3 of the benchmark problem of hybrid simulation). off, off peak: against the reference "
    "simulation (J4, J5). The errors are those of the true displacement: RMS relative to that of the motion, peaks "
    "relative to its peak. noise: of the command at high frequency; limited: share of the time in which range or slew "
    "limited it."
)


def actuator_grid(result: RigRuns) -> Grid:
    """All strategies side by side."""
    rows: list[tuple[str, ...]] = []
    for run in result.runs:
        if run.trip:
            rows.append((run.strategy, run.trip, *[NOTHING] * 8))
        rows += [(run.strategy, name, *_cells(found)) for name, found in run.actuators.items()]
    head = ("strategy", "actuator", "delay", "error", "peak", "off", "off\npeak", "largest\nforce", "noise", "limited")
    return Grid(head, tuple(rows), CAPTION)


def position_grid(result: RigRuns) -> Grid | None:
    """The other positions of the circuit against the reference simulation; None if there are none."""
    nodes = list(dict.fromkeys(node for run in result.runs for node in run.positions))
    if not nodes:
        return None
    rows = [
        (run.strategy, *(_percent(run.positions[node]) if node in run.positions else NOTHING for node in nodes))
        for run in result.runs
        if not run.trip
    ]
    return Grid(("strategy", *nodes), tuple(rows), "RMS error of other positions of the circuit (J6, J7).")


def _cells(found: ActuatorResult) -> tuple[str, ...]:
    return (
        f"{1e3 * found.delay:.1f} ms",
        *(_percent(value) for value in (found.error, found.peak, found.off, found.off_peak)),
        shown_value(found.force, "N"),
        f"{1e6 * found.noise:.2g} µm",
        f"{found.limited:.1%}",
    )


def _percent(value: float) -> str:
    return f"{100.0 * value:.2f} %"


def sentences(result: RigRuns) -> list[str]:
    """What follows from the tables, in words."""
    said = []
    for run in result.runs:
        if run.trip:
            said.append(f"{run.strategy}: the run {run.trip}.")
    complete = [run for run in result.runs if run.actuators]
    if complete:
        best = min(complete, key=_worst)
        said.append(f"{best.strategy} is the closest to the reference simulation: {_percent(_worst(best))} at worst.")
    said.append(f"Reference: the virtual circuit connected directly to {result.reference}.")
    return said


def _worst(run: StrategyRun) -> float:
    return max(found.off for found in run.actuators.values())


def write_report(result: RigRuns, folder: Path) -> list[Path]:
    """The report as HTML and Markdown with its plots, and the data as JSON; returns the files."""
    stem = f"{result.rig}-simulate"
    written = Document(f"{result.rig}: the work cycle under every strategy", tuple(_blocks(result))).write(folder, stem)
    return [*written, write_json(figures(result), folder / f"{stem}.json")]


def _blocks(result: RigRuns) -> Iterator[Block]:
    yield Listing(tuple(sentences(result)))
    yield actuator_grid(result)
    if (grid := position_grid(result)) is not None:
        yield Heading("Other positions of the circuit")
        yield grid
    yield Heading("Strategies")
    yield Listing(tuple(f"{run.strategy}: {DisplacementStrategy[run.strategy].text}" for run in result.runs))
    for name in dict.fromkeys(name for run in result.runs for name in run.actuators):
        yield Picture(f"actuator-{name}", motion_figure(result, name), f"Displacement of {name}, and its error")


def motion_figure(result: RigRuns, name: str) -> Figure:
    """Displacement and error of an actuator with each strategy."""
    found = {run.strategy: run.actuators[name] for run in result.runs if name in run.actuators}
    first = next(iter(found.values()))
    lines = {REFERENCE: first.right, **{strategy: each.displacement for strategy, each in found.items()}}
    errors = {strategy: each.displacement - each.right for strategy, each in found.items()}
    panels = [("displacement", "m", lines), ("error", "m", errors)]
    return panels_figure(first.time, panels, name)


def figures(result: RigRuns) -> dict[str, Any]:
    """The results as data: shares, SI."""
    values = ("delay", "error", "peak", "off", "off_peak", "force", "noise", "limited")
    return {
        "rig": result.rig,
        "reference": result.reference,
        "strategies": {
            run.strategy: {
                "trip": run.trip,
                "actuators": {name: {v: getattr(each, v) for v in values} for name, each in run.actuators.items()},
                "positions": dict(run.positions),
            }
            for run in result.runs
        },
    }
