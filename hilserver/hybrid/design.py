r"""Design of the displacement bridge: all constants of :mod:`hilserver.tick.hybrid.displacement`.

The regulator minimises

.. math:: \sum_k (x_k - y_k - \tau\,\dot y_k)^2 / \varepsilon^2 + (u_k - u_{k-1})^2 / \nu^2

for the virtual structure and the actuator together. y is the position at the interface, and tau is a lead: 0, or the
delay of the measured force. Since the structure is part of the system, the regulator takes into account its motion
during the lag of the actuator, and the force with which the specimen acts on it: with `prediction` the mean of the
forces at the beginning and at the end of a tick, otherwise the one at the beginning of the last tick. The ground
acceleration is assumed to remain constant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from hilserver.errors import HilserverError
from hilserver.hybrid.actuator import SCALE, SEEN, Actuator
from hilserver.hybrid.checks import check_design
from hilserver.hybrid.linear import LinearMotion
from hilserver.hybrid.sensors import FORCE_DELAY, Sensors, in_ticks
from hilserver.hybrid.structure import Structure
from hilserver.numerics.arrays import Floats, Matrix
from hilserver.tick.hybrid.displacement import (
    DelayCompensation,
    DisplacementBridge,
    DisplacementMemory,
    DisplacementStrategy,
)

FADING = 1e-5
"""Fraction of the assumed ground acceleration and disturbance that fades in a tick: a regulator can't control a state
that it can't influence, and its Riccati equation has no solution for a disturbance that never ends."""
MAX_DOUBLINGS, CONVERGED = 40, 1e-14
"""Of the regulator's horizon, and the relative change of its cost at which it is as good as infinite."""
FORCE_SHARE = 0.5
"""Force that the model of the actuator may miss in a tick, as a share of what the better sensor sees of it."""


@dataclass(frozen=True)
class Tuning:
    """Weights of regulator and filter; all in SI units, the drifts as standard deviations per tick.

    ``error``, ``change``: the error of the position, and the change of the command in a tick, m, of equal weight: the
    smaller their ratio, the more closely the actuator follows, and the more noise there is in the command.
    ``force``: what the model of the actuator may miss, N; the larger, the more the filter believes the sensors and the
    slower it learns parameters. None: `FORCE_SHARE` of the noise of the force sensor, or of the force that moves the
    specimen by the noise of the displacement sensor if this is less. ``disturbance``: m of the command; ``parameter``:
    shares of the spread of a parameter. ``start``: of the disturbance, m.
    """

    error: float = 1e-5
    change: float = 3e-5
    force: float | None = None
    disturbance: float = 1e-7
    parameter: float = 1e-4
    start: float = 1e-6


def design_bridge(
    structure: Structure,
    actuator: Actuator,
    spread: Mapping[str, float],
    sensors: Sensors,
    dt: float,
    strategy: DisplacementStrategy,
    tuning: Tuning = Tuning(),
) -> DisplacementBridge:
    """The bridge of an actuator at nominal parameters; ``spread``: their standard deviations.

    A strategy that does not track parameters gets no ``spread``. Raises ConfigurationError for values that no rig has,
    and HilserverError where there is no stable regulator, or where the force is too late for the strategy.
    """
    check_design(structure, actuator, spread, sensors, dt, strategy)
    spread = spread if strategy.tracks else {}
    names, states, tracked = list(spread), len(SCALE), len(spread)

    def at(theta: Floats) -> Actuator:
        return actuator.shifted({name: spread[name] * float(t) for name, t in zip(names, theta, strict=True)})

    def gains_at(theta: Floats) -> Floats:
        return _gains(structure, at(theta), sensors, dt, strategy.compensation, tuning)

    nominal, slopes = _transition(actuator, dt), []
    for unit in np.eye(tracked):
        up, down = _transition(at(0.5 * unit), dt), _transition(at(-0.5 * unit), dt)
        slopes.append(LinearMotion(up.A - down.A, up.B - down.B))
    gains, gain_slopes, gain_curves = _quadratic(gains_at, tracked)
    return DisplacementBridge(
        step=np.ascontiguousarray(nominal.A),
        input=np.ascontiguousarray(nominal.B[:, 0]),
        step_slopes=np.vstack([slope.A for slope in slopes]) if slopes else np.zeros((0, states)),
        input_slopes=np.array([slope.B[:, 0] for slope in slopes]) if slopes else np.zeros((0, states)),
        seen=SEEN * SCALE,
        variance=np.array([sensors.displacement**2, sensors.force**2]),
        drift=_drift(tuning, sensors, actuator, tracked),
        gains=gains,
        gain_slopes=gain_slopes,
        gain_curves=gain_curves,
        limit=float(actuator.limit),
        command_late=in_ticks(actuator.delay, dt),
        displacement_late=in_ticks(sensors.displacement_delay, dt),
        force_late=in_ticks(sensors.force_delay, dt),
    )


