"""Parameters from datasheet curves: what went into a synthetic curve comes out again, with reading errors too."""

from __future__ import annotations

from math import pi, sqrt

import numpy as np
import pytest
from component_bench import BAR, L_MIN
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression, least_squares

from hilserver.components.shared.fitting import (
    bode_error,
    fit_bode,
    fit_f45,
    fit_relief,
    flow_signal_table,
    opening_table,
)

Bode = list[tuple[float, float, float]]


def second_order(f: float, d: float, shares: tuple[float, ...] = (0.1, 0.3, 0.6, 1.0, 1.5)) -> Bode:
    """Points of the Bode plot of a second-order lag with natural frequency f, at these shares of it."""
    G = [1.0 / complex(1.0 - r * r, 2.0 * d * r) for r in shares]
    return [(r * f, 20 * np.log10(abs(g)), np.degrees(np.angle(g))) for r, g in zip(shares, G, strict=True)]


def noisy(points: Bode, seed: int, gain: float = 0.2, phase: float = 2.0) -> Bode:
    """With reading errors: standard deviations in dB and degrees."""
    noise = np.random.default_rng(seed).normal(size=(len(points), 2)) * (gain, phase)
    return [(f, g + e[0], min(p + e[1], 0.0)) for (f, g, p), e in zip(points, noise, strict=True)]


@given(f=st.floats(1.0, 1000.0), d=st.floats(0.2, 3.0))
def test_bode_points_of_a_second_order_lag_give_it_back(f: float, d: float) -> None:
    omega, damping = fit_bode(second_order(f, d))
    assert omega == pytest.approx(2 * pi * f, rel=1e-9)
    assert damping == pytest.approx(d, rel=1e-9)
    assert bode_error(second_order(f, d), omega, damping) < 1e-9


def test_a_point_at_minus_90_degrees_and_one_below_suffice() -> None:
    omega, d = fit_bode(second_order(80.0, 0.7, (0.5, 1.0)))
    assert (omega, d) == pytest.approx((2 * pi * 80.0, 0.7), rel=1e-9)


@pytest.mark.parametrize("d", [0.4, 0.7, 1.0, 1.5])
def test_bode_points_with_reading_errors_give_approximately_the_lag(d: float) -> None:
    """Errors of 0.2 dB and 2° (one sigma) leave a few per cent, in 95 of 100 readings."""
    found = np.array([fit_bode(noisy(second_order(60.0, d), seed)) for seed in range(100)])
    assert np.quantile(np.abs(found[:, 0] / (2 * pi * 60.0) - 1.0), 0.95) < 0.08
    assert np.quantile(np.abs(found[:, 1] / d - 1.0), 0.95) < 0.1


def test_the_linear_fit_is_near_the_one_of_gain_and_phase_errors() -> None:
    """Independent: scipy's nonlinear least squares on dB/8.686 and radians, for points with reading errors."""
    points = noisy(second_order(60.0, 0.8), seed=7)
    _, gain, phase = np.array(points).T

    def errors(x: np.ndarray) -> np.ndarray:
        model = second_order(x[0] / (2 * pi), x[1], tuple(2 * pi * p[0] / x[0] for p in points))
        _, fitted_gain, fitted_phase = np.array(model).T
        return np.concatenate([(fitted_gain - gain) / 8.686, np.radians(fitted_phase - phase)])

    reference = least_squares(errors, [2 * pi * 50, 1.0], x_scale=[100.0, 1.0]).x
    assert fit_bode(points) == pytest.approx(tuple(reference), rel=0.02)


@given(f45=st.floats(1.0, 300.0))
def test_f45_of_a_first_order_lag(f45: float) -> None:
    """Reading errors leave a few per cent, in 95 of 100 readings."""
    points = [(r * f45, -10 * np.log10(1 + r * r), -np.degrees(np.arctan(r))) for r in (0.2, 0.5, 1.0, 1.6, 4.0)]
    assert fit_f45(points) == pytest.approx(f45, rel=1e-9)
    found = np.array([fit_f45(noisy(points, seed)) for seed in range(100)])
    assert np.quantile(np.abs(found / f45 - 1.0), 0.95) < 0.08


def test_f45_of_a_second_order_lag_is_where_its_phase_is_minus_45_degrees() -> None:
    """2·d·r = 1 - r² there. Points just around it, so that the shape of the phase doesn't matter."""
    d = 0.8
    r = -d + sqrt(d * d + 1)
    assert fit_f45(second_order(50.0, d, (0.98 * r, 1.02 * r))) == pytest.approx(50.0 * r, rel=1e-3)


