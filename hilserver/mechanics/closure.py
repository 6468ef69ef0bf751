"""Loop closure: the multipliers at the cut joints, Baumgarte stabilisation, and the correction of open gaps.

Sources: Featherstone, Rigid Body Dynamics Algorithms, Springer 2008, ch. 8; Baumgarte, Comp. Meth. Appl. Mech. Eng. 1
(1972) 1.
"""

from __future__ import annotations

from math import sqrt

from hilserver.mechanics.articulated import apply_reactions
from hilserver.mechanics.chain import (
    BALL_X,
    CHAIN_ALPHA,
    CHAIN_BETA,
    CLOSURE,
    DRIVE,
    FREEDOM,
    IMPULSE,
    LINK_ENTRIES,
    LINK_KIND,
    LINK_PARENT,
    LINK_PLACE,
    MOTION,
    OWN_INERTIA,
    PRISMATIC,
    RESISTANCE,
    REVOLUTE,
    ROW_EFFORT,
    ROW_FREE,
    ROW_GAP,
    ROW_GAP_RATE,
    ROW_MASS,
    ROW_MULTIPLIER,
    ROW_ORDER,
    ROW_REQUIRED,
    ROW_SCALE,
    TOLERANCE,
    Chain,
)
from hilserver.mechanics.kinematics import coordinate_rates, measure_gaps
from hilserver.numerics.arrays import Floats, signed
from hilserver.numerics.spatial import (
    normalise_quaternion,
)

MIN_PIVOT = 1e-12
"""A row of the closure with a smaller pivot is redundant in the present position (a dead centre)."""
LARGE_GAP, CHAIN_CORRECTIONS = 1e-6, 3
"""Gap, in m or as a sine, that takes more than one correction; limit of corrections."""


def require_accelerations(c: Chain) -> None:
    """Accelerations that the multipliers must add at the gaps (after Baumgarte), and at the actuators with a mass."""
    alpha, beta = c.val[c.common + CHAIN_ALPHA], c.val[c.common + CHAIN_BETA]
    for r in range(c.n_rows):
        row = c.closure + CLOSURE * r
        if r < c.n_closures:
            wanted = -2.0 * alpha * c.d[row + ROW_GAP_RATE] - beta * beta * c.d[row + ROW_GAP]
        else:
            wanted = c.d[row + ROW_EFFORT] / c.d[row + ROW_MASS] if c.d[row + ROW_MASS] > 0.0 else 0.0
        c.d[row + ROW_REQUIRED] = wanted - c.d[row + ROW_FREE]


