"""The compiled core: derivatives of a packed circuit, integrators with sub-steps.

These functions are linked to the generated ``evaluate`` and compiled by :mod:`hilserver.compiler`.
A packed circuit is two arrays, ``ix`` (uint64) and ``val`` (float64); the header of ``ix`` locates its tables.
``z`` holds the circuit's values (states first, then time, boundary pressures, signals), ``y`` the recorded results,
``d`` the derivatives and, behind them, the sums of flow, capacitance, force and mass at the nodes.

The pressures at the machine's ports are boundary values. In the bridge's look-ahead they are states of the circuit:
``chambers`` holds CHAMBER_CELLS values for each of these ports, so that a circuit and the chambers that it fills are
one system of equations, solved by the L-stable method however stiff their connection is.
"""

from __future__ import annotations

import numpy as np

from hilserver.mechanics.equations import move_mechanism, push_mechanism, settle_mechanism
from hilserver.numerics.arrays import Floats, Indices
from hilserver.numerics.linear import factorise, solve

# header of ix
N_STATES, N_VALUES, N_RECORDED, N_SUMS = 0, 1, 2, 3
N_CALLS, CALLS = 4, 5
N_HYDRAULIC, HYDRAULIC = 6, 7
N_MECHANICAL, MECHANICAL = 8, 9
N_FLOWS, FLOWS = 10, 11
N_BOUND, BOUND = 12, 13
N_PORTS, PORTS = 14, 15
INTEGRATOR, SUBSTEPS = 16, 17
LOWER, UPPER, SCALE, INITIAL = 18, 19, 20, 21
N_SAMPLED, SAMPLED = 22, 23
VAPOUR, N_LIMITED, LIMITED = 24, 25, 26
N_MECHANISMS, MECHANISMS, SOLUTION_STEPS = 27, 28, 29  # steps that share a solution of a mechanism's equations, or 0
N_CLEARED, HEADER = 30, 32  # of the sums: those at nodes; behind them the explicit step, cells, mechanisms' scratch
ONE, TWO, THREE = np.uint64(1), np.uint64(2), np.uint64(3)  # unsigned plus signed would be signed
FOUR, FIVE = np.uint64(4), np.uint64(5)

EULER, RK4, ROSENBROCK = 0, 1, 2
GAMMA = 1.0 - 0.5 * 2.0**0.5  # L-stable
PARTS = 64
VOID_CAPACITANCE = 1e-11
"""m³/Pa: below the vapour pressure the state of a node counts its void by this, 1 bar for each millilitre."""
RATE, VOLUME, SLOPES = 0, 1, 2  # of a flow, see flow_of_step
HELD, FLOWN, BEFORE, AT_START = (np.uint64(k) for k in range(4))  # of a node in a step, see hold_voids
NODE_CELLS = 4
BEND_RELATIVE, BEND_ABSOLUTE = 0.3, 0.05  # of the change of a state in the step, of its typical size: 0.05 bar
PRESSURE_AT, SUM_AT, CAPACITANCE, SWEPT = 0, 1, 2, 3
"""Of a chamber: places of its pressure in z and of its port's sum in d; m³/Pa; m³/s that its piston takes up."""
CHAMBER_CELLS = 4
CHAMBER_SCALE = 1e4
"""Pa: size of its pressure that counts: an error in it becomes a volume that is asked of the real valve."""


def evaluate(ix: Indices, val: Floats, z: Floats, y: Floats, d: Floats) -> None:
    """Run every kernel of the circuit; the real one is generated from the component library."""
    raise NotImplementedError


def evaluate_sampled(ix: Indices, val: Floats, z: Floats, y: Floats, d: Floats) -> None:
    """Run the circuit's sampled kernels; the real one is generated from the component library."""
    raise NotImplementedError


def derivatives(ix: Indices, val: Floats, z: Floats, y: Floats, d: Floats) -> None:
    """Fill ``d`` with the time derivatives of the states at ``z``; states at a hard limit don't move beyond it."""
    release_voids(ix, d)
    rates_within_step(ix, val, z, y, d, False)
    row = ix[HYDRAULIC]
    for _ in range(ix[N_HYDRAULIC]):
        if z[ix[row]] < val[ix[row + FOUR]]:
            d[ix[row]] = d[ix[row + ONE]] / VOID_CAPACITANCE
        row += FIVE


