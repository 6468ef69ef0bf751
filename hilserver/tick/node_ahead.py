r"""Part of the look-ahead: the motion of the nodes that actuators follow.

A copy of the circuit is simulated from the end of this tick on, with the inputs as they are foreseen, and with the
force that the specimen exerts if it is at its node (:mod:`hilserver.tick.hybrid.carried`). The force that the
description of the specimen does not contain remains as the filter estimates it. (Changes of the measured force would
contain the following error of the actuator as if it were a force that remains.)

Position and velocity at `POINTS` times make the part of the next command that follows from them
(:mod:`hilserver.displacement.preview`). The circuit is not linearised: valves, stops and mechanisms act as they are.
"""

from __future__ import annotations

from math import ceil, isfinite

import numpy as np

from hilserver.circuit.engine import BOUND, FOLLOWED, N_BOUND, N_VALUES, ONE, TWO
from hilserver.numerics.arrays import Floats, Indices, signed
from hilserver.numerics.compilable import compilable
from hilserver.tick.actuator import leads_by, regulates
from hilserver.tick.foresight import foresee_inputs
from hilserver.tick.hybrid.carried import force_in_step
from hilserver.tick.hybrid.displacement import gain_at
from hilserver.tick.hybrid.memory import POINTS, STATES, memory_of, mobility_at, preview_of
from hilserver.tick.plan import Plan
from hilserver.tick.records import Struct, record_at, value
from hilserver.tick.row import ACTUATOR_CELLS, actuator_state

CALLS = 2
"""Steps of circuit and specimen between two points, in which inputs have their means, and time stands at its middle."""
LONGEST_STEP = 2.5e-3
"""s: longest step of the integrator in the look-ahead."""


class NodeAhead(Struct):
    """A node in the look-ahead."""

    x: float = value("m", "its position, as a displacement of the specimen")
    v: float = value("m/s", "its velocity")
    a: float = value("m/s^2", "its mean acceleration in the last step")
    other_change: float = value("m/s^2", "change of the mean acceleration by other forces")
    expected: float = value("m/s^2", "mean acceleration if only the force of the specimen changed it")
    force: float = value("N", "of the specimen on it in the last step")


NODE_AHEAD_CELLS = NodeAhead.cells()


@compilable
def nodes_ahead_size(plan: Plan) -> int:
    """Number of values that this look-ahead needs in ``work``: its inputs, then its nodes."""
    actuators = plan.actuator.shape[0]
    return int(plan.input.shape[0] * ticks_foreseen(plan) + NODE_AHEAD_CELLS * actuators) if actuators > 0 else 0


@compilable
def ticks_foreseen(plan: Plan) -> int:
    """Number of ticks for which the inputs are foreseen, this one included."""
    return int(plan.loop[0].foreseen / plan.loop[0].dt + 0.5) + 1


@record_at(NodeAhead)
def node_ahead(plan: Plan, row: Floats, i: int) -> int:
    """The node of actuator ``i`` in the scratch space of this look-ahead (``row``)."""
    return int(plan.input.shape[0] * ticks_foreseen(plan) + NODE_AHEAD_CELLS * i)


@compilable
def is_foreseen(plan: Plan, ix: Indices, row: Floats, i: int) -> bool:
    """Whether the command of actuator ``i`` depends on what is foreseen here."""
    place, count = signed(ix, FOLLOWED) + 2 * i, signed(ix, N_VALUES)
    there = signed(ix, place) < count and signed(ix, place + 1) < count
    return there and regulates(actuator_state(plan, row, i).strategy)


@compilable
def calls_foreseen(plan: Plan, ix: Indices, row: Floats) -> int:
    """Calls of the integrator, one for each of these steps."""
    for i in range(plan.actuator.shape[0]):
        if is_foreseen(plan, ix, row, i):
            return CALLS * (POINTS - 1)
    return 0


@compilable
def length_of_call(plan: Plan) -> float:
    """Duration of a step of circuit and specimen, s."""
    return float(plan.loop[0].foreseen / (CALLS * (POINTS - 1)))


@compilable
def steps_of_call(plan: Plan) -> int:
    """Number of steps of the integrator in it."""
    return max(ceil(length_of_call(plan) / LONGEST_STEP - 1e-6), 1)


