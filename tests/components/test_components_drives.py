"""Pumps with a controlled displacement, hydraulic motor, shafts and what drives and loads them."""

from __future__ import annotations

from math import exp, pi, sqrt, tanh
from typing import Any

import numpy as np
import pytest
from circuit_text import component, flow_source, orifice, pressure_source, tank, volume
from component_bench import BAR, L_MIN, Bench, evaluate, refusal, root
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

from hilserver.components.base import Fluid
from hilserver.components.fixed_pump import FixedPump
from hilserver.components.hydraulic_motor import HydraulicMotor
from hilserver.components.load_sensing_pump import LoadSensingPump
from hilserver.components.power_limited_pump import PowerLimitedPump
from hilserver.components.shaft_load import ShaftLoad

RPM = 2 * pi / 60
LOAD_SENSING: dict[str, Any] = {"max_flow": "100 l/min", "margin": "20 bar", "max_pressure": "250 bar"}
POWER: dict[str, Any] = {"max_flow": "120 l/min", "max_power": "20 kW", "efficiency": 0.9, "max_pressure": "280 bar"}

# --- load-sensing pump -----------------------------------------------------------------------------------------------

LOADED = (
    tank()
    + component("pump", "load_sensing_pump", "P=P T=T LS=load", **LOAD_SENSING, control_range="5 bar")
    + volume("P", "2 l")
    + orifice("metering", "A=P B=load", "50 l/min", "15 bar")
    + volume("load", "2 l", "chamber")
    + orifice("load", "A=load B=T", "50 l/min", "DROP")
)


@pytest.mark.parametrize("drop", ["40 bar", "120 bar", "180 bar"])
def test_load_sensing_pump_keeps_its_margin_whatever_the_load(drop: str) -> None:
    """Q = C·sqrt(dp) over the metering orifice and dp = margin - Q/k: the same flow at every load. By hand."""
    C, k = 50 * L_MIN / sqrt(15 * BAR), 100 * L_MIN / (5 * BAR)
    margin = root(lambda dp: 20 * BAR - C * sqrt(dp) / k - dp, 10 * BAR, 20 * BAR)
    bench = Bench(LOADED.replace("DROP", drop))
    bench.run(3.0, 2e-4)
    assert bench["P.p"] - bench["load.p"] == pytest.approx(margin, rel=1e-6)
    assert bench["pump.q_P"] == pytest.approx(C * sqrt(margin), rel=1e-6)


SENSED = (
    tank()
    + component("pump", "load_sensing_pump", "P=P T=T LS=LS", **LOAD_SENSING, control_range="5 bar")
    + volume("P", "2 l")
    + volume("LS", "0.05 l")
    + orifice("leak", "A=P B=T", "10 l/min", "100 bar")
)


@pytest.mark.parametrize(("p_LS", "highest"), [(0.0, 20.0), (100.0, 120.0), (240.0, 250.0), (400.0, 250.0)])
def test_load_sensing_pump_at_standby_under_load_and_cut_off(p_LS: float, highest: float) -> None:
    """Pressure margin above LS, never above the cut-off; below both by Q/k of the leak. LS draws no flow at all."""
    bench = Bench(SENSED + f'[nodes.LS]\npressure = "{p_LS} bar"\n')
    bench.run(3.0, 2e-4)
    C, k = 10 * L_MIN / sqrt(100 * BAR), 100 * L_MIN / (5 * BAR)
    expected = root(lambda p: highest * BAR - C * sqrt(p) / k - p, 1 * BAR, highest * BAR)
    assert bench["P.p"] == pytest.approx(expected, rel=1e-6)
    assert bench["LS.p"] == p_LS * BAR


# --- power-limited pump ----------------------------------------------------------------------------------------------

HELD = (
    tank()
    + component("pump", "power_limited_pump", "P=P T=T", **POWER, response_time="20 ms", power="power", drive="drive")
    + pressure_source("source", "P", "level")
)


