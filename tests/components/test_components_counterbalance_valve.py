"""The counterbalance valve: opening by pilot, relief, free flow, and lowering a load with it."""

from __future__ import annotations

from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from component_bench import BAR, L_MIN, Bench, evaluate, pressures
from hypothesis import given
from hypothesis import strategies as st
from pressure_bench import COUNTERBALANCE, fed, passive
from scipy.integrate import solve_ivp

from hilserver.components.counterbalance_valve import CounterbalanceValve
from hilserver.toml import read_toml


def counterbalance(**values: Any) -> CounterbalanceValve:
    return CounterbalanceValve.model_validate({**COUNTERBALANCE, **values})


@pytest.mark.parametrize("vented", [False, True])
@pytest.mark.parametrize(("p_C", "back"), [(40.0, 0.0), (40.0, 8.0), (60.0, 5.0)])
def test_counterbalance_valve_opens_at_its_pilot_pressure(p_C: float, back: float, vented: bool) -> None:
    """p_C + R·p_X = p_open + (1 + R)·p_Y: back pressure counts 1 + R times, unless the spring chamber is vented."""
    p_Y = 0.0 if vented else back
    opens = (65.0 + 4.0 * p_Y - p_C) / 3.0

    def dK(p_X: float) -> float:
        p = {"p_C": p_C * BAR, "p_V": back * BAR, "p_X": p_X * BAR, "p_Y": p_Y * BAR}
        return evaluate(counterbalance(), None, **p, K=0.0)["dK"]

    assert dK(opens - 0.01) < 0.0 < dK(opens + 0.01)


@pytest.mark.parametrize(("over", "flow"), [(20.0, 10.0), (60.0, 30.0)])
def test_counterbalance_valve_relieves_along_its_curve(over: float, flow: float) -> None:
    lines = '[components.valve]\ntype = "counterbalance_valve"\nports = { C = "P", V = "T", X = "T", Y = "T" }'
    bench = Bench(fed(lines, flow, **COUNTERBALANCE))
    bench.run(1.0, 1e-4)
    assert bench["P.p"] / BAR == pytest.approx(65.0 + over, abs=1e-3)


def test_counterbalance_valve_lifts_freely_and_holds_without_leaking() -> None:
    free = evaluate(counterbalance(), p_C=50 * BAR, p_V=56 * BAR, p_X=0.0, p_Y=56 * BAR, K=0.0)
    assert free["q_C"] == pytest.approx(60 * L_MIN, rel=1e-12)
    held = evaluate(counterbalance(), p_C=50 * BAR, p_V=0.0, p_X=0.0, p_Y=0.0, K=0.0)
    assert held["q_C"] == 0.0 > held["dK"]


@given(p_C=pressures, p_V=pressures, K=st.floats(0, 1e-6))
def test_counterbalance_valve_only_dissipates(p_C: float, p_V: float, K: float) -> None:
    passive(counterbalance(), "CV", p_C=p_C, p_V=p_V, p_X=20 * BAR, p_Y=p_V, K=K)


def lowering() -> dict[str, Any]:
    """The example circuit: a load of 1500 kg is lowered by 10 l/min into the rod side, from rest."""
    return read_toml(Path(__file__).parents[2] / "docs" / "examples" / "counterbalance_valve.toml")


