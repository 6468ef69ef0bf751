"""The compiled core: the integrators of a packed circuit, with sub-steps (see :mod:`hilserver.circuit.engine`).

The pressures at the machine's ports are boundary values. In the bridge's look-ahead they are states of the circuit:
``chambers`` holds CHAMBER_CELLS values for each of these ports, so that a circuit and the chambers that it fills are
one system of equations, solved by the L-stable method however stiff their connection is.
"""

from __future__ import annotations

import numpy as np

from hilserver.circuit.engine import (
    CODE,
    FLOWS,
    INTEGRATOR,
    MECHANISMS,
    N_FLOWS,
    N_MEANS,
    N_MECHANISMS,
    N_PORTS,
    N_SAMPLED,
    N_STATES,
    N_SUMS,
    SOLUTION_STEPS,
    THREE,
    Integrator,
    Purpose,
    clip_states,
    count_voids,
    evaluate_sampled,
    expose_pressures,
    flow,
    flows_into_ports,
    hold_voids,
    pass_volumes,
    rates_within_step,
    release_voids,
    run_code,
    set_explicit_step,
)
from hilserver.circuit.linearisation import SLOPES
from hilserver.circuit.rosenbrock import rosenbrock
from hilserver.mechanics.equations import settle_mechanism
from hilserver.numerics.arrays import Floats, Indices
from hilserver.numerics.linear import compressed_size


def advance(ix: Indices, val: Floats, z: Floats, y: Floats, work: Floats, n_steps: int, h: float) -> None:
    """`advance_with`, with all boundary values held."""
    advance_with(ix, val, z, y, work, work[:0], n_steps, h, Purpose.ALL.value)


def advance_with(
    ix: Indices,
    val: Floats,
    z: Floats,
    y: Floats,
    work: Floats,
    chambers: Floats,
    n_steps: int,
    h: float,
    purpose: int,
) -> None:
    """Integrate ``n_steps`` steps of ``h`` seconds, inputs held; then refresh ``y`` and the flows into the machine.

    These flows, in ``z``, are means over all steps: volume divided by time. Without a step they are the present ones.
    ``purpose``: a `Purpose`. With ``chambers`` the method is Rosenbrock's; otherwise it is the circuit's. Code that is
    compiled for the circuit alone does the same in less time.
    """
    if ix[CODE] != 0:
        run_code(ix, val, z, y, work, chambers, int(np.int64(n_steps)), h, purpose)
    else:
        # compiled once, for these types
        integrate(ix, val, z, y, work, chambers, int(np.int64(n_steps)), h, purpose)


def integrate(
    ix: Indices,
    val: Floats,
    z: Floats,
    y: Floats,
    work: Floats,
    chambers: Floats,
    n_steps: int,
    h: float,
    purpose: int,
) -> None:
    """`advance_with` by the circuit's index."""
    implicit = ix[INTEGRATOR] == Integrator.ROSENBROCK or chambers.shape[0] > 0 or purpose == Purpose.AHEAD
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
            held = 0.5 * h if purpose == Purpose.AHEAD else 0.0  # signals of time are those of the middle of the step
            z[ix[N_STATES]] += held
            again = step > 0 and chambers.shape[0] > 0
            known = rosenbrock(ix, val, z, y, work, chambers, h, again, known and held == 0.0, h - 2.0 * held)
            z[ix[N_STATES]] += held
        elif ix[INTEGRATOR] == Integrator.RK4:
            rk4(ix, val, z, y, work, h)
        else:
            euler(ix, val, z, y, work, h)
        clip_states(ix, val, z)
    if not known or ix[N_MECHANISMS] > 0:
        if purpose == Purpose.PORTS:
            flows_into_ports(ix, val, z, y, work)
        else:
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
    t, sixth = z[n], h / 6.0
    for stage in range(4):
        rates_within_step(ix, val, z, y, d, True)
        if stage == 0:
            hold_voids(ix, val, z, d)
            for i in range(n):
                start[i] = z[i]
                total[i] = 0.0
        weight = 1.0 if stage == 0 or stage == 3 else 2.0
        pass_volumes(ix, z, d, weight * sixth)
        reach = h if stage == 2 else 0.5 * h
        for i in range(n):
            total[i] += weight * d[i]
            z[i] = start[i] + reach * d[i]
        z[n] = t + reach
    for i in range(n):
        z[i] = start[i] + sixth * total[i]
    z[n] = t + h
    count_voids(ix, val, z, d)


def work_size(ix: Indices) -> int:
    """Length of the scratch array ``work``, sufficient for any integrator, and for a chamber at each of the ports."""
    n, flows = int(ix[N_STATES]) + int(ix[N_PORTS]), int(ix[N_FLOWS])
    return int(ix[N_SUMS]) + 7 * n + 2 * n * n + flows * (n + SLOPES) + compressed_size(n) + 8
