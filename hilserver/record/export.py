"""Export of a log as CSV, Parquet, MDF4, MAT or Excel, for other tools."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from hilserver.errors import did_you_mean
from hilserver.record.excel import ExcelWriter
from hilserver.record.format import EVENTS, METADATA_KEY, Event, RecordError, encode
from hilserver.record.mat import MatWriter
from hilserver.record.mdf import TIME, MdfWriter
from hilserver.record.notes import as_event, read_notes
from hilserver.record.reader import Batch, Damage, LogReader
from hilserver.record.shown_columns import shown_columns

_CHUNK_ROWS = 20_000
"""Rows that are held in memory and written together."""

FORMATS: Mapping[str, Callable[[str, pa.Schema], AbstractContextManager[Any]]] = {
    "csv": pa.csv.CSVWriter,
    "parquet": pa.parquet.ParquetWriter,
    "mf4": MdfWriter,
    "mat": MatWriter,
    "xlsx": ExcelWriter,
}


@dataclass(frozen=True)
class Exported:
    """The result of an export: number of rows, names of the columns, damages of the log (see `LogReader`)."""

    rows: int
    columns: tuple[str, ...]
    torn: bool
    damages: tuple[Damage, ...] = ()


def export(
    path: str | Path, out: str | Path, format: str | None = None, *, columns: Sequence[str] = ("*",), every: int = 1
) -> Exported:
    """Write the log at ``path`` (and its following parts) to ``out`` as `FORMATS` has it: ``"csv"``, ``"parquet"``, ….

    Without ``format`` by the suffix of ``out``. One column per name of the fixed part, see `shown_columns`;
    ``circuit.<name>`` for each value that any circuit of the run has, empty if the circuit of a row lacks it;
    ``events``: JSON list, mostly empty (in MDF4 an attachment, in MAT a structure, in Excel a sheet). Notes on the log
    are among the events, at the first row at or after their time. ``columns`` are patterns like ``"raw.*"``; ``time``
    is there in any case. One row of ``every`` is kept, with the events of the omitted rows after it. Packed arrays of
    circuits stay in the log.
    Fields carry the ``unit`` if the log contains it, and the file carries the log's header under ``hilserver`` (not MAT
    or Excel).
    The log is read twice and never held in memory. An existing ``out`` is replaced when the export is complete.

    Raises `HilserverError` if the log or its notes can't be read, ``out`` can't be written, or a pattern matches no
    column.
    """
    source, target = LogReader(path), Path(out)
    format = format or target.suffix.removeprefix(".").lower()
    if format not in FORMATS:
        raise RecordError(target, f"{format or 'no suffix'} is not an export format.{did_you_mean(format, FORMATS)}")
    if every < 1:
        raise RecordError(target, f"every must be a whole number of at least 1, not {every}.")
    if any(target.exists() and target.samefile(part) for part in source.parts):
        raise RecordError(target, "is the log itself: choose another name for the export.")
    names, events = _survey(source, every)
    wanted = _matching(source, names, columns)
    if TIME not in wanted:  # without it, nobody can plot the others
        wanted = [TIME, *wanted]
    schema = _schema(source, wanted)
    partial = target.with_name(target.name + ".part")
    rows = 0
    try:
        with FORMATS[format](str(partial), schema) as sink:
            for table in _tables(source, schema, events, every):
                sink.write_table(table)
                rows += len(table)
        partial.replace(target)
    except OSError as error:
        raise RecordError(target, f"can't be written: {error.strerror or error}.") from error
    finally:
        with suppress(OSError):
            partial.unlink()
    return Exported(rows, tuple(schema.names), bool(source.torn), source.damages)


def _survey(source: LogReader, every: int) -> tuple[list[str], dict[int, list[Event]]]:
    """All columns of the run, and the events by the last kept row at or before their own."""
    circuit: dict[str, None] = {}
    events: dict[int, list[Event]] = {}
    notes = list(read_notes(source.path))
    last = 0
    for batch in source.batches():
        circuit.update(dict.fromkeys(batch.circuit.names))
        happened = [
            (row, {key: value for key, value in event.items() if key != "packed"}) for row, event in batch.events
        ]
        time = batch.column(TIME) if notes else np.empty(0)
        while notes and len(time) and notes[0].time <= time[-1]:
            note = notes.pop(0)
            happened.append((batch.start + int(np.searchsorted(time, note.time)), as_event(note)))
        last = batch.start + len(batch) - 1
        for row, event in happened:
            events.setdefault(row - row % every, []).append(event)
    for note in notes:  # behind the last row
        events.setdefault(last - last % every, []).append(as_event(note))
    return [*shown_columns(source.header), *(f"circuit.{name}" for name in circuit), EVENTS], events


def _matching(source: LogReader, names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """The names that match a pattern, by themselves or as the log calls them."""
    called = shown_columns(source.header)

    def matches(name: str, pattern: str) -> bool:
        return fnmatchcase(name, pattern) or fnmatchcase(called.get(name, name), pattern)

    for pattern in patterns:
        if not any(matches(name, pattern) for name in names):
            raise RecordError(source.path, f"has no column {pattern}.{did_you_mean(pattern, names)}")
    return [name for name in names if any(matches(name, pattern) for pattern in patterns)]


def _schema(source: LogReader, names: Sequence[str]) -> pa.Schema:
    units, called = source.header.units, shown_columns(source.header)
    fields = []
    for name in names:
        column = called.get(name, name)
        unit = units.get(column.removeprefix("circuit."))
        kind = pa.string() if name == EVENTS else pa.int64() if column in source.header.whole else pa.float64()
        fields.append(pa.field(name, kind, metadata={"unit": unit} if unit else None))
    return pa.schema(fields, metadata={METADATA_KEY: encode(source.header.model_dump())})


def _tables(source: LogReader, schema: pa.Schema, events: Mapping[int, list[Event]], every: int) -> Iterator[pa.Table]:
    """The kept rows, in chunks."""
    waiting: list[pa.RecordBatch] = []
    called, count = shown_columns(source.header), 0
    for batch in source.batches():
        first = -batch.start % every
        if first >= len(batch):
            continue
        waiting.append(_kept(batch, schema, called, events, slice(first, None, every)))
        count += len(waiting[-1])
        if count >= _CHUNK_ROWS:
            yield pa.Table.from_batches(waiting).combine_chunks()
            waiting, count = [], 0
    yield pa.Table.from_batches(waiting, schema).combine_chunks()


def _kept(
    batch: Batch, schema: pa.Schema, called: Mapping[str, str], events: Mapping[int, list[Event]], rows: slice
) -> pa.RecordBatch:
    names = [f"circuit.{name}" for name in batch.circuit.names]
    values = dict(zip(names, batch.circuit_values().T, strict=True))
    numbers = range(batch.start, batch.start + len(batch))[rows]
    arrays = []
    for name in schema.names:
        if name == EVENTS:
            arrays.append(pa.array([encode(events[row]) if row in events else None for row in numbers], pa.string()))
        elif name in values:
            arrays.append(pa.array(np.ascontiguousarray(values[name][rows])))
        elif (column := called.get(name, name)) in batch.arrow.schema.names:
            arrays.append(pa.array(np.ascontiguousarray(batch.column(column)[rows])))
        else:
            arrays.append(pa.nulls(len(numbers), pa.float64()))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
