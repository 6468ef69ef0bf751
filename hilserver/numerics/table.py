"""Curves defined by points."""

from __future__ import annotations

from typing import Any

from hilserver.numerics.compilable import compilable


@compilable
def interpolate(table: Any, x: float) -> float:
    """y at x: linear between the points of a curve, constant beyond its ends.

    ``table`` is a pair (array, start) as a kernel receives it for a parameter that is a Table: number of points, all x
    (rising), all y.

    >>> import numpy as np
    >>> curve = (np.array([3.0, 0.0, 1.0, 2.0, 0.0, 10.0, 0.0]), 0)
    >>> interpolate(curve, 0.5), interpolate(curve, 1.75), interpolate(curve, -1.0), interpolate(curve, 9.0)
    (5.0, 2.5, 0.0, 0.0)
    """
    values, start = table
    n = int(values[start])
    low, high = start + 1, start + n
    if x <= values[low]:
        return float(values[low + n])
    if x >= values[high]:
        return float(values[high + n])
    while high - low > 1:
        middle = (low + high) // 2
        if values[middle] <= x:
            low = middle
        else:
            high = middle
    share = (x - values[low]) / (values[high] - values[low])
    return float(values[low + n] + share * (values[high + n] - values[low + n]))
