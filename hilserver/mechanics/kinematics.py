"""Kinematics of a chain: positions and velocities of the links, outward from the ground, and the gaps of the rows.

Source: Featherstone, Rigid Body Dynamics Algorithms, Springer 2008, ch. 2.
"""

from __future__ import annotations

from math import sqrt

from hilserver.mechanics.chain import (
    ACCELERATION,
    ANGLE,
    BALL_X,
    BALL_Z,
    BIAS_ACCELERATION,
    CLOSURE,
    FREEDOM,
    GRAVITY,
    IMPULSE,
    LINK_AXIS,
    LINK_ENTRIES,
    LINK_KIND,
    LINK_NUMBERS,
    LINK_PARENT,
    LINK_PLACE,
    LINK_POINT,
    MOTION,
    ORIGIN,
    POINT,
    PRISMATIC,
    REVOLUTE,
    ROTATION,
    ROW_ENTRIES,
    ROW_FIRST,
    ROW_GAP,
    ROW_GAP_RATE,
    ROW_KIND,
    ROW_LINKS,
    ROW_NUMBERS,
    ROW_POINT,
    ROW_SECOND,
    ROW_T,
    ROW_T_RATE,
    ROW_ZERO,
    VELOCITY,
    Chain,
)
from hilserver.numerics.arrays import Floats, signed
from hilserver.numerics.spatial import (
    Vector,
    axes_about,
    axes_of_quaternion,
    cross,
    dot,
    minus,
    normalise_quaternion,
    plus,
    quaternion_rate,
    store,
    store_columns,
    store_pair,
    times,
    turned,
    vector,
)

NO_MOTION = (0.0, 0.0, 0.0)


def place_links(c: Chain, q: Floats, begin: int, end: int) -> None:
    """Rotation and origin of each link's frame, and S: a rotation about an axis, or a translation along it."""
    d, val = c.d, c.val
    place_ground(c)
    for i in range(begin, end):
        entry, link, m = c.links + LINK_ENTRIES * i, c.link + LINK_NUMBERS * i, c.motion + MOTION * i
        parent = c.motion + MOTION * signed(c.ix, entry + LINK_PARENT)
        kind, place = c.ix[entry + LINK_KIND], signed(c.ix, entry + LINK_PLACE)
        x, y, z = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
        if kind == REVOLUTE:
            x, y, z = axes_about(vector(val, link + LINK_AXIS), q[place])
        elif kind == BALL_X:
            x, y, z = axes_of_quaternion(q[place], q[place + 1], q[place + 2], q[place + 3])
        R = parent + ROTATION
        store_columns(d, m + ROTATION, turned(d, R, x), turned(d, R, y), turned(d, R, z))
        axis = turned(d, m + ROTATION, vector(val, link + LINK_AXIS))
        joint = in_world(c, parent, vector(val, link + LINK_POINT))
        if kind == PRISMATIC:
            joint = plus(joint, times(q[place], axis))
            store_pair(d, m + FREEDOM, NO_MOTION, axis)
        else:
            store_pair(d, m + FREEDOM, axis, cross(joint, axis))
        store(d, m + ORIGIN, minus(joint, turned(d, m + ROTATION, vector(val, link + LINK_POINT))))


