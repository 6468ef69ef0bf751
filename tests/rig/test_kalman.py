"""Gains of the Kalman filter where sensors are read at different rates: against the textbook's recursion."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import simpson
from scipy.linalg import expm, solve_discrete_are

from hilserver.numerics.arrays import Floats, Integers
from hilserver.rig.kalman import _discrete, stationary
from hilserver.rig.sampling_lag import SlowDevices

POSITION, SPEED, BIAS = range(3)


@pytest.fixture(scope="module")
def model() -> tuple[Floats, Floats, Floats, Floats]:
    """A mass with an oscillating speed and an unknown drift: transition, noise, sensors of position and speed."""
    step = np.array([[1.0, 0.1, 0.0], [-0.3, 0.95, 0.02], [0.0, 0.0, 1.0]])
    spread = np.diag([1e-6, 1e-3, 2e-4])
    seen = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    return step, spread, seen, np.array([1e-2, 4e-2])


def optimal(
    step: Floats, spread: Floats, seen: Floats, variance: Floats, periods: Integers, ticks: int
) -> list[Floats]:
    """Covariances after each tick of the optimal, time-varying filter, in information form."""
    P, found = np.eye(len(step)), []
    for tick in range(1, ticks + 1):
        information = np.linalg.inv(step @ P @ step.T + spread)
        for i in np.flatnonzero(tick % periods == 0):
            information += np.outer(seen[i], seen[i]) / variance[i]
        P = np.linalg.inv(information)
        found.append(P)
    return found


def achieved(
    step: Floats, spread: Floats, seen: Floats, variance: Floats, periods: Integers, gain: Floats, ticks: int
) -> list[Floats]:
    """The same of a filter with these gains, each sensor's when its sample comes (Joseph's form)."""
    P, found, one = np.eye(len(step)), [], np.eye(len(step))
    for tick in range(1, ticks + 1):
        come = np.flatnonzero(tick % periods == 0)
        K, H = gain[:, come], seen[come]
        P = step @ P @ step.T + spread
        P = (one - K @ H) @ P @ (one - K @ H).T + K @ np.diag(variance[come]) @ K.T
        found.append(P)
    return found


@pytest.mark.parametrize("period", [1, 2, 10, 50])
def test_samples_every_few_ticks_have_the_gain_of_the_optimal_filter(
    model: tuple[Floats, Floats, Floats, Floats], period: int
) -> None:
    periods = np.array([period, period])
    gain, after = stationary(*model, periods)
    last = optimal(*model, periods, 20_000 // period * period)[-1]
    assert after == pytest.approx(last, rel=1e-6, abs=1e-12)
    assert gain == pytest.approx(last @ model[2].T @ np.diag(1.0 / model[3]), rel=1e-6)


@pytest.mark.parametrize("periods", [(1, 20), (20, 1), (3, 10), (1, 50)])
def test_filter_with_sensors_of_different_rates_is_nearly_optimal(
    model: tuple[Floats, Floats, Floats, Floats], periods: tuple[int, int]
) -> None:
    """Constant gains cost no more than 10 % of variance against the best filter, in every phase of the period."""
    ticks: Integers = np.array(periods)
    gain, _ = stationary(*model, ticks)
    best, found = optimal(*model, ticks, 3000), achieved(*model, ticks, gain, 3000)
    worst = max(np.max(np.diag(a) / np.diag(b)) for a, b in zip(found[-60:], best[-60:], strict=True))
    assert 1.0 - 1e-9 < worst < 1.1


@pytest.mark.parametrize("seed", range(20))
def test_riccati_solution_agrees_with_scipy(seed: int) -> None:
    """Random systems, also unstable ones, with some modes that no noise drives."""
    random = np.random.default_rng(seed)
    n, sensors = int(random.integers(2, 16)), int(random.integers(1, 6))
    step = random.normal(size=(n, n)) * (1.3 / np.sqrt(n))
    drive = random.normal(size=(n, n)) * random.uniform(0.1, 1.0, n)
    spread, seen = drive @ drive.T, random.normal(size=(sensors, n))
    variance = random.uniform(0.01, 1.0, sensors)
    before = solve_discrete_are(step.T, seen.T, spread, np.diag(variance))
    expected = before @ seen.T @ np.linalg.inv(seen @ before @ seen.T + np.diag(variance))
    gain, after = stationary(step, spread, seen, variance, np.ones(sensors, dtype=np.int64))
    assert gain == pytest.approx(expected, rel=1e-6, abs=1e-9 * np.abs(expected).max())
    assert after == pytest.approx((np.eye(n) - expected @ seen) @ before, rel=1e-6, abs=1e-8 * np.abs(before).max())


@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0])
def test_discretisation_agrees_with_scipy(size: float) -> None:
    """Transition by the matrix exponential; its noise by the integral that defines it, Simpson's rule."""
    random = np.random.default_rng(1)
    motion, drive = size * random.normal(size=(7, 7)), np.diag(random.uniform(0.0, 1.0, 7))
    step, spread = _discrete(motion, drive, 0.1)
    assert step == pytest.approx(expm(0.1 * motion), rel=1e-9, abs=1e-12 * np.abs(step).max())
    times, parts = np.linspace(0.0, 0.1, 2001), []
    for t in times:
        moved = expm(t * motion)
        parts.append(moved @ drive @ moved.T)
    assert spread == pytest.approx(simpson(parts, x=times, axis=0), rel=1e-6, abs=1e-9 * np.abs(spread).max())


def test_a_slower_sensor_leaves_more_uncertainty(model: tuple[Floats, Floats, Floats, Floats]) -> None:
    spreads = [np.trace(stationary(*model, np.array([n, n]))[1]) for n in (1, 5, 25)]
    assert all(a < b for a, b in pairwise(spreads))


def test_ticks_between_the_samples_of_a_device() -> None:
    assert SlowDevices({"plc": 50.0}, 1000.0).ticks("plc") == 20
    assert SlowDevices({"plc": 3000.0}, 1000.0).ticks("plc") == 1
    assert SlowDevices({"plc": 50.0}, 1000.0).ticks("card") == SlowDevices({}, 1000.0).ticks(None) == 1
