"""The tick: scale and check the inputs, step the virtual circuit, bridge, limit, note everything in the row.

One compiled function, the same under the real-time clock and in lockstep. It is a pure function of the row (its memory
and its new inputs), the plan and the packed circuit: the same inputs give the same outputs, bit for bit.
"""

from __future__ import annotations

from math import isfinite

from hilserver.circuit.engine import N_VALUES, carry, load
from hilserver.numerics.arrays import Floats, Indices, Integers
from hilserver.numerics.shape import clip
from hilserver.tick.columns import CIRCUIT, CIRCUIT_SPACE, DT, FAULT_DIVERGED, MAX_MISSED, MISSED, TICK, TIME
from hilserver.tick.estimator import follow_machine
from hilserver.tick.look_ahead import run_circuit
from hilserver.tick.modes import take_command, trip, watch
from hilserver.tick.outputs import drive_valves, set_outputs
from hilserver.tick.plan import Plan
from hilserver.tick.signals import check_limits, scale_channels, set_inputs


def tick(plan: Plan, ix: Indices, val: Floats, row: Floats, work: Floats, command: Floats) -> None:
    """One tick: ``row`` comes in as the last tick left it, with the new inputs set; it goes out complete.

    ``work`` is scratch space (PackedCircuit.work_size); ``command`` the mailbox record to take, all zero for none.
    """
    dt = plan.loop[DT]
    row[TIME] = row[TICK] * dt
    elapsed = (clip(row[MISSED], 0.0, plan.loop[MAX_MISSED]) + 1.0) * dt
    scale_channels(plan, row, elapsed)
    action = check_limits(plan, row, elapsed)
    take_command(plan, row, command, action)
    watch(plan, row, action)
    set_inputs(plan, row, elapsed)
    follow_machine(plan, row, work, elapsed)
    run_circuit(plan, ix, val, row, work, elapsed)
    watch_circuit(plan, ix, val, row)
    drive_valves(plan, ix, row, work, elapsed, dt, action)
    set_outputs(plan, row)


def watch_circuit(plan: Plan, ix: Indices, val: Floats, row: Floats) -> None:
    """A circuit whose values are no longer finite is set back to its initial values and trips."""
    start, n = plan.layout[CIRCUIT], int(ix[N_VALUES])
    z = row[start : start + n]
    total = 0.0
    for i in range(n):
        total += z[i]
    if not isfinite(total):
        load(ix, val, z)
        for i in range(start + n, start + plan.layout[CIRCUIT_SPACE]):
            row[i] = 0.0
        trip(row, FAULT_DIVERGED)


def swap(plan: Plan, row: Floats, ix: Indices, val: Floats, source: Integers, work: Floats) -> None:
    """Put another circuit into the row; values of the same name are carried over (``source``: carried_from)."""
    start = plan.layout[CIRCUIT]
    n = plan.layout[CIRCUIT_SPACE]
    space = row[start : start + n]
    old = work[:n]
    for i in range(n):
        old[i] = space[i]
        space[i] = 0.0
    carry(ix, val, source, old, space)
