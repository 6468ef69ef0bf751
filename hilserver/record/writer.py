"""Writes the log of a run as record batches, to files that survive ``kill -9`` and a full disk."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hilserver.record.format import (
    BLOCK_ROWS,
    CIRCUIT_COLUMN,
    EVENTS,
    Event,
    LogHeader,
    RecordError,
    batch_metadata,
    encode,
    is_circuit,
    later_parts,
    part_path,
    schema_of,
)
from hilserver.record.header import COPY_KEY, header_copy
from hilserver.record.selection import ChosenColumns

_BUFFER_BYTES = 1 << 22
"""Larger than a batch, so that each batch is handed to the operating system in one write."""


class LogWriter:
    """Appends rows to a new log, ``batch_rows`` at a time (`BLOCK_ROWS` if None), compressed as the header says.

    A batch is handed to the operating system when it is full, when the circuit changes, and by `flush`; after that,
    killing the process does not lose it. The file is synchronised to disk at most every ``fsync_every_s`` seconds; a
    power failure may lose the data since then. A file with more than ``max_bytes``, or ``max_rows`` rows, is ended, and
    the run is continued in ``<name>.001.arrow`` and so on, each with the header of the run, the circuit of its first
    row and the name of the file before. ``file`` is the one that is being written, ``rows`` counts the rows of the run
    that were handed to the operating system. The file is locked (flock) as long as it is being written. If ``signals``
    of the header leaves out columns, whole rows are given to `append`; ``given`` is the header of these.

    Raises `RecordError` if the file can't be written (disk full); everything written before remains readable.
    """

    def __init__(
        self,
        path: str | Path,
        header: LogHeader,
        batch_rows: int | None = None,
        fsync_every_s: float = 1.0,
        max_bytes: int | None = None,
        max_rows: int | None = None,
    ) -> None:
        self.path = self.file = Path(path)
        self.given = header
        self._selection = ChosenColumns(header) if header.signals and not header.row else None
        header = self._selection.header if self._selection else header
        self.header = header
        self.rows = header.first_row
        self._first_part = header.part
        self._batch_rows = batch_rows or BLOCK_ROWS[header.compression]
        self._fsync_every_s = fsync_every_s
        self._max_bytes = max_bytes
        self._max_rows = max_rows
        self._closed = False
        self._refuse_old_parts()
        self._part: _Part | None = _Part(self.path, header)
        self._folder = self.path.parent.stat()
        self._circuit = header.first_circuit
        self._pending = 0
        self._events: dict[int, list[str]] = {}
        self._start_circuit(header)

    @property
    def size(self) -> int:
        """Size of the current file in bytes, up to the last complete batch."""
        return self._part.size if self._part is not None else 0

    def append(self, rows: NDArray[np.float64], events: Mapping[int, Sequence[Event]] | None = None) -> None:
        """Append ``rows``, float64[n, width]: fixed part, then the circuit's values; further columns are not logged.

        ``events``: by row of ``rows`` (0 … n-1). From a `circuit_event` on, the rows belong to another circuit: their
        circuit part has as many values as the event has names.
        """
        if self._closed:
            raise RecordError(self.path, "can't be appended to: it is closed.")
        if self._selection is not None:
            rows, events = self._selection.take(rows, events or {})
        start = 0
        for row, happened in sorted((events or {}).items()):
            if not 0 <= row < len(rows):
                raise RecordError(self.path, f"was given an event for row {row} of {len(rows)} rows.")
            self._append_rows(rows[start:row])
            start = row
            for event in filter(is_circuit, happened):
                self.flush()
                circuit = {"circuit_names": tuple(event["names"]), "packed": event["packed"]}
                self._circuit += 1
                self._start_circuit(self.header.model_copy(update=circuit))
            self._events.setdefault(self._pending, []).extend(map(encode, happened))
        self._append_rows(rows[start:])

    def flush(self) -> None:
        """Hand the pending rows of an incomplete batch to the operating system."""
        if self._pending == 0:
            return
        batch = _record_batch(self._schema, self._rows[: self._pending], self._events)
        self._pending, self._events = 0, {}
        try:
            if self._part is None:
                self.require_in_place()
                self._next_part()
            assert self._part is not None
            self._part.write(batch, batch_metadata(batch, self.rows, self._circuit), self._fsync_every_s)
        except RecordError:
            self._closed = True
            raise
        self.rows += len(batch)
        if self._is_full(self._part):
            self.require_in_place()
            self._end_part()

    def require_in_place(self) -> None:
        """Raises `RecordError` if the file is no longer where it was created, and nobody would find its rows.

        Between two files, only the folder can be looked at: an ended file may have been removed to make room.
        """
        if not (self._has_same_folder() if self._part is None else self._part.is_in_place()):
            raise RecordError(
                self.file,
                "is gone: it was deleted, moved or replaced while being written, or its disk was unmounted.",
            )

    def _has_same_folder(self) -> bool:
        try:
            return os.path.samestat(self.path.parent.stat(), self._folder)
        except OSError:
            return False

    def close(self) -> None:
        """Write pending rows and the end mark. May be called repeatedly, and after an error."""
        if self._closed:
            return
        self.flush()
        self._closed = True
        self._end_part()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _append_rows(self, rows: NDArray[np.float64]) -> None:
        width = self._rows.shape[1]
        if rows.shape[1] < width:
            raise RecordError(
                self.path, f"was given rows of {rows.shape[1]} values; columns and circuit of this log have {width}."
            )
        done = 0
        while done < len(rows):
            taken = min(len(rows) - done, self._batch_rows - self._pending)
            self._rows[self._pending : self._pending + taken] = rows[done : done + taken, :width]
            self._pending += taken
            done += taken
            if self._pending == self._batch_rows:
                self.flush()

    def _start_circuit(self, header: LogHeader) -> None:
        self.header = header
        self._schema = schema_of(header)
        self._rows = np.empty((self._batch_rows, len(header.columns) + len(header.circuit_names)))

    def _is_full(self, part: _Part) -> bool:
        rows = self.rows - self.header.first_row
        return (self._max_bytes is not None and part.size >= self._max_bytes) or (
            self._max_rows is not None and rows >= self._max_rows
        )

    def _next_part(self) -> None:
        place = {"previous": self.file.name, "first_row": self.rows, "first_circuit": self._circuit}
        self.header = self.header.model_copy(update={"part": self.header.part + 1, **place})
        self.file = part_path(self.path, self._first_part, self.header.part)
        self._part = _Part(self.file, self.header)

    def _end_part(self) -> None:
        if self._part is None:
            return
        part, self._part = self._part, None
        try:
            part.end()
        except RecordError:
            self._closed = True
            raise

    def _refuse_old_parts(self) -> None:
        """Refuse a file of another run that would be read as a part of this one."""
        for part in later_parts(self.path, self.header.part):
            raise RecordError(part, f"exists already and would be read as a part of {self.path.name}: move it away.")


class _Part:
    """One file of a log; ``size`` is its length up to the last complete batch.

    The first batch has a copy of the header in its metadata, from which a reader takes it if a byte of it is damaged.
    """

    def __init__(self, path: Path, header: LogHeader) -> None:
        options = _options(path, header.compression)
        self.size = 0
        self._first = {COPY_KEY: header_copy(header)}
        self._path = path
        self._file = _File(path)
        self._synced = time.monotonic()
        self._buffer = pa.BufferedOutputStream(pa.PythonFile(self._file, mode="w"), _BUFFER_BYTES)
        self._stream = pa.ipc.new_stream(self._buffer, schema_of(header), options=options)  # with the first batch

    def write(self, batch: pa.RecordBatch, metadata: Mapping[bytes, bytes], fsync_every_s: float) -> None:
        with self._record_errors():
            self._stream.write_batch(batch, custom_metadata={**metadata, **self._first})
            self._first = {}
            self._flush()
            if time.monotonic() - self._synced >= fsync_every_s:
                self._file.sync()
                self._synced = time.monotonic()

    def is_in_place(self) -> bool:
        return self._file.is_at(self._path)

    def end(self) -> None:
        with self._record_errors():
            self._stream.close()
            self._flush()
            self._file.sync()
        self._file.close()

    def _flush(self) -> None:
        self._buffer.flush()
        self.size = self._file.size

    @contextmanager
    def _record_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._file.abandon(self.size)
            reason = f"can't be written: {error.strerror or error}. The recording ends here and is readable up to here."
            raise RecordError(self._path, reason) from error


def _options(path: Path, compression: str) -> pa.ipc.IpcWriteOptions:
    """How batches are written. Raises `RecordError` if Arrow lacks the compression."""
    codec = None if compression == "none" else compression
    if codec is not None and not pa.Codec.is_available(codec):
        raise RecordError(path, f"can't be written: the installed pyarrow has no {codec} (recording.compression).")
    return pa.ipc.IpcWriteOptions(compression=codec, use_threads=False)  # a thread pool is slower here


class _File:
    """A new file whose ``write`` writes everything or raises; the part of Python's file interface that Arrow uses."""

    def __init__(self, path: Path) -> None:
        try:
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError as error:
            raise RecordError(path, "exists already: a log is never overwritten.") from error
        except OSError as error:
            raise RecordError(path, f"can't be created: {error.strerror}.") from error
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _sync_folder(path.parent)
        self.size = 0
        self.closed = False

    def write(self, data: memoryview) -> None:
        if self.closed:
            return  # Arrow's buffer empties itself when it is collected, also after an error
        rest = memoryview(data)
        while rest:
            written = os.write(self._descriptor, rest)
            self.size += written
            rest = rest[written:]

    def flush(self) -> None:
        """Nothing is buffered here."""

    def is_at(self, path: Path) -> bool:
        """Whether this file, on this disk, is the one with that path."""
        try:
            return os.path.samestat(path.stat(), os.fstat(self._descriptor))
        except OSError:
            return False

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def abandon(self, size: int) -> None:
        """Truncate the file to ``size``, if that is still possible, and close it."""
        if not self.closed:
            with suppress(OSError):
                os.ftruncate(self._descriptor, size)
            self.close()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            os.close(self._descriptor)


