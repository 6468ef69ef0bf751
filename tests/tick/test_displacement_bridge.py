"""The bridge of displacement: its filter and its regulator against independent computations of the same quantities."""

from __future__ import annotations

from dataclasses import replace
from math import nan

import numpy as np
import pytest
from scipy.linalg import expm

from hilserver.displacement.actuator import SCALE, SEEN
from hilserver.displacement.design import Tuning, at_rest
from hilserver.displacement.sensors import Sensors
from hilserver.hybrid.benchmark import CASES, DT, NOMINAL, SENSORS, SPECIMEN, SPREAD
from hilserver.hybrid.design import design_bridge
from hilserver.numerics.arrays import Floats, Matrix
from hilserver.tick.hybrid.displacement import (
    MAX_DEVIATIONS,
    DisplacementBridge,
    DisplacementMemory,
    DisplacementStrategy,
    correct_actuator,
    displacement_command,
    lateness_of,
    predict_actuator,
    seen,
    seen_force,
    seen_rate,
)

Strategy = DisplacementStrategy
STRUCTURE = CASES[3].structure().without(SPECIMEN)
TUNING = Tuning()
TRACKED = {name: SPREAD[name] for name in ("stiffness", "beta2", "a3")}


def bridge_for(strategy: DisplacementStrategy) -> DisplacementBridge:
    return design_bridge(STRUCTURE, NOMINAL, TRACKED, SENSORS, DT, strategy)


@pytest.fixture(scope="module")
def adaptive() -> DisplacementBridge:
    return bridge_for(Strategy.adaptive)


def somewhere(bridge: DisplacementBridge, theta: tuple[float, float, float]) -> DisplacementMemory:
    """A memory in an arbitrary state, with a full covariance."""
    memory, draw = at_rest(bridge), np.random.default_rng(5)
    memory.estimate[:6] = draw.standard_normal(6) * [1.0, 1.0, 1.0, 1.0, 1.0, 1e-5]
    memory.estimate[6:9], memory.estimate[9:] = theta, 0.5
    root = draw.standard_normal((11, 11)) * np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1e-5, *[1.0] * 5])[:, None]
    memory.covariance[:] = 1e-2 * root @ root.T
    memory.now[:], memory.commands[0] = memory.estimate[:5], 3e-4
    return memory


def moved(theta: Floats, state: Floats, acting: float) -> Floats:
    """The actuator with these parameters over a tick, from its equations of motion."""
    plant = NOMINAL.shifted({name: TRACKED[name] * t for name, t in zip(TRACKED, theta, strict=True)})
    motion = plant.motion().held(DT)
    found: Floats = (motion.A @ (state * SCALE) + motion.B[:, 0] * acting) / SCALE
    return found


@pytest.mark.parametrize("theta", [(0.0, 0.0, 0.0), (1.5, -1.0, 2.0), (-2.0, 2.0, -2.0)])
def test_the_prediction_is_the_motion_of_the_actuator_with_these_parameters(
    adaptive: DisplacementBridge, theta: tuple[float, float, float]
) -> None:
    memory = somewhere(adaptive, theta)
    right = moved(np.array(theta), memory.estimate[:5].copy(), 2e-4 + memory.estimate[5])
    predict_actuator(adaptive, memory, 2e-4)
    assert memory.estimate[:5] == pytest.approx(right, abs=2e-4)
    assert memory.commands[0] == 2e-4


def test_the_covariance_spreads_as_the_motion_does(adaptive: DisplacementBridge) -> None:
    """F P F' + Q with F from finite differences of the motion."""
    theta = (0.5, -0.3, 0.2)
    memory = somewhere(adaptive, theta)
    memory.covariance[:] *= 1e-4  # so that all motion is certain
    before, P = memory.estimate.copy(), memory.covariance.copy()

    def next_(estimate: Floats) -> Floats:
        state = moved(estimate[6:9], estimate[:5], 2e-4 + float(estimate[5]))
        return np.concatenate([state, estimate[5:]])

    sizes: Floats = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1e-4, *[0.5] * 5])
    F = np.array([(next_(before + h) - next_(before - h)) / (2.0 * h.sum()) for h in np.diag(sizes)]).T
    predict_actuator(adaptive, memory, 2e-4)
    right = F @ P @ F.T + np.diag(adaptive.drift)
    scale = np.sqrt(np.diag(right))
    assert np.abs((memory.covariance - right) / np.outer(scale, scale)).max() < 1e-3
    assert (memory.covariance == memory.covariance.T).all()