@pytest.mark.parametrize(
    ("points", "reason"),
    [
        ([(30.0, -3.0, -90.0)], "at least two points"),
        ([(30.0, -3.0, -90.0), (10.0, 0.0, -20.0)], "increase from point to point"),
        ([(0.0, 0.0, 0.0), (10.0, 0.0, -20.0)], "positive"),
        ([(10.0, 0.0, 20.0), (30.0, -3.0, 90.0)], "-45, not 45"),
        ([(10.0, 0.0, -10.0), (20.0, -6.0, -30.0), (40.0, 0.0, -90.0)], "not those of a second-order lag"),
        ([(10.0, -1.0, -5.0), (20.0, -2.0, -10.0)], "up to a phase of -90°"),
        ([(10.0, -20.0, -1.0), (20.0, 0.0, -170.0), (30.0, -20.0, -10.0)], "Bode points"),
    ],
)
def test_bode_points_that_fit_no_second_order_lag_are_refused(points: Bode, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        fit_bode(points)


def test_f45_needs_points_near_it() -> None:
    with pytest.raises(ValueError, match="between -20° and -70°"):
        fit_f45([(1.0, 0.0, -3.0), (100.0, -10.0, -85.0)])


# --- flow over signal -------------------------------------------------------------------------------------------------


def test_flow_signal_curve_becomes_coefficients() -> None:
    """Q = C·sqrt(drop) at each point."""
    points = [(0.0, 0.0), (0.1, 0.0), (0.5, 10 * L_MIN), (1.0, 40 * L_MIN)]
    table = flow_signal_table(points, 5 * BAR)
    assert table.x == (0.0, 0.1, 0.5, 1.0)
    assert np.array(table.y) * sqrt(5 * BAR) == pytest.approx([q for _, q in points], rel=1e-12)
    opening, coefficient = opening_table(table)
    assert opening.y == pytest.approx((0.0, 0.0, 0.25, 1.0), rel=1e-12)
    assert coefficient * sqrt(5 * BAR) == pytest.approx(40 * L_MIN, rel=1e-12)


@given(flow=st.lists(st.floats(0.0, 0.02), min_size=2, max_size=12))
def test_reading_errors_of_a_flow_signal_curve_are_evened_out(flow: list[float]) -> None:
    """Independent: scipy's isotonic regression."""
    curve = np.linspace(0.0, 1.0, len(flow)) ** 2 + np.array(flow)
    table = flow_signal_table(list(zip(np.linspace(0, 1, len(flow)), curve, strict=True)), 1.0)
    assert np.array(table.y) == pytest.approx(isotonic_regression(curve).x, rel=1e-9)
    assert np.all(np.diff(table.y) >= 0.0)


@pytest.mark.parametrize(
    ("points", "drop", "reason"),
    [
        ([(0.0, 0.0)], 1e6, "at least two points"),
        ([(0.0, 0.0), (0.0, 1e-3)], 1e6, "signals of a flow-signal curve must increase"),
        ([(0.0, 1e-3), (1.0, 0.0)], 1e6, "falls with rising signal, by 100 %"),
        ([(0.0, 0.0), (1.0, 0.0)], 1e6, "above 0"),
        ([(0.0, -1e-3), (1.0, 1e-3)], 1e6, "at least 0"),
        ([(0.0, 0.0), (1.0, 1e-3)], 0.0, "positive drop"),
    ],
)
def test_invalid_flow_signal_curves_are_refused(points: list[tuple[float, float]], drop: float, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        flow_signal_table(points, drop)


# --- relief valves ----------------------------------------------------------------------------------------------------


def relief_points(C_1: float, C_2: float, opening: float, over: np.ndarray) -> np.ndarray:
    p = opening + over
    return np.stack([over, over * np.sqrt(p) / (C_1 + C_2 * p)], axis=1)


@given(
    height=st.floats(2e6, 4e7), bend=st.floats(-0.5, 2.0), opening=st.floats(20e5, 300e5), seed=st.integers(0, 10_000)
)
def test_relief_points_give_their_curve_back(height: float, bend: float, opening: float, seed: int) -> None:
    """Exactly; with reading errors of 1 % within 4 % of the flow."""
    C_2 = bend * height / (opening + 30e5)
    C_1 = height - C_2 * opening
    exact = relief_points(C_1, C_2, opening, np.array([3e5, 8e5, 15e5, 22e5, 30e5]))
    found_1, found_2, error = fit_relief(opening, exact.tolist())
    assert error < 1e-6
    assert found_1 + found_2 * (opening + 10e5) == pytest.approx(C_1 + C_2 * (opening + 10e5), rel=1e-6)
    rough = exact * (1, 1) * np.stack([np.ones(5), 1 + 0.01 * np.random.default_rng(seed).uniform(-1, 1, 5)], axis=1)
    found_1, found_2, error = fit_relief(opening, rough.tolist())
    assert error < 0.03
    again = relief_points(found_1, found_2, opening, exact[:, 0])
    assert again[:, 1] == pytest.approx(exact[:, 1], rel=0.04)


def test_two_relief_points_are_met_exactly() -> None:
    points = [(5e5, 20 * L_MIN), (15e5, 60 * L_MIN)]
    C_1, C_2, error = fit_relief(150e5, points)
    assert relief_points(C_1, C_2, 150e5, np.array([5e5, 15e5]))[:, 1] == pytest.approx(
        [q for _, q in points], rel=1e-9
    )
    assert error < 1e-9


def test_relief_points_off_any_curve_are_refused() -> None:
    with pytest.raises(ValueError, match=r"misses a point by [0-9]+ % of its flow"):
        fit_relief(100e5, [(5e5, 20 * L_MIN), (10e5, 60 * L_MIN), (15e5, 62 * L_MIN)])


def test_three_points_of_a_bent_curve_keep_the_line_positive() -> None:
    """Flow rises faster than pressure: the best line C_1 + C_2·p would be negative at 400 bar, and is held above 0."""
    points = [(3e5, 11 * L_MIN), (6e5, 23 * L_MIN), (10e5, 41 * L_MIN), (15e5, 61 * L_MIN)]
    free_1, free_2, free_error = fit_relief(150e5, points)
    C_1, C_2, error = fit_relief(150e5, points, (150e5, 400e5))
    assert free_1 + free_2 * 400e5 < 0.0 < C_1 + C_2 * 400e5
    assert free_error < error < 0.06
    middle = 150e5 + np.mean([over for over, _ in points])
    share = (C_1 + C_2 * 400e5) / (C_1 + C_2 * middle)
    assert share == pytest.approx(0.2, rel=1e-9)
