"""Pumps and sources."""

from __future__ import annotations

from math import exp

import pytest
from component_bench import BAR, L_MIN, Bench, evaluate, refusal
from hypothesis import given
from hypothesis import strategies as st

from hilserver.components.fixed_pump import FixedPump
from hilserver.components.flow_source import FlowSource
from hilserver.components.pressure_compensated_pump import PressureCompensatedPump
from hilserver.components.pressure_source import PressureSource

FIXED = {"displacement": "28 cm^3/rev", "speed": "1500 rpm", "max_power": "11 kW", "efficiency": 0.85}
VARIABLE = {"max_flow": "60 l/min", "set_pressure": "140 bar", "control_range": "10 bar", "response_time": "20 ms"}

PUMP = """
[components.pump]
type = "pressure_compensated_pump"
ports = { P = "P", T = "T" }
max_flow = "60 l/min"
set_pressure = "140 bar"
control_range = "10 bar"
response_time = "20 ms"
max_power = "7.5 kW"
efficiency = 0.85
[components.tank]
type = "tank"
ports = { T = "T" }
"""
IN_A_CIRCUIT = (
    PUMP
    + """
[components.volume]
type = "volume"
ports = { P = "P" }
volume = "5 l"
[components.consumer]
type = "flow_source"
ports = { P = "P", T = "T" }
command = "demand"
flow = "30 l/min"
"""
)
HELD = (
    PUMP
    + """
[components.source]
type = "pressure_source"
ports = { P = "P" }
command = "level"
pressure = "100 bar"
"""
)


def test_fixed_pump_delivers_displacement_times_speed_up_to_its_power() -> None:
    """28 cm³ · 1500 1/min = 42 l/min; at 200 bar 11 kW · 0.85 / 200 bar = 28.05 l/min. By hand."""
    pump = FixedPump.model_validate(FIXED)
    assert evaluate(pump, p_P=0.0, p_T=0.0, u_drive=1.0)["q_P"] == pytest.approx(42 * L_MIN, rel=1e-12)
    assert evaluate(pump, p_P=133 * BAR, p_T=0.0, u_drive=1.0)["q_P"] == pytest.approx(42 * L_MIN, rel=1e-12)
    assert evaluate(pump, p_P=202 * BAR, p_T=2 * BAR, u_drive=1.0)["q_P"] == pytest.approx(28.05 * L_MIN, rel=1e-12)


def test_fixed_pump_without_a_power_limit_is_independent_of_pressure() -> None:
    pump = FixedPump.model_validate({"displacement": "28 cm^3/rev", "speed": "1500 rpm"})
    assert evaluate(pump, p_P=400 * BAR, p_T=0.0, u_drive=1.0)["q_P"] == pytest.approx(42 * L_MIN, rel=1e-12)


@given(p_P=st.floats(-BAR, 400 * BAR), p_T=st.floats(-BAR, 10 * BAR), share=st.floats(0, 1))
def test_pumps_conserve_oil_and_keep_within_their_power(p_P: float, p_T: float, share: float) -> None:
    fixed = evaluate(FixedPump.model_validate(FIXED), p_P=p_P, p_T=p_T, u_drive=1.0)
    limited = PressureCompensatedPump.model_validate({**VARIABLE, "max_power": "7.5 kW", "efficiency": 0.85})
    variable = evaluate(limited, p_P=p_P, p_T=p_T, u_drive=1.0, Q=share * 60 * L_MIN)
    for flows, power in ((fixed, 11e3), (variable, 7.5e3)):
        assert flows["q_P"] + flows["q_T"] == 0.0
        assert flows["q_P"] * (p_P - p_T) <= power * 0.85 * (1 + 1e-12)


