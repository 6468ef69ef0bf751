"""A circuit simulated from Python: `hilserver.simulation.simulate`."""

from __future__ import annotations

import subprocess
import sys
from math import cos, pi, sin
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hilserver.errors import ConfigurationError
from hilserver.simulation import simulate

ROOT = Path(__file__).parents[2]
STIFFNESS = 1.5e9 / 1e-3  # B/V, Pa/m³
FLOW = 6e-3 / 60.0  # m³/s
FILLING: dict[str, Any] = {
    "components": {
        "source": {
            "type": "flow_source",
            "ports": {"P": "line", "T": "tank"},
            "flow": "6 l/min",
            "command": "demand",
        },
        "line": {"type": "volume", "ports": {"P": "line"}, "volume": "1 l"},
        "tank": {"type": "tank", "ports": {"T": "tank"}},
    }
}


def test_a_constant_fills_a_volume_steadily() -> None:
    """dp/dt = B/V·Q: 150 bar/s."""
    run = simulate(FILLING, {"demand": 0.5}, until=0.5)
    assert len(run) == len(run["line.p"]) == 500
    assert run["line.p"] == pytest.approx(0.5 * FLOW * STIFFNESS * run.time, rel=1e-9)


def test_points_have_straight_lines_in_between() -> None:
    """A ramp of the flow over 0.2 s, then constant: a parabola, then a line."""
    run = simulate(FILLING, {"demand": [(0.0, 0.0), (0.2, 1.0)]}, until=0.5)
    t = run.time
    volume = FLOW * np.where(t < 0.2, t**2 / 0.4, t - 0.1)
    assert run["line.p"] == pytest.approx(STIFFNESS * volume, rel=1e-6, abs=1.0)


def test_a_function_of_time_is_followed_between_the_ticks() -> None:
    """Q sin(wt): p = B/V·Q·(1 - cos(wt))/w. Straight lines over 1 ms are (w·1 ms)²/12 = 8e-5 off, a hold is 3e-2."""
    w = 2.0 * pi * 5.0
    run = simulate(FILLING, {"demand": lambda t: sin(w * t)}, until=0.2)
    wanted = [STIFFNESS * FLOW * (1.0 - cos(w * t)) / w for t in run.time]
    assert np.abs(run["line.p"] - wanted).max() < 1.2e-4 * max(wanted)


def test_units_are_given_for_every_value() -> None:
    run = simulate(ROOT / "config/circuits/verification.toml", {"joystick": 0.0}, until=0.01)
    assert run.units.keys() == run.values.keys()
    units = {"supply.p": "Pa", "rod.x": "m", "rod.v": "m/s", "pump.Q": "m^3/s", "load.F_rod": "N", "joystick": ""}
    assert {name: run.units[name] for name in units} == units


def test_changes_are_those_of_a_switch() -> None:
    changes = {"source": {"flow": "12 l/min"}, "line": {"volume": "2 l"}}
    changed = simulate(FILLING, {"demand": 1.0}, until=0.1, changes=changes)
    assert changed["line.p"] == pytest.approx(simulate(FILLING, {"demand": 1.0}, until=0.1)["line.p"], rel=1e-12)
    table = {**FILLING, "parameters": {"V": "1 l"}}
    table["components"] = {**FILLING["components"], "line": {**FILLING["components"]["line"], "volume": "=V"}}
    half = simulate(table, {"demand": 1.0}, until=0.1, changes={"parameters": {"V": "2 l"}})
    assert half["line.p"][-1] == pytest.approx(0.5 * FLOW * STIFFNESS * 0.1, rel=1e-9)


@pytest.mark.parametrize(
    ("inputs", "until", "expected"),
    [
        ({}, 1.0, "inputs.demand: missing"),
        ({"demand": 1.0, "demnd": 1.0}, 1.0, "inputs.demnd: is not an input of the circuit. Did you mean demand?"),
        ({"demand": "x"}, 1.0, "inputs.demand: is a number"),
        ({"demand": [1.0, 2.0, 3.0]}, 1.0, "inputs.demand: is a number"),
        ({"demand": [(0.0, 1.0), (0.0, 2.0)]}, 1.0, "the times must increase"),
        ({"demand": float("nan")}, 1.0, "or not finite"),
        ({"demand": lambda t: None}, 1.0, "inputs.demand: is a number"),
        ({"demand": 1.0}, float("nan"), "until: nan is not a time"),
        ({"demand": 1.0}, 0.0, "until: 0.0 is not a time"),
    ],
)
def test_errors_are_named(inputs: dict[str, Any], until: float, expected: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        simulate(FILLING, inputs, until)
    assert expected in str(error.value)


def test_all_problems_are_named_at_once() -> None:
    with pytest.raises(ConfigurationError) as error:
        simulate(ROOT / "config/circuits/lift.toml", {"stick": 1.0})
    for text in ("inputs.joystick", "inputs.stick", "rig.A is a port of the real machine", "rig.B is a port"):
        assert text in str(error.value)


def test_an_unknown_value_names_similar_ones() -> None:
    run = simulate(FILLING, {"demand": 0.0}, until=0.01)
    with pytest.raises(KeyError, match=r"line\.q is not a value of the circuit\. Did you mean line\.p\?"):
        run["line.q"]


def test_a_script_loads_no_plots_before_it_simulates() -> None:
    code = "import hilserver.simulation, sys; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
