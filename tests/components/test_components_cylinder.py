"""Cylinder and load."""

from __future__ import annotations

from math import cos, pi, sqrt
from typing import Any

import numpy as np
import pytest
from component_bench import BAR, Bench, evaluate, refusal
from hypothesis import given
from hypothesis import strategies as st

from hilserver.components.base import Fluid
from hilserver.components.cylinder import Cylinder
from hilserver.components.load_mass import LoadMass
from hilserver.numerics.motion import friction_factor

A_A, A_B = pi / 4 * 0.063**2, pi / 4 * (0.063**2 - 0.036**2)
DATA: dict[str, Any] = {
    "bore": "63 mm",
    "rod_diameter": "36 mm",
    "stroke": "500 mm",
    "moving_mass": "12 kg",
    "dead_volume_A": "0.2 l",
    "dead_volume_B": "0.3 l",
}
CIRCUIT = """
[components.cylinder]
type = "cylinder"
ports = {{ A = "A", B = "B", rod = "rod" }}
bore = "63 mm"
rod_diameter = "36 mm"
stroke = "500 mm"
moving_mass = "12 kg"
dead_volume_A = "0.2 l"
dead_volume_B = "0.3 l"
friction = {{ efficiency = 1 }}
end_stop = {{ stiffness = "1e8 N/m", damping = "2e5 N*s/m", zone = "0.1 mm" }}
[components.load]
type = "load_mass"
ports = {{ rod = "rod" }}
mass = "488 kg"
gravity = "{gravity} m/s^2"
[nodes]
rod = {{ position = "{x} mm", velocity = "{v} m/s" }}
{more}
"""
TANKS = """
[components.tank_A]
type = "tank"
ports = { T = "A" }
pressure = "PA bar"
[components.tank_B]
type = "tank"
ports = { T = "B" }
"""


def cylinder(**values: Any) -> Cylinder:
    return Cylinder.model_validate({**DATA, **values})


def at(model: Cylinder, p_A: float, p_B: float, x: float = 0.2, v: float = 0.0) -> dict[str, float]:
    return evaluate(model, p_A=p_A, p_B=p_B, x_rod=x, v_rod=v, z=0.0)


def test_force_at_rest_is_pressure_times_area() -> None:
    """63/36: 31.17 cm² and 20.99 cm²; 100 bar on A give 31.17 kN outwards, on B 20.99 kN inwards. By hand."""
    assert at(cylinder(), 100 * BAR, 0.0)["F_rod"] == pytest.approx(31_172.0, abs=1.0)
    assert at(cylinder(), 0.0, 100 * BAR)["F_rod"] == pytest.approx(-20_994.0, abs=1.0)


def test_ambient_pressure_acts_on_the_rod_only() -> None:
    """p_amb·(A_A - A_B), the rod's cross-section of 10.18 cm². By hand."""
    assert at(cylinder(ambient_pressure="1 bar"), 0.0, 0.0)["F_rod"] == pytest.approx(-101.8, abs=0.1)


def test_motion_displaces_the_oil_of_both_chambers() -> None:
    flows = at(cylinder(), 0.0, 0.0, v=0.1)
    assert flows["q_A"] == pytest.approx(-A_A * 0.1, rel=1e-12)
    assert flows["q_B"] == pytest.approx(A_B * 0.1, rel=1e-12)


@pytest.mark.parametrize("x", [-0.001, 0.0, 0.2, 0.5, 0.502])
def test_chambers_hold_dead_volume_and_stroke_volume(x: float) -> None:
    inside = min(max(x, 0.0), 0.5)
    result = at(cylinder(), 0.0, 0.0, x=x)
    assert result["C_A"] == pytest.approx((0.2e-3 + A_A * inside) / 1.5e9, rel=1e-12)
    assert result["C_B"] == pytest.approx((0.3e-3 + A_B * (0.5 - inside)) / 1.5e9, rel=1e-12)


def test_piston_leakage_flows_from_high_to_low_pressure_and_conserves_oil() -> None:
    """0.1 l/min per bar and 50 bar: 5 l/min. Source: [Virtual hydraulics] eq. 4.8."""
    flows = at(cylinder(leakage="0.1 l/min/bar"), 60 * BAR, 10 * BAR)
    assert flows["q_B"] == pytest.approx(5e-3 / 60, rel=1e-12)
    assert flows["q_A"] + flows["q_B"] == 0.0


