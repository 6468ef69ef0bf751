"""Shared memory between the processes: ring of rows, mailbox of commands, heartbeats, in one memory-mapped file.

No locks: any process may be killed at any instant and the others go on. Ring and mailbox follow one rule: slots are
used in turn, a counter says how many entries are complete, and the writer fills the slot first and stores the counter
last. So while the counter is n, only the slot of entry ``n - capacity`` may be changing. A reader copies, *then* looks
at the counter again: what it copied of entry s is whole if ``n - s < capacity``. No entry ever comes out torn, and a
writer killed in the middle of one leaves nothing behind but an unused slot.

The rule needs stores to become visible, and loads to be made, in program order. x86-64 guarantees that (Intel SDM
vol. 3, chapter "Memory Ordering"; also for the string operations of memcpy relative to stores before and after them).
ARM doesn't: other machines are refused. An aligned int64 is stored and loaded as a whole.

One writer per ring and per mailbox, one taker per mailbox, any number of observers.
"""

from __future__ import annotations

import fcntl
import math
import mmap
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from hilserver.errors import HilserverError

FloatArray = npt.NDArray[np.float64]
ByteArray = npt.NDArray[np.uint8]

RECORD_WIDTH = 8
"""float64 values in the record of a command."""
ALIVE = 1.0
"""Seconds without a tick after which a loop counts as dead."""

_LINE = 64  # bytes of a cache line: counters written by different processes don't share one
_MAGIC = int.from_bytes(b"hilserve", "little")
_VERSION = 1


class SharedMemoryError(HilserverError):
    """Shared memory that can't be created or attached; names the file and, if there is one, the process in the way."""


class MailboxFull(HilserverError):
    """The reader is more than a mailbox behind: it hangs or is dead."""


def segment_path(name: str, directory: Path = Path("/dev/shm")) -> Path:
    """Where the segment of the rig `name` lies."""
    return directory / f"hilserver-{name}"


