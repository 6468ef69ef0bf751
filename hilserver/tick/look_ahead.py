"""The next moments: a copy of the virtual circuit runs ahead of time, on pressures that the machine's model foresees.

What the circuit will pass depends on its own states, which it knows (the spool of the virtual valve, its supply), on
the operator, whose input is carried on smoothly for these few milliseconds, and on the port pressures. Two views of
them: HELD, the pressures as they are now, which leaves what comes from the circuit's own states; and FORESEEN, each
cylinder moving on under the flows (a port without a cylinder: its pressure carried on straight). Where a stiff supply
holds the pressure of a small chamber, this is quicker than a tick: so each flow's slope over its pressure is taken too,
and the cylinder moves under a flow that follows its pressure within the tick.

Compiled into the tick; works on copies behind the integrator's scratch space in ``work``.
"""

from __future__ import annotations

import numpy as np

from hilserver.circuit.engine import BOUND, N_BOUND, N_VALUES, ONE, PORTS, SUBSTEPS, TWO, advance
from hilserver.numerics.arrays import Floats, Indices, overwrite
from hilserver.numerics.shape import clip
from hilserver.tick.bridge.columns import (
    ADAPTIVE,
    BLOCK,
    CHANNEL_S,
    CHANNEL_T,
    CYLINDER,
    CYLINDER_BLOCK,
    CYLINDER_PORT_A,
    CYLINDER_PORT_B,
    FLOW_A,
    FLOW_B,
    OVERLAP,
    P_A,
    P_B,
    PORT,
    PREDICTION,
    SECOND_ORDER,
    SIDE,
    STRATEGY_NOW,
    SUBSTEPS_OF_MACHINE,
    SUPPLY_DROOP,
    X,
)
from hilserver.tick.columns import (
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
from hilserver.tick.cylinder import chamber_A, chamber_B, is_known, move_cylinder
from hilserver.tick.estimator import cylinder_block, predicts, valve_block
from hilserver.tick.plan import Plan
from hilserver.tick.valve import delay_of, opening_for, valve_flow

CATCH_UP, HELD, FORESEEN, THIS_TICK = 0, 1, 2, 3
"""Stages of a tick: the circuit over missed ticks; its copy ahead, in either view; the circuit over this tick."""
FARTHEST = 32
"""Ticks that are looked ahead at most."""
FLOW, PRESSURE, FLOW_SLOPE = 0, 1, 2
NOTES = 3
"""What is noted of a port ahead; a slope in m³/(s·Pa)."""
DIPPED, NOTED, MOVED = 0, 1, 2
"""Calls of the integrator for a tick ahead: flows at other pressures, flows to note, and on to the next tick."""
CALLS_AHEAD = 3
DIP = 1e4
"""Pa, over which a slope is taken."""


def ahead_size(plan: Plan) -> int:
    """Values that looking ahead needs in ``work``, behind the integrator's."""
    ports, cylinders = plan.port.shape[0], plan.cylinder.shape[0]
    return int(plan.layout[CIRCUIT_SPACE] + 2 * NOTES * FARTHEST * ports + CYLINDER_BLOCK * cylinders)


def foreseen(plan: Plan, work: Floats, view: int, port: int, what: int) -> Floats:
    """FLOW, PRESSURE or FLOW_SLOPE of a port at this tick, the next, …"""
    ports = plan.port.shape[0]
    start = work.shape[0] + ((NOTES * (view - FORESEEN - 1) + what) * ports + port) * FARTHEST
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
        for call in range(calls_of(stage, ticks)):
            steps = substeps * prepare(plan, ix, row, values[:n], machine, work, stage, ticks, call)
            advance(ix, val, values[:n], values[n:], work, steps, plan.loop[DT] / substeps)
            if HELD <= stage <= FORESEEN and call % CALLS_AHEAD != MOVED:
                note_ports(plan, ix, row, values[:n], machine, work, stage, call)
                if call == CALLS_AHEAD + NOTED and stage == FORESEEN:
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


def calls_of(stage: int, ticks: int) -> int:
    """Calls of the integrator: one for a stage of the circuit; ahead, CALLS_AHEAD per tick, but for the last way on."""
    if HELD <= stage <= FORESEEN:
        return max(CALLS_AHEAD * ticks - 1, 0)
    return min(ticks, 1)


def prepare(
    plan: Plan, ix: Indices, row: Floats, z: Floats, machine: Floats, work: Floats, stage: int, ticks: int, call: int
) -> int:
    """Bring pressures and inputs into the circuit or its copy; returns the ticks to integrate with them.

    Ahead, a tick is integrated with the pressures of its middle, then those of its end are brought in to be noted.
    """
    if not HELD <= stage <= FORESEEN:
        bind(ix, row, z)
        return ticks
    tick, kind = call // CALLS_AHEAD, call % CALLS_AHEAD
    moving = kind == MOVED
    if stage == FORESEEN and (moving or (kind == DIPPED and tick > 0)):
        for c in range(plan.cylinder.shape[0]):
            carry_cylinder(plan, row, machine, work, c, tick if moving else tick - 1, 0.5 if moving else 1.0)
    at = tick + 0.5 if moving else float(tick)
    bind_ahead(plan, ix, row, z, machine, stage, at, tick if moving else max(tick - 1, 0), DIP * (kind == DIPPED))
    return 1 if moving else 0


def bind(ix: Indices, row: Floats, z: Floats) -> None:
    """The measured pressures and the inputs of this tick into the circuit."""
    place = ix[BOUND]
    for _ in range(ix[N_BOUND]):
        z[ix[place]] = row[ix[place + ONE]]
        place += TWO


def note_ports(
    plan: Plan, ix: Indices, row: Floats, z: Floats, machine: Floats, work: Floats, view: int, call: int
) -> None:
    """Note the flows that the circuit passes into the ports, their pressures, and how the one falls with the other."""
    tick = call // CALLS_AHEAD
    for port in range(plan.port.shape[0]):
        place = int(ix[int(ix[PORTS]) + port])
        q = z[place] if place < z.shape[0] else 0.0
        if call % CALLS_AHEAD == DIPPED:
            foreseen(plan, work, view, port, FLOW)[tick] = q
        else:
            dipped = foreseen(plan, work, view, port, FLOW)[tick]
            foreseen(plan, work, view, port, FLOW_SLOPE)[tick] = min((dipped - q) / DIP, 0.0)
            foreseen(plan, work, view, port, FLOW)[tick] = q
            foreseen(plan, work, view, port, PRESSURE)[tick] = pressure_ahead(plan, row, machine, port, view, tick)


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
    plan: Plan, ix: Indices, row: Floats, z: Floats, machine: Floats, view: int, at: float, tick: int, more: float
) -> None:
    """Pressures of a moment to come (ticks from now) and ``more``, and inputs of a tick, into the circuit's copy."""
    first_input, first_port = plan.layout[INPUT], plan.layout[PORTS_SEEN]
    place = ix[BOUND]
    for _ in range(ix[N_BOUND]):
        column = np.int64(ix[place + ONE])
        if column >= first_port:
            z[ix[place]] = pressure_ahead(plan, row, machine, (column - first_port) // 2, view, at) + more
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
    q_A, rise_A, slope_A = flow_ahead(plan, row, work, m[CYLINDER_PORT_A], k[P_A], k[FLOW_A], tick)
    q_B, rise_B, slope_B = flow_ahead(plan, row, work, m[CYLINDER_PORT_B], k[P_B], k[FLOW_B], tick)
    h = plan.loop[DT] / SUBSTEPS_OF_MACHINE
    for sub in range(SUBSTEPS_OF_MACHINE // 2):
        share = until - 0.5 + (sub + 0.5) / SUBSTEPS_OF_MACHINE
        now_A, now_B = q_A + share * rise_A + slope_A * k[P_A], q_B + share * rise_B + slope_B * k[P_B]
        move_cylinder(now_A, now_B, slope_A, slope_B, k, m, h)


def flow_ahead(
    plan: Plan, row: Floats, work: Floats, number: float, p: float, now: float, tick: int
) -> tuple[float, float, float]:
    """Flow into a port at a tick to come, as it would be at no pressure; its rise until the next one; and its slope.

    The port's own valve will pass the virtual flow while the rig is RUNNING. A port at the other edges of a valve gets
    what its spool lets through; one that nothing drives goes on as now.
    """
    if number < 0.0:
        return 0.0, 0.0, 0.0
    port = int(number)
    if row[MODE] != RUNNING:
        return now, 0.0, 0.0
    if plan.port[port, PORT_VALVE] >= 0.0:
        slope = foreseen(plan, work, FORESEEN, port, FLOW_SLOPE)[tick]
        q = flow_at_no_pressure(plan, work, port, tick, slope)
        return q, q - flow_at_no_pressure(plan, work, port, tick - 1, slope) if tick > 0 else 0.0, slope
    turned = int(plan.port[port, PORT_TURNED])
    if turned < 0:
        return now, 0.0, 0.0
    b, v = row[plan.layout[VALVE] + turned * BLOCK :], plan.valve[turned]
    driven = int(v[0])
    p_S, p_T = row[int(v[CHANNEL_S])], row[int(v[CHANNEL_T])]
    wanted = foreseen(plan, work, FORESEEN, driven, FLOW)[tick]
    U = opening_for(wanted, foreseen(plan, work, FORESEEN, driven, PRESSURE)[tick], p_S, p_T, v[OVERLAP], b, v)
    return valve_flow(-U, p, p_S, p_T, b, v), 0.0, 0.0


def flow_at_no_pressure(plan: Plan, work: Floats, port: int, tick: int, slope: float) -> float:
    """The flow noted at a tick, carried back along its slope: what is left is the circuit's own doing."""
    q, p = foreseen(plan, work, FORESEEN, port, FLOW)[tick], foreseen(plan, work, FORESEEN, port, PRESSURE)[tick]
    return float(q - slope * p)


def stiffness(plan: Plan, row: Floats, work: Floats, i: int) -> float:
    """Rate at which the virtual circuit holds the pressure at a valve's port now, 1/s; 0 where no cylinder is known."""
    v = plan.valve[i]
    c = int(v[CYLINDER])
    if c < 0:
        return 0.0
    k, m = cylinder_block(plan, row, c), plan.cylinder[c]
    if not is_known(k):
        return 0.0
    C = chamber_B(k[X], k[P_B], m) if v[SIDE] > 0.0 else chamber_A(k[X], k[P_A], m)
    return float(-foreseen(plan, work, FORESEEN, int(v[PORT]), FLOW_SLOPE)[0] / C)
