"""Circuit runs know their error: inputs within the stages, the difference from half the step, and the verdict on it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import pi, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

from hilserver.circuit.library import standard_library
from hilserver.circuit.model import Solver, read_circuit
from hilserver.errors import HilserverError
from hilserver.rig.cycle import CycleSettings
from hilserver.rig.plan import cycle_table
from hilserver.simulation.circuit_report import write_run
from hilserver.simulation.circuit_run import CircuitRun, RunSettings, run_circuit
from hilserver.simulation.driven import course
from hilserver.simulation.step_error import Quantity, step_error
from hilserver.tick.work_cycle import cycle_value

Floats = NDArray[np.float64]
BAR, L_MIN = 1e5, 1e-3 / 60
FILLING: dict[str, Any] = {
    "components": {
        "source": {"type": "flow_source", "ports": {"P": "line", "T": "tank"}, "command": "demand", "flow": "6 l/min"},
        "line": {"type": "volume", "ports": {"P": "line"}, "volume": "1 l"},
        "tank": {"type": "tank", "ports": {"T": "tank"}},
    }
}


def run(circuit: Mapping[str, Any], cycle: Mapping[str, Any] | None, duration: float, **settings: Any) -> CircuitRun:
    library = standard_library()
    found = CycleSettings.model_validate(cycle) if cycle else None
    return run_circuit(
        read_circuit(circuit, library),
        library,
        found,
        duration,
        settings=RunSettings(**settings),
    )


# --- inputs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "integral"),
    [
        ({"points": [["0 s", 0], ["0.1 s", 1]]}, 0.05),
        ({"points": [["0 s", 0], ["0.1 s", 1]], "shape": "step"}, 0.05),
        ({"points": [["0.0251 s", 0.2], ["0.0873 s", 1]]}, 0.0251 * 0.2 + 0.0622 * 0.6 + 0.0127),
        ({"points": [["0 s", 1], ["0.05 s", 0]], "shape": "hold"}, 0.05),
    ],
)
def test_a_volume_takes_the_integral_of_its_input(entry: dict[str, object], integral: float) -> None:
    """6 l/min times the input's integral over 0.1 s, divided by 1 l / 1.5e9 Pa; held inputs lag by half a tick."""
    expected = 6 * L_MIN * integral * 1.5e9 / 1e-3
    exact = run(FILLING, {"inputs": {"demand": entry}}, 0.1)
    assert exact.series["line.p"][-1] == pytest.approx(expected, rel=2e-7)
    held = run(FILLING, {"inputs": {"demand": entry}}, 0.1, hold_inputs=True)
    if entry.get("shape") != "hold":
        assert abs(held.series["line.p"][-1] / expected - 1.0) > 3e-3


@pytest.mark.parametrize("repeat", [False, True])
def test_the_course_of_an_input_is_that_of_the_cycle(repeat: bool) -> None:
    """Straight pieces in place of STEPs and sines, within 1e-5."""
    cycle = CycleSettings.model_validate(
        {
            "repeat": repeat,
            "length": "5 s",
            "inputs": {
                "a": {"points": [["0.1 s", 0.3], ["0.4 s", -1], ["0.6 s", 0.5]], "shape": "step"},
                "b": {"points": [["0.2 s", 0.3]], "sweep": {"frequencies": ["3 Hz", "7 Hz"]}},
                "c": {"points": [["0 s", 0], ["7 s", 7]]},
            },
        }
    )
    lines = cycle_table(cycle, ["a", "b", "c"])
    for number, name in enumerate("abc"):
        times, values = course(cycle, name)
        assert (np.diff(times) > 0).all()
        assert times[-1] == 5.0 or not repeat
        at = np.linspace(0.0, 5.0, 1237)
        expected = [cycle_value(lines, number, t, 0.0) for t in at]
        assert np.interp(at, times, values) == pytest.approx(expected, abs=1e-5)


