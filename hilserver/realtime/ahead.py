"""The next moments: a copy of the virtual circuit runs ahead of time, on pressures that the machine's model foresees.

What the circuit will pass depends on its own states, which it knows (the spool of the virtual valve, its supply), on
the operator, whose input is carried on smoothly for these few milliseconds, and on the port pressures. Two views of
them: HELD, the pressures as they are now, which leaves what comes from the circuit's own states; and FORESEEN, each
cylinder moving on under the flows (a port without a cylinder: its pressure carried on straight).

Compiled into the tick; works on copies behind the integrator's scratch space in ``work``.
"""

from __future__ import annotations

import numpy as np

from hilserver.bridge.columns import (
    ADAPTIVE,
    BLOCK,
    CHANNEL_S,
    CHANNEL_T,
    CYLINDER_BLOCK,
    CYLINDER_PORT_A,
    CYLINDER_PORT_B,
    FLOW_A,
    FLOW_B,
    OVERLAP,
    P_A,
    P_B,
    PREDICTION,
    SECOND_ORDER,
    STRATEGY_NOW,
    SUBSTEPS_OF_MACHINE,
    SUPPLY_DROOP,
)
from hilserver.bridge.cylinder import is_known, move_cylinder
from hilserver.bridge.valve import delay_of, opening_for, valve_flow
from hilserver.circuit.engine import BOUND, N_BOUND, N_VALUES, ONE, PORTS, SUBSTEPS, TWO, advance
from hilserver.numerics.arrays import Floats, Indices, overwrite
from hilserver.numerics.shape import clip
from hilserver.realtime.machine import predicts, valve_block
from hilserver.rig.columns import (
    BEND,
    CIRCUIT,
    CIRCUIT_SPACE,
    CYLINDERS,
    DT,
    INPUT,
    INPUT_HIGH,
    INPUT_LOW,
    MODE,
    PORT_CYLINDER,
    PORT_SIDE,
    PORT_TURNED,
    PORT_VALVE,
    PORTS_SEEN,
    RUNNING,
    SLOPE,
    TREND,
    TRENDS,
    VALVE,
)
from hilserver.rig.plan import Plan

CATCH_UP, HELD, FORESEEN, THIS_TICK = 0, 1, 2, 3
"""Stages of a tick: the circuit over missed ticks; its copy ahead, in either view; the circuit over this tick."""
FARTHEST = 32
"""Ticks that are looked ahead at most."""


def ahead_size(plan: Plan) -> int:
    """Values that looking ahead needs in ``work``, behind the integrator's."""
    ports, cylinders = plan.port.shape[0], plan.cylinder.shape[0]
    return int(plan.layout[CIRCUIT_SPACE] + 4 * FARTHEST * ports + CYLINDER_BLOCK * cylinders)


def foreseen(plan: Plan, work: Floats, view: int, port: int, what: int) -> Floats:
    """Flow (what = 0) or pressure (1) of a port at this tick, the next, …"""
    ports = plan.port.shape[0]
    start = work.shape[0] - 4 * FARTHEST * ports + ((2 * (view - HELD) + what) * ports + port) * FARTHEST
    return work[start : start + FARTHEST]


