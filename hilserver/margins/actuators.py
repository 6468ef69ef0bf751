r"""Margins of actuators that follow a node of the circuit: against the delay of the specimen's force.

What a strategy leaves of these delays acts like negative damping on the node: the delayed force of a spring
:math:`k\,y(t-\tau)` is :math:`k\,y - k\tau\,\dot y` in first approximation (Horiuchi et al., Earthquake Engng. Struct.
Dyn. 28 (1999) 1121). It must stay below the critical delay of :mod:`hilserver.margins.interface_delay`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf, isfinite

import numpy as np

from hilserver.circuit.analysis import Analysis, LinearModel
from hilserver.circuit.model import FORCE, RIG
from hilserver.circuit.program import Program
from hilserver.margins.actuator_loop import LoopOfActuator, loop_of_actuator
from hilserver.margins.interface_delay import critical_delay
from hilserver.rig.actuator_settings import ActuatorSettings
from hilserver.rig.actuators import force_lag
from hilserver.rig.rig import Rig
from hilserver.tick.hybrid.displacement import FOLLOWING, DelayCompensation, DisplacementStrategy, Law

MIN_MARGIN = 2.0
"""Critical delay divided by the remaining one, below which there is a warning."""
LEAST_DELAY = 1e-3
"""s of delay that a loop should withstand although the rig file does not state it."""
SLOW = 1e-2
"""1/s, at which the lag of an actuator is taken: far below all its motions."""


@dataclass(frozen=True)
class ActuatorMargin:
    """An actuator. Delays in s; ``critical``: infinite if none is critical, None if its node has no motion of its own.

    ``frequency``: Hz, with which the node oscillates beyond the critical delay. ``lag``: of the displacement behind the
    command at low frequency; ``force_lag``: mean age of the force with which the circuit is calculated. ``growth``:
    real part of the slowest pole of actuator and specimen, 1/s; above 0 they are unstable by themselves.
    """

    name: str
    strategy: str
    critical: float | None
    frequency: float
    lag: float
    force_lag: float
    growth: float
    loops: Mapping[str, LoopOfActuator] = field(default_factory=dict)
    """Of each strategy, where the node has a motion of its own."""

    def remaining(self, strategy: str) -> float:
        """The delay that a strategy does not compensate, s."""
        chosen = DisplacementStrategy[strategy]
        lag = self.lag if chosen.law is Law.DIRECT else 0.0
        return lag + (self.force_lag if chosen.compensation is DelayCompensation.ACCEPTED else 0.0)

    def margin(self, strategy: str) -> float:
        """Critical delay divided by the remaining one."""
        left = self.remaining(strategy)
        return inf if self.critical is None or left == 0.0 else self.critical / left


def actuator_margins(rig: Rig, program: Program) -> tuple[ActuatorMargin, ...]:
    """The margins of all actuators, with the circuit at its initial values."""
    analysis = Analysis(program, rig.packed)
    found = []
    for name, actuator in rig.settings.actuators.items():
        critical: float | None = None
        frequency = 0.0
        if (node := _node(analysis, name)) is not None:
            critical, frequency = critical_delay(node, actuator.model().specimen)
        poles = np.linalg.eigvals(actuator.model().motion().A)
        lag = force_lag(actuator, rig.settings, rig.slow_devices)
        loops = {s: loop_of_actuator(rig, name, s, node) for s in FOLLOWING} if node is not None else {}
        known = (critical, frequency, _lag(rig, actuator), lag, float(poles.real.max()), loops)
        found.append(ActuatorMargin(name, actuator.bridge.strategy, *known))
    return tuple(found)


def _node(analysis: Analysis, name: str) -> LinearModel | None:
    """Position, velocity and acceleration of an actuator's node under a force; None if something else moves it."""
    states = list(analysis.packed.values[: analysis.n])
    x, v = f"{RIG}{name}.x", f"{RIG}{name}.v"
    if x not in states or v not in states:
        return None
    linear = analysis.linearised([f"{RIG}{name}{FORCE}"])
    rows = [states.index(x), states.index(v)]
    C = np.vstack([np.eye(analysis.n)[rows], linear.A[rows[1]]])
    D = np.array([[0.0], [0.0], [linear.B[rows[1], 0]]])
    return LinearModel(linear.A, linear.B, C, D, linear.states, linear.scale)