def test_a_cycle_repeats_within_the_stages_too() -> None:
    """A ramp from 0 to 1 in 0.1 s, four times: each adds half of 150 bar."""
    found = run(FILLING, {"repeat": True, "inputs": {"demand": {"points": [["0 s", 0], ["0.1 s", 1]]}}}, 0.4)
    ends = found.series["line.p"][[99, 199, 299, 399]] / BAR
    assert ends == pytest.approx([75, 150, 225, 300], rel=1e-3)


def test_ticks_and_output_steps_are_the_users() -> None:
    cycle = {"inputs": {"demand": {"points": [["0 s", 1]]}}}
    found = run(FILLING, cycle, 0.1, tick=5e-4, output_step=2e-3)
    assert found.time == pytest.approx(np.arange(1, 51) * 2e-3)
    assert found.series["line.p"] == pytest.approx(found.time * 6 * L_MIN * 1.5e9 / 1e-3, rel=1e-9)
    wrongs: list[dict[str, Any]] = [{"tick": 0.0}, {"tick": float("nan")}, {"output_step": 1.5e-3}, {"tolerance": 0.0}]
    for wrong in wrongs:
        with pytest.raises(HilserverError, match=r"tick|output step|tolerance"):
            RunSettings(**wrong)


# --- the error --------------------------------------------------------------------------------------------------------


def oscillator(substeps: int, integrator: str = "rk4") -> dict[str, Any]:
    """A mass of 1 kg on a spring and a damper, 50 Hz, released at 10 mm."""
    stiffness = (100 * pi) ** 2
    return {
        "solver": {"substeps": substeps, "integrator": integrator},
        "nodes": {"mass": {"position": "10 mm"}},
        "components": {
            "mass": {"type": "load_mass", "ports": {"rod": "mass"}, "mass": "1 kg", "gravity": "0 m/s^2"},
            "spring": {"type": "spring", "ports": {"base": "wall", "rod": "mass"}, "stiffness": f"{stiffness} N/m"},
            "wall": {"type": "velocity_source", "ports": {"rod": "wall"}},
        },
    }


@pytest.mark.parametrize(("integrator", "substeps"), [("rk4", 1), ("rk4", 2), ("euler", 200), ("rosenbrock", 20)])
def test_the_estimated_error_is_the_true_one_within_a_factor(integrator: str, substeps: int) -> None:
    """An undamped mass on a spring: x = x_0·cos(omega·t)."""
    found = run(oscillator(substeps, integrator), None, 0.2, tolerance=1.0)
    exact = 0.01 * np.cos(100 * pi * found.time)
    true = np.abs(found.series["mass.x"] - exact).max()
    assert found.error is not None
    (position,) = (d for d in found.error.deviations if d.quantity == "position")
    assert position.name == "mass"
    assert true / 3 < position.largest < 3 * true


def test_a_step_that_is_too_long_is_reported_with_a_sufficient_one() -> None:
    found = run(oscillator(1, "euler"), None, 0.2)
    assert found.error is not None
    assert found.error.too_long
    verdict = found.error.verdict()
    assert "step of 1000 µs is too long for euler" in verdict
    assert 'Use integrator = "rosenbrock"' not in verdict  # no better at this step: 18 steps per period
    needed = int(verdict.split("at least ")[1].split()[0])
    better = run(oscillator(needed, "euler"), None, 0.2)
    assert better.error is not None
    assert not better.error.too_long
    assert "at most" in better.error.verdict()


@pytest.mark.parametrize(("converges", "most"), [(True, 1280), (False, 160)])
def test_the_search_ends_where_shorter_steps_do_not_help(converges: bool, most: int) -> None:
    """A difference that is proportional to the step, and one that is as large at any step."""
    time, tried = np.arange(1.0, 101.0), []

    def run_with(substeps: int, integrator: str, halvings: int) -> list[Quantity]:
        tried.append(substeps)
        error = 8.0 / substeps if converges else np.random.default_rng([substeps, halvings]).uniform(-1.0, 1.0, 100)
        return [("pressure", "Pa", {"A": np.sin(time) + error})]

    error = step_error(Solver(integrator="rosenbrock", substeps=10), 1e-3, 100, time, run_with)
    assert max(tried) == most
    assert error.too_long
    assert ("Use at least 640 solver.substeps" in error.remedy) is converges
    assert ("Shorter steps bring them no closer" in error.remedy) is not converges


