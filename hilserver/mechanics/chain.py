"""A mechanism in joint coordinates as tables: a tree of links, and the rows that close its loops.

A *link* is a body with one degree of freedom against its parent; link 0 is the ground. Joints of more freedom are
several links, of which only the last has mass: a universal joint is two revolute links, a spherical joint three links
whose rotation is one unit quaternion.

Points, directions and moments of inertia are those of the drawing: each link's frame coincides with the ground's frame
when all coordinates are zero. A joint is therefore one point and one set of axes for both links that it connects.

The tables are in three arrays, as those of a circuit, of which a mechanism may be part: indices, numbers (all SI), and
scratch space. The constants below give the layout of their rows, each vector by its first column (decision 0019).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hilserver.numerics.arrays import Floats, Indices, signed

# kinds of links
REVOLUTE, PRISMATIC, BALL_X, BALL_Y, BALL_Z = 0, 1, 2, 3, 4
# kinds of rows: a point of both links stays together along FIRST; FIRST and SECOND stay perpendicular to each other;
# the distance of two pins, the position of a linear actuator
POINT, ANGLE, DISTANCE = 0, 1, 2

# indices: number of each; then the links, the rotary actuators (the link that each one drives), the rows (first those
# that close the loops, then the linear actuators); then the rows that act through each link, from LINK_FELT of a link
# to that of the next
CHAIN_HEAD = 5
LINK_PARENT, LINK_KIND, LINK_PLACE, LINK_FELT, LINK_ENTRIES = 0, 1, 2, 3, 4
"""PLACE: index in q of the link's coordinate, or of the quaternion of a BALL."""
ROW_KIND, ROW_LINKS, ROW_ENTRIES = 0, 1, 3

# numbers
GRAVITY, CHAIN_ALPHA, CHAIN_BETA, TOLERANCE, COMMON_NUMBERS = 0, 3, 4, 5, 6
"""alpha, beta in 1/s (Baumgarte), and the gap above which a loop is corrected, in m or as a sine."""
LINK_AXIS, LINK_POINT, LINK_CENTRE, LINK_MASS, LINK_TENSOR, LINK_NUMBERS = 0, 3, 6, 9, 10, 19
"""AXIS: unit vector, for BALL_X, Y, Z that axis of the drawing; POINT: on it; TENSOR: about the centre of mass."""
ROW_POINT, ROW_FIRST, ROW_SECOND, ROW_ZERO, ROW_NUMBERS = 0, 3, 6, 9, 10
"""FIRST: a direction in the first link, or a pin; SECOND: the same in the second link; ZERO: distance at position 0."""

# scratch of a link; spatial vectors in world axes, velocities and moments about the world's origin
ROTATION, ORIGIN = 0, 9
"""Rotation matrix from the link's axes to the world's, row by row; origin of the link's frame."""
FREEDOM, VELOCITY, BIAS_ACCELERATION = 12, 18, 24
"""S: velocity per unit of the link's own speed; velocity; acceleration relative to the parent at a constant speed."""
TORQUE, ARMATURE = 30, 31
"""Torque of a rotary actuator along the link's degree of freedom, and the moment of inertia at its shaft."""
INERTIA, BIAS_FORCE, RESISTANCE, OWN_INERTIA, DRIVE = 32, 68, 74, 80, 81
"""Inertia of the link and its force at zero acceleration, after the reduction those of all links attached to it; then
U = I·S, D = S·U, and the force along its own degree of freedom."""
ACCELERATION, IMPULSE, MOTION = 82, 88, 94
"""The ground's acceleration is minus gravity, which replaces weights. IMPULSE: change of velocity by impulses."""
SHARE, REACTION = 6, 7
"""Per link and row: load on the link per unit of the row's multiplier, and its part along the link's freedom."""
ROW_T, ROW_T_RATE, ROW_GAP, ROW_GAP_RATE = 0, 6, 12, 13
"""T: load on the second link per unit multiplier, and derivative of the gap's rate with respect to its velocity. GAP:
the closure error, or an actuator's position."""
ROW_FREE, ROW_REQUIRED, ROW_MULTIPLIER, ROW_SCALE, ROW_ORDER = 14, 15, 16, 17, 18
"""FREE: acceleration of the gap without multipliers; REQUIRED: what they must add."""
ROW_EFFORT, ROW_MASS, CLOSURE = 19, 20, 21
"""Of an actuator: its force, and the mass that it moves (a piston)."""


class Chain(NamedTuple):
    """Start of the tables of a mechanism in its arrays, and their numbers of rows."""

    ix: Indices
    val: Floats
    d: Floats
    n: int
    """Links, including the ground; the number of speeds is one less."""
    n_coordinates: int
    n_closures: int
    n_linear: int
    n_rotary: int
    n_rows: int
    """Closures and linear actuators."""
    links: int
    rotaries: int
    rows: int
    felt: int
    common: int
    link: int
    row: int
    motion: int
    reaction: int
    closure: int
    flexibility: int
    """Rows x rows: acceleration of a row's gap per unit of a multiplier."""
    factors: int
    change: int
    """As long as the state y."""
    stages: int
    """Three times that, for an integrator."""


def chain_at(ix: Indices, entry: int, val: Floats, number: int, d: Floats, scratch: int) -> Chain:
    """The chain whose tables begin at these indices."""
    n, n_coordinates, n_closures = signed(ix, entry), signed(ix, entry + 1), signed(ix, entry + 2)
    n_linear, n_rotary = signed(ix, entry + 3), signed(ix, entry + 4)
    n_rows = n_closures + n_linear
    links = entry + CHAIN_HEAD
    rotaries = links + LINK_ENTRIES * (n + 1)
    rows = rotaries + n_rotary
    felt = rows + ROW_ENTRIES * n_rows
    link = number + COMMON_NUMBERS
    row = link + LINK_NUMBERS * n
    reaction = scratch + MOTION * n
    closure = reaction + REACTION * n * n_rows
    flexibility = closure + CLOSURE * n_rows
    factors = flexibility + n_rows * n_rows
    change = factors + n_rows * n_rows
    stages = change + n_coordinates + n - 1
    sizes = (n, n_coordinates, n_closures, n_linear, n_rotary, n_rows)
    return Chain(
        ix,
        val,
        d,
        *sizes,
        links,
        rotaries,
        rows,
        felt,
        number,
        link,
        row,
        scratch,
        reaction,
        closure,
        flexibility,
        factors,
        change,
        stages,
    )


def chain_scratch(n: int, n_coordinates: int, n_rows: int) -> int:
    """Length of the scratch space."""
    return MOTION * n + REACTION * n * n_rows + CLOSURE * n_rows + 2 * n_rows * n_rows + 4 * (n_coordinates + n - 1)


def chain_alone(ix: Indices, val: Floats) -> Chain:
    """A copy of the chain in separate arrays, with new scratch space."""
    return chain_at(
        ix, 0, val, 0, np.zeros(chain_scratch(signed(ix, 0), signed(ix, 1), signed(ix, 2) + signed(ix, 3))), 0
    )
