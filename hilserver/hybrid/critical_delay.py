r"""The critical delay of a virtual structure with a specimen: `hilserver check`'s computation for a displacement.

The specimen, moved to the position of the structure with a delay, exerts a force on it,

.. math:: f = e^{-s\tau}\,(m s^2 + c s + k)\,y

With position, velocity and acceleration as what acts on the specimen, this is the loop of
:class:`hilserver.margins.loop.DelayedLoop`: Z is the structure's response to the force, Y the specimen. Its equation is
of neutral type: where the loop's magnitude at high frequencies, the specimen's mass relative to the structure's, is 1
or more, any delay makes it unstable (Hale & Verduyn Lunel, Introduction to Functional Differential Equations, 1993,
sec. 9.6).
"""

from __future__ import annotations

from math import inf, nan, pi

import numpy as np

from hilserver.circuit.analysis import LinearModel
from hilserver.displacement.specimen import Specimen
from hilserver.hybrid.structure import Structure
from hilserver.margins.loop import DelayedLoop
from hilserver.numerics.arrays import Floats, Matrix

LOWEST_MODE = 3.0
"""1/s, to which time is scaled: the sweep then begins a decade below the lowest mode, where the loop is a constant."""
UNDAMPED = 1e-9
"""Damping ratio below which a motion is not damped; values nearer to 0 are numerical error."""


def critical_delay(structure: Structure, specimen: Specimen) -> tuple[float, float]:
    """The delay of the specimen's force above which the virtual structure oscillates, s, and the frequency, Hz.

    No delay is critical: infinite, at no frequency (nan). Unstable without a delay: 0 s, at the frequency of this
    motion. Unstable with any delay, since the specimen is heavier than the structure at the interface: 0 s, at an
    infinite frequency.
    """
    if specimen.mass * np.linalg.inv(structure.mass)[0, 0] >= 1.0:
        return 0.0, inf
    whole = structure.with_specimen(specimen).motion().A
    poles = np.linalg.eigvals(whole)
    worst = poles[np.argmax(poles.real)]
    if worst.real > -UNDAMPED * abs(worst):
        return 0.0, float(abs(worst.imag)) / (2.0 * pi)
    faster = float(LOWEST_MODE / np.abs(poles).min())
    structure, specimen = structure.faster(faster), specimen.faster(faster)
    specimen_alone = _static(np.array([[specimen.stiffness, specimen.damping, specimen.mass], [0.0] * 3, [0.0] * 3]))
    loop = DelayedLoop(_moved(structure), specimen_alone, np.zeros((3, 3)), np.eye(3), (0, 1, 2))
    delay, omega = min(loop.crossings(), default=(inf, nan))
    return delay * faster, omega / faster / (2.0 * pi)


def _moved(structure: Structure) -> LinearModel:
    """Position, velocity and acceleration of the interface under the first of three inputs, the specimen's force."""
    motion, floors = structure.motion(), len(structure.mass)
    size = len(motion.A)
    B, D = np.zeros((size, 3)), np.zeros((3, 3))
    B[:, 0], D[2, 0] = motion.B[:, 1], motion.B[floors, 1]
    C = np.vstack([np.eye(size)[0], np.eye(size)[floors], motion.A[floors]])
    scale: Floats = np.concatenate([np.full(floors, 1e-3), np.full(floors, 0.1)])
    return LinearModel(motion.A, B, C, D, tuple(f"y{i}" for i in range(size)), scale)


def _static(D: Matrix) -> LinearModel:
    return LinearModel(np.zeros((0, 0)), np.zeros((0, 3)), np.zeros((3, 0)), D, (), np.zeros(0))
