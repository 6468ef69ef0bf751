"""The report on one run of recorded logs with other values: page, and the values as tables that `hilserver view` opens
beside the logs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hilserver.circuit.pack import PackedCircuit
from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.record.run import units_of
from hilserver.report.document import Block, Document, Facts, Grid, Picture
from hilserver.report.plots import Panel, panels_figure
from hilserver.studies.replay_runs import ReplayRuns, RunsOfLog
from hilserver.studies.replayed_log import is_result
from hilserver.tick.columns import is_whole
from hilserver.tick.row import as_whole
from hilserver.units import CIRCUIT, unit_of_value


def write_replay(
    runs: ReplayRuns, packed: Sequence[PackedCircuit], about: Mapping[str, str], name: str, folder: Path
) -> tuple[Floats, list[Path]]:
    """Run the logs with these circuits, one for each; write page and tables; returns the figures and the files.

    ``about``: facts for the page. Raises VariantFailedError, or HilserverError if a file can't be written.
    """
    series = runs.series(packed)
    figures = runs.figures_of(series)
    rows = tuple(
        (each.name, each.text, each.shown(own), each.shown(found))
        for each, own, found in zip(runs.subject.figures, runs.nominal, figures.tolist(), strict=True)
    )
    head = ("figure", "of", "with the circuit's own values", "with these values")
    blocks: list[Block] = [Facts(tuple(about.items())), Grid(head, rows, "")]
    files = []
    for number, (of_log, circuit) in enumerate(zip(runs.logs, packed, strict=True)):
        stem = f"{name}-{of_log.log.name}" if len(packed) > 1 else name
        panels = _panels(of_log, series[number], runs.nominal_series[number])
        blocks.append(Picture(of_log.log.name, panels_figure(of_log.log.time, panels, of_log.log.name), _CAPTION))
        files.append(_write_table(of_log, circuit, folder / f"{stem}.parquet"))
    return figures, [*Document(name, tuple(blocks)).write(folder, name), *files]


_CAPTION = "The log, with the circuit's own values (where that differs from the log), and with these values."


def _panels(of_log: RunsOfLog, series: Mapping[str, Floats], nominal: Mapping[str, Floats]) -> list[Panel]:
    recorded = of_log.log.recorded(name for name in series if name in of_log.log.names)
    units, panels = _units(of_log), list[Panel]()
    for name, values in series.items():
        lines = {"log": recorded[name]} if name in recorded else {}
        if name not in recorded or not np.array_equal(recorded[name], nominal[name], equal_nan=True):
            lines["own values"] = nominal[name]
        panels.append((name, units(name), {**lines, "these values": values}))
    return panels


def _units(of_log: RunsOfLog) -> Callable[[str], str]:
    """The SI unit of a quantity by its name."""
    known = units_of(of_log.rig)

    def unit_of(name: str) -> str:
        return unit_of_value(name.removeprefix(CIRCUIT)) if name.startswith(CIRCUIT) else known.get(name, "")

    return unit_of


def _write_table(of_log: RunsOfLog, packed: PackedCircuit, file: Path) -> Path:
    """The rows, with the names of the log, block by block."""
    names = [*filter(is_result, of_log.rig.layout.names), *(f"{CIRCUIT}{name}" for name in packed.names)]
    places = [of_log.place(packed, name) for name in names]
    units, kinds = _units(of_log), {True: pa.int64(), False: pa.float64()}
    schema = pa.schema([pa.field(name, kinds[is_whole(name)], metadata={"unit": units(name)}) for name in names])
    try:
        with pq.ParquetWriter(file, schema) as writer:
            for _, rows in of_log.blocks(packed):
                whole = as_whole(rows)
                columns = [
                    (whole if is_whole(name) else rows)[:, k].copy() for k, name in zip(places, names, strict=True)
                ]
                writer.write_batch(pa.record_batch(columns, schema=schema))
    except OSError as error:
        raise HilserverError(f"{file}: can't be written: {error.strerror or error}.") from error
    return file
