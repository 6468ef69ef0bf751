"""The results of a circuit run as files: a report, its figures, a table of all values, animations of mechanisms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from matplotlib.figure import Figure

from hilserver.errors import HilserverError, did_you_mean
from hilserver.numerics.arrays import Floats
from hilserver.report.circuit_blocks import components, drawing
from hilserver.report.document import Block, Document, Facts, Heading, Listing, Picture
from hilserver.report.figures import write_json
from hilserver.report.mechanisms import animate, poses_at
from hilserver.report.plots import panels_figure
from hilserver.simulation.balance import balance_texts
from hilserver.simulation.cavitation import cavitation
from hilserver.simulation.circuit_run import CircuitRun, panels

TABLES: Mapping[str, Callable[[pa.Table, str], None]] = {
    "csv": pa.csv.write_csv,
    "parquet": pa.parquet.write_table,
}
"""Writers of the values as a table, by the file's suffix."""


def plot(run: CircuitRun) -> Figure:
    """The panels above a common time axis."""
    title = f"{run.name}: {run.circuit.description}" if run.circuit.description else run.name
    return panels_figure(run.time, panels(run), title)


def document(run: CircuitRun) -> Document:
    """The report on a run."""
    tick = run.settings.tick
    facts = (
        ("Duration", f"{run.time[-1]:g} s, {len(run.time) * run.settings.every} ticks of {1e3 * tick:g} ms"),
        ("Solver", f"{run.circuit.solver.integrator}, {run.circuit.solver.substeps} steps per tick"),
        ("Inputs", "held during each tick" if run.settings.hold_inputs else "evaluated in every stage of a step"),
        *((("Clock", f"{run.paced}"),) if run.paced is not None else ()),
        ("Software", f"hilserver {version('hilserver')}"),
    )
    signals = Picture("signals", plot(run), "Inputs, pressures, flows and motion of the circuit.")
    blocks: list[Block] = [run.circuit.description] if run.circuit.description else []
    blocks += [Facts(facts), *([Listing(run.notes)] if run.notes else []), Heading("Signals"), signals]
    blocks += [Heading("Balances"), Facts(balance_facts(run))]
    if notes := cavitation(run.circuit, run.series, run.output_step):
        blocks += [Heading("Cavitation"), Listing(tuple(notes))]
    if run.error is not None and run.error.deviations:
        blocks += [Heading("Discretisation error"), run.error.verdict(), run.error.grid()]
    if run.circuit.placed:
        blocks += [Heading("Circuit"), *drawing(run.circuit.source), components(run.circuit.source)]
    return Document(run.name, blocks)


def balance_facts(run: CircuitRun) -> tuple[tuple[str, str], ...]:
    """The balances of a run in words."""
    return balance_texts(run.balance, bool(run.circuit.mechanisms))


def write_animations(run: CircuitRun, folder: Path) -> list[Path]:
    """Animate each mechanism as a GIF file. Raises HilserverError if it can't be written."""
    found = []
    for placed in run.circuit.mechanisms:
        name = run.name if len(run.circuit.mechanisms) == 1 else f"{run.name}_{placed.name}"
        poses = poses_at(placed, run.series)
        found.append(animate(placed.mechanism, run.time, poses, folder / f"{name}.gif", placed.name))
    return found


def written(run: CircuitRun) -> dict[str, Floats]:
    """The values that are written, without constants, the memory of components and what the balances are made of."""
    kinds = dict(zip(run.packed.values, run.packed.kinds, strict=True))
    hidden = ("constant", "memory", "flow", "account")
    left_out = {"t", *(name for name, kind in kinds.items() if kind.startswith(hidden))}
    return {name: line for name, line in run.series.items() if name not in left_out}


def write_run(run: CircuitRun, folder: Path, suffix: str = "csv") -> list[Path]:
    """Write the report on a run, its figures as JSON, and all values as a table; returns the files.

    The table is ``csv`` or ``parquet``, SI, time first. Raises HilserverError if a file can't be written.
    """
    if suffix not in TABLES:
        raise HilserverError(f"{suffix} is not a table format.{did_you_mean(suffix, TABLES)}")
    columns = {"time": run.time, **written(run)}
    page = document(run).write(folder, run.name)
    table = folder / f"{run.name}.{suffix}"
    try:
        TABLES[suffix](pa.table({name: np.ascontiguousarray(line) for name, line in columns.items()}), str(table))
    except OSError as error:
        raise HilserverError(f"{table}: can't be written: {error.strerror or error}.") from error
    figures = {
        "run": run.name,
        "duration": float(run.time[-1]),
        "tick": run.settings.tick,
        "hold_inputs": run.settings.hold_inputs,
        "error": run.error.figures() if run.error is not None else None,
        "paced": run.paced.figures() if run.paced is not None else None,
    }
    return [*page, write_json(figures, folder / f"{run.name}.json"), table]
