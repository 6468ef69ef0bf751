"""Regulators of actuators that know the circuit: in the packed circuit, where the circuit is linear.

Such a regulator takes into account how the circuit moves during the lag of the actuator, and the force with which the
specimen acts on it. It is calculated for the linearised circuit, with its inputs held, and for each way in which the
late force is treated (`COMPENSATIONS`).
"""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np

from hilserver.circuit import engine as e
from hilserver.circuit.analysis import Analysis, LinearModel
from hilserver.circuit.library import Library
from hilserver.circuit.model import FORCE, RIG, Circuit
from hilserver.circuit.pack import PackedCircuit
from hilserver.circuit.program import Program
from hilserver.compiler import compiled_program
from hilserver.displacement.design import Followed, Tuning, gains_for
from hilserver.displacement.linear import LinearMotion
from hilserver.displacement.servo import ServoActuator
from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.rig.actuators import force_lag, model_with_delay, tuning_of
from hilserver.rig.sampling_lag import SlowDevices
from hilserver.rig.settings import RigSettings
from hilserver.tick.hybrid.displacement import COMPENSATIONS, DelayCompensation
from hilserver.tick.hybrid.memory import ENTRIES

FADING = 1e-3
"""1/s, with which all motions of the circuit are assumed to decay more than they do, so that none goes on for ever."""
SAMPLES, LINEAR = 4, 1e-6
"""Number of states at which a circuit is examined, and the relative error of its linear model at which it is linear."""
PUSH, MOMENT = 1e3, 1e-5
"""Force, N, and time, s, in which the mobility of a node is found."""
FAR = (1e-2, 1.0, 100.0)
"""Distances of these states from the initial one, in units of their typical sizes."""


def with_regulators(
    packed: PackedCircuit, circuit: Circuit, settings: RigSettings, slow: SlowDevices, library: Library
) -> PackedCircuit:
    """The packed circuit with the regulators of all actuators that follow it, if it is linear."""
    if not settings.actuators:
        return packed
    program = compiled_program(library)
    linear = LinearCircuit.of(packed, circuit, program)
    index, value, length = packed.index.copy(), [packed.value], len(packed.value)
    index[e.REGULATORS] = len(index)
    inputs = [packed.values.index(name) for name in circuit.inputs()]
    table = []
    for name in settings.actuators:
        gains = linear.gains(name, settings, slow) if linear is not None and name in linear.actuators else None
        table += [length + 1 if gains is not None else 0, length, len(index) + ENTRIES * len(settings.actuators)]
        value.append(np.array([mobility(packed, circuit, program, name)]))
        if gains is not None:
            value.append(gains)
        length += 1 + (len(gains) if gains is not None else 0)
    more = np.array([*table, len(inputs), *inputs], dtype=np.uint64)
    return replace(packed, index=np.concatenate([index, more]), value=np.concatenate(value))


def mobility(packed: PackedCircuit, circuit: Circuit, program: Program, name: str) -> float:
    """Acceleration of the node of an actuator by a force on it, 1/kg; 0 if no force moves it, or there is none.

    From the velocity that a force gives to the circuit in its initial state, in a moment.
    """
    velocity = f"{RIG}{name}.v"
    if name not in circuit.rig_actuators() or velocity not in packed.values:
        return 0.0
    reached = []
    for force in (0.0, PUSH):
        moved = Analysis(program, packed)
        moved.values[packed.values.index(f"{RIG}{name}{FORCE}")] = force
        reached.append(moved.advance(1, MOMENT).values[packed.values.index(velocity)])
    found = (reached[1] - reached[0]) / (PUSH * MOMENT)
    return float(found) if np.isfinite(found) and found > 0.0 else 0.0


class LinearCircuit:
    """A circuit by its states, from its inputs, then the forces of the ``actuators`` that follow it.

    ``constant``: its rates at states and inputs of 0.
    """

    def __init__(self, model: LinearModel, constant: Floats, actuators: tuple[str, ...]) -> None:
        self.model, self.constant, self.actuators = model, constant, actuators

    @classmethod
    def of(cls, packed: PackedCircuit, circuit: Circuit, program: Program) -> LinearCircuit | None:
        """None if a circuit is not linear, or depends on measured pressures or on memories."""
        names = tuple(circuit.rig_actuators())
        if packed.index[e.N_SAMPLED] > 0 or circuit.rig_ports() or not names:
            return None
        analysis = Analysis(program, packed)
        states = analysis.values[: analysis.n].copy()
        if any(f"{RIG}{name}.{what}" not in packed.values[: analysis.n] for name in names for what in "xv"):
            return None
        linear = analysis.linearised([*circuit.inputs(), *(f"{RIG}{name}{FORCE}" for name in names)])
        constant = analysis.rates(states) - linear.A @ states
        drawn = np.random.default_rng(1)
        for far in np.repeat(FAR, SAMPLES):
            tried = states + far * linear.scale * drawn.uniform(-1.0, 1.0, analysis.n)
            expected = linear.A @ tried + constant
            if np.abs(analysis.rates(tried) - expected).max() > LINEAR * np.abs(expected).max():
                return None
        return cls(linear, constant, names)

    def gains(self, name: str, settings: RigSettings, slow: SlowDevices) -> Floats | None:
        """All regulators of an actuator, one behind the other; None if there is none."""
        model, actuator = self.model, settings.actuators[name]
        n, inputs = len(model.A), model.B.shape[1] - len(self.actuators)
        size = n + 1 + inputs
        A, B, rows = np.zeros((size, size)), np.zeros((size, 2)), np.zeros((2, size))
        A[:n, :n], A[:n, n], A[:n, n + 1 :] = model.A, self.constant, model.B[:, :inputs]
        A -= FADING * np.eye(size)
        B[:n, 1] = -model.B[:, inputs + self.actuators.index(name)]
        for row, what in enumerate("xv"):
            rows[row, model.states.index(f"{RIG}{name}.{what}")] = 1.0
        rows[0, n] = actuator.offset
        scale = np.concatenate([model.scale, np.ones(1 + inputs)])
        circuit = (A.tobytes(), B.tobytes(), rows.tobytes(), scale.tobytes(), size)
        spread, dt = tuple(actuator.spread().items()), 1.0 / settings.loop.rate
        given = (model_with_delay(actuator, settings, slow), spread, dt, force_lag(actuator, settings, slow))
        return _calculated(circuit, given, tuning_of(actuator, settings))


@functools.lru_cache(maxsize=64)
def _calculated(
    circuit: tuple[bytes, bytes, bytes, bytes, int],
    given: tuple[ServoActuator, tuple[tuple[str, float], ...], float, float],
    tuning: Tuning,
) -> Floats | None:
    """The same by its numbers. They are kept: a process that loads variants of a rig would solve the same again."""
    size = circuit[-1]
    widths = zip(circuit[:3], (size, 2, size), strict=True)
    A, B, rows = (np.frombuffer(part).reshape(-1, width) for part, width in widths)
    scale = np.frombuffer(circuit[3])
    model, spread, dt, lag = given
    motion, found = LinearMotion(A, B).scaled(scale), []
    for compensation in COMPENSATIONS:
        lead = lag if compensation is DelayCompensation.LEAD else 0.0
        followed = Followed(motion, compensation, lead, rows[0] * scale, rows[1] * scale, late_force=False)
        try:
            gains = gains_for(followed, model, dict(spread), dt, tuning)
        except HilserverError:
            return None
        for each in map(np.atleast_2d, gains):
            unscaled = each.copy()
            unscaled[:, :size] /= scale
            found.append(unscaled.ravel())
    return np.concatenate(found)
