r"""Look-ahead: a copy of the virtual circuit is simulated over the next ticks, together with the machine's model.

The future flow of the circuit depends on its own states, which are known (the spool of the virtual valve, its supply),
on the inputs, which are known or extrapolated (`hilserver.tick.foresight`), and on the port pressures. These are
treated in one of two ways. HELD: they stay as they are now, so that only the circuit's own states have an effect.
PREDICTED: each cylinder moves with the oil that the circuit passes; without feedback, with what the real valve makes of
it. (For a port without a cylinder, the pressure is extrapolated linearly.)

Circuit and cylinders are stepped alternately (:mod:`hilserver.tick.schedule`). In each step, the pistons keep their
speed in the middle of the step. A chamber that the circuit fills is one of two things in the step:

- a state of the circuit, :math:`C \dot p = Q - A v`, integrated together with it by the L-stable method, if the circuit
  uses that method, or if its flow settles the chamber in a few steps or less,
- otherwise at a pressure that the circuit sees: the mean over the step, for a flow that changes linearly with it,

  .. math:: \bar p = p + \frac{h}{C}\,(Q - A v)\;\frac{1}{a}\Bigl(1 - \frac{1 - e^{-a}}{a}\Bigr), \qquad
     a = -\frac{h}{C}\frac{\partial Q}{\partial p}

The chamber then receives the volume that the circuit has passed, neither more nor less. A restriction that is stiff
compared with the chamber must not be linearised over the step: the square root law is hundreds of times steeper at no
drop than a bar away from it. Source: exponential Euler method, e.g. Hochbruck & Ostermann, Exponential integrators,
Acta Numerica 19 (2010) 209.

All copies are in ``work``, after the integrator's scratch space.
"""

from __future__ import annotations

from math import isfinite, nan

import numpy as np

from hilserver.circuit.engine import (
    BOUND,
    INTEGRATOR,
    N_BOUND,
    ONE,
    TWO,
    Integrator,
)
from hilserver.circuit.linearisation import CAPACITANCE, CHAMBER_CELLS, PORT, PRESSURE_AT, SUM_AT, SWEPT
from hilserver.numerics.arrays import Floats, Indices, overwrite
from hilserver.numerics.compilable import compilable
from hilserver.numerics.shape import clip
from hilserver.tick.bridge.effects import Compensates
from hilserver.tick.bridge.strategies import compensates
from hilserver.tick.codes import Mode, Unseen
from hilserver.tick.cylinder import (
    chamber_A,
    chamber_B,
    is_known,
    move_cylinder,
    net_force_now,
    share_of_rise,
    taken_A,
    taken_B,
    taken_now,
)
from hilserver.tick.foresight import foresee_inputs
from hilserver.tick.node_ahead import nodes_ahead_size
from hilserver.tick.plan import Plan
from hilserver.tick.records import Struct, record_at, value
from hilserver.tick.row import (
    ACTUATOR_CELLS,
    CYLINDER_CELLS,
    PORT_CELLS,
    CylinderState,
    cylinder_copy,
    cylinder_state,
    header,
    port_state,
    valve_state,
)
from hilserver.tick.schedule import exchange_of
from hilserver.tick.stages import FARTHEST, NOTES, Note, Stage, first_note
from hilserver.tick.valve import DIP, opening_for, overlap_of, valve_flow
from hilserver.tick.volumes import flow_at_end, flow_of, place_of_flow, place_of_pressure, place_of_sum

STIFF = 0.25
"""Stiffness (a) above which the chamber is a state of the circuit: there the linearised flow is wrong by several per
cent."""


class PortAhead(Struct):
    """A port in the look-ahead."""

    p: float = value("Pa", "pressure that the circuit's copy sees")
    flow: float = value("m^3/s", "its flow into the port at this pressure")
    slope: float = value("m^3/(s*Pa)", "change of this flow with the pressure, not positive")
    passed: float = value("m^3/s", "mean of its flow over the last step")
    C: float = value("m^3/Pa", "capacitance of its chamber, if this is a state of the circuit, else 0")
    swept: float = value("m^3/s", "flow that the piston takes up in this step, and what leaks past it")
    spool: float = value("", "position of the spool that passes this flow, if it serves another port, too")
    excess: float = value("m^3/s", "flow that the real valve passes in excess of the virtual one")


AHEAD_CELLS = PortAhead.cells()


@record_at(PortAhead)
def ahead_of(plan: Plan, row: Floats, port: int) -> int:
    """A port in the look-ahead, in ``work`` (``row``)."""
    ports = plan.port.shape[0]
    return int(row.shape[0]) - (2 * NOTES * FARTHEST + AHEAD_CELLS) * ports + AHEAD_CELLS * port