@pytest.mark.parametrize(("v", "xi"), [(0.05, 0.6), (0.1, 0.2), (1.0, 0.2710), (3.0, 0.7086), (5.0, 1.0), (20.0, 1.0)])
def test_friction_follows_the_polynomial_of_the_source(v: float, xi: float) -> None:
    """xi from the printed cubics, by hand; their rounded coefficients are off by up to 1.5e-3. Source: theory §3."""
    assert friction_factor(v) == pytest.approx(xi, abs=1.5e-3)
    lossy = at(cylinder(friction={"efficiency": 0.9}), 100 * BAR, 0.0, v=v)
    assert lossy["F_mu"] == pytest.approx(xi * 0.1 * 31_172, rel=6e-3)
    assert lossy["F_rod"] + lossy["F_mu"] == pytest.approx(31_172, abs=1.0)


def test_friction_factor_meets_smoothly_at_its_joints() -> None:
    for v in (0.1, 5.0):
        left, right = (friction_factor(v) - friction_factor(v - 1e-6)), (friction_factor(v + 1e-6) - friction_factor(v))
        assert abs(left) < 1e-9
        assert abs(right) < 1e-9


def test_friction_factor_may_be_constant() -> None:
    constant = cylinder(friction={"efficiency": 0.9, "factor": "constant"})
    for v in (0.2, 2.0):
        assert at(constant, 100 * BAR, 0.0, v=v)["F_mu"] == pytest.approx(3117.2, rel=1e-4)
    assert at(constant, 100 * BAR, 0.0, v=0.01)["F_mu"] == pytest.approx(3117.2 * np.tanh(1.0), rel=1e-4)


@given(
    p_A=st.floats(-BAR, 350 * BAR),
    p_B=st.floats(-BAR, 350 * BAR),
    x=st.floats(0, 0.5),
    v=st.floats(-3, 3),
    eta=st.floats(0.5, 1.0),
)
def test_hydraulic_power_in_is_mechanical_power_out_and_losses(
    p_A: float, p_B: float, x: float, v: float, eta: float
) -> None:
    """-(p_A·q_A + p_B·q_B) = F·v + friction + piston leakage, both >= 0: no energy out of nothing."""
    result = at(cylinder(friction={"efficiency": eta}, leakage="0.01 l/min/bar"), p_A, p_B, x, v)
    power_in = -(p_A * result["q_A"] + p_B * result["q_B"])
    friction, leakage = result["F_mu"] * v, 1e-5 / 60 / BAR * (p_A - p_B) ** 2
    assert friction >= 0.0
    assert power_in - result["F_rod"] * v == pytest.approx(
        friction + leakage, rel=1e-6, abs=1e-12 * (abs(power_in) + 1e6)
    )


def test_inertia_of_the_oil_in_the_lines_acts_on_the_rod() -> None:
    """5 m of 16 mm hold 0.8746 kg, which moves (63/16)² times faster than the piston: felt as 210.2 kg. By hand."""
    line = {"inner_diameter": "16 mm", "length": "5 m"}
    m_A, m_B = 0.8746 * (63 / 16) ** 4, 0.8746 * ((63**2 - 36**2) / 16**2) ** 2
    assert at(cylinder(line_A=line), 0, 0)["m_rod"] == pytest.approx(12 + m_A, rel=1e-4)
    assert at(cylinder(line_A=line, line_B=line), 0, 0)["m_rod"] == pytest.approx(12 + m_A + m_B, rel=1e-4)
    assert cylinder(line_A=line).rod_mass(Fluid()) == pytest.approx(12 + 210.2, abs=0.1)


def test_enclosed_oil_is_a_spring_of_the_analytic_frequency() -> None:
    """Ports closed: omega² = (A_A²/C_A + A_B²/C_B)/m. A push of 1 mm/s at x = 0.2 m swings as v·cos(omega·t)."""
    bench = Bench(CIRCUIT.format(gravity=0, x=200, v=0.001, more=""))
    C_A, C_B = (0.2e-3 + A_A * 0.2) / 1.5e9, (0.3e-3 + A_B * 0.3) / 1.5e9
    omega = sqrt((A_A**2 / C_A + A_B**2 / C_B) / 500)
    t = 2 * pi / omega * 2.2
    n = round(t / 1e-4)
    bench.run(n * 1e-4, 1e-4)
    assert bench["rod.v"] == pytest.approx(0.001 * cos(omega * n * 1e-4), abs=1e-6)


