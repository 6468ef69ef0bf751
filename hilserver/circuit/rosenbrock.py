"""The compiled core: an L-stable method for stiff circuits (see :mod:`hilserver.circuit.engine`)."""

from __future__ import annotations

import numpy as np

from hilserver.circuit.elimination import factorise_structure, is_sound, solve_structure
from hilserver.circuit.engine import (
    AT_START,
    BEFORE,
    FIVE,
    FLOWN,
    FLOWS,
    FOUR,
    HALVINGS,
    HYDRAULIC,
    N_ELIMINATION,
    N_FLOWS,
    N_HYDRAULIC,
    N_STATES,
    N_SUMS,
    ONE,
    SCALE,
    THREE,
    clip_states,
    count_voids,
    flow,
    hold_voids,
    rates_within_step,
)
from hilserver.circuit.linearisation import (
    CHAMBER_CELLS,
    CHAMBER_SCALE,
    PRESSURE_AT,
    RATE,
    SLOPES,
    VOLUME,
    flow_of_step,
    keep_rates,
    linearise,
    set_states,
    states_with,
)
from hilserver.numerics.arrays import Floats, Indices
from hilserver.numerics.linear import compress, factorise_columns, solve_compressed

GAMMA = 1.0 - 0.5 * 2.0**0.5  # L-stable
PARTS, COARSE, MAX_EXAMINED = 2**14, 2**8, 64
"""Units into which a step can be divided; size of its parts once so many of them have been examined, which then are not
examined any longer, so that the computing time of a step is bounded."""
WITHOUT_PIVOTS = -1.0  # in place of the first pivot: the matrix has been factorised along the circuit's structure
BEND_RELATIVE, BEND_ABSOLUTE = 0.3, 0.05  # of the change of a state in the step, of its typical size: 0.05 bar


def rosenbrock(
    ix: Indices,
    val: Floats,
    z: Floats,
    y: Floats,
    work: Floats,
    chambers: Floats,
    h: float,
    is_linearised: bool,
    known: bool,
    passes: float,
) -> bool:
    """A linearly implicit, L-stable method of second order that divides its step where the circuit is nonlinear.

    (I - g·h·J) k1 = f(z);  (I - g·h·J) k2 = f(z + g·h·k1) - 2·g·k1;  z + g·h·k1 + (2 - g)·h·k2,  g = 1 - 1/sqrt(2).
    Second order with any J; both the stage (an implicit Euler step of g·h) and the result damp stiff modes, so that the
    stage does not overshoot into cavitation or past a seat. Source: the family of two-stage W-methods of
    Verwer, Spee, Blom & Hundsdorfer, SIAM J. Sci. Comput. 20 (1999) 1456, with the stage at g instead of 1.

    A linearisation does not hold beyond a discontinuity of slope (a valve that opens, a pump at its limit, cavitation),
    and a stiff node would overshoot it. So the step is halved while the rates at its end differ from those that the
    linearisation predicts. After a part that was good, one of twice the size is tried. ``is_linearised``: the
    linearisation of the step before is in ``work``; it is tried first. ``known``: the rates at the start are in
    ``work``. Returns the same of the rates at the end, where a step was examined there. ``passes``: s by which the
    time of signals goes on.
    """
    n = np.int64(ix[N_STATES])
    t = z[n]
    at, examined, largest = 0, 0, PARTS
    for _ in range(ix[HALVINGS]):
        largest //= 2
    size = largest
    while at < PARTS:
        keep_start(ix, val, z, y, work, chambers, known)
        if not is_linearised:
            linearise(ix, val, z, y, work, chambers)
        while True:
            part = h * size / PARTS
            attempt(ix, val, z, y, work, chambers, part, passes * size / PARTS)
            z[n] = t + passes * (at + size) / PARTS
            examined += 1
            known = (size > 1 and examined <= MAX_EXAMINED) or is_linearised
            if not known or is_accurate_step(ix, val, z, y, work, chambers, part):
                break
            if is_linearised:
                z[n] = t + passes * at / PARTS
                linearise(ix, val, z, y, work, chambers)
                is_linearised = False
            else:
                z[n] = t + passes * at / PARTS
                size //= 2
        is_linearised = False
        pass_volumes_of_part(ix, val, z, work, chambers)
        known = not count_voids(ix, val, z, work) and known
        at += size
        size = min(2 * size if examined < MAX_EXAMINED else COARSE, largest, PARTS - at)
    return known


