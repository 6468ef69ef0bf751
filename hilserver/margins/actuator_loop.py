r"""The loop of a linearised circuit, the actuators that follow it, and their specimens, from tick to tick.

At nominal parameters, a tick is a linear map of the circuit's states z and of each actuator's states h, their estimate
by the filter, the commands and measurements that are still on their way, and what the look-ahead remembers of its node.
F is the force of a specimen on the circuit:

.. math:: z_{k+1} = A z_k + b F_k, \quad h_{k+1} = G h_k + g\,u_{k-d}, \quad \hat h_{k+1} = G (\hat h_k + K (y_k - C
   \hat h_k)) + g\,u_{k-d}

It oscillates if an eigenvalue lies outside of the unit circle (Franklin, Powell & Workman, Digital Control of Dynamic
Systems, 3rd ed. 1998, sec. 4). With more delay d than the bridge knows, the loop shows what it withstands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import pi

import numpy as np

from hilserver.circuit.analysis import LinearModel
from hilserver.compiler import standard_program
from hilserver.displacement.actuator import SCALE, SEEN
from hilserver.displacement.linear import LinearMotion
from hilserver.numerics.arrays import Floats, Matrix
from hilserver.numerics.riccati import spare_cells
from hilserver.rig.actuators import force_lag, model_with_delay
from hilserver.rig.rig import Rig
from hilserver.tick.hybrid.carried import force_in_step
from hilserver.tick.hybrid.displacement import (
    SENSORS,
    VELOCITY,
    VELOCITY_SCALE,
    DelayCompensation,
    DisplacementStrategy,
    Law,
)
from hilserver.tick.hybrid.memory import FOLLOWED, POINTS, STATES, bridge_of, mobility_at, preview_of
from hilserver.tick.node_ahead import CALLS, length_of_call

STABLE = 1.0 + 1e-7
"""Largest eigenvalue of a stable loop: a free mass has one of 1."""
LONGEST = 10e-3
"""s of delay that are tried."""
TRIED = 10
"""Number of delays up to the longest one that are tried first."""
MASS_ERRORS = (-0.2, 0.2)
"""Errors of a specimen's mass, as shares, with which no loop should oscillate."""
REMEMBERED = 5
"""Values of an actuator's node in the last tick: velocity, acceleration, its expected value, force, load."""


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


@dataclass(frozen=True)
class MassError:
    """The true mass of a specimen is larger by this ``share`` than the stated one: an oscillation, Hz, follows."""

    share: float
    frequency: float


@dataclass(frozen=True)
class Mismatch:
    """Of an actuator from its description: ticks by which commands act later, and its mass as a multiple."""

    more: int = 0
    mass: float = 1.0


EXACT = Mismatch()