@compilable
def start_foreseeing(
    plan: Plan, ix: Indices, row: Floats, z: Floats, work: Floats, space: Floats, elapsed: float
) -> None:
    """Begin with the circuit at the end of this tick; the force is what has acted on it in this tick.

    From this tick to the first step, other forces change the acceleration for as long as between their middles.
    """
    ticks = ticks_foreseen(plan)
    foresee_inputs(plan, row, ticks, space[: plan.input.shape[0] * ticks])
    for i in range(plan.actuator.shape[0]):
        a, b, node = plan.actuator[i], actuator_state(plan, row, i), node_ahead(plan, space, i)
        if not is_foreseen(plan, ix, row, i):
            continue
        place = signed(ix, FOLLOWED) + 2 * i
        x, v = z[signed(ix, place)], z[signed(ix, place + 1)]
        before = b.node_velocity if isfinite(b.node_velocity) else v
        node.x, node.v, node.a, node.force = x + a.offset, v, (v - before) / elapsed, b.force
        other_change = node.a - b.expected_change if isfinite(b.node_change) else 0.0
        node.other_change = 0.5 * other_change * (length_of_call(plan) / elapsed + 1.0)
        b.foreseen = 0.0
        note_point(plan, row, work, node, i, 0)


@compilable
def foresee(plan: Plan, ix: Indices, val: Floats, row: Floats, z: Floats, space: Floats, call: int) -> None:
    """Write inputs and forces into the circuit's copy for a step of circuit and specimen."""
    first, h, place = plan.layout[0].actuator, length_of_call(plan), ix[BOUND]
    ticks, each, first_input = ticks_foreseen(plan), h / plan.loop[0].dt, plan.layout[0].input
    tick = int(call * each + 1.5)
    end = max(int((call + 1) * each + 0.5), tick) + 1
    for _ in range(ix[N_BOUND]):
        column = int(np.int64(ix[place + ONE]))
        z[ix[place]] = row[column]
        if first_input <= column < first_input + plan.input.shape[0]:
            own = (column - first_input) * ticks
            z[ix[place]] = mean_of(space[own + tick : own + end])
        elif first <= column < first + ACTUATOR_CELLS * plan.actuator.shape[0]:
            i = (column - first) // ACTUATOR_CELLS
            if is_foreseen(plan, ix, row, i):
                z[ix[place]] = push(plan, ix, val, row, space, i, h)
        place += TWO


@compilable
def mean_of(values: Floats) -> float:
    """Their mean."""
    total = 0.0
    for k in range(values.shape[0]):
        total += values[k]
    return float(total / values.shape[0])


@compilable
def push(plan: Plan, ix: Indices, val: Floats, row: Floats, space: Floats, i: int, h: float) -> float:
    """The force of the specimen on its node in the next step of ``h`` s."""
    node, load, mobility = node_ahead(plan, space, i), actuator_state(plan, row, i).load, mobility_at(ix, val, i)
    last, unchanged = node.force, node.a + node.other_change
    node.force = force_in_step(plan.actuator[i], load, node.x, node.v, unchanged, last, mobility, h)
    node.expected = node.a + mobility * (node.force - last)
    return float(node.force)


@compilable
def note_foreseen(plan: Plan, ix: Indices, row: Floats, z: Floats, work: Floats, space: Floats, call: int) -> None:
    """The nodes after a step; at the points, what they add to the next commands."""
    for i in range(plan.actuator.shape[0]):
        if is_foreseen(plan, ix, row, i):
            node, place = node_ahead(plan, space, i), signed(ix, FOLLOWED) + 2 * i
            v = z[signed(ix, place + 1)]
            node.a = (v - node.v) / length_of_call(plan)
            node.other_change = node.a - node.expected
            node.x, node.v = z[signed(ix, place)] + plan.actuator[i].offset, v
            if (call + 1) % CALLS == 0:
                note_point(plan, row, work, node, i, (call + 1) // CALLS)


@compilable
def note_point(plan: Plan, row: Floats, work: Floats, node: NodeAhead, i: int, point: int) -> None:
    """Add what a point contributes to the command."""
    a, b, gains = plan.actuator[i], actuator_state(plan, row, i), preview_of(plan, i)
    theta = memory_of(plan, row, work, i).estimate[STATES + 1 : STATES + 1 + a.tracked]
    lead = leads_by(a, b)
    x, v = node.x + lead * (node.v + 0.5 * lead * node.a), node.v + lead * node.a
    b.foreseen += gain_at(theta, gains.gains, gains.slopes, gains.curves, point) * x
    b.foreseen += gain_at(theta, gains.gains, gains.slopes, gains.curves, POINTS + point) * v
