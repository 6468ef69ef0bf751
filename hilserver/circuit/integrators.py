"""The compiled core: the integrators of a packed circuit, with sub-steps (see :mod:`hilserver.circuit.engine`).

The pressures at the machine's ports are boundary values. In the bridge's look-ahead they are states of the circuit:
``chambers`` holds CHAMBER_CELLS values for each of these ports, so that a circuit and the chambers that it fills are
one system of equations, solved by the L-stable method however stiff their connection is.
"""

from __future__ import annotations

import numpy as np

from hilserver.circuit.engine import (
    AT_START,
    BEFORE,
    FIVE,
    FLOWN,
    FLOWS,
    FOUR,
    HALVINGS,
    HYDRAULIC,
    INTEGRATOR,
    LOWER,
    MECHANISMS,
    N_FLOWS,
    N_HYDRAULIC,
    N_MEANS,
    N_MECHANISMS,
    N_PORTS,
    N_SAMPLED,
    N_STATES,
    N_SUMS,
    ONE,
    SCALE,
    SOLUTION_STEPS,
    THREE,
    UPPER,
    Integrator,
    clip_states,
    count_voids,
    evaluate_sampled,
    expose_pressures,
    flow,
    hold_voids,
    pass_volumes,
    rates_within_step,
    release_voids,
    set_explicit_step,
)
from hilserver.mechanics.equations import settle_mechanism
from hilserver.numerics.arrays import Floats, Indices
from hilserver.numerics.linear import compress, compressed_size, factorise, solve_compressed

GAMMA = 1.0 - 0.5 * 2.0**0.5  # L-stable
PARTS, COARSE, MAX_EXAMINED = 2**14, 2**8, 64
"""Units into which a step can be divided; size of its parts once so many of them have been examined, which then are not
examined any longer, so that the computing time of a step is bounded."""
RATE, VOLUME, SLOPES = 0, 1, 2  # of a flow, see flow_of_step
BEND_RELATIVE, BEND_ABSOLUTE = 0.3, 0.05  # of the change of a state in the step, of its typical size: 0.05 bar
PRESSURE_AT, SUM_AT, CAPACITANCE, SWEPT = 0, 1, 2, 3
"""Of a chamber: places of its pressure in z and of its port's sum in d; m³/Pa; m³/s that its piston takes up."""
CHAMBER_CELLS = 4
CHAMBER_SCALE = 1e4
"""Pa: typical size of a chamber's pressure; an error in it becomes a volume that is demanded of the real valve."""


def advance(ix: Indices, val: Floats, z: Floats, y: Floats, work: Floats, n_steps: int, h: float) -> None:
    """`advance_with` all boundary values held."""
    advance_with(ix, val, z, y, work, work[:0], n_steps, h)


def advance_with(
    ix: Indices, val: Floats, z: Floats, y: Floats, work: Floats, chambers: Floats, n_steps: int, h: float
) -> None:
    """Integrate ``n_steps`` steps of ``h`` seconds, inputs held; then refresh ``y`` and the flows into the machine.

    These flows, in ``z``, are means over all steps: volume divided by time. Without a step they are the present ones.
    With ``chambers`` the method is Rosenbrock's; otherwise it is the circuit's.
    """
    implicit = ix[INTEGRATOR] == Integrator.ROSENBROCK or chambers.shape[0] > 0
    set_explicit_step(ix, work, 0.0 if implicit else h)
    row = ix[FLOWS]
    for _ in range(ix[N_MEANS]):
        z[ix[row]] = 0.0
        row += THREE
    release_voids(ix, work)
    if ix[N_SAMPLED] > 0 and n_steps > 0:
        # so that sampled kernels see signals that follow from these inputs
        rates_within_step(ix, val, z, y, work, False)
    known = False
    for step in range(n_steps):
        if ix[N_MECHANISMS] > 0:
            settle_mechanisms(ix, val, z, work, step, h)
        if ix[N_SAMPLED] > 0:
            expose_pressures(ix, val, z)
            evaluate_sampled(ix, val, z, y, work)
        if implicit:
            known = known and ix[N_MECHANISMS] == 0 and ix[N_SAMPLED] == 0
            known = rosenbrock(ix, val, z, y, work, chambers, h, step > 0 and chambers.shape[0] > 0, known)
        elif ix[INTEGRATOR] == Integrator.RK4:
            rk4(ix, val, z, y, work, h)
        else:
            euler(ix, val, z, y, work, h)
        clip_states(ix, val, z)
    if not known or ix[N_MECHANISMS] > 0:
        rates_within_step(ix, val, z, y, work, False)
    row = ix[FLOWS]
    for _ in range(ix[N_MEANS]):
        z[ix[row]] = z[ix[row]] / (n_steps * h) if n_steps > 0 else flow(ix, z, work, row)
        row += THREE
    set_explicit_step(ix, work, 0.0)


