"""A linear-quadratic regulator with one input, in plain arithmetic: the same on all machines, to the last bit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hilserver.compiler import standard_program
from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats, Matrix
from hilserver.numerics.riccati import spare_cells

UNSETTLED = 1e-6
"""Relative error of the Riccati equation of a regulator that does not exist: its cost grows without end."""


class Regulator(NamedTuple):
    """A regulator u = -gains z, for which ``output`` z is to be small.

    ``closed``: the transition with it; ``reach``: its gains for a change of the costate.
    """

    gains: Floats
    closed: Matrix
    reach: Floats
    output: Floats

    def preview(self, ticks: int) -> Floats:
        """Gains for values that the output is to have instead of 0, from one tick from now on.

        They are those of a tracking problem whose future is known: the costate is followed backwards (Anderson & Moore,
        Optimal Control, 1990, ch. 4).
        """
        costate, found = self.output.copy(), np.zeros(ticks)
        for tick in range(ticks):
            found[tick] = sum_of_products(self.reach[None, :], costate[:, None])[0, 0]
            costate = sum_of_products(self.closed.T, costate[:, None])[:, 0]
        return found


def regulator_for(A: Matrix, B: Matrix, output: Floats, change: float) -> Regulator:
    """The regulator that minimises the sum of output² + (input / change)² of z(k+1) = A z(k) + B u(k).

    The regulator is the dual of the Kalman filter of the transposed system (Anderson & Moore, Optimal Control, 1990):
    :mod:`hilserver.numerics.riccati` solves the equation of both, by doubling. The methods that sort eigenvalues, as
    SciPy's, fail where those of regulator and adjoint are close to each other, as with a lightly damped structure.
    Raises HilserverError if the sum is infinite with any input.
    """
    n = len(A)
    step, seen, weight = np.ascontiguousarray(A.T), np.ascontiguousarray(B.T), np.outer(output, output)
    gain, after = np.zeros((n, 1)), np.zeros((n, n))
    each = np.ones(1, dtype=np.int64)
    with np.errstate(over="ignore", invalid="ignore"):  # of a sum that grows without end
        standard_program().stationary(step, weight, seen, np.array([change**-2]), each, gain, after, _spare(n))
        before = sum_of_products(step, sum_of_products(after, A)) + weight
        settled = _is_settled(before, after, B, change)
    if not settled:
        raise HilserverError("No command makes the actuator follow this structure: it moves without end by itself.")
    gains: Floats = sum_of_products(gain.T, A)[0]
    along = sum_of_products(before, B)
    reach: Floats = B[:, 0] / (change**-2 + sum_of_products(B.T, along)[0, 0])
    return Regulator(gains, A - sum_of_products(B, gains[None, :]), reach, output)


def _spare(n: int) -> Floats:
    return np.zeros(spare_cells(n))


def _is_settled(before: Matrix, after: Matrix, B: Matrix, change: float) -> bool:
    """Whether the cost solves the Riccati equation: ``after`` is what is left of ``before`` by the best input."""
    along = before @ B
    left = before - along @ along.T / (change**-2 + float((B.T @ along)[0, 0]))
    error = np.abs(left - after).max()
    return bool(np.isfinite(error) and error <= UNSETTLED * np.abs(before).max())


def sum_of_products(a: Matrix, b: Matrix) -> Matrix:
    """The product of two matrices; libraries of linear algebra order the sum by the processor."""
    found = np.zeros((a.shape[0], b.shape[1]))
    for k in range(a.shape[1]):
        found += a[:, k, None] * b[None, k]
    return found
