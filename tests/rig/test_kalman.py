"""Gains of the Kalman filter where sensors are read at different rates: against the textbook's recursion."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from hilserver.numerics.arrays import Floats, Integers
from hilserver.rig.hold import ticks_between_samples
from hilserver.rig.kalman import stationary

POSITION, SPEED, BIAS = range(3)


@pytest.fixture(scope="module")
def model() -> tuple[Floats, Floats, Floats, Floats]:
    """A mass with an oscillating speed and an unknown drift: transition, noise, sensors of position and speed."""
    step = np.array([[1.0, 0.1, 0.0], [-0.3, 0.95, 0.02], [0.0, 0.0, 1.0]])
    spread = np.diag([1e-6, 1e-3, 2e-4])
    seen = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    return step, spread, seen, np.diag([1e-2, 4e-2])


def optimal(step: Floats, spread: Floats, seen: Floats, square: Floats, periods: Integers, ticks: int) -> list[Floats]:
    """Covariances after each tick of the optimal, time-varying filter, in information form."""
    P, found = np.eye(len(step)), []
    for tick in range(1, ticks + 1):
        information = np.linalg.inv(step @ P @ step.T + spread)
        for i in np.flatnonzero(tick % periods == 0):
            information += np.outer(seen[i], seen[i]) / square[i, i]
        P = np.linalg.inv(information)
        found.append(P)
    return found


def achieved(
    step: Floats, spread: Floats, seen: Floats, square: Floats, periods: Integers, gain: Floats, ticks: int
) -> list[Floats]:
    """The same of a filter with these gains, each sensor's when its sample comes (Joseph's form)."""
    P, found, one = np.eye(len(step)), [], np.eye(len(step))
    for tick in range(1, ticks + 1):
        come = np.flatnonzero(tick % periods == 0)
        K, H = gain[:, come], seen[come]
        P = step @ P @ step.T + spread
        P = (one - K @ H) @ P @ (one - K @ H).T + K @ square[np.ix_(come, come)] @ K.T
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
    assert gain == pytest.approx(last @ model[2].T @ np.linalg.inv(model[3]), rel=1e-6)


@pytest.mark.parametrize("periods", [(1, 20), (20, 1), (3, 10), (1, 50)])
def test_sensors_of_different_rates_are_used_nearly_as_well_as_possible(
    model: tuple[Floats, Floats, Floats, Floats], periods: tuple[int, int]
) -> None:
    """Constant gains cost no more than 10 % of variance against the best filter, in every phase of the period."""
    ticks: Integers = np.array(periods)
    gain, _ = stationary(*model, ticks)
    best, found = optimal(*model, ticks, 3000), achieved(*model, ticks, gain, 3000)
    worst = max(np.max(np.diag(a) / np.diag(b)) for a, b in zip(found[-60:], best[-60:], strict=True))
    assert 1.0 - 1e-9 < worst < 1.1


def test_a_slower_sensor_leaves_more_uncertainty(model: tuple[Floats, Floats, Floats, Floats]) -> None:
    spreads = [np.trace(stationary(*model, np.array([n, n]))[1]) for n in (1, 5, 25)]
    assert all(a < b for a, b in pairwise(spreads))


def test_ticks_between_the_samples_of_a_device() -> None:
    assert ticks_between_samples("plc", {"plc": 50.0}, 1000.0) == 20
    assert ticks_between_samples("plc", {"plc": 3000.0}, 1000.0) == 1
    assert ticks_between_samples("card", {"plc": 50.0}, 1000.0) == ticks_between_samples(None, {}, 1000.0) == 1
