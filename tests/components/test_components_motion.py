"""Single-acting and double-rod cylinders, cushions, and what moves, holds and stops a mechanical node."""

from __future__ import annotations

from math import cos, exp, pi, sin, sqrt
from typing import Any

import numpy as np
import pytest
from circuit_text import component, flow_source, orifice, tank
from component_bench import BAR, L_MIN, Bench, evaluate, refusal
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

from hilserver.components.cylinder import Cylinder
from hilserver.components.double_rod_cylinder import DoubleRodCylinder
from hilserver.components.end_stop import EndStop
from hilserver.components.single_acting_cylinder import SingleActingCylinder

DATA: dict[str, Any] = {
    "bore": "50 mm",
    "stroke": "200 mm",
    "moving_mass": "9 kg",
    "dead_volume_A": "0.1 l",
}
WITH_ROD: dict[str, Any] = {**DATA, "rod_diameter": "28 mm", "dead_volume_B": "0.1 l"}
AREA, ANNULUS = pi / 4 * 0.050**2, pi / 4 * (0.050**2 - 0.028**2)


def mass(kg: float, node: str = "rod") -> str:
    """A load that moves level."""
    return component(f"{node}_load", "load_mass", f"rod={node}", mass=f"{kg} kg", direction="0 deg")


# --- double-rod cylinder ---------------------------------------------------------------------------------------------


@given(
    law=st.sampled_from(["efficiency", "stribeck", "lugre"]),
    p_A=st.floats(-BAR, 350 * BAR),
    p_B=st.floats(-BAR, 350 * BAR),
    x=st.floats(-0.001, 0.201),
    v=st.floats(-2, 2),
    bend=st.floats(-1, 1),
)
def test_double_rod_cylinder_is_the_same_in_both_directions(
    law: str, p_A: float, p_B: float, x: float, v: float, bend: float
) -> None:
    """Pressures swapped, position and motion mirrored: force mirrored, flows swapped; cushions and stops too."""
    cushion = {"length": "20 mm", "throttle": {"flow": "5 l/min", "drop": "100 bar"}}
    model = DoubleRodCylinder.model_validate(
        {**WITH_ROD, "friction": {"law": law}, "cushion_A": cushion, "cushion_B": cushion, "leakage": "0.01 l/min/bar"}
    )
    z = bend * 2e-4
    one = evaluate(model, p_A=p_A, p_B=p_B, x_rod=x, v_rod=v, z=z)
    other = evaluate(model, p_A=p_B, p_B=p_A, x_rod=0.2 - x, v_rod=-v, z=-z)
    size = abs(one["F_rod"]) + AREA * (abs(p_A) + abs(p_B)) + abs(one["F_end"]) + 1.0
    assert other["F_rod"] == pytest.approx(-one["F_rod"], abs=1e-9 * size)
    assert other["q_A"] == pytest.approx(one["q_B"], rel=1e-12, abs=1e-18)
    assert other["C_A"] == pytest.approx(one["C_B"], rel=1e-9)


def test_double_rod_cylinder_pushes_and_pulls_with_its_annulus() -> None:
    """50/28: 13.48 cm²; 100 bar are 13.48 kN. The ambient pressures of both rods cancel. By hand."""
    model = DoubleRodCylinder.model_validate({**WITH_ROD, "ambient_pressure": "5 bar"})
    forces = [evaluate(model, p_A=a, p_B=b, x_rod=0.1, v_rod=0, z=0)["F_rod"] for a, b in ((1e7, 0.0), (0.0, 1e7))]
    assert forces == pytest.approx([13_477.4, -13_477.4], abs=0.1)


def test_oil_in_a_double_rod_cylinder_is_a_spring_of_the_analytic_frequency() -> None:
    """Ports closed, piston in the middle: omega² = 2·A²·B/(V·m). A push of 1 mm/s swings as v·cos(omega·t)."""
    circuit = (
        component("cylinder", "double_rod_cylinder", "A=A B=B rod=rod", **WITH_ROD, friction={"efficiency": 1})
        + mass(91)
        + '[nodes.rod]\nposition = "100 mm"\nvelocity = "0.001 m/s"\n'
    )
    omega = sqrt(2 * ANNULUS**2 * 1.5e9 / (1e-4 + ANNULUS * 0.1) / 100)
    bench = Bench(circuit)
    bench.run(0.03, 5e-5)
    assert bench["rod.v"] == pytest.approx(0.001 * cos(omega * 0.03), abs=2e-7)