@pytest.mark.parametrize(
    ("bar", "power", "drive", "flow"),
    [
        (50, 1.0, 1.0, 120.0),  # full displacement
        (120, 1.0, 1.0, 90.0),  # 20 kW · 0.9 / 120 bar
        (240, 1.0, 1.0, 45.0),
        (240, 0.5, 1.0, 22.5),  # the setting halved
        (240, 1.0, 0.6, 27.0),  # a slower motor: the same torque
        (277.5, 1.0, 1.0, 30.0),  # cut-off: 120 l/min per 10 bar
        (300, 1.0, 1.0, 0.0),
        (240, -1.0, 1.0, 0.0),
    ],
)
def test_power_limited_pump_at_rest(bar: float, power: float, drive: float, flow: float) -> None:
    bench = Bench(HELD)
    bench["level"], bench["power"], bench["drive"] = bar / 100, power, drive
    bench.run(0.6, 1e-3)
    assert bench["pump.q_P"] == pytest.approx(flow * L_MIN, rel=1e-9, abs=1e-12)


def test_power_limited_pump_recovers_with_its_response_time() -> None:
    """From 120 l/min to 90 l/min as 1 - exp(-t/tau): until then the power is exceeded. By hand."""
    bench = Bench(HELD)
    bench["level"], bench["power"], bench["drive"] = 0.5, 1.0, 1.0
    bench.run(0.6, 1e-3)
    bench["level"] = 1.2
    bench.run(0.02, 1e-4)
    assert bench["pump.q_P"] == pytest.approx((90 + 30 * exp(-1)) * L_MIN, rel=1e-6)


@given(
    p_P=st.floats(-BAR, 400 * BAR),
    p_LS=st.floats(-BAR, 400 * BAR),
    share=st.floats(0, 1),
    drive=st.floats(-0.5, 1.5),
)
def test_controlled_pumps_lose_no_oil_and_never_run_backwards(
    p_P: float, p_LS: float, share: float, drive: float
) -> None:
    sensing = LoadSensingPump.model_validate({**LOAD_SENSING, "max_power": "20 kW", "efficiency": 0.9})
    limited = PowerLimitedPump.model_validate(POWER)
    for model, most in ((sensing, 100), (limited, 120)):
        Q = share * most * L_MIN
        flows = evaluate(model, p_P=p_P, p_T=0.0, p_LS=p_LS, u_drive=drive, u_power=1.0, Q=Q)
        assert flows["q_P"] + flows["q_T"] == 0.0
        assert 0.0 <= flows["q_P"] <= max(drive, 0.0) * most * L_MIN * (1 + 1e-12)
        if model is sensing:
            assert flows["q_P"] * p_P <= max(drive, 0.0) * 20e3 * 0.9 * (1 + 1e-12) + 1e-9


def test_drive_scales_the_flow_of_a_fixed_pump() -> None:
    """28 cm³ · 750 1/min = 21 l/min; the motor's torque allows half its power at half its speed. By hand."""
    pump = FixedPump.model_validate({"displacement": "28 cm^3/rev", "speed": "1500 rpm", "max_power": "11 kW"})
    assert evaluate(pump, p_P=BAR, p_T=0.0, u_drive=0.5)["q_P"] == pytest.approx(21 * L_MIN, rel=1e-12)
    assert evaluate(pump, p_P=200 * BAR, p_T=0.0, u_drive=0.5)["q_P"] == pytest.approx(14.025 * L_MIN, rel=1e-12)
    assert evaluate(pump, p_P=BAR, p_T=0.0, u_drive=-1.0)["q_P"] == 0.0


def test_impossible_controlled_pumps_are_refused() -> None:
    assert "control_range 25 bar must be less than margin 20 bar" in refusal(
        LoadSensingPump, **{**LOAD_SENSING, "control_range": "25 bar"}
    )
    assert "margin 20 bar must be less than max_pressure 15 bar" in refusal(
        LoadSensingPump, **{**LOAD_SENSING, "max_pressure": "15 bar"}
    )
    assert "control_range 300 bar must be less than max_pressure 280 bar" in refusal(
        PowerLimitedPump, **{**POWER, "control_range": "300 bar"}
    )
    assert "max_power: missing" in refusal(PowerLimitedPump, max_flow="120 l/min")