def keep_start(ix: Indices, val: Floats, z: Floats, y: Floats, work: Floats, chambers: Floats, known: bool) -> None:
    """Keep the states and their rates at ``z`` in ``work``, where the rates may be ``known``."""
    n, m = states_with(ix, chambers), np.int64(ix[N_STATES]) + np.int64(ix[N_SUMS])
    d, start, f = work, work[m:], work[m + n :]
    if not known:
        rates_within_step(ix, val, z, y, d, True)
    hold_voids(ix, val, z, d)
    read_states(ix, z, chambers, start)
    keep_rates(ix, d, chambers, f)
    for k in range(ix[N_FLOWS]):
        work[flow_of_step(ix, n, k) + RATE] = flow(ix, z, d, ix[FLOWS] + THREE * k)


def attempt(
    ix: Indices, val: Floats, z: Floats, y: Floats, work: Floats, chambers: Floats, h: float, passes: float
) -> None:
    """One step of ``h`` from the kept linearisation, in which the time ``passes`` for signals."""
    own, n = np.int64(ix[N_STATES]), states_with(ix, chambers)
    m = own + np.int64(ix[N_SUMS])
    d, start, f, k1, k2 = work, work[m:], work[m + n :], work[m + 2 * n :], work[m + 3 * n :]
    bend = work[m + 5 * n :]  # what the linearisation misses at the stage, where it predicts f + J·g·h·k1 = k1
    size = np.uint64(n)
    for i in range(size):
        k1[i] = f[i]
    factorise_step(ix, work, chambers, h)
    solve_step(ix, work, n, k1)
    for i in range(size):
        k2[i] = start[i] + GAMMA * h * k1[i]
    set_states(ix, z, chambers, k2)
    for k in range(ix[N_FLOWS]):
        one = flow_of_step(ix, n, k)
        volume = work[one + RATE]
        for i in range(n):
            volume += GAMMA * h * work[one + SLOPES + i] * k1[i]
        work[one + VOLUME] = volume
    z[own] += GAMMA * passes
    clip_states(ix, val, z)
    rates_within_step(ix, val, z, y, d, True)
    keep_rates(ix, d, chambers, k2)
    for i in range(size):
        bend[i] = k2[i] - k1[i]
        k2[i] = k2[i] - 2.0 * GAMMA * k1[i]
    solve_step(ix, work, n, k2)
    for k in range(ix[N_FLOWS]):
        one = flow_of_step(ix, n, k)
        first = work[one + VOLUME]
        second = flow(ix, z, d, ix[FLOWS] + THREE * k) - 2.0 * GAMMA * first
        for i in range(n):
            second += GAMMA * h * work[one + SLOPES + i] * k2[i]
        work[one + VOLUME] = h * (GAMMA * first + (2.0 - GAMMA) * second)
    for i in range(size):
        k2[i] = start[i] + h * (GAMMA * k1[i] + (2.0 - GAMMA) * k2[i])
    set_states(ix, z, chambers, k2)
    clip_states(ix, val, z)


def factorise_step(ix: Indices, work: Floats, chambers: Floats, h: float) -> None:
    """Factorise I - g·h·J for `solve_step`: along the structure of the circuit, or as a whole, with pivoting.

    The latter for a circuit with chambers, whose columns are full; and where a pivot is not sound.
    """
    n = states_with(ix, chambers)
    m, size = np.int64(ix[N_STATES]) + np.int64(ix[N_SUMS]), np.uint64(n)
    pivots, jacobian, matrix = work[m + 4 * n :], work[m + 6 * n :], work[m + 6 * n + n * n :]
    scale = 0.0 - GAMMA * h
    if ix[N_ELIMINATION] > 0 and chambers.shape[0] == 0:
        factorise_structure(ix, jacobian, matrix, scale)
        if is_sound(ix, jacobian, matrix, scale):
            pivots[0] = WITHOUT_PIVOTS
            return
    for k in range(size * size):
        matrix[k] = 0.0 - GAMMA * h * jacobian[k]
    for i in range(size):
        matrix[i * size + i] = 1.0 - GAMMA * h * jacobian[i * size + i]
    factorise_columns(matrix, int(n), pivots)
    compress(matrix, int(n), work[factors_of_step(ix, n) :])


def solve_step(ix: Indices, work: Floats, n: int, b: Floats) -> None:
    """b <- (I - g·h·J)^-1 b, of the n states of a step."""
    m = np.int64(ix[N_STATES]) + np.int64(ix[N_SUMS])
    pivots = work[m + 4 * n :]
    if pivots[0] == WITHOUT_PIVOTS:
        solve_structure(ix, work[m + 6 * n + n * n :], b)
    else:
        solve_compressed(work[factors_of_step(ix, n) :], b, int(n), pivots)


