"""Pumps draw only oil that is there: their filling falls with the suction pressure, to none at the vapour pressure."""

from __future__ import annotations

from typing import Any

import pytest
from component_bench import BAR, L_MIN, Bench, evaluate

from hilserver.components.base import Fluid
from hilserver.components.fixed_pump import FixedPump
from hilserver.components.hydraulic_motor import HydraulicMotor
from hilserver.components.load_sensing_pump import LoadSensingPump
from hilserver.components.power_limited_pump import PowerLimitedPump
from hilserver.components.pressure_compensated_pump import PressureCompensatedPump

FULL = 30 * L_MIN
PUMPS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "fixed_pump": (FixedPump, {"displacement": "20 cm^3", "speed": "1500 rpm"}, {}),
    "pressure_compensated_pump": (
        PressureCompensatedPump,
        {"max_flow": "30 l/min", "set_pressure": "150 bar"},
        {"Q": FULL},
    ),
    "load_sensing_pump": (
        LoadSensingPump,
        {"max_flow": "30 l/min", "max_pressure": "200 bar"},
        {"Q": FULL, "p_LS": 90 * BAR},
    ),
    "power_limited_pump": (PowerLimitedPump, {"max_flow": "30 l/min", "max_power": "20 kW"}, {"Q": FULL}),
}
MOTOR = {"displacement": "20 cm^3", "volumetric_efficiency": 1.0, "inertia": "0.01 kg*m^2"}


@pytest.mark.parametrize("kind", PUMPS)
@pytest.mark.parametrize(
    ("p_T", "share"), [(0.0, 1.0), (-0.2 * BAR, 1.0), (-0.6 * BAR, 0.625), (-1.0 * BAR, 0.0), (2 * BAR, 1.0)]
)
def test_filling_falls_from_the_least_inlet_pressure_to_none(kind: str, p_T: float, share: float) -> None:
    """Half of the way it is that of an orifice just laminar: r(3 - r)/2 = 0.625 at r = 1/2."""
    model, sheet, values = PUMPS[kind]
    found = evaluate(model.model_validate(sheet), p_P=100 * BAR, p_T=p_T, u_drive=1.0, u_power=1.0, **values)
    assert found["q_P"] == pytest.approx(share * FULL, rel=1e-12)
    assert found["q_T"] == -found["q_P"]


def test_the_least_inlet_pressure_is_that_of_the_datasheet() -> None:
    pump = FixedPump.model_validate({**PUMPS["fixed_pump"][1], "min_inlet_pressure": "0.5 bar"})
    found = evaluate(pump, p_P=100 * BAR, p_T=-0.25 * BAR, u_drive=1.0)
    assert found["q_P"] == pytest.approx(0.625 * FULL, rel=1e-12)


def test_a_fluid_without_suction_limits_no_pump() -> None:
    """Where oil vaporises at 0 bar gauge already, the pressure of a tank can't tell whether a pump fills."""
    oil = Fluid.model_validate({"vapour_pressure": "0 bar"})
    found = evaluate(FixedPump.model_validate(PUMPS["fixed_pump"][1]), oil, p_P=100 * BAR, p_T=0.0, u_drive=1.0)
    assert found["q_P"] == pytest.approx(FULL, rel=1e-12)


@pytest.mark.parametrize(("w", "p_A", "p_B"), [(100.0, -0.6 * BAR, 50 * BAR), (-100.0, 50 * BAR, -0.6 * BAR)])
def test_a_driven_motor_fills_at_the_port_it_draws_from(w: float, p_A: float, p_B: float) -> None:
    """Its torque falls with its flow: shaft power is hydraulic power, with no other losses."""
    motor = HydraulicMotor.model_validate({**MOTOR, "hydromechanical_efficiency": 1.0})
    found = evaluate(motor, p_A=p_A, p_B=p_B, p_L=0.0, w_shaft=w, u_setting=1.0)
    full = 20e-6 / (2 * 3.141592653589793) * w
    assert found["q_B"] == pytest.approx(0.625 * full, rel=1e-9)
    assert found["T_shaft"] * w == pytest.approx(-(found["q_A"] * p_A + found["q_B"] * p_B), rel=1e-9)


def emptied(pump: dict[str, Any], more: dict[str, Any] | None = None) -> Bench:
    components = {
        "pump": pump,
        "suction": {"type": "volume", "ports": {"P": "suction"}, "volume": "1 l"},
        "tank": {"type": "tank", "ports": {"T": "tank"}},
        **(more or {}),
    }
    return Bench({"components": components, "solver": {"integrator": "rosenbrock"}})


DRIVEN = {
    "motor": (
        {"type": "hydraulic_motor", "ports": {"A": "suction", "B": "tank", "L": "tank", "shaft": "shaft"}, **MOTOR},
        {"drive": {"type": "speed_source", "ports": {"shaft": "shaft"}, "speed": "1500 rpm"}},
    ),
    "fixed_pump": (
        {"type": "fixed_pump", "ports": {"P": "tank", "T": "suction"}, **PUMPS["fixed_pump"][1]},
        {},
    ),
    "pressure_compensated_pump": (
        {
            "type": "pressure_compensated_pump",
            "ports": {"P": "tank", "T": "suction"},
            **PUMPS["pressure_compensated_pump"][1],
        },
        {},
    ),
}


@pytest.mark.parametrize("kind", DRIVEN)
def test_a_closed_suction_volume_yields_the_expansion_of_its_oil(kind: str) -> None:
    """10 s at 30 l/min out of a closed litre: down to the vapour pressure, and no void beyond rounding.

    The first step may overshoot by what a full pump draws in it at most; h/64 = 16 µs of 30 l/min are 8 mm³.
    """
    bench = emptied(*DRIVEN[kind])
    bench.run(10.0, 1e-3)
    assert bench["suction.p"] == pytest.approx(-BAR, abs=0.01 * BAR)
    assert bench["suction.content"] >= -BAR - FULL * 1e-3 / 64 / 1e-11


def test_a_closed_circuit_without_charge_starves() -> None:
    """A driven pump that leaks into its case loses the oil of its loop, then delivers nothing; 60 s."""
    pump = {**MOTOR, "volumetric_efficiency": 0.9}
    bench = Bench(
        {
            "components": {
                "pump": {
                    "type": "hydraulic_motor",
                    "ports": {"A": "low", "B": "high", "L": "tank", "shaft": "shaft"},
                    **pump,
                },
                "drive": {"type": "speed_source", "ports": {"shaft": "shaft"}, "speed": "1500 rpm"},
                "load": {
                    "type": "orifice",
                    "ports": {"A": "high", "B": "low"},
                    "nominal_flow": {"flow": "20 l/min", "drop": "100 bar"},
                },
                "low_line": {"type": "volume", "ports": {"P": "low"}, "volume": "1 l"},
                "high_line": {"type": "volume", "ports": {"P": "high"}, "volume": "1 l"},
                "tank": {"type": "tank", "ports": {"T": "tank"}},
            },
            "nodes": {"low": {"pressure": "5 bar"}, "high": {"pressure": "5 bar"}},
            "solver": {"integrator": "rosenbrock"},
        }
    )
    bench.run(60.0, 1e-3)
    assert bench["low.p"] >= -BAR
    assert bench["low.content"] >= -BAR - 2e-6 / 1e-11  # 2 ml: less than what the loop can leak
    assert abs(bench["high.p"]) < 5 * BAR
