"""Part of the tick: the virtual circuit over this tick and, on a copy, over the next ones; and its replacement.

The functions that call the integrator are linked to a component library (:mod:`hilserver.circuit.program`).
"""

from __future__ import annotations

from math import isfinite

from hilserver.circuit.engine import N_VALUES, SUBSTEPS, advance, carry, load
from hilserver.numerics.arrays import Floats, Indices, Integers, overwrite
from hilserver.tick.codes import FaultCode
from hilserver.tick.look_ahead import (
    CALLS_AHEAD,
    HELD,
    MOVED,
    NOTED,
    PREDICTED,
    calls_of,
    look_ahead_size,
    note_ports,
    prepare,
    ticks_of,
)
from hilserver.tick.modes import trip
from hilserver.tick.plan import Plan, plan_on
from hilserver.tick.row import CYLINDER_CELLS


def run_circuit(plan: Plan, ix: Indices, val: Floats, row: Floats, work: Floats, elapsed: float) -> None:
    """Integrate the circuit over the elapsed time to the end of this tick, and look ahead as far as required.

    If a strategy predicts, the circuit takes its last tick from the copy that ran on the predicted pressures. There is
    only one call of ``advance``, because all components would be compiled into each call.
    """
    n, layout = int(ix[N_VALUES]), plan.layout[0]
    space = layout.circuit_space
    start, cylinders = work.shape[0] - look_ahead_size(plan), CYLINDER_CELLS * plan.cylinder.shape[0]
    copy, machine = work[start : start + space], work[start + space : start + space + cylinders]
    circuit = row[layout.circuit : layout.circuit + space]
    substeps, missed = int(ix[SUBSTEPS]), int(elapsed / plan.loop[0].dt + 0.5) - 1
    for stage in range(4):
        ticks = ticks_of(plan, row, stage, missed)
        values = circuit
        if HELD <= stage <= PREDICTED:
            values = copy
            if ticks > 0:
                overwrite(copy, circuit)
                overwrite(machine, row[layout.cylinder : layout.cylinder + cylinders])
        for call in range(calls_of(stage, ticks)):
            steps = substeps * prepare(plan, ix, row, values[:n], machine, work, stage, ticks, call)
            advance(ix, val, values[:n], values[n:], work, steps, plan.loop[0].dt / substeps)
            if HELD <= stage <= PREDICTED and call % CALLS_AHEAD != MOVED:
                note_ports(plan, ix, row, values[:n], machine, work, stage, call)
                if call == CALLS_AHEAD + NOTED and stage == PREDICTED:
                    overwrite(circuit, copy)


def watch_circuit(plan: Plan, ix: Indices, val: Floats, row: Floats) -> None:
    """Reset a circuit whose values are no longer finite to its initial values, and trip."""
    start, n = plan.layout[0].circuit, int(ix[N_VALUES])
    z = row[start : start + n]
    total = 0.0
    for i in range(n):
        total += z[i]
    if not isfinite(total):
        load(ix, val, z)
        for i in range(start + n, start + plan.layout[0].circuit_space):
            row[i] = 0.0
        trip(row, FaultCode.DIVERGED)


def swap(block: Floats, row: Floats, ix: Indices, val: Floats, source: Integers, work: Floats) -> None:
    """Write another circuit into the row; values of the same name are carried over (``source``: carried_from)."""
    plan = plan_on(block)
    start = plan.layout[0].circuit
    n = plan.layout[0].circuit_space
    space = row[start : start + n]
    old = work[:n]
    for i in range(n):
        old[i] = space[i]
        space[i] = 0.0
    carry(ix, val, source, old, space)