def test_nothing_is_learned_from_what_may_be_noise(adaptive: DisplacementBridge) -> None:
    """The covariance of state and parameters grows only with motion beyond five standard deviations of its estimate."""
    for size, learns in ((4.0, False), (6.0, True)):
        memory = at_rest(adaptive)
        deviation = np.array([0.01, 0.02, 0.01, 0.02, 0.03])
        memory.covariance[:5, :5] = np.diag(deviation**2)
        memory.estimate[:5] = size * deviation
        predict_actuator(adaptive, memory, 0.0)
        assert memory.covariance[:5, 6:].any() == np.bool_(learns)
        assert memory.estimate[:5] == pytest.approx(moved(np.zeros(3), size * deviation, 0.0))


def test_a_measurement_that_is_not_a_number_is_left_out(adaptive: DisplacementBridge) -> None:
    memory, right = somewhere(adaptive, (0.2, 0.1, -0.2)), somewhere(adaptive, (0.2, 0.1, -0.2))
    correct_actuator(adaptive, memory, nan, nan)
    assert (memory.estimate == right.estimate).all()
    correct_actuator(adaptive, memory, nan, -30.0)
    assert memory.estimate[2] != right.estimate[2]
    assert np.isfinite(memory.covariance).all()


def test_the_filter_follows_an_actuator_with_late_commands_and_measurements() -> None:
    """Random commands reach the actuator 3 ticks late; displacement and force are 1 and 4 ticks old, without noise."""
    late, old_x, old_f = 3, 1, 4
    sensors = Sensors(SENSORS.displacement, SENSORS.force, old_x * DT, old_f * DT)
    known = replace(NOMINAL, delay=late * DT)
    bridge = design_bridge(STRUCTURE, known, TRACKED, sensors, DT, Strategy.adaptive)
    memory, drive = at_rest(bridge), NOMINAL.motion().held(DT)
    commands = np.concatenate([np.zeros(late), np.random.default_rng(7).standard_normal(60).cumsum() * 1e-4])
    states = [np.zeros(5)] * (old_f + 1)
    for k in range(60):
        correct_actuator(bridge, memory, states[-1 - old_x][0], states[-1 - old_f][2])
        assert memory.now * SCALE == pytest.approx(states[-1], rel=1e-6, abs=1e-9)
        predict_actuator(bridge, memory, commands[k + late])
        states.append(drive.A @ states[-1] + drive.B[:, 0] * commands[k])
    assert abs(states[-1][0]) > 1e-4  # it has moved


def test_the_correction_is_that_of_a_kalman_filter(adaptive: DisplacementBridge) -> None:
    """Both measurements at once, in the textbook's matrices."""
    memory = somewhere(adaptive, (0.2, 0.1, -0.2))
    h, P = memory.estimate.copy(), memory.covariance.copy()
    H: Matrix = np.hstack([SEEN * SCALE, np.zeros((2, 6))])
    R = np.diag([SENSORS.displacement**2, SENSORS.force**2])
    gain = P @ H.T @ np.linalg.inv(H @ P @ H.T + R)
    measured = H @ h + [5e-5, -30.0]
    correct_actuator(adaptive, memory, *measured)
    assert memory.estimate == pytest.approx(h + gain @ [5e-5, -30.0], rel=1e-6, abs=1e-9)
    right = (np.eye(11) - gain @ H) @ P
    assert np.abs(memory.covariance - right).max() < 1e-8 * np.abs(P).max()


def test_what_late_sensors_show_is_what_the_actuator_was() -> None:
    """Against the solution of the equations of motion, backwards in time; the delays are 0.9 and 2.1 ms."""
    bridge = bridge_for_late_sensors()
    memory = somewhere(bridge, (0.0, 0.0, 0.0))
    memory.estimate[:5] = [1.2, 0.3, 1.3, 0.2, 0.05]
    memory.estimate[9:] = 0.9, 1.2
    for sensor, late in ((0, 0.9e-3), (1, 2.1e-3)):
        assert lateness_of(bridge, memory, sensor) == pytest.approx(late)
        before = expm(-NOMINAL.motion().A * late) @ (memory.estimate[:5] * SCALE)
        now, right = SEEN[sensor] @ (memory.estimate[:5] * SCALE), SEEN[sensor] @ before
        assert seen(bridge, memory.estimate, sensor, late) - now == pytest.approx(right - now, rel=0.1)
        earlier = expm(-NOMINAL.motion().A * (late + 1e-6)) @ (memory.estimate[:5] * SCALE)
        rate = (right - SEEN[sensor] @ earlier) / 1e-6
        assert seen_rate(bridge, memory.estimate, sensor, late) == pytest.approx(rate, rel=0.2)


