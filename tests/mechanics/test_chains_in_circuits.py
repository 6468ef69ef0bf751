"""Chains that a circuit drives: against absolute coordinates, which share no equation with them, and by themselves."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chain_bench import BALL
from component_bench import Bench
from scipy.integrate import solve_ivp

from hilserver.bench.chain_runs import run_fixed
from hilserver.compiler import standard_program
from hilserver.errors import ConfigurationError
from hilserver.mechanics.cutting import tree_of
from hilserver.mechanics.initial import start_of
from hilserver.mechanics.model import read_mechanism
from hilserver.numerics.arrays import Floats

CONFIG = Path(__file__).parents[2] / "config" / "mechanisms"


def table(name: str) -> dict[str, Any]:
    return tomllib.loads((CONFIG / f"{name}.toml").read_text())


def circuit(definition: dict[str, Any], solver: dict[str, Any], **components: Any) -> dict[str, Any]:
    return {"solver": solver, "components": components, "mechanisms": {"m": {"definition": definition}}}


PISTONS = {
    "boom_force": {"type": "force_source", "ports": {"rod": "boom"}, "force": "60 kN"},
    "arm_force": {"type": "force_source", "ports": {"rod": "arm"}, "force": "-10 kN"},
    "boom_piston": {
        "type": "load_mass",
        "ports": {"rod": "boom"},
        "mass": "40 kg",
        "gravity": "0 m/s^2",
    },
}


@pytest.mark.parametrize("name", ["excavator", "boom_heavy_cylinder", "four_bar"])
def test_both_methods_move_a_planar_mechanism_alike(name: str) -> None:
    """0.5 s: positions within 1e-7 m (or rad), with forces and a piston's mass at the excavator's nodes."""
    found = {}
    for method in ("absolute", "recursive"):
        components = PISTONS if name == "excavator" else {}
        bench = Bench(circuit(table(name) | {"method": method}, {"substeps": 1}, **components))
        names = tuple(n for n in bench.packed.values if n.endswith((".x", ".phi")) and n.count(".") == 1)
        found[method] = bench.record(names, 0.5, 1e-3)
    assert found["absolute"]
    for node, course in found["absolute"].items():
        assert found["recursive"][node] == pytest.approx(course, abs=1e-7)
        assert np.ptp(course) > 1e-3


def test_steps_that_share_a_solution() -> None:
    """Ten steps of 0.1 ms with one solution in their middle: 0.2 s within 1e-5 m of one in every evaluation."""
    ends = []
    for shared in ({}, {"mechanics_substeps": 1}):
        solver = {"substeps": 10, **shared}
        bench = Bench(circuit(table("excavator") | {"method": "recursive"}, solver, **PISTONS))
        bench.run(0.2, 1e-4)
        ends.append([bench[f"{node}.x"] for node in ("boom", "arm", "bucket")])
    assert ends[1] == pytest.approx(ends[0], abs=1e-5)
    assert ends[1] != ends[0]


def slider_crank_angle(t: float, speed: float) -> float:
    """Angle after t s of the free slider-crank of config/mechanisms, from 45° at ``speed`` rad/s, without gravity.

    From the conservation of energy alone: the reduced inertia J(phi) gives w = w_0·sqrt(J(phi_0)/J(phi)).
    """
    r, rod, J_crank, m_rod, J_rod, m_slider = 0.1, 0.35, 0.0033, 1.2, 0.0145, 2.0

    def reduced(phi: float) -> float:
        """Twice the kinetic energy at 1 rad/s. The rod's centre is at its middle, the crank's at half its length."""
        sine, cosine = r * np.sin(phi), r * np.cos(phi)
        slope = -cosine / np.sqrt(rod**2 - sine**2)  # of the rod's angle over the crank's
        slider = -sine + sine * slope
        x, y = -sine + 0.5 * sine * slope, 0.5 * cosine
        return float(
            J_crank + (0.5 * r) ** 2 + m_rod * (x * x + y * y) + J_rod * slope * slope + m_slider * slider * slider
        )

    first = reduced(np.pi / 4)
    turned = solve_ivp(
        lambda _, phi: [speed * np.sqrt(first / reduced(phi[0]))], (0, t), [np.pi / 4], "DOP853", rtol=1e-11, atol=1e-11
    )
    return float(turned.y[0, -1] - np.pi / 4)


def test_shared_solutions_are_of_second_order_on_a_fast_mechanism() -> None:
    """At 600 rpm against the conservation of energy: half the time between solutions leaves a quarter of the error."""
    definition = table("slider_crank") | {"method": "recursive", "gravity": ["0 m/s^2", "0 m/s^2"]}
    definition["joints"]["shaft"]["start_speed"] = "600 rpm"
    motor = {"type": "torque_source", "ports": {"shaft": "crank_torque"}, "torque": "1 N*m", "command": 0}
    exact, errors = slider_crank_angle(0.2, 20 * np.pi), {}
    for solutions in (5, 10, 20, None):
        shared = {} if solutions is None else {"mechanics_substeps": solutions}
        bench = Bench(circuit(definition, {"substeps": 20, **shared}, motor=motor))
        bench.record(("crank_torque.phi",), 0.2, 5e-5, 1e-3)
        errors[solutions] = abs(bench["crank_torque.phi"] - exact)
    assert errors[None] < 5e-6  # the drawing is rounded to 0.1 µm
    assert errors[5] < 1e-3
    assert errors[10] < errors[5] / 3.5
    assert errors[20] < errors[10] / 3.5, errors


def test_a_chain_in_space_by_a_circuit_and_by_itself() -> None:
    """The spatial slider-crank, a constant torque, 1 s: the circuit's integrator and the chain's own, 1e-6 rad."""
    definition = table("spatial_slider_crank")
    torque = {"type": "torque_source", "ports": {"shaft": "crank_torque"}, "torque": "0.01 N*m"}
    bench = Bench(circuit(definition, {"substeps": 1}, motor=torque))
    angles = bench.record(("crank_torque.phi", "m.shaft.angle", "m.cross.angle_1"), 1.0, 1e-3)

    def course(times: Floats) -> Floats:
        return np.full((len(times), 1), 0.01)

    tree = tree_of(read_mechanism(definition))
    alone = run_fixed(standard_program(), tree, start_of(tree), 1.0, 1e-3, effort=course)
    shaft = tree.coordinate_names().index("shaft")
    assert angles["m.shaft.angle"] == pytest.approx(alone.states[1:, shaft], abs=1e-6)
    assert angles["crank_torque.phi"] == pytest.approx(angles["m.shaft.angle"], abs=1e-8)  # integrated by itself
    assert np.ptp(angles["m.cross.angle_1"]) > 0.1


def test_a_ball_in_a_circuit_keeps_its_quaternion() -> None:
    bench = Bench(circuit(BALL, {"substeps": 1}))
    bench["m.ball.speed_z"] = 40.0
    bench.run(1.0, 1e-3)
    quaternion = [bench[f"m.ball.{part}"] for part in "wxyz"]
    assert np.linalg.norm(quaternion) == pytest.approx(1.0, abs=1e-6)
    assert abs(quaternion[0]) < 1.0


def test_the_boom_with_its_hydraulics_by_both_methods() -> None:
    """Valve, cylinder and boom of the source, lifting for 1 s: position within 1e-7 m, pressures within 100 Pa."""
    ends = {}
    for method in ("absolute", "recursive"):
        raw = tomllib.loads((CONFIG.parent / "circuits" / "boom.toml").read_text())
        boom = raw["mechanisms"]["boom"]
        definition = table(Path(boom.pop("file")).stem) | {"method": method}
        raw["mechanisms"]["boom"] = boom | {"definition": definition}
        bench = Bench(raw)
        bench["joystick"] = 0.5
        bench.run(1.0, 1e-4)
        ends[method] = [bench[name] for name in ("rod.x", "A.p", "B.p")]
    assert ends["recursive"][0] == pytest.approx(ends["absolute"][0], abs=1e-7)
    assert ends["recursive"][1:] == pytest.approx(ends["absolute"][1:], abs=100.0)


def test_a_planar_linkage_with_its_pins_all_driven_is_refused() -> None:
    """A loop is cut at a joint whose angle nobody needs."""
    definition = table("four_bar") | {"method": "recursive"}
    definition["actuators"] = {f"motor_{name}": {"type": "rotary", "joint": name} for name in definition["joints"]}
    with pytest.raises(ConfigurationError, match=r"actuators\.motor_.*\.joint: every joint of this loop is driven"):
        Bench(circuit(definition, {"substeps": 1}))