def settle_mechanisms(ix: Indices, val: Floats, z: Floats, work: Floats, step: int, h: float) -> None:
    """Correct the drift of all mechanisms before a step; steps that share a solution use that of their middle."""
    shared = np.int64(ix[SOLUTION_STEPS])
    if shared == 0 or step % shared == 0:
        ahead = 0.5 * h * shared
        for k in range(ix[N_MECHANISMS]):
            settle_mechanism(ix, val, z, work, int(ix[ix[MECHANISMS] + k]), ahead)


def euler(ix: Indices, val: Floats, z: Floats, y: Floats, work: Floats, h: float) -> None:
    """Explicit Euler."""
    n = np.int64(ix[N_STATES])
    rates_within_step(ix, val, z, y, work, True)
    hold_voids(ix, val, z, work)
    pass_volumes(ix, z, work, h)
    for i in range(n):
        z[i] += h * work[i]
    z[n] += h
    count_voids(ix, val, z, work)


def rk4(ix: Indices, val: Floats, z: Floats, y: Floats, work: Floats, h: float) -> None:
    """The classical Runge-Kutta method of fourth order."""
    n = np.int64(ix[N_STATES])
    m = n + np.int64(ix[N_SUMS])
    d, start, total = work, work[m:], work[m + n :]
    t = z[n]
    for stage in range(4):
        rates_within_step(ix, val, z, y, d, True)
        if stage == 0:
            hold_voids(ix, val, z, d)
            for i in range(n):
                start[i] = z[i]
                total[i] = 0.0
        weight = 1.0 if stage == 0 or stage == 3 else 2.0
        pass_volumes(ix, z, d, weight * h / 6.0)
        reach = h if stage == 2 else 0.5 * h
        for i in range(n):
            total[i] += weight * d[i]
            z[i] = start[i] + reach * d[i]
        z[n] = t + reach
    for i in range(n):
        z[i] = start[i] + h / 6.0 * total[i]
    z[n] = t + h
    count_voids(ix, val, z, d)


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
    ``work``. Returns the same of the rates at the end, where a step was examined there.
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
            attempt(ix, val, z, y, work, chambers, part)
            z[n] = t + h * (at + size) / PARTS
            examined += 1
            known = (size > 1 and examined <= MAX_EXAMINED) or is_linearised
            if not known or is_accurate_step(ix, val, z, y, work, chambers, part):
                break
            if is_linearised:
                z[n] = t + h * at / PARTS
                linearise(ix, val, z, y, work, chambers)
                is_linearised = False
            else:
                size //= 2
        is_linearised = False
        pass_volumes_of_part(ix, val, z, work, chambers)
        known = not count_voids(ix, val, z, work) and known
        at += size
        size = min(2 * size if examined < MAX_EXAMINED else COARSE, largest, PARTS - at)
    return known


