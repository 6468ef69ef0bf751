"""Values of a quantity with a tolerance: from shares of its distribution, and evenly over its range."""

from __future__ import annotations

import numpy as np
from scipy.stats import triang, truncnorm

from hilserver.numerics.arrays import Floats
from hilserver.tolerances import Tolerance

DEVIATIONS = 4.0
"""Length of the range of a normal distribution, in standard deviations: it is cut off at its ends (two, if the value
is in the middle, within which 95 % would lie; parts outside their tolerance are not delivered)."""


def quantiles(tolerance: Tolerance, shares: Floats) -> Floats:
    """The values, SI, that are not exceeded with these probabilities, 0 … 1.

    >>> quantiles(Tolerance(2.0, 1.0, 5.0), np.array([0.0, 0.25, 1.0]))
    array([1., 2., 5.])
    """
    low, value, high = tolerance.lower, tolerance.value, tolerance.upper
    if tolerance.steps:
        places = np.minimum((shares * len(tolerance.steps)).astype(int), len(tolerance.steps) - 1)
        return np.array([tolerance.steps[place] for place in places])
    if tolerance.distribution == "normal":
        deviation = (high - low) / DEVIATIONS
        found = truncnorm.ppf(shares, (low - value) / deviation, (high - value) / deviation, value, deviation)
    elif tolerance.distribution == "triangular":
        found = triang.ppf(shares, (value - low) / (high - low), low, high - low)
    else:
        found = low + shares * (high - low)
    return np.asarray(np.clip(found, low, high), dtype=np.float64)


def over_range(tolerance: Tolerance, shares: Floats) -> Floats:
    """The values, SI, at these shares of the range, whatever the distribution; of steps the nearest in their order.

    >>> over_range(Tolerance(2.0, 1.0, 5.0), np.array([0.0, 0.25, 1.0]))
    array([1., 2., 5.])
    """
    if tolerance.steps:
        places = np.rint(shares * (len(tolerance.steps) - 1)).astype(int)
        return np.array([tolerance.steps[place] for place in places])
    return np.asarray(tolerance.lower + shares * (tolerance.upper - tolerance.lower), dtype=np.float64)


def levels(tolerance: Tolerance, number: int) -> Floats:
    """This number of values evenly over the range, both ends included; of steps all.

    >>> levels(Tolerance(2.0, 1.0, 5.0), 3)
    array([1., 3., 5.])
    """
    if tolerance.steps:
        return np.array(tolerance.steps)
    return np.linspace(tolerance.lower, tolerance.upper, number, dtype=np.float64)