@pytest.mark.parametrize(("demand", "flow", "pressure"), [(-0.1, 3.0, 139.5), (-0.5, 15.0, 137.5), (-0.9, 27.0, 135.5)])
def test_compensated_pump_settles_on_its_control_line(demand: float, flow: float, pressure: float) -> None:
    """At rest Q = k·(p_ref - p) with k = 60 l/min per 10 bar: 2.5 bar below the set pressure at 15 l/min. By hand."""
    bench = Bench(IN_A_CIRCUIT)
    bench["demand"] = demand
    bench.run(4.0, 1e-3)
    assert bench["pump.q_P"] == pytest.approx(flow * L_MIN, abs=1e-9)
    assert bench["P.p"] == pytest.approx(pressure * BAR, rel=1e-6)


@pytest.mark.parametrize(("level", "flow"), [(0.5, 60.0), (1.2, 31.875), (1.35, 28.333333), (1.4, 0.0), (2.0, 0.0)])
def test_compensated_pump_on_held_pressure(level: float, flow: float) -> None:
    """Full flow at 50 bar; 7.5 kW · 0.85 / p at 120 and 135 bar; none from the set pressure on. By hand."""
    bench = Bench(HELD)
    bench["level"] = level
    bench.run(1.0, 1e-3)
    assert bench["pump.q_P"] == pytest.approx(flow * L_MIN, rel=1e-6, abs=1e-12)


def test_compensated_pump_recovers_at_once_after_any_time_at_its_limit() -> None:
    """No wind-up: from its limit Q falls as exp(-t/tau) at once when the set pressure is reached; likewise up."""
    bench = Bench(HELD)
    bench["level"] = 0.5
    bench.run(5.0, 1e-3)
    assert bench["pump.Q"] == pytest.approx(60 * L_MIN, rel=1e-12)
    bench["level"] = 1.4
    bench.run(0.02, 1e-4)
    assert bench["pump.Q"] == pytest.approx(60 * L_MIN * exp(-1), rel=1e-6)
    bench["level"] = 2.0
    bench.run(5.0, 1e-3)
    assert bench["pump.Q"] == 0.0
    bench["level"] = 1.375  # wants 15 l/min
    bench.run(0.02, 1e-4)
    assert bench["pump.Q"] == pytest.approx(15 * L_MIN * (1 - exp(-1)), rel=1e-6)


def test_compensated_pump_reaches_its_power_limit_at_once() -> None:
    bench = Bench(HELD)
    bench["level"] = 0.5
    bench.run(1.0, 1e-3)
    bench["level"] = 1.2
    bench.run(1e-4, 1e-4)
    assert bench["pump.q_P"] == pytest.approx(31.875 * L_MIN, rel=1e-12)


def test_compensated_pump_does_not_wind_up_at_its_power_limit() -> None:
    """Held at 120 bar it rests at 31.875 l/min (by hand); from there Q falls as exp(-t/tau) at the set pressure."""
    bench = Bench(HELD)
    bench["level"] = 1.2
    bench.run(5.0, 1e-3)
    assert bench["pump.Q"] == pytest.approx(31.875 * L_MIN, rel=1e-6)
    bench["level"] = 1.4
    bench.run(0.02, 1e-4)
    assert bench["pump.Q"] == pytest.approx(31.875 * L_MIN * exp(-1), rel=1e-6)


def test_sources_scale_their_datasheet_value_with_the_command() -> None:
    assert evaluate(PressureSource.model_validate({"pressure": "200 bar"}), u_command=0.25) == {"p_P": 50 * BAR}
    flows = evaluate(FlowSource.model_validate({"flow": "20 l/min"}), u_command=-0.5)
    assert flows["q_P"] == pytest.approx(-10 * L_MIN, rel=1e-12)
    assert flows["q_P"] + flows["q_T"] == 0.0


def test_impossible_pumps_are_refused() -> None:
    assert "control_range 150 bar must be less than set_pressure 140 bar" in refusal(
        PressureCompensatedPump, **{**VARIABLE, "control_range": "150 bar"}
    )
    assert "efficiency: 1.2 is out of range: must be <= 1" in refusal(FixedPump, **{**FIXED, "efficiency": 1.2})
    assert "displacment: unknown key. Did you mean displacement?" in refusal(FixedPump, **FIXED, displacment="28 cm^3")