# --- single-acting cylinder ------------------------------------------------------------------------------------------

SINGLE = (
    component(
        "cylinder",
        "single_acting_cylinder",
        "A=A rod=rod",
        bore="40 mm",
        stroke="100 mm",
        moving_mass="3 kg",
        dead_volume_A="0.05 l",
        spring_force="300 N",
        spring_stiffness="5 N/mm",
        friction={"efficiency": 0.9, "factor": "constant"},
    )
    + tank()
    + flow_source("P=A T=T", "6 l/min", "flow")
    + orifice("drain", "A=A B=T", "4 l/min", "10 bar")
)


def test_single_acting_cylinder_extends_and_returns_as_an_independent_solution_does() -> None:
    """Out by 6 l/min for 0.6 s, back by its spring through the drain. Equations by hand, DOP853, tight."""
    area, C, p_tr = pi / 4 * 0.04**2, 4 * L_MIN / sqrt(10 * BAR), 1e5

    def f(t: float, y: NDArray[np.float64], Q: float) -> list[float]:
        p, x, v = y
        drained = C * (sqrt(p) if p > p_tr else sqrt(p_tr) * p / p_tr * (3 - abs(p) / p_tr) / 2)
        rubbing = 0.1 * abs(area * p) * np.tanh(v / 0.01)
        depth = -x
        soft = min(max(depth / 1e-4, 0.0), 1.0)
        stop = soft * soft * (3 - 2 * soft) * max(1e8 * depth - 2e5 * v, 0.0) if depth > 0 else 0.0
        force = area * p - 300 - 5e3 * x - rubbing + stop
        return [1.5e9 / (5e-5 + area * max(x, 0.0)) * (Q - drained - area * v), v, force / 3]

    at_rest = 300 / 1e8
    for _ in range(50):  # the stop's spring carries 300 N: 1e8·d·step(d) = 300
        soft = at_rest / 1e-4
        at_rest = 300 / 1e8 / (soft * soft * (3 - 2 * soft)) * 0.5 + 0.5 * at_rest
    bench = Bench(SINGLE)
    bench["rod.x"] = -at_rest
    y = np.array([0.0, -at_rest, 0.0])
    for share, duration in ((1.0, 0.6), (0.0, 0.4)):
        solution = solve_ivp(f, (0, duration), y, "DOP853", args=(share * 6 * L_MIN,), rtol=1e-10, atol=1e-11)
        y = solution.y[:, -1]
        bench["flow"] = share
        bench.run(duration, 2e-5)
        assert bench["rod.x"] == pytest.approx(y[1], abs=1e-5)  # 1e-4 of the stroke
        assert bench["A.p"] == pytest.approx(y[0], abs=1e3)


def test_single_acting_cylinder_at_rest_is_where_its_spring_is() -> None:
    """A·p = F_0 + K·x: 4 bar on 12.57 cm² are 502.7 N: 40.5 mm. By hand."""
    model = SingleActingCylinder.model_validate(
        {**DATA, "bore": "40 mm", "spring_force": "300 N", "spring_stiffness": "5 N/mm"}
    )
    assert evaluate(model, p_A=4 * BAR, x_rod=0.040531, v_rod=0.0, z=0.0)["F_rod"] == pytest.approx(0.0, abs=0.01)
    assert evaluate(model, p_A=0.0, x_rod=0.0, v_rod=0.1, z=0.0)["q_A"] == pytest.approx(-1.25664e-4, rel=1e-5)


# --- cushions --------------------------------------------------------------------------------------------------------

K_CUSHION = (0.75 * AREA) ** 3 * 100e5 / (60 * L_MIN) ** 2
CUSHIONED = (
    component(
        "cylinder",
        "cylinder",
        "A=T B=T rod=rod",
        **WITH_ROD,
        friction={"efficiency": 1},
        cushion_A={"length": "20 mm", "closing": "0.001 mm", "throttle": {"flow": "60 l/min", "drop": "100 bar"}},
    )
    + tank()
    + mass(491)
    + "[nodes.rod]\n"
)


