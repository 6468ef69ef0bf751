"""The linearised loop of virtual circuit, bridge and machine, and the delays at which it begins to oscillate.

See :mod:`hilserver.margins.delay` for the equations.
"""

from __future__ import annotations

from cmath import phase
from collections.abc import Iterator
from dataclasses import dataclass
from math import pi

import numpy as np

from hilserver.circuit.analysis import Complexes, LinearModel
from hilserver.numerics.arrays import Floats, Integers

LOWEST, HIGHEST, GRID = 0.3, 2e4, 400
"""Range of the frequency sweep, 1/s, and its points."""
AROUND, NARROWEST = 40, 1e-4
"""Points that are added on either side of a resonance, and its least width, as a fraction of its frequency."""
ITERATIONS, PRECISION = 60, 1e-10
"""Of the search for a frequency between two of them, at most; and its last relative change."""
_TINY = 1e-300
"""Magnitude that stands for 0, of which there is no logarithm."""


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
        """Eigenvalues of the loop without its delay, the largest first: complex[len(omega), driven ports].

        In the order of its factors in which the product is the smaller matrix; its other eigenvalues are 0.
        """
        Z, Y = self.Z.response(omega), self.Y.response(omega)
        driven = np.linalg.solve(np.eye(len(self.K)) - Z @ self.K, Z @ self.R)
        found = np.linalg.eigvals((Y - self.K)[:, list(self.driven)] @ driven)
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
        omega = self._frequencies()
        larger = np.abs(self.eigenvalues(omega)) > 1.0
        before, which = np.nonzero(larger[:-1] != larger[1:])
        if not len(which):
            return
        at = self._crossed(omega[before], omega[before + 1], which)
        found = self.eigenvalues(at)[np.arange(len(at)), which]
        for frequency, eigenvalue in zip(at.tolist(), found.tolist(), strict=True):
            yield phase(eigenvalue) % (2.0 * pi) / frequency, frequency

    def _crossed(self, low: Floats, high: Floats, which: Integers) -> Floats:
        """The frequencies between ``low`` and ``high`` at which these eigenvalues have the magnitude 1, all at once.

        By regula falsi on the logarithm of the magnitude; where the same end stays twice, its value is halved (the
        Illinois algorithm: Dowell & Jarratt, BIT 11 (1971) 168). (Not by SciPy, whose solvers take 40 MB and 0.4 s to
        load.)
        """
        everyone = np.arange(len(low))

        def size(omega: Floats) -> Floats:
            found: Floats = np.log(np.maximum(np.abs(self.eigenvalues(omega))[everyone, which], _TINY))
            return found

        at_low, at_high, before, side = size(low), size(high), low, np.zeros(len(low))
        for _ in range(ITERATIONS):
            between = (low * at_high - high * at_low) / (at_high - at_low)
            found = size(between)
            if np.all(np.abs(between - before) <= PRECISION * between):
                return between
            now = np.where(np.sign(found) == np.sign(at_low), 1.0, -1.0)  # the lower end moves, or the upper one
            share = np.where(now == side, 0.5, 1.0)
            at_low, at_high = np.where(now > 0.0, (found, share * at_high), (share * at_low, found))
            low, high = np.where(now > 0.0, (between, high), (low, between))
            before, side = between, now
        return before

    def _frequencies(self) -> Floats:
        poles = np.concatenate([self.Z.poles(), self.Y.poles()])
        return around_resonances(poles, np.geomspace(LOWEST, HIGHEST, GRID), NARROWEST, np.geomspace(0.01, 1e3, AROUND))


def around_resonances(poles: Complexes, grid: Floats, narrowest: float, widths: Floats) -> Floats:
    """A grid of frequencies, 1/s, with more around each resonance within its range, in order.

    They are these ``widths`` away from it, in units of its decay rate, or of ``narrowest`` times its frequency if that
    is more.
    """
    found = [grid]
    for pole in poles[poles.imag > 0.0]:
        away = max(-pole.real, narrowest * abs(pole)) * widths
        around = np.concatenate([abs(pole) - away, abs(pole) + away])
        found.append(around[(around > grid[0]) & (around < grid[-1])])
    return np.sort(np.concatenate(found))