def rates_within_step(ix: Indices, val: Floats, z: Floats, y: Floats, d: Floats, held: bool) -> None:
    """The same; ``held``: with the shared solution of a mechanism's equations of motion, where steps share one."""
    expose_pressures(ix, val, z)
    n = ix[N_STATES]
    for i in range(n, n + ix[N_CLEARED]):
        d[i] = 0.0
    for k in range(ix[N_MECHANISMS]):
        move_mechanism(ix, val, z, d, int(ix[ix[MECHANISMS] + k]))
    evaluate(ix, val, z, y, d)
    share = int(held and ix[SOLUTION_STEPS] > 0)
    for k in range(ix[N_MECHANISMS]):
        push_mechanism(ix, val, z, d, int(ix[ix[MECHANISMS] + k]), share)
    row = ix[HYDRAULIC]
    for _ in range(ix[N_HYDRAULIC]):
        total, held = ix[row + ONE], d[ix[row + THREE] + HELD]
        C = held if held > 0.0 else d[total + ONE]
        d[ix[row]] = d[total] / C  # dp/dt = sum of flows / sum of capacitances
        row += FIVE
    row = ix[MECHANICAL]
    for _ in range(ix[N_MECHANICAL]):
        i, total = ix[row], ix[row + ONE]
        d[i] = z[i + ONE]
        d[i + ONE] = d[total] / d[total + ONE]  # dv/dt = sum of forces / sum of masses
        row += TWO
    lower, upper, row = ix[LOWER], ix[UPPER], ix[LIMITED]
    for _ in range(ix[N_LIMITED]):
        i = ix[row]
        if (z[i] <= val[lower + i] and d[i] < 0.0) or (z[i] >= val[upper + i] and d[i] > 0.0):
            d[i] = 0.0
        row += ONE


def set_explicit_step(ix: Indices, d: Floats, h: float) -> None:
    """Tell the kernels the step, s, with which an explicit method integrates them (``h_explicit``); else 0."""
    d[ix[N_STATES] + ix[N_CLEARED]] = 0.0 if ix[INTEGRATOR] == ROSENBROCK else h


def settle_mechanisms(ix: Indices, val: Floats, z: Floats, work: Floats, step: int, h: float) -> None:
    """Correct the drift of all mechanisms before a step; steps that share a solution use that of their middle."""
    shared = np.int64(ix[SOLUTION_STEPS])
    if shared == 0 or step % shared == 0:
        ahead = 0.5 * h * shared
        for k in range(ix[N_MECHANISMS]):
            settle_mechanism(ix, val, z, work, int(ix[ix[MECHANISMS] + k]), ahead)


def expose_pressures(ix: Indices, val: Floats, z: Floats) -> None:
    """Expose each node's pressure: its state, but never below the vapour pressure."""
    row = ix[HYDRAULIC]
    for _ in range(ix[N_HYDRAULIC]):
        z[ix[row + TWO]] = max(z[ix[row]], val[ix[row + FOUR]])
        row += FIVE


def hold_voids(ix: Indices, val: Floats, z: Floats, d: Floats) -> None:
    """At the start of a step, with the sums there in ``d``: the void of a node becomes a pressure below the vapour's.

    A state below the vapour pressure p_v counts the void, V = VOID_CAPACITANCE·(p_v - state): so it means the same
    whatever moves meanwhile, and in any circuit. Within the step V = C·(p_v - state), with the node's capacitance C at
    the start: what flows is integrated as a volume, exactly. To the integrator the node is one that empties and fills
    at constant capacitance.

    For each node ``d`` has four cells behind the sums: the capacitance that is held, or 0 without a void; the volume
    that has flown in; the state at the start, and the capacitance there.
    """
    row = ix[HYDRAULIC]
    for _ in range(ix[N_HYDRAULIC]):
        i, cell, vapour = ix[row], ix[row + THREE], val[ix[row + FOUR]]
        C = d[ix[row + ONE] + ONE]
        if z[i] < vapour:
            d[cell + HELD] = C
            z[i] = vapour + (z[i] - vapour) * VOID_CAPACITANCE / C
        d[cell + FLOWN], d[cell + BEFORE], d[cell + AT_START] = 0.0, z[i], C
        row += FIVE


