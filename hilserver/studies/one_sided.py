"""Parameters that a log bounds on one side only, such as the pressure of a relief valve that hardly opens.

At the best values, the derivatives of the model give an interval to both sides. Where the quantities hardly change on
one of them, any value there fits as well, and this interval would be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from hilserver.numerics.arrays import Floats

COVERAGE = 1.96
"""Half width of a 95 % interval, in standard deviations."""
HARDLY = 0.25
"""Change of the quantities on one side, as a fraction of that on the other, below which the log does not show it."""

Predict = Callable[[Mapping[str, float]], Sequence[Floats]]
"""Gives the predicted quantities of all logs with these values."""


class Found(Protocol):
    """The result of a fit."""

    @property
    def values(self) -> Mapping[str, float]:
        """The best values."""

    def covariance_with(self, names: Sequence[str]) -> Floats:
        """The covariance of these parameters."""


def open_sides(
    found: Found,
    bounds: Mapping[str, tuple[float, float]],
    predict: Predict,
    used: Sequence[int],
    deviations: Sequence[float],
) -> dict[str, int]:
    """The parameters (``bounds``) with an open side: 1 where larger values fit as well, -1 where smaller ones do.

    ``used``: number of samples of each quantity that were fitted; ``deviations``: RMS of its residuals. The other
    parameters follow each one as their correlations with it say.
    """
    names = list(found.values)
    covariance = found.covariance_with(names)
    best = predict(found.values)
    opened = {}
    for key, (lower, upper) in bounds.items():
        place = names.index(key)
        variance = covariance[place, place]
        if not (np.isfinite(variance) and variance > 0.0):
            continue
        step = COVERAGE * float(np.sqrt(variance))
        if not lower < found.values[key] - step < found.values[key] + step < upper:
            continue
        slopes = covariance[:, place] / variance
        below, above = (
            _change(predict, best, names, np.array([*found.values.values()]) + sign * step * slopes, used, deviations)
            for sign in (-1.0, 1.0)
        )
        if min(below, above) < HARDLY * max(below, above):
            opened[key] = 1 if above < below else -1
    return opened


def _change(
    predict: Predict,
    best: Sequence[Floats],
    names: Sequence[str],
    values: Floats,
    used: Sequence[int],
    deviations: Sequence[float],
) -> float:
    """How far the quantities move from the best ones with these values, relative to their residuals."""
    moved = predict(dict(zip(names, values.tolist(), strict=True)))
    squares = [
        float(np.sum(np.square((new[:count] - old[:count]) / deviation)))
        for new, old, count, deviation in zip(moved, best, used, deviations, strict=True)
        if deviation > 0.0
    ]
    return float(np.sqrt(sum(squares)))
