"""Characteristics by a component's own equations go through the points of its datasheet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hilserver.errors import HilserverError
from hilserver.simulation.characteristics import component_curve, components_with_curves

BAR, L_MIN = 1e5, 1e-3 / 60.0
PRESSURE, COMMAND, SPEED = ("Pa", "m^3/s"), ("", "m^3/s"), ("m/s", "N")
FLOW = {"flow": "40 l/min", "drop": "35 bar"}
CIRCUIT: dict[str, Any] = {
    "fluid": {"density": "870 kg/m^3"},
    "components": {
        "tank": {"type": "tank", "ports": {"T": "t"}},
        "pump": {
            "type": "pressure_compensated_pump",
            "ports": {"P": "s", "T": "t"},
            "max_flow": "60 l/min",
            "set_pressure": "140 bar",
        },
        "relief": {
            "type": "relief_valve",
            "ports": {"P": "s", "T": "t"},
            "opening_pressure": "150 bar",
            "override": [["5 bar", "20 l/min"], ["15 bar", "60 l/min"]],
        },
        "valve": {
            "type": "proportional_valve_4_3",
            "ports": {"P": "s", "T": "t", "A": "rig.A", "B": "rig.B"},
            "command": "joystick",
            "nominal_flow": {**FLOW, "per": "edge"},
            "f45": "30 Hz",
        },
        "orifice": {"type": "orifice", "ports": {"A": "s", "B": "t"}, "nominal_flow": FLOW},
        "friction": {"type": "friction", "ports": {"rod": "rod"}, "static": "500 N", "coulomb": "300 N"},
        "mine": {"type": "my_valve", "ports": {"P": "s", "T": "t"}},
    },
}


def curve(name: str, units: tuple[str, str], low: float, high: float, at: list[float], value: str = "") -> Any:
    """The values of a curve at some places."""
    found = component_curve(CIRCUIT, name, units, low, high, value)
    assert found.x[0] == pytest.approx(low)
    return np.interp(at, found.x, found.y)


def test_the_relief_valve_passes_both_datasheet_points() -> None:
    at = [150.0 * BAR, 155.0 * BAR, 165.0 * BAR]
    flows = curve("relief", PRESSURE, 100 * BAR, 170 * BAR, at)
    assert flows / L_MIN == pytest.approx([0.0, 20.0, 60.0], abs=0.15)
    assert curve("relief", PRESSURE, 100 * BAR, 170 * BAR, at, "q_T") == pytest.approx(flows)
    assert curve("relief", PRESSURE, 100 * BAR, 170 * BAR, at, "q_P") == pytest.approx(-flows)


def test_the_pump_delivers_its_flow_up_to_its_set_pressure() -> None:
    flows = curve("pump", PRESSURE, 1 * BAR, 150 * BAR, [20.0 * BAR, 100.0 * BAR, 150.0 * BAR])
    assert flows / L_MIN == pytest.approx([60.0, 60.0, 0.0], abs=0.1)


def test_the_orifice_has_its_nominal_flow_in_both_directions_and_a_square_root() -> None:
    flows = curve("orifice", PRESSURE, -40 * BAR, 40 * BAR, [-35.0 * BAR, 0.0, 35.0 * BAR / 4.0, 35.0 * BAR])
    assert flows / L_MIN == pytest.approx([-40.0, 0.0, 20.0, 40.0], abs=0.2)


def test_the_valve_has_its_nominal_flow_at_full_command() -> None:
    flows = curve("valve", COMMAND, -1.0, 1.0, [-1.0, -0.5, 0.0, 0.5, 1.0])
    assert flows / L_MIN == pytest.approx([-40.0, -20.0, 0.0, 20.0, 40.0], abs=0.1)


def test_friction_over_speed_is_the_textbooks() -> None:
    """F_C beyond the Stribeck speed, plus the viscous part, 500 N per m/s if nothing is given."""
    forces = curve("friction", SPEED, -0.1, 0.1, [-0.1, -0.05, 0.05, 0.1])
    assert forces == pytest.approx([-350.0, -325.0, 325.0, 350.0], rel=1e-3)


@pytest.mark.parametrize(
    ("name", "units", "problem"),
    [
        ("releif", PRESSURE, "has no component"),
        ("mine", PRESSURE, "of your own"),
        ("relief", ("Pa", "m"), "no curve over these units"),
        ("relief", COMMAND, "no curve of flow over a command"),
        ("relief", SPEED, "no curve of force over speed"),
        ("tank", PRESSURE, "fewer than two ports"),
    ],
)
def test_what_has_no_curve_is_said(name: str, units: tuple[str, str], problem: str) -> None:
    with pytest.raises(HilserverError, match=problem):
        component_curve(CIRCUIT, name, units, 0.0, 1.0)


def test_components_with_curves() -> None:
    assert components_with_curves(CIRCUIT) == ["pump", "relief", "valve", "orifice", "friction"]
