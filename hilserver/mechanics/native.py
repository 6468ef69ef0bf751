"""The equations of motion of mechanisms as separate machine code, which the engine calls by address.

Each compiled function of the engine contains everything that it calls: linked in the usual way, the mechanisms would be
compiled a dozen times. So their three entry points are compiled once, as C functions, which the engine calls by symbol.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from numba import carray as carray  # type: ignore[attr-defined]
from numba import types

from hilserver.mechanics import articulated, chain, closure, kinematics, planar, recursion, recursive
from hilserver.mechanics.columns import ABSOLUTE, METHOD
from hilserver.mechanics.planar import planar_motion, planar_rates, planar_settle
from hilserver.mechanics.recursive import recursive_motion, recursive_rates, recursive_settle

ANY = 1 << 40
"""Nominal length of an array, which is never checked."""
_INDEX, _NUMBERS = (types.CPointer(kind) for kind in (types.uint64, types.float64))  # type: ignore[no-untyped-call]
_ARRAYS = (_INDEX, _NUMBERS, _NUMBERS, _NUMBERS, types.int64)
SIGNATURES: dict[str, Any] = {
    "move_mechanism": types.void(*_ARRAYS),
    "push_mechanism": types.void(*_ARRAYS, types.int64),
    "settle_mechanism": types.void(*_ARRAYS, types.float64),
}
"""The entry points by name: index, numbers, values, derivatives with scratch space, block of a mechanism."""
CHAIN: tuple[ModuleType, ...] = (chain, kinematics, articulated, closure, recursion)
"""Modules with the equations of motion in joint coordinates."""
CALLED: tuple[ModuleType, ...] = (planar, *CHAIN, recursive)
"""Modules with the functions that the entry points call."""


def move_mechanism(ix: Any, val: Any, z: Any, d: Any, block: int) -> None:
    """Write position and speed of each actuator to its node."""
    if ix[block + METHOD] == ABSOLUTE:
        planar_motion(carray(ix, ANY), carray(val, ANY), carray(z, ANY), carray(d, ANY), block)
    else:
        recursive_motion(carray(ix, ANY), carray(val, ANY), carray(z, ANY), carray(d, ANY), block)


def push_mechanism(ix: Any, val: Any, z: Any, d: Any, block: int, held: int) -> None:
    """Derivatives of the states under the forces and masses at the nodes; after ``move_mechanism``."""
    if ix[block + METHOD] == ABSOLUTE:
        planar_rates(carray(ix, ANY), carray(val, ANY), carray(z, ANY), carray(d, ANY), block, held != 0)
    else:
        recursive_rates(carray(ix, ANY), carray(val, ANY), carray(z, ANY), carray(d, ANY), block, held != 0)


def settle_mechanism(ix: Any, val: Any, z: Any, d: Any, block: int, ahead: float) -> None:
    """Correct the drift of the constraints; the next shared solution is valid ``ahead`` s from now."""
    if ix[block + METHOD] == ABSOLUTE:
        planar_settle(carray(ix, ANY), carray(val, ANY), carray(z, ANY), carray(d, ANY), block, ahead)
    else:
        recursive_settle(carray(ix, ANY), carray(val, ANY), carray(z, ANY), carray(d, ANY), block, ahead)
