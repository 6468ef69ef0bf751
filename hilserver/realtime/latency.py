"""Processes that measure the wake-up latency of a loop on this computer, set up exactly like the real-time process.

Two tests after those of RTLinux (Barabanov, FSMLabs 1997 and 2000; docs/theory.md, section 5): the scheduling error of
a periodic thread with absolute deadlines; and the time that a thread waiting for a semaphore takes to wake after it was
posted. Both are measured with and without a background load.

Started as ``python -m hilserver.realtime.latency SCHEDULING`` (JSON). Orders are JSON lines on the standard input; each
is answered on the standard output when it is complete. The process terminates at the end of its input.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Self

import numpy as np

from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.realtime.clock import GridClock
from hilserver.realtime.reports import send_report
from hilserver.realtime.scheduling import Scheduling, prepare
from hilserver.realtime.segment import LINE, Segment

BEFORE_POSTING = 0.2
"""Seconds before the first post, in which the waiting process becomes ready."""
_S = 1_000_000_000


class HandOver:
    """A semaphore between two processes, with the time of each post; in shared memory."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._bytes = (ctypes.c_char * LINE).from_buffer(segment.buffer[:LINE])
        self._semaphore = ctypes.byref(self._bytes)
        self.posted_at = np.frombuffer(segment.buffer, np.int64, segment.shape[0], LINE)
        """CLOCK_MONOTONIC of each post, ns."""

    @classmethod
    def create(cls, path: Path, posts: int) -> Self:
        """A new semaphore of value 0 for this number of posts, owned by this process. Raises SharedMemoryError."""
        new = cls(Segment.create(path, LINE + 8 * posts, (posts,)))
        new._check(new._libc.sem_init(new._semaphore, 1, 0), "sem_init")
        return new

    @classmethod
    def attach(cls, path: Path) -> Self:
        """The semaphore of another process. Raises SharedMemoryError."""
        return cls(Segment.attach(path))

    def post(self, number: int) -> None:
        """Record the time and wake the waiting process."""
        self.posted_at[number] = time.monotonic_ns()
        self._libc.sem_post(self._semaphore)

    def wait(self) -> None:
        """Wait for a post."""
        while self._libc.sem_wait(self._semaphore) != 0:
            if ctypes.get_errno() != errno.EINTR:
                self._check(-1, "sem_wait")

    def _check(self, result: int, what: str) -> None:
        if result != 0:
            raise HilserverError(f"{what}: {os.strerror(ctypes.get_errno())}.")

    def close(self) -> None:
        """Release the shared memory."""
        self.segment.close()


def until_aligned(now_ns: int, period: float) -> float:
    """Seconds to the middle of the first period of the next full second.

    cyclictest, which runs at the same time, starts on a full second (--secaligned), so neither waits for the other.

    >>> until_aligned(12_700_000_000, 1e-3)
    0.3005
    """
    return ((-now_ns) % _S) / _S + 0.5 * period


def periodic(period: float, ticks: int) -> Floats:
    """Wake-up delays of a periodic thread, s: the time from each tick's deadline to its start."""
    clock, late, count = GridClock(period), np.zeros(ticks), 0
    clock.start(until_aligned(time.monotonic_ns(), period))
    while clock.tick < ticks - 1 and clock.wait():
        late[count] = clock.missed * period + clock.wake_error
        count += 1
    return late[:count].copy()


def waiting(hand_over: HandOver) -> Floats:
    """Time from each post until the waiting process was awake, s."""
    woken_at = np.zeros(len(hand_over.posted_at), dtype=np.int64)
    for number in range(len(woken_at)):
        hand_over.wait()
        woken_at[number] = time.monotonic_ns()
    return np.asarray((woken_at - hand_over.posted_at) / _S)


def posting(hand_over: HandOver, period: float) -> None:
    """Post once per period."""
    clock = GridClock(period)
    clock.start(BEFORE_POSTING)
    for number in range(len(hand_over.posted_at)):
        clock.wait()
        hand_over.post(number)


def load_processor(busy: float, period: float) -> None:
    """Compute for ``busy`` seconds of each period and sleep for the rest, as long as the parent process lives."""
    clock, parent = GridClock(period), os.getppid()
    send_report(ready=True)
    clock.start()
    while clock.wait() and os.getppid() == parent:
        until = time.monotonic_ns() + round(busy * _S)
        while time.monotonic_ns() < until:
            pass


def carry_out(order: dict[str, Any]) -> None:
    """Carry out one order; measured values go into the file named in it."""
    if order["do"] == "periodic":
        np.save(order["into"], periodic(order["period"], order["ticks"]))
    elif order["do"] == "load":
        load_processor(order["busy"], order["period"])
    else:
        hand_over = HandOver.attach(Path(order["segment"]))
        if order["do"] == "post":
            posting(hand_over, order["period"])
        else:
            np.save(order["into"], waiting(hand_over))


def serve(scheduling: dict[str, Any]) -> int:
    """The body of the process; returns its exit code."""
    degradations = prepare(Scheduling(**scheduling))
    real_time = os.sched_getscheduler(0) == os.SCHED_FIFO
    send_report(ready=True, real_time=real_time, degradations=[str(d) for d in degradations])
    try:
        for line in sys.stdin:
            carry_out(json.loads(line))
            send_report(done=True)
    except HilserverError as error:
        send_report(error=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(serve(json.loads(sys.argv[1])))
