r"""Design of the displacement bridge: all constants of :mod:`hilserver.tick.hybrid.displacement`.

The regulator minimises

.. math:: \sum_k (x_k - y_k - \tau\,\dot y_k)^2 / \varepsilon^2 + (u_k - u_{k-1})^2 / \nu^2

for the virtual structure and the actuator together. y is the position at the interface, and tau is a lead: 0, or the
delay of the measured force. Since the structure is part of the system, the regulator takes into account its motion
during the lag of the actuator, and the force with which the specimen acts on it. The ground acceleration is assumed to
remain constant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_discrete_are

from hilserver.hybrid.actuator import SCALE, SEEN, Actuator
from hilserver.hybrid.linear import LinearMotion
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
FORCE_DELAY = 1.5
"""Ticks from the measurement of a force to the middle of the tick in which it acts on the structure."""


@dataclass(frozen=True)
class Tuning:
    """Weights of regulator and filter; all in SI units, the drifts as standard deviations per tick.

    ``error``, ``change``: the error of the position, and the change of the command in a tick, m, of equal weight.
    ``force``: what the model of the actuator may miss, N; ``disturbance``: m of the command; ``parameter``: shares of
    the spread of a parameter. ``start``: of the disturbance, m.
    """

    error: float = 1e-5
    change: float = 3e-5
    force: float = 1.0
    disturbance: float = 1e-7
    parameter: float = 1e-4
    start: float = 1e-6


@dataclass(frozen=True)
class Sensors:
    """Standard deviations of the measured displacement, m, and force, N."""

    displacement: float
    force: float


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

    A strategy that does not track parameters gets no ``spread``.
    """
    spread = spread if strategy.tracks else {}
    lead = FORCE_DELAY * dt if strategy.compensation is DelayCompensation.LEAD else 0.0
    names, states, tracked = list(spread), len(SCALE), len(spread)

    def at(theta: Floats) -> Actuator:
        return actuator.shifted({name: spread[name] * float(t) for name, t in zip(names, theta, strict=True)})

    nominal, slopes = _transition(actuator, dt), []
    for unit in np.eye(tracked):
        up, down = _transition(at(0.5 * unit), dt), _transition(at(-0.5 * unit), dt)
        slopes.append(LinearMotion(up.A - down.A, up.B - down.B))
    gains, gain_slopes, gain_curves = _quadratic(lambda t: _gains(structure, at(t), dt, lead, tuning), tracked)
    drift = np.zeros(states + 1 + tracked)
    drift[2], drift[states] = (tuning.force / SCALE[2]) ** 2, tuning.disturbance**2
    drift[states + 1 :] = tuning.parameter**2
    return DisplacementBridge(
        step=np.ascontiguousarray(nominal.A),
        input=np.ascontiguousarray(nominal.B[:, 0]),
        step_slopes=np.vstack([slope.A for slope in slopes]) if slopes else np.zeros((0, states)),
        input_slopes=np.array([slope.B[:, 0] for slope in slopes]) if slopes else np.zeros((0, states)),
        seen=SEEN * SCALE,
        variance=np.array([sensors.displacement**2, sensors.force**2]),
        drift=drift,
        gains=gains,
        gain_slopes=gain_slopes,
        gain_curves=gain_curves,
    )


def at_rest(bridge: DisplacementBridge, tuning: Tuning = Tuning()) -> DisplacementMemory:
    """The memory of a bridge whose actuator is at rest, with parameters as uncertain as their spread."""
    states, size = len(bridge.step), len(bridge.drift)
    covariance = np.zeros((size, size))
    covariance[states, states] = tuning.start**2
    for i in range(states + 1, size):
        covariance[i, i] = 1.0
    square = (size, size)
    return DisplacementMemory(
        np.zeros(size), covariance, np.zeros(1), np.eye(size), np.zeros(square), np.zeros(square), np.zeros(size)
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


def _gains(structure: Structure, actuator: Actuator, dt: float, lead: float, tuning: Tuning) -> Floats:
    """Gains of the regulator, in the order of `DisplacementBridge.gains`."""
    frame, drive = structure.motion().held(dt), _transition(actuator, dt)
    size, states = len(frame.A), len(SCALE)
    ground, force = size, size + 1
    first = size + 2
    disturbance = first + states
    command = disturbance + 1
    A = np.zeros((command + 1, command + 1))
    A[:size, :size] = frame.A
    A[:size, ground], A[:size, force] = frame.B[:, 0], frame.B[:, 1]
    A[ground, ground] = A[disturbance, disturbance] = 1.0 - FADING
    A[force, first:disturbance] = SEEN[1] * SCALE
    A[first:disturbance, first:disturbance] = drive.A
    A[first:disturbance, disturbance] = A[first:disturbance, command] = drive.B[:, 0]
    A[command, command] = 1.0
    B = np.zeros((command + 1, 1))
    B[first:disturbance, 0], B[command, 0] = drive.B[:, 0], 1.0
    error = np.zeros(command + 1)
    error[first:disturbance] = SEEN[0] * SCALE
    error[0], error[size // 2] = -1.0, -lead
    return _regulator(A, B, error / tuning.error, tuning.change)


def _regulator(A: Matrix, B: Matrix, output: Floats, change: float) -> Floats:
    """Gains that minimise the sum of output² + (input / change)²."""
    weight, cost = np.outer(output, output), np.array([[change**-2]])
    S = solve_discrete_are(A, B, weight, cost)
    found: Floats = np.linalg.solve(cost + B.T @ S @ B, B.T @ S @ A)[0]
    return found
