"""Look-ahead: a copy of the virtual circuit is simulated over the next ticks with pressures predicted by the model.

The future flow of the circuit depends on its own states, which are known (the spool of the virtual valve, its supply),
on the operator's inputs, which are extrapolated smoothly for these few milliseconds, and on the port pressures. These
are treated in one of two ways. HELD: they stay as they are now, so that only the circuit's own states have an effect.
PREDICTED: each cylinder continues to move under the flows (for a port without a cylinder, the pressure is extrapolated
linearly). A stiff supply settles the pressure of a small chamber in less than a tick; so the slope of each flow over
its pressure is calculated too, and the flow into the cylinder follows its pressure within the tick.

All copies are in ``work``, after the integrator's scratch space.
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
"""Stages of a tick: the circuit over missed ticks; the look-ahead, in either way; the circuit over this tick."""
FARTHEST = 32
"""Maximum look-ahead, in ticks."""
FLOW, PRESSURE, FLOW_SLOPE = 0, 1, 2
NOTES = 3
"""Values that the look-ahead stores per port; the slope in m³/(s·Pa)."""
DIPPED, NOTED, MOVED = 0, 1, 2
"""Calls of the integrator per tick of look-ahead: flows at other pressures, flows to store, step to the next tick."""
CALLS_AHEAD = 3
DIP = 1e4
"""Pa: pressure difference for a slope."""


@record_at(CylinderState)
def cylinder_copy(row: Floats, c: int) -> int:
    """Cylinder ``c`` in a copy of the row's cylinders."""
    return c * CYLINDER_CELLS


@register_jitable
def look_ahead_size(plan: Plan) -> int:
    """Number of values that the look-ahead needs in ``work``, after the integrator's."""
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
    """Ticks that a stage has to integrate (in a look-ahead: to store, including the present one)."""
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
    """Calls of the integrator: one for a stage of the circuit; in the look-ahead CALLS_AHEAD per tick, minus one."""
    if HELD <= stage <= PREDICTED:
        return max(CALLS_AHEAD * ticks - 1, 0)
    return min(ticks, 1)


@register_jitable
def prepare(
    plan: Plan, ix: Indices, row: Floats, z: Floats, machine: Floats, work: Floats, stage: int, ticks: int, call: int
) -> int:
    """Write pressures and inputs into the circuit or its copy; returns the number of ticks to integrate with them.

    In the look-ahead, a tick is integrated with the pressures at its midpoint; then those at its end are written, and
    the flows stored.
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
    """Write the measured pressures and the inputs of this tick into the circuit."""
    place = ix[BOUND]
    for _ in range(ix[N_BOUND]):
        z[ix[place]] = row[ix[place + ONE]]
        place += TWO


@register_jitable
def note_ports(
    plan: Plan, ix: Indices, row: Floats, z: Floats, machine: Floats, work: Floats, view: int, call: int
) -> None:
    """Store the circuit's flows into the ports, the pressures, and the slopes of flow over pressure."""
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
    """Pressure of a port a number of ticks from now."""
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
    """Write future pressures (in ticks from now) plus ``more``, and a tick's inputs, into the circuit's copy."""
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
    """Advance a cylinder's copy by the first or second half of a tick (``until`` 0.5, 1) with the predicted flows."""
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
    """Flow into a port at a future tick, extrapolated to zero pressure; its rise to the next tick; and its slope.

    The port's own valve will pass the virtual flow while the rig is RUNNING. A port at the other pair of edges of a
    valve receives the flow at its spool position; a port without a valve keeps its present flow.
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
    """The flow stored at a tick, extrapolated to zero pressure along its slope: the part due to the circuit itself."""
    q, p = predicted(plan, work, PREDICTED, port, FLOW)[tick], predicted(plan, work, PREDICTED, port, PRESSURE)[tick]
    return float(q - slope * p)


@register_jitable
def stiffness(plan: Plan, row: Floats, work: Floats, i: int) -> float:
    """Rate at which the virtual circuit holds the pressure at a valve's port now, 1/s; 0 without a known cylinder."""
    v = plan.valve[i]
    c = v.cylinder
    if c < 0:
        return 0.0
    k, m = cylinder_state(plan, row, c), plan.cylinder[c]
    if not is_known(k):
        return 0.0
    C = chamber_B(k.x, k.p_B, m) if v.is_B else chamber_A(k.x, k.p_A, m)
    return float(-predicted(plan, work, PREDICTED, v.port, FLOW_SLOPE)[0] / C)
