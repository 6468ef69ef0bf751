r"""Scatter of the gradient of a sum of squares: the middle factor of a sandwich covariance.

With the Jacobian J and the residuals r of a fit, the slope of every part of the data is :math:`g = J^T r`. All together
they are 0 at the minimum. If the model were exact and r white, the slopes of parts would be as small as chance makes
them, :math:`\sum g g^T \approx J^T J`, however the data is divided. Where the model is wrong they pull in different
directions: parts in time (slow drift, other amplitudes), or in frequency (missing dynamics). The covariance

.. math:: (J^T J)^{-1} \Big(\sum_{parts} g g^T\Big) (J^T J)^{-1}

shows how much the result depends on which part of the data is trusted.
Sources: Newey & West, Econometrica 55 (1987) 703 (correlation over neighbouring ticks); Liang & Zeger, Biometrika 73
(1986) 13 (parts); MacKinnon, Nielsen & Webb, J. Econometrics 232 (2023) 272 (CV3: few parts, by the jackknife);
Hausman, Econometrica 46 (1978) 1251 (differently weighted fits as a test of the model).
"""

from __future__ import annotations

from collections.abc import Sequence

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
SINGULAR = 1e-12
"""Relative size of singular values that count as 0."""


Part = tuple[Floats, Floats]
"""Of a part of the data: its slope J^T r and its share of J^T J."""


def scatters(J: Floats, r: Floats, lengths: Sequence[int], prior: Floats) -> tuple[Floats, ...]:
    """Estimates of the scatter of J^T r; signals of these lengths follow each other, and count as independent.

    ``prior``: weights of the prior knowledge, added to the diagonal of J^T J.
    """
    total = np.zeros((J.shape[1], J.shape[1]))
    in_time, in_frequency = list[Part](), list[Part]()
    for end, length in zip(np.cumsum(lengths), lengths, strict=True):
        part = slice(end - length, end)
        total += newey_west(J[part] * r[part, None])
        in_time += blocks(J[part], r[part])
        in_frequency += bands(J[part], r[part])
    known, normal = np.diag(prior), J.T @ J + np.diag(prior)
    return total + known, of_parts(in_time, normal) + known, of_parts(in_frequency, normal) + known


def newey_west(G: Floats) -> Floats:
    """Of slopes per tick that are correlated over LAGS ticks, with the weight 1 - lag / LAGS of each lag.

    Of the moving sums over LAGS ticks, that many contain both of two ticks.
    """
    sums = np.cumsum(np.pad(G, ((LAGS, LAGS - 1), (0, 0))), axis=0)
    moving = sums[LAGS:] - sums[:-LAGS]
    return np.asarray(moving.T @ moving / LAGS)


def of_parts(parts: Sequence[Part], normal: Floats) -> Floats:
    """Of independent parts, by leaving out one after the other (jackknife).

    Without part b the minimum is away by (N - N_b)^-1 g_b. This is larger than N^-1 g_b where a result hangs on a
    single part.
    """
    norm = np.sqrt(np.maximum(np.diag(normal), 1e-300))
    N, total = normal / np.outer(norm, norm), np.zeros_like(normal)
    for slope, own in parts:
        rest = N - own / np.outer(norm, norm)
        moved = N @ np.linalg.lstsq(rest, slope / norm, rcond=SINGULAR)[0]
        total += np.outer(moved, moved)
    return np.asarray(total * np.outer(norm, norm) * (len(parts) - 1) / len(parts))


def blocks(J: Floats, r: Floats) -> list[Part]:
    """Parts in time, of equal length."""
    pairs = zip(np.array_split(J, BLOCKS), np.array_split(r, BLOCKS), strict=True)
    return [(part.T @ own, part.T @ part) for part, own in pairs]


def bands(J: Floats, r: Floats) -> list[Part]:
    """Parts of the spectrum, by Parseval's theorem.

    The first one, from 0 on, has no share: it can't be left out, no zero would be known without it.

    >>> J, r = np.random.default_rng(1).normal(size=(200, 2)), np.random.default_rng(2).normal(size=200)
    >>> slopes, normals = zip(*bands(J, r))
    >>> bool(np.allclose(sum(slopes), J.T @ r)), bool(np.all(np.diag(sum(normals)) <= np.diag(J.T @ J)))
    (True, True)
    """
    n = len(r)
    weight = np.full(n // 2 + 1, 2.0 / n)
    weight[0] *= 0.5
    if n % 2 == 0:
        weight[-1] *= 0.5
    root = np.sqrt(weight)
    Jf, rf = np.fft.rfft(J, axis=0) * root[:, None], np.fft.rfft(r) * root
    edges = np.geomspace(LOWEST_BAND, 1.0, BANDS)[:-1] * (len(rf) - 1)
    starts = np.unique(np.ceil(edges).astype(np.int64))
    pairs = zip(np.split(Jf, starts), np.split(rf, starts), strict=True)
    parts = [((part.conj().T @ own).real, (part.conj().T @ part).real) for part, own in pairs if len(own)]
    return [(parts[0][0], 0.0 * parts[0][1]), *parts[1:]]
