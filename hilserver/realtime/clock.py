"""Clocks that pace the tick: a fixed grid of absolute deadlines in real time, or lockstep without waiting."""

from __future__ import annotations

import ctypes
import errno
import os
import time
from typing import Protocol

_TIMER_ABSTIME = 1
_NS_PER_S = 1_000_000_000


class Clock(Protocol):
    """What the loop sees of its clock: ``clock.start()``, then ``while clock.wait(): ...`` with these attributes."""

    @property
    def period_s(self) -> float:
        """Distance of two grid points in s, as it is really kept (a whole number of nanoseconds)."""

    @property
    def tick(self) -> int:
        """Index on the grid: 0 for the first wake, -1 before it."""

    @property
    def missed(self) -> int:
        """Whole periods that passed unused before this wake; 0 in good order."""

    @property
    def wake_error(self) -> float:
        """Time from the deadline of `tick` to the wake, in s: at least 0 and below one period."""

    @property
    def deadline_ns(self) -> int:
        """The deadline of `tick` (nanoseconds; CLOCK_MONOTONIC for a `GridClock`)."""

    def start(self, delay_s: float = 0.0) -> None:
        """Put tick 0 `delay_s` from now."""

    def wait(self) -> bool:
        """Go to the next tick; False, without one, once `stop` was called."""

    def stop(self) -> None:
        """Let `wait` return False from now on. May be called from a signal handler."""


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
    stays on the grid. See `Clock` for the attributes; they are valid after a `wait` that returned True.
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


class LockstepClock:
    """The same interface without time: each `wait` returns at once, one tick further, nothing missed.

    Deadlines count from 0, so that two runs are alike.
    """

    __slots__ = ("_delay_ns", "_period_ns", "_stopped", "missed", "tick", "wake_error")

    def __init__(self, period_s: float) -> None:
        self._period_ns = _whole_nanoseconds(period_s)
        self._stopped = False
        self.missed = 0
        self.wake_error = 0.0
        self.start()

    @property
    def period_s(self) -> float:
        """The period in s, rounded to whole nanoseconds."""
        return self._period_ns / _NS_PER_S

    @property
    def deadline_ns(self) -> int:
        """Virtual time of `tick` in ns."""
        return self._delay_ns + max(self.tick, 0) * self._period_ns

    def start(self, delay_s: float = 0.0) -> None:
        """Start again at tick 0, at a virtual time of `delay_s`."""
        self._delay_ns = round(delay_s * _NS_PER_S)
        self.tick = -1

    def stop(self) -> None:
        """Let `wait` return False from now on."""
        self._stopped = True

    def wait(self) -> bool:
        """Advance by one tick; False, without one, once stopped."""
        if self._stopped:
            return False
        self.tick += 1
        return True
