r"""Look-ahead: a copy of the virtual circuit is simulated over the next ticks, together with the machine's model.

The future flow of the circuit depends on its own states, which are known (the spool of the virtual valve, its supply),
on the operator's inputs, which are extrapolated smoothly for these few milliseconds, and on the port pressures. These
are treated in one of two ways. HELD: they stay as they are now, so that only the circuit's own states have an effect.
PREDICTED: each cylinder moves with the oil that the circuit passes. (For a port without a cylinder, the pressure is
extrapolated linearly.)

Circuit and cylinders are stepped alternately, in steps of at most `EXCHANGE`. In each, the circuit sees one pressure at
a port: the mean over the step, for a chamber whose flow changes linearly with its pressure,

.. math:: \bar p = p + \frac{h}{C}\,(Q - A v)\;\frac{1}{a}\Bigl(1 - \frac{1 - e^{-a}}{a}\Bigr), \qquad
   a = -\frac{h}{C}\frac{\partial Q}{\partial p}

The chamber then receives the volume that the circuit has passed, neither more nor less. Without stiffness (a = 0) this
is the midpoint rule; a stiff supply settles a small chamber in less than a step, and the pressure is that at which they
are in balance. Source: exponential Euler method, e.g. Hochbruck & Ostermann, Exponential integrators, Acta Numerica 19
(2010) 209.

All copies are in ``work``, after the integrator's scratch space.
"""

from __future__ import annotations

from enum import IntEnum
from math import ceil, exp

import numpy as np

from hilserver.circuit.engine import BOUND, N_BOUND, ONE, TWO
from hilserver.numerics.arrays import Floats, Indices, overwrite
from hilserver.numerics.compilable import compilable, gives_arrays
from hilserver.numerics.shape import clip
from hilserver.tick.bridge.compensation import POINTS, first_of
from hilserver.tick.bridge.ladder import Compensates, Kind, compensates, kind_of
from hilserver.tick.codes import Mode
from hilserver.tick.cylinder import chamber_A, chamber_B, is_known, move_cylinder
from hilserver.tick.estimator import predicts
from hilserver.tick.plan import Plan
from hilserver.tick.records import Struct, record_at, value
from hilserver.tick.row import (
    CYLINDER_CELLS,
    PORT_CELLS,
    cylinder_copy,
    header,
    port_state,
    trend,
    valve_state,
)
from hilserver.tick.valve import delay_of, opening_for, valve_flow
from hilserver.tick.volumes import flow_at_end, flow_of, place_of_flow

CATCH_UP, HELD, PREDICTED, THIS_TICK = 0, 1, 2, 3
"""Stages of a tick: the circuit over missed ticks; the look-ahead, in either way; the circuit over this tick."""
FARTHEST = 32
"""Maximum look-ahead, in ticks."""
NOTES = 2
"""Number of values that the look-ahead stores per port and tick (`Note`)."""
EXCHANGE = 2e-4
"""s: longest step in which circuit and cylinders are simulated separately."""
DIP = 1e4
"""Pa: pressure difference for a slope."""
GENTLE = 1e-3
"""Stiffness (a) below which the midpoint rule is used."""


class Note(IntEnum):
    """What the look-ahead stores per port and tick: the mean over the tick of this."""

    FLOW = 0
    PRESSURE = 1


class PortAhead(Struct):
    """A port in the look-ahead."""

    p: float = value("Pa", "pressure that the circuit's copy sees")
    flow: float = value("m^3/s", "its flow into the port at this pressure")
    slope: float = value("m^3/(s*Pa)", "change of this flow with the pressure, not positive")
    passed: float = value("m^3/s", "mean of its flow over the last step")


AHEAD_CELLS = PortAhead.cells()


@record_at(PortAhead)
def ahead_of(plan: Plan, row: Floats, port: int) -> int:
    """A port in the look-ahead, in ``work`` (``row``)."""
    ports = plan.port.shape[0]
    return int(row.shape[0]) - (2 * NOTES * FARTHEST + AHEAD_CELLS) * ports + AHEAD_CELLS * port


@compilable
def look_ahead_size(plan: Plan) -> int:
    """Number of values that the look-ahead needs in ``work``, after the integrator's."""
    ports, cylinders = plan.port.shape[0], plan.cylinder.shape[0]
    notes = (2 * NOTES * FARTHEST + AHEAD_CELLS) * ports
    return int(plan.layout[0].circuit_space + CYLINDER_CELLS * cylinders + notes)


@gives_arrays
def predicted(plan: Plan, work: Floats, view: int, port: int, what: int) -> Floats:
    """A `Note` of a port: means over the coming tick, the next, …"""
    ports = plan.port.shape[0]
    start = work.shape[0] + ((NOTES * (view - PREDICTED - 1) + what) * ports + port) * FARTHEST
    return work[start : start + FARTHEST]


@compilable
def is_ahead(stage: int) -> bool:
    """Whether a stage is a look-ahead."""
    return HELD <= stage <= PREDICTED


