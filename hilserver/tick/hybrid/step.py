"""A virtual structure on a simulated actuator, without a clock: real-time hybrid simulation in lockstep.

In each tick the structure gives the position at its interface, the displacement bridge converts it into the command
of the actuator, and the force of the specimen, as measured one tick earlier, acts on the structure.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from hilserver.numerics.arrays import Floats, Matrix
from hilserver.numerics.compilable import compilable
from hilserver.numerics.shape import clip
from hilserver.tick.hybrid.displacement import (
    DisplacementBridge,
    DisplacementMemory,
    Law,
    correct_actuator,
    displacement_command,
    later,
    predict_actuator,
    seen_force,
)
from hilserver.tick.hybrid.pi_lead import PiLead, pi_lead_command, rounded_to


class VirtualStructure(NamedTuple):
    """A linear structure over a tick: its state is positions, then velocities; the first position is the interface.

    ``ground``, ``ground_next``: change of the state by the ground acceleration at the begin and at the end of the tick,
    which changes linearly; ``force``: by the force of the specimen, which is held. ``state``: its memory.
    """

    step: Matrix
    ground: Floats
    ground_next: Floats
    force: Floats
    state: Floats
    spare: Floats


class TransferSystem(NamedTuple):
    """Actuator and specimen over a tick with a held command; ``seen``: displacement and force from the ``state``.

    ``commands``, ``displacements``, ``forces``: those that are still on their way, newest first, and the one that
    arrives. ``most``: displacement, m, and force, N, beyond which the simulation has become unstable and ends.
    """

    step: Matrix
    input: Floats
    seen: Matrix
    state: Floats
    spare: Floats
    commands: Floats
    displacements: Floats
    forces: Floats
    most: Floats


class Trace(IntEnum):
    """The columns of the record of a run; after them come the positions of the structure."""

    MEASURED = 0
    """Measured displacement, m, before its delay."""
    DISPLACEMENT = 1
    """True displacement, m."""
    FORCE = 2
    """True force, N."""
    COMMAND = 3
    """Command, m."""
    PARAMETERS = 4
    """Estimate of the first parameter, in standard deviations; the others follow."""


@compilable
def _moved(state: Floats, step: Matrix, spare: Floats) -> None:
    """State <- step state."""
    for i in range(state.shape[0]):
        spare[i] = 0.0
        for j in range(state.shape[0]):
            spare[i] += step[i, j] * state[j]
    for i in range(state.shape[0]):
        state[i] = spare[i]


@compilable
def _seen(actuator: TransferSystem, sensor: int) -> float:
    value = 0.0
    for j in range(actuator.state.shape[0]):
        value += actuator.seen[sensor, j] * actuator.state[j]
    return value


def run_hybrid(
    structure: VirtualStructure, actuator: TransferSystem, bridge: DisplacementBridge, memory: DisplacementMemory,
    controller: PiLead, law: int, predicted: int, ground: Floats, noise: Matrix, quantum: float, trace: Matrix,
) -> None:  # fmt: skip
    """Run for ``len(trace)`` ticks, or until the simulation has become unstable: the rest of ``trace`` is unchanged.

    ``law``: `Law`; ``predicted``: whether the structure receives the predicted force. ``ground``: acceleration in every
    tick and at the end of the last, m/s²; ``noise``: of displacement and force, a line per tick; ``quantum``: of the
    converters, m.
    """
    first = trace.shape[1] - structure.state.shape[0] // 2
    acting = measured_force = 0.0
    for k in range(trace.shape[0]):
        x, f, position = _seen(actuator, 0), _seen(actuator, 1), structure.state[0]
        if not (abs(position) < actuator.most[0] and abs(x) < actuator.most[0] and abs(f) < actuator.most[1]):
            return
        late_force, measured_force = measured_force, later(actuator.forces, f + noise[k, 1])
        seen = later(actuator.displacements, x + noise[k, 0])
        if law == Law.STATE_FEEDBACK:
            if predicted == 0:
                acting = late_force
            correct_actuator(bridge, memory, rounded_to(seen, quantum), measured_force)
            command = displacement_command(bridge, memory, structure.state, ground[k], acting)
        elif law == Law.CLASSICAL:
            command = pi_lead_command(controller, rounded_to(position, quantum), seen, quantum)
        else:
            command = position
        command = rounded_to(clip(command, -bridge.limit, bridge.limit), quantum)
        trace[k, Trace.MEASURED], trace[k, Trace.DISPLACEMENT] = x + noise[k, 0], x
        trace[k, Trace.FORCE], trace[k, Trace.COMMAND] = f, command
        for i in range(first, trace.shape[1]):
            trace[k, i] = structure.state[i - first]
        for i in range(first - Trace.PARAMETERS):
            trace[k, Trace.PARAMETERS + i] = memory.estimate[bridge.step.shape[0] + 1 + i]
        seen_now = seen_force(bridge, memory)
        if law == Law.STATE_FEEDBACK:
            predict_actuator(bridge, memory, command)
        _moved(actuator.state, actuator.step, actuator.spare)
        acting_command = later(actuator.commands, command)
        for i in range(actuator.state.shape[0]):
            actuator.state[i] += actuator.input[i] * acting_command
        on_structure = late_force
        if predicted == 1:
            acting = seen_force(bridge, memory)
            on_structure = 0.5 * (seen_now + acting)
        _moved(structure.state, structure.step, structure.spare)
        for i in range(structure.state.shape[0]):
            structure.state[i] += structure.ground[i] * ground[k] + structure.ground_next[i] * ground[k + 1]
            structure.state[i] += structure.force[i] * on_structure
