"""A log of hilserver by column: an index of its batches, and reading of single columns from the mapped file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hilserver.numerics.arrays import Floats
from hilserver.record.format import (
    ROW_KEY,
    Event,
    RecordError,
    decode,
    event_texts,
    is_circuit,
    numbers,
)
from hilserver.record.header import read_header
from hilserver.record.reader import LogReader, ends_whole, not_recorded
from hilserver.record.shown_columns import shown_columns
from hilserver.record.writer import is_being_written
from hilserver.units import CIRCUIT
from hilserver.viewer.measurement import Measurement
from hilserver.viewer.moments import MomentList


@dataclass(frozen=True)
class _Part:
    """A file: the row behind its last one, and of each batch the first row and the place in the file."""

    path: Path
    end: int
    rows: np.ndarray[tuple[int], np.dtype[np.int64]]
    places: np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True)
class _Stretch:
    """The circuit from row ``start`` on: the place of each of its values."""

    start: int
    places: dict[str, int]


class ArrowLog(Measurement):
    """A log of hilserver with the parts that follow it.

    Opening it reads times, modes and events only, 8 bytes per row are kept. Checksums are not compared (`hilserver
    log check` does that). What cannot be read of these ends the log, with a note; a signal is NaN in a batch in which
    its compressed values are damaged.

    Raises `RecordError` if it is no log, has no rows, or a part is missing.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        reader = LogReader(path)
        self._left_out = {*reader.header.left_out, *_values_of(reader.header.packed)}
        shown = shown_columns(reader.header)
        self._columns = {name: place for place, name in enumerate(shown)}
        self._units, self._moments = reader.header.units, MomentList(reader.header)
        self._circuits: list[tuple[float, Mapping[str, Any]]] = [(-inf, reader.header.packed.get("source", {}))]
        self._parts: list[_Part] = []
        self._stretches: list[_Stretch] = []
        self._count, self._utc = 0, float("nan")
        if "time" not in self._columns:
            raise RecordError(path, "has no column time.")
        notes: list[str] = []
        times: list[Floats] = []
        for part in reader.parts:
            if trouble := self._index(part, times):
                notes.append(trouble)
                break
        if self._count == 0:
            raise RecordError(path, "has no complete rows.")
        self._times = np.concatenate(times)
        values = dict.fromkeys(name for stretch in self._stretches for name in stretch.places)
        self.units = {name: self._units.get(column, "") for name, column in shown.items()}
        self.units |= {CIRCUIT + name: self._units.get(name, "") for name in values}
        started = datetime.fromisoformat(reader.header.started).timestamp() - float(self._times[0])
        self.started = self._utc - float(self._times[0]) if np.isfinite(self._utc) else started
        self.moments, self.notes = self._moments.in_order(), notes

    def times(self, signal: str) -> Floats:
        """See `Measurement`."""
        return self._times

    def read(self, signal: str, start: int, stop: int) -> Floats:
        """See `Measurement`."""
        values = np.full(max(stop - start, 0), np.nan)
        for row, column in self._batches(signal, start, stop):
            begin, end = max(row, start), min(row + len(column), stop)
            values[begin - start : end - start] = column[begin - row : end - row]
        return values

    def why_not(self, signal: str) -> str:
        """See `Measurement`."""
        return f" {not_recorded(signal)}" if signal in self._left_out else ""

    def circuit_at(self, time: float) -> Mapping[str, Any]:
        """See `Measurement`."""
        return next(source for begin, source in reversed(self._circuits) if begin <= time)

    def _column_of(self, signal: str) -> int:
        self.require(signal)
        return self._columns.get(signal, len(self._columns))

    def _values(self, signal: str, row: int, batch: pa.RecordBatch) -> Floats:
        """A signal's values in a batch, whose first row is ``row``."""
        column = batch.column(0)
        if signal in self._columns:
            found: Floats = numbers(column)
            return found
        stretch = next(stretch for stretch in reversed(self._stretches) if stretch.start <= row)
        place = stretch.places.get(signal.removeprefix(CIRCUIT))
        if place is None:  # this circuit has no such value
            return np.full(len(batch), np.nan)
        values: Floats = numbers(column.values).reshape(len(batch), len(stretch.places))[:, place]
        return values

    def _batches(self, signal: str, start: int, stop: int) -> Iterator[tuple[int, Floats]]:
        """A signal's values in each batch that contains these rows, and the number of its first row.

        Batches in which they are damaged are left out.
        """
        column = self._column_of(signal)
        for part in self._parts:
            first = max(int(np.searchsorted(part.rows, start, "right")) - 1, 0)
            last = int(np.searchsorted(part.rows, stop, "left"))
            if first >= last or part.end <= start:
                continue
            with _columns_of(part.path, [column]) as (file, stream):
                for row, place in zip(part.rows[first:last], part.places[first:last], strict=True):
                    file.seek(int(place))
                    try:
                        batch = stream.read_next_batch()
                        batch.validate()
                        values = self._values(signal, int(row), batch)
                    except StopIteration:
                        raise RecordError(part.path, "has become shorter since it was opened.") from None
                    except (ValueError, pa.ArrowException, OSError):
                        continue
                    yield int(row), values

    def _index(self, path: Path, times: list[Floats]) -> str:
        """Add the batches of a file; returns why it could not be read to its end."""
        wanted: list[str] = [name for name in ("time", "utc", "mode", "fault") if name in self._columns]
        places = [*(self._columns[name] for name in wanted), len(self._columns) + 1]  # the last one: the events
        rows: list[int] = []
        at: list[int] = []
        trouble, first = "", None
        try:
            self._begin_part(path)
            with _columns_of(path, places) as (file, stream):
                while True:
                    place = file.tell()
                    batch, metadata = stream.read_next_batch_with_custom_metadata()
                    batch.validate(full=True)  # the process would end if the places of texts are damaged
                    number = (metadata or {}).get(ROW_KEY)
                    first = int(number) - self._count if first is None and number is not None else first
                    if number is not None and int(number) - self._count != first:
                        trouble = f"{path.name} lacks rows before row {int(number)} of the run"
                        break
                    columns = {name: numbers(batch.column(name)).copy() for name in wanted}
                    self._take(columns, [(row, decode(text)) for row, text in event_texts(batch)])
                    times.append(columns["time"])
                    rows.append(self._count)
                    at.append(place)
                    self._count += len(batch)
        except StopIteration:
            pass
        except RecordError as error:
            trouble = f"{path.name} {error.reason.rstrip('.')}"
        except (ValueError, KeyError, TypeError, AttributeError) as error:  # an event that is no JSON, or no event
            trouble = f"{path.name} can't be read any further: {error}"
        self._parts.append(_Part(path, self._count, np.array(rows, np.int64), np.array(at, np.int64)))
        if is_being_written(path) or (not trouble and ends_whole(path)):
            return ""
        what = trouble or f"{path.name} has no end mark"
        return f"{what}: shown are the {self._count} rows before. hilserver log check reports what is missing."

    def _begin_part(self, path: Path) -> None:
        names = read_header(path).circuit_names
        if not self._stretches or tuple(self._stretches[-1].places) != names:
            self._stretches.append(_Stretch(self._count, {name: place for place, name in enumerate(names)}))

    def _take(self, columns: Mapping[str, Floats], events: Sequence[tuple[int, Event]]) -> None:
        """Take start, modes and events of a batch, whose first row is the next one; the events by row of the batch."""
        time = columns["time"]
        if "utc" in columns and len(time) and not np.isfinite(self._utc):
            self._utc = float(columns["utc"][0])
        if "mode" in columns and "fault" in columns:
            self._moments.add_modes(time, columns["mode"], columns["fault"])
        for row, event in events:
            if is_circuit(event):
                circuit = {name: place for place, name in enumerate(event["names"])}
                self._stretches.append(_Stretch(self._count + row, circuit))
                packed = event.get("packed", {})
                self._circuits.append((float(time[row]), packed.get("source", {})))
                self._left_out.update(_values_of(packed))
        self._moments.add_events((float(time[row]), event) for row, event in events)


def _values_of(packed: Mapping[str, Any]) -> Iterator[str]:
    """The names of all values of a circuit, recorded or not."""
    return (CIRCUIT + name for key in ("values", "recorded") for name in packed.get(key, ()))


@contextmanager
def _columns_of(path: Path, places: Sequence[int]) -> Iterator[tuple[pa.MemoryMappedFile, pa.RecordBatchStreamReader]]:
    """The mapped file, and a stream of its batches with the columns at these places."""
    options = pa.ipc.IpcReadOptions(included_fields=sorted(places), use_threads=False)
    try:
        with pa.memory_map(str(path)) as file:
            yield file, pa.ipc.open_stream(file, options=options)
    except (OSError, pa.ArrowException) as error:  # removed, or not as it was when it was indexed
        raise RecordError(path, f"can't be read: {str(error).splitlines()[0]}.") from error
