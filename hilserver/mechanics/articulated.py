"""Articulated bodies: each link with everything attached to it, reduced to its parent; then accelerations outward.

The reactions at the cut joints are reduced along with the inertias, one column per multiplier.

Sources: Featherstone, Rigid Body Dynamics Algorithms, Springer 2008, ch. 7; Bae & Haug, Mech. Struct. & Mach. 15 (1987)
481 (cut joints, reduction to the base); [Closed chains] eqs. 2-7.
"""

from __future__ import annotations

from hilserver.mechanics.chain import (
    ACCELERATION,
    ARMATURE,
    BIAS_ACCELERATION,
    BIAS_FORCE,
    CLOSURE,
    DRIVE,
    FREEDOM,
    INERTIA,
    LINK_CENTRE,
    LINK_ENTRIES,
    LINK_FELT,
    LINK_MASS,
    LINK_NUMBERS,
    LINK_PARENT,
    LINK_TENSOR,
    MOTION,
    OWN_INERTIA,
    REACTION,
    RESISTANCE,
    ROTATION,
    ROW_ENTRIES,
    ROW_FREE,
    ROW_LINKS,
    ROW_MULTIPLIER,
    ROW_T,
    ROW_T_RATE,
    SHARE,
    TORQUE,
    VELOCITY,
    Chain,
)
from hilserver.mechanics.kinematics import in_world
from hilserver.numerics.arrays import Floats, signed
from hilserver.numerics.spatial import (
    Vector,
    cross,
    dot,
    plus,
    store_pair,
    times,
    turned,
    vector,
)


def set_inertias(c: Chain, begin: int, end: int) -> None:
    """Inertia of each link alone, and its bias force: the force at zero acceleration, V × (I·V)."""
    d = c.d
    for i in range(begin, end):
        link, m = c.link + LINK_NUMBERS * i, c.motion + MOTION * i
        mass, centre = c.val[link + LINK_MASS], in_world(c, m, vector(c.val, link + LINK_CENTRE))
        set_inertia(c, m, link + LINK_TENSOR, mass, centre)
        h = times(mass, centre)
        w, v = vector(d, m + VELOCITY), vector(d, m + VELOCITY + 3)
        momentum = plus(times(mass, v), cross(w, h))
        about = m + INERTIA
        spin = plus(
            (dot(vector(d, about), w), dot(vector(d, about + 6), w), dot(vector(d, about + 12), w)), cross(h, v)
        )
        store_pair(d, m + BIAS_FORCE, plus(cross(w, spin), cross(v, momentum)), cross(w, momentum))


def set_inertia(c: Chain, m: int, tensor: int, mass: float, centre: Vector) -> None:
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


def reduce_links(c: Chain, begin: int, end: int) -> None:
    """Reduce inertia, bias force and reactions of each link to its parent, from the last link to the ground.

    A link of articulated inertia J contributes J - U·Uᵀ/D to its parent, with U = J·S and D = S·U: nothing along its
    own degree of freedom. The effect of the multipliers on the gaps (``flexibility``, ROW_FREE) is summed in the same
    sweep, which factorises the mass matrix.
    """
    d = c.d
    for i in range(end - 1, begin - 1, -1):
        k, m = signed(c.ix, c.links + LINK_ENTRIES * i + LINK_PARENT), c.motion + MOTION * i
        J, S, U, bias, force = m + INERTIA, m + FREEDOM, m + RESISTANCE, m + BIAS_ACCELERATION, m + BIAS_FORCE
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
                remaining = d[force + a] + d[U + a] * given
                for b in range(6):
                    remaining += d[J + 6 * a + b] * d[bias + b]
                    d[p + INERTIA + 6 * a + b] += d[J + 6 * a + b] - d[U + a] * d[U + b] * per
                d[p + BIAS_FORCE + a] += remaining
        reduce_reactions(c, i, k)
    for r in range(c.n_rows):
        reaction = c.reaction + REACTION * r
        for a in range(6):
            d[c.closure + CLOSURE * r + ROW_FREE] += d[reaction + a] * d[c.motion + ACCELERATION + a]


def start_reactions(c: Chain) -> None:
    """Unit reactions of each row at its cut, and the gaps' accelerations as far as they are known before the sweep."""
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
    """Reduce the rows' reactions on link i to its parent k, and sum the compliance of link i's degree of freedom."""
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
            free += left * d[m + BIAS_ACCELERATION + a]
        d[c.closure + CLOSURE * r + ROW_FREE] += free
        for g in range(begin, f + 1):
            s = signed(c.ix, g)
            d[c.flexibility + c.n_rows * r + s] += per * d[c.reaction + REACTION * (c.n_rows * i + s) + SHARE]


def felt_rows(c: Chain, i: int) -> tuple[int, int]:
    """First and last + 1 entry of the rows whose reactions act through link i, in ascending order."""
    entry = c.links + LINK_ENTRIES * i + LINK_FELT
    return c.felt + signed(c.ix, entry), c.felt + signed(c.ix, entry + LINK_ENTRIES)


def apply_reactions(c: Chain, begin: int, end: int) -> None:
    """Add the share of the multipliers to the force along each link's degree of freedom."""
    for i in range(begin, end):
        first, last = felt_rows(c, i)
        for f in range(first, last):
            r = signed(c.ix, f)
            share = c.d[c.reaction + REACTION * (c.n_rows * i + r) + SHARE]
            c.d[c.motion + MOTION * i + DRIVE] += share * c.d[c.closure + CLOSURE * r + ROW_MULTIPLIER]


def accelerate_links(c: Chain, u_rate: Floats, begin: int, end: int) -> None:
    """Accelerations of the links and derivatives of their speeds, from the ground outward."""
    d = c.d
    for i in range(begin, end):
        m = c.motion + MOTION * i
        parent = c.motion + MOTION * signed(c.ix, c.links + LINK_ENTRIES * i + LINK_PARENT)
        remaining = d[m + DRIVE]
        for a in range(6):
            d[m + ACCELERATION + a] = d[parent + ACCELERATION + a] + d[m + BIAS_ACCELERATION + a]
            remaining -= d[m + RESISTANCE + a] * d[m + ACCELERATION + a]
        u_rate[i - 1] = remaining / d[m + OWN_INERTIA]
        for a in range(6):
            d[m + ACCELERATION + a] += d[m + FREEDOM + a] * u_rate[i - 1]
