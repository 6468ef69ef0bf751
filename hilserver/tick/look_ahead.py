"""Look-ahead: a copy of the virtual circuit runs ahead of time, on pressures that the machine's model predicts.

What the circuit will pass depends on its own states, which it knows (the spool of the virtual valve, its supply), on
the operator, whose input is extrapolated smoothly for these few milliseconds, and on the port pressures. Two views of
them: HELD, the pressures as they are now, which leaves what comes from the circuit's own states; and PREDICTED, each
cylinder moving on under the flows (a port without a cylinder: its pressure extrapolated linearly). Where a stiff supply
holds the pressure of a small chamber, this is quicker than a tick: so each flow's slope over its pressure is taken too,
and the cylinder moves under a flow that follows its pressure within the tick.

Works on copies behind the integrator's scratch space in ``work``.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from hilserver.circuit.engine import BOUND, N_BOUND, ONE, PORTS, TWO
from hilserver.numerics.arrays import Floats, Indices, gives_arrays
from hilserver.numerics.shape import clip
from hilserver.tick.bridge.ladder import Compensates, Kind, compensates, kind_of
from hilserver.tick.codes import Mode
from hilserver.tick.cylinder import chamber_A, chamber_B, is_known, move_cylinder
from hilserver.tick.estimator import predicts
from hilserver.tick.plan import SUBSTEPS_OF_MACHINE, Plan
from hilserver.tick.records import record_at
from hilserver.tick.row import (
    CYLINDER_CELLS,
    PORT_CELLS,
    CylinderState,
    cylinder_state,
    header,
    port_state,
    trend,
    valve_state,
)
from hilserver.tick.valve import delay_of, opening_for, valve_flow

CATCH_UP, HELD, PREDICTED, THIS_TICK = 0, 1, 2, 3
"""Stages of a tick: the circuit over missed ticks; the look-ahead, in either view; the circuit over this tick."""
FARTHEST = 32
"""Maximum look-ahead, in ticks."""
FLOW, PRESSURE, FLOW_SLOPE = 0, 1, 2
NOTES = 3
"""What the look-ahead notes of a port; the slope in m³/(s·Pa)."""
DIPPED, NOTED, MOVED = 0, 1, 2
"""Calls of the integrator per tick of look-ahead: flows at other pressures, flows to note, and on to the next tick."""
CALLS_AHEAD = 3
DIP = 1e4
"""Pa, over which a slope is taken."""


@record_at(CylinderState)
def cylinder_copy(row: Floats, c: int) -> int:
    """Cylinder ``c`` in a copy of the row's cylinders."""
    return c * CYLINDER_CELLS


@register_jitable
def look_ahead_size(plan: Plan) -> int:
    """Values that the look-ahead needs in ``work``, behind the integrator's."""
    ports, cylinders = plan.port.shape[0], plan.cylinder.shape[0]
    return int(plan.layout[0].circuit_space + 2 * NOTES * FARTHEST * ports + CYLINDER_CELLS * cylinders)


@gives_arrays
def predicted(plan: Plan, work: Floats, view: int, port: int, what: int) -> Floats:
    """FLOW, PRESSURE or FLOW_SLOPE of a port at this tick, the next, …"""
    ports = plan.port.shape[0]
    start = work.shape[0] + ((NOTES * (view - PREDICTED - 1) + what) * ports + port) * FARTHEST
    return work[start : start + FARTHEST]


@register_jitable
def ticks_of(plan: Plan, row: Floats, stage: int, missed: int) -> int:
    """Ticks that a stage has to integrate (of a look-ahead: to note, the present one included)."""
    if stage == CATCH_UP:
        return missed
    if stage == THIS_TICK:
        return 0 if predicts(plan, row) else 1
    ticks = 0
    for i in range(plan.valve.shape[0]):
        b, v = valve_state(plan, row, i), plan.valve[i]
        if kind_of(b.strategy) != Kind.LOOK_AHEAD:
            continue
        predictive = compensates(b.strategy, Compensates.DELAY)
        if stage == HELD and not predictive:
            ticks = max(ticks, 4)
        if stage == PREDICTED and predictive:
            ticks = max(ticks, min(int(delay_of(b, v) / plan.loop[0].dt) + 4, FARTHEST))
    return ticks


