"""Reads the log of a run, even if its writer was killed, batch by batch or all at once."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hilserver.errors import HilserverError
from hilserver.record.format import (
    CHECKSUM_KEY,
    CIRCUIT_COLUMN,
    CIRCUIT_KEY,
    ROW_KEY,
    SNAPSHOT,
    Event,
    LogHeader,
    RecordError,
    checksum,
    decode,
    event_texts,
    is_circuit,
    later_parts,
    numbers,
    part_path,
    present_name,
)
from hilserver.record.header import CONTINUATION, COPY_KEY, copied_text, find_header, read_header

_END_MARK = CONTINUATION + bytes(4)
_ALIGNMENT = 8
_OPTIONS = pa.ipc.IpcReadOptions(use_threads=False)
"""A pool of threads takes several times longer for the small buffers of a compressed batch."""


@dataclass(frozen=True)
class CircuitVersion:
    """The circuit from row ``start`` on: the names of its values, its packed arrays."""

    start: int
    names: tuple[str, ...]
    packed: Mapping[str, Any]


@dataclass(frozen=True)
class Batch:
    """Some consecutive rows of a log, all of one circuit.

    ``start`` is the number of the first row (0 is the log's first), ``events`` are (row number, event). ``snapshots``
    are whole rows by row number, in logs from which columns are ``left_out``.
    """

    start: int
    circuit: CircuitVersion
    events: tuple[tuple[int, Event], ...]
    arrow: pa.RecordBatch
    snapshots: Mapping[int, NDArray[np.float64]] = field(default_factory=dict)
    left_out: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return int(self.arrow.num_rows)

    def column(self, name: str) -> NDArray[Any]:
        """A column of the fixed part, float64[n], or int64[n] for whole numbers; not copied, hence not writable.

        Raises `HilserverError` if it was left out of the recording.
        """
        if name in self.left_out:
            raise HilserverError(not_recorded(name))
        return numbers(self.arrow.column(name))

    def circuit_values(self) -> NDArray[np.float64]:
        """The circuit's values, float64[n, len(circuit.names)]; not copied, hence not writable."""
        return numbers(self.arrow.column(CIRCUIT_COLUMN).values).reshape(len(self), len(self.circuit.names))

    def rows(self) -> NDArray[np.float64]:
        """The rows as they were appended, float64[n, columns + circuit values], whole numbers as int64 in them."""
        fixed = self.arrow.columns[:-2]
        rows = np.empty((len(self), len(fixed) + len(self.circuit.names)))
        for index, column in enumerate(fixed):
            rows[:, index] = numbers(column).view(np.float64)
        rows[:, len(fixed) :] = self.circuit_values()
        return rows


def not_recorded(name: str) -> str:
    """The reason for which a log lacks a column."""
    return f"{name} was not recorded: recording.signals of the rig file leaves it out (a replay computes it again)."


class RecordedColumns(dict[str, NDArray[Any]]):
    """Fixed columns by name. Raises `RecordError` for a column that was left out of the recording."""

    def __init__(self, path: Path, left_out: frozenset[str], columns: Mapping[str, NDArray[Any]]) -> None:
        super().__init__(columns)
        self._path, self._left_out = path, left_out

    def __missing__(self, name: str) -> NDArray[Any]:
        if name in self._left_out:
            raise RecordError(self._path, not_recorded(name))
        raise KeyError(name)


@dataclass(frozen=True)
class CircuitSegment:
    """The values of one circuit: float64[rows, len(version.names)], the first row being ``version.start``."""

    version: CircuitVersion
    values: NDArray[np.float64]


@dataclass(frozen=True)
class LogTable:
    """A whole log in memory: fixed columns by name, float64[rows] or int64[rows]; circuit values; events by row."""

    header: LogHeader
    columns: dict[str, NDArray[Any]]
    circuits: tuple[CircuitSegment, ...]
    events: list[tuple[int, Event]]
    torn: bool


@dataclass(frozen=True)
class Damage:
    """A place in a log where rows are missing: in ``file`` at ``byte``, in front of the ``row``-th row that was read.

    ``lost`` is the number of rows that are missing there, None if unknown: at the end, and in logs of older
    versions.
    """

    file: Path
    byte: int
    row: int
    lost: int | None
    reason: str

    def __str__(self) -> str:
        count = "an unknown number of rows" if self.lost is None else f"{self.lost} row{'s' if self.lost != 1 else ''}"
        return f"{self.file.name}, byte {self.byte}: {self.reason}; {count} missing before row {self.row}"


class LogReader:
    """A log and the parts that follow it.

    `batches` skips damaged data and continues after it; `damages` lists what is missing. When all batches are read,
    ``torn`` (until then None) is True if anything is missing or the log has no end mark, because its writer was
    killed, ran out of disk space or is still writing.

    Raises `RecordError` if the file is not a log, is empty, or is of a newer format, and, unless ``gaps`` are allowed,
    if a part of the run is missing between others.
    """

    def __init__(self, path: str | Path, *, gaps: bool = False) -> None:
        self.path = Path(path)
        self.header = read_header(self.path)
        self.parts = (self.path, *later_parts(self.path, self.header.part))
        self.torn: bool | None = None
        self._reading = _Reading(self.header)
        if not gaps:
            _refuse_gaps(self.parts, self.header.part)

    @property
    def damages(self) -> tuple[Damage, ...]:
        """What is missing before and between the rows that `batches` has yielded so far."""
        return tuple(self._reading.damages)

    def require(self, *columns: str) -> None:
        """Raises `RecordError` if one of these columns was left out of the recording."""
        for name in columns:
            if name in self.header.left_out:
                raise RecordError(self.path, not_recorded(name))

    def batches(self) -> Iterator[Batch]:
        """All complete batches in order; only one is held in memory."""
        self._reading = reading = _Reading(self.header)
        torn = False
        for path in self.parts:
            part = _Part(path, self.path)
            reading.begin(part)
            for piece in part.pieces():
                if isinstance(piece, _Hole):
                    reading.miss(path, piece)
                elif (batch := reading.batch(path, piece)) is not None:
                    yield batch
            torn = torn or not part.has_end
        reading.end_hole(None)
        self.torn = torn or bool(self.damages)

    def read_all(self) -> LogTable:
        """The whole log in memory, 8 bytes per value (twice that while it is put together)."""
        batches = list(self.batches())
        names = self.header.columns
        groups = [list(group) for _, group in groupby(batches, key=lambda batch: batch.circuit.start)]
        circuits = tuple(
            CircuitSegment(group[0].circuit, np.concatenate([batch.circuit_values() for batch in group]))
            for group in groups
        )
        return LogTable(
            header=self.header,
            columns=RecordedColumns(
                self.path,
                self.header.left_out,
                {name: _joined([batch.column(name) for batch in batches]) for name in names},
            ),
            circuits=circuits,
            events=[event for batch in batches for event in batch.events],
            torn=bool(self.torn),
        )


def _joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(0)


@dataclass(frozen=True)
class _Hole:
    """A place in a file with something that is not a complete batch, or where something is missing."""

    byte: int
    reason: str


@dataclass(frozen=True)
class _Whole:
    """A complete batch with the numbers of its first row and circuit in the run; None in logs of older versions.

    ``has_bad_copy``: it brings a copy of the header that is damaged.
    """

    byte: int
    arrow: pa.RecordBatch
    row: int | None
    circuit: int | None
    has_bad_copy: bool


class _Reading:
    """The state of reading a run: row, circuit, and what is missing since the last complete batch."""

    def __init__(self, header: LogHeader) -> None:
        self._run = header
        self._left_out = header.left_out
        self._start = 0
        self._next_row: int | None = header.first_row
        self._circuit: int | None = header.first_circuit
        self._version: CircuitVersion | None = None
        self._is_sure = True
        self._hole: tuple[Path, _Hole] | None = None
        self.damages: list[Damage] = []

    def begin(self, part: _Part) -> None:
        """Continue with this file."""
        if part.header is None:
            self.miss(part.path, _Hole(0, part.trouble))
            return
        if part.header.started != self._run.started:
            raise RecordError(part.path, f"is not a part of the run in {part.run.name}: it started at another time.")
        if part.trouble:
            self.damages.append(Damage(part.path, 0, self._start, 0, f"{part.trouble} (its copy is used)"))
        same = self._version is not None and self._version.names == part.header.circuit_names
        if not same or self._hole is not None or self._circuit not in (None, part.header.first_circuit):
            self._version = CircuitVersion(self._start, part.header.circuit_names, part.header.packed)
        if self._next_row is not None and self._next_row < part.header.first_row:
            self.miss(part.path, _Hole(0, "the previous file ends too early"))
        self._circuit = part.header.first_circuit
        self._is_sure = True

    def miss(self, path: Path, hole: _Hole) -> None:
        """Record that data is missing here; the first reason is kept until the next complete batch."""
        self._hole = self._hole or (path, hole)
        self._is_sure = False

    def batch(self, path: Path, whole: _Whole) -> Batch | None:
        """The next batch; None if it can't be interpreted because of what is missing before it."""
        if self._next_row is not None and whole.row is not None and whole.row != self._next_row:
            if whole.row < self._next_row:
                self.damages.append(
                    Damage(path, whole.byte, self._start, 0, "a batch that was already read is repeated")
                )
                return None
            self.miss(path, _Hole(whole.byte, "batches before this one were removed"))
        found = [(self._start + row, decode(text)) for row, text in event_texts(whole.arrow)]
        snapshots = {row: event["row"] for row, event in found if event.get("kind") == SNAPSHOT}
        events = tuple((row, event) for row, event in found if event.get("kind") != SNAPSHOT)
        new = [(row, event) for row, event in events if is_circuit(event)]
        is_known = self._is_sure or (whole.circuit is not None and whole.circuit == self._circuit)
        if not (is_known or new):
            return None  # a switch may have been lost, so the meaning of the circuit's values is unknown
        for row, event in new:
            self._version = CircuitVersion(row, tuple(event["names"]), event["packed"])
        self._circuit, self._is_sure = whole.circuit, True
        assert self._version is not None
        if len(whole.arrow.column(CIRCUIT_COLUMN).values) != len(whole.arrow) * len(self._version.names):
            raise RecordError(path, f"row {self._start}: the circuit's values don't match its names.")
        self.end_hole(whole.row)
        if whole.has_bad_copy:
            self.damages.append(Damage(path, whole.byte, self._start, 0, "the copy of the header is damaged"))
        arrow = whole.arrow.rename_columns([present_name(name) for name in whole.arrow.schema.names])
        batch = Batch(self._start, self._version, events, arrow, snapshots, self._left_out)
        self._start += len(batch)
        self._next_row = None if whole.row is None else whole.row + len(batch)
        return batch

    def end_hole(self, row: int | None) -> None:
        """The gap ends at this row of the run; None: there is no more data, or the row number is not known."""
        if self._hole is None:
            return
        path, hole = self._hole
        lost = None if row is None or self._next_row is None else row - self._next_row
        if lost != 0:  # the gap contained no rows, only an end mark
            self.damages.append(Damage(path, hole.byte, self._start, lost, hole.reason))
        self._hole = None


class _Part:
    """One file of a log: its header, None if that and its copy are damaged, and the trouble with it.

    Without a header, the batches are read according to that of the ``run``'s first file. ``has_end``, set after
    `pieces`: whether the file's end is complete.
    """

    def __init__(self, path: Path, run: Path) -> None:
        self.path, self.run = path, run
        self.header: LogHeader | None = None
        self.has_end = False
        try:
            found = find_header(path)
        except RecordError as error:
            self.trouble, self._head = error.reason.rstrip("."), find_header(run).head()
        else:
            self.header, self.trouble, self._head = found.header, found.trouble, found.head()

    def pieces(self) -> Iterator[_Whole | _Hole]:
        """Complete batches and the data between them."""
        begin = end = 0
        if not self.trouble:
            with pa.OSFile(str(self.path)) as file:
                stream = pa.ipc.open_stream(file, options=_OPTIONS)
                begin = end = file.tell()
                while (whole := _next_batch(stream, end)) is not None:
                    yield whole
                    begin, end = end, file.tell()
                file.seek(end)
                rest = file.read(len(_END_MARK) + 1)
            self.has_end = rest == _END_MARK
            if not rest or self.has_end:
                yield from self._hidden_pieces(begin, end)
                return
        yield from self._damaged_pieces(begin, end)

    def _hidden_pieces(self, begin: int, end: int) -> Iterator[_Whole]:
        """The batches within the last one, which are a part of it only because its length is damaged."""
        with self.path.open("rb") as file, mmap.mmap(file.fileno(), end, access=mmap.ACCESS_READ) as content:
            while (found := _next_whole(self._head, file, content, begin)) is not None:
                whole, _ = found
                begin = whole.byte
                yield whole

    def _damaged_pieces(self, begin: int, end: int) -> Iterator[_Whole | _Hole]:
        """The data after ``end``, where no complete batch begins: searched batch by batch, which is slower.

        ``begin``: of the batch before. Where it is the length of that batch that is damaged, the next one begins
        before ``end``.
        """
        size = self.path.stat().st_size
        if size == 0:
            return
        head = self._head
        with self.path.open("rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as content:
            while end < size and content[end:] != _END_MARK:
                found = _batch_at(head, file, end)
                if found is None:
                    found = _next_whole(head, file, content, begin)
                    yield _Hole(end, _why_not_whole(file, end, is_last=found is None))
                if found is None:
                    return
                whole, end = found
                begin = whole.byte
                yield whole
            self.has_end = end < size
        yield from self._hidden_pieces(begin, end)


def _next_batch(stream: pa.RecordBatchStreamReader, at: int) -> _Whole | None:
    """The next batch, or None if the stream ends, is cut off or is damaged."""
    try:
        batch, metadata = stream.read_next_batch_with_custom_metadata()
        batch.validate(full=True)
        if metadata is None or metadata.get(CHECKSUM_KEY) != checksum(batch, metadata):
            return None
    except (StopIteration, pa.ArrowException, OSError):
        return None
    row, circuit, copy = (metadata.get(key) for key in (ROW_KEY, CIRCUIT_KEY, COPY_KEY))
    has_bad_copy = copy is not None and copied_text(copy) is None
    return _Whole(at, batch, None if row is None else int(row), None if circuit is None else int(circuit), has_bad_copy)


def _message_at(file: BinaryIO, at: int) -> bytes | None:
    """The Arrow message that begins at this byte, if it is complete."""
    file.seek(at)
    try:
        pa.ipc.read_message(pa.PythonFile(file, mode="r"))
    except (pa.ArrowException, OSError, EOFError, MemoryError):  # a damaged length may exceed the memory
        return None
    end = file.tell()
    file.seek(at)
    return file.read(end - at)


def _batch_at(head: bytes, file: BinaryIO, at: int) -> tuple[_Whole, int] | None:
    """The complete batch that begins at this byte, and its end."""
    message = _message_at(file, at)
    if message is None:
        return None
    try:
        whole = _next_batch(pa.ipc.open_stream(head + message, options=_OPTIONS), at)
    except (pa.ArrowException, OSError):
        return None
    return None if whole is None else (whole, at + len(message))


def _next_whole(head: bytes, file: BinaryIO, content: mmap.mmap, at: int) -> tuple[_Whole, int] | None:
    """The first complete batch after this byte, and its end."""
    while (at := content.find(CONTINUATION, at + 1)) >= 0:
        if at % _ALIGNMENT == 0 and (found := _batch_at(head, file, at)) is not None:
            return found
    return None


def _why_not_whole(file: BinaryIO, at: int, *, is_last: bool) -> str:
    if _message_at(file, at) is not None:
        return "a batch is damaged (its checksum does not match)"
    return "the file ends within a batch" if is_last else "the data there is not a batch"


def ends_whole(path: Path) -> bool:
    """Whether a log ends with an end mark: a quick check without checksums."""
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - len(_END_MARK), 0))
        return file.read() == _END_MARK


def last_batch(path: Path) -> pa.RecordBatch | None:
    """The last complete batch of a file of a log, searched from its end; None if there is none."""
    head, size = find_header(path).head(), path.stat().st_size
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as content:
        at = size
        while (at := content.rfind(CONTINUATION, 0, at)) > 0:
            if at % _ALIGNMENT == 0 and (found := _batch_at(head, file, at)) is not None:
                return found[0].arrow
    return None


def _refuse_gaps(parts: Sequence[Path], first: int) -> None:
    """Raises `RecordError` if a part is missing between others."""
    for index, part in enumerate(parts[1:], 1):
        expected = part_path(parts[0], first, first + index)
        if part != expected:
            raise RecordError(
                expected,
                f"is missing, but a later part of the run exists: {part.name}."
                " hilserver log repair saves the existing parts.",
            )
