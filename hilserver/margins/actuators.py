r"""Margins of actuators that follow a node of the circuit: against the delay of the specimen's force.

What a strategy leaves of these delays acts like negative damping on the node: the delayed force of a spring
:math:`k\,y(t-\tau)` is :math:`k\,y - k\tau\,\dot y` in first approximation (Horiuchi et al., Earthquake Engng. Struct.
Dyn. 28 (1999) 1121). It must stay below the critical delay of :mod:`hilserver.margins.interface_delay`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite

import numpy as np

from hilserver.circuit.analysis import Analysis, LinearModel
from hilserver.circuit.model import FORCE, RIG
from hilserver.circuit.program import Program
from hilserver.displacement.servo import ServoActuator
from hilserver.margins.actuator_loop import LoopOfActuator, MassError, loop_of_actuator, mass_errors
from hilserver.margins.interface_delay import critical_delay, growth_with
from hilserver.rig.actuator_settings import ActuatorSettings
from hilserver.rig.actuators import force_lag
from hilserver.rig.rig import Rig
from hilserver.tick.hybrid.displacement import FOLLOWING, DelayCompensation, DisplacementStrategy, Law
from hilserver.tick.hybrid.memory import mobility_at

MIN_MARGIN = 2.0
"""Critical delay divided by the remaining one, below which there is a warning."""
LEAST_DELAY = 1e-3
"""s of delay that a loop should withstand although the rig file does not state it."""
MOVING = 0.01
"""m/s, of slow motion: faster than what components treat as sticking."""
EXCITED = 1e-3
"""1/s, of a motion that friction excites in the circuit itself."""
STEP = 1e-3
"""Accuracy of the largest stable velocity gain, as a share of the stated one."""
SLOW = 1e-2
"""1/s, at which the lag of an actuator is taken: far below all its motions."""


@dataclass(frozen=True)
class ActuatorMargin:
    """An actuator. Delays in s; ``critical``: infinite if none is critical, None if its node has no motion of its own.

    ``frequency``: Hz, with which the node oscillates beyond the critical delay. ``lag``: of the displacement behind the
    command at low frequency; ``force_lag``: mean age of the force with which the circuit is calculated. ``growth``:
    real part of the slowest pole of actuator and specimen, 1/s; above 0 they are unstable by themselves, up to a
    velocity gain of ``steady_gain``, 1/s. ``filters``: time constants of its channels' filters, s.
    """

    name: str
    strategy: str
    critical: float | None
    frequency: float
    lag: float
    force_lag: float
    growth: float
    steady_gain: float
    filters: Mapping[str, float]
    loops: Mapping[str, LoopOfActuator] = field(default_factory=dict)
    """Of each strategy, where the node has a motion of its own."""
    mass: MassError | None = None
    """An error of the specimen's mass with which the loop of the configured strategy oscillates."""

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
    """The margins of all actuators, with the circuit at its initial values, at rest or slowly moving: the smaller ones.

    At rest, dry friction would damp any motion. In slow motion it can excite one, which is none of the bridge's doing:
    where circuit and specimens connected directly are unstable, this motion does not count.
    """
    index, value = rig.packed.index, rig.packed.value
    moving = [name for k, name in enumerate(rig.settings.actuators) if mobility_at(index, value, k) > 0.0]
    parts = [rig.settings.actuators[name].model().specimen for name in moving]
    analyses = [Analysis(program, rig.packed), _moving(Analysis(program, rig.packed))]
    circuits = [_nodes(each, moving) for each in analyses] if moving else []
    if circuits and growth_with(circuits[1], parts) > EXCITED:
        analyses, circuits = analyses[:1], circuits[:1]
    found = []
    for name, actuator in rig.settings.actuators.items():
        critical: float | None = None
        frequency, loops, chosen = 0.0, dict[str, LoopOfActuator](), actuator.bridge.strategy
        mass: MassError | None = None
        if name in moving:
            nodes = [_with_acceleration(_nodes(each, [name])) for each in analyses]
            critical, frequency = min(critical_delay(node, actuator.model().specimen) for node in nodes)
            loops = _loops(rig, name, circuits, moving)
            if chosen in loops and loops[chosen].is_stable:
                mass = next((each for c in circuits for each in mass_errors(rig, name, chosen, c, moving)), None)
        growth, steady = _growth(actuator.model()), _steady_gain(actuator.model())
        filters = {each: rig.settings.channels[each].filter for each in (actuator.position, actuator.force)}
        lag = force_lag(actuator, rig.settings, rig.slow_devices)
        known = (critical, frequency, _lag(rig, actuator), lag, growth, steady, filters, loops, mass)
        found.append(ActuatorMargin(name, chosen, *known))
    return tuple(found)


def _loops(rig: Rig, name: str, circuits: Sequence[LinearModel], moving: Sequence[str]) -> dict[str, LoopOfActuator]:
    """Of each strategy; at rest, those that differ in what they track only are the same."""
    found: dict[str, LoopOfActuator] = {}
    known: dict[tuple[Law, DelayCompensation], LoopOfActuator] = {}
    for strategy in FOLLOWING:
        chosen = DisplacementStrategy[strategy]
        kind = (chosen.law, chosen.compensation)
        if kind not in known:
            known[kind] = _worst(loop_of_actuator(rig, name, strategy, each, moving) for each in circuits)
        found[strategy] = known[kind]
    return found