# --- hydraulic motor -------------------------------------------------------------------------------------------------

MOTOR: dict[str, Any] = {
    "displacement": "45 cm^3/rev",
    "volumetric_efficiency": 0.95,
    "hydromechanical_efficiency": 0.92,
    "rated_pressure": "200 bar",
    "rated_speed": "2000 rpm",
    "inertia": "0.004 kg*m^2",
}
V = 45e-6 / (2 * pi)


def motor(p_A: float, p_B: float, w: float, setting: float = 1.0, p_L: float = 0.0, **values: Any) -> dict[str, float]:
    model = HydraulicMotor.model_validate({**MOTOR, **values})
    return evaluate(model, p_A=p_A, p_B=p_B, p_L=p_L, w_shaft=w, u_setting=setting)


@pytest.mark.parametrize("sign", [1, -1])
def test_motor_has_both_efficiencies_of_its_datasheet_at_the_rated_point(sign: int) -> None:
    p_A, p_B = (200 * BAR, 0.0) if sign > 0 else (0.0, 200 * BAR)
    at = motor(p_A, p_B, sign * 2000 * RPM)
    inflow = -at["q_A"] if sign > 0 else -at["q_B"]
    assert 45e-6 * 2000 / 60 / inflow == pytest.approx(0.95, rel=1e-9)
    assert sign * at["T_shaft"] / (V * 200 * BAR) == pytest.approx(0.92, rel=1e-9)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_driven_motor_works_as_a_pump(sign: int) -> None:
    """As a pump it delivers V·n less the leakage of the rated point (1/0.95 - 1) and takes 1.08 times V·dp. By hand."""
    p_A, p_B = (0.0, 200 * BAR) if sign > 0 else (200 * BAR, 0.0)
    at = motor(p_A, p_B, sign * 2000 * RPM)
    outflow = at["q_B"] if sign > 0 else at["q_A"]
    assert outflow / (45e-6 * 2000 / 60) == pytest.approx(1 - (1 / 0.95 - 1), rel=1e-9)
    assert -sign * at["T_shaft"] / (V * 200 * BAR) == pytest.approx(1.08, rel=1e-9)


def test_case_leakage_comes_from_both_ports() -> None:
    """At rest, 100 and 40 bar: half the rated leakage coefficient (90 l/min · 0.05263 / 200 bar) from each to L."""
    C = 45e-6 * 2000 / 60 * (1 / 0.95 - 1) / (200 * BAR) / 2
    at = motor(100 * BAR, 40 * BAR, 0.0, p_L=2 * BAR)
    assert at["q_L"] == pytest.approx(C * (98 + 38) * BAR, rel=1e-9)
    assert at["q_B"] == pytest.approx(C * (60 - 38) * BAR, rel=1e-9)
    assert motor(100 * BAR, 40 * BAR, 0.0, case_share=0.0)["q_L"] == pytest.approx(0.0, abs=1e-18)


@given(
    p_A=st.floats(-BAR, 400 * BAR),
    p_B=st.floats(-BAR, 400 * BAR),
    p_L=st.floats(-BAR, 5 * BAR),
    rpm=st.floats(-3000, 3000),
    setting=st.floats(-1.2, 1.2),
    eta=st.floats(0.5, 1.0),
)
def test_motor_balances_its_power_in_all_four_quadrants(
    p_A: float, p_B: float, p_L: float, rpm: float, setting: float, eta: float
) -> None:
    """Hydraulic power in = mechanical power out + leakage + friction, both >= 0; no oil lost; forwards as backwards."""
    w, both = rpm * RPM, {"volumetric_efficiency": eta, "hydromechanical_efficiency": eta}
    at = motor(p_A, p_B, w, setting, p_L, **both)
    C = 45e-6 * 2000 / 60 * (1 / eta - 1) / (200 * BAR)
    leakage = 0.5 * C * ((p_A - p_B) ** 2 + (p_A - p_L) ** 2 + (p_B - p_L) ** 2)
    lost = (1 - eta) * V * (0.7 * abs(p_A - p_B) * tanh(w / (10 * RPM)) + 0.3 * 200 * BAR * w / (2000 * RPM))
    power_in = -(p_A * at["q_A"] + p_B * at["q_B"] + p_L * at["q_L"])
    assert leakage >= 0.0
    assert lost * w >= 0.0
    assert power_in - at["T_shaft"] * w == pytest.approx(leakage + lost * w, rel=1e-9, abs=1e-9 * (abs(power_in) + 1))
    assert at["q_A"] + at["q_B"] + at["q_L"] == pytest.approx(0.0, abs=1e-15)
    mirrored = motor(p_B, p_A, -w, setting, p_L, **both)
    assert mirrored["T_shaft"] == pytest.approx(-at["T_shaft"], rel=1e-12, abs=1e-12)
    assert mirrored["q_A"] == pytest.approx(at["q_B"], rel=1e-12, abs=1e-18)


