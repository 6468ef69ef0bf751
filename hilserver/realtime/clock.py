"""The clock that paces the tick in real time: a fixed grid of absolute deadlines."""

from __future__ import annotations

import ctypes
import errno
import os
import time
from collections.abc import Callable

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
        deadline_ns = self._start_ns + (self.tick + 1) * self._period_ns
        if not self._slept(deadline_ns):
            return False
        self._woke(deadline_ns)
        return True

    def _slept(self, until_ns: int) -> bool:
        """Sleep until this time on CLOCK_MONOTONIC; False once stopped."""
        request = self._request
        request.seconds, request.nanoseconds = divmod(until_ns, _NS_PER_S)
        while not self._stopped:
            result = self._sleep_until(time.CLOCK_MONOTONIC, _TIMER_ABSTIME, self._request_ref, None)
            if result == 0:
                break
            if result != errno.EINTR:
                raise OSError(result, f"clock_nanosleep: {os.strerror(result)}")
        return not self._stopped

    def _woke(self, deadline_ns: int) -> None:
        """Note which grid point this is, and how late."""
        late_ns = time.monotonic_ns() - deadline_ns
        self.missed = missed = late_ns // self._period_ns
        self.tick += 1 + missed
        self.deadline_ns = deadline_ns + missed * self._period_ns
        self.wake_error = (late_ns - missed * self._period_ns) / _NS_PER_S


class RehearsingClock(GridClock):
    """A grid clock that wakes before its deadlines, calls `rehearse`, and watches the clock until the deadline.

    What `rehearse` has done is in the processor's caches at the deadline, and a wake-up that is not later than it was
    early delays nothing. While there is time left, the rehearsal is repeated: the first one after the sleep takes the
    longest, and leaves the caches less well filled than the others.

    The time by which it wakes early is adjusted so that a rehearsal is over in time in 99 of 100 periods. It is at most
    a fifth of the period, and 1 ms; where that is too short for a rehearsal, there are hardly any. A tenth of the
    period, if it is left, is always slept: a process with real-time priority that never sleeps is stopped by the
    kernel, for 50 ms in each second.
    """

    SHARE, LONGEST_NS = 5, 1_000_000
    """The period is at least this many times as long as the time by which it wakes early; maximum of that time."""
    SLEPT = 10
    """The period is this many times as long as what of it is slept at least."""
    LONGER_NS, SHORTER_NS = 990, 10
    """Steps by which that time is adjusted; their ratio is that of periods in time to the others."""
    LONGEST_PAUSE = 1 << 16
    """Maximum number of periods without a rehearsal after several in a row that ended after the deadline."""

    __slots__ = ("_early_ns", "_first_ns", "_longest_ns", "_pause", "_pause_next", "_rehearse", "_repeated_ns")

    def __init__(self, period_s: float, rehearse: Callable[[], None]) -> None:
        super().__init__(period_s)
        self._rehearse = rehearse
        self._longest_ns = self._early_ns = min(self._period_ns // self.SHARE, self.LONGEST_NS)
        self._first_ns = self._repeated_ns = 0  # running averages
        self._pause, self._pause_next = 0, 1

    def rehearse_no_more(self) -> None:
        """Sleep until the deadlines from now on, like `GridClock`."""
        self._longest_ns = self._early_ns = 0
        self._rehearse = _nothing

    def wait(self) -> bool:
        """Sleep, rehearse and watch the clock until the next grid point; otherwise like `GridClock.wait`."""
        deadline_ns = self._start_ns + (self.tick + 1) * self._period_ns
        left_ns = deadline_ns - time.monotonic_ns() - self._period_ns // self.SLEPT
        if (early_ns := min(self._early_ns, left_ns)) <= 0:
            return super().wait()
        if not self._slept(deadline_ns - early_ns):
            return False
        if self._rehearsed(deadline_ns):
            self._early_ns -= self.SHORTER_NS
        else:
            self._early_ns = min(self._early_ns + self.LONGER_NS, self._longest_ns)
        while time.monotonic_ns() < deadline_ns:
            pass
        if self._stopped:
            return False
        self._woke(deadline_ns)
        return True

    def _rehearsed(self, deadline_ns: int) -> bool:
        """Rehearse as often as there is time for it; whether there was time for the first one."""
        if self._pause > 0:
            self._pause -= 1
            return False
        began = time.monotonic_ns()
        if began + self._first_ns > deadline_ns:
            self._first_ns -= self._first_ns >> 5  # a pause of the machine may have made it long
            return False
        self._rehearse()
        now = time.monotonic_ns()
        self._first_ns += (now - began - self._first_ns) >> 3
        if now > deadline_ns:
            self._pause, self._pause_next = self._pause_next, min(2 * self._pause_next, self.LONGEST_PAUSE)
            return False
        self._pause_next = 1
        self._repeated_ns = min(self._repeated_ns, self._first_ns)  # a pause of the machine may have made it longer
        while now + self._repeated_ns <= deadline_ns:
            self._rehearse()
            began, now = now, time.monotonic_ns()
            self._repeated_ns += (now - began - self._repeated_ns) >> 3
        return True


def _nothing() -> None:
    """In place of a rehearsal."""
