"""Paced runs: offline runs whose ticks are computed when they are due, slower or faster than real time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import ceil
from typing import Any, Protocol

from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.realtime.clock import GridClock

SLOWEST, FASTEST = 1e-4, 1e4
MIN_PERIOD = 1e-3
"""s of the clock: if ticks are due more often than this, those within this time are computed together."""
MAX_AT_ONCE = 1000
"""Ticks of a late run that are computed together; then it may be interrupted."""
LOOK = 0.1
"""s of the clock between two reports of the progress."""

Look = Callable[[int, Floats], object]
"""Called from time to time with the number of completed ticks and the present values."""


@dataclass(frozen=True)
class Paced:
    """How a run kept to the clock.

    ``ran``: s of the simulated time; ``took``: s of the clock; ``late``: ticks that were not completed in time, by up
    to ``lateness`` s of the clock.
    """

    speed: float
    ran: float
    took: float
    ticks: int
    late: int
    lateness: float

    def __str__(self) -> str:
        kept = f"{self.ran:g} s took {self.took:.4g} s, at {self.speed:g} times real time; "
        if not self.late:
            return f"{kept}all {self.ticks} ticks were completed in time"
        return f"{kept}{self.late} of {self.ticks} ticks were late, by up to {1e3 * self.lateness:.3g} ms"

    def figures(self) -> dict[str, Any]:
        """All of it for a JSON file, SI."""
        return dict(vars(self))

    @classmethod
    def all_of(cls, runs: Iterable[Paced]) -> Paced | None:
        """Runs at one speed together; None for none."""
        found = list(runs)
        if not found:
            return None
        ran, took = sum(run.ran for run in found), sum(run.took for run in found)
        ticks, late = sum(run.ticks for run in found), sum(run.late for run in found)
        return cls(found[0].speed, ran, took, ticks, late, max(run.lateness for run in found))


class TickPace(Protocol):
    """Says how many ticks of a run are computed together, and learns what came of them."""

    def due(self) -> int:
        """The number of ticks to compute now."""
        ...

    def computed(self, ticks: int, values: Floats) -> None:
        """This number of ticks was computed, with these values."""
        ...


class Unpaced:
    """No clock: ``ticks`` at a time, and a look after each of these blocks, which may raise an exception."""

    def __init__(self, ticks: int, look: Look) -> None:
        self._ticks, self._look, self._done = ticks, look, 0

    def due(self) -> int:
        """A block."""
        return self._ticks

    def computed(self, ticks: int, values: Floats) -> None:
        """Look at the values."""
        self._done += ticks
        self._look(self._done, values)


class Pacing:
    """The clock of a run: tick k of ``tick`` seconds is computed when k·tick/speed seconds have passed.

    A run that is late computes the ticks that are due without waiting, until it has caught up. Raises HilserverError
    for a speed that is out of range.
    """

    def __init__(self, tick: float, speed: float, look: Look | None = None) -> None:
        check_speed(speed)
        self._tick, self._speed, self._look = tick, speed, look
        self._together = max(1, ceil(MIN_PERIOD * speed / tick * (1.0 - 1e-9)))
        self._period = self._together * tick / speed
        self._clock = GridClock(self._period)
        self._now = self._looked = 0.0
        self._start_ns = self._done = self._granted = self._late = 0
        self._lateness = 0.0

    def due(self) -> int:
        """The number of ticks to compute now; waits until there are some."""
        if self._granted == 0:
            self._clock.start()
            self._start_ns = self._clock.deadline_ns
        if self._done >= self._granted:
            self._clock.wait()
            self._granted = (self._clock.tick + 1) * self._together
        return min(self._granted - self._done, MAX_AT_ONCE)

    def computed(self, ticks: int, values: Floats) -> None:
        """Record that this number of ticks was computed, and the resulting values."""
        self._now = 1e-9 * (time.monotonic_ns() - self._start_ns)
        over = int(self._now / self._period)  # of the periods
        self._late += min(max(over * self._together - self._done, 0), ticks)
        first = self._done // self._together + 1  # the period in which the first of these ticks was due
        if over >= first:
            self._lateness = max(self._lateness, self._now - first * self._period)
        self._done += ticks
        if self._look is not None and self._now - self._looked >= LOOK:
            self._looked = self._now
            self._look(self._done, values)

    def paced(self) -> Paced:
        """How the run has kept to the clock so far."""
        return Paced(self._speed, self._done * self._tick, self._now, self._done, self._late, self._lateness)


def check_speed(speed: float) -> None:
    """Raises HilserverError if a run can't have this speed."""
    if not SLOWEST <= speed <= FASTEST:
        raise HilserverError(f"speed: {speed:g} times real time is outside the range {SLOWEST:g} … {FASTEST:g}.")