def states_with(ix: Indices, chambers: Floats) -> int:
    """Number of states, with the pressures of these chambers behind the circuit's own."""
    return int(np.int64(ix[N_STATES]) + chambers.shape[0] // CHAMBER_CELLS)


def keep_rates(ix: Indices, d: Floats, chambers: Floats, f: Floats) -> None:
    """Write the rates of all states into ``f``; the circuit's own are in ``d``."""
    n = np.int64(ix[N_STATES])
    for i in range(ix[N_STATES]):
        f[i] = d[i]
    for c in range(chambers.shape[0] // CHAMBER_CELLS):
        row = CHAMBER_CELLS * c
        total = int(chambers[row + SUM_AT])
        f[n + c] = (d[total] - chambers[row + SWEPT]) / (d[total + 1] + chambers[row + CAPACITANCE])


def place_of_state(ix: Indices, chambers: Floats, i: int) -> int:
    """Place of a state in z."""
    n = np.int64(ix[N_STATES])
    return i if i < n else int(chambers[CHAMBER_CELLS * (i - int(n)) + PRESSURE_AT])


def set_states(ix: Indices, z: Floats, chambers: Floats, states: Floats) -> None:
    """Write all states into z."""
    n = np.int64(ix[N_STATES])
    for i in range(ix[N_STATES]):
        z[i] = states[i]
    for c in range(chambers.shape[0] // CHAMBER_CELLS):
        z[int(chambers[CHAMBER_CELLS * c + PRESSURE_AT])] = states[n + c]


def read_states(ix: Indices, z: Floats, chambers: Floats, states: Floats) -> None:
    """Read all states out of z."""
    n = np.int64(ix[N_STATES])
    for i in range(ix[N_STATES]):
        states[i] = z[i]
    for c in range(chambers.shape[0] // CHAMBER_CELLS):
        states[n + c] = z[int(chambers[CHAMBER_CELLS * c + PRESSURE_AT])]


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


def linearise(ix: Indices, val: Floats, z: Floats, y: Floats, work: Floats, chambers: Floats) -> None:
    """Return to the start and keep the Jacobian there in ``work``, by columns; states at a hard limit don't move."""
    own, n = np.int64(ix[N_STATES]), states_with(ix, chambers)
    m = own + np.int64(ix[N_SUMS])
    d, start, f, rates, jacobian = work, work[m:], work[m + n :], work[m + 2 * n :], work[m + 6 * n :]
    set_states(ix, z, chambers, start)
    for j in range(n):
        column = jacobian[j * n :]
        step = 1e-7 * max(abs(start[j]), val[ix[SCALE] + j] if j < own else CHAMBER_SCALE)
        step = (start[j] + step) - start[j]
        if j < own:
            lower, upper = val[ix[LOWER] + j], val[ix[UPPER] + j]
            if f[j] == 0.0 and (start[j] <= lower or start[j] >= upper):
                for i in range(n):
                    column[i] = 0.0
                for k in range(ix[N_FLOWS]):
                    work[flow_of_step(ix, n, k) + SLOPES + j] = 0.0
                continue
            if start[j] + step > upper:
                step = -step
        place = place_of_state(ix, chambers, j)
        z[place] = start[j] + step
        rates_within_step(ix, val, z, y, d, True)
        for k in range(ix[N_FLOWS]):
            one = flow_of_step(ix, n, k)
            work[one + SLOPES + j] = (flow(ix, z, d, ix[FLOWS] + THREE * k) - work[one + RATE]) / step
        z[place] = start[j]
        keep_rates(ix, d, chambers, rates)
        for i in range(n):
            column[i] = (rates[i] - f[i]) / step


def flow_of_step(ix: Indices, n: int, k: int) -> int:
    """Place in ``work`` of flow ``k`` in a step of n states: its rate at the start, its volume, its slopes over them.

    The volume is integrated like one more state, so that it and the circuit's content add up exactly.
    """
    first = np.int64(ix[N_STATES]) + np.int64(ix[N_SUMS]) + 6 * n + 2 * n * n
    return int(first + np.int64(k) * (n + SLOPES))


def factors_of_step(ix: Indices, n: int) -> int:
    """Place in ``work`` of the factors of the matrix of a step of n states, without their zeros."""
    return int(flow_of_step(ix, n, 0) + np.int64(ix[N_FLOWS]) * (n + SLOPES))


def attempt(ix: Indices, val: Floats, z: Floats, y: Floats, work: Floats, chambers: Floats, h: float) -> None:
    """One step of ``h`` from the kept linearisation."""
    own, n = np.int64(ix[N_STATES]), states_with(ix, chambers)
    m = own + np.int64(ix[N_SUMS])
    d, start, f, k1, k2, pivots = work, work[m:], work[m + n :], work[m + 2 * n :], work[m + 3 * n :], work[m + 4 * n :]
    bend = work[m + 5 * n :]  # what the linearisation misses at the stage, where it predicts f + J·g·h·k1 = k1
    jacobian, matrix, factors = work[m + 6 * n :], work[m + 6 * n + n * n :], work[factors_of_step(ix, n) :]
    size = np.uint64(n)
    for i in range(size):
        for j in range(size):
            matrix[i * size + j] = 0.0 - GAMMA * h * jacobian[j * size + i]
        matrix[i * size + i] = 1.0 - GAMMA * h * jacobian[i * size + i]
        k1[i] = f[i]
    factorise(matrix, int(n), pivots)
    compress(matrix, int(n), factors)
    solve_compressed(factors, k1, int(n), pivots)
    for i in range(size):
        k2[i] = start[i] + GAMMA * h * k1[i]
    set_states(ix, z, chambers, k2)
    for k in range(ix[N_FLOWS]):
        one = flow_of_step(ix, n, k)
        volume = work[one + RATE]
        for i in range(n):
            volume += GAMMA * h * work[one + SLOPES + i] * k1[i]
        work[one + VOLUME] = volume
    z[own] += GAMMA * h
    clip_states(ix, val, z)
    rates_within_step(ix, val, z, y, d, True)
    keep_rates(ix, d, chambers, k2)
    for i in range(size):
        bend[i] = k2[i] - k1[i]
        k2[i] = k2[i] - 2.0 * GAMMA * k1[i]
    solve_compressed(factors, k2, int(n), pivots)
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


def is_accurate_step(ix: Indices, val: Floats, z: Floats, y: Floats, work: Floats, chambers: Floats, h: float) -> bool:
    """Whether the rates at the end of an attempted step agree with those that the linearisation predicts there.

    The difference is expressed as the change of state that it causes: h·(I - g·h·J)^-1·(f(z) - f - J·(z - start)).
    It is compared with the change in the step: at a restriction that follows the square root law, the linearisation
    holds for a pressure near that at the start, and beyond zero drop it is wrong by as much as the pressure changes.
    """
    own, n = np.int64(ix[N_STATES]), states_with(ix, chambers)
    m = own + np.int64(ix[N_SUMS])
    d, start, f, error, change, pivots = (
        work, work[m:], work[m + n :], work[m + 2 * n :], work[m + 3 * n :], work[m + 4 * n :]
    )  # fmt: skip
    jacobian, predicted, factors = work[m + 6 * n :], work[m + 5 * n :], work[factors_of_step(ix, n) :]
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
    solve_compressed(factors, error, int(n), pivots)
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
    k1, change, pivots, bend = work[m + 2 * n :], work[m + 3 * n :], work[m + 4 * n :], work[m + 5 * n :]
    small = 0
    solve_compressed(work[factors_of_step(ix, n) :], bend, int(n), pivots)
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


def work_size(ix: Indices) -> int:
    """Length of the scratch array ``work``, sufficient for any integrator, and for a chamber at each of the ports."""
    n, flows = int(ix[N_STATES]) + int(ix[N_PORTS]), int(ix[N_FLOWS])
    return int(ix[N_SUMS]) + 7 * n + 2 * n * n + flows * (n + SLOPES) + compressed_size(n) + 8
