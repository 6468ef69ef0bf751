"""Linear systems, from continuous time to one tick with an input that is held or changes linearly."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hilserver.compiler import standard_program
from hilserver.numerics.arrays import Floats, Matrix
from hilserver.numerics.riccati import spare_cells


def exponential_of(matrix: Matrix) -> Matrix:
    """The exponential of a matrix, in plain arithmetic: the same on all machines, to the last bit.

    Its states are first scaled by powers of two such that its entries are of similar size: an exponential is squared as
    often as it is large, each time with a rounding error.
    """
    from scipy.linalg import matrix_balance  # slow to load, and not needed by a rig without actuators

    n = len(matrix)
    balanced, (scale, _) = matrix_balance(matrix, permute=False, separate=True)
    found, nothing = np.zeros((n, n)), np.zeros((n, n))
    motion = np.ascontiguousarray(balanced, dtype=float)
    standard_program().discretise(motion, nothing, 1.0, found, np.zeros((n, n)), np.zeros(spare_cells(n)))
    whole: Matrix = found * scale[:, None] / scale
    return whole


class LinearMotion(NamedTuple):
    """dz/dt = A z + B u, in SI units or in those of `scaled`."""

    A: Matrix
    B: Matrix

    def scaled(self, scale: Floats) -> LinearMotion:
        """The same with each state divided by its scale."""
        return LinearMotion(self.A * scale / scale[:, None], self.B / scale[:, None])

    def held(self, dt: float) -> LinearMotion:
        """The transition over ``dt`` s, exact for an input that is held: z(k+1) = A z(k) + B u(k)."""
        n, inputs = self.B.shape
        whole = exponential_of(np.vstack([np.hstack([self.A, self.B]), np.zeros((inputs, n + inputs))]) * dt)
        return LinearMotion(whole[:n, :n], whole[:n, n:])

    def ramped(self, dt: float) -> tuple[Matrix, Matrix, Matrix]:
        """The same for an input that changes linearly: transition, and the parts of the inputs at begin and end."""
        n, inputs = self.B.shape
        none = np.zeros((n, inputs))
        ramp = np.hstack([np.zeros((inputs, n)), np.zeros((inputs, inputs)), np.eye(inputs)])
        rows = [np.hstack([self.A * dt, self.B * dt, none]), ramp, np.zeros((inputs, n + 2 * inputs))]
        whole = exponential_of(np.vstack(rows))
        end = whole[:n, n + inputs :]
        return whole[:n, :n], whole[:n, n : n + inputs] - end, end
