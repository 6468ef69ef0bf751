"""The critical delay of a virtual structure with a specimen, see :mod:`hilserver.margins.interface_delay`."""

from __future__ import annotations

import numpy as np

from hilserver.circuit.analysis import LinearModel
from hilserver.displacement.specimen import Specimen
from hilserver.hybrid.structure import Structure
from hilserver.margins import interface_delay
from hilserver.numerics.arrays import Floats


def critical_delay(structure: Structure, specimen: Specimen) -> tuple[float, float]:
    """The delay of the specimen's force above which the virtual structure oscillates, s, and the frequency, Hz.

    No delay is critical: infinite, at no frequency (nan). Unstable without a delay: 0 s, at the frequency of this
    motion. Unstable with any delay, since the specimen is heavier than the structure at the interface: 0 s, at an
    infinite frequency.
    """
    return interface_delay.critical_delay(_interface(structure), specimen)


def _interface(structure: Structure) -> LinearModel:
    """Position, velocity and acceleration of the interface under a force in the direction of increasing position."""
    motion, floors = structure.motion(), len(structure.mass)
    size = len(motion.A)
    C = np.vstack([np.eye(size)[0], np.eye(size)[floors], motion.A[floors]])
    D = np.array([[0.0], [0.0], [-motion.B[floors, 1]]])
    scale: Floats = np.concatenate([np.full(floors, 1e-3), np.full(floors, 0.1)])
    return LinearModel(motion.A, -motion.B[:, 1:], C, D, tuple(f"y{i}" for i in range(size)), scale)
