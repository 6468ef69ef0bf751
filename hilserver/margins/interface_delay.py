r"""The critical delay between the motion of a virtual node and the force of the specimen that is moved with it.

The specimen, moved to the position y of the node with a delay, exerts a force on it,

.. math:: f = -e^{-s\tau}\,(m s^2 + c s + k)\,y

With position, velocity and acceleration as what acts on the specimen, this is the loop of
:class:`hilserver.margins.loop.DelayedLoop`: Z is the response of the node to a force, Y the specimen. Its equation is
of neutral type: where the loop's magnitude at high frequencies, the specimen's mass relative to that of the node, is 1
or more, any delay makes it unstable (Hale & Verduyn Lunel, Introduction to Functional Differential Equations, 1993,
sec. 9.6).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nan, pi

import numpy as np

from hilserver.circuit.analysis import Complexes, LinearModel
from hilserver.displacement.specimen import Specimen
from hilserver.margins.loop import DelayedLoop
from hilserver.numerics.arrays import Floats, Matrix

LOWEST_MODE = 3.0
"""1/s, to which time is scaled: the sweep then begins a decade below the lowest mode, where the loop is a constant."""
UNDAMPED = 1e-9
"""Damping ratio below which a motion is not damped; values nearer to 0 are numerical error."""
AT_REST = 1e-9
"""Of the fastest motion: a slower one is none."""


def critical_delay(node: LinearModel, specimen: Specimen) -> tuple[float, float]:
    """The delay of the specimen's force above which the node oscillates, s, and the frequency, Hz.

    ``node``: from the force on it, N, to its position, velocity and acceleration. No delay is critical: infinite, at no
    frequency (nan). Unstable without a delay: 0 s, at the frequency of this motion. Unstable with any delay, since the
    specimen is heavier than the node: 0 s, at an infinite frequency.
    """
    part = np.array([specimen.stiffness, specimen.damping, specimen.mass])
    heavier = part[2] * float(node.D[2, 0])
    if heavier >= 1.0:
        return 0.0, inf
    poles = _poles_with(node, part / (1.0 + heavier))
    worst = poles[np.argmax(poles.real)]
    if worst.real > UNDAMPED * np.abs(poles).max() or (
        abs(worst) > AT_REST * np.abs(poles).max() and worst.real > -UNDAMPED * abs(worst)
    ):
        return 0.0, float(abs(worst.imag)) / (2.0 * pi)
    moving = np.abs(poles)[np.abs(poles) > AT_REST * np.abs(poles).max()]
    faster = float(LOWEST_MODE / moving.min())
    of_time = np.array([1.0, faster, faster**2])
    loop = DelayedLoop(_driven(_faster(node, of_time)), _static(part / of_time), np.zeros((3, 3)), np.eye(3), (0, 1, 2))
    delay, omega = min(loop.crossings(), default=(inf, nan))
    return delay * faster, omega / faster / (2.0 * pi)


def _poles_with(node: LinearModel, part: Floats) -> Complexes:
    """Poles of the node with the specimen fixed to it, 1/s."""
    found: Complexes = np.linalg.eigvals(node.A - node.B[:, :1] @ (part @ node.C)[None, :]).astype(complex)
    return found


def growth_with(circuit: LinearModel, specimens: Sequence[Specimen]) -> float:
    """Real part of the slowest pole, 1/s, with a specimen fixed to each node.

    ``circuit``: from the forces on the nodes to position and velocity of each, one behind the other.
    """
    B, x, v = circuit.B, circuit.C[::2], circuit.C[1::2]
    m, c, k = (np.array([getattr(each, name) for each in specimens]) for name in ("mass", "damping", "stiffness"))
    held = circuit.A - B @ (k[:, None] * x + c[:, None] * v)
    return float(np.linalg.eigvals(np.linalg.solve(np.eye(len(held)) + B @ (m[:, None] * v), held)).real.max())


def _faster(node: LinearModel, of_time: Floats) -> LinearModel:
    """The same, faster; ``of_time``: by which its position, velocity and acceleration are multiplied."""
    ratio, each = float(of_time[1]), of_time[:, None]
    return LinearModel(node.A * ratio, node.B * ratio, node.C * each, node.D * each, node.states, node.scale)


def _driven(node: LinearModel) -> LinearModel:
    """The first of three inputs is the force of the specimen, against increasing position."""
    size = len(node.A)
    B, D = np.zeros((size, 3)), np.zeros((3, 3))
    B[:, 0], D[:, 0] = -node.B[:, 0], -node.D[:, 0]
    return LinearModel(node.A, B, node.C, D, node.states, node.scale)


def _static(part: Floats) -> LinearModel:
    D: Matrix = np.zeros((3, 3))
    D[0] = part
    return LinearModel(np.zeros((0, 0)), np.zeros((0, 3)), np.zeros((3, 0)), D, (), np.zeros(0))
