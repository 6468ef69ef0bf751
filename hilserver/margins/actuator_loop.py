r"""The loop of a linearised circuit, an actuator that follows it, and its specimen, from tick to tick.

With the nominal actuator and a filter that knows its state, one tick is a linear map of the circuit's states z, the
actuator's states h, the commands that are still on their way and, for a regulator that does not know the circuit but
foresees the motion of its node, the last velocity of this and the last force:

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
from hilserver.tick.hybrid.memory import ENTRIES, POINTS, gains_of, known_states, mobility_at, preview_of
from hilserver.tick.node_ahead import CALLS, length_of_call

Command = Callable[[Floats, Floats, Floats, Floats], Floats]
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
        z, h, past, last = np.split(state, [n, n + m, n + m + late + more + 1])
        u = command(z, h, past, last)
        acting = np.append(u, past)[late + more]
        after = drive.A @ h + drive.B[:, 0] * acting
        force = -(SEEN * SCALE)[1] @ h
        if chosen.compensation is DelayCompensation.PREDICTED:
            force = 0.5 * (force - (SEEN * SCALE)[1] @ after)
        moved = frame.A @ z + frame.B[:, 0] * force
        return np.concatenate([moved, after, [u], past[:-1], [rows[1] @ z, force]])

    size = n + m + late + more + 3
    return np.column_stack([tick(unit) for unit in np.eye(size)])


def _law(rig: Rig, name: str, strategy: str, circuit: LinearModel) -> Command:
    """The command from the circuit's scaled state, the actuator, past commands, and last velocity and force."""
    chosen, number = DisplacementStrategy[strategy], list(rig.settings.actuators).index(name)
    rows = circuit.C[:2] * circuit.scale
    if chosen.law is Law.DIRECT:
        return lambda z, h, past, last: np.asarray(rows[0] @ z)
    gains, known = _gains(rig, number, chosen), _known(rig, number)
    followed = (known or 2) + 2
    late = len(gains) - followed - len(SCALE) - 2
    foresee = None if known else _foresight(rig, name, chosen, circuit)

    def command(z: Floats, h: Floats, past: Floats, last: Floats) -> Floats:
        ahead = foresee(z, last) if foresee is not None else -gains[: len(z)] @ (z * circuit.scale)
        rest = np.concatenate([h, [0.0, 0.0], past[:late]])
        return np.asarray(past[0] - gains[followed:] @ rest + ahead)

    return command


def _foresight(
    rig: Rig, name: str, chosen: DisplacementStrategy, circuit: LinearModel
) -> Callable[[Floats, Floats], float]:
    """The part of the command for the foreseen motion, as :mod:`hilserver.tick.node_ahead` calculates it."""
    number, dt = list(rig.settings.actuators).index(name), 1.0 / rig.settings.loop.rate
    h = length_of_call(rig.plan)
    actuator, specimen = rig.settings.actuators[name], rig.settings.actuators[name].specimen
    lead = 0.0
    if chosen.compensation is DelayCompensation.LEAD:
        lead = force_lag(actuator, rig.settings, rig.slow_devices)
    step = LinearMotion(circuit.A, circuit.B[:, :1]).scaled(circuit.scale).held(h)
    rows, gains = circuit.C[:2] * circuit.scale, preview_of(rig.plan, number).gains
    mobility = mobility_at(rig.packed.index, rig.packed.value, number)
    k, c, m = specimen.stiffness, specimen.damping, specimen.mass
    rising = 0.25 * h * h * k + 0.5 * h * c + m

    def noted(point: int, x: float, v: float, a: float) -> float:
        return float(gains[point] * (x + lead * (v + 0.5 * lead * a)) + gains[POINTS + point] * (v + lead * a))

    def foresee(z: Floats, last: Floats) -> float:
        (x, v), (before, force) = rows @ z, last
        a = (v - before) / dt
        total = noted(0, x, v, a)
        for call in range(CALLS * (POINTS - 1)):
            held = -k * (x + 0.5 * h * v) - c * v
            force = (held - rising * (a - mobility * force)) / (1.0 + rising * mobility)
            z = step.A @ z + step.B[:, 0] * force
            a = (rows[1] @ z - v) / h
            x, v = rows @ z
            if (call + 1) % CALLS == 0:
                total += noted((call + 1) // CALLS, x, v, a)
        return total

    return foresee


def _known(rig: Rig, number: int) -> int:
    """Number of values of the circuit that the regulator knows; 0: it does not know the circuit."""
    index = rig.packed.index
    place = int(index[e.REGULATORS])
    return known_states(index, number) if place and index[place + ENTRIES * number] else 0


def _gains(rig: Rig, number: int, strategy: DisplacementStrategy) -> Floats:
    """Gains at nominal parameters."""
    actuator = list(rig.settings.actuators.values())[number]
    if not (known := _known(rig, number)):
        return designed(actuator, rig.settings, rig.slow_devices).gains
    tracked, late = len(actuator.uncertainty), int(rig.plan.actuator["command_late"][number])
    count = known + gains_of(late) - 2
    first = int(rig.packed.index[int(rig.packed.index[e.REGULATORS]) + ENTRIES * number])
    first += COMPENSATIONS.index(strategy.compensation) * (1 + tracked + tracked * tracked) * count
    found: Floats = rig.packed.value[first : first + count]
    return found
