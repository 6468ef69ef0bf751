"""Sensors: signals with a lag."""

from __future__ import annotations

from math import exp

import pytest
from circuit_text import component, pressure_source, tank
from component_bench import BAR, L_MIN, Bench, evaluate, refusal

from hilserver.components.flow_sensor import FlowSensor
from hilserver.components.position_sensor import PositionSensor
from hilserver.components.pressure_sensor import PressureSensor

SENSORS = (
    pressure_source("supply", "supply", pressure="102 bar")
    + tank("tank", pressure="100 bar")
    + component("pressure", "pressure_sensor", "P=supply", signal="p_supply", time_constant="10 ms")
    + component(
        "flow",
        "flow_sensor",
        "A=supply B=tank",
        signal="q_line",
        nominal_flow={"flow": "40 l/min", "drop": "2 bar"},
        time_constant="5 ms",
    )
)
POSITION_LOOP = (
    component("load", "load_mass", "rod=rod", mass="100 kg", gravity="0 m/s^2")
    + component("position", "position_sensor", "rod=rod", signal="x_load", time_constant="1 ms")
    + pressure_source("source", "pilot", "x_load", "1 bar")
    + '[nodes.rod]\nposition = "30 mm"\n'
)


def test_readings_follow_with_a_first_order_lag() -> None:
    """1 - exp(-t/tau) of 102 bar and of 40 l/min after 10 ms. Analytic."""
    bench = Bench(SENSORS)
    bench.run(0.01, 1e-4)
    assert bench["p_supply"] == pytest.approx(102 * BAR * (1 - exp(-1)), rel=1e-6)
    assert bench["q_line"] == pytest.approx(40 * L_MIN * (1 - exp(-2)), rel=1e-6)


def test_a_sensor_may_lead_a_source() -> None:
    bench = Bench(POSITION_LOOP)
    bench.run(0.05, 1e-4)
    assert bench["x_load"] == pytest.approx(0.03, rel=1e-9)
    assert bench["pilot.p"] == pytest.approx(0.03 * BAR, rel=1e-9)


def test_flow_sensor_is_a_restriction_in_its_line() -> None:
    sensor = FlowSensor.model_validate({"nominal_flow": {"flow": "40 l/min", "drop": "2 bar"}})
    result = evaluate(sensor, p_A=10 * BAR, p_B=12 * BAR, y=0.0)
    assert result["q_B"] == pytest.approx(-40 * L_MIN, rel=1e-12)
    assert result["q_A"] + result["q_B"] == 0.0
    assert result["u_signal"] == 0.0
    assert result["dy"] == pytest.approx(-40 * L_MIN / 1e-3, rel=1e-12)


def test_readings_start_at_their_initial_values() -> None:
    assert PressureSensor.model_validate({"initial": "50 bar"}).initial == 50 * BAR
    assert evaluate(PositionSensor.model_validate({}), x_rod=0.1, y=0.03) == {
        "u_signal": 0.03,
        "dy": pytest.approx(0.07 / 1e-3),
    }


def test_a_sensor_without_lag_is_refused() -> None:
    for kind in (PressureSensor, PositionSensor):
        assert 'time_constant: "0 ms" is out of range: must be > 0' in refusal(kind, time_constant="0 ms")
