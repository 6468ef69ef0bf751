r"""Design of a displacement bridge: all constants of :mod:`hilserver.tick.hybrid.displacement`.

The regulator minimises

.. math:: \sum_k (x_k - y_k - \tau\,\dot y_k)^2 / \varepsilon^2 + (u_k - u_{k-1})^2 / \nu^2

for the actuator and what it follows together. y is the position that is followed, and tau is a lead: 0, or the delay of
the measured force. If what is followed is a known structure, the regulator takes into account its motion during the lag
of the actuator, and the force with which the specimen acts on it: with `prediction` the mean of the forces at the
beginning and at the end of a tick, otherwise the one at the beginning of the last tick. Its acceleration by other
causes, such as that of the ground, is assumed to remain constant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hilserver.displacement.actuator import SCALE, SEEN, ActuatorModel
from hilserver.displacement.linear import LinearMotion
from hilserver.displacement.regulator import Regulator, regulator_for
from hilserver.displacement.sensors import Sensors, in_ticks
from hilserver.numerics.arrays import Floats, Matrix
from hilserver.tick.hybrid.displacement import (
    CERTAIN,
    DELAYS,
    LOAD_SCALE,
    VELOCITY,
    DelayCompensation,
    DisplacementBridge,
    DisplacementMemory,
)

FADING = 1e-5
"""Fraction of the assumed ground acceleration and disturbance that fades in a tick: a regulator can't control a state
that it can't influence, and its Riccati equation has no solution for a disturbance that never ends."""
REST_TIME = 0.1
"""s: motion that is slower than a certain displacement in this time counts as none."""
FORCE_SHARE = 0.5
"""Force that the model of the actuator may miss in a tick, as a share of what the better sensor sees of it."""


@dataclass(frozen=True)
class Tuning:
    """Weights of regulator and filter; all in SI units, the drifts as standard deviations per tick.

    ``error``, ``change``: the error of the position, and the change of the command in a tick, m, of equal weight: the
    smaller their ratio, the more closely the actuator follows, and the more noise there is in the command.
    ``lateness``: standard deviations of the delays of command and force beyond the stated ones, s; 0: there is none.
    ``force``: what the model of the actuator may miss, N; the larger, the more the filter believes the sensors and the
    slower it learns parameters. None: `FORCE_SHARE` of the noise of the force sensor, or of the force that moves the
    specimen by the noise of the displacement sensor if this is less. ``load``: drift of a force on the specimen that
    its model does not contain, such as weight and friction, N; 0: there is none, as in a benchmark. ``disturbance``: m
    of the command; ``parameter``: shares of the spread of a parameter. ``start``: of the disturbance, m.
    """

    error: float = 1e-5
    change: float = 3e-5
    force: float | None = None
    disturbance: float = 1e-7
    parameter: float = 1e-4
    start: float = 1e-6
    load: float = 0.0
    lateness: tuple[float, float] = (0.0, 0.0)


USUAL = Tuning()


class Followed(NamedTuple):
    """What an actuator follows.

    ``motion``: inputs: an acceleration that is assumed to remain constant, and the force of the specimen. Its states
    are positions, then velocities; the first of each are those of the node. ``lead``: s by which the actuator is to be
    ahead.
    """

    motion: LinearMotion
    compensation: DelayCompensation = DelayCompensation.ACCEPTED
    lead: float = 0.0


class _Dynamics(NamedTuple):
    """Actuator and specimen: ``motion``, a tick of it, ``scale`` of its states, displacement and force from them."""

    motion: LinearMotion
    step: LinearMotion
    scale: Floats
    seen: Matrix

    @classmethod
    def of(cls, actuator: ActuatorModel, dt: float, load: bool) -> _Dynamics:
        """With a force on the specimen as one more state (``load``) or without."""
        motion, scale, seen = actuator.motion(), SCALE, SEEN
        if load:
            n = len(scale)
            A = np.zeros((n + 1, n + 1))
            A[:n, :n], A[:n, n], A[n, n] = motion.A, motion.B[:, 1], -LOAD_FADING
            motion, scale = LinearMotion(A, np.vstack([motion.B, np.zeros((1, 2))])), np.append(scale, LOAD_SCALE)
            seen = np.hstack([seen, np.zeros((2, 1))])
        motion = LinearMotion(motion.A, motion.B[:, :1]).scaled(scale)
        return cls(motion, motion.held(dt), scale, seen * scale)


LOAD_FADING = 1e-3
"""1/s with which a force on the specimen is assumed to fade, for the same reason as `FADING`."""


def bridge_for(
    followed: Followed,
    actuator: ActuatorModel,
    spread: Mapping[str, float],
    sensors: Sensors,
    dt: float,
    tuning: Tuning = USUAL,
) -> DisplacementBridge:
    """The bridge of an actuator at nominal parameters; ``spread``: standard deviations of those that are tracked.

    Raises HilserverError if there is no stable regulator.
    """
    tracked, load = len(spread), tuning.load > 0.0

    def transition(theta: Floats) -> LinearMotion:
        return _Dynamics.of(deviating(actuator, spread, theta), dt, load).step

    nominal, slopes = _Dynamics.of(actuator, dt, load), []
    states = len(nominal.scale)
    for unit in np.eye(tracked):
        up, down = transition(0.5 * unit), transition(-0.5 * unit)
        slopes.append(LinearMotion(up.A - down.A, up.B - down.B))
    gains, gain_slopes, gain_curves = quadratic(
        lambda theta: regulator_of(followed, deviating(actuator, spread, theta), dt, tuning).gains, tracked
    )
    return DisplacementBridge(
        step=np.ascontiguousarray(nominal.step.A),
        input=np.ascontiguousarray(nominal.step.B[:, 0]),
        step_slopes=np.vstack([slope.A for slope in slopes]) if slopes else np.zeros((0, states)),
        input_slopes=np.array([slope.B[:, 0] for slope in slopes]) if slopes else np.zeros((0, states)),
        seen=nominal.seen,
        seen_rates=np.ascontiguousarray(nominal.seen @ nominal.motion.A),
        seen_curves=np.ascontiguousarray(nominal.seen @ nominal.motion.A @ nominal.motion.A),
        variance=np.array([sensors.displacement**2, sensors.force**2]),
        lateness=np.array(tuning.lateness),
        drift=_drift(tuning, sensors, actuator, tracked + DELAYS),
        gains=gains,
        gain_slopes=gain_slopes,
        gain_curves=gain_curves,
        slow=slow_motion(sensors.displacement),
        limit=float(actuator.limit),
        command_late=in_ticks(actuator.delay, dt),
        displacement_late=in_ticks(sensors.displacement_delay, dt),
        force_late=in_ticks(sensors.force_delay, dt),
    )