def test_setting_changes_size_and_direction() -> None:
    ideal = {"volumetric_efficiency": 1, "hydromechanical_efficiency": 1}
    full, half = (motor(100 * BAR, 0.0, 50.0, setting, **ideal) for setting in (1.0, -0.5))
    assert half["T_shaft"] == pytest.approx(-0.5 * full["T_shaft"], rel=1e-12)
    assert half["q_A"] == pytest.approx(-0.5 * full["q_A"], rel=1e-12)


MOTOR_TABLE = """
[components.motor]
type = "hydraulic_motor"
ports = { A = "A", B = "T", L = "T", shaft = "shaft" }
displacement = "45 cm^3/rev"
volumetric_efficiency = 0.95
hydromechanical_efficiency = 0.92
rated_pressure = "200 bar"
rated_speed = "2000 rpm"
inertia = "0.004 kg*m^2"
"""
DRIVEN = (
    tank()
    + MOTOR_TABLE
    + flow_source("P=A T=T", "60 l/min", "flow")
    + volume("A", "1 l", "line")
    + component("drum", "inertia", "shaft=shaft", inertia="0.02 kg*m^2")
    + component("work", "shaft_load", "shaft=shaft", torque="60 N*m", damping="0.1 N*m*s")
)


@pytest.mark.parametrize(("integrator", "step"), [("rk4", 1e-4), ("rosenbrock", 2e-4)])
def test_motor_starts_a_drum_as_an_independent_solution_does(integrator: str, step: float) -> None:
    """From rest with 12 l/min, then 7.2 and 9 l/min: pressure, speed, angle. Equations by hand, DOP853, tight."""
    C = 45e-6 * 2000 / 60 * (1 / 0.95 - 1) / (200 * BAR)
    b = 0.08 * 0.3 * V * 200 * BAR / (2000 * RPM)

    def f(t: float, y: NDArray[np.float64], Q: float) -> list[float]:
        p, _, w = y
        rubbing = tanh(w / (10 * RPM)) * (0.08 * 0.7 * V * abs(p) + 60.0)
        return [1.5e9 / 1e-3 * (Q - V * w - C * p), w, (V * p - rubbing - (b + 0.1) * w) / 0.024]

    bench = Bench(f'[solver]\nintegrator = "{integrator}"\n{DRIVEN}')
    y = np.array([0.0, 0.0, 0.0])
    for share, duration in ((0.2, 0.5), (0.12, 0.3), (0.15, 0.2)):
        solution = solve_ivp(f, (0, duration), y, "DOP853", args=(share * 1e-3,), rtol=1e-10, atol=1e-9)
        y = solution.y[:, -1]
        bench["flow"] = share
        bench.run(duration, step)
        assert y[0] > -0.9 * BAR  # does not cavitate: the equations by hand know nothing of it
        assert bench["A.p"] == pytest.approx(y[0], abs=4e4)  # 0.1 % of 400 bar
        assert bench["shaft.w"] == pytest.approx(y[2], abs=0.01)
        assert bench["shaft.phi"] == pytest.approx(y[1], abs=2e-3)