def is_accurate_step(ix: Indices, val: Floats, z: Floats, y: Floats, work: Floats, chambers: Floats, h: float) -> bool:
    """Whether the rates at the end of an attempted step agree with those that the linearisation predicts there.

    The difference is expressed as the change of state that it causes: h·(I - g·h·J)^-1·(f(z) - f - J·(z - start)).
    It is compared with the change in the step: at a restriction that follows the square root law, the linearisation
    holds for a pressure near that at the start, and beyond zero drop it is wrong by as much as the pressure changes.
    """
    own, n = np.int64(ix[N_STATES]), states_with(ix, chambers)
    m = own + np.int64(ix[N_SUMS])
    d, start, f, error, change = work, work[m:], work[m + n :], work[m + 2 * n :], work[m + 3 * n :]
    jacobian, predicted = work[m + 6 * n :], work[m + 5 * n :]
    read_states(ix, z, chambers, change)
    size = np.uint64(n)
    for i in range(size):
        change[i] = change[i] - start[i]
    if not is_accurate_stage(ix, val, work, n, h):
        return False
    rates_within_step(ix, val, z, y, d, True)
    keep_rates(ix, d, chambers, error)
    for i in range(size):
        predicted[i] = f[i]
    for j in range(size):
        for i in range(size):
            predicted[i] += jacobian[j * size + i] * change[j]
    for i in range(size):
        error[i] = error[i] - predicted[i]
    solve_step(ix, work, n, error)
    small = 0
    for i in range(n):
        small += is_small(ix, val, i, h * error[i], abs(change[i]))
    return bool(small == n)


def is_accurate_stage(ix: Indices, val: Floats, work: Floats, n: int, h: float) -> bool:
    """The same at the stage of a step, where the linearisation predicts the rates k1.

    A step can end where there is no difference although its stage saw one: back at its start, where a restriction is
    stiff (a false equilibrium), or before an end stop that the stage has met (thrown back faster than it came).
    """
    m = np.int64(ix[N_STATES]) + np.int64(ix[N_SUMS])
    k1, change, bend = work[m + 2 * n :], work[m + 3 * n :], work[m + 5 * n :]
    small = 0
    solve_step(ix, work, n, bend)
    for i in range(n):
        small += is_small(ix, val, i, h * bend[i], max(abs(change[i]), abs(GAMMA * h * k1[i])))
    return bool(small == n)


def is_small(ix: Indices, val: Floats, i: int, error: float, change: float) -> bool:
    """Whether the error of a state by its linearisation is acceptable in a step in which it changes by ``change``.

    It grows with h²: each of the HALVINGS in the header (0 except in the second run with half the step) allows a
    quarter, and halves the largest part of a step.
    """
    scale = val[ix[SCALE] + i] if i < np.int64(ix[N_STATES]) else CHAMBER_SCALE
    allowed = BEND_RELATIVE * change + BEND_ABSOLUTE * scale
    for _ in range(ix[HALVINGS]):
        allowed *= 0.25
    return bool(abs(error) <= allowed)  # also false for NaN


def pass_volumes_of_part(ix: Indices, val: Floats, z: Floats, work: Floats, chambers: Floats) -> None:
    """The same for a part of a Rosenbrock step; into nodes that may have opened a void by the mean of 1/C."""
    for k in range(ix[N_FLOWS]):
        z[ix[ix[FLOWS] + THREE * k]] += work[flow_of_step(ix, states_with(ix, chambers), k) + VOLUME]
    row = ix[HYDRAULIC]
    for _ in range(ix[N_HYDRAULIC]):
        i, cell = ix[row], ix[row + THREE]
        if z[i] < val[ix[row + FOUR]]:
            per_volume = 0.5 / work[cell + AT_START] + 0.5 / work[ix[row + ONE] + ONE]
            work[cell + FLOWN] = (z[i] - work[cell + BEFORE]) / per_volume
        row += FIVE


def read_states(ix: Indices, z: Floats, chambers: Floats, states: Floats) -> None:
    """Read all states out of z."""
    n = np.int64(ix[N_STATES])
    for i in range(ix[N_STATES]):
        states[i] = z[i]
    for c in range(chambers.shape[0] // CHAMBER_CELLS):
        states[n + c] = z[int(chambers[CHAMBER_CELLS * c + PRESSURE_AT])]


def factors_of_step(ix: Indices, n: int) -> int:
    """Place in ``work`` of the factors of the matrix of a step of n states, without their zeros."""
    return int(flow_of_step(ix, n, 0) + np.int64(ix[N_FLOWS]) * (n + SLOPES))
