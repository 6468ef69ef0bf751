"""How closely a valve keeps to its model, and the feedback time that follows: judged by theory and by simulation."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest
from lift_bench import both, lift
from scipy.linalg import solve_continuous_lyapunov

from hilserver.compiler import standard_program
from hilserver.fidelity.comparison import Comparison
from hilserver.fidelity.segments import CycleSegment, passes, trip_in
from hilserver.identify.drift import LONGEST, SHORTEST, Intensities, Trust, best_feedback_time
from hilserver.identify.estimate import Estimate
from hilserver.numerics.arrays import Floats
from hilserver.rig.rig import Rig

DT = 1e-3
DRIFT, NOISE = 4e-9, 1.4e-15
"""Intensities of a lift rig: 2 % of 60 l/min in 0.1 s; 0.6 mm of position noise per ms on 19.6 cm²."""


def residual(drift: float, noise: float, ticks: int = 60_000) -> Floats:
    """Volumes per tick whose flow is a random walk, measured with white noise of the volume."""
    rng = np.random.default_rng(4)
    flow = np.cumsum(sqrt(drift * DT) * rng.standard_normal(ticks))
    return flow * DT + np.diff(sqrt(noise / DT) * rng.standard_normal(ticks + 1))


@pytest.mark.parametrize("drift", [DRIFT, 0.1 * DRIFT])
def test_intensities_are_those_of_the_signal(drift: float) -> None:
    found = Intensities.of(residual(drift, NOISE), np.full(60_000, True), DT)
    assert found is not None
    assert found.noise == pytest.approx(NOISE, rel=0.05)
    assert abs(found.drift.value - drift) < 3.0 * found.drift.deviation
    assert found.drift.deviation < 0.2 * DRIFT


@pytest.mark.parametrize("hold", [5, 10, 20])
def test_noise_of_a_slow_sensor_is_no_drift(hold: int) -> None:
    """A position that is sampled every 5 to 20 ms: what is held in between is the same error several times."""
    ticks = 60_000
    position = np.random.default_rng(4).standard_normal(ticks // hold + 1)
    volume = sqrt(NOISE / (hold * DT)) * np.repeat(position, hold)[: ticks + 1]
    found = Intensities.of(np.diff(volume), np.full(len(volume) - 1, True), DT)
    assert found is not None
    assert abs(found.drift.value) < min(3.0 * found.drift.deviation, 0.1 * DRIFT)
    assert found.noise == pytest.approx(NOISE, rel=0.4)


def test_unused_ticks_do_not_count() -> None:
    values, used = residual(DRIFT, NOISE), np.full(60_000, True)
    used[20_000:20_100] = False
    clean = Intensities.of(values, used, DT)
    values[20_000:20_100] += 1e-3
    assert Intensities.of(values, used, DT) == clean
    assert Intensities.of(values, ~used, DT) is None


def variance(T: float, drift: float, noise: float) -> float:
    """Of the flow error, by the Lyapunov equation of plant and stationary filter; the drift forgets within 1000 s.

    States: flow error b of the model, missing volume V, and the filter's estimates of both.
    """
    omega = (drift / noise) ** 0.25
    of_volume, of_flow = sqrt(2.0) * omega, omega**2
    motion = np.array([
        [-1e-3, 0.0, 0.0, 0.0],
        [-1.0, 0.0, 0.0, -1.0 / T],
        [0.0, -of_flow, 0.0, of_flow],
        [0.0, of_volume, -1.0, -1.0 / T - of_volume],
    ])  # fmt: skip
    driven = np.diag([drift, 0.0, 0.0, 0.0]) + noise * np.outer(v := [0.0, 0.0, -of_flow, of_volume], v)
    spread = solve_continuous_lyapunov(motion, -driven)
    flow = np.array([1.0, 0.0, 0.0, 1.0 / T])
    return float(flow @ spread @ flow)


def test_no_other_feedback_time_leaves_a_smaller_flow_error() -> None:
    best = best_feedback_time(DRIFT, NOISE)
    least = variance(best, DRIFT, NOISE)
    assert least == pytest.approx(0.5 * DRIFT * best + sqrt(DRIFT * NOISE) / best, rel=1e-3)
    for factor in (0.3, 0.8, 1.25, 3.0):
        assert variance(factor * best, DRIFT, NOISE) > 1.01 * least


@pytest.mark.parametrize("drift", [-1e-6, 0.0, DRIFT, 1.0])
@pytest.mark.parametrize("noise", [0.0, NOISE, 1.0])
@pytest.mark.parametrize("deviation", [0.0, DRIFT, 1e-6])
def test_whatever_the_residuals_are_the_rig_file_can_be_loaded(drift: float, noise: float, deviation: float) -> None:
    """Such as residuals of a valve whose model is quite wrong; and no value is smaller than its standard deviation."""
    nominal = 1e-3
    trust = Trust.of(Intensities(Estimate(drift, deviation), noise), nominal)
    assert 0.005 * nominal <= trust.drift.value <= nominal
    assert 0.0 < trust.drift.deviation <= trust.drift.value
    assert SHORTEST <= trust.feedback_time.value <= LONGEST
    assert 0.0 < trust.feedback_time.deviation < 0.51 * trust.feedback_time.value


def flow_errors(rig: Rig) -> tuple[float, float]:
    """NRMSE of the flow into port A, and the noise of its valve's command, over the work cycle with feedback."""
    comparison = Comparison.of(rig, standard_program())
    record, true_values = comparison.bridged(rig, "feedback")
    assert trip_in(record, rig) is None
    segment, _ = comparison.evaluated(record, true_values, CycleSegment(passes(record)[0], 0.0))
    return segment.deviations["flow A"].nrmse, segment.noise("A", DT)


def test_a_valve_that_keeps_to_its_model_is_corrected_more_calmly() -> None:
    """A position sensor with 0.6 mm of noise, as stated: what the feedback does is mostly noise."""
    sensors = {"rig": {"sensors": {"x": {"noise": 6e-4}}}}
    x: dict[str, Any] = {"devices": sensors, "channels": {"x": {"noise": "0.6 mm"}}}
    before = flow_errors(lift({"rig": x}))
    time = min(best_feedback_time((0.005 * 1e-3) ** 2 / 0.1, NOISE), LONGEST)
    trusted = {"flow_drift": 0.005, "bridge": {"feedback_time": f"{time} s"}}
    after = flow_errors(lift(both({"rig": x}, {"rig": {"valves": {"A": trusted, "B": trusted}}})))
    assert after[0] < 0.5 * before[0]
    assert after[1] < 0.7 * before[1]
