"""The memory that supervisor, real-time loop and recorder share: rows, commands, heartbeats."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Self

from hilserver.realtime.queues import Mailbox, Ring
from hilserver.realtime.segment import LINE, Segment, SharedMemoryError

ALIVE = 1.0
"""Seconds without a tick after which a loop counts as dead."""


class Heartbeat:
    """A heartbeat: time of the last `beat` (CLOCK_MONOTONIC, the same in all processes) and number of beats."""

    def __init__(self, buffer: memoryview) -> None:
        """Lay the heartbeat over a `buffer` of `Heartbeat.nbytes()` bytes of a segment."""
        self._numbers = buffer[:LINE].cast("q")

    @staticmethod
    def nbytes() -> int:
        """Memory that a heartbeat needs."""
        return LINE

    def beat(self) -> None:
        """Give a heartbeat."""
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
    """Information that the processes of a run share about each other."""

    def __init__(self, buffer: memoryview) -> None:
        """Lay it over a `buffer` of `LoopInfo.nbytes()` bytes of a segment."""
        self._numbers = buffer[:LINE].cast("q")

    @staticmethod
    def nbytes() -> int:
        """Memory that it needs."""
        return LINE

    @property
    def loop_pid(self) -> int:
        """The real-time process, 0 while there is none; it sets this itself."""
        return self._numbers[0]

    @loop_pid.setter
    def loop_pid(self, pid: int) -> None:
        self._numbers[0] = pid

    @property
    def layout(self) -> int:
        """A number that identifies the rows' layout; set by the supervisor."""
        return self._numbers[2]

    @layout.setter
    def layout(self, fingerprint: int) -> None:
        self._numbers[2] = fingerprint

    @property
    def stop_requested(self) -> bool:
        """Whether the real-time process is requested to bring the rig to its safe state and terminate."""
        return self._numbers[1] != 0

    @stop_requested.setter
    def stop_requested(self, requested: bool) -> None:
        self._numbers[1] = requested


class LoopMemory:
    """Everything that supervisor, real-time process and recorder share, in one segment.

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