def loop_of_actuator(rig: Rig, name: str, strategy: str, circuit: LinearModel, nodes: Sequence[str]) -> LoopOfActuator:
    """The loop at rest, with this strategy of one actuator; of the others, which belong to it, as configured.

    ``circuit``: from the forces on the ``nodes`` of actuators, by their names, to position and velocity of each.
    """
    dt = 1.0 / rig.settings.loop.rate
    strategies = {node: rig.settings.actuators[node].bridge.strategy for node in nodes} | {name: strategy}

    def worst(more: int) -> tuple[float, float]:
        return _worst(CoupledLoop(rig, strategies, circuit, {name: Mismatch(more)}).matrix(), dt)

    growth, frequency = worst(0)
    withstands, ticks = 0, int(LONGEST / dt + 1e-9)
    for stride in (max(ticks // TRIED, 1), 1) if growth <= 0.0 else ():
        while withstands + stride <= ticks and worst(withstands + stride)[0] <= 0.0:
            withstands += stride
    return LoopOfActuator(growth, frequency, withstands * dt)


def mass_errors(rig: Rig, name: str, strategy: str, circuit: LinearModel, nodes: Sequence[str]) -> Iterator[MassError]:
    """Those errors of the specimen's mass (`MASS_ERRORS`) with which the same loop oscillates."""
    strategies = {node: rig.settings.actuators[node].bridge.strategy for node in nodes} | {name: strategy}
    for share in MASS_ERRORS:
        loop = CoupledLoop(rig, strategies, circuit, {name: Mismatch(mass=1.0 + share)})
        growth, frequency = _worst(loop.matrix(), 1.0 / rig.settings.loop.rate)
        if growth > 0.0:
            yield MassError(share, frequency)


def _worst(loop: Matrix, dt: float) -> tuple[float, float]:
    """Growth, 1/s, and frequency of the largest eigenvalue; no growth if it is stable."""
    found = np.linalg.eigvals(loop).astype(complex)
    largest = found[np.argmax(np.abs(found))]
    growth = float(np.log(np.abs(largest))) / dt
    return (growth if np.abs(largest) > STABLE else min(growth, 0.0)), float(abs(np.angle(largest))) / (2.0 * pi * dt)


class _Actuator:
    """An actuator in the loop: its constants, and what it does in a tick with its part of the state.

    This part: its true state; the estimate, with the disturbance of the command; the commands and the measurements, the
    newest first; and the `REMEMBERED` values.
    """

    def __init__(self, rig: Rig, name: str, strategy: str, mismatch: Mismatch) -> None:
        number, dt = list(rig.settings.actuators).index(name), 1.0 / rig.settings.loop.rate
        settings, slow = rig.settings.actuators[name], rig.slow_devices
        model, self.line = model_with_delay(settings, rig.settings, slow), rig.plan.actuator[number]
        self.chosen, self.dt, self.more = DisplacementStrategy[strategy], dt, mismatch.more
        self.bridge = bridge_of(rig.plan, number)
        true = replace(model, specimen=replace(model.specimen, mass=mismatch.mass * model.specimen.mass))
        self.true = true.motion().scaled(SCALE).held(dt)
        self.preview = preview_of(rig.plan, number).gains
        self.mobility = mobility_at(rig.packed.index, rig.packed.value, number)
        leads = self.chosen.compensation is DelayCompensation.LEAD
        self.lead = force_lag(settings, rig.settings, slow) if leads else 0.0
        self.late, self.age = self.bridge.command_late, max(self.bridge.displacement_late, self.bridge.force_late)
        self.step = np.zeros((STATES + 1, STATES + 1))
        self.step[:STATES, :STATES], self.step[:STATES, STATES] = self.bridge.step, self.bridge.input
        self.step[STATES, STATES] = 1.0
        driven = np.append(self.bridge.input, 0.0)
        powers = [np.linalg.matrix_power(self.step, k) for k in range(self.age + 1)]
        self.over_age = powers[-1]
        self.of_commands = np.array([power @ driven for power in powers[:-1]]).reshape(-1, STATES + 1).T
        self.seen = np.hstack([self.bridge.seen, np.zeros((SENSORS, 1))])
        self.gain = self._filter_gain()
        self.of_tick = self.force_gains(dt)
        commands = 1 + self.late + max(self.more, self.age)
        parts = np.array([len(SCALE), STATES + 1, commands, SENSORS * (self.age + 1), REMEMBERED])
        self.ends, self.size = np.cumsum(parts)[:-1], int(parts.sum())

    def _filter_gain(self) -> Matrix:
        """That of the settled filter, by which all measurements of a tick correct it."""
        n = len(self.step)
        gain, after, periods = np.zeros((n, SENSORS)), np.zeros((n, n)), np.ones(SENSORS, dtype=np.int64)
        drift, variance = np.diag(self.bridge.drift[:n]), self.bridge.variance
        standard_program().stationary(self.step, drift, self.seen, variance, periods, gain, after, _spare(n))
        return gain

    def moved(self, own: Matrix, node: Matrix, ahead: Floats) -> tuple[Matrix, Floats]:
        """The states after a tick, and the forces on the circuit; ``node``: position and velocity.

        A column for each state of the loop. ``ahead``: the part of the command for the motion that is foreseen.
        """
        h, e, line, seen, remembered = np.split(own, self.ends)
        before, _, expected, last, _ = remembered
        seen = np.vstack([(SEEN * SCALE) @ h, seen[:-SENSORS]])
        e = e + self.gain @ (seen[-SENSORS:] - self.seen @ e)
        beyond = seen[-1] - self.seen[1] @ e
        now = self._now(e, line)
        line = np.vstack([self._command(now, line, node, ahead), line[:-1]])
        then = self._next(e, line)
        change, load = (node[1] - before) / self.dt, self._load(now, self._now(then, line))
        force = -seen[SENSORS * self.bridge.force_late + 1]
        if self.chosen.compensation is DelayCompensation.PREDICTED:
            force = self.of_tick @ np.vstack([load + beyond, node, 2.0 * change - expected, last])
        h = self.true.A @ h + np.outer(self.true.B[:, 0], line[self.late + self.more])
        remembered = np.vstack([node[1], change, change + self.mobility * (force - last), force, load])
        return np.vstack([h, then, line, seen, remembered]), force

    def _command(self, now: Matrix, line: Matrix, node: Matrix, ahead: Floats) -> Floats:
        """That of the strategy; by hand, it stays."""
        if self.chosen.law is Law.DIRECT:
            return np.asarray(node[0])
        if self.chosen.law is Law.MANUAL:
            return np.asarray(line[0])
        gains, first = self.bridge.gains, FOLLOWED + STATES + 1
        found: Floats = line[0] - gains[FOLLOWED:first] @ now - gains[first:] @ line[: max(self.late, 1)] + ahead
        return found

    def _next(self, e: Matrix, line: Matrix) -> Matrix:
        """The estimate a tick later, after the newest command."""
        driven: Matrix = self.step @ e
        driven[:STATES] += np.outer(self.bridge.input, line[self.late + self.age])
        return driven

    def _now(self, e: Matrix, line: Matrix) -> Matrix:
        """The estimate, moved on to the present."""
        found: Matrix = self.over_age @ e + self.of_commands @ line[self.late : self.late + self.age]
        return found

    def _load(self, now: Matrix, then: Matrix) -> Floats:
        """Mean force of a tick that the description of the specimen does not contain."""
        mean, speed = 0.5 * (now + then), VELOCITY_SCALE * (then - now)[VELOCITY] / self.dt
        held = self.line.stiffness * (self.seen[0] @ mean) + self.line.damping * VELOCITY_SCALE * mean[VELOCITY]
        found: Floats = self.seen[1] @ mean - held - self.line.mass * speed
        return found

    def force_gains(self, h: float) -> Floats:
        """`force_in_step` by its arguments load, position, velocity, unchanged acceleration, last force: linear."""
        units = np.eye(5).tolist()
        return np.array([force_in_step(self.line, q, x, v, a, f, self.mobility, h) for q, x, v, a, f in units])


class CoupledLoop:
    """The loop of a circuit and the actuators at its nodes, some of which deviate from their descriptions."""

    def __init__(
        self, rig: Rig, strategies: Mapping[str, str], circuit: LinearModel, mismatches: Mapping[str, Mismatch]
    ) -> None:
        self._actuators = [
            _Actuator(rig, name, chosen, mismatches.get(name, EXACT)) for name, chosen in strategies.items()
        ]
        self._n, self._call, self._dt = len(circuit.A), length_of_call(rig.plan), 1.0 / rig.settings.loop.rate
        motion = LinearMotion(circuit.A, circuit.B).scaled(circuit.scale)
        self._of_call = [each.force_gains(self._call) for each in self._actuators]
        self._mobilities = np.array([[each.mobility] for each in self._actuators])
        self._tick, self._ahead, self._rows = motion.held(self._dt), motion.held(self._call), circuit.C * circuit.scale

    def matrix(self) -> Matrix:
        """One tick."""
        sizes = [self._n, *(each.size for each in self._actuators)]
        z, *own = np.split(np.eye(sum(sizes)), np.cumsum(sizes)[:-1])
        nodes, ahead = self._nodes_of(z), self._foreseen(z, own)
        found = [
            each.moved(part, node, share)
            for each, part, node, share in zip(self._actuators, own, nodes, ahead, strict=True)
        ]
        z = self._tick.A @ z + self._tick.B @ np.array([force for _, force in found])
        return np.vstack([z, *(part for part, _ in found)])

    def _nodes_of(self, z: Matrix) -> Floats:
        """Position and velocity of each node: [actuator, 2, column]."""
        found: Floats = (self._rows @ z).reshape(len(self._actuators), 2, -1)
        return found

    def _foreseen(self, z: Matrix, own: Sequence[Matrix]) -> Floats:
        """The parts of the commands for the motion, as :mod:`hilserver.tick.node_ahead` calculates them."""
        nodes, h = self._nodes_of(z), self._call
        before, _, expected, last, load = np.array([part[-REMEMBERED:] for part in own]).transpose(1, 0, 2)
        a, force = (nodes[:, 1] - before) / self._dt, last.copy()
        other = 0.5 * (a - expected) * (h / self._dt + 1.0)
        total = self._noted(0, nodes, a)
        for call in range(CALLS * (POINTS - 1)):
            old = force.copy()
            for i, each in enumerate(self._actuators):
                if each.chosen.law is Law.STATE_FEEDBACK:
                    force[i] = self._of_call[i] @ np.vstack([load[i], nodes[i], a[i] + other[i], old[i]])
            held = a + self._mobilities * (force - old)
            z = self._ahead.A @ z + self._ahead.B @ force
            then = self._nodes_of(z)
            a = (then[:, 1] - nodes[:, 1]) / h
            nodes, other = then, a - held
            if (call + 1) % CALLS == 0:
                total += self._noted((call + 1) // CALLS, nodes, a)
        return total

    def _noted(self, point: int, nodes: Floats, a: Floats) -> Floats:
        """What a point adds to the commands."""
        found = np.zeros(a.shape)
        for i, each in enumerate(self._actuators):
            x, v, lead = nodes[i, 0], nodes[i, 1], each.lead
            found[i] = each.preview[point] * (x + lead * (v + 0.5 * lead * a[i]))
            found[i] += each.preview[POINTS + point] * (v + lead * a[i])
        return found


def _spare(n: int) -> Floats:
    return np.zeros(spare_cells(n))
