"""Parquet files and text tables by column; a text table is converted to Parquet first, in a temporary folder."""

from __future__ import annotations

import csv
import math
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet

from hilserver.errors import shown
from hilserver.numerics.arrays import Floats
from hilserver.record.format import EVENTS, METADATA_KEY, Event, LogHeader, RecordError, decode
from hilserver.record.tables import DELIMITERS, parsed_numbers, read_header_line
from hilserver.units import unit_of_value
from hilserver.viewer.measurement import Measurement
from hilserver.viewer.moments import MomentList

TIME_NAMES = ("time", "t", "timestamp", "time_s", "time [s]", "time (s)", "zeit")
"""Names under which the time is looked for, in upper or lower case."""
_BLOCK_BYTES = 16 << 20
_COMMA_NUMBER = re.compile(r"^[+-]?\d+,\d+([eE][+-]?\d+)?$")


class ParquetLog(Measurement):
    """A Parquet file, one signal per numeric column, or a CSV file converted to one.

    The time is the column ``time``, in seconds (`TIME_NAMES` are also recognised), or of a type with a unit.
    Files that hilserver has exported also have units and moments.

    Raises `RecordError` if the file can't be read, has no time, or one that decreases.
    """

    def __init__(self, path: Path, table: Path | None = None, notes: Sequence[str] = ()) -> None:
        super().__init__(path)
        self._table = table or path
        try:
            self._file = pa.parquet.ParquetFile(self._table, memory_map=True)
        except (pa.ArrowException, OSError) as error:
            raise RecordError(path, f"can't be read as Parquet: {str(error).splitlines()[0]}.") from error
        schema = self._file.schema_arrow
        groups = [self._file.metadata.row_group(k).num_rows for k in range(self._file.num_row_groups)]
        self._starts = np.concatenate([[0], np.cumsum(groups, dtype=np.int64)])
        numeric = [field for field in schema if _is_number(field.type)]
        time = time_column(path, [field.name for field in schema if _is_number(field.type) or _is_time(field.type)])
        self._times, self.started = self._time(schema.field(time))
        decreases = np.flatnonzero(~(np.diff(self._times) >= 0.0))
        if len(decreases):
            raise RecordError(path, f"time decreases or is missing in row {int(decreases[0]) + 1} (counted from 0).")
        self.units = {field.name: _unit(field) for field in numeric}
        self.notes = notes
        self._read_moments(schema)

    def times(self, signal: str) -> Floats:
        """See `Measurement`."""
        return self._times

    def read(self, signal: str, start: int, stop: int) -> Floats:
        """See `Measurement`."""
        self.require(signal)
        first = max(int(np.searchsorted(self._starts, start, "right")) - 1, 0)
        last = int(np.searchsorted(self._starts, stop, "left"))
        if stop <= start or first >= last:
            return np.empty(0)
        try:
            with pa.parquet.ParquetFile(self._table, memory_map=True) as file:  # a reader is for one thread
                column = file.read_row_groups(list(range(first, last)), columns=[signal]).column(0)
        except (OSError, pa.ArrowException) as error:
            raise RecordError(self.path, f"can't be read: {str(error).splitlines()[0]}.") from error
        begin = int(self._starts[first])
        return _floats(column.slice(start - begin, stop - start))

    def close(self) -> None:
        """See `Measurement`."""
        self._file.close()

    def _time(self, field: pa.Field) -> tuple[Floats, float | None]:
        """Times in s, and the Unix time of time 0 if the column states it."""
        column = self._file.read(columns=[field.name]).column(0)
        if not _is_time(field.type):
            return _floats(column), None
        seconds = _floats(column.cast(pa.timestamp("ns")).cast(pa.int64())) * 1e-9
        start = float(seconds[0]) if len(seconds) else math.nan
        return seconds - start, start if math.isfinite(start) else None

    def _read_moments(self, schema: pa.Schema) -> None:
        text = (schema.metadata or {}).get(METADATA_KEY)
        header = LogHeader(software="", rig="", started="", period_s=1.0, columns=tuple(self.units))
        with suppress(ValueError, TypeError):
            header = header if text is None else LogHeader.model_validate(decode(text))
        moments = MomentList(header)
        if {"mode", "fault"} <= set(self.units):
            modes, faults = (self.read(name, 0, len(self._times)) for name in ("mode", "fault"))
            if np.isfinite(modes).all() and np.isfinite(faults).all():
                moments.add_modes(self._times, modes, faults)
        if EVENTS in schema.names and pa.types.is_string(schema.field(EVENTS).type):
            moments.add_events(self._events())
        self.moments = moments.in_order()
        if "utc" in self.units and len(self._times):
            self.started = float(self.read("utc", 0, 1)[0]) - float(self._times[0])
        elif header.started and len(self._times):
            self.started = datetime.fromisoformat(header.started).timestamp() - float(self._times[0])

    def _events(self) -> Iterator[tuple[float, Event]]:
        column = self._file.read(columns=[EVENTS]).column(0)
        filled = pa.compute.and_kleene(column.is_valid(), pa.compute.not_equal(column, ""))
        for row in np.flatnonzero(pa.compute.fill_null(filled, False).to_numpy()):
            with suppress(ValueError, TypeError):
                events = decode(column[int(row)].as_py())
                yield from ((float(self._times[row]), event) for event in events if isinstance(event, dict))


