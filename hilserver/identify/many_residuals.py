r"""Least squares with far more residuals than parameters, by SciPy's trust region method.

In each iteration SciPy decomposes the Jacobian J, a matrix with a row per sample. But the method depends on J and the
residuals r by :math:`J^T J`, :math:`J^T r` and :math:`|r|` alone. It is given a problem with the same: as many
residuals as parameters and one more, of which only the last one is not 0,

.. math:: \tilde r = (0, \ldots, 0, -|r|)^T, \qquad \tilde J = W R, \qquad R^T R = J^T J, \quad R^T c = J^T r

where W are the first columns of the Householder reflection whose last row is :math:`-c^T/|r|` and what makes its length
1: they are orthonormal, and :math:`W^T \tilde r = c`. Source of the method: Branch, Coleman & Li, SIAM J. Sci. Comput.
21 (1999) 1; of the reflection: Golub & Van Loan, Matrix Computations, 4th ed. 2013, ch. 5.1.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from scipy.optimize import least_squares

from hilserver.numerics.arrays import Floats


def minimum(
    residual: Callable[[Floats], Floats],
    jacobian: Callable[[Floats], Floats],
    start: Floats,
    bounds: tuple[Floats, Floats],
    tolerance: float,
    max_evaluations: int,
) -> tuple[Floats, float]:
    """The parameters with the least sum of squares, and this sum.

    ``tolerance``: reduction of the sum of squares by a step, as a fraction of it, below which the search ends.
    """

    @functools.lru_cache(maxsize=1)
    def kept(place: tuple[float, ...]) -> Floats:
        """The residuals: SciPy asks for derivatives where it has asked for residuals last."""
        return residual(np.array(place))

    def few(x: Floats) -> Floats:
        found = np.zeros(len(x) + 1)
        found[-1] = -np.linalg.norm(kept(tuple(x.tolist())))
        return found

    def derivatives(x: Floats) -> Floats:
        J, r = jacobian(x), kept(tuple(x.tolist()))
        return condensed(J.T @ J, J.T @ r, float(np.linalg.norm(r)))

    found = least_squares(few, start, jac=derivatives, bounds=bounds, ftol=tolerance, max_nfev=max_evaluations)
    return found.x, 2.0 * float(found.cost)


def condensed(normal: Floats, gradient: Floats, length: float) -> Floats:
    """The Jacobian of the few residuals, float64[n + 1, n], from J^T J, J^T r and the length of r."""
    norm = np.sqrt(normal.diagonal())
    norm[norm == 0.0] = 1.0  # of a parameter without influence
    squares, vectors = np.linalg.eigh(normal / np.outer(norm, norm))
    singular = np.sqrt(np.maximum(squares, 0.0))
    R = singular[:, None] * vectors.T * norm
    along = np.divide(vectors.T @ (gradient / norm), singular * length, out=np.zeros_like(norm), where=singular > 0.0)
    along /= max(np.linalg.norm(along), 1.0)  # not longer than r, however it is rounded
    rest = np.sqrt(1.0 - along @ along)
    seen = along @ R
    return np.vstack([R - np.outer(along, seen) / (1.0 + rest), -seen])