def is_being_written(path: Path) -> bool:
    """Whether a process is writing this log. Raises OSError if the file can't be opened."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # unknown on a file system without locks
        return False
    finally:
        os.close(descriptor)
    return False


def _sync_folder(folder: Path) -> None:
    """Synchronise the folder to disk; otherwise a new file could be missing after a power failure."""
    with suppress(OSError):  # not every file system can do so
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _record_batch(schema: pa.Schema, rows: NDArray[np.float64], events: Mapping[int, list[str]]) -> pa.RecordBatch:
    """The rows as an Arrow batch: one copy into columns, no Python object per row."""
    count, fixed = len(rows), len(schema) - 2
    columns = pa.py_buffer(rows[:, :fixed].T.copy(order="C"))
    values = pa.py_buffer(rows[:, fixed:].copy(order="C"))
    size, width = count * 8, rows.shape[1] - fixed
    arrays = [
        pa.Array.from_buffers(schema.field(i).type, count, [None, columns.slice(i * size, size)], null_count=0)
        for i in range(fixed)
    ]
    offsets = pa.py_buffer(np.arange(count + 1, dtype=np.int32) * np.int32(width))
    items = pa.Array.from_buffers(pa.float64(), count * width, [None, values], null_count=0)
    circuit, texts = schema.field(CIRCUIT_COLUMN).type, schema.field(EVENTS).type
    arrays.append(pa.Array.from_buffers(circuit, count, [None, offsets], null_count=0, children=[items]))
    arrays.append(_lists(events, count, texts) if events else pa.nulls(count, texts))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _lists(texts: Mapping[int, Sequence[str]], count: int, kind: pa.DataType) -> pa.Array:
    """An Arrow list<string> of this length, null but for these rows; ``pa.array`` would load pandas (see `numbers`)."""
    encoded = [text.encode() for row in sorted(texts) for text in texts[row]]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    strings = pa.Array.from_buffers(
        pa.string(), len(encoded), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))], null_count=0
    )
    lengths = np.array([0, *(len(texts.get(row, ())) for row in range(count))])
    valid = np.packbits(lengths[1:] > 0, bitorder="little")
    offsets = np.cumsum(lengths, dtype=np.int32)
    return pa.Array.from_buffers(kind, count, [pa.py_buffer(valid), pa.py_buffer(offsets)], children=[strings])
