"""The difference of two signals as a signal of its own: virtual against real, one run against another."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hilserver.numerics.arrays import Floats
from hilserver.viewer.measurement import Measurement


class SignalDifference(Measurement):
    """One signal minus another, in common time: at the samples of the first, those of the other interpolated.

    ``offset`` and ``other_offset`` are added to the times of the two logs. Its only signal is ``name``; it is NaN
    where the other log has no samples. Signals of one time base are subtracted sample by sample.
    """

    def __init__(
        self,
        name: str,
        one: tuple[Measurement, str, float],
        other: tuple[Measurement, str, float],
    ) -> None:
        super().__init__(Path(f"{name.replace('/', '_')}.difference"))
        (self._log, self._signal, offset), (self._other, self._other_signal, self._other_offset) = one, other
        self.units = {name: self._log.units[self._signal]}
        own, others = self._log.times(self._signal), self._other.times(self._other_signal)
        self._is_same_base = own is others and offset == self._other_offset
        self._times: Floats = own + offset

    def times(self, signal: str) -> Floats:
        """See `Measurement`."""
        return self._times

    def read(self, signal: str, start: int, stop: int) -> Floats:
        """See `Measurement`."""
        self.require(signal)
        if stop <= start:
            return np.empty(0)
        values = self._log.read(self._signal, start, stop)
        if self._is_same_base:
            return values - self._other.read(self._other_signal, start, stop)
        at = self._times[start:stop] - self._other_offset
        first, last = self._other.rows(self._other_signal, float(at[0]), float(at[-1]))
        times = self._other.times(self._other_signal)
        first, last = max(first - 1, 0), min(last + 1, len(times))
        if first >= last:
            return np.full(stop - start, np.nan)
        others = self._other.read(self._other_signal, first, last)
        interpolated: Floats = np.interp(at, times[first:last], others, left=np.nan, right=np.nan)
        return values - interpolated
