"""Signals of any length in bounded memory: minimum and maximum of groups of consecutive rows."""

from __future__ import annotations

import numpy as np

from hilserver.numerics.arrays import Floats

MAX_BINS = 8192
"""Maximum number of bins; beyond it, neighbouring bins are merged."""


class Envelope:
    """Minimum and maximum of each column in bins of ``rows_per_bin`` rows, which grow as needed. NaN is ignored.

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
        """Add rows, float64[n, columns]."""
        rows = rows if self._rest is None else np.concatenate([self._rest, rows])
        count = len(rows) // self.rows_per_bin
        whole = rows[: count * self.rows_per_bin].reshape(count, self.rows_per_bin, rows.shape[1])
        self._rest = rows[count * self.rows_per_bin :].copy()
        if count == 0:
            return
        self._low.append(np.fmin.reduce(whole, axis=1))
        self._high.append(np.fmax.reduce(whole, axis=1))
        self._count += count
        while self._count > MAX_BINS:
            self._halve()

    def bounds(self) -> tuple[Floats, Floats]:
        """Minima and maxima, each float64[bins, columns]; some bins may hold fewer rows."""
        low, high = list(self._low), list(self._high)
        if self._rest is not None and len(self._rest):
            low.append(np.fmin.reduce(self._rest, axis=0)[np.newaxis])
            high.append(np.fmax.reduce(self._rest, axis=0)[np.newaxis])
        if not low:
            return np.empty((0, 0)), np.empty((0, 0))
        return np.concatenate(low), np.concatenate(high)

    def _halve(self) -> None:
        low, high = np.concatenate(self._low), np.concatenate(self._high)
        if len(low) % 2:  # an odd bin has no neighbour
            low, high = np.concatenate([low, low[-1:]]), np.concatenate([high, high[-1:]])
        self._low, self._high = [np.fmin(low[::2], low[1::2])], [np.fmax(high[::2], high[1::2])]
        self._count = len(low) // 2
        self.rows_per_bin *= 2
