"""Timing statistics of a loop, computed outside the loop from the rows that it published.

A tick's row records when the loop woke, and the durations of the *previous* tick, because its own are not known yet.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hilserver.numerics.arrays import Floats, Integers
from hilserver.tick.row import COLUMN, TIMES, headers

SHORTEST, LONGEST, BIN = 1e-8, 1e3, 1.01
"""Durations in s that are distinguished, and the ratio from one bin of a distribution to the next."""
PARTS = dict(zip(("read", "compute", "write", "publish"), TIMES, strict=True))
"""Parts of a tick, in order -> column with the duration in the previous tick."""


@dataclass(frozen=True)
class Figures:
    """Statistics of a distribution of durations; all in s."""

    count: int
    min: float
    mean: float
    median: float
    p99: float
    p999: float
    max: float


class Distribution:
    """Distribution of any number of durations, in s, in memory of constant size.

    Count, minimum, mean and maximum are exact; percentiles are accurate to 1 %.
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
        """The largest duration so far; 0 if there is none."""
        return self._max

    def percentile(self, percent: float) -> float:
        """The duration in s that this percentage does not exceed; NaN if there is none."""
        if self.count == 0:
            return float("nan")
        rank = max(int(np.ceil(self.count * percent / 100.0)), 1)
        place = int(np.searchsorted(np.cumsum(self._bins), rank))
        return float(np.clip(SHORTEST * BIN ** (place + 0.5), self._min, self._max))

    def figures(self) -> Figures | None:
        """The statistics; None without any duration."""
        if self.count == 0:
            return None
        median, p99, p999 = (self.percentile(percent) for percent in (50.0, 99.0, 99.9))
        return Figures(self.count, self._min, self._total / self.count, median, p99, p999, self._max)


def _bin_of(durations: Floats) -> Integers:
    inside = np.clip(durations, SHORTEST, LONGEST)
    return np.asarray(np.log(inside / SHORTEST) / np.log(BIN), dtype=np.int64)


def wake_up_delay(rows: Floats, period: float) -> Floats:
    """Delay of each tick's start after its original deadline, s: missed ticks plus wake-up error.

    Deadlines are counted from the start of the run, so this is also the lead of real time over simulated time.
    """
    return np.asarray(headers(rows)["missed"] * period + headers(rows)["wake_error"])


def work_before(rows: Floats) -> Floats:
    """Total working time of the tick before each of these rows, from its wake-up to its next sleep, s."""
    return np.asarray(rows[:, [COLUMN[name] for name in PARTS.values()]].sum(axis=1))


class LoopTiming:
    """Timing of the loop since its start. ``period`` in s."""

    def __init__(self, period: float) -> None:
        self.period = period
        self.wake_up = Distribution()
        """From a tick's deadline to its start."""
        self.parts = {name: Distribution() for name in PARTS}
        self.work = Distribution()
        """All of a tick's parts."""

    def add(self, rows: Floats) -> None:
        """Add published rows."""
        self.wake_up.add(wake_up_delay(rows, self.period))
        rows = rows[headers(rows)["compute_time"] > 0.0]  # the first row of a run has no previous tick
        for name, column in PARTS.items():
            self.parts[name].add(headers(rows)[column])
        self.work.add(work_before(rows))

    @property
    def time_sync_error(self) -> float:
        """Largest difference between ideal and actual simulation time since the start, s."""
        return self.wake_up.largest

    @property
    def minimum_step(self) -> float:
        """The shortest period that would have been sufficient so far: the longest working time of a tick, s."""
        return self.work.largest