def lowering_reference(times: np.ndarray) -> np.ndarray:
    """p_load, p_rod, p_return, x, v by scipy's DOP853; the circuit's equations written out by hand."""
    A_A = np.pi / 4 * 0.063**2
    A_B = A_A - np.pi / 4 * 0.036**2
    p = np.array([85e5, 125e5])
    y = np.array([20e5, 60e5]) * np.sqrt(p) / (np.array([10, 30]) * L_MIN)
    C_2 = (y[1] - y[0]) / (p[1] - p[0])
    C_1 = y[0] - C_2 * p[0]
    C_dyn = 0.02 * y[1]
    K_max, K_check, K_return = 60 * L_MIN / sqrt(12e5), 60 * L_MIN / sqrt(6e5), 40 * L_MIN / sqrt(5e5)

    def g(dp: float) -> float:
        if abs(dp) > BAR:
            return float(np.sign(dp)) * sqrt(abs(dp))
        return sqrt(BAR) * dp / BAR * (3 - abs(dp) / BAR) / 2

    def rates(_: float, s: np.ndarray) -> list[float]:
        p_A, p_B, p_V, K, x, v = s
        q = K * g(p_A - p_V) - K_check * min(max((p_V - p_A - BAR) / 5e5, 0.0), 1.0) * g(max(p_V - p_A, 0.0))
        push = A_A * p_A - A_B * p_B
        dK = (p_A + 3 * p_B - 4 * p_V - 65e5 - max(C_1 + C_2 * (p_A - p_V), 0.2 * y.mean()) * K) / C_dyn
        if (K <= 0.0 and dK < 0.0) or (K_max <= K and dK > 0.0):
            dK = 0.0
        return [
            (-q - A_A * v) * 1.5e9 / (0.2e-3 + A_A * x),
            (10 * L_MIN + A_B * v) * 1.5e9 / (2e-3 + A_B * (0.5 - x)),
            (q - K_return * g(p_V)) * 1.5e9 / 0.5e-3,
            dK,
            v,
            (push - np.tanh(v / 0.01) * abs(push) * 0.05 - 1500 * 9.81) / 1510,
        ]

    start = [47e5, 0.0, 0.0, 0.0, 0.4, 0.0]
    solved = solve_ivp(rates, (0.0, times[-1]), start, "DOP853", times, rtol=1e-9, atol=1e-9, max_step=1e-3)
    return np.asarray(solved.y[[0, 1, 2, 4, 5]])


def test_lowering_with_a_counterbalance_valve_agrees_with_an_independent_solution() -> None:
    """Position within 1e-4 of the stroke, pressures within 0.1 % of 160 bar; RK4, 1 ms ticks of 10 sub-steps."""
    bench = Bench(lowering())
    names = ("load_side.p", "rod_side.p", "valve_side.p", "rod.x", "rod.v")
    recorded = bench.record(names, 1.5, 1e-4, 1e-2)
    reference = dict(zip(names, lowering_reference(np.linspace(0.0, 1.5, 151))[:, 1:], strict=True))
    assert recorded["rod.x"] == pytest.approx(reference["rod.x"], abs=1e-4 * 0.5)
    for name in names[:3]:
        assert recorded[name] == pytest.approx(reference[name], abs=0.16 * BAR)
    v = recorded["rod.v"][-50:]
    A_B = np.pi / 4 * (0.063**2 - 0.036**2)
    assert v == pytest.approx(-10 * L_MIN / A_B, rel=2e-3)  # the load doesn't run away: the pump's flow sets its speed
    assert recorded["rod_side.p"][-50:].min() > 5 * BAR


def test_lowering_agrees_between_rk4_and_rosenbrock() -> None:
    raw = lowering()
    explicit, implicit = Bench(raw), Bench({**raw, "solver": {"integrator": "rosenbrock"}})
    explicit.run(1.0, 1e-4)
    implicit.run(1.0, 1e-4)
    assert implicit["rod.x"] == pytest.approx(explicit["rod.x"], abs=1e-4 * 0.5)


def test_lowering_oscillates_with_a_high_pilot_ratio_and_a_small_pump_side_volume() -> None:
    """The known weakness of these valves, as the component's page says; with the example's values it stays away."""
    oscillation = {}
    for ratio, oil in ((3, "2 l"), (3, "0.3 l"), (9, "2 l")):
        raw = lowering()
        raw["components"]["holding"]["pilot_ratio"] = ratio
        raw["components"]["cylinder"]["dead_volume_B"] = oil
        bench = Bench(raw)
        bench.run(1.0, 1e-4)
        v = bench.record(("rod.v",), 0.5, 1e-4, 1e-3)["rod.v"]
        assert v.mean() == pytest.approx(-0.079, rel=0.2)
        oscillation[ratio, oil] = np.ptp(v)
    assert oscillation[3, "2 l"] < 1e-3
    assert oscillation[3, "0.3 l"] > 0.05
    assert oscillation[9, "2 l"] > 0.05
