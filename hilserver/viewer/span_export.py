"""Signals of a span as CSV, Parquet, MDF4, MAT or Excel, for other programs and for the viewer itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from hilserver.errors import HilserverError
from hilserver.record.export import FORMATS
from hilserver.viewer.measurement import Measurement

CHUNK = 1 << 17
"""Rows that are held in memory and written together."""
TIME = "time"


def export_span(
    log: Measurement, signals: Sequence[str], begin: float, end: float, folder: Path, format: str
) -> list[Path]:
    """Write the samples of these signals from time ``begin`` to ``end`` of the log, both included, as `FORMATS` has it.

    One row per sample, in SI units as in the log, with the column ``time``, s; every sample, not what is drawn. One
    file for each time base, usually one. All but CSV files state the units. Returns the files.

    Raises `HilserverError` if there is nothing to write, `RecordError` if a signal is unknown.
    """
    bases: dict[int, list[str]] = {}
    for signal in signals:
        log.require(signal)
        if signal != TIME:
            bases.setdefault(id(log.times(signal)), []).append(signal)
    if not bases:
        raise HilserverError("Choose a signal first: there is nothing to export.")
    files = []
    for number, names in enumerate(bases.values(), 1):
        more = f"_{number}" if len(bases) > 1 else ""
        file = folder / f"{log.path.stem}_{begin:.6g}_{end:.6g}s{more}.{format}"
        _write(log, names, begin, end, file, format)
        files.append(file)
    return files


def _write(log: Measurement, names: Sequence[str], begin: float, end: float, file: Path, format: str) -> None:
    start, stop = log.rows(names[0], begin, end)
    if start >= stop:
        raise HilserverError(f"{log.name} has no samples in this span.")
    units = {TIME: "s"} | {name: log.units[name] for name in names}
    fields = [pa.field(name, pa.float64(), metadata={"unit": unit} if unit else None) for name, unit in units.items()]
    schema = pa.schema(fields)
    with FORMATS[format](str(file), schema) as sink:
        for at in range(start, stop, CHUNK):
            until = min(at + CHUNK, stop)
            columns = [log.times(names[0])[at:until], *(log.read(name, at, until) for name in names)]
            sink.write_table(pa.Table.from_arrays([pa.array(column) for column in columns], schema=schema))