@compilable
def first_chamber(ports: int, cells: int) -> int:
    """Place in ``work``, of so many cells, of the chambers that are states of the circuit's copy.

    (A place, not the array: a function that gets the plan or an array, and is not inlined, costs more than its work.)
    """
    return cells - (2 * NOTES * FARTHEST + AHEAD_CELLS + CHAMBER_CELLS) * ports


@compilable
def first_input_ahead(plan: Plan, cells: int) -> int:
    """Place in ``work``, of so many cells, of the inputs in the look-ahead: FARTHEST values of each."""
    return first_chamber(plan.port.shape[0], cells) - FARTHEST * plan.input.shape[0]


@compilable
def look_ahead_size(plan: Plan) -> int:
    """Number of values that the look-ahead needs in ``work``, after the integrator's."""
    ports, cylinders = plan.port.shape[0], plan.cylinder.shape[0]
    notes = (2 * NOTES * FARTHEST + AHEAD_CELLS + CHAMBER_CELLS) * ports + FARTHEST * plan.input.shape[0]
    return int(plan.layout[0].circuit_space + CYLINDER_CELLS * cylinders + nodes_ahead_size(plan) + notes)


@compilable
def start_ahead(plan: Plan, row: Floats, machine: Floats, work: Floats, view: int, ticks: int) -> None:
    """Start a look-ahead over so many ticks: cylinders whose ports have the pressures that the circuit sees.

    Their motion remains that of the real pressures: the difference is added to the force.
    """
    layout = plan.layout[0]
    overwrite(machine, row[layout.cylinder : layout.cylinder + machine.shape[0]])
    for c in range(plan.cylinder.shape[0]):
        k, m = cylinder_copy(machine, c), plan.cylinder[c]
        if not is_known(k):
            k.x = nan  # see is_predicted
        if m.port_A >= 0:
            now = port_state(plan, row, m.port_A)
            k.p_A = now.port
            k.F += m.area_A * now.port_shift
        if m.port_B >= 0:
            now = port_state(plan, row, m.port_B)
            k.p_B = now.port
            k.F -= m.area_B * now.port_shift
    for port in range(plan.port.shape[0]):
        for note in range(NOTES):
            first = first_note(plan.port.shape[0], work.shape[0], view, port, note)
            for tick in range(FARTHEST):
                work[first + tick] = 0.0
        ahead = ahead_of(plan, work, port)
        ahead.p, ahead.slope = port_state(plan, row, port).port, 0.0
        ahead.excess = excess_at(plan, row, port)
    first = first_input_ahead(plan, work.shape[0])
    foresee_inputs(plan, row, ticks, work[first : first + FARTHEST * plan.input.shape[0]])


@compilable
def excess_at(plan: Plan, row: Floats, port: int) -> float:
    """What the valve of a port passes in excess of what is expected of it, unless the strategy makes this good."""
    line = plan.port[port]
    i = line.valve if line.valve >= 0 else line.turned
    if i < 0 or line.cylinder < 0 or compensates(valve_state(plan, row, i).strategy, Compensates.VOLUME_ERROR):
        return 0.0
    if valve_state(plan, row, i).unseen == Unseen.VOID:
        return 0.0
    k = cylinder_state(plan, row, line.cylinder)
    return float(k.bias_B if line.is_B else k.bias_A)


@compilable
def is_predicted(k: CylinderState) -> bool:
    """Whether a cylinder's copy is known; only these of its values change in the look-ahead."""
    return isfinite(k.p_A + k.p_B + k.x + k.v)


@compilable
def prepare(
    plan: Plan,
    ix: Indices,
    row: Floats,
    z: Floats,
    machine: Floats,
    work: Floats,
    stage: int,
    exchanges: int,
    call: int,
    tick: int,
    steps: int,
) -> None:
    """Write pressures and inputs into the circuit's copy, before a call that integrates this number of ``steps``."""
    if stage == Stage.PREDICTED and steps > 0:
        h = plan.loop[0].dt / exchanges
        couple(plan, ix, row, machine, work, h)
        at = (exchange_of(ix, call) + 0.5) * h
        for port in range(plan.port.shape[0]):
            if ahead_of(plan, work, port).C == 0.0:
                ahead_of(plan, work, port).p = mean_pressure(plan, row, machine, work, port, at, h)
    dip = DIP if stage == Stage.PREDICTED and call > 0 and steps == 0 else 0.0
    bind_ahead(plan, ix, row, z, work, tick, dip)