def test_speed_source_drives_a_pump() -> None:
    """1500 rpm of 45 cm³ against 150 bar: V·n less the leakage, all of it by hand; 25 turns in a second."""
    circuit = (
        tank()
        + MOTOR_TABLE.replace('A = "A", B = "T"', 'A = "T", B = "P"')
        + component("engine", "speed_source", "shaft=shaft", speed="1500 rpm")
        + pressure_source("source", "P", pressure="150 bar")
    )
    bench = Bench(circuit)
    bench.run(1.0, 1e-3)
    C = 45e-6 * 2000 / 60 * (1 / 0.95 - 1) / (200 * BAR)
    assert bench["shaft.phi"] == pytest.approx(25 * 2 * pi, rel=1e-12)
    assert bench["motor.q_B"] == pytest.approx(45e-6 * 25 - C * 150 * BAR, rel=1e-9)
    assert bench["motor.q_L"] == pytest.approx(0.5 * C * 150 * BAR, rel=1e-9)


# --- shafts ----------------------------------------------------------------------------------------------------------

SHAFT = """
[components.drum]
type = "inertia"
ports = { shaft = "shaft" }
inertia = "2 kg*m^2"
[nodes.shaft]
speed = "300 rpm"
"""


def test_torque_turns_an_inertia() -> None:
    """w = w_0 + T·t/J, phi = w_0·t + T·t²/2J; Runge-Kutta is exact for a parabola."""
    source = (
        '[components.pull]\ntype = "torque_source"\nports = { shaft = "shaft" }\ncommand = "u"\ntorque = "50 N*m"\n'
    )
    bench = Bench(SHAFT + source)
    bench["u"] = -0.5
    bench.run(2.0, 1e-2)
    assert bench["shaft.w"] == pytest.approx(10 * pi - 12.5 * 2.0, rel=1e-12)
    assert bench["shaft.phi"] == pytest.approx(20 * pi - 12.5 * 2.0, rel=1e-12)


def test_viscous_load_lets_a_shaft_run_out_exponentially() -> None:
    bench = Bench(SHAFT + '[components.air]\ntype = "shaft_load"\nports = { shaft = "shaft" }\ndamping = "4 N*m*s"\n')
    bench.run(1.0, 1e-3)
    assert bench["shaft.w"] == pytest.approx(10 * pi * exp(-2.0), rel=1e-9)


def test_brake_stops_a_shaft_and_holds_it_there() -> None:
    """40 N·m against 2 kg·m² at 31.4 rad/s: at rest after 1.571 s, a little later by the smooth sign; for good."""
    bench = Bench(SHAFT + '[components.brake]\ntype = "shaft_load"\nports = { shaft = "shaft" }\ntorque = "40 N*m"\n')
    bench.run(1.4, 1e-3)
    assert bench["shaft.w"] == pytest.approx(10 * pi - 20 * 1.4, abs=0.02)
    bench.run(2.0, 1e-3)
    assert abs(bench["shaft.w"]) < 1e-6
    assert bench["shaft.phi"] == pytest.approx((10 * pi) ** 2 / 40, rel=0.01)


@given(w=st.floats(-500, 500), command=st.floats(-1, 1))
def test_shaft_load_only_dissipates_energy(w: float, command: float) -> None:
    load = ShaftLoad.model_validate({"torque": "60 N*m", "damping": "0.4 N*m*s"})
    assert evaluate(load, w_shaft=w, u_command=command)["T_shaft"] * w <= 0.0


def test_impossible_motors_are_refused() -> None:
    assert "must be at least 5 times the reversal_speed" in refusal(
        HydraulicMotor, **{**MOTOR, "rated_speed": "30 rpm"}
    )
    assert "volumetric_efficiency: 1.05 is out of range: must be <= 1" in refusal(
        HydraulicMotor, **{**MOTOR, "volumetric_efficiency": 1.05}
    )
    assert HydraulicMotor.model_validate(MOTOR).parameters(Fluid())["V"] == pytest.approx(V, rel=1e-12)
