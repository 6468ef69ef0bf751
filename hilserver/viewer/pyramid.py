"""Signals of any length as they appear on a screen: minima and maxima of groups of samples, on several levels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hilserver.numerics.arrays import Floats

BASE, FACTOR = 64, 8
"""Samples in a group of the finest level, and groups of a level in one of the next."""
CHUNK = 4096 * BASE
"""Samples that are read at a time while a pyramid is built: its memory does not depend on the length of the signal."""


ReadSamples = Callable[[int, int], Floats]
"""Reads the samples ``start`` … ``stop`` − 1 of a signal, float64[stop − start]."""


@dataclass(frozen=True)
class Outline:
    """Part of a signal as drawn: group ``i`` are ``group`` samples from number ``first[i]`` on.

    ``low`` and ``high`` are the extremes of each group, NaN if it has no numbers. With ``group == 1``, both are the
    samples themselves.
    """

    group: int
    first: np.ndarray[tuple[int], np.dtype[np.int64]]
    low: Floats
    high: Floats


class Pyramid:
    """Minima and maxima of a signal of ``count`` samples, about 1/30 of its size; NaN is ignored.

    ``read`` reads samples; it is called once for all of them here, and later for parts of a few thousand.
    """

    def __init__(self, read: ReadSamples, count: int) -> None:
        self.count = count
        self._read = read
        parts = [_grouped(read(at, min(at + CHUNK, count)), BASE) for at in range(0, count, CHUNK)]
        self._levels = [tuple(np.concatenate(side) if parts else np.empty(0) for side in zip(*parts, strict=True))]
        if not parts:
            self._levels = [(np.empty(0), np.empty(0))]
        while len(self._levels[-1][0]) > FACTOR:
            low, high = self._levels[-1]
            self._levels.append((_grouped(low, FACTOR)[0], _grouped(high, FACTOR)[1]))

    @property
    def nbytes(self) -> int:
        """Its memory."""
        return sum(side.nbytes for level in self._levels for side in level)

    def outline(self, start: int, stop: int, most: int) -> Outline:
        """The samples ``start`` … ``stop`` − 1 in at most ``most`` + 2 groups, or, if they are no more, themselves.

        Groups begin at multiples of their size, so that moving the section does not change them; those at both ends
        may reach beyond it. No extreme of the samples is missing.
        """
        start, stop = max(start, 0), min(stop, self.count)
        if stop <= start:
            return Outline(1, np.empty(0, np.int64), np.empty(0), np.empty(0))
        if stop - start <= 2 * most:  # as many points as the groups would have
            values = self._read(start, stop)
            return Outline(1, np.arange(start, stop), values, values)
        group = -(-(stop - start) // most)
        size, level = 1, -1
        while level + 1 < len(self._levels) and 2 * BASE * FACTOR ** (level + 1) <= group:  # a finer choice of sizes
            level, size = level + 1, BASE * FACTOR ** (level + 1)
        per = -(-group // size)  # entries of the level in a group
        group = per * size
        begin, end = start // group * group, min(-(-stop // group) * group, self.count)
        if level < 0:
            low, high = _grouped(self._read(begin, end), group)
        else:
            part = slice(begin // size, -(-end // size))
            low, high = _grouped(self._levels[level][0][part], per)[0], _grouped(self._levels[level][1][part], per)[1]
        return Outline(group, begin + group * np.arange(len(low), dtype=np.int64), low, high)


def _grouped(values: Floats, size: int) -> tuple[Floats, Floats]:
    """Minima and maxima of groups of ``size``; the last one may be smaller.

    >>> [side.tolist() for side in _grouped(np.array([1.0, 5, 3, np.nan, 2]), 2)]
    [[1.0, 3.0, 2.0], [5.0, 3.0, 2.0]]
    """
    starts = np.arange(0, len(values), size)
    if len(starts) == 0:
        return np.empty(0), np.empty(0)
    return np.fmin.reduceat(values, starts), np.fmax.reduceat(values, starts)
