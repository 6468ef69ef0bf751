r"""The loop of a linearised circuit, an actuator that follows it, and its specimen, from tick to tick.

With the nominal actuator and a filter that knows its state, one tick is a linear map of the circuit's states z, the
actuator's states h, the commands that are still on their way and, for a regulator that does not know the circuit, the
last velocities of the node:

.. math:: z_{k+1} = A z_k - b F_k, \quad h_{k+1} = G h_k + g\,u_{k-d}, \quad u_k = u_{k-1} - K (z_k, h_k, \dots)

It oscillates if an eigenvalue lies outside of the unit circle (Franklin, Powell & Workman, Digital Control of Dynamic
Systems, 3rd ed. 1998, sec. 4). With more delay d than is stated, the loop shows what it withstands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import pi

import numpy as np

from hilserver.circuit import engine as e
from hilserver.circuit.analysis import LinearModel
from hilserver.displacement.actuator import SCALE, SEEN
from hilserver.displacement.linear import LinearMotion
from hilserver.numerics.arrays import Floats, Matrix
from hilserver.rig.actuators import designed, force_lag, model_with_delay
from hilserver.rig.rig import Rig
from hilserver.tick.hybrid.displacement import (
    COMPENSATIONS,
    DelayCompensation,
    DisplacementStrategy,
    Law,
)
from hilserver.tick.hybrid.memory import gains_of, known_states

Command = Callable[[Floats, Floats, Floats, Floats, Floats], Floats]
STABLE = 1.0 + 1e-7
"""Largest eigenvalue of a stable loop: a free mass has one of 1."""
LONGEST = 10e-3
"""s of delay that are tried."""


@dataclass(frozen=True)
class LoopOfActuator:
    """``growth``: 1/s, of the fastest growing motion, and its ``frequency``, Hz; ``withstands``: s of further delay."""

    growth: float
    frequency: float
    withstands: float

    @property
    def is_stable(self) -> bool:
        """Whether every motion decays."""
        return self.growth <= 0.0


def loop_of_actuator(rig: Rig, name: str, strategy: str, circuit: LinearModel) -> LoopOfActuator:
    """The loop at rest; ``circuit``: from the force on the node to its position and velocity."""
    dt, law = 1.0 / rig.settings.loop.rate, _law(rig, name, strategy, circuit)
    growth, frequency = _worst(_map(rig, name, strategy, circuit, law, 0), dt)
    withstands = 0
    while growth <= 0.0 and (withstands + 1) * dt <= LONGEST:
        if _worst(_map(rig, name, strategy, circuit, law, withstands + 1), dt)[0] > 0.0:
            break
        withstands += 1
    return LoopOfActuator(growth, frequency, withstands * dt)


def _worst(loop: Matrix, dt: float) -> tuple[float, float]:
    """Growth, 1/s, and frequency of the largest eigenvalue; no growth if it is stable."""
    found = np.linalg.eigvals(loop).astype(complex)
    largest = found[np.argmax(np.abs(found))]
    growth = float(np.log(np.abs(largest))) / dt
    return (growth if np.abs(largest) > STABLE else min(growth, 0.0)), float(abs(np.angle(largest))) / (2.0 * pi * dt)


def _map(rig: Rig, name: str, strategy: str, circuit: LinearModel, command: Command, more: int) -> Matrix:
    """One tick as a matrix; ``more``: ticks by which commands are later than stated."""
    actuator, dt = rig.settings.actuators[name], 1.0 / rig.settings.loop.rate
    model = model_with_delay(actuator, rig.settings, rig.slow_devices)
    late = round(model.delay / dt)
    frame = LinearMotion(circuit.A, circuit.B[:, :1]).scaled(circuit.scale).held(dt)
    drive = model.motion().scaled(SCALE).held(dt)
    rows, n, m = circuit.C[:2] * circuit.scale, len(circuit.A), len(SCALE)
    chosen = DisplacementStrategy[strategy]

    def tick(state: Floats) -> Floats:
        z, h, past, velocities = np.split(state, [n, n + m, n + m + late + more + 1])
        u = command(z, rows @ z, h, past, velocities)
        acting = np.append(u, past)[late + more]
        after = drive.A @ h + drive.B[:, 0] * acting
        force = (SEEN * SCALE)[1] @ h
        if chosen.compensation is DelayCompensation.PREDICTED:
            force = 0.5 * (force + (SEEN * SCALE)[1] @ after)
        moved = frame.A @ z - frame.B[:, 0] * force
        change = (rows[1] @ z - velocities[0]) / dt
        return np.concatenate([moved, after, [u], past[:-1], [rows[1] @ z, change]])

    size = n + m + late + more + 3
    return np.column_stack([tick(unit) for unit in np.eye(size)])


def _law(rig: Rig, name: str, strategy: str, circuit: LinearModel) -> Command:
    """The command from the circuit's scaled state, position and velocity of the node, actuator, and the past."""
    chosen, dt = DisplacementStrategy[strategy], 1.0 / rig.settings.loop.rate
    actuator = rig.settings.actuators[name]
    lead = 0.0
    if chosen.compensation is DelayCompensation.LEAD:
        lead = force_lag(actuator, rig.settings, rig.slow_devices)
    number = list(rig.settings.actuators).index(name)
    gains, known = _gains(rig, number, chosen), _known(rig, number)
    late = len(gains) - (known or 2) - 2 - len(SCALE) - 2

    def command(z: Floats, node: Floats, h: Floats, past: Floats, velocities: Floats) -> Floats:
        if chosen.law is Law.DIRECT:
            return np.asarray(node[0])
        if known:
            followed = np.concatenate([z * circuit.scale, np.zeros(known - len(z) + 1)])
        else:
            change = (node[1] - velocities[0]) / dt
            acceleration = change + 0.5 * (change - velocities[1])
            ahead = node[0] + lead * (node[1] + 0.5 * lead * acceleration)
            followed = np.array([ahead, node[1] + lead * acceleration, acceleration])
        return np.asarray(past[0] - gains @ np.concatenate([followed, [0.0], h, [0.0, 0.0], past[:late]]))

    return command


def _known(rig: Rig, number: int) -> int:
    """Number of values of the circuit that the regulator knows; 0: it does not know the circuit."""
    index = rig.packed.index
    place = int(index[e.REGULATORS])
    return known_states(index, number) if place and index[place + 2 * number] else 0


def _gains(rig: Rig, number: int, strategy: DisplacementStrategy) -> Floats:
    """Gains at nominal parameters."""
    actuator = list(rig.settings.actuators.values())[number]
    if not (known := _known(rig, number)):
        return designed(actuator, rig.settings, rig.slow_devices).gains
    tracked, late = len(actuator.uncertainty), int(rig.plan.actuator["command_late"][number])
    count = known + gains_of(late) - 2
    first = int(rig.packed.index[int(rig.packed.index[e.REGULATORS]) + 2 * number])
    first += COMPENSATIONS.index(strategy.compensation) * (1 + tracked + tracked * tracked) * count
    found: Floats = rig.packed.value[first : first + count]
    return found
