"""The clock that paces the tick in real time: a fixed grid of absolute deadlines."""

from __future__ import annotations

import ctypes
import errno
import os
import time

_TIMER_ABSTIME = 1
_NS_PER_S = 1_000_000_000


class _Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


def _whole_nanoseconds(period_s: float) -> int:
    period_ns = round(period_s * _NS_PER_S)
    if period_ns <= 0:
        raise ValueError(f"period of {period_s!r} s: must be at least 1 ns")
    return period_ns


class GridClock:
    """Wakes at ``start + tick * period`` on CLOCK_MONOTONIC.

    Deadlines are whole nanoseconds counted from the start, so that errors don't add up from tick to tick. After k
    missed periods `tick` advances by k + 1 and the wake counts for the latest grid point that has passed: the loop
    stays on the grid.

    After a `wait` that returned True: `tick` is the index on the grid (0 at the first wake, -1 before it), `missed` the
    whole periods that passed unused before it, `wake_error` the time in s from its deadline to the wake, `deadline_ns`
    the deadline on CLOCK_MONOTONIC.
    """

    __slots__ = (
        "_period_ns",
        "_request",
        "_request_ref",
        "_sleep_until",
        "_start_ns",
        "_stopped",
        "deadline_ns",
        "missed",
        "tick",
        "wake_error",
    )

    def __init__(self, period_s: float) -> None:
        self._period_ns = _whole_nanoseconds(period_s)
        self._request = _Timespec()
        self._request_ref = ctypes.byref(self._request)
        self._sleep_until = ctypes.CDLL(None).clock_nanosleep
        self._stopped = False
        self.start()

    @property
    def period_s(self) -> float:
        """The period in s, rounded to whole nanoseconds."""
        return self._period_ns / _NS_PER_S

    def start(self, delay_s: float = 0.0) -> None:
        """Put tick 0 `delay_s` from now."""
        self._start_ns = self.deadline_ns = time.monotonic_ns() + round(delay_s * _NS_PER_S)
        self.tick = -1
        self.missed = 0
        self.wake_error = 0.0

    def stop(self) -> None:
        """Let `wait` return False from now on; interrupts it when called from a signal handler."""
        self._stopped = True

    def wait(self) -> bool:
        """Sleep until the next grid point (not at all if it has passed); False, without a tick, once stopped.

        A signal doesn't end the sleep, unless its handler calls `stop`. Raises OSError if the kernel refuses to sleep.
        """
        tick = self.tick + 1
        deadline_ns = self._start_ns + tick * self._period_ns
        request = self._request
        request.seconds, request.nanoseconds = divmod(deadline_ns, _NS_PER_S)
        while not self._stopped:
            result = self._sleep_until(time.CLOCK_MONOTONIC, _TIMER_ABSTIME, self._request_ref, None)
            if result == 0:
                break
            if result != errno.EINTR:
                raise OSError(result, f"clock_nanosleep: {os.strerror(result)}")
        if self._stopped:
            return False
        late_ns = time.monotonic_ns() - deadline_ns
        self.missed = missed = late_ns // self._period_ns
        self.tick = tick + missed
        self.deadline_ns = deadline_ns + missed * self._period_ns
        self.wake_error = (late_ns - missed * self._period_ns) / _NS_PER_S
        return True
