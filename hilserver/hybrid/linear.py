"""Linear systems, from continuous time to one tick with an input that is held or changes linearly."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import expm

from hilserver.numerics.arrays import Floats, Matrix


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
        whole = expm(np.vstack([np.hstack([self.A, self.B]), np.zeros((inputs, n + inputs))]) * dt)
        return LinearMotion(whole[:n, :n], whole[:n, n:])

    def ramped(self, dt: float) -> tuple[Matrix, Matrix, Matrix]:
        """The same for an input that changes linearly: transition, and the parts of the inputs at begin and end."""
        n, inputs = self.B.shape
        none = np.zeros((n, inputs))
        ramp = np.hstack([np.zeros((inputs, n)), np.zeros((inputs, inputs)), np.eye(inputs)])
        rows = [np.hstack([self.A * dt, self.B * dt, none]), ramp, np.zeros((inputs, n + 2 * inputs))]
        whole = expm(np.vstack(rows))
        end = whole[:n, n + inputs :]
        return whole[:n, :n], whole[:n, n : n + inputs] - end, end