def test_end_stop_carries_the_force_of_a_pressed_piston() -> None:
    """100 bar on A press 31.17 kN against 1e8 N/m: 0.3117 mm past the stroke. Analytic (beyond the 0.1 mm zone)."""
    bench = Bench(CIRCUIT.format(gravity=0, x=499, v=0, more=TANKS.replace("PA", "100")))
    bench.run(1.0, 1e-4)
    assert bench["rod.x"] == pytest.approx(0.5 + 31_172 / 1e8, abs=1e-8)
    assert bench["rod.v"] == pytest.approx(0.0, abs=1e-9)
    assert bench["cylinder.F_end"] == pytest.approx(31_172, abs=1.0)


@pytest.mark.parametrize(("x", "v", "direction"), [(499.0, 0.5, 1), (1.0, -0.5, -1)])
def test_no_force_spike_at_contact(x: float, v: float, direction: int) -> None:
    """500 kg hit the stop at 0.5 m/s. A damper alone would jump to D·v = 100 kN; here the force rises from nothing:
    halving the sampling step halves the largest step of the force. And the stop gives back less speed than it took.
    """
    force = {}
    for h in (2e-5, 1e-5):
        bench = Bench(CIRCUIT.format(gravity=0, x=x, v=v, more=TANKS.replace("PA", "0")))
        run = bench.record(("cylinder.F_end", "rod.v"), 0.02, h)
        force[h] = direction * run["cylinder.F_end"]
        assert run["rod.v"][-1] * direction < 0
        assert abs(run["rod.v"][-1]) < 0.5
    first = force[1e-5][force[1e-5] > 0][0]
    assert first < 0.01 * 2e5 * 0.5
    assert np.all(force[1e-5] >= 0.0)
    assert np.abs(np.diff(force[1e-5])).max() < 0.55 * np.abs(np.diff(force[2e-5])).max()
    assert np.abs(np.diff(force[1e-5])).max() < 0.1 * force[1e-5].max()


def test_load_falls_freely() -> None:
    """x = -g·t²/2; Runge-Kutta is exact for a parabola."""
    bench = Bench('[components.load]\ntype = "load_mass"\nports = { rod = "rod" }\nmass = "500 kg"\n')
    bench.run(0.5, 1e-3)
    assert bench["rod.x"] == pytest.approx(-0.5 * 9.81 * 0.25, rel=1e-12)


@pytest.mark.parametrize(("direction", "share"), [("90 deg", -1), ("30 deg", -0.5), ("0 deg", 0), ("-90 deg", 1)])
def test_weight_acts_along_the_direction_of_motion(direction: str, share: float) -> None:
    load = LoadMass.model_validate({"mass": "500 kg", "direction": direction})
    assert evaluate(load)["F_rod"] == pytest.approx(share * 500 * 9.81, abs=1e-9)


def test_inertia_is_reduced_to_the_rod_and_has_no_weight() -> None:
    """J/r² = 20/0.5² = 80 kg. By hand."""
    load = LoadMass.model_validate({"mass": "500 kg", "inertia": "20 kg*m^2", "radius": "0.5 m"})
    assert evaluate(load) == {"F_rod": pytest.approx(-4905.0), "m_rod": pytest.approx(580.0)}


def test_cylinder_carries_the_load_at_the_analytic_pressure() -> None:
    """With closed ports the load comes to rest at A_A·p_A - A_B·p_B = m·g, whatever it swung. Analytic."""
    more = 'A = { pressure = "20 bar" }\nB = { pressure = "5 bar" }\n'
    circuit = CIRCUIT.format(gravity=9.81, x=200, v=0, more=more)
    bench = Bench(circuit.replace("efficiency = 1 ", "efficiency = 0.8 "))
    bench.run(5.0, 1e-3)
    assert abs(bench["rod.v"]) < 1e-6
    assert A_A * bench["A.p"] - A_B * bench["B.p"] == pytest.approx(488 * 9.81, rel=1e-3)


def test_impossible_cylinders_and_loads_are_refused() -> None:
    assert "rod_diameter 70 mm must be less than the bore of 63 mm" in refusal(
        Cylinder, **{**DATA, "rod_diameter": "70 mm"}
    )
    assert "friction.efficiency: 1.1 is out of range: must be <= 1" in refusal(
        Cylinder, **DATA, friction={"efficiency": 1.1}
    )
    assert "\"coulomb\" is not one of 'polynomial' or 'constant'" in refusal(
        Cylinder, **DATA, friction={"factor": "coulomb"}
    )
    assert "moving_mass: missing" in refusal(Cylinder, **{k: v for k, v in DATA.items() if k != "moving_mass"})
    assert "inertia needs a radius" in refusal(LoadMass, mass="500 kg", inertia="20 kg*m^2")
