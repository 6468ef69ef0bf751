"""The two branches of a cut loop computed at the same time by two threads: for long loops, offline.

Each thread runs the kinematics and the reduction of its own branch in its own scratch space and integrates that
branch's coordinates. The threads synchronise twice per evaluation: before the rows are measured, since a row needs the
end of the other branch, and before the multipliers are solved for, which both threads do from the sum of the
contributions of both branches.

The threads synchronise by counters that they poll without sleeping. That takes about a microsecond where each thread
has a core of its own, and a time slice of the operating system where it has not, so this is not for real time.
Source of the idea: [Closed chains] ch. 3 (two processors, messages).
"""

from __future__ import annotations

from typing import NamedTuple

from hilserver.mechanics.articulated import (
    accelerate_links,
    apply_reactions,
    reduce_links,
    set_inertias,
    start_reactions,
)
from hilserver.mechanics.chain import (
    CLOSURE,
    MOTION,
    REACTION,
    ROW_ENTRIES,
    ROW_FREE,
    ROW_LINKS,
    TOLERANCE,
    Chain,
)
from hilserver.mechanics.closure import close_gaps, close_loops, require_accelerations
from hilserver.mechanics.kinematics import (
    coordinate_rates,
    largest_gap,
    measure_rows,
    move_links,
    normalise_chain,
    place_links,
)
from hilserver.numerics.arrays import Floats, Integers, Matrix, signed
from hilserver.numerics.atomic import load_acquire, store_release

COUNTER = 16
"""Entries between the two threads' counters: two cache lines."""
ABANDONED, PATIENCE = -1, 1 << 33
"""Counter of a thread that gave up; number of polls before a thread gives up, about ten seconds."""


class Half(NamedTuple):
    """One thread's branch, links ``begin`` to ``end``, and the memory shared with the other thread."""

    side: int
    begin: int
    end: int
    own: Integers
    """First and last + 1 index in y of the branch's coordinates, then of its speeds."""
    d_other: Floats
    """The other thread's scratch space."""
    flags: Integers
    """The counters by which the threads synchronise."""
    exchange: Floats


def synchronise(flags: Integers, side: int, count: int) -> bool:
    """Wait until the other thread has reached the same count; False if it has given up."""
    store_release(flags, COUNTER * side, count)
    for _ in range(PATIENCE):
        there = load_acquire(flags, COUNTER * (1 - side))
        if there >= count:
            return True
        if there == ABANDONED:
            break
    store_release(flags, COUNTER * side, ABANDONED)
    return False


def copy_ends(c: Chain, d_other: Floats, begin: int, end: int) -> None:
    """Copy the motion of the links at the rows' ends that belong to the other branch."""
    for r in range(c.n_rows):
        for k in range(2):
            i = signed(c.ix, c.rows + ROW_ENTRIES * r + ROW_LINKS + k)
            if i > 0 and not begin <= i < end:
                for place in range(c.motion + MOTION * i, c.motion + MOTION * i + MOTION):
                    c.d[place] = d_other[place]


def half_rates(c: Chain, half: Half, count: int, y: Floats, rate: Floats) -> bool:
    """``chain_rates`` of one branch; False if the other thread has given up."""
    q, u, begin, end = y[: c.n_coordinates], y[c.n_coordinates :], half.begin, half.end
    place_links(c, q, begin, end)
    move_links(c, u, begin, end)
    set_inertias(c, begin, end)
    if not synchronise(half.flags, half.side, count):
        return False
    copy_ends(c, half.d_other, begin, end)
    measure_rows(c, 0, c.n_rows)
    start_reactions(c)
    if half.side == 1:  # terms common to both branches count once
        for r in range(c.n_rows):
            c.d[c.closure + CLOSURE * r + ROW_FREE] = 0.0
            for k in range(REACTION):
                c.d[c.reaction + REACTION * r + k] = 0.0
    reduce_links(c, begin, end)
    return add_halves(c, half, count + 1) and finish_half(c, half, q, u, rate)