@compilable
def ticks_of(plan: Plan, row: Floats, stage: int, missed: int) -> int:
    """Ticks that a stage has to integrate."""
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
            ticks = max(ticks, POINTS)
        if stage == PREDICTED and predictive:
            spare = 1.0 if compensates(b.strategy, Compensates.PARAMETERS) else 0.0  # the tracked delay may still rise
            ticks = max(ticks, first_of(delay_of(b, v) / plan.loop[0].dt + spare, FARTHEST) + POINTS)
    return ticks


@compilable
def exchanges_of(plan: Plan, stage: int, substeps: int) -> int:
    """Number of alternating steps of circuit and cylinders per tick."""
    return min(ceil(plan.loop[0].dt / EXCHANGE - 1e-6), substeps) if stage == PREDICTED else 1


@compilable
def calls_of(plan: Plan, stage: int, ticks: int, substeps: int) -> int:
    """Calls of the integrator: one for a stage of the circuit, or per tick with held pressures.

    With predicted pressures: one for the flows now, and two per exchange, for the slopes and for the step.
    """
    if not is_ahead(stage):
        return min(ticks, 1)
    if stage == HELD or ticks == 0:
        return ticks
    return 1 + 2 * exchanges_of(plan, stage, substeps) * ticks


@compilable
def tick_of(plan: Plan, stage: int, substeps: int, call: int) -> int:
    """The tick of a look-ahead to which a call belongs."""
    if stage == HELD:
        return call
    return max(call - 1, 0) // (2 * exchanges_of(plan, stage, substeps))


@compilable
def is_step(stage: int, call: int) -> bool:
    """Whether a call of the look-ahead moves the circuit's copy on."""
    return stage == HELD or (call > 0 and call % 2 == 0)


@compilable
def start_ahead(plan: Plan, row: Floats, machine: Floats, work: Floats, view: int) -> None:
    """Start a look-ahead: cylinders whose ports have the pressures that the circuit sees.

    Their motion remains that of the real pressures: the difference is added to the force.
    """
    layout = plan.layout[0]
    overwrite(machine, row[layout.cylinder : layout.cylinder + machine.shape[0]])
    for c in range(plan.cylinder.shape[0]):
        k, m = cylinder_copy(machine, c), plan.cylinder[c]
        if m.port_A >= 0:
            now = port_state(plan, row, m.port_A)
            k.p_A = now.port
            k.F += m.area_A * now.port_shift
        if m.port_B >= 0:
            now = port_state(plan, row, m.port_B)
            k.p_B = now.port
            k.F -= m.area_B * now.port_shift
    for port in range(plan.port.shape[0]):
        flow, pressure = predicted(plan, work, view, port, Note.FLOW), predicted(plan, work, view, port, Note.PRESSURE)
        for tick in range(FARTHEST):
            flow[tick] = pressure[tick] = 0.0
        ahead_of(plan, work, port).p = port_state(plan, row, port).port