@compilable
def couple(plan: Plan, ix: Indices, row: Floats, machine: Floats, work: Floats, h: float) -> None:
    """Make the chambers that the circuit fills states of its copy for a step of ``h`` seconds, if they have to be."""
    coupled = ix[INTEGRATOR] == Integrator.ROSENBROCK
    for port in range(plan.port.shape[0]):
        ahead = ahead_of(plan, work, port)
        ahead.C = 0.0
        if ahead.slope < 0.0 and is_filled(plan, row, machine, port):
            k, m = cylinder_copy(machine, plan.port[port].cylinder), plan.cylinder[plan.port[port].cylinder]
            x = clip(k.x, 0.0, m.stroke)
            V = m.dead_B + m.area_B * (m.stroke - x) if plan.port[port].is_B else m.dead_A + m.area_A * x
            coupled = coupled or -ahead.slope * h * m.B_o > STIFF * V  # as without air: C itself takes long to compute
    if not coupled:
        return
    for port in range(plan.port.shape[0]):
        if is_filled(plan, row, machine, port):
            ahead, is_B = ahead_of(plan, work, port), plan.port[port].is_B
            k, m = cylinder_copy(machine, plan.port[port].cylinder), plan.cylinder[plan.port[port].cylinder]
            force = net_force_now(k, m)
            v = k.v + 0.5 * h * force / m.mass
            x = k.x + 0.5 * h * k.v
            ahead.p = k.p_B if is_B else k.p_A
            ahead.C = chamber_B(x, ahead.p, m) if is_B else chamber_A(x, ahead.p, m)
            if is_B:
                ahead.swept = taken_B(k.p_A, k.p_B, x, v, force, m) - ahead.excess
            else:
                ahead.swept = taken_A(k.p_A, k.p_B, x, v, force, m) - ahead.excess


@compilable
def is_filled(plan: Plan, row: Floats, machine: Floats, port: int) -> bool:
    """Whether the circuit fills a chamber at this port whose state is known."""
    c = plan.port[port].cylinder
    return bool(c >= 0 and follows_circuit(plan, row, port) and is_predicted(cylinder_copy(machine, c)))


@compilable
def coupled_chambers(plan: Plan, ix: Indices, z: Floats, work: Floats, stage: int, steps: int) -> int:
    """Write the chambers that are states of the circuit's copy into ``work``; returns their number."""
    number = 0
    if stage == Stage.PREDICTED and steps > 0:
        for port in range(plan.port.shape[0]):
            ahead = ahead_of(plan, work, port)
            if ahead.C > 0.0 and place_of_pressure(ix, port) < z.shape[0]:
                cells = work[first_chamber(plan.port.shape[0], work.shape[0]) + CHAMBER_CELLS * number :]
                number += 1
                cells[PRESSURE_AT], cells[SUM_AT] = place_of_pressure(ix, port), place_of_sum(ix, port)
                cells[CAPACITANCE], cells[SWEPT], cells[PORT] = ahead.C, ahead.swept, port
    return number


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

    The forces of specimens stay those of this tick.

    Chamber A's pressure is raised and chamber B's lowered: where the circuit connects the two, the slope includes what
    flows from one to the other.
    """
    first_input, first_port = plan.layout[0].input, plan.layout[0].port
    place = ix[BOUND]
    for _ in range(ix[N_BOUND]):
        column = int(np.int64(ix[place + ONE]))
        if is_force(plan, column):
            z[ix[place]] = row[column]
        elif column >= first_port:
            port = (column - first_port) // PORT_CELLS
            z[ix[place]] = ahead_of(plan, work, port).p + (-dip if plan.port[port].is_B else dip)
        else:
            first = first_input_ahead(plan, work.shape[0])
            z[ix[place]] = work[first + FARTHEST * (column - first_input) + tick]
        place += TWO


@compilable
def is_force(plan: Plan, column: int) -> bool:
    """Whether a column of the row is in the records of the actuators."""
    first = plan.layout[0].actuator
    return bool(first <= column < first + ACTUATOR_CELLS * plan.actuator.shape[0])


@compilable
def note_ahead(
    plan: Plan,
    ix: Indices,
    row: Floats,
    z: Floats,
    machine: Floats,
    work: Floats,
    stage: int,
    exchanges: int,
    call: int,
    tick: int,
    steps: int,
) -> None:
    """Store the flows of the circuit's copy after a call of the integrator, and move the cylinders with them."""
    ports, cells = plan.port.shape[0], work.shape[0]
    for port in range(ports):
        ahead, now = ahead_of(plan, work, port), port_state(plan, row, port)
        q = flow_of(ix, z, port)
        if steps > 0:
            p = ahead.p
            if stage == Stage.PREDICTED and ahead.C > 0.0 and place_of_pressure(ix, port) < z.shape[0]:
                ahead.p = z[place_of_pressure(ix, port)]
                q = ahead.swept + ahead.C * (ahead.p - p) * exchanges / plan.loop[0].dt  # without what fills the port
                p = 0.5 * (p + ahead.p)
            work[first_note(ports, cells, stage, port, Note.FLOW) + tick] += q / exchanges
            work[first_note(ports, cells, stage, port, Note.PRESSURE) + tick] += (p - now.port_shift) / exchanges
            ahead.flow, ahead.passed = flow_at_end(ix, z, work, port), q
        elif call == 0:
            ahead.flow = q
        else:
            dip = -DIP if plan.port[port].is_B else DIP
            ahead.slope = min((q - ahead.flow) / dip, 0.0)
        if stage == Stage.PREDICTED and (steps > 0 or call == 0):
            ahead.spool = spool_ahead(plan, row, work, port)
    if stage == Stage.PREDICTED and steps > 0:
        for c in range(plan.cylinder.shape[0]):
            k, m = cylinder_copy(machine, c), plan.cylinder[c]
            if is_predicted(k):
                q_A = flow_passed(plan, row, work, m.port_A, k.p_A, k.flow_A)
                q_B = flow_passed(plan, row, work, m.port_B, k.p_B, k.flow_B)
                move_cylinder(q_A, q_B, k, m, plan.loop[0].dt / exchanges)