def test_delays_are_corrected_as_by_a_linearised_kalman_filter() -> None:
    """The matrix of the measurement by finite differences."""
    bridge = bridge_for_late_sensors()
    memory = somewhere(bridge, (0.2, 0.1, -0.2))
    memory.estimate[9:] = 0.4, 0.7
    memory.covariance[:] *= 1e-8  # so that all motion is certain
    h, P = memory.estimate.copy(), memory.covariance.copy()

    def shown(estimate: Floats, sensor: int) -> float:
        memory.estimate[:] = estimate
        return seen(bridge, estimate, sensor, lateness_of(bridge, memory, sensor))

    sensor = 1
    H = np.array([[(shown(h + step, sensor) - shown(h - step, sensor)) / 2e-4 for step in 1e-4 * np.eye(11)]])
    memory.estimate[:] = h
    gain = P @ H.T / (H @ P @ H.T + SENSORS.force**2)
    measured = shown(h, sensor) - 30.0
    memory.estimate[:] = h
    correct_actuator(bridge, memory, nan, measured)
    assert memory.estimate == pytest.approx(h - 30.0 * gain[:, 0], rel=1e-6, abs=1e-9)


def bridge_for_late_sensors() -> DisplacementBridge:
    """With delays that are not stated, each of 1 ms."""
    tuning = Tuning(lateness=(1e-3, 1e-3))
    return design_bridge(STRUCTURE, NOMINAL, TRACKED, SENSORS, DT, Strategy.adaptive, tuning)


def test_tracked_parameters_stay_within_their_bounds(adaptive: DisplacementBridge) -> None:
    memory = somewhere(adaptive, (0.0, 0.0, 0.0))
    correct_actuator(adaptive, memory, 1e3, -1e9)
    assert np.abs(memory.estimate[6:]).max() == MAX_DEVIATIONS


def test_predicted_measured_force_follows_from_the_state(adaptive: DisplacementBridge) -> None:
    memory = somewhere(adaptive, (0.0, 0.0, 0.0))
    assert seen_force(adaptive, memory) == pytest.approx(1e3 * memory.estimate[2])


def horizon_command(
    structure: Floats, force: float, state: Floats, past: Floats, ticks: int, late: int, predicted: bool
) -> float:
    """The first command of those that minimise the regulator's sum over this many ticks: a plain least squares.

    ``past``: commands, newest first; ``predicted``: the structure receives the mean force of a tick, otherwise that at
    the beginning of the last one. Every response is simulated; nothing of the Riccati equation is used.
    """
    frame, drive = STRUCTURE.motion().held(DT), NOMINAL.motion().held(DT)

    def errors(y: Floats, f: float, z: Floats, before: Floats, commands: Floats) -> Floats:
        found, all_of_them = np.empty(ticks), np.concatenate([before[:late][::-1], commands])
        for k in range(ticks):
            found[k] = z[0] - y[0]
            then = drive.A @ z + drive.B[:, 0] * all_of_them[k]
            acting = 0.5 * (z[2] + then[2]) if predicted else f
            y, f, z = frame.A @ y + frame.B[:, 1] * acting, float(z[2]), then
        return found

    last = past[0]
    free = errors(structure, force, state, past, np.full(ticks, last))
    step = errors(np.zeros(6), 0.0, np.zeros(5), np.zeros(len(past)), np.ones(ticks))
    toeplitz = np.array([[step[k - j] if k >= j else 0.0 for j in range(ticks)] for k in range(ticks)])
    rows = np.vstack([toeplitz / TUNING.error, np.eye(ticks) / TUNING.change])
    wanted = np.concatenate([-free / TUNING.error, np.zeros(ticks)])
    return float(last + np.linalg.lstsq(rows, wanted, rcond=None)[0][0])