def test_cushion_slows_a_mass_down_exponentially_over_its_length() -> None:
    """m·dv/dt = -k·v², closed at once: v = v_0·exp(-k·s/m) after the length s, k = A_c³·dp/Q² by hand."""
    bench = Bench(CUSHIONED + 'position = "40 mm"\nvelocity = "-0.4 m/s"\n')
    run = bench.record(("rod.x", "rod.v", "cylinder.F_end"), 0.3, 2e-5)
    at = int(np.argmax(run["rod.x"] < 0.005))
    s = 0.020 - run["rod.x"][at]
    assert run["rod.v"][at] == pytest.approx(-0.4 * exp(-K_CUSHION * s / 500), rel=1e-4)
    assert run["cylinder.F_end"][at] == pytest.approx(-K_CUSHION * run["rod.v"][at] ** 2, rel=1e-9)
    assert run["rod.v"][run["rod.x"] > 0.0205] == pytest.approx(-0.4, rel=1e-9)


def test_cushion_lets_the_piston_leave_freely() -> None:
    bench = Bench(CUSHIONED + 'position = "2 mm"\nvelocity = "0.4 m/s"\n')
    bench.run(0.1, 1e-4)
    assert bench["rod.v"] == pytest.approx(0.4, rel=1e-9)


@given(x=st.floats(0, 0.2), v=st.floats(-2, 2), closing=st.floats(1, 20))
def test_cushions_only_dissipate_energy_and_grow_with_depth(x: float, v: float, closing: float) -> None:
    cushion = {"length": "20 mm", "closing": f"{closing} mm", "throttle": {"flow": "5 l/min", "drop": "100 bar"}}
    model = Cylinder.model_validate({**WITH_ROD, "cushion_A": cushion, "cushion_B": cushion})
    force = [evaluate(model, p_A=0.0, p_B=0.0, x_rod=x_, v_rod=v, z=0.0)["F_end"] for x_ in (x, 0.5 * x)]
    assert force[0] * v >= 0.0
    if v < 0.0:
        assert force[1] <= force[0]
    if 0.02 <= x <= 0.18:
        assert force[0] == 0.0


# --- springs, dampers, sources, stops --------------------------------------------------------------------------------

ON_A_SPRING = f"""
{mass(50)}
[components.spring]
type = "spring"
ports = {{ rod = "rod", base = "wall" }}
stiffness = "20 N/mm"
relaxed = "10 mm"
[components.damper]
type = "damper"
ports = {{ rod = "rod", base = "wall" }}
damping = "400 N*s/m"
[components.wall]
type = "velocity_source"
ports = {{ rod = "wall" }}
initial = "100 mm"
[nodes.rod]
position = "140 mm"
"""


def test_mass_on_spring_and_damper_follows_the_analytic_solution() -> None:
    """x = 110 mm + 30 mm·exp(-d·t)·(cos(w·t) + d/w·sin(w·t)), d = D/2m, w² = K/m - d²; the wall stands still."""
    bench = Bench(ON_A_SPRING)
    bench.run(0.5, 1e-3)
    d = 400 / 100
    w = sqrt(20e3 / 50 - d * d)
    expected = 0.11 + 0.03 * exp(-d * 0.5) * (cos(w * 0.5) + d / w * sin(w * 0.5))
    assert bench["rod.x"] == pytest.approx(expected, abs=1e-8)
    assert bench["wall.x"] == 0.1
    assert bench["spring.F_rod"] == -bench["spring.F_base"]
    assert bench["spring.F_rod"] == pytest.approx(-20e3 * (expected - 0.11), abs=1e-3)


def test_two_masses_on_a_spring_keep_their_momentum() -> None:
    circuit = f"""
{mass(10, "one")}
{mass(30, "two")}
[components.spring]
type = "spring"
ports = {{ rod = "one", base = "two" }}
stiffness = "5 N/mm"
[components.damper]
type = "damper"
ports = {{ rod = "one", base = "two" }}
damping = "200 N*s/m"
[nodes]
one = {{ velocity = "2 m/s" }}
"""
    bench = Bench(circuit)
    bench.run(3.0, 1e-3)
    assert 10 * bench["one.v"] + 30 * bench["two.v"] == pytest.approx(20.0, rel=1e-9)
    assert bench["one.v"] == pytest.approx(0.5, rel=1e-6)


