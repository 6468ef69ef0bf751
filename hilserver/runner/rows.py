"""Files of rows: what the runner records, and what it replays. Declared in ``compiler/runner/runner.h``."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from hilserver.compiler.sources import fingerprint
from hilserver.numerics.arrays import Floats
from hilserver.record.format import Event, LogHeader, RecordError, decode, encode
from hilserver.record.row_events import RowEvents, with_row_events
from hilserver.record.run import command_event, run_header
from hilserver.record.writer import LogWriter
from hilserver.runner.pack import write_rig
from hilserver.simulation.replay import ComputedRows, Replayed, replay_log
from hilserver.tick.program import work_needed
from hilserver.tick.row import MESSAGE_CELLS, command_in, header

MAGIC = b"HILROWS1"
HEAD = np.dtype([("magic", "S8"), ("fingerprint", "S16"), ("width", "<i8"), ("n_text", "<i8"), ("checksum", "<i8")])
RECORD = np.dtype([("kind", "<u4"), ("checksum", "<u4"), ("n", "<i8")])
CELL = 8
ROWS = "log.rows"
"""Name of the file with the rows of a log, in its folder."""
AT_ONCE = 1000


class RowsKind(IntEnum):
    """The kinds of records: a row; a command, which the next row takes; a circuit; a row to start from."""

    ROW = 1
    COMMAND = 2
    CIRCUIT = 3
    START = 4


@dataclass(frozen=True)
class RowsRecord:
    """A record of a file: its kind and its cells."""

    kind: RowsKind
    cells: Floats


class RowsFile:
    """A file of rows that is read: ``about`` is the header of a log of this rig.

    ``damage`` says, once all records were read, what is missing at the end; empty if nothing is. Raises RecordError if
    it is no such file.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.damage = path, ""
        with self._opened() as file:
            start = file.read(HEAD.itemsize)
            if len(start) < HEAD.itemsize or not start.startswith(MAGIC):
                raise RecordError(path, "is not a file of rows of the runner.")
            head = np.frombuffer(start, HEAD)[0]
            self.width = int(head["width"])
            text = file.read(CELL * max(int(head["n_text"]), 0))
            self._start = file.tell()
        if zlib.crc32(text) != head["checksum"]:
            raise RecordError(path, "is damaged: its header can't be read.")
        try:
            self.about = LogHeader.model_validate(decode(text.rstrip(b"\0")))
        except ValueError as error:
            raise RecordError(path, f"was written by another version of hilserver: {error}") from error
        if not len(self.about.columns) <= self.width:
            raise RecordError(path, f"is damaged: rows of {self.width} values for {len(self.about.columns)} columns.")

    def _opened(self) -> BinaryIO:
        try:
            return self.path.open("rb")
        except OSError as error:
            raise RecordError(self.path, f"can't be read: {error.strerror}.") from error

    def records(self) -> Iterator[RowsRecord]:
        """All records up to the end, or to the first one that is damaged."""
        size = self.path.stat().st_size
        with self._opened() as file:
            file.seek(self._start)
            while (at := file.tell()) < size:
                head = np.frombuffer(file.read(RECORD.itemsize).ljust(RECORD.itemsize, b"\0"), RECORD)[0]
                length = CELL * int(head["n"])
                content = file.read(length) if 0 <= length <= size - at else b""
                is_whole = len(content) == length and zlib.crc32(content, int(head["kind"])) == head["checksum"]
                if not is_whole or not self._is_possible(int(head["kind"]), int(head["n"])):
                    self.damage = f"ends, or is damaged, within the record at byte {at}"
                    return
                yield RowsRecord(RowsKind(int(head["kind"])), np.frombuffer(content))

    def _is_possible(self, kind: int, n: int) -> bool:
        """Whether a record of this kind has this number of cells."""
        lengths: dict[int, int] = {
            RowsKind.ROW: self.width,
            RowsKind.START: self.width,
            RowsKind.COMMAND: MESSAGE_CELLS,
        }
        return kind == RowsKind.CIRCUIT or lengths.get(kind) == n

    def rows(self) -> Floats:
        """All rows, float64[rows, width]."""
        found = [record.cells for record in self.records() if record.kind in (RowsKind.ROW, RowsKind.START)]
        return np.array(found).reshape(-1, self.width)