@compilable
def hand_over(plan: Plan, ix: Indices, work: Floats, z: Floats) -> None:
    """Set the flows of a circuit that was taken from the copy after its first tick: means over this tick."""
    for port in range(plan.port.shape[0]):
        place = place_of_flow(ix, port)
        if place < z.shape[0]:
            z[place] = work[first_note(plan.port.shape[0], work.shape[0], Stage.PREDICTED, port, Note.FLOW)]


@compilable
def mean_pressure(plan: Plan, row: Floats, machine: Floats, work: Floats, port: int, at: float, h: float) -> float:
    """Mean pressure of a port over a step of ``h`` seconds, with its middle ``at`` seconds from now."""
    c, is_B = plan.port[port].cylinder, plan.port[port].is_B
    now = port_state(plan, row, port)
    if c < 0:
        return now.port + now.port_trend * at
    k, m = cylinder_copy(machine, c), plan.cylinder[c]
    if not is_predicted(k):
        return now.port + now.port_trend * at
    p, flow = (k.p_B, k.flow_B) if is_B else (k.p_A, k.flow_A)
    C = chamber_B(k.x, p, m) if is_B else chamber_A(k.x, p, m)
    taken = taken_now(is_B, k, m)
    slope = ahead_of(plan, work, port).slope if follows_circuit(plan, row, port) else 0.0
    filling, rise = flow_into(plan, row, work, port, p, flow) - taken, h / C
    return float(p + filling * (rise * share_of_rise(-slope * rise)))


@compilable
def follows_circuit(plan: Plan, row: Floats, port: int) -> bool:
    """Whether a port receives the virtual flow: a valve drives it, and the rig is RUNNING."""
    head = header(row)
    return bool(head.mode == Mode.RUNNING and plan.port[port].valve >= 0)


@compilable
def flow_passed(plan: Plan, row: Floats, work: Floats, port: int, p: float, now: float) -> float:
    """Mean flow into a port over the last step."""
    if port >= 0 and follows_circuit(plan, row, port):
        return float(ahead_of(plan, work, port).passed + ahead_of(plan, work, port).excess)
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
        return float(ahead.flow + ahead.slope * (p - ahead.p) + ahead.excess)
    turned = plan.port[port].turned
    if turned < 0 or header(row).mode != Mode.RUNNING:
        return now
    b, v = valve_state(plan, row, turned), plan.valve[turned]
    flow = valve_flow(-ahead_of(plan, work, v.port).spool, p, row[v.column_S], row[v.column_T], b, v)
    return flow + ahead_of(plan, work, port).excess


@compilable
def spool_ahead(plan: Plan, row: Floats, work: Floats, port: int) -> float:
    """Position of the spool of a port's valve, at the port's flow and pressure, if it serves another port, too."""
    i = plan.port[port].valve
    if i < 0 or plan.valve[i].other_port < 0 or not follows_circuit(plan, row, port):
        return 0.0
    ahead, b, v = ahead_of(plan, work, port), valve_state(plan, row, i), plan.valve[i]
    return opening_for(ahead.flow, ahead.p, row[v.column_S], row[v.column_T], overlap_of(b, v), b, v)