def _moving(analysis: Analysis) -> Analysis:
    """With all velocities of nodes at `MOVING`."""
    velocities = [k for k, name in enumerate(analysis.packed.values[: analysis.n]) if name.endswith(".v")]
    analysis.values[velocities] = MOVING
    return analysis


def _worst(loops: Iterable[LoopOfActuator]) -> LoopOfActuator:
    """The one that grows fastest, or withstands least."""
    return max(loops, key=lambda loop: (loop.growth if not loop.is_stable else 0.0, -loop.withstands))


def _nodes(analysis: Analysis, names: Sequence[str]) -> LinearModel:
    """From the forces on the nodes of actuators to position and velocity of each node, one behind the other."""
    outputs = [f"{RIG}{name}.{what}" for name in names for what in "xv"]
    linear = analysis.linearised([f"{RIG}{name}{FORCE}" for name in names], outputs)
    return replace(linear, D=np.zeros_like(linear.D))


def _with_acceleration(node: LinearModel) -> LinearModel:
    """The same of one node, with its acceleration behind position and velocity."""
    rate, row = node.C[1:] @ node.A, node.C[1:] @ node.B
    return replace(node, C=np.vstack([node.C, rate]), D=np.vstack([node.D, row]))


def _growth(model: ServoActuator) -> float:
    """Real part of the slowest pole of actuator and specimen, 1/s."""
    return float(np.linalg.eigvals(model.motion().A).real.max())


def _steady_gain(model: ServoActuator) -> float:
    """The velocity gain, 1/s, up to which actuator and specimen are stable by themselves; 0 if with none."""
    low, high = 0.0, model.velocity_gain
    if _growth(model) <= 0.0:
        return high
    while high - low > STEP * model.velocity_gain:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _growth(replace(model, velocity_gain=middle)) <= 0.0 else (low, middle)
    return low


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
        for channel, filter_time in each.filters.items():
            if filter_time > each.lag:
                yield (
                    f"channels.{channel}.filter: {1e3 * filter_time:.4g} ms is longer than the lag of actuator "
                    f"{each.name}, {1e3 * each.lag:.3g} ms: its measured motions are mostly filtered away. The bridge "
                    "filters noise itself: state it as noise, and use a filter of a few milliseconds or none."
                )
        loop = each.loops.get(each.strategy)
        if loop is not None and loop.is_stable and loop.withstands < LEAST_DELAY:
            yield (
                f"{key}: with {each.strategy}, the loop withstands {1e3 * loop.withstands:.2g} ms of delay that the "
                f"file does not state; at least {1e3 * LEAST_DELAY:g} ms are recommended."
            )
        if each.mass is not None:
            yield (
                f"{key}.specimen.mass: if the specimen is {100.0 * abs(each.mass.share):.0f} % "
                f"{'heavier' if each.mass.share > 0.0 else 'lighter'} than stated, circuit, actuator and specimen "
                f"oscillate at {each.mass.frequency:.3g} Hz with {each.strategy}. Weigh it, or let more of the mass be "
                "virtual."
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
        if each.growth > 0.0:
            yield f"actuators.{each.name}.servo.velocity_gain: {_unstable(each)}"
            continue
        if each.strategy not in FOLLOWING:
            continue
        stable = loop is not None and loop.is_stable
        heavy = each.critical == 0.0 and not isfinite(each.frequency)
        if heavy and not stable and not _is_at_node(each.strategy):
            yield (
                f"actuators.{each.name}.specimen.mass: the specimen is at least as heavy as the virtual part at its "
                "node: any delay makes this unstable. Use prediction, or let more of the mass be virtual."
            )
        elif each.critical == 0.0 and isfinite(each.frequency):
            yield (
                f"actuators.{each.name}: circuit and specimen connected directly are not damped at "
                f"{each.frequency:.3g} Hz, so that any delay makes them oscillate. Give the circuit some damping."
            )
        elif each.critical is not None and not heavy and each.margin(each.strategy) <= 1.0:
            yield f"actuators.{each.name}: {_too_late(each)}, and {_left(each)} remain. {_remedy(each)}"
        elif loop is not None and not loop.is_stable:
            yield (
                f"actuators.{each.name}: with {each.strategy}, circuit, actuator and specimen oscillate at "
                f"{loop.frequency:.3g} Hz (the motion grows with {loop.growth:.3g} 1/s). Give the node more damping or "
                "mass, or describe a faster actuator."
            )


def _is_at_node(strategy: str) -> bool:
    """Whether the circuit gets the force of the specimen at its node, so that its lateness does not matter."""
    return DisplacementStrategy[strategy].compensation is DelayCompensation.PREDICTED


def _unstable(each: ActuatorMargin) -> str:
    """Why, and what would be right."""
    text = f"actuator and specimen as described are unstable by themselves (a motion grows with {each.growth:.3g} 1/s)"
    most = f"the gain may be {each.steady_gain:.3g} 1/s at most" if each.steady_gain > 0.0 else "no gain is stable"
    return (
        f"{text}: with this mass on its oil, {most}. Check the unit; a smaller velocity_gain, or more damping of the "
        "specimen or force_decay, makes it stable."
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
