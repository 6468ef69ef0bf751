"""The compiled core: derivatives of a packed circuit, integrators with sub-steps, state carry-over.

These functions are linked to the generated ``evaluate`` and compiled by :mod:`hilserver.compiler`.
A packed circuit is two arrays, ``ix`` (uint64) and ``val`` (float64); the header of ``ix`` locates its tables.
``z`` holds the circuit's values (states first, then time, boundary pressures, signals), ``y`` the recorded results,
``d`` the derivatives and, behind them, the sums of flow, capacitance, force and mass at the nodes.
"""

from __future__ import annotations

import numpy as np

from hilserver.mechanics.equations import move_mechanism, push_mechanism, settle_mechanism
from hilserver.numerics.arrays import Floats, Indices, Integers
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
N_CLEARED, HEADER = 30, 32  # of the sums: the sums at nodes; behind them is the mechanisms' scratch space
ONE, TWO, THREE = np.uint64(1), np.uint64(2), np.uint64(3)  # unsigned plus signed would be signed

EULER, RK4, ROSENBROCK = 0, 1, 2
GAMMA = 1.0 - 0.5 * 2.0**0.5  # L-stable
PARTS = 64
RATE, VOLUME, SLOPES = 0, 1, 2  # of a flow into the machine, see port_of_step
BEND_RELATIVE, BEND_ABSOLUTE = 0.02, 0.5  # of the state, of its typical size: 2 % and 0.5 bar of a pressure


def evaluate(ix: Indices, val: Floats, z: Floats, y: Floats, d: Floats) -> None:
    """Run every kernel of the circuit; the real one is generated from the component library."""
    raise NotImplementedError


def evaluate_sampled(ix: Indices, val: Floats, z: Floats, y: Floats, d: Floats) -> None:
    """Run the circuit's sampled kernels; the real one is generated from the component library."""
    raise NotImplementedError


def derivatives(ix: Indices, val: Floats, z: Floats, y: Floats, d: Floats) -> None:
    """Fill ``d`` with the time derivatives of the states at ``z``; states at a hard limit don't move beyond it."""
    rates_within_step(ix, val, z, y, d, False)


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
        total = ix[row + ONE]
        d[ix[row]] = d[total] / d[total + ONE]  # dp/dt = sum of flows / sum of capacitances
        row += THREE
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


def settle_mechanisms(ix: Indices, val: Floats, z: Floats, work: Floats, step: int, h: float) -> None:
    """Correct the drift of all mechanisms before a step; steps that share a solution use that of their middle."""
    shared = np.int64(ix[SOLUTION_STEPS])
    if shared == 0 or step % shared == 0:
        ahead = 0.5 * h * shared
        for k in range(ix[N_MECHANISMS]):
            settle_mechanism(ix, val, z, work, int(ix[ix[MECHANISMS] + k]), ahead)


def expose_pressures(ix: Indices, val: Floats, z: Floats) -> None:
    """Expose each node's pressure: its state, but never below the vapour pressure.

    Below it the state accounts for the vapour: dp = sum of flows / capacitance continues, so the oil that left must
    return before the pressure rises again, and no mass is lost.
    """
    vapour = val[ix[VAPOUR]]
    row = ix[HYDRAULIC]
    for _ in range(ix[N_HYDRAULIC]):
        z[ix[row + TWO]] = max(z[ix[row]], vapour)
        row += THREE


def clip_states(ix: Indices, val: Floats, z: Floats) -> None:
    """Limit every state to its hard limits."""
    lower, upper, row = ix[LOWER], ix[UPPER], ix[LIMITED]
    for _ in range(ix[N_LIMITED]):
        i = ix[row]
        z[i] = min(max(z[i], val[lower + i]), val[upper + i])
        row += ONE


def pass_volumes(ix: Indices, z: Floats, d: Floats, time: float) -> None:
    """Add what flows into the machine at these rates in ``time`` seconds to the volumes that `advance` counts."""
    row = ix[FLOWS]
    for _ in range(ix[N_FLOWS]):
        z[ix[row]] += time * d[ix[row + ONE]]
        row += TWO


def euler(ix: Indices, val: Floats, z: Floats, y: Floats, work: Floats, h: float) -> None:
    """Explicit Euler."""
    n = np.int64(ix[N_STATES])
    rates_within_step(ix, val, z, y, work, True)
    pass_volumes(ix, z, work, h)
    for i in range(n):
        z[i] += h * work[i]
    z[n] += h


def rk4(ix: Indices, val: Floats, z: Floats, y: Floats, work: Floats, h: float) -> None:
    """The classical Runge-Kutta method of fourth order."""
    n = np.int64(ix[N_STATES])
    m = n + np.int64(ix[N_SUMS])
    d, start, total = work, work[m:], work[m + n :]
    t = z[n]
    for i in range(n):
        start[i] = z[i]
        total[i] = 0.0
    for stage in range(4):
        rates_within_step(ix, val, z, y, d, True)
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