def count_voids(ix: Indices, val: Floats, z: Floats, d: Floats) -> None:
    """At the end of a step: the state of a node below the vapour pressure counts its void again.

    Where a void has opened or closed within the step, a part of the volume flown has expanded or compressed the oil,
    at the node's mean capacitance in this part of the step. (That volume is integrated; in a Rosenbrock step it follows
    from the change of the state, exactly while the capacitance is constant, and to second order otherwise.)
    """
    row = ix[HYDRAULIC]
    for _ in range(ix[N_HYDRAULIC]):
        i, cell, vapour = ix[row], ix[row + THREE], val[ix[row + FOUR]]
        before, flown, C = d[cell + BEFORE], d[cell + FLOWN], d[cell + AT_START]
        if z[i] < vapour and d[cell + HELD] > 0.0:
            z[i] = vapour + (z[i] - vapour) * C / VOID_CAPACITANCE
        elif z[i] < vapour:
            share, C_mean = (before - vapour) / (before - z[i]), flown / (z[i] - before)
            expanded = (C + share * (C_mean - C)) * (before - vapour)
            z[i] = vapour - max(-flown - expanded, 0.0) / VOID_CAPACITANCE
        elif d[cell + HELD] > 0.0:
            share, C_end = (vapour - before) / (z[i] - before), d[ix[row + ONE] + ONE]
            z[i] = vapour + (z[i] - vapour) * C / (C + 0.5 * (1.0 + share) * (C_end - C))
        d[cell + HELD] = 0.0
        row += FIVE


def release_voids(ix: Indices, d: Floats) -> None:
    """Before a step: no node's capacitance is held."""
    row = ix[HYDRAULIC]
    for _ in range(ix[N_HYDRAULIC]):
        d[ix[row + THREE] + HELD] = 0.0
        row += FIVE


def clip_states(ix: Indices, val: Floats, z: Floats) -> None:
    """Limit every state to its hard limits."""
    lower, upper, row = ix[LOWER], ix[UPPER], ix[LIMITED]
    for _ in range(ix[N_LIMITED]):
        i = ix[row]
        z[i] = min(max(z[i], val[lower + i]), val[upper + i])
        row += ONE


def flow(ix: Indices, z: Floats, d: Floats, row: int) -> float:
    """Rate of a row of the table FLOWS: a sum at a node, in some rows times a value (a power)."""
    factor = ix[row + TWO]
    return float(d[ix[row + ONE]] * z[factor] if factor < ix[N_VALUES] else d[ix[row + ONE]])


def pass_volumes(ix: Indices, z: Floats, d: Floats, time: float) -> None:
    """Add what flows at these rates in ``time`` seconds to what `advance` and `count_voids` count."""
    row = ix[FLOWS]
    for _ in range(ix[N_FLOWS]):
        z[ix[row]] += time * flow(ix, z, d, row)
        row += THREE
    row = ix[HYDRAULIC]
    for _ in range(ix[N_HYDRAULIC]):
        d[ix[row + THREE] + FLOWN] += time * d[ix[row + ONE]]
        row += FIVE