class RowsWriter:
    """Writes a file of rows."""

    def __init__(self, stream: BinaryIO, about: LogHeader, width: int) -> None:
        content = encode(about.model_dump()).encode() + b"\0"
        content = content.ljust(-(-len(content) // CELL) * CELL, b"\0")
        head = np.array([(MAGIC, fingerprint().encode(), width, len(content) // CELL, zlib.crc32(content))], dtype=HEAD)
        self._stream = stream
        stream.write(head.tobytes() + content)

    def add(self, kind: RowsKind, cells: Floats) -> None:
        """Append a record."""
        content = np.ascontiguousarray(cells).tobytes()
        head = np.array([(kind, zlib.crc32(content, kind), len(content) // CELL)], dtype=RECORD)
        self._stream.write(head.tobytes() + content)


# --- a log for the runner ---------------------------------------------------------------------------------------------


def write_log(log: Path, folder: Path, *, trust: bool = False) -> Replayed:
    """Write a log, as it is replayed here, with its rig into a new folder, for a replay by the runner.

    The result is that of the replay here. Raises the errors of `replay_log` and of `write_rig`.
    """
    with ExitStack() as stack:
        writers: list[RowsWriter] = []

        def take(computed: ComputedRows) -> None:
            if not writers:
                write_rig(computed.rig, folder, with_devices=False)
                about = run_header(computed.rig, fingerprint(), "replay")
                stream = stack.enter_context((folder / ROWS).open("wb"))
                writers.append(RowsWriter(stream, about, computed.rig.layout.width))
            _add(writers[0], computed)

        return replay_log(log, watch=take, trust=trust)


def _add(writer: RowsWriter, computed: ComputedRows) -> None:
    """Records with which the runner computes these rows again."""
    rig, packed = computed.rig, computed.packed
    if computed.begins:
        lengths = np.array([len(packed.index), len(packed.value), work_needed(packed.index, rig.plan)], dtype=np.int64)
        arrays = (lengths.view(np.float64), packed.index.view(np.float64), packed.value)
        writer.add(RowsKind.CIRCUIT, np.concatenate(arrays))
        writer.add(RowsKind.START, computed.before)
    if command_in(computed.command).kind:
        writer.add(RowsKind.COMMAND, computed.command)
    for row in computed.rows:
        writer.add(RowsKind.ROW, np.concatenate([row, np.zeros(rig.layout.width - len(row))]))


# --- a log of the runner ----------------------------------------------------------------------------------------------


def log_of(path: Path, out: Path) -> RowsFile:
    """Write what the runner has recorded as a log; returns the source, which says what is missing of it.

    Raises RecordError.
    """
    source = RowsFile(path)
    writer: LogWriter | None = None
    rows, events, last = list[Floats](), dict[int, list[Event]](), -1
    reactions = RowEvents(source.about.columns)

    def flush() -> None:
        nonlocal writer
        if rows:
            writer = writer or LogWriter(out, _started(source.about, rows[0]))
            block = np.array(rows)
            writer.append(block, with_row_events(events, reactions.find(block, events)))
            rows.clear()
            events.clear()

    for record in source.records():
        if record.kind is RowsKind.CIRCUIT:
            raise RecordError(path, "is a log that was packed for a replay. Its own file is the log.")
        if record.kind is RowsKind.COMMAND:
            events.setdefault(len(rows), []).append(command_event(record.cells))
            continue
        if record.kind is RowsKind.START:
            head = header(record.cells)
            events.setdefault(len(rows), []).append({"kind": "lost", "rows": int(head.tick - head.missed) - 1 - last})
        rows.append(record.cells)
        last = int(header(record.cells).tick)
        if len(rows) >= AT_ONCE:
            flush()
    flush()
    if writer is None:
        raise RecordError(path, "has no rows.")
    writer.close()
    source.about = writer.header
    return source


def _started(about: LogHeader, row: Floats) -> LogHeader:
    """The header of a run that began with this row."""
    head = header(row)
    update: Mapping[str, Any] = {}
    if head.utc > 0.0:
        began = datetime.fromtimestamp(float(head.utc) - float(head.time), UTC)
        update = {"started": began.isoformat(timespec="milliseconds")}
    return about.model_copy(update=update)