def _lag(rig: Rig, a: ActuatorSettings) -> float:
    """Lag of the displacement behind the command at low frequency, s, with the delays of command and device."""
    motion = a.model().motion()
    response = np.linalg.solve(1j * SLOW * np.eye(len(motion.A)) - motion.A, motion.B[:, 0])[0]
    hold = 0.5 / rig.settings.loop.rate + rig.slow_devices.lag(a.device).mean
    return float(-np.angle(response)) / SLOW + a.delay + hold


def warnings(found: Collection[ActuatorMargin]) -> Iterator[str]:
    """Insufficient margins with the configured strategies, in words."""
    for each in found:
        key = f"actuators.{each.name}"
        if each.growth > 0.0:
            yield (
                f"{key}: actuator and specimen as described are unstable by themselves (a motion grows with "
                f"{each.growth:.3g} 1/s). Check velocity_gain, force_decay and the specimen: a mass on undamped oil "
                "needs a smaller velocity_gain or more force_decay."
            )
        loop = each.loops.get(each.strategy)
        if loop is not None and loop.is_stable and loop.withstands < LEAST_DELAY:
            yield (
                f"{key}: with {each.strategy}, the loop withstands {1e3 * loop.withstands:.2g} ms of delay that the "
                f"file does not state; at least {1e3 * LEAST_DELAY:g} ms are recommended."
            )
        if each.critical is None or not isfinite(each.critical) or each.strategy not in FOLLOWING:
            continue
        margin = each.margin(each.strategy)
        if 1.0 < margin < MIN_MARGIN:
            yield f"{key}: {_too_late(each)}, {margin:.2g} times the delay that remains. {_remedy(each)}"


def refusals(found: Collection[ActuatorMargin]) -> Iterator[str]:
    """Why the rig must not be armed with the configured strategies, in words."""
    for each in found:
        loop = each.loops.get(each.strategy)
        if each.strategy not in FOLLOWING:
            continue
        if each.critical == 0.0 and not isfinite(each.frequency):
            yield (
                f"actuators.{each.name}.specimen.mass: the specimen is at least as heavy as the virtual part at its "
                "node: any delay makes this unstable. Let more of the mass be virtual."
            )
        elif each.critical == 0.0:
            yield (
                f"actuators.{each.name}: circuit and specimen connected directly are not damped at "
                f"{each.frequency:.3g} Hz, so that any delay makes them oscillate. Give the circuit some damping."
            )
        elif each.critical is not None and each.margin(each.strategy) <= 1.0:
            yield f"actuators.{each.name}: {_too_late(each)}, and {_left(each)} remain. {_remedy(each)}"
        elif loop is not None and not loop.is_stable:
            yield (
                f"actuators.{each.name}: with {each.strategy}, circuit, actuator and specimen oscillate at "
                f"{loop.frequency:.3g} Hz (the motion grows with {loop.growth:.3g} 1/s). Give the node more damping or "
                "mass, or describe a faster actuator; the bridge can compensate a fast motion of a linear circuit only."
            )


def _too_late(each: ActuatorMargin) -> str:
    assert each.critical is not None
    delay = f"{1e3 * each.critical:.4g} ms"
    return f"the node oscillates at {each.frequency:.3g} Hz if the force of the specimen is {delay} late"


def _left(each: ActuatorMargin) -> str:
    return f"{1e3 * each.remaining(each.strategy):.4g} ms with the strategy {each.strategy}"


def _remedy(each: ActuatorMargin) -> str:
    if DisplacementStrategy[each.strategy].compensation is DelayCompensation.PREDICTED:
        return "Give the node more damping or mass."
    return "Use prediction, a faster loop, or sensors with less delay."
