r"""How far the slope of a sum of squares is from that of white residuals: the middle of a robust covariance.

With the Jacobian J and the residuals r of a fit, the slope of every part of the data is :math:`g = J^T r`. All together
they are 0 at the minimum. If the model were exact and r white, the slopes of parts would be as small as chance makes
them, :math:`\sum g g^T \approx J^T J`, however the data is divided. Where the model is wrong they pull in different
directions: parts in time (slow drift, other amplitudes), or in frequency (missing dynamics). The covariance

.. math:: (J^T J)^{-1} \Big(\sum_{parts} g g^T\Big) (J^T J)^{-1}

shows how much the result depends on which part of the data is trusted.
Sources: Newey & West, Econometrica 55 (1987) 703 (correlation over neighbouring ticks); Liang & Zeger, Biometrika 73
(1986) 13 (parts); Hausman, Econometrica 46 (1978) 1251 (differently weighted fits as a test of the model).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hilserver.numerics.arrays import Floats

LAGS = 60
"""Ticks over which filtered residuals may still be correlated."""
BLOCKS = 24
"""Parts of the recording in time."""
BANDS = 24
"""Parts of the spectrum, of constant ratio of frequencies."""
LOWEST_BAND = 2e-3
"""Upper limit of the first part of the spectrum, of half the tick rate."""


def scatters(J: Floats, r: Floats, lengths: Sequence[int]) -> tuple[Floats, ...]:
    """Estimates of the scatter of J^T r; signals of these lengths follow each other, and count as independent."""
    size = J.shape[1]
    totals = [np.zeros((size, size)) for _ in range(3)]
    first = 0
    for length in lengths:
        part = slice(first, first + length)
        for total, add in zip(totals, _of_signal(J[part], r[part]), strict=True):
            total += add
        first += length
    return tuple(totals)


def _of_signal(J: Floats, r: Floats) -> Iterator[Floats]:
    G = J * r[:, None]
    yield newey_west(G)
    yield of_parts(np.add.reduceat(G, np.linspace(0, len(G), BLOCKS, endpoint=False).astype(np.int64)))
    yield of_parts(slopes_by_band(J, r))


def newey_west(G: Floats) -> Floats:
    """Of slopes per tick that are correlated over LAGS ticks."""
    total = G.T @ G
    for lag in range(1, LAGS):
        across = G[lag:].T @ G[:-lag]
        total += (1.0 - lag / LAGS) * (across + across.T)
    return np.asarray(total)


def of_parts(G: Floats) -> Floats:
    """Of the slopes of independent parts, one per row."""
    return np.asarray(G.T @ G) * len(G) / (len(G) - 1)


def slopes_by_band(J: Floats, r: Floats) -> Floats:
    """J^T r by parts of the spectrum: float64[BANDS, parameters].

    >>> J, r = np.random.default_rng(1).normal(size=(200, 2)), np.random.default_rng(2).normal(size=200)
    >>> bool(np.allclose(slopes_by_band(J, r).sum(axis=0), J.T @ r))
    True
    """
    n = len(r)
    product = (np.conj(np.fft.rfft(J, axis=0)) * np.fft.rfft(r)[:, None]).real * (2.0 / n)
    product[0] *= 0.5
    if n % 2 == 0:
        product[-1] *= 0.5
    edges = np.geomspace(LOWEST_BAND, 1.0, BANDS)[:-1] * (len(product) - 1)
    starts = np.unique(np.concatenate([[0], np.ceil(edges).astype(np.int64)]))
    return np.asarray(np.add.reduceat(product, starts))
