"""Courses of any length in a memory that does not grow: smallest and largest value of every few rows."""

from __future__ import annotations

import numpy as np

from hilserver.numerics.arrays import Floats

MOST_BINS = 8192
"""Bins that are kept at most; beyond that two neighbours become one."""


class Envelope:
    """Smallest and largest values of columns, of ``rows_per_bin`` rows each, as many as it takes. NaN is passed over.

    >>> envelope = Envelope()
    >>> envelope.add(np.arange(20_000.0).reshape(-1, 1))
    >>> low, high = envelope.bounds()
    >>> envelope.rows_per_bin, float(low[1, 0]), float(high[1, 0]), float(high[-1, 0])
    (4, 4.0, 7.0, 19999.0)
    """

    def __init__(self) -> None:
        self.rows_per_bin = 1
        self._low: list[Floats] = []
        self._high: list[Floats] = []
        self._count = 0
        self._rest: Floats | None = None

    def add(self, rows: Floats) -> None:
        """Take rows, float64[n, columns]."""
        rows = rows if self._rest is None else np.concatenate([self._rest, rows])
        count = len(rows) // self.rows_per_bin
        whole = rows[: count * self.rows_per_bin].reshape(count, self.rows_per_bin, rows.shape[1])
        self._rest = rows[count * self.rows_per_bin :].copy()
        if count == 0:
            return
        self._low.append(np.fmin.reduce(whole, axis=1))
        self._high.append(np.fmax.reduce(whole, axis=1))
        self._count += count
        while self._count > MOST_BINS:
            self._halve()

    def bounds(self) -> tuple[Floats, Floats]:
        """Smallest and largest values, float64[bins, columns]; some bins may hold fewer rows."""
        low, high = list(self._low), list(self._high)
        if self._rest is not None and len(self._rest):
            low.append(np.fmin.reduce(self._rest, axis=0)[np.newaxis])
            high.append(np.fmax.reduce(self._rest, axis=0)[np.newaxis])
        if not low:
            return np.empty((0, 0)), np.empty((0, 0))
        return np.concatenate(low), np.concatenate(high)

    def _halve(self) -> None:
        low, high = np.concatenate(self._low), np.concatenate(self._high)
        if len(low) % 2:  # an odd bin stays alone
            low, high = np.concatenate([low, low[-1:]]), np.concatenate([high, high[-1:]])
        self._low, self._high = [np.fmin(low[::2], low[1::2])], [np.fmax(high[::2], high[1::2])]
        self._count = len(low) // 2
        self.rows_per_bin *= 2
