"""The equations of motion of a mechanism, in absolute or in joint coordinates, as called by the engine."""

from __future__ import annotations

from types import ModuleType

from hilserver.mechanics import articulated, chain, closure, kinematics, planar, recursion, recursive, stroke
from hilserver.mechanics.columns import ABSOLUTE, METHOD
from hilserver.mechanics.planar import planar_motion, planar_rates, planar_settle
from hilserver.mechanics.recursive import recursive_motion, recursive_rates, recursive_settle
from hilserver.numerics.arrays import Floats, Indices

CHAIN: tuple[ModuleType, ...] = (chain, kinematics, articulated, closure, recursion)
"""Modules with the equations of motion in joint coordinates."""
CALLED: tuple[ModuleType, ...] = (stroke, planar, *CHAIN, recursive)
"""Modules with the functions that the following ones call."""


def move_mechanism(ix: Indices, val: Floats, z: Floats, d: Floats, block: int) -> None:
    """Speed of each actuator at its node, and derivative of its stroke."""
    if ix[block + METHOD] == ABSOLUTE:
        planar_motion(ix, val, z, d, block)
    else:
        recursive_motion(ix, val, z, d, block)


def push_mechanism(ix: Indices, val: Floats, z: Floats, d: Floats, block: int, held: int) -> None:
    """Write the derivatives of the states under the forces and masses at the nodes; call after ``move_mechanism``."""
    if ix[block + METHOD] == ABSOLUTE:
        planar_rates(ix, val, z, d, block, held != 0)
    else:
        recursive_rates(ix, val, z, d, block, held != 0)


def settle_mechanism(ix: Indices, val: Floats, z: Floats, d: Floats, block: int, ahead: float) -> None:
    """Correct the drift of the constraints; the next shared solution is valid ``ahead`` s from now."""
    if ix[block + METHOD] == ABSOLUTE:
        planar_settle(ix, val, z, d, block, ahead)
    else:
        recursive_settle(ix, val, z, d, block, ahead)