@register_jitable
def calls_of(stage: int, ticks: int) -> int:
    """Calls of the integrator: one for a stage of the circuit; in the look-ahead CALLS_AHEAD per tick, less one."""
    if HELD <= stage <= PREDICTED:
        return max(CALLS_AHEAD * ticks - 1, 0)
    return min(ticks, 1)


@register_jitable
def prepare(
    plan: Plan, ix: Indices, row: Floats, z: Floats, machine: Floats, work: Floats, stage: int, ticks: int, call: int
) -> int:
    """Bring pressures and inputs into the circuit or its copy; returns the ticks to integrate with them.

    Ahead, a tick is integrated with the pressures of its middle, then those of its end are brought in to be noted.
    """
    if not HELD <= stage <= PREDICTED:
        bind(ix, row, z)
        return ticks
    tick, kind = call // CALLS_AHEAD, call % CALLS_AHEAD
    moving = kind == MOVED
    if stage == PREDICTED and (moving or (kind == DIPPED and tick > 0)):
        for c in range(plan.cylinder.shape[0]):
            carry_cylinder(plan, row, machine, work, c, tick if moving else tick - 1, 0.5 if moving else 1.0)
    at = tick + 0.5 if moving else float(tick)
    bind_ahead(plan, ix, row, z, machine, stage, at, tick if moving else max(tick - 1, 0), DIP * (kind == DIPPED))
    return 1 if moving else 0


@register_jitable
def bind(ix: Indices, row: Floats, z: Floats) -> None:
    """The measured pressures and the inputs of this tick into the circuit."""
    place = ix[BOUND]
    for _ in range(ix[N_BOUND]):
        z[ix[place]] = row[ix[place + ONE]]
        place += TWO


@register_jitable
def note_ports(
    plan: Plan, ix: Indices, row: Floats, z: Floats, machine: Floats, work: Floats, view: int, call: int
) -> None:
    """Note the flows that the circuit passes into the ports, their pressures, and how the one falls with the other."""
    tick = call // CALLS_AHEAD
    for port in range(plan.port.shape[0]):
        place = int(ix[int(ix[PORTS]) + port])
        q = z[place] if place < z.shape[0] else 0.0
        if call % CALLS_AHEAD == DIPPED:
            predicted(plan, work, view, port, FLOW)[tick] = q
        else:
            dipped = predicted(plan, work, view, port, FLOW)[tick]
            predicted(plan, work, view, port, FLOW_SLOPE)[tick] = min((dipped - q) / DIP, 0.0)
            predicted(plan, work, view, port, FLOW)[tick] = q
            predicted(plan, work, view, port, PRESSURE)[tick] = pressure_ahead(plan, row, machine, port, view, tick)


@register_jitable
def pressure_ahead(plan: Plan, row: Floats, machine: Floats, port: int, view: int, tick: float) -> float:
    """Pressure of a port so many ticks from now."""
    now, c = port_state(plan, row, port), plan.port[port].cylinder
    if view == HELD:
        return now.port
    if c >= 0:
        k = cylinder_copy(machine, c)
        if is_known(k):
            return k.p_B if plan.port[port].is_B else k.p_A
    return now.port + now.port_trend * tick * plan.loop[0].dt


