"""Exact figures of a signal over a span: from all of its samples, not from what is drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from hilserver.numerics.arrays import Floats
from hilserver.viewer.measurement import Measurement

CHUNK = 1 << 18
"""Samples that are read at a time."""


@dataclass(frozen=True)
class SpanStatistics:
    """Figures of ``count`` samples, in the unit of the signal; NaN if there is none. ``missing`` others are NaN.

    ``std`` is the standard deviation of all samples (divided by their number), so that rms² = mean² + std².
    """

    count: int
    missing: int
    minimum: float
    maximum: float
    mean: float
    rms: float
    std: float


def statistics(
    log: Measurement, signal: str, begin: float, end: float, wanted: Callable[[], bool] = lambda: True
) -> SpanStatistics:
    """Figures of the samples from time ``begin`` to ``end``, both included.

    Reading ends early, and the figures are of no use, when they are not ``wanted`` any more. Raises `RecordError`.
    """
    log.require(signal)
    start, stop = log.rows(signal, begin, end)
    places = takewhile(lambda _: wanted(), range(start, stop, CHUNK))
    return figures(log.read(signal, at, min(at + CHUNK, stop)) for at in places)


def figures(parts: Iterable[Floats]) -> SpanStatistics:
    """Figures of samples that come in parts: means and squared deviations are merged part by part.

    Source: T. F. Chan, G. H. Golub, R. J. LeVeque, Updating formulae and a pairwise algorithm for computing sample
    variances, COMPSTAT 1982; the sum of squares minus the square of the sum would lose all digits of a small
    variation around a large mean.

    >>> figures([np.array([3.0, np.nan]), np.array([5.0])])
    SpanStatistics(count=2, missing=1, minimum=3.0, maximum=5.0, mean=4.0, rms=4.123105625617661, std=1.0)
    """
    count = missing = 0
    mean = deviation = 0.0
    low, high = math.inf, -math.inf
    with np.errstate(invalid="ignore", over="ignore"):
        for part in parts:
            known = part[~np.isnan(part)]
            missing += len(part) - len(known)
            if len(known) == 0:
                continue
            low, high = min(low, float(known.min())), max(high, float(known.max()))
            own = float(known.mean())
            total = count + len(known)
            step = own - mean
            deviation += float(np.square(known - own).sum()) + step * step * count * len(known) / total
            mean += step * len(known) / total
            count = total
    if count == 0:
        return SpanStatistics(0, missing, *(5 * (math.nan,)))
    variance = deviation / count
    return SpanStatistics(count, missing, low, high, mean, math.sqrt(mean * mean + variance), math.sqrt(variance))


def sample_at(log: Measurement, signal: str, time: float) -> tuple[float, float]:
    """Time and value of the sample nearest to this time; NaN where the log has none. Raises `RecordError`."""
    log.require(signal)
    times = log.times(signal)
    if len(times) == 0 or not times[0] <= time <= times[-1]:
        return math.nan, math.nan
    right = min(int(np.searchsorted(times, time)), len(times) - 1)
    row = right - 1 if right > 0 and time - times[right - 1] <= times[right] - time else right
    return float(times[row]), float(log.read(signal, row, row + 1)[0])