def pass_volumes_of_part(ix: Indices, val: Floats, z: Floats, work: Floats, chambers: Floats) -> None:
    """The same for a part of a Rosenbrock step; into nodes that may have opened a void by the mean of 1/C."""
    for k in range(ix[N_FLOWS]):
        z[ix[ix[FLOWS] + THREE * k]] += flow_of_step(ix, work, chambers, k)[VOLUME]
    row = ix[HYDRAULIC]
    for _ in range(ix[N_HYDRAULIC]):
        i, cell = ix[row], ix[row + THREE]
        if z[i] < val[ix[row + FOUR]]:
            per_volume = 0.5 / work[cell + AT_START] + 0.5 / work[ix[row + ONE] + ONE]
            work[cell + FLOWN] = (z[i] - work[cell + BEFORE]) / per_volume
        row += FIVE


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
    ix: Indices, val: Floats, z: Floats, y: Floats, work: Floats, chambers: Floats, h: float, is_linearised: bool
) -> None:
    """A linearly implicit, L-stable method of second order that divides its step where the circuit is nonlinear.

    (I - g·h·J) k1 = f(z);  (I - g·h·J) k2 = f(z + g·h·k1) - 2·g·k1;  z + g·h·k1 + (2 - g)·h·k2,  g = 1 - 1/sqrt(2).
    Second order with any J; both the stage (an implicit Euler step of g·h) and the result damp stiff modes, so that the
    stage does not overshoot into cavitation or past a seat. Source: the family of two-stage W-methods of
    Verwer, Spee, Blom & Hundsdorfer, SIAM J. Sci. Comput. 20 (1999) 1456, with the stage at g instead of 1.

    A linearisation does not hold beyond a discontinuity of slope (a valve that opens, a pump at its limit, cavitation),
    and a stiff node would overshoot it. So the step is halved while the rates at its end differ from those that the
    linearisation predicts; at most to h/PARTS, so that the computing time of a step is bounded. ``is_linearised``: the
    linearisation of the step before is in ``work``; it is tried first.
    """
    n = np.int64(ix[N_STATES])
    t = z[n]
    at, size = 0, PARTS
    while at < PARTS:
        keep_start(ix, val, z, y, work, chambers)
        if not is_linearised:
            linearise(ix, val, z, y, work, chambers)
        while True:
            part = h * size / PARTS
            attempt(ix, val, z, y, work, chambers, part)
            z[n] = t + h * (at + size) / PARTS
            if (size == 1 and not is_linearised) or is_as_promised(ix, val, z, y, work, chambers, part):
                break
            if is_linearised:
                z[n] = t + h * at / PARTS
                linearise(ix, val, z, y, work, chambers)
                is_linearised = False
            else:
                size //= 2
        is_linearised = False
        pass_volumes_of_part(ix, val, z, work, chambers)
        count_voids(ix, val, z, work)
        at += size
        size = min(2 * size, PARTS - at)