def _drift(tuning: Tuning, sensors: Sensors, actuator: Actuator, tracked: int) -> Floats:
    """Variance that each entry of the estimate gains in a tick."""
    force = tuning.force
    if force is None:
        force = FORCE_SHARE * min(sensors.force, actuator.specimen.stiffness * sensors.displacement)
    drift = np.full(len(SCALE) + 1 + tracked, tuning.parameter**2)
    drift[: len(SCALE)] = np.where(SEEN[1] > 0.0, (force / SCALE) ** 2, 0.0)
    drift[len(SCALE)] = tuning.disturbance**2
    return drift


def at_rest(bridge: DisplacementBridge, tuning: Tuning = Tuning()) -> DisplacementMemory:
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
    )


def _quadratic(function: Callable[[Floats], Floats], variables: int) -> tuple[Floats, Matrix, Matrix]:
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


def _transition(actuator: Actuator, dt: float) -> LinearMotion:
    """Of the actuator's scaled state over a tick."""
    return actuator.motion().scaled(SCALE).held(dt)


def _gains(
    structure: Structure,
    actuator: Actuator,
    sensors: Sensors,
    dt: float,
    compensation: DelayCompensation,
    tuning: Tuning,
) -> Floats:
    """Gains of the regulator, in the order of `DisplacementBridge.gains`."""
    frame, drive = structure.motion().held(dt), _transition(actuator, dt)
    size, states, late = len(frame.A), len(SCALE), in_ticks(actuator.delay, dt)
    ground, force = size, size + 1
    first = size + 2
    disturbance = first + states
    command = disturbance + 1
    oldest = command + max(late - 1, 0)
    A, B = np.zeros((oldest + 1, oldest + 1)), np.zeros((oldest + 1, 1))
    A[:size, :size], A[:size, ground] = frame.A, frame.B[:, 0]
    A[ground, ground] = A[disturbance, disturbance] = 1.0 - FADING
    A[force, first:disturbance] = SEEN[1] * SCALE
    A[first:disturbance, first:disturbance] = drive.A
    A[first:disturbance, disturbance] = A[first:disturbance, oldest] = drive.B[:, 0]
    A[command, command] = B[command, 0] = 1.0
    A[command + 1 :, command:oldest] = np.eye(oldest - command)
    if late == 0:
        B[first:disturbance, 0] = drive.B[:, 0]
    if compensation is DelayCompensation.PREDICTED:
        A[:size] += np.outer(frame.B[:, 1], 0.5 * (A[force] + A[force] @ A))
        B[:size] += np.outer(frame.B[:, 1], 0.5 * (A[force] @ B))
    else:
        A[:size, force] = frame.B[:, 1]
    lead = FORCE_DELAY * dt + sensors.force_delay if compensation is DelayCompensation.LEAD else 0.0
    error = np.zeros(oldest + 1)
    error[first:disturbance] = SEEN[0] * SCALE
    error[0], error[size // 2] = -1.0, -lead
    return _regulator(A, B, error / tuning.error, tuning.change)


def _regulator(A: Matrix, B: Matrix, output: Floats, change: float) -> Floats:
    """Gains that minimise the sum of output² + (input / change)².

    By the doubling algorithm (see :mod:`hilserver.numerics.riccati`), whose horizon doubles with each step. The methods
    that sort eigenvalues, as SciPy's, fail where those of regulator and adjoint are close to each other, as with a
    lightly damped structure. Raises HilserverError if the sum is infinite with any input.
    """
    step, given, S = A, change**2 * B @ B.T, np.outer(output, output)
    with np.errstate(over="ignore", invalid="ignore"):  # of a sum that grows without end
        for _ in range(MAX_DOUBLINGS):
            shared = np.linalg.inv(np.eye(len(A)) + given @ S)
            more = step.T @ S @ shared @ step
            given, S, step = given + step @ shared @ given @ step.T, S + more, step @ shared @ step
            if np.abs(more).max() <= CONVERGED * np.abs(S).max():
                break
        else:
            raise HilserverError("No command makes the actuator follow this structure: it moves without end by itself.")
    S = 0.5 * (S + S.T)
    found: Floats = np.linalg.solve(change**-2 + B.T @ S @ B, B.T @ S @ A)[0]
    return found