def add_halves(c: Chain, half: Half, count: int) -> bool:
    """Sum the flexibility and the free accelerations of the gaps over both branches."""
    size = c.n_rows * c.n_rows
    mine, others = half.side * (size + c.n_rows), (1 - half.side) * (size + c.n_rows)
    for k in range(size):
        half.exchange[mine + k] = c.d[c.flexibility + k]
    for r in range(c.n_rows):
        half.exchange[mine + size + r] = c.d[c.closure + CLOSURE * r + ROW_FREE]
    if not synchronise(half.flags, half.side, count):
        return False
    for k in range(size):
        c.d[c.flexibility + k] += half.exchange[others + k]
    for r in range(c.n_rows):
        c.d[c.closure + CLOSURE * r + ROW_FREE] += half.exchange[others + size + r]
    return True


def finish_half(c: Chain, half: Half, q: Floats, u: Floats, rate: Floats) -> bool:
    """Solve for the multipliers, as the other thread does, and for the branch's accelerations."""
    require_accelerations(c)
    close_loops(c, 1.0)
    apply_reactions(c, half.begin, half.end)
    accelerate_links(c, rate[c.n_coordinates :], half.begin, half.end)
    coordinate_rates(c, q, u, rate, half.begin, half.end)
    return True


def settle_half(c: Chain, half: Half, count: int, y: Floats) -> float:
    """One correction of ``settle_chain`` in one branch; the largest gap, or -1 where the other thread gave up."""
    place_links(c, y[: c.n_coordinates], half.begin, half.end)
    move_links(c, y[c.n_coordinates :], half.begin, half.end)
    if not synchronise(half.flags, half.side, count):
        return -1.0
    copy_ends(c, half.d_other, half.begin, half.end)
    if not synchronise(half.flags, half.side, count + 1):  # before either thread moves its links
        return -1.0
    measure_rows(c, 0, c.n_closures)
    gap = largest_gap(c)
    if gap > c.val[c.common + TOLERANCE]:
        close_gaps(c, y, half.begin, half.end)
    return gap


def advance_half(
    c: Chain, half: Half, y: Floats, h: float, n_steps: int, every: int, states: Matrix, largest: Floats
) -> None:
    """``advance_chain`` of one branch under constant efforts; ``largest`` becomes -1 where the other thread gave up."""
    size, count = len(y), 0
    largest[0] = 0.0
    rate = c.d[c.stages : c.stages + size]
    total, state = c.d[c.stages + size : c.stages + 2 * size], c.d[c.stages + 2 * size : c.stages + 3 * size]
    for j in range(size):
        state[j] = y[j]
    for step in range(n_steps):
        for j in range(size):
            total[j] = 0.0
        for stage in range(4):
            if not half_rates(c, half, count + 1, state, rate):
                largest[0] = -1.0
                return
            count += 2
            add_own(half.own, total, 1.0 if stage == 0 or stage == 3 else 2.0, rate, total)
            add_own(half.own, y, h if stage == 2 else 0.5 * h, rate, state)
        add_own(half.own, y, h / 6.0, total, y)
        normalise_chain(c, y, half.begin, half.end)
        gap = settle_half(c, half, count + 1, y)
        if gap < 0.0:
            largest[0] = -1.0
            return
        count += 2
        largest[0] = max(largest[0], gap)
        add_own(half.own, y, 0.0, total, state)
        if (step + 1) % every == 0:
            add_own(half.own, y, 0.0, total, states[(step + 1) // every])


def add_own(own: Integers, a: Floats, factor: float, b: Floats, result: Floats) -> None:
    """result = a + factor·b for the branch's coordinates and speeds."""
    for part in range(2):
        for j in range(own[2 * part], own[2 * part + 1]):
            result[j] = a[j] + factor * b[j]
