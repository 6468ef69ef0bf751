"""Memory for the rows of a run, and for the true values of its simulated devices."""

from __future__ import annotations

import numpy as np

from hilserver.numerics.arrays import Floats


class RowMemory:
    """Memory for rows that is used again: to get new memory takes as long as many ticks."""

    def __init__(self) -> None:
        self._cells = np.empty(0)

    def rows(self, ticks: int, width: int) -> Floats:
        """Room for this number of rows."""
        if ticks * width > len(self._cells):
            self._cells = np.empty(ticks * width)
        return self._cells[: ticks * width].reshape(ticks, width)


class TrueValues:
    """The true values of a simulated device, float64[ticks, values], with room for those that are ``expected``."""

    def __init__(self, width: int, expected: int) -> None:
        self._rows, self._used = np.empty((expected, width)), 0

    @property
    def values(self) -> Floats:
        """Those so far."""
        return self._rows[: self._used]

    def room_for(self, ticks: int) -> Floats:
        """The rows of the next ticks, to be filled."""
        first, self._used = self._used, self._used + ticks
        if self._used > len(self._rows):
            larger = np.empty((2 * self._used, self._rows.shape[1]))
            larger[:first] = self._rows[:first]
            self._rows = larger
        return self._rows[first : self._used]
