"""The lead of a strategy with look-ahead, against the exact inverse of the spool."""

from __future__ import annotations

from math import cos, nan, pi, sin

import numpy as np
import pytest

from hilserver.numerics.arrays import Floats
from hilserver.tick.bridge.compensation import MEAN_AND_HOLD, filter_lag, lead_now
from hilserver.tick.bridge.strategies import Strategy
from hilserver.tick.plan import ValveRecord
from hilserver.tick.records import blank
from hilserver.tick.row import ValveState
from hilserver.tick.stages import POINTS

FREQUENCY, TICKS = 40.0, 60


def valve(order: int) -> ValveRecord:
    v = blank(ValveRecord)
    if order == 2:
        v.omega, v.damping = 2.0 * pi * 80.0, 0.7
    else:
        v.tau = 1.0 / (2.0 * pi * 40.0)
    return v


def exact(t: float, v: ValveRecord, dt: float) -> float:
    """What the spool's lag takes away from sin(2 pi f t), with what mean and hold take from it."""
    w = 2.0 * pi * FREQUENCY
    slow, bend = (2.0 * v.damping / v.omega, v.omega**-2) if v.omega > 0.0 else (v.tau, 0.0)
    return float(slow * w * cos(w * t) - (bend - MEAN_AND_HOLD * dt**2) * w**2 * sin(w * t))


def leads(strategy: Strategy, v: ValveRecord, dt: float, s: float, kick: float = 0.0) -> tuple[Floats, Floats]:
    """Leads and exact ones, tick by tick, of predictions that are right; ``kick``: change of each last opening."""
    b = blank(ValveState)
    b.lead = nan
    found, true = [], []
    for k in range(TICKS):
        openings = np.sin(2.0 * pi * FREQUENCY * dt * (k + np.arange(POINTS)))
        if k == TICKS - 1:
            openings[2] += kick
        found.append(lead_now(strategy.compensates, openings, s, b, v, dt))
        true.append(exact((k + s) * dt, v, dt))
    return np.array(found), np.array(true)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("s", [0.0, 0.4, 1.0, 1.6, 2.0])
@pytest.mark.parametrize("rate", [1000.0, 2000.0, 4000.0])
def test_a_right_prediction_gives_the_exact_lead(rate: float, s: float, order: int) -> None:
    """Within 2 % of its amplitude, at the frequency at which the spool lags by 45°; 6 % with a filter of one tick."""
    found, true = leads(Strategy.feedback, valve(order), 1.0 / rate, s)
    last = round(rate / FREQUENCY)
    assert np.max(np.abs(found - true)[-last:]) < 0.02 * np.max(np.abs(true))


def test_the_newest_prediction_does_not_change_the_present_lead() -> None:
    """But it does where the pressures are held."""
    for strategy, changes in ((Strategy.feedback, False), (Strategy.second_order, True)):
        one, other = (leads(strategy, valve(2), 1e-3, 0.0, kick)[0] for kick in (0.0, 0.1))
        assert np.array_equal(one[:-1], other[:-1])
        assert (one[-1] != other[-1]) == changes


def test_the_filter_is_that_of_fast_loops() -> None:
    assert [filter_lag(1.0 / rate) for rate in (100.0, 1000.0)] == [0.0, 0.0]
    assert [filter_lag(1.0 / rate) for rate in (4000.0, 8000.0)] == pytest.approx([1.0, 1.0])
