"""Simple mechanisms as components: rack and pinion, crane arm; each against another way to the same motion."""

from __future__ import annotations

from math import cos, pi, sqrt
from typing import Any

import numpy as np
import pytest
from component_bench import Bench, evaluate, refusal
from scipy.integrate import solve_ivp

from hilserver.components.crane_arm import CraneArm
from hilserver.components.rack_and_pinion import RackAndPinion

ARM: dict[str, Any] = {
    "length": "3 m",
    "arm_mass": "150 kg",
    "load_mass": "200 kg",
    "base_distance": "1.0 m",
    "rod_distance": "0.8 m",
    "level_angle": "90 deg",
    "retracted": "0.95 m",
}
LEVEL = sqrt(1.0 + 0.64) - 0.95
"""m: position of the piston with the arm level."""
J, WEIGHT = (150 / 3 + 200) * 9.0, (75 + 200) * 9.81 * 3.0


def push(node: str, newton: float) -> dict[str, Any]:
    return {"type": "force_source", "ports": {"rod": node}, "command": 1, "force": f"{newton} N"}


def test_rack_and_pinion_turns_with_the_rack() -> None:
    """phi = x/r, m = m_r + J/r², F = -(u·T + b·omega)/r: values of the datasheet by hand."""
    gear = RackAndPinion.model_validate(
        {"pitch_radius": "50 mm", "inertia": "2 kg*m^2", "rack_mass": "7 kg", "torque": "30 N*m", "damping": "4 N*m*s"}
    )
    found = evaluate(gear, x_rack=0.1, v_rack=0.2, u_command=0.5)
    assert found == pytest.approx({"phi": 2.0, "w": 4.0, "m_rack": 7.0 + 800.0, "F_rack": -(15.0 + 16.0) / 0.05})


def test_rack_and_pinion_is_a_load_mass_with_a_reduced_inertia() -> None:
    """The same motion as load_mass with inertia and radius, to rounding; and F·t²/(2·m)."""
    gear = {"type": "rack_and_pinion", "ports": {"rack": "a"}, "pitch_radius": "0.2 m", "inertia": "20 kg*m^2"}
    load = {
        "type": "load_mass", "ports": {"rod": "b"}, "mass": "10 kg", "inertia": "20 kg*m^2", "radius": "0.2 m",
        "direction": "0 deg",
    }  # fmt: skip
    components = {"gear": {**gear, "rack_mass": "10 kg"}, "load": load, "f": push("a", 510), "g": push("b", 510)}
    bench = Bench({"components": components})
    bench.run(1.0, 1e-3)
    assert bench["a.x"] == pytest.approx(bench["b.x"], rel=1e-12)
    assert bench["a.x"] == pytest.approx(0.5, rel=1e-12)
    assert bench["gear.phi"] == pytest.approx(2.5, rel=1e-12)


def test_crane_arm_follows_its_equation_of_the_angle() -> None:
    """J·theta'' = a·F - tau with a = dL/dtheta, integrated for theta: 2 s of swinging, 1e-7 rad."""
    components = {"arm": {"type": "crane_arm", "ports": {"rod": "rod"}, **ARM}, "f": push("rod", 14000)}
    bench = Bench({"components": components, "nodes": {"rod": {"position": f"{LEVEL!r} m"}}})
    found = bench.record(("arm.theta", "arm.w"), 2.0, 1e-3)

    def rates(t: float, y: np.ndarray[Any, Any]) -> list[float]:
        gamma = y[0] + pi / 2
        length = sqrt(1.0 + 0.64 - 1.6 * cos(gamma))
        return [y[1], (0.8 * np.sin(gamma) / length * 14000 - WEIGHT * cos(y[0])) / J]

    times = np.arange(1.0, 2001.0) * 1e-3
    expected = solve_ivp(rates, (0.0, 2.0), [0.0, 0.0], "DOP853", times, rtol=1e-11, atol=1e-12).y
    assert np.abs(found["arm.theta"] - expected[0]).max() < 1e-7
    assert np.abs(found["arm.w"] - expected[1]).max() < 1e-6
    assert np.ptp(expected[0]) > 0.3


def test_crane_arm_moves_like_the_same_arm_as_a_mechanism() -> None:
    """A mechanism of one body with the masses of bar and load beside the component: 2 s, 1e-7 rad."""
    centre = (150 * 1.5 + 200 * 3.0) / 350
    inertia = J - 350 * centre**2
    definition = {
        "bodies": {"arm": {"mass": "350 kg", "inertia": f"{inertia!r} kg*m^2", "centre": [f"{centre!r} m", "0 m"]}},
        "joints": {"pivot": {"type": "revolute", "between": ["ground", "arm"], "point": ["0 m", "0 m"]}},
        "actuators": {
            "lift": {"between": ["ground", "arm"], "pins": [["0 m", "-1 m"], ["0.8 m", "0 m"]], "retracted": "0.95 m"}
        },
    }
    components = {
        "arm": {"type": "crane_arm", "ports": {"rod": "rod"}, **ARM},
        "f": push("rod", 14000),
        "g": push("lift", 14000),
    }
    nodes = {"rod": {"position": f"{LEVEL!r} m"}}
    bench = Bench({"components": components, "mechanisms": {"m": {"definition": definition}}, "nodes": nodes})
    for _ in range(20):
        bench.run(0.1, 1e-3)
        assert bench["arm.theta"] == pytest.approx(bench["m.arm.angle"], abs=1e-7)
        assert bench["rod.x"] == pytest.approx(bench["lift.x"], abs=1e-7)


def test_crane_arm_refuses_a_cylinder_that_does_not_fit() -> None:
    assert "does not fit between its pins, which are 200." in refusal(CraneArm, **{**ARM, "retracted": "1.9 m"})
    assert "retracted: " in refusal(CraneArm, **{**ARM, "retracted": "0 m"})


def test_crane_arm_stays_finite_where_the_lever_arm_is_zero() -> None:
    """Beyond the triangle the cylinder is as if just before its dead centre."""
    arm = CraneArm.model_validate(ARM)
    for x in (-0.9, 2.0):
        found = evaluate(arm, x_rod=x, v_rod=0.1)
        assert all(np.isfinite(value) for value in found.values())