def slow_motion(noise: float) -> float:
    """Velocity that the noise of the displacement sensor, m, may look like, in units of the design."""
    return CERTAIN * noise / REST_TIME / float(SCALE[VELOCITY])


def deviating(actuator: ActuatorModel, spread: Mapping[str, float], theta: Floats) -> ActuatorModel:
    """The actuator whose parameters deviate by ``theta``, in standard deviations."""
    return actuator.shifted({name: size * float(t) for (name, size), t in zip(spread.items(), theta, strict=True)})


def _drift(tuning: Tuning, sensors: Sensors, actuator: ActuatorModel, tracked: int) -> Floats:
    """Variance that each entry of the estimate gains in a tick."""
    force = tuning.force
    if force is None:
        force = FORCE_SHARE * min(sensors.force, actuator.specimen.stiffness * sensors.displacement)
    states = np.where(SEEN[1] > 0.0, (force / SCALE) ** 2, 0.0)
    load = [(tuning.load / LOAD_SCALE) ** 2] if tuning.load > 0.0 else []
    return np.concatenate([states, load, [tuning.disturbance**2], np.full(tracked, tuning.parameter**2)])


def at_rest(bridge: DisplacementBridge, tuning: Tuning = USUAL) -> DisplacementMemory:
    """The memory of a bridge whose actuator is at rest, with parameters as uncertain as their spread."""
    states, size = len(bridge.step), len(bridge.drift)
    covariance = np.zeros((size, size))
    covariance[states, states] = tuning.start**2
    for i in range(states + 1, size):
        covariance[i, i] = 1.0
    age = max(bridge.displacement_late, bridge.force_late)
    return DisplacementMemory(
        estimate=np.zeros(size),
        covariance=covariance,
        now=np.zeros(states),
        commands=np.zeros(1 + bridge.command_late + age),
        displacements=np.zeros(1 + age - bridge.displacement_late),
        forces=np.zeros(1 + age - bridge.force_late),
        transition=np.eye(size),
        turned=np.zeros((size, size)),
        half=np.zeros((size, size)),
        along=np.zeros(size),
        sight=np.zeros(size),
    )


def quadratic(function: Callable[[Floats], Floats], variables: int) -> tuple[Floats, Matrix, Matrix]:
    """A function of variables near 0: value, first derivatives, second derivatives; from differences over 1."""
    unit, value = np.eye(variables), function(np.zeros(variables))
    slopes, curves = np.zeros((variables, len(value))), np.zeros((variables, variables, len(value)))
    for i in range(variables):
        up, down = function(unit[i]), function(-unit[i])
        slopes[i], curves[i, i] = 0.5 * (up - down), up - 2.0 * value + down
        for j in range(i):
            with_, against = unit[i] + unit[j], unit[i] - unit[j]
            mixed = function(with_) + function(-with_) - function(against) - function(-against)
            curves[i, j] = curves[j, i] = 0.25 * mixed
    return value, slopes, curves.reshape(variables * variables, len(value))


def regulator_of(followed: Followed, actuator: ActuatorModel, dt: float, tuning: Tuning) -> Regulator:
    """The regulator, with gains in the order of `DisplacementBridge.gains`."""
    frame, (_, drive, scale, seen) = followed.motion.held(dt), _Dynamics.of(actuator, dt, tuning.load > 0.0)
    size, states, late = len(frame.A), len(scale), in_ticks(actuator.delay, dt)
    ground, force = size, size + 1
    first = size + 2
    disturbance = first + states
    command = disturbance + 1
    oldest = command + max(late - 1, 0)
    A, B = np.zeros((oldest + 1, oldest + 1)), np.zeros((oldest + 1, 1))
    A[:size, :size], A[:size, ground] = frame.A, frame.B[:, 0]
    A[ground, ground] = A[disturbance, disturbance] = 1.0 - FADING
    A[force, first:disturbance] = seen[1]
    A[first:disturbance, first:disturbance] = drive.A
    A[first:disturbance, disturbance] = A[first:disturbance, oldest] = drive.B[:, 0]
    A[command, command] = B[command, 0] = 1.0
    A[command + 1 :, command:oldest] = np.eye(oldest - command)
    if late == 0:
        B[first:disturbance, 0] = drive.B[:, 0]
    if followed.compensation is DelayCompensation.PREDICTED:
        A[:size] += np.outer(frame.B[:, 1], 0.5 * (A[force] + A[force] @ A))
        B[:size] += np.outer(frame.B[:, 1], 0.5 * (A[force] @ B))
    else:
        A[:size, force] = frame.B[:, 1]
    error = np.zeros(oldest + 1)
    error[first:disturbance] = seen[0]
    error[0] -= 1.0
    error[size // 2] -= followed.lead
    return regulator_for(A, B, error / tuning.error, tuning.change)