class Segment:
    """A memory-mapped file that lives as long as its owner, the process that created it.

    `buffer` is the usable memory, `shape` up to four numbers that tell an attaching process how it is laid out.
    Ownership is a kernel lock on the file, which ends with the owner whichever way that ends. (A process that the owner
    forks without exec holds the lock too, as long as it lives.)
    """

    _HEADER = 64
    _MAGIC_AT, _VERSION_AT, _SIZE_AT, _OWNER_AT, _SHAPE_AT = range(5)

    def __init__(self, path: Path, memory: mmap.mmap, status: os.stat_result, *, owned: bool) -> None:
        whole = memoryview(memory)
        self.path = path
        self.buffer = whole[self._HEADER :]
        self._header = whole[: self._HEADER].cast("q")
        self._status = status
        self._owned = owned

    @classmethod
    def create(cls, path: str | Path, size: int, shape: tuple[int, ...] = ()) -> Self:
        """A zeroed segment of `size` usable bytes, mode 0600; replaces the one of an owner that died.

        Raises SharedMemoryError if its owner lives, if the file is something else, or if there is no room.
        """
        _require_x86_64()
        path, total = Path(path), cls._HEADER + size
        handle = _claim(path)
        try:
            os.posix_fallocate(handle, 0, total)  # a full /dev/shm is an error here, else a crash at the first write
            segment = cls(path, _mapped(handle, total), os.fstat(handle), owned=True)
        except OSError as error:
            path.unlink()
            raise SharedMemoryError(f"{path}: {total / 1e6:.1f} MB of shared memory: {error.strerror}.") from error
        finally:
            os.close(handle)  # the mapping keeps the file, and the lock, open
        header = segment._header
        for at, number in enumerate(shape, cls._SHAPE_AT):
            header[at] = number
        header[cls._OWNER_AT] = os.getpid()
        header[cls._SIZE_AT] = total
        header[cls._VERSION_AT] = _VERSION
        header[cls._MAGIC_AT] = _MAGIC  # last: the segment is ready
        return segment

    @classmethod
    def attach(cls, path: str | Path) -> Self:
        """Map an existing segment, also that of an owner that died.

        Raises SharedMemoryError if there is none, or it is not one, or of another version.
        """
        _require_x86_64()
        path = Path(path)
        handle = _open(path)
        try:
            status = os.fstat(handle)
            if status.st_size < cls._HEADER:
                raise SharedMemoryError(f"{path}: not (yet) a shared memory of hilserver: {status.st_size} bytes.")
            segment = cls(path, _mapped(handle, status.st_size), status, owned=False)
        finally:
            os.close(handle)
        header = segment._header
        if header[cls._MAGIC_AT] != _MAGIC:
            raise SharedMemoryError(f"{path}: not (yet) a shared memory of hilserver.")
        if header[cls._VERSION_AT] != _VERSION:
            raise SharedMemoryError(
                f"{path}: layout version {header[cls._VERSION_AT]}, this hilserver has {_VERSION}."
                " Restart all its processes."
            )
        if header[cls._SIZE_AT] != status.st_size:
            raise SharedMemoryError(f"{path}: {status.st_size} bytes, its header says {header[cls._SIZE_AT]}.")
        return segment

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The numbers given at creation, filled up with zeros."""
        a, b, c, d = self._header[self._SHAPE_AT :]
        return a, b, c, d

    @property
    def owner_pid(self) -> int:
        """The process that created the segment."""
        return self._header[self._OWNER_AT]

    def close(self) -> None:
        """Remove the file, if this process created it.

        Views stay valid: the memory goes with the last of them, in whichever process.
        """
        if self._owned and _is_file(self.path, self._status):
            self.path.unlink()
        self._owned = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Ring:
    """The last rows of a run: `capacity` rows of `width` float64, numbered 0, 1, ... in order of publishing."""

    def __init__(self, buffer: memoryview, width: int, capacity: int) -> None:
        """Lay the ring over a `buffer` of `Ring.nbytes(width, capacity)` bytes of a segment."""
        self.width = width
        self.capacity = capacity
        self._published = buffer[:_LINE].cast("q")
        self._rows = np.frombuffer(buffer, np.float64, width * capacity, _LINE).reshape(capacity, width)

    @staticmethod
    def nbytes(width: int, capacity: int) -> int:
        """Memory that a ring needs. Raises ValueError for less than 1 value or 2 rows."""
        if width < 1 or capacity < 2:
            raise ValueError(f"a ring of {capacity} rows of {width} values: needs at least 2 rows of 1 value")
        return _LINE + _lines(8 * width * capacity)

    @property
    def published(self) -> int:
        """Rows published so far: the cursor of a reader that starts now."""
        return self._published[0]

    def publish(self, row: FloatArray) -> int:
        """Copy a row in (the one writer only); returns its sequence number."""
        sequence = self._published[0]
        self._rows[sequence % self.capacity] = row
        self._published[0] = sequence + 1
        return sequence

    def latest(self, out: FloatArray) -> int:
        """Copy the newest row to `out` (float64[width]); returns its sequence number, or -1 if there is none yet."""
        while (sequence := self._published[0] - 1) >= 0:
            out[:] = self._rows[sequence % self.capacity]
            if self._published[0] - sequence < self.capacity:
                return sequence
        return -1

    def read(self, cursor: int, out: FloatArray) -> tuple[int, int, int]:
        """Copy the rows from number `cursor` on, as many as there are, to the first rows of `out` (float64[n, width]).

        Returns (rows copied, next cursor, rows lost): from `cursor` on, first the rows that were overwritten before
        they could be read, then the copied ones, so ``next cursor == cursor + lost + copied``. Raises ValueError for a
        cursor beyond the rows published.
        """
        published = self._published[0]
        if not 0 <= cursor <= published:
            raise ValueError(f"cursor {cursor} of a ring with {published} rows published")
        first = max(cursor, self._oldest(published))
        count = min(published - first, len(out))
        slot = first % self.capacity
        before_wrap = min(count, self.capacity - slot)
        out[:before_wrap] = self._rows[slot : slot + before_wrap]
        out[before_wrap:count] = self._rows[: count - before_wrap]
        torn = min(max(self._oldest(self._published[0]) - first, 0), count)
        if torn:  # the writer came round while we copied
            out[: count - torn] = out[torn:count]
        return count - torn, first + count, first + torn - cursor

    def _oldest(self, published: int) -> int:
        return max(published - self.capacity + 1, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """A command: `record` is float64[8], `payload` raw bytes, aligned so that ``payload.view(np.float64)`` is too."""

    sequence: int
    record: FloatArray
    payload: ByteArray


class Mailbox:
    """Commands in order, numbered 0, 1, ...: one process posts, one takes, others may peek."""

    _POSTED, _TAKEN = 0, _LINE // 8

    def __init__(self, buffer: memoryview, slots: int, payload_bytes: int) -> None:
        """Lay the mailbox over a `buffer` of `Mailbox.nbytes(slots, payload_bytes)` bytes of a segment."""
        self.slots = slots
        self.payload_bytes = payload_bytes
        slot_bytes = self._slot_bytes(payload_bytes)
        self._counters = buffer[: 2 * _LINE].cast("q")
        self._slots = np.frombuffer(buffer, np.uint8, slots * slot_bytes, 2 * _LINE).reshape(slots, slot_bytes)
        self._records = self._slots[:, : 8 * RECORD_WIDTH].view(np.float64)
        self._lengths = self._slots[:, _LINE : _LINE + 8].view(np.int64)[:, 0]
        self._payloads = self._slots[:, 2 * _LINE :]
        self._next = self._counters[self._TAKEN]
        self._released = self._next

    @staticmethod
    def nbytes(slots: int, payload_bytes: int) -> int:
        """Memory that a mailbox needs. Raises ValueError for less than 2 slots."""
        if slots < 2 or payload_bytes < 0:
            raise ValueError(f"a mailbox of {slots} slots of {payload_bytes} bytes: needs at least 2 slots of 0 bytes")
        return 2 * _LINE + slots * Mailbox._slot_bytes(payload_bytes)

    @staticmethod
    def _slot_bytes(payload_bytes: int) -> int:
        return 2 * _LINE + _lines(payload_bytes)  # record, length, payload

    @property
    def posted(self) -> int:
        """Commands posted so far: the number of the next one."""
        return self._counters[self._POSTED]

    def post(self, record: npt.ArrayLike, payload: bytes | memoryview | npt.NDArray[Any] = b"") -> int:
        """Put a command in (the one writer only); returns its sequence number.

        Raises MailboxFull if the taker is `slots` commands behind, ValueError for a payload that doesn't fit or a
        record that isn't float64[8].
        """
        values = np.asarray(record, np.float64)
        content = np.frombuffer(payload, np.uint8)
        if values.shape != (RECORD_WIDTH,):
            raise ValueError(f"record of shape {values.shape}: must be ({RECORD_WIDTH},)")
        if len(content) > self.payload_bytes:
            raise ValueError(f"payload of {len(content)} bytes: the mailbox has room for {self.payload_bytes}")
        sequence = self._counters[self._POSTED]
        if sequence - self._counters[self._TAKEN] >= self.slots:
            raise MailboxFull(f"The real-time process has not taken the last {self.slots} commands. Is it running?")
        slot = sequence % self.slots
        self._records[slot] = values
        self._lengths[slot] = len(content)
        self._payloads[slot, : len(content)] = content
        self._counters[self._POSTED] = sequence + 1
        return sequence

    def take(self) -> Message | None:
        """The next command (the one taker only), or None. Record and payload are views, valid until the next `take`.

        A taker that attaches after the death of another goes on behind the last command that one was done with.
        """
        sequence = self._next
        if sequence != self._released:  # the caller is done with the last one only now
            self._counters[self._TAKEN] = self._released = sequence
        if self._counters[self._POSTED] == sequence:
            return None
        self._next = sequence + 1
        return self._message(sequence)

    def peek(self, sequence: int) -> Message | None:
        """A copy of command number `sequence`; None if not posted yet (`sequence` >= `posted`) or overwritten."""
        if not 0 <= sequence < self._counters[self._POSTED]:
            return None
        view = self._message(sequence)
        message = Message(sequence, view.record.copy(), view.payload.copy())
        return message if self._counters[self._POSTED] - sequence < self.slots else None

    def _message(self, sequence: int) -> Message:
        slot = sequence % self.slots
        return Message(sequence, self._records[slot], self._payloads[slot, : self._lengths[slot]])


class Heartbeat:
    """A sign of life: time of the last `beat` (CLOCK_MONOTONIC, the same in all processes) and number of beats."""

    def __init__(self, buffer: memoryview) -> None:
        """Lay the heartbeat over a `buffer` of `Heartbeat.nbytes()` bytes of a segment."""
        self._numbers = buffer[:_LINE].cast("q")

    @staticmethod
    def nbytes() -> int:
        """Memory that a heartbeat needs."""
        return _LINE

    def beat(self) -> None:
        """Say: I live."""
        self._numbers[1] += 1
        self._numbers[0] = time.monotonic_ns()

    @property
    def beats(self) -> int:
        """Number of beats so far."""
        return self._numbers[1]

    def age(self) -> float:
        """Time since the last beat in s; infinite before the first."""
        last = self._numbers[0]
        return (time.monotonic_ns() - last) / 1e9 if last else math.inf


class LoopInfo:
    """What the processes around the loop must know of each other."""

    def __init__(self, buffer: memoryview) -> None:
        """Lay it over a `buffer` of `LoopInfo.nbytes()` bytes of a segment."""
        self._numbers = buffer[:_LINE].cast("q")

    @staticmethod
    def nbytes() -> int:
        """Memory that it needs."""
        return _LINE

    @property
    def loop_pid(self) -> int:
        """The real-time process, 0 while there is none; it sets this itself."""
        return self._numbers[0]

    @loop_pid.setter
    def loop_pid(self, pid: int) -> None:
        self._numbers[0] = pid

    @property
    def layout(self) -> int:
        """A number that tells rows of one layout from those of another; the supervisor notes it."""
        return self._numbers[2]

    @layout.setter
    def layout(self, fingerprint: int) -> None:
        self._numbers[2] = fingerprint

    @property
    def stop_requested(self) -> bool:
        """Whether the real-time process is asked to bring the rig to its safe state and end."""
        return self._numbers[1] != 0

    @stop_requested.setter
    def stop_requested(self, requested: bool) -> None:
        self._numbers[1] = requested


class LoopMemory:
    """All that supervisor, real-time process and recorder share, in one segment.

    `ring`: rows from the loop; `mailbox`: commands to it; `supervisor_heartbeat`, `loop_heartbeat`; `info`.
    """

    def __init__(self, segment: Segment) -> None:
        """Lay the parts over a segment; `create` and `attach` make one."""
        row_width, ring_rows, mailbox_slots, payload_bytes = segment.shape
        sizes = self._sizes(row_width, ring_rows, mailbox_slots, payload_bytes)
        if sum(sizes) != len(segment.buffer):
            raise SharedMemoryError(f"{segment.path}: {len(segment.buffer)} bytes, its layout needs {sum(sizes)}.")
        parts, start = [], 0
        for size in sizes:
            parts.append(segment.buffer[start : start + size])
            start += size
        self.segment = segment
        self.info = LoopInfo(parts[0])
        self.supervisor_heartbeat = Heartbeat(parts[1])
        self.loop_heartbeat = Heartbeat(parts[2])
        self.ring = Ring(parts[3], row_width, ring_rows)
        self.mailbox = Mailbox(parts[4], mailbox_slots, payload_bytes)

    @classmethod
    def create(
        cls, path: str | Path, *, row_width: int, ring_rows: int, mailbox_slots: int = 64, payload_bytes: int = 65536
    ) -> Self:
        """Create the segment (see `Segment.create`); this process owns it."""
        shape = (row_width, ring_rows, mailbox_slots, payload_bytes)
        return cls(Segment.create(path, cls.nbytes(*shape), shape))

    @classmethod
    def nbytes(cls, row_width: int, ring_rows: int, mailbox_slots: int = 64, payload_bytes: int = 65536) -> int:
        """Memory that `create` takes with the same numbers."""
        return sum(cls._sizes(row_width, ring_rows, mailbox_slots, payload_bytes))

    @classmethod
    def attach(cls, path: str | Path) -> Self:
        """Attach to the segment (see `Segment.attach`); the layout is read from it."""
        segment = Segment.attach(path)
        try:
            return cls(segment)
        except ValueError as error:
            raise SharedMemoryError(f"{segment.path}: not the shared memory of a loop: {error}.") from error

    @staticmethod
    def _sizes(row_width: int, ring_rows: int, mailbox_slots: int, payload_bytes: int) -> list[int]:
        return [
            LoopInfo.nbytes(),
            Heartbeat.nbytes(),
            Heartbeat.nbytes(),
            Ring.nbytes(row_width, ring_rows),
            Mailbox.nbytes(mailbox_slots, payload_bytes),
        ]

    @property
    def owner_pid(self) -> int:
        """The process that created the segment."""
        return self.segment.owner_pid

    def close(self) -> None:
        """See `Segment.close`."""
        self.segment.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _require_x86_64() -> None:
    if platform.machine() not in ("x86_64", "AMD64"):
        raise SharedMemoryError(
            f"Shared memory of hilserver relies on the store order of x86-64; this machine is {platform.machine()}."
        )


def _lines(size: int) -> int:
    """`size` rounded up to whole cache lines."""
    return -(-size // _LINE) * _LINE


def _mapped(handle: int, size: int) -> mmap.mmap:
    return mmap.mmap(handle, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)  # populated: no page fault in the loop


def _is_file(path: Path, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.lstat(), status)
    except FileNotFoundError:
        return False


def _claim(path: Path) -> int:
    """An open, empty file at `path`, locked by this process.

    Only who has the lock on the file that is *now* at `path` may remove it: two processes can't both take over a stale
    one.
    """
    while True:
        handle = _open(path, os.O_CREAT)
        claimed = False
        try:
            _lock(path, handle)
            status = os.fstat(handle)
            if not _is_file(path, status):
                continue  # another process has removed it since we opened it
            claimed = status.st_size == 0
            if claimed:
                os.fchmod(handle, 0o600)
                return handle
            path.unlink()  # its owner is dead; processes still attached keep their memory
        finally:
            if not claimed:
                os.close(handle)


def _open(path: Path, flags: int = 0) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW | flags, 0o600)
    except FileNotFoundError as error:
        missing = "no such folder." if flags & os.O_CREAT else "no such shared memory. Is hilserver running?"
        raise SharedMemoryError(f"{path}: {missing}") from error
    except OSError as error:
        raise SharedMemoryError(f"{path}: {error.strerror}.") from error


def _lock(path: Path, handle: int) -> None:
    if _number(handle, Segment._MAGIC_AT) not in (0, _MAGIC):  # 0: not ready, or its creator died before it was
        raise SharedMemoryError(f"{path}: exists and is not a shared memory of hilserver. Move it away.")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = _number(handle, Segment._OWNER_AT) or "(just starting)"
        raise SharedMemoryError(f"{path}: in use by process {owner}. Is hilserver running already?") from error


def _number(handle: int, at: int) -> int:
    return int.from_bytes(os.pread(handle, 8, 8 * at), "little")