class CsvLog(ParquetLog):
    """A text table with one header line: comma, semicolon, tab or | between cells, decimal point or comma.

    Cells that are no numbers are missing samples; lines with another number of cells are left out, and counted.
    Columns without any number are left out.
    """

    def __init__(self, path: Path) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="hilserver-view-")
        table = Path(self._folder.name) / "table.parquet"
        try:
            super().__init__(path, table, _converted(path, table))
        except BaseException:
            self._folder.cleanup()
            raise

    def close(self) -> None:
        """See `Measurement`."""
        super().close()
        self._folder.cleanup()


def time_column(path: Path, names: Sequence[str]) -> str:
    """The column that is the time. Raises `RecordError` if there is none."""
    lower = {name.lower().strip(): name for name in reversed(names)}
    for name in TIME_NAMES:
        if name in lower:
            return lower[name]
    raise RecordError(
        path,
        f"has no column with the time: one of its columns must be named time, in seconds "
        f"(it has {', '.join(map(shown, names[:6]))}{' …' if len(names) > 6 else ''}).",
    )


def _converted(path: Path, table: Path) -> list[str]:
    """Write the numeric columns of a text table to a Parquet file; returns notes on what was left out."""
    encoding, header = read_header_line(path, 1)
    delimiter = max(DELIMITERS, key=lambda mark: len(next(csv.reader([header], delimiter=mark))))
    names = [name.strip() for name in next(csv.reader([header], delimiter=delimiter))]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise RecordError(path, f"has {names.count(twice)} columns named {shown(twice)}: make their names distinct.")
    time_column(path, names)
    ragged: list[int | None] = []

    def skip(row: pa.csv.InvalidRow) -> str:
        ragged.append(row.number)
        return "skip"

    try:
        reader = pa.csv.open_csv(
            path,
            pa.csv.ReadOptions(column_names=names, skip_rows=1, encoding=encoding, block_size=_BLOCK_BYTES),
            pa.csv.ParseOptions(delimiter=delimiter, invalid_row_handler=skip),
            pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
        )
        writer: pa.parquet.ParquetWriter | None = None
        with reader:
            for batch in reader:
                if writer is None:
                    decimal = _decimal(batch) if delimiter != "," else "."
                    schema = _schema_of(batch, decimal, path)
                    writer = pa.parquet.ParquetWriter(table, schema, compression="zstd", use_dictionary=False)
                writer.write_batch(pa.RecordBatch.from_arrays(_cells(batch, schema, decimal), schema=schema))
        if writer is None:
            raise RecordError(path, "has no samples below its header.")
        writer.close()
    except (pa.ArrowException, UnicodeError, OSError) as error:
        raise RecordError(path, f"can't be read as a table: {str(error).splitlines()[0]}.") from error
    lines = f"{len(ragged)} line{'s' if len(ragged) != 1 else ''}"
    return [f"{path.name}: {lines} with too few or too many cells left out"] if ragged else []


def _schema_of(batch: pa.RecordBatch, decimal: str, path: Path) -> pa.Schema:
    """The columns to keep: those with a number in the first block, and the events of an exported log."""
    fields = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name == EVENTS:
            fields.append(pa.field(name, pa.string()))
        elif np.isfinite(_numbers_in(column, decimal)).any() or not any(column.to_pylist()):
            fields.append(pa.field(name, pa.float64()))
    names = [field.name for field in fields]
    time_column(path, names)
    return pa.schema(fields)


def _cells(batch: pa.RecordBatch, schema: pa.Schema, decimal: str) -> list[pa.Array]:
    return [
        batch.column(field.name)
        if pa.types.is_string(field.type)
        else pa.array(_numbers_in(batch.column(field.name), decimal))
        for field in schema
    ]


def _numbers_in(column: pa.Array, decimal: str) -> Floats:
    return parsed_numbers(pa.chunked_array([pa.compute.utf8_trim_whitespace(column)]), decimal)


def _decimal(batch: pa.RecordBatch) -> str:
    """The decimal sign, from the first lines."""
    cells = (cell.strip() for column in batch.columns for cell in column.slice(0, 20).to_pylist() if cell)
    return "," if any(map(_COMMA_NUMBER.match, cells)) else "."


def _floats(column: pa.ChunkedArray) -> Floats:
    """The numbers of a column, NaN for those that are missing."""
    values = column.cast(pa.float64(), safe=False).combine_chunks()
    found: Floats = np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64)
    return found


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind))


def _unit(field: pa.Field) -> str:
    """As the file says it; for an exported log without units, as the name of a value of the circuit says it."""
    unit = (field.metadata or {}).get(b"unit", b"").decode(errors="replace")
    is_circuit = field.name.startswith("circuit.")
    return unit or (unit_of_value(field.name.removeprefix("circuit.")) if is_circuit else "")
