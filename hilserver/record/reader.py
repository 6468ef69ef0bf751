"""Reads the log of a run, also one whose writer was killed, batch by batch or at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hilserver.record.format import (
    CHECKSUM_KEY,
    CIRCUIT,
    Event,
    LogHeader,
    RecordError,
    checksum,
    decode,
    event_texts,
    header_of,
    is_circuit,
    later_parts,
    part_path,
    schema_of,
)

_CONTINUATION = b"\xff\xff\xff\xff"
_END_MARK = _CONTINUATION + bytes(4)


@dataclass(frozen=True)
class CircuitVersion:
    """The circuit from row ``start`` on: the names of its values, its packed arrays."""

    start: int
    names: tuple[str, ...]
    packed: Mapping[str, Any]


@dataclass(frozen=True)
class Batch:
    """Some consecutive rows of a log, all of one circuit.

    ``start`` is the number of the first row (0 is the log's first), ``events`` are (row number, event).
    """

    start: int
    circuit: CircuitVersion
    events: tuple[tuple[int, Event], ...]
    arrow: pa.RecordBatch

    def __len__(self) -> int:
        return int(self.arrow.num_rows)

    def column(self, name: str) -> NDArray[np.float64]:
        """A column of the fixed part, float64[n]; not copied, hence not writable."""
        values: NDArray[np.float64] = self.arrow.column(name).to_numpy()
        return values

    def circuit_values(self) -> NDArray[np.float64]:
        """The circuit's values, float64[n, len(circuit.names)]; not copied, hence not writable."""
        values: NDArray[np.float64] = self.arrow.column(CIRCUIT).values.to_numpy()
        return values.reshape(len(self), len(self.circuit.names))

    def rows(self) -> NDArray[np.float64]:
        """The rows as they were appended, float64[n, columns + circuit values]."""
        fixed = self.arrow.columns[:-2]
        rows = np.empty((len(self), len(fixed) + len(self.circuit.names)))
        for index, column in enumerate(fixed):
            rows[:, index] = column.to_numpy()
        rows[:, len(fixed) :] = self.circuit_values()
        return rows


@dataclass(frozen=True)
class CircuitSegment:
    """The values of one circuit: float64[rows, len(version.names)], the first row being ``version.start``."""

    version: CircuitVersion
    values: NDArray[np.float64]


@dataclass(frozen=True)
class LogTable:
    """A whole log in memory: fixed columns by name, float64[rows]; circuit values by version; events with their row."""

    header: LogHeader
    columns: dict[str, NDArray[np.float64]]
    circuits: tuple[CircuitSegment, ...]
    events: list[tuple[int, Event]]
    torn: bool


class LogReader:
    """A log and the parts that follow it.

    ``torn`` is known (not None) when `batches` came to its end: True if the log has no end mark, because its writer was
    killed, ran out of disk or still writes, or if something behind the last batch read is damaged.

    Raises `RecordError` if the file is no log, holds nothing, or is of a newer format.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.header = _read_header(self.path)
        self.parts = (self.path, *_following_parts(self.path, self.header))
        self.torn: bool | None = None

    def batches(self) -> Iterator[Batch]:
        """All whole batches in order; only one is held in memory."""
        torn, start = False, 0
        version: CircuitVersion | None = None
        for path in self.parts:
            try:
                part = _Part(path)
            except RecordError:  # the writer was killed while it started this part
                torn, version = True, None
                continue
            if part.header.started != self.header.started:
                raise RecordError(path, f"is not a part of the run in {self.path.name}: it started at another time.")
            for arrow in part.batches():
                if version is None:
                    header = part.header
                    version = CircuitVersion(start, header.circuit_names, header.packed)
                events = tuple((start + row, decode(text)) for row, text in event_texts(arrow))
                for row, event in events:
                    if is_circuit(event):
                        version = CircuitVersion(row, tuple(event["names"]), event["packed"])
                if len(arrow.column(CIRCUIT).values) != len(arrow) * len(version.names):
                    raise RecordError(path, f"row {start}: the circuit's values don't match its names.")
                yield Batch(start, version, events, arrow)
                start += len(arrow)
            if part.torn:
                torn, version = True, None
        self.torn = torn

    def read_all(self) -> LogTable:
        """The whole log in memory, 8 bytes per value (twice that while it is put together)."""
        batches = list(self.batches())
        names = self.header.columns
        fixed = pa.Table.from_batches([batch.arrow for batch in batches], schema_of(self.header)).select(list(names))
        groups = [list(group) for _, group in groupby(batches, key=lambda batch: batch.circuit.start)]
        circuits = tuple(
            CircuitSegment(group[0].circuit, np.concatenate([batch.circuit_values() for batch in group]))
            for group in groups
        )
        return LogTable(
            header=self.header,
            columns={name: column.to_numpy() for name, column in zip(names, fixed.columns, strict=True)},
            circuits=circuits,
            events=[event for batch in batches for event in batch.events],
            torn=bool(self.torn),
        )


class _Part:
    """One file of a log; ``torn`` says after `batches` whether it ended without its end mark."""

    def __init__(self, path: Path) -> None:
        self.header = _read_header(path)
        self.torn = True
        self._path = path

    def batches(self) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(str(self._path)) as file:
            stream = pa.ipc.open_stream(file)
            end = file.tell()
            while (batch := _next_batch(stream)) is not None:
                yield batch
                end = file.tell()
            file.seek(end)
            self.torn = file.read(len(_END_MARK) + 1) != _END_MARK


def _next_batch(stream: pa.RecordBatchStreamReader) -> pa.RecordBatch | None:
    """The next batch, or None where the stream ends, is cut or is damaged."""
    try:
        batch, metadata = stream.read_next_batch_with_custom_metadata()
        batch.validate(full=True)
        whole = metadata is not None and metadata.get(CHECKSUM_KEY) == checksum(batch)
    except (StopIteration, pa.ArrowException, OSError):
        return None
    return batch if whole else None


def _read_header(path: Path) -> LogHeader:
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(8)
    except OSError as error:
        raise RecordError(path, f"can't be read: {error.strerror}.") from error
    if size == 0:
        raise RecordError(path, "is empty: nothing was recorded.")
    if not start.startswith(_CONTINUATION[:size]):
        raise RecordError(path, "is not a log of hilserver (a log is an Arrow IPC stream).")
    if len(start) < 8 or size < 8 + int.from_bytes(start[4:], "little"):
        raise RecordError(path, "ends within its header: nothing was recorded.")
    try:
        with pa.OSFile(str(path)) as source:
            schema = pa.ipc.open_stream(source).schema
    except (pa.ArrowException, OSError) as error:
        raise RecordError(path, f"is not a log of hilserver, or its header is damaged: {error}.") from error
    return header_of(schema, path)


def _following_parts(path: Path, header: LogHeader) -> list[Path]:
    """The parts after this one, in order. Raises `RecordError` if one between them is missing."""
    found = later_parts(path, header.part)
    for index, part in enumerate(found):
        expected = part_path(path, header.part, header.part + 1 + index)
        if part != expected:
            raise RecordError(expected, f"is missing, but a later part of the run is there: {part.name}.")
    return found