def rosenbrock(ix: Indices, val: Floats, z: Floats, y: Floats, work: Floats, h: float) -> None:
    """A linearly implicit, L-stable method of second order that divides its step where the circuit is nonlinear.

    (I - g·h·J) k1 = f(z);  (I - g·h·J) k2 = f(z + g·h·k1) - 2·g·k1;  z + g·h·k1 + (2 - g)·h·k2,  g = 1 - 1/sqrt(2).
    Second order with any J; both the stage (an implicit Euler step of g·h) and the result damp stiff modes, so that the
    stage does not overshoot into cavitation or past a seat. Source: the family of two-stage W-methods of
    Verwer, Spee, Blom & Hundsdorfer, SIAM J. Sci. Comput. 20 (1999) 1456, with the stage at g instead of 1.

    A linearisation does not hold beyond a discontinuity of slope (a valve that opens, a pump at its limit, cavitation),
    and a stiff node would overshoot it. So the step is halved while the rates at its end differ from those that the
    linearisation predicts; at most to h/PARTS, so that the computing time of a step is bounded.
    """
    n = np.int64(ix[N_STATES])
    t = z[n]
    at, size = 0, PARTS
    while at < PARTS:
        linearise(ix, val, z, y, work)
        while True:
            part = h * size / PARTS
            attempt(ix, val, z, y, work, part)
            z[n] = t + h * (at + size) / PARTS
            if size == 1 or is_as_promised(ix, val, z, y, work, part):
                break
            size //= 2
        for k in range(ix[N_FLOWS]):
            z[ix[ix[FLOWS] + TWO * k]] += port_of_step(ix, work, k)[VOLUME]
        at += size
        size = min(2 * size, PARTS - at)


def linearise(ix: Indices, val: Floats, z: Floats, y: Floats, work: Floats) -> None:
    """Keep the states, their rates and the Jacobian at ``z`` in ``work``; states held at a hard limit don't move."""
    n = np.int64(ix[N_STATES])
    m = n + np.int64(ix[N_SUMS])
    d, start, f, jacobian = work, work[m:], work[m + n :], work[m + 5 * n :]
    rates_within_step(ix, val, z, y, d, True)
    for i in range(n):
        start[i] = z[i]
        f[i] = d[i]
    for k in range(ix[N_FLOWS]):
        port_of_step(ix, work, k)[RATE] = d[ix[ix[FLOWS] + TWO * k + ONE]]
    for j in range(n):
        lower, upper = val[ix[LOWER] + j], val[ix[UPPER] + j]
        if f[j] == 0.0 and (start[j] <= lower or start[j] >= upper):
            for i in range(n):
                jacobian[i * n + j] = 0.0
            for k in range(ix[N_FLOWS]):
                port_of_step(ix, work, k)[SLOPES + j] = 0.0
            continue
        step = 1e-7 * max(abs(start[j]), val[ix[SCALE] + j])
        step = (start[j] + step) - start[j]
        if start[j] + step > upper:
            step = -step
        z[j] = start[j] + step
        rates_within_step(ix, val, z, y, d, True)
        z[j] = start[j]
        for i in range(n):
            jacobian[i * n + j] = (d[i] - f[i]) / step
        for k in range(ix[N_FLOWS]):
            port = port_of_step(ix, work, k)
            port[SLOPES + j] = (d[ix[ix[FLOWS] + TWO * k + ONE]] - port[RATE]) / step


def port_of_step(ix: Indices, work: Floats, k: int) -> Floats:
    """Flow ``k`` into the machine in a Rosenbrock step: its rate at the start, its volume, its slopes over the states.

    The volume is integrated like one more state, so that it and the circuit's content add up exactly.
    """
    n = np.int64(ix[N_STATES])
    return work[n + np.int64(ix[N_SUMS]) + 5 * n + 2 * n * n + np.int64(k) * (n + SLOPES) :]


