"""Dynamics of closed kinematic chains in joint coordinates: articulated bodies, and multipliers at the cuts.

Three sweeps over the links, so that the cost grows with their number, not with its cube:

1. outward: where the links are and how they move (``place_links``, ``move_links``, ``weigh_links``);
2. inward: each link with all that hangs on it is reduced to its parent (``reduce_links``), and with it the reactions at
   the cuts, one column per multiplier. What comes out gives the multipliers (``close_loops``);
3. outward: accelerations (``accelerate_links``).

All vectors are spatial ones in world axes, moments and velocities about the world's origin: (rotation, translation),
(moment, force). So nothing has to be transformed from link to link: articulated inertias just add.

Sources: Featherstone, Rigid Body Dynamics Algorithms, Springer 2008, ch. 2, 7 (articulated bodies) and 8 (loops);
Bae & Haug, Mech. Struct. & Mach. 15 (1987) 481 (cut joints, reduction to the base); [Closed chains] eqs. 2-7;
Baumgarte, Comp. Meth. Appl. Mech. Eng. 1 (1972) 1.
"""

from __future__ import annotations

from math import sqrt

from hilserver.mechanics.chain import (
    ACCELERATION,
    ANGLE,
    ARMATURE,
    BALL_X,
    BALL_Z,
    BIAS,
    CHAIN_ALPHA,
    CHAIN_BETA,
    CLOSURE,
    DRIVE,
    FREEDOM,
    GRAVITY,
    IMPULSE,
    INERTIA,
    LACKING,
    LINK_AXIS,
    LINK_CENTRE,
    LINK_ENTRIES,
    LINK_FELT,
    LINK_KIND,
    LINK_MASS,
    LINK_NUMBERS,
    LINK_PARENT,
    LINK_PLACE,
    LINK_POINT,
    LINK_TENSOR,
    MOTION,
    ORIGIN,
    OWN_INERTIA,
    POINT,
    PRISMATIC,
    REACTION,
    RESISTANCE,
    REVOLUTE,
    ROTATION,
    ROW_EFFORT,
    ROW_ENTRIES,
    ROW_FIRST,
    ROW_FREE,
    ROW_GAP,
    ROW_GAP_RATE,
    ROW_KIND,
    ROW_LINKS,
    ROW_MASS,
    ROW_MULTIPLIER,
    ROW_NUMBERS,
    ROW_ORDER,
    ROW_POINT,
    ROW_SCALE,
    ROW_SECOND,
    ROW_T,
    ROW_T_RATE,
    ROW_WANTED,
    ROW_ZERO,
    SHARE,
    TOLERANCE,
    TORQUE,
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
LEAST_PIVOT = 1e-12
"""Below it a row of the closure says nothing new where the mechanism stands (a dead centre)."""

LARGE_GAP, CHAIN_CORRECTIONS = 1e-6, 3
"""In m or as a sine: what one correction doesn't take to nothing."""


def chain_rates(c: Chain, y: Floats, rate: Floats) -> None:
    """d/dt of y = (coordinates, speeds) under the efforts of ``load_chain``.

    Loops are stabilised after Baumgarte: the acceleration of a gap becomes -2·alpha·gap' - beta²·gap.
    """
    q, u = y[: c.n_coordinates], y[c.n_coordinates :]
    place_links(c, q, 1, c.n)
    move_links(c, u, 1, c.n)
    weigh_links(c, 1, c.n)
    measure_rows(c, 0, c.n_rows)
    start_reactions(c)
    reduce_links(c, 1, c.n)
    want_multipliers(c)
    close_loops(c, 1.0)
    react(c, 1, c.n)
    accelerate_links(c, rate[c.n_coordinates :], 1, c.n)
    coordinate_rates(c, q, u, rate, 1, c.n)


def want_multipliers(c: Chain) -> None:
    """What the multipliers have to add to the accelerations of the gaps, and of the actuators with a mass."""
    alpha, beta = c.val[c.common + CHAIN_ALPHA], c.val[c.common + CHAIN_BETA]
    for r in range(c.n_rows):
        row = c.closure + CLOSURE * r
        if r < c.n_closures:
            wanted = -2.0 * alpha * c.d[row + ROW_GAP_RATE] - beta * beta * c.d[row + ROW_GAP]
        else:
            wanted = c.d[row + ROW_EFFORT] / c.d[row + ROW_MASS] if c.d[row + ROW_MASS] > 0.0 else 0.0
        c.d[row + ROW_WANTED] = wanted - c.d[row + ROW_FREE]


def load_chain(c: Chain, effort: Floats, mass: Floats) -> None:
    """Force or torque of each actuator, the linear ones first, and the mass or moment of inertia that moves with it."""
    unload_chain(c)
    for j in range(c.n_linear + c.n_rotary):
        load_actuator(c, j, effort[j], mass[j])


def unload_chain(c: Chain) -> None:
    """No efforts of rotary actuators, which add up."""
    for i in range(c.n):
        c.d[c.motion + MOTION * i + TORQUE], c.d[c.motion + MOTION * i + ARMATURE] = 0.0, 0.0


def load_actuator(c: Chain, j: int, effort: float, mass: float) -> None:
    """Force or torque of one actuator, and what moves with it."""
    if j < c.n_linear:
        row = c.closure + CLOSURE * (c.n_closures + j)
        c.d[row + ROW_EFFORT], c.d[row + ROW_MASS] = effort, mass
    else:
        m = c.motion + MOTION * signed(c.ix, c.rotaries + j - c.n_linear)
        c.d[m + TORQUE] += effort
        c.d[m + ARMATURE] += mass


def place_links(c: Chain, q: Floats, begin: int, end: int) -> None:
    """Rotation and origin of each link's frame, and S: a turn about an axis, or a shift along it."""
    d, val = c.d, c.val
    start_ground(c)
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


def start_ground(c: Chain) -> None:
    """The ground stands; that it accelerates upwards stands for the weight of everything."""
    ground = c.motion
    store_columns(c.d, ground + ROTATION, (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    store(c.d, ground + ORIGIN, NO_MOTION)
    store_pair(c.d, ground + VELOCITY, NO_MOTION, NO_MOTION)
    store_pair(c.d, ground + ACCELERATION, NO_MOTION, times(-1.0, vector(c.val, c.common + GRAVITY)))
    store_pair(c.d, ground + IMPULSE, NO_MOTION, NO_MOTION)


def in_world(c: Chain, m: int, point: Vector) -> Vector:
    """Where a point is now that is drawn at ``point``, of the link whose motion stands at ``m``."""
    return plus(vector(c.d, m + ORIGIN), turned(c.d, m + ROTATION, point))


def move_links(c: Chain, u: Floats, begin: int, end: int) -> None:
    """Velocities, and what they add to the accelerations: V × (S·u)."""
    d = c.d
    for i in range(begin, end):
        entry, m = c.links + LINK_ENTRIES * i, c.motion + MOTION * i
        k, kind = signed(c.ix, entry + LINK_PARENT), c.ix[entry + LINK_KIND]
        for a in range(6):
            d[m + VELOCITY + a] = d[c.motion + MOTION * k + VELOCITY + a] + u[i - 1] * d[m + FREEDOM + a]
            d[m + BIAS + a] = 0.0
        if kind == BALL_Z:  # of the three together: their axes turn with the last link
            k = signed(c.ix, c.links + LINK_ENTRIES * (k - 1) + LINK_PARENT)
        if kind in (REVOLUTE, PRISMATIC, BALL_Z):
            before = c.motion + MOTION * k + VELOCITY
            w, v = vector(d, before), vector(d, before + 3)
            turn, shift = vector(d, m + VELOCITY), vector(d, m + VELOCITY + 3)
            store_pair(d, m + BIAS, cross(w, turn), plus(cross(w, shift), cross(v, turn)))


def measure_actuators(c: Chain, y: Floats, place: Floats, speed: Floats) -> None:
    """Position and speed of each actuator (m, m/s; of a rotary one rad, rad/s), links placed and moved."""
    measure_rows(c, c.n_closures, c.n_rows)
    for j in range(c.n_linear + c.n_rotary):
        place[j], speed[j] = actuator_motion(c, j, y)


def actuator_motion(c: Chain, j: int, y: Floats) -> tuple[float, float]:
    """The same of one actuator, rows measured."""
    if j < c.n_linear:
        row = c.closure + CLOSURE * (c.n_closures + j)
        return c.d[row + ROW_GAP], c.d[row + ROW_GAP_RATE]
    i = signed(c.ix, c.rotaries + j - c.n_linear)
    return y[signed(c.ix, c.links + LINK_ENTRIES * i + LINK_PLACE)], y[c.n_coordinates + i - 1]


def velocity_at(c: Chain, m: int, place: Vector) -> Vector:
    """Velocity of what is at ``place``, of the link whose motion stands at ``m``."""
    return plus(vector(c.d, m + VELOCITY + 3), cross(vector(c.d, m + VELOCITY), place))


def weigh_links(c: Chain, begin: int, end: int) -> None:
    """Inertia of each link alone, and the force that it lacks for moving on without acceleration: V × (I·V)."""
    d = c.d
    for i in range(begin, end):
        link, m = c.link + LINK_NUMBERS * i, c.motion + MOTION * i
        mass, centre = c.val[link + LINK_MASS], in_world(c, m, vector(c.val, link + LINK_CENTRE))
        fill_inertia(c, m, link + LINK_TENSOR, mass, centre)
        h = times(mass, centre)
        w, v = vector(d, m + VELOCITY), vector(d, m + VELOCITY + 3)
        momentum = plus(times(mass, v), cross(w, h))
        about = m + INERTIA
        spin = plus(
            (dot(vector(d, about), w), dot(vector(d, about + 6), w), dot(vector(d, about + 12), w)), cross(h, v)
        )
        store_pair(d, m + LACKING, plus(cross(w, spin), cross(v, momentum)), cross(w, momentum))


def fill_inertia(c: Chain, m: int, tensor: int, mass: float, centre: Vector) -> None:
    """The 6 x 6 inertia about the world's origin, [R·J·Rᵀ + m·(c·c - c cᵀ), m·c×; -m·c×, m]."""
    d, o, h = c.d, m + INERTIA, times(mass, centre)
    x, y, z = vector(d, m + ROTATION), vector(d, m + ROTATION + 3), vector(d, m + ROTATION + 6)
    Jx, Jy, Jz = turned(c.val, tensor, x), turned(c.val, tensor, y), turned(c.val, tensor, z)
    xy = dot(x, Jy) - h[0] * centre[1]
    xz = dot(x, Jz) - h[0] * centre[2]
    yz = dot(y, Jz) - h[1] * centre[2]
    store_pair(d, o, (dot(x, Jx) + h[1] * centre[1] + h[2] * centre[2], xy, xz), (0.0, -h[2], h[1]))
    store_pair(d, o + 6, (xy, dot(y, Jy) + h[0] * centre[0] + h[2] * centre[2], yz), (h[2], 0.0, -h[0]))
    store_pair(d, o + 12, (xz, yz, dot(z, Jz) + h[0] * centre[0] + h[1] * centre[1]), (-h[1], h[0], 0.0))
    store_pair(d, o + 18, (0.0, h[2], -h[1]), (mass, 0.0, 0.0))
    store_pair(d, o + 24, (-h[2], 0.0, h[0]), (0.0, mass, 0.0))
    store_pair(d, o + 30, (h[1], -h[0], 0.0), (0.0, 0.0, mass))


def measure_rows(c: Chain, begin: int, end: int) -> None:
    """How far each row is from closed (an actuator's position), how fast it opens, in which direction it reacts.

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
    """The same of one row of kind POINT, along a direction that turns with the first link, or DISTANCE."""
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


def reduce_links(c: Chain, begin: int, end: int) -> None:
    """From the last link to the ground: each link's inertia, force and reactions, as its parent feels them.

    A link of inertia J resists its parent with J - U·Uᵀ/D, U = J·S, D = S·U: not in the joint's own freedom.
    What the multipliers do to the gaps (``flexibility``, ROW_FREE) adds up on the way: the sweep factorises the mass
    matrix, so these products need no sweep of their own.
    """
    d = c.d
    for i in range(end - 1, begin - 1, -1):
        k, m = signed(c.ix, c.links + LINK_ENTRIES * i + LINK_PARENT), c.motion + MOTION * i
        J, S, U, bias, force = m + INERTIA, m + FREEDOM, m + RESISTANCE, m + BIAS, m + LACKING
        D, drive, resisted = d[m + ARMATURE], d[m + TORQUE], 0.0
        for a in range(6):
            Ua = 0.0
            for b in range(6):
                Ua += d[J + 6 * a + b] * d[S + b]
            d[U + a] = Ua
            D += d[S + a] * Ua
            drive -= d[S + a] * d[force + a]
            resisted += Ua * d[bias + a]
        d[m + OWN_INERTIA], d[m + DRIVE] = D, drive
        if k > 0:
            p, per, given = c.motion + MOTION * k, 1.0 / D, (drive - resisted) / D
            for a in range(6):
                lacking = d[force + a] + d[U + a] * given
                for b in range(6):
                    lacking += d[J + 6 * a + b] * d[bias + b]
                    d[p + INERTIA + 6 * a + b] += d[J + 6 * a + b] - d[U + a] * d[U + b] * per
                d[p + LACKING + a] += lacking
        reduce_reactions(c, i, k)
    for r in range(c.n_rows):
        reaction = c.reaction + REACTION * r
        for a in range(6):
            d[c.closure + CLOSURE * r + ROW_FREE] += d[reaction + a] * d[c.motion + ACCELERATION + a]


def start_reactions(c: Chain) -> None:
    """A unit reaction of each row at its cut; what is known of the gaps' accelerations before the sweep."""
    d = c.d
    for k in range(REACTION * c.n * c.n_rows):
        d[c.reaction + k] = 0.0
    for k in range(c.n_rows * c.n_rows):
        d[c.flexibility + k] = 0.0
    for r in range(c.n_rows):
        entry, row, own = c.rows + ROW_ENTRIES * r, c.closure + CLOSURE * r, c.reaction + REACTION * r
        first, second = signed(c.ix, entry + ROW_LINKS), signed(c.ix, entry + ROW_LINKS + 1)
        V_first, V_second = c.motion + MOTION * first + VELOCITY, c.motion + MOTION * second + VELOCITY
        d[row + ROW_FREE] = 0.0
        for a in range(6):
            d[own + REACTION * c.n_rows * first + a] -= d[row + ROW_T + a]
            d[own + REACTION * c.n_rows * second + a] += d[row + ROW_T + a]
            d[row + ROW_FREE] += d[row + ROW_T_RATE + a] * (d[V_second + a] - d[V_first + a])


def reduce_reactions(c: Chain, i: int, k: int) -> None:
    """The rows' reactions on link i as its parent k feels them, and what yields to them in link i's own freedom."""
    d, m = c.d, c.motion + MOTION * i
    D, drive = d[m + OWN_INERTIA], d[m + DRIVE]
    begin, end = felt_rows(c, i)
    for f in range(begin, end):
        r = signed(c.ix, f)
        own, its = c.reaction + REACTION * (c.n_rows * i + r), c.reaction + REACTION * (c.n_rows * k + r)
        share = 0.0
        for a in range(6):
            share += d[m + FREEDOM + a] * d[own + a]
        d[own + SHARE] = share
        free, per = share * drive / D, share / D
        for a in range(6):
            left = d[own + a] - d[m + RESISTANCE + a] * per
            d[its + a] += left
            free += left * d[m + BIAS + a]
        d[c.closure + CLOSURE * r + ROW_FREE] += free
        for g in range(begin, f + 1):
            s = signed(c.ix, g)
            d[c.flexibility + c.n_rows * r + s] += per * d[c.reaction + REACTION * (c.n_rows * i + s) + SHARE]


def felt_rows(c: Chain, i: int) -> tuple[int, int]:
    """First and last + 1 entry of the rows whose reactions link i feels; they are in order."""
    entry = c.links + LINK_ENTRIES * i + LINK_FELT
    return c.felt + signed(c.ix, entry), c.felt + signed(c.ix, entry + LINK_ENTRIES)


def close_loops(c: Chain, given: float) -> None:
    """Multipliers from flexibility·multiplier = wanted, by symmetric Gaussian elimination with pivots on the diagonal.

    A mass at an actuator makes it more flexible by 1/mass; without one its multiplier is its effort times ``given``.
    A closure that says nothing new where the mechanism stands (a dead centre) gets the multiplier 0.
    """
    d, n, L = c.d, c.n_rows, c.factors
    for r in range(n):
        row, own = c.closure + CLOSURE * r, d[c.flexibility + (n + 1) * r]
        d[row + ROW_ORDER], d[row + ROW_MULTIPLIER] = r, 0.0
        if r >= c.n_closures and d[row + ROW_MASS] > 0.0:
            own += 1.0 / d[row + ROW_MASS]
        elif r >= c.n_closures:
            own, d[row + ROW_MULTIPLIER] = 0.0, given * d[row + ROW_EFFORT]
        d[row + ROW_SCALE] = 1.0 / sqrt(own) if own > 0.0 else 0.0
    scale_rows(c)
    rank = eliminate(c)
    for k in range(rank - 1, -1, -1):
        r = in_order(c, k)
        row = c.closure + CLOSURE * r
        for j in range(k + 1, rank):
            s = in_order(c, j)
            d[row + ROW_WANTED] -= d[L + n * r + s] * d[c.closure + CLOSURE * s + ROW_WANTED]
        d[row + ROW_WANTED] /= d[L + n * r + r]
        d[row + ROW_MULTIPLIER] = d[row + ROW_WANTED] * d[row + ROW_SCALE]


def scale_rows(c: Chain) -> None:
    """The equations of the multipliers with ones on the diagonal; rows whose multiplier is given vanish from them."""
    d, n, L = c.d, c.n_rows, c.factors
    for r in range(n):
        row = c.closure + CLOSURE * r
        for s in range(n):
            other = c.closure + CLOSURE * s
            both = d[c.flexibility + n * max(r, s) + min(r, s)]  # felt rows are in order: this half is filled
            d[L + n * r + s] = both * d[row + ROW_SCALE] * d[other + ROW_SCALE]
            if d[other + ROW_SCALE] == 0.0:
                d[row + ROW_WANTED] -= both * d[other + ROW_MULTIPLIER]
        if d[row + ROW_SCALE] > 0.0:
            d[L + n * r + r] = 1.0
        d[row + ROW_WANTED] *= d[row + ROW_SCALE]


def in_order(c: Chain, k: int) -> int:
    """The row that is eliminated as k-th."""
    return int(c.d[c.closure + CLOSURE * k + ROW_ORDER])


def eliminate(c: Chain) -> int:
    """Eliminate row after row, the one with the largest pivot first; returns how many had one."""
    d, n, L = c.d, c.n_rows, c.factors
    for k in range(n):
        best = k
        for j in range(k + 1, n):
            if d[L + (n + 1) * in_order(c, j)] > d[L + (n + 1) * in_order(c, best)]:
                best = j
        p, swapped = in_order(c, best), in_order(c, k)
        d[c.closure + CLOSURE * k + ROW_ORDER], d[c.closure + CLOSURE * best + ROW_ORDER] = p, swapped
        pivot = d[L + (n + 1) * p]
        if not pivot > LEAST_PIVOT:
            return k
        for j in range(k + 1, n):
            r = in_order(c, j)
            factor = d[L + n * r + p] / pivot
            d[c.closure + CLOSURE * r + ROW_WANTED] -= factor * d[c.closure + CLOSURE * p + ROW_WANTED]
            for i in range(k + 1, n):
                s = in_order(c, i)
                d[L + n * r + s] -= factor * d[L + n * p + s]
    return n


def react(c: Chain, begin: int, end: int) -> None:
    """Add to each link's drive what the multipliers push in its freedom."""
    for i in range(begin, end):
        first, last = felt_rows(c, i)
        for f in range(first, last):
            r = signed(c.ix, f)
            share = c.d[c.reaction + REACTION * (c.n_rows * i + r) + SHARE]
            c.d[c.motion + MOTION * i + DRIVE] += share * c.d[c.closure + CLOSURE * r + ROW_MULTIPLIER]


def accelerate_links(c: Chain, u_rate: Floats, begin: int, end: int) -> None:
    """From the ground outward: accelerations of the links, and of their speeds, from what drives them."""
    d = c.d
    for i in range(begin, end):
        m = c.motion + MOTION * i
        parent = c.motion + MOTION * signed(c.ix, c.links + LINK_ENTRIES * i + LINK_PARENT)
        lacking = d[m + DRIVE]
        for a in range(6):
            d[m + ACCELERATION + a] = d[parent + ACCELERATION + a] + d[m + BIAS + a]
            lacking -= d[m + RESISTANCE + a] * d[m + ACCELERATION + a]
        u_rate[i - 1] = lacking / d[m + OWN_INERTIA]
        for a in range(6):
            d[m + ACCELERATION + a] += d[m + FREEDOM + a] * u_rate[i - 1]


def coordinate_rates(c: Chain, q: Floats, u: Floats, rate: Floats, begin: int, end: int) -> None:
    """d/dt of the coordinates from the speeds."""
    for i in range(begin, end):
        entry = c.links + LINK_ENTRIES * i
        kind, place = c.ix[entry + LINK_KIND], signed(c.ix, entry + LINK_PLACE)
        if kind == BALL_X:
            quaternion_rate(q, place, (u[i - 1], u[i], u[i + 1]), rate)
        elif kind in (REVOLUTE, PRISMATIC):
            rate[place] = u[i - 1]


def settle_chain(c: Chain, y: Floats) -> float:
    """Close the gaps, in place and in speed, if they are beyond the tolerance; returns the largest as it was found.

    By the smallest change in the metric of the masses: Newton's method with the reduction of the last ``chain_rates``,
    which was at most a step away; a second and third time where the gap was large.
    """
    largest = 0.0
    for _ in range(CHAIN_CORRECTIONS):
        gap = measure_gaps(c, y)
        largest = max(largest, gap)
        if gap > c.val[c.common + TOLERANCE]:
            close_gaps(c, y, 1, c.n)
        if not gap > LARGE_GAP:
            break
    return largest


def measure_gaps(c: Chain, y: Floats) -> float:
    """Place and move the links; the largest gap, in m or as a sine."""
    place_links(c, y[: c.n_coordinates], 1, c.n)
    move_links(c, y[c.n_coordinates :], 1, c.n)
    measure_rows(c, 0, c.n_closures)
    return largest_gap(c)


def largest_gap(c: Chain) -> float:
    """Of those measured."""
    largest = 0.0
    for r in range(c.n_closures):
        largest = max(largest, abs(c.d[c.closure + CLOSURE * r + ROW_GAP]))
    return largest


def close_gaps(c: Chain, y: Floats, begin: int, end: int) -> None:
    """One step of Newton's method in place, and one in speed; of the links ``begin`` to ``end``."""
    q, u, change = y[: c.n_coordinates], y[c.n_coordinates :], c.d[c.change : c.change + len(y)]
    change_u = change[c.n_coordinates :]
    respond(c, ROW_GAP, change_u, begin, end)
    coordinate_rates(c, q, change_u, change, begin, end)
    for i in range(begin, end):
        add_coordinates(c, q, change, i)
    respond(c, ROW_GAP_RATE, change_u, begin, end)
    for i in range(begin, end):
        u[i - 1] += change_u[i - 1]


def add_coordinates(c: Chain, q: Floats, change: Floats, i: int) -> None:
    """Add what belongs to link i; quaternions have length 1 again."""
    kind, place = c.ix[c.links + LINK_ENTRIES * i + LINK_KIND], signed(c.ix, c.links + LINK_ENTRIES * i + LINK_PLACE)
    if kind == BALL_X:
        for k in range(place, place + 4):
            q[k] += change[k]
        normalise_quaternion(q, place)
    elif kind in (REVOLUTE, PRISMATIC):
        q[place] += change[place]


def respond(c: Chain, undone: int, change: Floats, begin: int, end: int) -> None:
    """How the speeds change under impulses at the cuts that undo what each row has in its column ``undone``."""
    d = c.d
    for r in range(c.n_rows):
        row = c.closure + CLOSURE * r
        d[row + ROW_WANTED] = -d[row + undone] if r < c.n_closures else 0.0
    close_loops(c, 0.0)
    for i in range(begin, end):
        d[c.motion + MOTION * i + DRIVE] = 0.0
    react(c, begin, end)
    for i in range(begin, end):
        m = c.motion + MOTION * i
        parent = c.motion + MOTION * signed(c.ix, c.links + LINK_ENTRIES * i + LINK_PARENT)
        lacking = d[m + DRIVE]
        for a in range(6):
            lacking -= d[m + RESISTANCE + a] * d[parent + IMPULSE + a]
        change[i - 1] = lacking / d[m + OWN_INERTIA]
        for a in range(6):
            d[m + IMPULSE + a] = d[parent + IMPULSE + a] + d[m + FREEDOM + a] * change[i - 1]


def normalise_chain(c: Chain, q: Floats, begin: int, end: int) -> None:
    """Quaternions of length 1."""
    for i in range(begin, end):
        entry = c.links + LINK_ENTRIES * i
        if c.ix[entry + LINK_KIND] == BALL_X:
            normalise_quaternion(q, signed(c.ix, entry + LINK_PLACE))


def chain_energy(c: Chain, y: Floats) -> float:
    """Kinetic and potential energy, J; the latter 0 where all masses are at the world's origin."""
    place_links(c, y[: c.n_coordinates], 1, c.n)
    move_links(c, y[c.n_coordinates :], 1, c.n)
    weigh_links(c, 1, c.n)
    energy, gravity = 0.0, vector(c.val, c.common + GRAVITY)
    for i in range(1, c.n):
        link, m = c.link + LINK_NUMBERS * i, c.motion + MOTION * i
        energy -= c.val[link + LINK_MASS] * dot(gravity, in_world(c, m, vector(c.val, link + LINK_CENTRE)))
        for a in range(6):
            for b in range(6):
                energy += 0.5 * c.d[m + VELOCITY + a] * c.d[m + INERTIA + 6 * a + b] * c.d[m + VELOCITY + b]
    return energy


def advance_chain(
    c: Chain, y: Floats, effort: Floats, mass: Floats, h: float, n_steps: int, every: int, courses: Floats
) -> float:
    """Integrate ``n_steps`` of ``h`` by the classical Runge-Kutta method; returns the largest gap that a step opened.

    ``effort``: a line of all actuators per half step, from the start on; after its last line that one holds. ``mass``:
    of each actuator. ``courses``: gets y at the start and after each ``every`` steps.
    """
    largest, last = 0.0, len(effort) - 1
    size = len(y)
    rate = c.d[c.stages : c.stages + size]
    total, state = c.d[c.stages + size : c.stages + 2 * size], c.d[c.stages + 2 * size : c.stages + 3 * size]
    for j in range(size):
        state[j] = courses[0, j] = y[j]
    for step in range(n_steps):
        for j in range(size):
            total[j] = 0.0
        for stage in range(4):
            load_chain(c, effort[min(2 * step + (stage + 1) // 2, last)], mass)
            chain_rates(c, state, rate)
            weight = 1.0 if stage == 0 or stage == 3 else 2.0
            reach = h if stage == 2 else 0.5 * h
            for j in range(size):
                total[j] += weight * rate[j]
                state[j] = y[j] + reach * rate[j]
        for j in range(size):
            y[j] += h / 6.0 * total[j]
        normalise_chain(c, y, 1, c.n)
        largest = max(largest, settle_chain(c, y))
        for j in range(size):
            state[j] = y[j]
            if (step + 1) % every == 0:
                courses[(step + 1) // every, j] = y[j]
    return largest
