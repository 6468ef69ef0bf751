"""Damaged logs: check for missing rows, and recovery of all complete batches into a new log."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hilserver.record.format import (
    SNAPSHOT,
    Event,
    RecordError,
    circuit_event,
    encode,
    is_circuit,
    later_parts,
    run_stem,
)
from hilserver.record.reader import Batch, CircuitVersion, Damage, LogReader
from hilserver.record.writer import LogWriter, is_being_written

REPAIRED = "repaired"
"""Key in the ``extra`` of a repaired log's header: its source file and the missing rows."""


@dataclass(frozen=True)
class Checked:
    """The contents of a log: files, number of complete rows, damages. ``torn`` as in `LogReader`."""

    files: tuple[Path, ...]
    rows: int
    damages: tuple[Damage, ...]
    torn: bool
    being_written: bool

    @property
    def ok(self) -> bool:
        """Whether nothing is missing: the log has its end mark or is still being written."""
        return not self.torn or (self.being_written and not self.damages)


@dataclass(frozen=True)
class Repaired:
    """A repaired log: its files, its number of rows, and the parts that could not be recovered."""

    files: tuple[Path, ...]
    rows: int
    damages: tuple[Damage, ...]


def check_log(path: Path) -> Checked:
    """Read a log and the following files of the run and verify all checksums.

    Raises `RecordError` if the header can't be read.
    """
    reader = LogReader(path, gaps=True)
    written = any(map(is_being_written, reader.parts))
    rows = sum(map(len, reader.batches()))
    damages = reader.damages
    if written and damages and damages[-1].row == rows and damages[-1].lost is None:
        damages = damages[:-1]  # an incomplete batch at the end of a log that is being written
    return Checked(reader.parts, rows, damages, bool(reader.torn), written)


def repair_log(path: Path, out: Path | None = None) -> Repaired | None:
    """Write all complete rows of a damaged log and its following files to a new log; None if it is not damaged.

    The new log is ``<run>-repaired.arrow`` unless ``out`` is given. Missing rows are listed in its header and as events
    ``lost`` in the rows after each gap. It can be replayed like any other log. The damaged log is not changed.

    Raises `RecordError` if the log is being written or has no readable header, and if the new one can't be written.
    """
    checked = check_log(path)
    if checked.being_written:
        raise RecordError(path, "is still being written: a log can be repaired after its recording has ended.")
    if checked.ok:
        return None
    reader = LogReader(path, gaps=True)
    out = out or path.with_name(f"{run_stem(path, reader.header.part)}-repaired{path.suffix}")
    largest = _require_room(checked.files, out)
    missing = [{**vars(damage), "file": damage.file.name} for damage in checked.damages if damage.lost != 0]
    header = reader.header.model_copy(
        update={
            "extra": {**reader.header.extra, REPAIRED: {"from": path.name, "missing": missing}},
            **{"part": 0, "previous": "", "first_row": 0, "first_circuit": 0},
        }
    )
    writer = LogWriter(out, header, max_bytes=largest if len(checked.files) > 1 else None)
    try:
        with writer:
            for batch, events in _with_gaps(reader):
                writer.append(batch.rows(), events)
    except RecordError:
        for file in (out, *later_parts(out, 0)):
            file.unlink()
        raise
    return Repaired((out, *later_parts(out, 0)), writer.rows, reader.damages)


def _require_room(files: tuple[Path, ...], out: Path) -> int:
    """The size of the largest of these files. Raises `RecordError` if there is no space for a copy of all."""
    sizes = [file.stat().st_size for file in files]
    try:
        free = shutil.disk_usage(out.parent).free
    except OSError as error:
        raise RecordError(out, f"can't be created: {error.strerror}.") from error
    if free < sum(sizes):
        needed = f"{sum(sizes) / 1e6:.0f} MB are needed, {free / 1e6:.0f} MB are free"
        raise RecordError(out, f"does not fit on its disk: {needed}. Choose another folder with --output.")
    return max(sizes)


def _with_gaps(reader: LogReader) -> Iterator[tuple[Batch, dict[int, list[Event]]]]:
    """The batches with their events by row, and added events for lost rows and for a circuit that starts after them."""
    known, last = 0, CircuitVersion(0, reader.header.circuit_names, reader.header.packed)
    for batch in reader.batches():
        events: dict[int, list[Event]] = {}
        for damage in reader.damages[known:]:
            if damage.lost == 0:  # only a header is damaged
                continue
            event = {"kind": "lost", "reason": f"{damage.file.name}: {damage.reason}"}
            events.setdefault(0, []).append(event if damage.lost is None else {**event, "rows": damage.lost})
        known = len(reader.damages)
        begins = any(is_circuit(event) for row, event in batch.events if row == batch.start)
        if not begins and not _is_same(batch.circuit, last):
            events.setdefault(0, []).append(circuit_event(batch.circuit.names, batch.circuit.packed))
        last = batch.circuit
        for row, event in batch.events:
            events.setdefault(row - batch.start, []).append(event)
        for row, whole in batch.snapshots.items():
            events.setdefault(row - batch.start, []).append({"kind": SNAPSHOT, "row": whole})
        yield batch, events


def _is_same(one: CircuitVersion, other: CircuitVersion) -> bool:
    if one.packed is other.packed:
        return True
    return one.names == other.names and encode(dict(one.packed)) == encode(dict(other.packed))