@register_jitable
def bind_ahead(
    plan: Plan, ix: Indices, row: Floats, z: Floats, machine: Floats, view: int, at: float, tick: int, more: float
) -> None:
    """Pressures of a moment to come (ticks from now) and ``more``, and inputs of a tick, into the circuit's copy."""
    first_input, first_port = plan.layout[0].input, plan.layout[0].port
    place = ix[BOUND]
    for _ in range(ix[N_BOUND]):
        column = int(np.int64(ix[place + ONE]))
        if column >= first_port:
            z[ix[place]] = pressure_ahead(plan, row, machine, (column - first_port) // PORT_CELLS, view, at) + more
        else:
            i = column - first_input
            t = trend(plan, row, i)
            value = row[column] + tick * t.slope + 0.5 * tick * (tick + 1) * t.bend
            z[ix[place]] = clip(value, plan.input[i].low, plan.input[i].high)
        place += TWO


@register_jitable
def carry_cylinder(plan: Plan, row: Floats, machine: Floats, work: Floats, c: int, tick: int, until: float) -> None:
    """Move a cylinder's copy on by the first or second half of a tick (``until`` 0.5, 1), under the predicted flows."""
    k, m = cylinder_copy(machine, c), plan.cylinder[c]
    if not is_known(k):
        return
    q_A, rise_A, slope_A = flow_ahead(plan, row, work, m.port_A, k.p_A, k.flow_A, tick)
    q_B, rise_B, slope_B = flow_ahead(plan, row, work, m.port_B, k.p_B, k.flow_B, tick)
    h = plan.loop[0].dt / SUBSTEPS_OF_MACHINE
    for sub in range(SUBSTEPS_OF_MACHINE // 2):
        share = until - 0.5 + (sub + 0.5) / SUBSTEPS_OF_MACHINE
        now_A, now_B = q_A + share * rise_A + slope_A * k.p_A, q_B + share * rise_B + slope_B * k.p_B
        move_cylinder(now_A, now_B, slope_A, slope_B, k, m, h)


@register_jitable
def flow_ahead(
    plan: Plan, row: Floats, work: Floats, port: int, p: float, now: float, tick: int
) -> tuple[float, float, float]:
    """Flow into a port at a tick to come, as it would be at no pressure; its rise until the next one; and its slope.

    The port's own valve will pass the virtual flow while the rig is RUNNING. A port at the other edges of a valve gets
    what its spool lets through; one that nothing drives goes on as now.
    """
    head = header(row)
    if port < 0:
        return 0.0, 0.0, 0.0
    if head.mode != Mode.RUNNING:
        return now, 0.0, 0.0
    if plan.port[port].valve >= 0:
        slope = predicted(plan, work, PREDICTED, port, FLOW_SLOPE)[tick]
        q = flow_at_no_pressure(plan, work, port, tick, slope)
        return q, q - flow_at_no_pressure(plan, work, port, tick - 1, slope) if tick > 0 else 0.0, slope
    turned = plan.port[port].turned
    if turned < 0:
        return now, 0.0, 0.0
    b, v = valve_state(plan, row, turned), plan.valve[turned]
    driven = v.port
    p_S, p_T = row[v.column_S], row[v.column_T]
    wanted = predicted(plan, work, PREDICTED, driven, FLOW)[tick]
    U = opening_for(wanted, predicted(plan, work, PREDICTED, driven, PRESSURE)[tick], p_S, p_T, v.overlap, b, v)
    return valve_flow(-U, p, p_S, p_T, b, v), 0.0, 0.0


@register_jitable
def flow_at_no_pressure(plan: Plan, work: Floats, port: int, tick: int, slope: float) -> float:
    """The flow noted at a tick, carried back along its slope: what is left is the circuit's own doing."""
    q, p = predicted(plan, work, PREDICTED, port, FLOW)[tick], predicted(plan, work, PREDICTED, port, PRESSURE)[tick]
    return float(q - slope * p)


@register_jitable
def stiffness(plan: Plan, row: Floats, work: Floats, i: int) -> float:
    """Rate at which the virtual circuit holds the pressure at a valve's port now, 1/s; 0 where no cylinder is known."""
    v = plan.valve[i]
    c = v.cylinder
    if c < 0:
        return 0.0
    k, m = cylinder_state(plan, row, c), plan.cylinder[c]
    if not is_known(k):
        return 0.0
    C = chamber_B(k.x, k.p_B, m) if v.is_B else chamber_A(k.x, k.p_A, m)
    return float(-predicted(plan, work, PREDICTED, v.port, FLOW_SLOPE)[0] / C)