def tracking(
    strategy: DisplacementStrategy, late: int, limit: float = np.inf
) -> tuple[DisplacementBridge, DisplacementMemory]:
    """A bridge with a late command and its memory in the middle of a motion."""
    known = replace(NOMINAL, delay=late * DT, limit=limit)
    bridge = design_bridge(STRUCTURE, known, {}, SENSORS, DT, strategy)
    memory = at_rest(bridge)
    memory.now[:] = np.array([3e-4, 0.008, 360.0, 4e4, 1e5]) / SCALE
    memory.commands[:] = [4e-4, 3.9e-4, 3.7e-4, 3.6e-4, 3.6e-4, 3.5e-4][: late + 1]
    return bridge, memory


MOVING: Floats = np.array([5e-4, 9e-4, 1.2e-3, 0.01, 0.02, 0.03])


@pytest.mark.parametrize("late", [0, 1, 5])
@pytest.mark.parametrize("strategy", [Strategy.state_feedback, Strategy.prediction])
def test_the_command_minimises_error_and_change_over_a_long_horizon(strategy: DisplacementStrategy, late: int) -> None:
    """With the force that acts on the structure with this strategy."""
    bridge, memory = tracking(strategy, late)
    predicted = strategy is Strategy.prediction
    last = float(memory.commands[0])
    right = horizon_command(MOVING, 350.0, memory.now * SCALE, memory.commands, 500, late, predicted)
    found = displacement_command(bridge, memory, MOVING, 0.0, 350.0)
    assert abs(right - last) > 1e-5  # there is something to do
    assert found - last == pytest.approx(right - last, rel=2e-3)


def test_prediction_does_not_use_the_measured_force() -> None:
    bridge, memory = tracking(Strategy.prediction, 0)
    commands = [displacement_command(bridge, memory, MOVING, 0.0, force) for force in (0.0, 1e4)]
    assert commands[0] == pytest.approx(commands[1], rel=1e-9)


def test_the_command_stays_within_its_limit() -> None:
    bridge, memory = tracking(Strategy.prediction, 0, limit=4.1e-4)
    assert displacement_command(bridge, memory, MOVING, 0.0, 0.0) == 4.1e-4
    assert displacement_command(bridge, memory, -MOVING, 0.0, 0.0) == -4.1e-4


@pytest.mark.parametrize("states", [1, 4, 8])
def test_there_is_no_command_for_a_structure_of_another_size(states: int) -> None:
    bridge, memory = tracking(Strategy.prediction, 0)
    assert np.isnan(displacement_command(bridge, memory, np.zeros(states), 0.0, 0.0))


@pytest.mark.parametrize("theta", [(-2.0, 1.0, 1.0), (2.0, -1.0, -1.5)])
def test_the_gains_for_other_parameters_are_those_of_a_design_for_them(
    adaptive: DisplacementBridge, theta: tuple[float, float, float]
) -> None:
    """Compared by the commands of random states, in relation to the change by the parameters."""
    plant = NOMINAL.shifted({name: TRACKED[name] * t for name, t in zip(TRACKED, theta, strict=True)})
    own = design_bridge(STRUCTURE, plant, TRACKED, SENSORS, DT, Strategy.state_feedback)
    draw, deviations, changes = np.random.default_rng(2), [], []
    for _ in range(20):
        structure, state = draw.standard_normal(6) * 1e-3, draw.standard_normal(5)
        commands = []
        for bridge, known in ((adaptive, theta), (own, ()), (adaptive, (0.0, 0.0, 0.0))):
            memory = at_rest(bridge)
            memory.now[:], memory.estimate[6 : 6 + len(known)] = state, known
            commands.append(displacement_command(bridge, memory, structure, 0.3, 200.0))
        deviations.append(commands[0] - commands[1])
        changes.append(commands[2] - commands[1])
    assert np.std(deviations) < 0.1 * np.std(changes)


def test_a_leading_bridge_uses_the_predicted_position_of_the_structure() -> None:
    """In uniform motion, the commands differ as if the structure were farther by the lead."""
    plain, leading = bridge_for(Strategy.adaptive), bridge_for(Strategy.adaptive_lead)
    assert leading.gains[3] - plain.gains[3] != 0.0
    still = np.array([1e-3, 2e-3, 3e-3, 0.0, 0.0, 0.0])
    commands = [displacement_command(b, at_rest(b), still, 0.0, 0.0) for b in (plain, leading)]
    moving = still + np.array([0.0, 0.0, 0.0, 0.02, 0.04, 0.06])
    faster = [displacement_command(b, at_rest(b), moving, 0.0, 0.0) for b in (plain, leading)]
    assert faster[1] - commands[1] > faster[0] - commands[0]
