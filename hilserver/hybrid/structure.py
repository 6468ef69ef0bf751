r"""A linear virtual structure on a moving ground.

.. math:: M\ddot y + C\dot y + K y = -M_g\,\iota\,a_g - f\,e_1

y: positions relative to the ground, m; f: force of the specimen on the structure at the interface, the first position.
A structure from which a specimen has been taken out is still driven by the mass of the whole, M_g: the real specimen
stands on a floor that doesn't move.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh

from hilserver.displacement.linear import LinearMotion
from hilserver.displacement.specimen import Specimen
from hilserver.numerics.arrays import Floats, Matrix


@dataclass(frozen=True)
class Structure:
    """Mass, damping and stiffness matrix; ``driven_mass``: the mass on which the ground acceleration acts, kg."""

    mass: Matrix
    damping: Matrix
    stiffness: Matrix
    driven_mass: Matrix

    def without(self, specimen: Specimen) -> Structure:
        """The virtual part: without this specimen at the interface."""
        return self.with_specimen(Specimen(-specimen.mass, -specimen.damping, -specimen.stiffness))

    def with_specimen(self, specimen: Specimen) -> Structure:
        """The whole of this virtual part and a specimen that moves with the interface."""
        corner = np.zeros_like(self.mass)
        corner[0, 0] = 1.0
        return Structure(
            self.mass + specimen.mass * corner,
            self.damping + specimen.damping * corner,
            self.stiffness + specimen.stiffness * corner,
            self.driven_mass,
        )

    def faster(self, ratio: float) -> Structure:
        """The one that moves alike, this many times as fast."""
        squared = ratio**2
        return Structure(self.mass / squared, self.damping / ratio, self.stiffness, self.driven_mass / squared)

    def motion(self) -> LinearMotion:
        """State: positions, velocities. Inputs: ground acceleration m/s², force of the specimen N."""
        n = len(self.mass)
        A = np.block(
            [
                [np.zeros((n, n)), np.eye(n)],
                [-np.linalg.solve(self.mass, self.stiffness), -np.linalg.solve(self.mass, self.damping)],
            ]
        )
        ground, force = -self.driven_mass @ np.ones(n), -np.eye(n)[0]
        B = np.vstack([np.zeros((n, 2)), np.linalg.solve(self.mass, np.column_stack([ground, force]))])
        return LinearMotion(A, B)

    def response(self, ground: Floats, dt: float) -> Floats:
        """Positions in each tick, m, under a ground acceleration that changes linearly between the ticks."""
        step, begin, end = self.motion().ramped(dt)
        state, found = np.zeros(len(step)), np.empty((len(ground), len(self.mass)))
        drive = np.outer(ground[:-1], begin[:, 0]) + np.outer(ground[1:], end[:, 0])
        for k, push in enumerate([*drive, np.zeros(len(step))]):
            found[k] = state[: len(self.mass)]
            state = step @ state + push
        return found

    def frequencies(self) -> Floats:
        """Natural frequencies without damping, Hz."""
        found: Floats = np.sqrt(eigh(self.stiffness, self.mass, eigvals_only=True)) / (2.0 * np.pi)
        return found


def with_modal_damping(masses: Sequence[float], stiffness: Matrix, ratio: float, decimals: int = 16) -> Structure:
    """A structure of lumped masses, kg, with the same damping ratio in each of its modes.

    ``decimals``: to which the angular frequencies are rounded before the damping is calculated from them.
    """
    mass = np.diag(np.asarray(masses, dtype=float))
    squares, modes = eigh(stiffness, mass)
    omega = np.round(np.sqrt(squares), decimals)
    damping = mass @ modes @ np.diag(2.0 * ratio * omega) @ modes.T @ mass
    return Structure(mass, damping, stiffness, mass)


@dataclass(frozen=True)
class PortalFrame:
    """A plane frame of equal storeys and bays with rigid floors: its columns are hinged at the base.

    ``youngs_modulus`` Pa; ``column_inertia``, ``beam_inertia``: second moments of area, m^4; ``height`` of a storey and
    ``width`` of a bay, m. Lengths of columns and beams do not change.
    """

    youngs_modulus: float
    column_inertia: float
    beam_inertia: float
    height: float
    width: float
    storeys: int
    bays: int

    def stiffness(self) -> Matrix:
        """Stiffness of the floors' positions, N/m, with the rotations of all joints condensed out (Guyan 1965)."""
        floors, lines = self.storeys, self.bays + 1
        size = floors + (floors + 1) * lines
        whole = np.zeros((size, size))
        column = beam_stiffness(self.youngs_modulus * self.column_inertia, self.height)
        beam = beam_stiffness(self.youngs_modulus * self.beam_inertia, self.width)[np.ix_([1, 3], [1, 3])]
        for floor in range(floors + 1):
            joints = floors + floor * lines + np.arange(lines)
            for joint in joints[:-1] if floor else ():
                whole[np.ix_([joint, joint + 1], [joint, joint + 1])] += beam
            for joint in joints if floor < floors else ():
                moving = slice(1, None) if floor == 0 else slice(None)  # the base does not move
                ends = np.array([floor - 1, joint, floor, joint + lines])[moving]
                whole[np.ix_(ends, ends)] += column[moving, moving]
        coupling, joints_only = whole[floors:, :floors], whole[floors:, floors:]
        condensed: Matrix = whole[:floors, :floors] - coupling.T @ np.linalg.solve(joints_only, coupling)
        return condensed


def beam_stiffness(EI: float, length: float) -> Matrix:
    """Stiffness of an Euler-Bernoulli beam: deflection and rotation at its start, then at its end; N, m."""
    shear, moment = 12.0 * EI / length**3, 6.0 * EI / length**2
    near, far = 4.0 * EI / length, 2.0 * EI / length
    return np.array(
        [
            [shear, moment, -shear, moment],
            [moment, near, -moment, far],
            [-shear, -moment, shear, -moment],
            [moment, far, -moment, near],
        ]
    )
