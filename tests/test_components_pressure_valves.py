"""Pressure valves: relief (many points, static), reducing, sequence, counterbalance, unloading."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest
from component_bench import BAR, L_MIN, Bench, evaluate, refusal
from hypothesis import given
from hypothesis import strategies as st

from hilserver.components.base import Component, Fluid
from hilserver.components.relief_valve import ReliefValve
from hilserver.components.static_relief_valve import StaticReliefValve

pressures = st.floats(-0.9 * BAR, 350 * BAR)
RELIEF: dict[str, Any] = {
    "opening_pressure": "150 bar",
    "override": [["5 bar", "20 l/min"], ["15 bar", "60 l/min"]],
}
CURVE = [["3 bar", "11 l/min"], ["6 bar", "23 l/min"], ["10 bar", "41 l/min"], ["15 bar", "60 l/min"]]


def passive(valve: Component, ports: str, **values: float) -> dict[str, float]:
    """The valve's flows; fails if oil is lost or energy made."""
    flows = evaluate(valve, None, **values)
    q = np.array([flows.get(f"q_{port}", 0.0) for port in ports])
    p = np.array([values[f"p_{port}"] for port in ports])
    assert abs(q.sum()) <= 1e-15 * abs(q).sum()
    assert q @ p <= 1e-14 * abs(q).sum() * abs(p).max()
    return flows


# --- relief valves ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [ReliefValve, StaticReliefValve])
def test_relief_curve_comes_near_more_than_two_points(kind: type[Any]) -> None:
    """At rest, within the error that ``parameters`` reports."""
    valve = kind.model_validate({**RELIEF, "override": CURVE})
    parameters = valve.parameters(Fluid())
    assert 0.0 < parameters["fit_error"] < 0.06
    errors = []
    for over, flow in valve.override:
        p = 150 * BAR + over
        K = over / (parameters["C_1"] + parameters["C_2"] * p)
        assert evaluate(ReliefValve.model_validate(RELIEF), p_P=p, p_T=0.0, K=K)["q_T"] == pytest.approx(K * sqrt(p))
        errors.append(abs(K * sqrt(p) / flow - 1.0))
    assert max(errors) == pytest.approx(parameters["fit_error"], rel=1e-9)


def test_relief_curves_that_no_fit_comes_near_are_refused() -> None:
    points = [["5 bar", "20 l/min"], ["10 bar", "60 l/min"], ["15 bar", "62 l/min"]]
    message = refusal(ReliefValve, **{**RELIEF, "override": points})
    assert "override: no curve" in message
    assert "misses a point by" in message


@pytest.mark.parametrize(("over", "flow"), [(5, 20), (15, 60)])
def test_static_relief_passes_through_its_points(over: float, flow: float) -> None:
    valve = StaticReliefValve.model_validate(RELIEF)
    assert evaluate(valve, p_P=(152 + over) * BAR, p_T=2 * BAR)["q_T"] == pytest.approx(flow * L_MIN, rel=1e-9)


@given(p_P=pressures, p_T=pressures)
def test_static_relief_only_dissipates_and_is_shut_below_opening(p_P: float, p_T: float) -> None:
    flows = passive(StaticReliefValve.model_validate(RELIEF), "PT", p_P=p_P, p_T=p_T)
    assert flows["q_T"] >= 0.0
    if p_P - p_T < 148.9 * BAR:
        assert flows["q_T"] == 0.0


def test_static_relief_flow_is_smooth_and_rises() -> None:
    """Slopes before and behind each joint of the rounded corner meet; the flow never falls with pressure."""
    valve = StaticReliefValve.model_validate(RELIEF)

    def q(bar: float) -> float:
        return evaluate(valve, p_P=bar * BAR, p_T=0.0)["q_T"]

    for joint in (149.0, 151.0):
        before, behind = (q(joint) - q(joint - 1e-5)) / 1e-5, (q(joint + 1e-5) - q(joint)) / 1e-5
        assert before == pytest.approx(behind, abs=2e-4 * L_MIN)
    assert np.all(np.diff([q(bar) for bar in np.linspace(140, 600, 300)]) >= 0.0)


def test_static_and_dynamic_relief_settle_at_the_same_pressure() -> None:
    """Fed with 35 l/min, with RK4 at 0.1 ms."""
    ends = []
    for kind in ("relief_valve", "static_relief_valve"):
        bench = Bench(fed(f'[components.valve]\ntype = "{kind}"\nports = {{ P = "P", T = "T" }}', 35, **RELIEF))
        bench.run(2.0, 1e-4)
        ends.append(bench["P.p"])
    assert ends[0] == pytest.approx(ends[1], rel=1e-9)
    assert 155 * BAR < ends[0] < 165 * BAR


def fed(valve: str, flow: float, volume: str = "1 l", **values: Any) -> str:
    """A circuit: a flow source feeds node P with a volume; the valve with these datasheet values; a tank at T."""
    return f"""
        {valve}
        {toml(values)}
        [components.source]
        type = "flow_source"
        ports = {{ P = "P", T = "T" }}
        command = 1
        flow = "{flow} l/min"
        [components.line]
        type = "volume"
        ports = {{ P = "P" }}
        volume = "{volume}"
        [components.tank]
        type = "tank"
        ports = {{ T = "T" }}
        """


def toml(values: dict[str, Any]) -> str:
    """Datasheet values as lines of TOML."""
    return "\n".join(f"{key} = {_literal(value)}" for key, value in values.items())


def _literal(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_literal(part)}" for key, part in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_literal, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def test_static_relief_refuses_a_corner_beyond_its_first_point() -> None:
    assert "at most 5 bar" in refusal(StaticReliefValve, **RELIEF, rounding="6 bar")
