"""The report on the benchmark of real-time hybrid simulation (HTML, Markdown), and its results as data (JSON)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from hilserver.hybrid.benchmark import CAPACITY, DT, BenchmarkCase, reference
from hilserver.hybrid.study import SHOWN, PlantResult, StudyRow, cases_grid, nominal_grid, perturbed_grid
from hilserver.numerics.arrays import Floats
from hilserver.report.document import Block, Document, Heading, Listing, Picture
from hilserver.report.figures import write_json
from hilserver.report.plots import REFERENCE, panels_figure

STEM = "rths"


def write_report(rows: Sequence[StudyRow], folder: Path) -> list[Path]:
    """Write the report as HTML and Markdown with its plots, and the data as JSON; returns the files."""
    written = Document("The benchmark problem of real-time hybrid simulation", tuple(_blocks(rows))).write(folder, STEM)
    return [*written, write_json(figures(rows), folder / f"{STEM}.json")]


def _blocks(rows: Sequence[StudyRow]) -> Iterator[Block]:
    yield (
        "A frame of three storeys is subjected to the El Centro earthquake; a simulated hydraulic actuator moves the "
        "specimen on its first floor. Source of structure, actuator, noise and criteria: Silva, Gomez, Maghareh, Dyke "
        "& Spencer, Mech. Syst. Signal Process. 135 (2020) 106381."
    )
    cases = _cases(rows)
    yield cases_grid(cases)
    yield Heading("Strategies")
    yield Listing(tuple(f"{strategy.name}: {strategy.text}" for strategy in dict.fromkeys(r.strategy for r in rows)))
    yield nominal_grid(rows)
    if len(rows[0].runs) > 1:
        yield Heading("Perturbed plants")
        yield perturbed_grid(rows)
    exceeded = [row for row in rows if any(run.force > CAPACITY for run in row.runs)]
    for row in exceeded:
        yield f"Case {row.case.name}, {row.strategy.name}: the force exceeds the actuator's {CAPACITY:g} N."
    for case in cases:
        yield Picture(f"case-{case.name}", _figure(case, rows), f"Position of the first floor, case {case.name}")


def _cases(rows: Sequence[StudyRow]) -> list[BenchmarkCase]:
    return list(dict.fromkeys(row.case for row in rows))


def _figure(case: BenchmarkCase, rows: Sequence[StudyRow]) -> Figure:
    """Position and its deviation from the reference, of the strategies that remain stable."""
    right = reference(case)[SHOWN, 0]
    stable = [row for row in rows if row.case == case and row.runs[0].unstable_at is None]
    lines: dict[str, Floats] = {REFERENCE: right, **{row.strategy.name: row.first_floor for row in stable}}
    errors: dict[str, Floats] = {row.strategy.name: row.first_floor - right for row in stable}
    time: Floats = np.arange(SHOWN.start, SHOWN.stop, dtype=float) * DT
    panels = [("position", "m", lines), ("error", "m", errors)]
    return panels_figure(time, [panel for panel in panels if panel[2]], f"First floor, case {case.name}")


def figures(rows: Sequence[StudyRow]) -> list[dict[str, Any]]:
    """The results as data."""
    return [
        {"case": row.case.name, "strategy": row.strategy.name, "plants": [_figures(run) for run in row.runs]}
        for row in rows
    ]


def _figures(run: PlantResult) -> dict[str, Any]:
    if run.measured is None or run.noise_free is None:
        return {"unstable_at": run.unstable_at}
    return {"measured": run.measured._asdict(), "noise_free": run.noise_free._asdict(), "largest_force": run.force}
