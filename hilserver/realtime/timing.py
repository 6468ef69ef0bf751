"""How punctual a loop was, computed outside of it, from the rows it published.

What a tick's row records about time: when the loop woke, and what the tick *before* took (its own row was out by then).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hilserver.numerics.arrays import Floats, Integers
from hilserver.tick.row import COLUMN, TIMES, headers

SHORTEST, LONGEST, BIN = 1e-8, 1e3, 1.01
"""Durations in s that are distinguished, and the ratio from one bin of a distribution to the next."""
PARTS = dict(zip(("read", "compute", "write", "publish"), TIMES, strict=True))
"""What a tick consists of, in its order -> the column with its duration in the tick before."""


@dataclass(frozen=True)
class Figures:
    """What a distribution of durations comes to; all in s."""

    count: int
    min: float
    mean: float
    median: float
    p99: float
    p999: float
    max: float


class Distribution:
    """Durations in s, any number of them in a memory that does not grow.

    Count, least, mean and largest are exact, percentiles are right to 1 %.
    """

    def __init__(self) -> None:
        self.count = 0
        self._total, self._min, self._max = 0.0, np.inf, 0.0
        self._bins: Integers = np.zeros(_bin_of(np.array([LONGEST]))[0] + 1, dtype=np.int64)

    def add(self, durations: Floats) -> None:
        """Add durations in s."""
        if len(durations) == 0:
            return
        self.count += len(durations)
        self._total += float(durations.sum())
        self._min, self._max = min(self._min, float(durations.min())), max(self._max, float(durations.max()))
        self._bins += np.bincount(_bin_of(durations), minlength=len(self._bins))

    @property
    def largest(self) -> float:
        """The largest duration so far, 0 without any."""
        return self._max

    def percentile(self, percent: float) -> float:
        """The duration in s that so many percent do not exceed; NaN without any."""
        if self.count == 0:
            return float("nan")
        rank = max(int(np.ceil(self.count * percent / 100.0)), 1)
        place = int(np.searchsorted(np.cumsum(self._bins), rank))
        return float(np.clip(SHORTEST * BIN ** (place + 0.5), self._min, self._max))

    def figures(self) -> Figures | None:
        """What it comes to; None without any duration."""
        if self.count == 0:
            return None
        median, p99, p999 = (self.percentile(percent) for percent in (50.0, 99.0, 99.9))
        return Figures(self.count, self._min, self._total / self.count, median, p99, p999, self._max)


def _bin_of(durations: Floats) -> Integers:
    inside = np.clip(durations, SHORTEST, LONGEST)
    return np.asarray(np.log(inside / SHORTEST) / np.log(BIN), dtype=np.int64)


def lateness(rows: Floats, period: float) -> Floats:
    """How long after the deadline that it slept for each tick began, s: missed ticks and wake-up error together.

    Deadlines are counted from the run's start, so this is also what real time is ahead of the simulated one.
    """
    return np.asarray(headers(rows)["missed"] * period + headers(rows)["wake_error"])


def work_before(rows: Floats) -> Floats:
    """What the tick before each of these rows took in all, from its wake to its next sleep, s."""
    return np.asarray(rows[:, [COLUMN[name] for name in PARTS.values()]].sum(axis=1))


class LoopTiming:
    """How punctual the loop has been since its start. ``period`` in s."""

    def __init__(self, period: float) -> None:
        self.period = period
        self.wake_up = Distribution()
        """From a tick's deadline to its begin."""
        self.parts = {name: Distribution() for name in PARTS}
        self.work = Distribution()
        """All of a tick's parts."""

    def add(self, rows: Floats) -> None:
        """Take rows as they were published."""
        self.wake_up.add(lateness(rows, self.period))
        rows = rows[headers(rows)["compute_time"] > 0.0]  # a run's first row knows of no tick before
        for name, column in PARTS.items():
            self.parts[name].add(headers(rows)[column])
        self.work.add(work_before(rows))

    @property
    def time_sync_error(self) -> float:
        """Largest difference of ideal and actual simulation time since the start, s."""
        return self.wake_up.largest

    @property
    def minimum_step(self) -> float:
        """The smallest step in which every tick so far had found room: the largest work of a tick, s."""
        return self.work.largest