def close_loops(c: Chain, given: float) -> None:
    """Multipliers from flexibility·multiplier = required, by symmetric Gaussian elimination with diagonal pivots.

    A mass at an actuator makes it more flexible by 1/mass; without one its multiplier is its effort times ``given``.
    A row that is redundant in the present position (a dead centre) gets the multiplier 0.
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
            d[row + ROW_REQUIRED] -= d[L + n * r + s] * d[c.closure + CLOSURE * s + ROW_REQUIRED]
        d[row + ROW_REQUIRED] /= d[L + n * r + r]
        d[row + ROW_MULTIPLIER] = d[row + ROW_REQUIRED] * d[row + ROW_SCALE]


def scale_rows(c: Chain) -> None:
    """Scale the equations to ones on the diagonal; rows with a given multiplier move to the right-hand side."""
    d, n, L = c.d, c.n_rows, c.factors
    for r in range(n):
        row = c.closure + CLOSURE * r
        for s in range(n):
            other = c.closure + CLOSURE * s
            both = d[c.flexibility + n * max(r, s) + min(r, s)]  # rows are in ascending order: this half is filled
            d[L + n * r + s] = both * d[row + ROW_SCALE] * d[other + ROW_SCALE]
            if d[other + ROW_SCALE] == 0.0:
                d[row + ROW_REQUIRED] -= both * d[other + ROW_MULTIPLIER]
        if d[row + ROW_SCALE] > 0.0:
            d[L + n * r + r] = 1.0
        d[row + ROW_REQUIRED] *= d[row + ROW_SCALE]


def in_order(c: Chain, k: int) -> int:
    """The row that is eliminated as the k-th."""
    return int(c.d[c.closure + CLOSURE * k + ROW_ORDER])


def eliminate(c: Chain) -> int:
    """Eliminate the rows in the order of their pivots, the largest first; returns the rank."""
    d, n, L = c.d, c.n_rows, c.factors
    for k in range(n):
        best = k
        for j in range(k + 1, n):
            if d[L + (n + 1) * in_order(c, j)] > d[L + (n + 1) * in_order(c, best)]:
                best = j
        p, swapped = in_order(c, best), in_order(c, k)
        d[c.closure + CLOSURE * k + ROW_ORDER], d[c.closure + CLOSURE * best + ROW_ORDER] = p, swapped
        pivot = d[L + (n + 1) * p]
        if not pivot > MIN_PIVOT:
            return k
        for j in range(k + 1, n):
            r = in_order(c, j)
            factor = d[L + n * r + p] / pivot
            d[c.closure + CLOSURE * r + ROW_REQUIRED] -= factor * d[c.closure + CLOSURE * p + ROW_REQUIRED]
            for i in range(k + 1, n):
                s = in_order(c, i)
                d[L + n * r + s] -= factor * d[L + n * p + s]
    return n


def settle_chain(c: Chain, y: Floats) -> float:
    """Close the gaps in position and speed where they exceed the tolerance; returns the largest gap found.

    By the smallest change in the metric of the mass matrix: Newton's method with the reduction of the last
    ``chain_rates``, which is at most one step old; repeated up to twice where the gap is large.
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


def close_gaps(c: Chain, y: Floats, begin: int, end: int) -> None:
    """One Newton step in position and one in speed, for the links ``begin`` to ``end``."""
    q, u, change = y[: c.n_coordinates], y[c.n_coordinates :], c.d[c.change : c.change + len(y)]
    change_u = change[c.n_coordinates :]
    impulse_response(c, ROW_GAP, change_u, begin, end)
    coordinate_rates(c, q, change_u, change, begin, end)
    for i in range(begin, end):
        add_coordinates(c, q, change, i)
    impulse_response(c, ROW_GAP_RATE, change_u, begin, end)
    for i in range(begin, end):
        u[i - 1] += change_u[i - 1]


def add_coordinates(c: Chain, q: Floats, change: Floats, i: int) -> None:
    """Add the change of link i's coordinates; a quaternion is normalised."""
    kind, place = c.ix[c.links + LINK_ENTRIES * i + LINK_KIND], signed(c.ix, c.links + LINK_ENTRIES * i + LINK_PLACE)
    if kind == BALL_X:
        for k in range(place, place + 4):
            q[k] += change[k]
        normalise_quaternion(q, place)
    elif kind in (REVOLUTE, PRISMATIC):
        q[place] += change[place]


def impulse_response(c: Chain, undone: int, change: Floats, begin: int, end: int) -> None:
    """Change of the speeds under impulses at the cuts that cancel each row's value in the column ``undone``."""
    d = c.d
    for r in range(c.n_rows):
        row = c.closure + CLOSURE * r
        d[row + ROW_REQUIRED] = -d[row + undone] if r < c.n_closures else 0.0
    close_loops(c, 0.0)
    for i in range(begin, end):
        d[c.motion + MOTION * i + DRIVE] = 0.0
    apply_reactions(c, begin, end)
    for i in range(begin, end):
        m = c.motion + MOTION * i
        parent = c.motion + MOTION * signed(c.ix, c.links + LINK_ENTRIES * i + LINK_PARENT)
        remaining = d[m + DRIVE]
        for a in range(6):
            remaining -= d[m + RESISTANCE + a] * d[parent + IMPULSE + a]
        change[i - 1] = remaining / d[m + OWN_INERTIA]
        for a in range(6):
            d[m + IMPULSE + a] = d[parent + IMPULSE + a] + d[m + FREEDOM + a] * change[i - 1]