def run_circuit(plan: Plan, ix: Indices, val: Floats, row: Floats, work: Floats, elapsed: float) -> None:
    """Integrate the circuit over the elapsed time, to the end of this tick, and look ahead as far as is needed.

    Where one predicts, the circuit takes its last tick from the copy that ran on the pressures foreseen. All goes
    through one call of ``advance``: each call would be compiled with all components in it.
    """
    n, space = int(ix[N_VALUES]), plan.layout[CIRCUIT_SPACE]
    start, cylinders = work.shape[0] - ahead_size(plan), CYLINDER_BLOCK * plan.cylinder.shape[0]
    copy, machine = work[start : start + space], work[start + space : start + space + cylinders]
    circuit = row[plan.layout[CIRCUIT] : plan.layout[CIRCUIT] + space]
    substeps, missed = int(ix[SUBSTEPS]), int(elapsed / plan.loop[DT] + 0.5) - 1
    for stage in range(4):
        ticks = ticks_of(plan, row, stage, missed)
        values = circuit
        if HELD <= stage <= FORESEEN:
            values = copy
            if ticks > 0:
                overwrite(copy, circuit)
                overwrite(machine, row[plan.layout[CYLINDERS] : plan.layout[CYLINDERS] + cylinders])
        for half in range(halves_of(stage, ticks)):
            steps = substeps * prepare(plan, ix, row, values[:n], machine, work, stage, ticks, half)
            advance(ix, val, values[:n], values[n:], work, steps, plan.loop[DT] / substeps)
            if half % 2 == 0 and HELD <= stage <= FORESEEN:
                note_ports(plan, ix, row, values[:n], machine, work, stage, half // 2)
                if half == 2 and stage == FORESEEN:
                    overwrite(circuit, copy)


def ticks_of(plan: Plan, row: Floats, stage: int, missed: int) -> int:
    """Ticks that a stage has to integrate (of a look ahead: to note, with the present one)."""
    if stage == CATCH_UP:
        return missed
    if stage == THIS_TICK:
        return 0 if predicts(plan, row) else 1
    ticks = 0
    for i in range(plan.valve.shape[0]):
        b, v = valve_block(plan, row, i), plan.valve[i]
        if stage == HELD and SECOND_ORDER <= b[STRATEGY_NOW] <= SUPPLY_DROOP:
            ticks = max(ticks, 4)
        if stage == FORESEEN and PREDICTION <= b[STRATEGY_NOW] <= ADAPTIVE:
            ticks = max(ticks, min(int(delay_of(b, v) / plan.loop[DT]) + 4, FARTHEST))
    return ticks


def halves_of(stage: int, ticks: int) -> int:
    """Calls of the integrator: one for a stage of the circuit; ahead, one for the present and two per tick."""
    if HELD <= stage <= FORESEEN:
        return max(2 * ticks - 1, 0)
    return min(ticks, 1)


def prepare(
    plan: Plan, ix: Indices, row: Floats, z: Floats, machine: Floats, work: Floats, stage: int, ticks: int, half: int
) -> int:
    """Bring pressures and inputs into the circuit or its copy; returns the ticks to integrate with them.

    Ahead, a tick is integrated with the pressures of its middle, then those of its end are brought in to be noted.
    """
    if not HELD <= stage <= FORESEEN:
        bind(ix, row, z)
        return ticks
    if stage == FORESEEN and half > 0:
        for c in range(plan.cylinder.shape[0]):
            carry_cylinder(plan, row, machine, work, c, (half - 1) // 2, 0.5 if half % 2 == 1 else 1.0)
    bind_ahead(plan, ix, row, z, machine, stage, 0.5 * half, max((half - 1) // 2, 0))
    return half % 2


def bind(ix: Indices, row: Floats, z: Floats) -> None:
    """The measured pressures and the inputs of this tick into the circuit."""
    place = ix[BOUND]
    for _ in range(ix[N_BOUND]):
        z[ix[place]] = row[ix[place + ONE]]
        place += TWO


def note_ports(
    plan: Plan, ix: Indices, row: Floats, z: Floats, machine: Floats, work: Floats, view: int, tick: int
) -> None:
    """Note the flows that the circuit passes into the ports, and their pressures."""
    for port in range(plan.port.shape[0]):
        place = int(ix[int(ix[PORTS]) + port])
        foreseen(plan, work, view, port, 0)[tick] = z[place] if place < z.shape[0] else 0.0
        foreseen(plan, work, view, port, 1)[tick] = pressure_ahead(plan, row, machine, port, view, tick)


def pressure_ahead(plan: Plan, row: Floats, machine: Floats, port: int, view: int, tick: float) -> float:
    """Pressure of a port so many ticks from now."""
    seen = plan.layout[PORTS_SEEN] + 2 * port
    c = int(plan.port[port, PORT_CYLINDER])
    if view == HELD:
        return float(row[seen])
    if c >= 0 and is_known(machine[c * CYLINDER_BLOCK : (c + 1) * CYLINDER_BLOCK]):
        return float(machine[c * CYLINDER_BLOCK + (P_B if plan.port[port, PORT_SIDE] > 0.0 else P_A)])
    return float(row[seen] + row[seen + 1] * tick * plan.loop[DT])


def bind_ahead(
    plan: Plan, ix: Indices, row: Floats, z: Floats, machine: Floats, view: int, at: float, tick: int
) -> None:
    """Pressures of a moment to come (in ticks from now), and inputs of a tick, into the circuit's copy."""
    first_input, first_port = plan.layout[INPUT], plan.layout[PORTS_SEEN]
    place = ix[BOUND]
    for _ in range(ix[N_BOUND]):
        column = np.int64(ix[place + ONE])
        if column >= first_port:
            z[ix[place]] = pressure_ahead(plan, row, machine, (column - first_port) // 2, view, at)
        else:
            i = column - first_input
            t = row[plan.layout[TREND] + TRENDS * i :]
            value = row[column] + tick * t[SLOPE] + 0.5 * tick * (tick + 1) * t[BEND]
            z[ix[place]] = clip(value, plan.input[i, INPUT_LOW], plan.input[i, INPUT_HIGH])
        place += TWO


def carry_cylinder(plan: Plan, row: Floats, machine: Floats, work: Floats, c: int, tick: int, until: float) -> None:
    """Move a cylinder's copy on by the first or second half of a tick (``until`` 0.5, 1), under the flows foreseen."""
    k, m = machine[c * CYLINDER_BLOCK : (c + 1) * CYLINDER_BLOCK], plan.cylinder[c]
    if not is_known(k):
        return
    q_A, rise_A = flow_ahead(plan, row, work, m[CYLINDER_PORT_A], k[P_A], k[FLOW_A], tick)
    q_B, rise_B = flow_ahead(plan, row, work, m[CYLINDER_PORT_B], k[P_B], k[FLOW_B], tick)
    for sub in range(SUBSTEPS_OF_MACHINE // 2):
        share = until - 0.5 + (sub + 0.5) / SUBSTEPS_OF_MACHINE
        move_cylinder(q_A + share * rise_A, q_B + share * rise_B, k, m, plan.loop[DT] / SUBSTEPS_OF_MACHINE)


def flow_ahead(
    plan: Plan, row: Floats, work: Floats, number: float, p: float, now: float, tick: int
) -> tuple[float, float]:
    """Flow into a port at a tick to come, and its rise until the next one.

    The port's own valve will pass the virtual flow while the rig is RUNNING. A port at the other edges of a valve gets
    what its spool lets through; one that nothing drives goes on as now.
    """
    if number < 0.0:
        return 0.0, 0.0
    port = int(number)
    q = foreseen(plan, work, FORESEEN, port, 0)
    if row[MODE] != RUNNING:
        return now, 0.0
    if plan.port[port, PORT_VALVE] >= 0.0:
        return q[tick], q[tick] - q[tick - 1] if tick > 0 else 0.0
    turned = int(plan.port[port, PORT_TURNED])
    if turned < 0:
        return now, 0.0
    b, v = row[plan.layout[VALVE] + turned * BLOCK :], plan.valve[turned]
    driven = int(v[0])
    p_S, p_T = row[int(v[CHANNEL_S])], row[int(v[CHANNEL_T])]
    wanted = foreseen(plan, work, FORESEEN, driven, 0)[tick]
    U = opening_for(wanted, foreseen(plan, work, FORESEEN, driven, 1)[tick], p_S, p_T, v[OVERLAP], b, v)
    return valve_flow(-U, p, p_S, p_T, b, v), 0.0