def states_with(ix: Indices, chambers: Floats) -> int:
    """Number of states, with the pressures of these chambers behind the circuit's own."""
    return int(np.int64(ix[N_STATES]) + chambers.shape[0] // CHAMBER_CELLS)


def keep_rates(ix: Indices, d: Floats, chambers: Floats, f: Floats) -> None:
    """Write the rates of all states into ``f``; the circuit's own are in ``d``."""
    n = np.int64(ix[N_STATES])
    for i in range(n):
        f[i] = d[i]
    for i in range(n, states_with(ix, chambers)):
        row = CHAMBER_CELLS * (i - n)
        total = int(chambers[row + SUM_AT])
        f[i] = (d[total] - chambers[row + SWEPT]) / (d[total + 1] + chambers[row + CAPACITANCE])


def place_of_state(ix: Indices, chambers: Floats, i: int) -> int:
    """Place of a state in z."""
    n = np.int64(ix[N_STATES])
    return i if i < n else int(chambers[CHAMBER_CELLS * (i - int(n)) + PRESSURE_AT])


def keep_start(ix: Indices, val: Floats, z: Floats, y: Floats, work: Floats, chambers: Floats) -> None:
    """Keep the states and their rates at ``z`` in ``work``."""
    n, m = states_with(ix, chambers), np.int64(ix[N_STATES]) + np.int64(ix[N_SUMS])
    d, start, f = work, work[m:], work[m + n :]
    rates_within_step(ix, val, z, y, d, True)
    hold_voids(ix, val, z, d)
    for i in range(n):
        start[i] = z[place_of_state(ix, chambers, i)]
    keep_rates(ix, d, chambers, f)
    for k in range(ix[N_FLOWS]):
        flow_of_step(ix, work, chambers, k)[RATE] = flow(ix, z, d, ix[FLOWS] + THREE * k)


def linearise(ix: Indices, val: Floats, z: Floats, y: Floats, work: Floats, chambers: Floats) -> None:
    """Return to the start and keep the Jacobian there in ``work``; states held at a hard limit don't move."""
    own, n = np.int64(ix[N_STATES]), states_with(ix, chambers)
    m = own + np.int64(ix[N_SUMS])
    d, start, f, rates, jacobian = work, work[m:], work[m + n :], work[m + 2 * n :], work[m + 5 * n :]
    for j in range(n):
        z[place_of_state(ix, chambers, j)] = start[j]
    for j in range(n):
        step = 1e-7 * max(abs(start[j]), val[ix[SCALE] + j] if j < own else CHAMBER_SCALE)
        step = (start[j] + step) - start[j]
        if j < own:
            lower, upper = val[ix[LOWER] + j], val[ix[UPPER] + j]
            if f[j] == 0.0 and (start[j] <= lower or start[j] >= upper):
                for i in range(n):
                    jacobian[i * n + j] = 0.0
                for k in range(ix[N_FLOWS]):
                    flow_of_step(ix, work, chambers, k)[SLOPES + j] = 0.0
                continue
            if start[j] + step > upper:
                step = -step
        place = place_of_state(ix, chambers, j)
        z[place] = start[j] + step
        rates_within_step(ix, val, z, y, d, True)
        for k in range(ix[N_FLOWS]):
            one = flow_of_step(ix, work, chambers, k)
            one[SLOPES + j] = (flow(ix, z, d, ix[FLOWS] + THREE * k) - one[RATE]) / step
        z[place] = start[j]
        keep_rates(ix, d, chambers, rates)
        for i in range(n):
            jacobian[i * n + j] = (rates[i] - f[i]) / step


def flow_of_step(ix: Indices, work: Floats, chambers: Floats, k: int) -> Floats:
    """Flow ``k`` in a Rosenbrock step: its rate at the start, its volume, its slopes over the states.

    The volume is integrated like one more state, so that it and the circuit's content add up exactly.
    """
    n = states_with(ix, chambers)
    return work[np.int64(ix[N_STATES]) + np.int64(ix[N_SUMS]) + 5 * n + 2 * n * n + np.int64(k) * (n + SLOPES) :]


def attempt(ix: Indices, val: Floats, z: Floats, y: Floats, work: Floats, chambers: Floats, h: float) -> None:
    """One step of ``h`` from the kept linearisation."""
    own, n = np.int64(ix[N_STATES]), states_with(ix, chambers)
    m = own + np.int64(ix[N_SUMS])
    d, start, f, k1, k2, pivots = work, work[m:], work[m + n :], work[m + 2 * n :], work[m + 3 * n :], work[m + 4 * n :]
    jacobian, matrix = work[m + 5 * n :], work[m + 5 * n + n * n :]
    for i in range(n):
        for j in range(n):
            matrix[i * n + j] = (1.0 if i == j else 0.0) - GAMMA * h * jacobian[i * n + j]
        k1[i] = f[i]
    factorise(matrix, int(n), pivots)
    solve(matrix, k1, int(n), pivots)
    for i in range(n):
        z[place_of_state(ix, chambers, i)] = start[i] + GAMMA * h * k1[i]
    for k in range(ix[N_FLOWS]):
        one = flow_of_step(ix, work, chambers, k)
        one[VOLUME] = one[RATE]
        for i in range(n):
            one[VOLUME] += GAMMA * h * one[SLOPES + i] * k1[i]
    z[own] += GAMMA * h
    clip_states(ix, val, z)
    rates_within_step(ix, val, z, y, d, True)
    keep_rates(ix, d, chambers, k2)
    for i in range(n):
        k2[i] = k2[i] - 2.0 * GAMMA * k1[i]
    solve(matrix, k2, int(n), pivots)
    for k in range(ix[N_FLOWS]):
        one = flow_of_step(ix, work, chambers, k)
        first = one[VOLUME]
        second = flow(ix, z, d, ix[FLOWS] + THREE * k) - 2.0 * GAMMA * first
        for i in range(n):
            second += GAMMA * h * one[SLOPES + i] * k2[i]
        one[VOLUME] = h * (GAMMA * first + (2.0 - GAMMA) * second)
    for i in range(n):
        z[place_of_state(ix, chambers, i)] = start[i] + h * (GAMMA * k1[i] + (2.0 - GAMMA) * k2[i])
    clip_states(ix, val, z)


def is_as_promised(ix: Indices, val: Floats, z: Floats, y: Floats, work: Floats, chambers: Floats, h: float) -> bool:
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
    jacobian, matrix = work[m + 5 * n :], work[m + 5 * n + n * n :]
    rates_within_step(ix, val, z, y, d, True)
    keep_rates(ix, d, chambers, error)
    for j in range(n):
        change[j] = z[place_of_state(ix, chambers, j)] - start[j]
    for i in range(n):
        promised = f[i]
        for j in range(n):
            promised += jacobian[i * n + j] * change[j]
        error[i] = error[i] - promised
    solve(matrix, error, int(n), pivots)
    for i in range(n):
        scale = val[ix[SCALE] + i] if i < own else CHAMBER_SCALE
        allowed = BEND_RELATIVE * abs(change[i]) + BEND_ABSOLUTE * scale
        if not abs(h * error[i]) <= allowed:  # also false for NaN
            return False
    return True


def advance(ix: Indices, val: Floats, z: Floats, y: Floats, work: Floats, n_steps: int, h: float) -> None:
    """`advance_with` all boundary values held."""
    advance_with(ix, val, z, y, work, work[:0], n_steps, h)


def advance_with(
    ix: Indices, val: Floats, z: Floats, y: Floats, work: Floats, chambers: Floats, n_steps: int, h: float
) -> None:
    """Integrate ``n_steps`` steps of ``h`` seconds, inputs held; then refresh ``y`` and the flows into the machine.

    These flows, in ``z``, are means over all steps: volume divided by time. Without a step they are those of now. With
    ``chambers`` the method is Rosenbrock's; without any, the circuit's.
    """
    implicit = ix[INTEGRATOR] == ROSENBROCK or chambers.shape[0] > 0
    set_explicit_step(ix, work, 0.0 if implicit else h)
    row = ix[FLOWS]
    for _ in range(ix[N_FLOWS]):
        z[ix[row]] = 0.0
        row += THREE
    release_voids(ix, work)
    if ix[N_SAMPLED] > 0:
        # so that sampled kernels see signals that follow from these inputs
        rates_within_step(ix, val, z, y, work, False)
    for step in range(n_steps):
        if ix[N_MECHANISMS] > 0:
            settle_mechanisms(ix, val, z, work, step, h)
        if ix[N_SAMPLED] > 0:
            expose_pressures(ix, val, z)
            evaluate_sampled(ix, val, z, y, work)
        if implicit:
            rosenbrock(ix, val, z, y, work, chambers, h, step > 0 and chambers.shape[0] > 0)
        elif ix[INTEGRATOR] == RK4:
            rk4(ix, val, z, y, work, h)
        else:
            euler(ix, val, z, y, work, h)
        clip_states(ix, val, z)
    rates_within_step(ix, val, z, y, work, False)
    row = ix[FLOWS]
    for _ in range(ix[N_FLOWS]):
        z[ix[row]] = z[ix[row]] / (n_steps * h) if n_steps > 0 else flow(ix, z, work, row)
        row += THREE
    set_explicit_step(ix, work, 0.0)


def load(ix: Indices, val: Floats, z: Floats) -> None:
    """Set all values to the circuit's initial values."""
    for i in range(ix[N_VALUES]):
        z[i] = val[ix[INITIAL] + i]


def work_size(ix: Indices) -> int:
    """Length of the scratch array ``work``, sufficient for any integrator, and for a chamber at each of the ports."""
    n, flows = int(ix[N_STATES]) + int(ix[N_PORTS]), int(ix[N_FLOWS])
    return int(ix[N_SUMS]) + 6 * n + 2 * n * n + flows * (n + SLOPES) + 8
