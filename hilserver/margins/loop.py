"""The linearised loop of virtual circuit, bridge and machine, and the delays at which it begins to oscillate.

See :mod:`hilserver.margins.delay` for the equations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import pi

import numpy as np

from hilserver.circuit.analysis import Complexes, LinearModel
from hilserver.numerics.arrays import Floats

LOWEST, HIGHEST, GRID = 0.3, 2e4, 400
"""Range of the frequency sweep, 1/s, and its points; more are added around each resonance."""


@dataclass(frozen=True)
class DelayedLoop:
    """The linearised loop at one operating point; ports in the order of K's rows, driven ports in that of R's columns.

    ``Z``: flows into the ports -> their pressures; ``Y``: their pressures -> the virtual flows into them.
    """

    Z: LinearModel
    Y: LinearModel
    K: Floats
    R: Floats
    driven: tuple[int, ...]

    def eigenvalues(self, omega: Floats) -> Complexes:
        """Eigenvalues of the loop without its delay, the largest first: complex[len(omega), ports]."""
        Z, Y = self.Z.response(omega), self.Y.response(omega)
        delayed = self.R @ (Y - self.K)[:, list(self.driven)]
        found = np.linalg.eigvals(np.linalg.solve(np.eye(len(self.K)) - Z @ self.K, Z @ delayed))
        order = np.argsort(-np.abs(found), axis=1)
        ordered: Complexes = np.take_along_axis(found.astype(complex), order, axis=1)
        return ordered

    def closed(self) -> LinearModel:
        """The virtual circuit connected directly to the machine: from flows into the ports to their pressures."""
        Z, Y = self.Z, self.Y
        A = np.block([[Z.A + Z.B @ Y.D @ Z.C, Z.B @ Y.C], [Y.B @ Z.C, Y.A]])
        B = np.vstack([Z.B, np.zeros((len(Y.A), Z.B.shape[1]))])
        C = np.hstack([Z.C, np.zeros((len(Z.C), len(Y.A)))])
        return LinearModel(A, B, C, Z.D, Z.states + Y.states, np.concatenate([Z.scale, Y.scale]))

    def crossings(self) -> Iterator[tuple[float, float]]:
        """(delay in s, omega in 1/s) of every root on the imaginary axis, each with its shortest delay."""
        from scipy.optimize import brentq  # here: the server imports this module, but never calculates crossings itself

        omega = self._frequencies()
        sizes = np.abs(self.eigenvalues(omega)) - 1.0
        for k in range(sizes.shape[1]):
            for i in np.flatnonzero(sizes[:-1, k] * sizes[1:, k] < 0.0):
                at = brentq(self._size(k), omega[i], omega[i + 1], rtol=1e-9)
                angle = float(np.angle(self.eigenvalues(np.array([at]))[0, k])) % (2.0 * pi)
                yield angle / at, at

    def _size(self, k: int) -> Callable[[float], float]:
        return lambda omega: float(np.abs(self.eigenvalues(np.array([omega]))[0, k])) - 1.0

    def _frequencies(self) -> Floats:
        """A logarithmic grid, refined around each resonance."""
        found = [np.geomspace(LOWEST, HIGHEST, GRID)]
        poles = np.concatenate([self.Z.poles(), self.Y.poles()])
        for pole in poles[poles.imag > 0.0]:
            away = max(-pole.real, 1e-4 * abs(pole)) * np.geomspace(0.01, 1e3, 40)
            around = np.concatenate([abs(pole) - away, abs(pole) + away])
            found.append(around[(around > LOWEST) & (around < HIGHEST)])
        return np.unique(np.concatenate(found))