def attempt(ix: Indices, val: Floats, z: Floats, y: Floats, work: Floats, h: float) -> None:
    """One step of ``h`` from the kept linearisation."""
    n = np.int64(ix[N_STATES])
    m = n + np.int64(ix[N_SUMS])
    d, start, f, k1, k2, pivots = work, work[m:], work[m + n :], work[m + 2 * n :], work[m + 3 * n :], work[m + 4 * n :]
    jacobian, matrix = work[m + 5 * n :], work[m + 5 * n + n * n :]
    for i in range(n):
        for j in range(n):
            matrix[i * n + j] = (1.0 if i == j else 0.0) - GAMMA * h * jacobian[i * n + j]
        k1[i] = f[i]
    factorise(matrix, int(n), pivots)
    solve(matrix, k1, int(n), pivots)
    for i in range(n):
        z[i] = start[i] + GAMMA * h * k1[i]
    for k in range(ix[N_FLOWS]):
        port = port_of_step(ix, work, k)
        port[VOLUME] = port[RATE]
        for i in range(n):
            port[VOLUME] += GAMMA * h * port[SLOPES + i] * k1[i]
    z[n] += GAMMA * h
    clip_states(ix, val, z)
    rates_within_step(ix, val, z, y, d, True)
    for i in range(n):
        k2[i] = d[i] - 2.0 * GAMMA * k1[i]
    solve(matrix, k2, int(n), pivots)
    for i in range(n):
        z[i] = start[i] + h * (GAMMA * k1[i] + (2.0 - GAMMA) * k2[i])
    for k in range(ix[N_FLOWS]):
        port = port_of_step(ix, work, k)
        first = port[VOLUME]
        second = d[ix[ix[FLOWS] + TWO * k + ONE]] - 2.0 * GAMMA * first
        for i in range(n):
            second += GAMMA * h * port[SLOPES + i] * k2[i]
        port[VOLUME] = h * (GAMMA * first + (2.0 - GAMMA) * second)
    clip_states(ix, val, z)


def is_as_promised(ix: Indices, val: Floats, z: Floats, y: Floats, work: Floats, h: float) -> bool:
    """Whether the rates at the end of an attempted step agree with those that the linearisation predicts there.

    The difference is expressed as the change of state that it causes: h·(I - g·h·J)^-1·(f(z) - f - J·(z - start)).
    """
    n = np.int64(ix[N_STATES])
    m = n + np.int64(ix[N_SUMS])
    d, start, f, error, pivots = work, work[m:], work[m + n :], work[m + 2 * n :], work[m + 4 * n :]
    jacobian, matrix = work[m + 5 * n :], work[m + 5 * n + n * n :]
    rates_within_step(ix, val, z, y, d, True)
    for i in range(n):
        promised = f[i]
        for j in range(n):
            promised += jacobian[i * n + j] * (z[j] - start[j])
        error[i] = d[i] - promised
    solve(matrix, error, int(n), pivots)
    for i in range(n):
        allowed = BEND_RELATIVE * max(abs(start[i]), abs(z[i])) + BEND_ABSOLUTE * val[ix[SCALE] + i]
        if not abs(h * error[i]) <= allowed:  # also false for NaN
            return False
    return True


def advance(ix: Indices, val: Floats, z: Floats, y: Floats, work: Floats, n_steps: int, h: float) -> None:
    """Integrate ``n_steps`` steps of ``h`` seconds, inputs held; then refresh ``y`` and the flows into the machine.

    These flows, in ``z``, are means over all steps: volume divided by time. Without a step they are those of now.
    """
    row = ix[FLOWS]
    for _ in range(ix[N_FLOWS]):
        z[ix[row]] = 0.0
        row += TWO
    if ix[N_SAMPLED] > 0:
        rates_within_step(
            ix, val, z, y, work, False
        )  # so that sampled kernels see signals that follow from these inputs
    for step in range(n_steps):
        if ix[N_MECHANISMS] > 0:
            settle_mechanisms(ix, val, z, work, step, h)
        if ix[N_SAMPLED] > 0:
            expose_pressures(ix, val, z)
            evaluate_sampled(ix, val, z, y, work)
        if ix[INTEGRATOR] == RK4:
            rk4(ix, val, z, y, work, h)
        elif ix[INTEGRATOR] == EULER:
            euler(ix, val, z, y, work, h)
        else:
            rosenbrock(ix, val, z, y, work, h)
        clip_states(ix, val, z)
    rates_within_step(ix, val, z, y, work, False)
    row = ix[FLOWS]
    for _ in range(ix[N_FLOWS]):
        z[ix[row]] = z[ix[row]] / (n_steps * h) if n_steps > 0 else work[ix[row + ONE]]
        row += TWO


def load(ix: Indices, val: Floats, z: Floats) -> None:
    """Set all values to the circuit's initial values."""
    for i in range(ix[N_VALUES]):
        z[i] = val[ix[INITIAL] + i]


def carry(ix: Indices, val: Floats, source: Integers, old: Floats, z: Floats) -> None:
    """Start a circuit from the values of another: z[i] = old[source[i]], or its initial value where source is -1."""
    load(ix, val, z)
    for i in range(ix[N_VALUES]):
        if source[i] >= 0:
            z[i] = old[source[i]]
    clip_states(ix, val, z)


def work_size(ix: Indices) -> int:
    """Length of the scratch array ``work``, sufficient for any integrator."""
    n, ports = int(ix[N_STATES]), int(ix[N_FLOWS])
    return int(ix[N_SUMS]) + 6 * n + 2 * n * n + ports * (n + SLOPES) + 8