def test_a_diverging_run_states_a_converging_step() -> None:
    """20 g on a damper of 1000 N·s/m: RK4 with 1 ms amplifies 1e5 times in each step; 0.02 ms are stable."""
    circuit: dict[str, Any] = {
        "solver": {"substeps": 1},
        "nodes": {"mass": {"velocity": "0.2 m/s"}},
        "components": {
            "mass": {"type": "load_mass", "ports": {"rod": "mass"}, "mass": "0.02 kg", "gravity": "0 m/s^2"},
            "damper": {"type": "damper", "ports": {"base": "wall", "rod": "mass"}, "damping": "1000 N*s/m"},
            "push": {"type": "force_source", "ports": {"rod": "mass"}, "force": "100 N"},
            "wall": {"type": "velocity_source", "ports": {"rod": "wall"}},
        },
    }
    with pytest.raises(HilserverError, match=r"is not finite after .* Use at least \d+ solver\.substeps") as refused:
        run(circuit, None, 1.0)
    needed = int(str(refused.value).split("at least ")[1].split()[0])
    found = run({**circuit, "solver": {"substeps": needed}}, None, 1.0)
    assert found.error is not None
    assert not found.error.too_long
    assert found.series["mass.v"][-1] == pytest.approx(0.1, rel=1e-9)


def test_the_error_is_on_the_page_and_in_the_json(tmp_path: Path) -> None:
    found = run(oscillator(1), None, 0.2)
    files = {path.suffix: path for path in write_run(found, tmp_path)}
    figures = json.loads(files[".json"].read_text())
    assert found.error is not None
    assert figures["error"]["quantities"]["position"]["largest_difference"] == found.error.deviations[0].largest
    assert figures["error"]["too_long"] is found.error.too_long
    assert "half the step" in files[".html"].read_text()


def test_a_driven_lift_against_an_independent_solution() -> None:
    """A flow that swells as a STEP lifts a mass: estimate and true error in pressure are within a factor of 3."""
    circuit: dict[str, Any] = {
        "solver": {"substeps": 2},
        "nodes": {"A": {"pressure": "5 bar"}, "rod": {"position": "100 mm"}},
        "components": {
            "source": {"type": "flow_source", "ports": {"P": "A", "T": "tank"}, "command": "demand",
                       "flow": "20 l/min"},
            "tank": {"type": "tank", "ports": {"T": "tank"}},
            "cylinder": {"type": "single_acting_cylinder", "ports": {"A": "A", "rod": "rod"}, "bore": "50 mm",
                         "stroke": "1 m", "moving_mass": "50 kg", "dead_volume_A": "0.2 l",
                         "friction": {"efficiency": 1}},
            "load": {"type": "load_mass", "ports": {"rod": "rod"}, "mass": "450 kg"},
        },
    }  # fmt: skip
    cycle = {"inputs": {"demand": {"shape": "step", "points": [["0.05 s", 0], ["0.25 s", 1]]}}}
    found = run(circuit, cycle, 0.5)
    area = pi / 4 * 0.05**2

    def rates(t: float, y: Floats) -> list[float]:
        s = min(max((t - 0.05) / 0.2, 0.0), 1.0)
        flow = 20 * L_MIN * s * s * (3 - 2 * s)
        p, x, v = y
        return [1.5e9 * (flow - area * v) / (2e-4 + area * x), v, (area * p - 450 * 9.81) / 500]

    exact = solve_ivp(rates, (0, 0.5), [5 * BAR, 0.1, 0], "DOP853", found.time, rtol=1e-11, atol=1e-9).y
    true = np.abs(found.series["A.p"] - exact[0]).max()
    assert found.error is not None
    (pressure,) = (d for d in found.error.deviations if d.quantity == "pressure")
    assert true / 3 < pressure.largest < 3 * true
    assert true < 30e2
    assert sqrt(np.mean((found.series["rod.x"] - exact[1]) ** 2)) < 1e-6