def test_force_source_accelerates_a_mass() -> None:
    """x = F·t²/2m; Runge-Kutta is exact for a parabola."""
    force = '[components.push]\ntype = "force_source"\nports = { rod = "rod" }\ncommand = "u"\nforce = "2 kN"\n'
    bench = Bench(mass(50) + force)
    bench["u"] = -0.5
    bench.run(0.5, 1e-2)
    assert bench["rod.x"] == pytest.approx(-20 * 0.125, rel=1e-12)


def test_velocity_source_moves_its_node() -> None:
    source = '[components.hand]\ntype = "velocity_source"\nports = { rod = "rod" }\ncommand = "u"\n'
    bench = Bench(source + 'velocity = "0.2 m/s"\ninitial = "50 mm"\n')
    bench["u"] = -0.5
    bench.run(0.25, 1e-3)
    assert bench["rod.x"] == pytest.approx(0.05 - 0.025, rel=1e-9)
    assert bench["rod.v"] == -0.1


def test_position_source_follows_its_signal_without_overshoot() -> None:
    """Step of 50 mm: x = 50 mm·(1 - (1 + t/tau)·exp(-t/tau)), v its derivative: position and velocity fit. Analytic."""
    source = '[components.shaker]\ntype = "position_source"\nports = { rod = "rod" }\ncommand = "u"\n'
    bench = Bench(source + 'travel = "100 mm"\ntime_constant = "20 ms"\n')
    bench["u"] = 0.5
    bench.run(0.03, 1e-4)
    assert bench["rod.x"] == pytest.approx(0.05 * (1 - 2.5 * exp(-1.5)), rel=1e-6)
    assert bench["rod.v"] == pytest.approx(0.05 * 1.5 / 0.02 * exp(-1.5), rel=1e-6)


@pytest.mark.parametrize(("direction", "x"), [("90 deg", -100 * 9.81 / 1e6), ("-90 deg", 0.3 + 100 * 9.81 / 1e6)])
def test_end_stop_carries_a_weight(direction: str, x: float) -> None:
    """981 N on 1e6 N/m: 0.981 mm past the stop, on either side. By hand."""
    load = mass(100).replace("0 deg", direction)
    stop = '[components.stop]\ntype = "end_stop"\nports = { rod = "rod" }\nlower = "0 m"\nupper = "0.3 m"\n'
    bench = Bench(load + stop + 'stiffness = "1e6 N/m"\ndamping = "1e4 N*s/m"\n[nodes.rod]\nposition = "0.1 m"\n')
    bench.run(3.0, 1e-3)
    assert bench["rod.x"] == pytest.approx(x, abs=1e-8)
    assert bench["stop.F_rod"] == pytest.approx(981 if x < 0 else -981, rel=1e-6)


@given(x=st.floats(-0.01, 0.31), v=st.floats(-3, 3))
def test_end_stop_never_pulls_and_is_absent_between(x: float, v: float) -> None:
    force = evaluate(EndStop.model_validate({"lower": "0 m", "upper": "0.3 m"}), x_rod=x, v_rod=v)["F_rod"]
    assert force >= 0.0 if x < 0 else force <= 0.0
    if 0.0 <= x <= 0.3:
        assert force == 0.0
    one_sided = evaluate(EndStop.model_validate({"upper": "0.3 m"}), x_rod=-x, v_rod=v)["F_rod"]
    assert one_sided == 0.0 or x < -0.3


def test_impossible_cylinders_and_stops_are_refused() -> None:
    cushion = {"length": "20 mm", "throttle": {"flow": "5 l/min", "drop": "100 bar"}}
    assert "rod_diameter 60 mm must be less than the bore of 50 mm" in refusal(
        DoubleRodCylinder, **{**WITH_ROD, "rod_diameter": "60 mm"}
    )
    assert "cushion_A.length 250 mm must not be more than the stroke of 200 mm" in refusal(
        SingleActingCylinder, **DATA, cushion_A={**cushion, "length": "250 mm"}
    )
    assert "cushion_B.area 15 cm² must not be more than the chamber's 13.48 cm²" in refusal(
        Cylinder, **WITH_ROD, cushion_B={**cushion, "area": "15 cm^2"}
    )
    assert "closing 30 mm must not be more than the length of 20 mm" in refusal(
        Cylinder, **WITH_ROD, cushion_B={**cushion, "closing": "30 mm"}
    )
    assert "give lower, upper, or both" in refusal(EndStop)
    assert "lower 0.3 m must be less than upper 0.2 m" in refusal(EndStop, lower="300 mm", upper="200 mm")