@compilable
def prepare(
    plan: Plan,
    ix: Indices,
    row: Floats,
    z: Floats,
    machine: Floats,
    work: Floats,
    stage: int,
    ticks: int,
    substeps: int,
    call: int,
) -> int:
    """Write pressures and inputs into the circuit or its copy; returns the number of steps to integrate with them."""
    if not is_ahead(stage):
        bind(ix, row, z)
        return ticks * substeps
    exchanges, tick = exchanges_of(plan, stage, substeps), tick_of(plan, stage, substeps, call)
    if stage == PREDICTED and is_step(stage, call):
        h = plan.loop[0].dt / exchanges
        at = (call // 2 - 0.5) * h
        for port in range(plan.port.shape[0]):
            ahead_of(plan, work, port).p = mean_pressure(plan, row, machine, work, port, at, h)
    dip = DIP if stage == PREDICTED and call > 0 and not is_step(stage, call) else 0.0
    bind_ahead(plan, ix, row, z, work, tick, dip)
    return ceil(substeps / exchanges) if is_step(stage, call) else 0


@compilable
def bind(ix: Indices, row: Floats, z: Floats) -> None:
    """Write the measured pressures and the inputs of this tick into the circuit."""
    place = ix[BOUND]
    for _ in range(ix[N_BOUND]):
        z[ix[place]] = row[ix[place + ONE]]
        place += TWO


@compilable
def bind_ahead(plan: Plan, ix: Indices, row: Floats, z: Floats, work: Floats, tick: int, dip: float) -> None:
    """Write the ports' pressures, changed by ``dip``, and a future tick's inputs into the circuit's copy.

    Chamber A's pressure is raised and chamber B's lowered: where the circuit connects the two, the slope includes what
    flows from one to the other.
    """
    first_input, first_port = plan.layout[0].input, plan.layout[0].port
    place = ix[BOUND]
    for _ in range(ix[N_BOUND]):
        column = int(np.int64(ix[place + ONE]))
        if column >= first_port:
            port = (column - first_port) // PORT_CELLS
            z[ix[place]] = ahead_of(plan, work, port).p + (-dip if plan.port[port].is_B else dip)
        else:
            i = column - first_input
            t = trend(plan, row, i)
            value = row[column] + tick * t.slope + 0.5 * tick * (tick + 1) * t.bend
            z[ix[place]] = clip(value, plan.input[i].low, plan.input[i].high)
        place += TWO


@compilable
def note_ahead(
    plan: Plan, ix: Indices, row: Floats, z: Floats, machine: Floats, work: Floats, stage: int, substeps: int, call: int
) -> None:
    """Store the flows of the circuit's copy after a call of the integrator, and move the cylinders with them."""
    tick, exchanges = tick_of(plan, stage, substeps, call), exchanges_of(plan, stage, substeps)
    for port in range(plan.port.shape[0]):
        ahead, now = ahead_of(plan, work, port), port_state(plan, row, port)
        q = flow_of(ix, z, port)
        if is_step(stage, call):
            predicted(plan, work, stage, port, Note.FLOW)[tick] += q / exchanges
            predicted(plan, work, stage, port, Note.PRESSURE)[tick] += (ahead.p - now.port_shift) / exchanges
            ahead.flow, ahead.passed = flow_at_end(ix, z, work, port), q
        elif call == 0:
            ahead.flow = q
        else:
            dip = -DIP if plan.port[port].is_B else DIP
            ahead.slope = min((q - ahead.flow) / dip, 0.0)
    if stage == PREDICTED and is_step(stage, call):
        for c in range(plan.cylinder.shape[0]):
            k, m = cylinder_copy(machine, c), plan.cylinder[c]
            if is_known(k):
                q_A = flow_passed(plan, row, work, m.port_A, k.p_A, k.flow_A)
                q_B = flow_passed(plan, row, work, m.port_B, k.p_B, k.flow_B)
                move_cylinder(q_A, q_B, k, m, plan.loop[0].dt / exchanges)


@compilable
def hand_over(plan: Plan, ix: Indices, work: Floats, z: Floats) -> None:
    """Set the flows of a circuit that was taken from the copy after its first tick: means over this tick."""
    for port in range(plan.port.shape[0]):
        place = place_of_flow(ix, port)
        if place < z.shape[0]:
            z[place] = predicted(plan, work, PREDICTED, port, Note.FLOW)[0]


@compilable
def mean_pressure(plan: Plan, row: Floats, machine: Floats, work: Floats, port: int, at: float, h: float) -> float:
    """Mean pressure of a port over a step of ``h`` seconds, with its middle ``at`` seconds from now."""
    c, is_B = plan.port[port].cylinder, plan.port[port].is_B
    now = port_state(plan, row, port)
    if c < 0:
        return now.port + now.port_trend * at
    k, m = cylinder_copy(machine, c), plan.cylinder[c]
    if not is_known(k):
        return now.port + now.port_trend * at
    p, flow = (k.p_B, k.flow_B) if is_B else (k.p_A, k.flow_A)
    C = chamber_B(k.x, p, m) if is_B else chamber_A(k.x, p, m)
    swept = -m.area_B * k.v if is_B else m.area_A * k.v
    slope = ahead_of(plan, work, port).slope if follows_circuit(plan, row, port) else 0.0
    filling = flow_into(plan, row, work, port, p, flow) - swept
    return float(p + filling * h / C * share_of_rise(-slope * h / C))


@compilable
def share_of_rise(a: float) -> float:
    """Mean rise of a pressure over a step, as a share of the rise at its initial rate; ``a``: step per time constant.

    >>> round(share_of_rise(1e-9), 6), round(share_of_rise(1.0), 6), round(100.0 * share_of_rise(100.0), 6)
    (0.5, 0.367879, 0.99)
    """
    if a < GENTLE:
        return 0.5
    return float((1.0 - (1.0 - exp(-a)) / a) / a)


@compilable
def follows_circuit(plan: Plan, row: Floats, port: int) -> bool:
    """Whether a port receives the virtual flow: a valve drives it, and the rig is RUNNING."""
    head = header(row)
    return bool(head.mode == Mode.RUNNING and plan.port[port].valve >= 0)


@compilable
def flow_passed(plan: Plan, row: Floats, work: Floats, port: int, p: float, now: float) -> float:
    """Mean flow into a port over the last step."""
    if port >= 0 and follows_circuit(plan, row, port):
        return ahead_of(plan, work, port).passed
    return flow_into(plan, row, work, port, p, now)


@compilable
def flow_into(plan: Plan, row: Floats, work: Floats, port: int, p: float, now: float) -> float:
    """Flow into a port at pressure ``p``, with the circuit's copy in its present state.

    A port at the other pair of edges of a valve receives the flow at that valve's spool position; a port without a
    valve keeps its present flow.
    """
    if port < 0:
        return 0.0
    if follows_circuit(plan, row, port):
        ahead = ahead_of(plan, work, port)
        return float(ahead.flow + ahead.slope * (p - ahead.p))
    turned = plan.port[port].turned
    if turned < 0 or header(row).mode != Mode.RUNNING:
        return now
    b, v = valve_state(plan, row, turned), plan.valve[turned]
    driven, p_S, p_T = ahead_of(plan, work, v.port), row[v.column_S], row[v.column_T]
    U = opening_for(driven.flow, driven.p, p_S, p_T, v.overlap, b, v)
    return valve_flow(-U, p, p_S, p_T, b, v)