def place_ground(c: Chain) -> None:
    """Ground at rest; its upward acceleration replaces the weight of every body."""
    ground = c.motion
    store_columns(c.d, ground + ROTATION, (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    store(c.d, ground + ORIGIN, NO_MOTION)
    store_pair(c.d, ground + VELOCITY, NO_MOTION, NO_MOTION)
    store_pair(c.d, ground + ACCELERATION, NO_MOTION, times(-1.0, vector(c.val, c.common + GRAVITY)))
    store_pair(c.d, ground + IMPULSE, NO_MOTION, NO_MOTION)


def in_world(c: Chain, m: int, point: Vector) -> Vector:
    """Present position of a point drawn at ``point``, of the link whose motion is at ``m``."""
    return plus(vector(c.d, m + ORIGIN), turned(c.d, m + ROTATION, point))


def move_links(c: Chain, u: Floats, begin: int, end: int) -> None:
    """Velocities, and the accelerations that they cause: V × (S·u)."""
    d = c.d
    for i in range(begin, end):
        entry, m = c.links + LINK_ENTRIES * i, c.motion + MOTION * i
        k, kind = signed(c.ix, entry + LINK_PARENT), c.ix[entry + LINK_KIND]
        for a in range(6):
            d[m + VELOCITY + a] = d[c.motion + MOTION * k + VELOCITY + a] + u[i - 1] * d[m + FREEDOM + a]
            d[m + BIAS_ACCELERATION + a] = 0.0
        if kind == BALL_Z:  # of all three links: their axes turn with the last one
            k = signed(c.ix, c.links + LINK_ENTRIES * (k - 1) + LINK_PARENT)
        if kind in (REVOLUTE, PRISMATIC, BALL_Z):
            before = c.motion + MOTION * k + VELOCITY
            w, v = vector(d, before), vector(d, before + 3)
            turn, shift = vector(d, m + VELOCITY), vector(d, m + VELOCITY + 3)
            store_pair(d, m + BIAS_ACCELERATION, cross(w, turn), plus(cross(w, shift), cross(v, turn)))


def velocity_at(c: Chain, m: int, place: Vector) -> Vector:
    """Velocity of the point at ``place``, of the link whose motion is at ``m``."""
    return plus(vector(c.d, m + VELOCITY + 3), cross(vector(c.d, m + VELOCITY), place))


def coordinate_rates(c: Chain, q: Floats, u: Floats, rate: Floats, begin: int, end: int) -> None:
    """Derivatives of the coordinates from the speeds."""
    for i in range(begin, end):
        entry = c.links + LINK_ENTRIES * i
        kind, place = c.ix[entry + LINK_KIND], signed(c.ix, entry + LINK_PLACE)
        if kind == BALL_X:
            quaternion_rate(q, place, (u[i - 1], u[i], u[i + 1]), rate)
        elif kind in (REVOLUTE, PRISMATIC):
            rate[place] = u[i - 1]


def normalise_chain(c: Chain, q: Floats, begin: int, end: int) -> None:
    """Normalise the quaternions in place."""
    for i in range(begin, end):
        entry = c.links + LINK_ENTRIES * i
        if c.ix[entry + LINK_KIND] == BALL_X:
            normalise_quaternion(q, signed(c.ix, entry + LINK_PLACE))


def measure_rows(c: Chain, begin: int, end: int) -> None:
    """Gap of each row (of an actuator: its position), rate of the gap, and direction of the reaction.

    gap' = T·(V_second - V_first), gap'' = T·(A_second - A_first) + T'·(V_second - V_first).
    POINT: gap = n·(r_second - r_first), in m; ANGLE: gap = n·a, a sine; DISTANCE: that of r_second - r_first.
    """
    d, val = c.d, c.val
    for r in range(begin, end):
        entry, number, row = c.rows + ROW_ENTRIES * r, c.row + ROW_NUMBERS * r, c.closure + CLOSURE * r
        first = c.motion + MOTION * signed(c.ix, entry + ROW_LINKS)
        second = c.motion + MOTION * signed(c.ix, entry + ROW_LINKS + 1)
        if c.ix[entry + ROW_KIND] == ANGLE:
            n = turned(d, first + ROTATION, vector(val, number + ROW_FIRST))
            a = turned(d, second + ROTATION, vector(val, number + ROW_SECOND))
            n_rate, a_rate = cross(vector(d, first + VELOCITY), n), cross(vector(d, second + VELOCITY), a)
            d[row + ROW_GAP] = dot(n, a)
            store_pair(d, row + ROW_T, cross(a, n), NO_MOTION)
            store_pair(d, row + ROW_T_RATE, plus(cross(a_rate, n), cross(a, n_rate)), NO_MOTION)
        else:
            measure_distance(c, entry, number, row, first, second)
        d[row + ROW_GAP_RATE] = 0.0
        for k in range(6):
            d[row + ROW_GAP_RATE] += d[row + ROW_T + k] * (d[second + VELOCITY + k] - d[first + VELOCITY + k])


def measure_distance(c: Chain, entry: int, number: int, row: int, first: int, second: int) -> None:
    """The same of one row of kind POINT, along a direction fixed in the first link, or of kind DISTANCE."""
    d, val = c.d, c.val
    if c.ix[entry + ROW_KIND] == POINT:
        pin = in_world(c, first, vector(val, number + ROW_POINT))
        place = in_world(c, second, vector(val, number + ROW_POINT))
        speed = velocity_at(c, second, place)
        n = turned(d, first + ROTATION, vector(val, number + ROW_FIRST))
        n_rate = cross(vector(d, first + VELOCITY), n)
        d[row + ROW_GAP] = dot(n, minus(place, pin))
    else:
        pin = in_world(c, first, vector(val, number + ROW_FIRST))
        place = in_world(c, second, vector(val, number + ROW_SECOND))
        speed = velocity_at(c, second, place)
        way, parting = minus(place, pin), minus(speed, velocity_at(c, first, pin))
        length = sqrt(dot(way, way))
        n = times(1.0 / length, way)
        n_rate = times(1.0 / length, minus(parting, times(dot(n, parting), n)))
        d[row + ROW_GAP] = length - val[number + ROW_ZERO]
    store_pair(d, row + ROW_T, cross(place, n), n)
    store_pair(d, row + ROW_T_RATE, plus(cross(speed, n), cross(place, n_rate)), n_rate)


def measure_gaps(c: Chain, y: Floats) -> float:
    """Positions and velocities of the links; returns the largest gap, in m or as a sine."""
    place_links(c, y[: c.n_coordinates], 1, c.n)
    move_links(c, y[c.n_coordinates :], 1, c.n)
    measure_rows(c, 0, c.n_closures)
    return largest_gap(c)


def largest_gap(c: Chain) -> float:
    """Largest of the measured gaps."""
    largest = 0.0
    for r in range(c.n_closures):
        largest = max(largest, abs(c.d[c.closure + CLOSURE * r + ROW_GAP]))
    return largest


def actuator_motion(c: Chain, j: int, y: Floats) -> tuple[float, float]:
    """Position and speed of one actuator, after ``measure_rows``."""
    if j < c.n_linear:
        row = c.closure + CLOSURE * (c.n_closures + j)
        return c.d[row + ROW_GAP], c.d[row + ROW_GAP_RATE]
    i = signed(c.ix, c.rotaries + j - c.n_linear)
    return y[signed(c.ix, c.links + LINK_ENTRIES * i + LINK_PLACE)], y[c.n_coordinates + i - 1]


def measure_actuators(c: Chain, y: Floats, place: Floats, speed: Floats) -> None:
    """Position and speed of each actuator (m, m/s; rotary: rad, rad/s), after ``place_links`` and ``move_links``."""
    measure_rows(c, c.n_closures, c.n_rows)
    for j in range(c.n_linear + c.n_rotary):
        place[j], speed[j] = actuator_motion(c, j, y)
