"""Part of the tick: the virtual circuit over this tick and, on a copy, over the next ones; and its replacement.

The functions that call the integrator are linked to a component library (:mod:`hilserver.circuit.program`).
"""

from __future__ import annotations

from hilserver.circuit.engine import N_VALUES, SUBSTEPS, carry_voids, clip_states, load
from hilserver.circuit.integrators import advance_with
from hilserver.circuit.linearisation import CHAMBER_CELLS
from hilserver.numerics.arrays import Floats, Indices, Integers, overwrite, signed
from hilserver.numerics.compilable import compilable
from hilserver.tick.codes import ABSURD, FaultCode
from hilserver.tick.look_ahead import (
    bind,
    coupled_chambers,
    first_chamber,
    hand_over,
    look_ahead_size,
    note_ahead,
    prepare,
    start_ahead,
)
from hilserver.tick.modes import trip
from hilserver.tick.node_ahead import foresee, nodes_ahead_size, note_foreseen, start_foreseeing
from hilserver.tick.plan import Plan, is_gap, plan_on
from hilserver.tick.row import CYLINDER_CELLS, valve_state
from hilserver.tick.schedule import (
    calls_of,
    ends_first_tick,
    exchanges_of,
    is_ahead,
    is_on_copy,
    purpose_of,
    step_of,
    steps_of,
    substeps_of,
    tick_of,
    ticks_of,
)
from hilserver.tick.stages import STAGES, Stage
from hilserver.tick.valve import reset_volumes
from hilserver.tick.volumes import count_volumes, lose_volumes


def run_circuit(plan: Plan, ix: Indices, val: Floats, row: Floats, work: Floats, elapsed: float) -> None:
    """Integrate the circuit over the elapsed time to the end of this tick, and look ahead as far as required.

    If a strategy predicts, the circuit takes its last tick from the copy that ran on the predicted pressures. There is
    only one call of ``advance_with``, because all components would be compiled into each call.
    """
    n, layout = int(ix[N_VALUES]), plan.layout[0]
    space = layout.circuit_space
    start, cylinders = work.shape[0] - look_ahead_size(plan), CYLINDER_CELLS * plan.cylinder.shape[0]
    copy, machine = work[start : start + space], work[start + space : start + space + cylinders]
    nodes = work[start + space + cylinders : start + space + cylinders + nodes_ahead_size(plan)]
    circuit = row[layout.circuit : layout.circuit + space]
    first = first_chamber(plan.port.shape[0], work.shape[0])
    missed = int(elapsed / plan.loop[0].dt + 0.5) - 1
    for stage in range(STAGES):
        ticks, exchanges = ticks_of(plan, row, stage, missed), exchanges_of(plan, stage, signed(ix, SUBSTEPS))
        calls, substeps = calls_of(plan, ix, row, stage, ticks, exchanges), substeps_of(plan, ix, stage, exchanges)
        values, h = copy if is_on_copy(stage) else circuit, step_of(plan, stage, exchanges, substeps)
        if is_on_copy(stage) and calls > 0:
            overwrite(copy, circuit)
            if stage == Stage.NODES:
                start_foreseeing(plan, ix, row, values[:n], work, nodes, elapsed)
            else:
                start_ahead(plan, row, machine, work, stage, ticks)
        for call in range(calls):
            tick, steps = tick_of(ix, stage, exchanges, call), steps_of(ix, stage, ticks, substeps, call)
            if stage == Stage.NODES:
                foresee(plan, ix, val, row, values[:n], nodes, call)
            elif is_ahead(stage):
                prepare(plan, ix, row, values[:n], machine, work, stage, exchanges, call, tick, steps)
            else:
                bind(ix, row, values[:n])
            number = coupled_chambers(plan, ix, values[:n], work, stage, steps)
            chambers = work[first : first + CHAMBER_CELLS * number]
            purpose = purpose_of(ix, stage, exchanges, call)
            advance_with(ix, val, values[:n], values[n:], work, chambers, steps, h, purpose)
            if stage == Stage.NODES:
                note_foreseen(plan, ix, row, values[:n], work, nodes, call)
            elif is_ahead(stage):
                note_ahead(plan, ix, row, values[:n], machine, work, stage, exchanges, call, tick, steps)
            else:
                count_volumes(plan, ix, row, circuit[:n], steps * h)
            if ends_first_tick(ix, stage, exchanges, call):
                take_first_tick(plan, ix, row, work, circuit, copy)
    if is_gap(plan, elapsed):
        lose_volumes(plan, ix, row, circuit[:n])


@compilable
def take_first_tick(plan: Plan, ix: Indices, row: Floats, work: Floats, circuit: Floats, copy: Floats) -> None:
    """The circuit continues with its copy after the first tick of a look-ahead."""
    n = int(ix[N_VALUES])
    overwrite(circuit, copy)
    hand_over(plan, ix, work, circuit[:n])
    count_volumes(plan, ix, row, circuit[:n], plan.loop[0].dt)


def watch_circuit(plan: Plan, ix: Indices, val: Floats, row: Floats) -> None:
    """Reset a circuit whose values are absurd or no longer finite to its initial values, and trip.

    What it has passed meanwhile is absurd, too, and so are the volumes at the valves.
    """
    start, n = plan.layout[0].circuit, int(ix[N_VALUES])
    z = row[start : start + n]
    sane = 0
    for i in range(n):
        sane += abs(z[i]) < ABSURD
    if sane < n:
        load(ix, val, z)
        for i in range(start + n, start + plan.layout[0].circuit_space):
            row[i] = 0.0
        for i in range(plan.valve.shape[0]):
            reset_volumes(valve_state(plan, row, i))
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
    load(ix, val, space)
    for i in range(ix[N_VALUES]):
        if source[i] >= 0:
            space[i] = old[source[i]]
    carry_voids(ix, val, space, source)
    clip_states(ix, val, space)
