"""What datasheet values mean: laminar flow of small holes, plain check valves, leaking reducing valves, own weight."""

from __future__ import annotations

from math import exp, pi, sin, sqrt
from typing import Any

import numpy as np
import pytest
from component_bench import Bench, evaluate
from hypothesis import given
from hypothesis import strategies as st

from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.circuit.pack import pack
from hilserver.components.base import Fluid
from hilserver.components.check_valve import CheckValve
from hilserver.components.cylinder import Cylinder
from hilserver.components.orifice import Orifice
from hilserver.errors import ConfigurationError
from hilserver.simulation import simulate

BAR, L_MIN, G = 1e5, 1e-3 / 60.0, 9.81
OIL = Fluid.model_validate({"density": "870 kg/m^3", "viscosity": "46 mm^2/s"})


def flow_of(orifice: Orifice, drop: float, fluid: Fluid = OIL) -> float:
    return evaluate(orifice, fluid, p_A=drop, p_B=0.0)["q_B"]


# --- orifice ---------------------------------------------------------------------------------------------------------


def test_small_drop_of_a_small_hole_is_no_longer_throttled() -> None:
    """1 mm at 0.1 bar: Re about 650, turbulent. Bernoulli: 0.62·(pi/4·1e-6)·sqrt(2·1e4/870) = 2.335e-6 m³/s, by hand.

    The fixed transition at 1 bar used to pass 54 % less.
    """
    hole = Orifice.model_validate({"diameter": "1 mm"})
    assert flow_of(hole, 0.1 * BAR) == pytest.approx(2.335e-6, rel=1e-3)
    before = Orifice.model_validate({"diameter": "1 mm", "transition_pressure": "1 bar"})
    assert flow_of(before, 0.1 * BAR) == pytest.approx((1 - 0.54) * 2.335e-6, rel=0.01)


@pytest.mark.parametrize(
    ("diameter", "viscosity"), [(0.1e-3, 10e-6), (0.1e-3, 46e-6), (0.5e-3, 46e-6), (1e-3, 1e-3), (5e-3, 1e-3)]
)
def test_creeping_flow_is_that_of_wuest(diameter: float, viscosity: float) -> None:
    """Q = pi·d³·dp/(50.4·mu): W. Wuest 1954, exact for a hole in a thin wall without inertia."""
    fluid = Fluid.model_validate({"density": "870 kg/m^3", "viscosity": f"{viscosity!r} m^2/s"})
    hole = Orifice.model_validate({"diameter": f"{diameter!r} m"})
    drop = 1e-5 * hole.parameters(fluid)["p_tr"]
    wuest = pi * diameter**3 * drop / (50.4 * 870.0 * viscosity)
    assert flow_of(hole, drop, fluid) == pytest.approx(wuest, rel=1e-4)


def test_transition_lies_at_the_reynolds_number_of_sharp_edges() -> None:
    """Merritt 1967: the laminar law Cd = 0.2·sqrt(Re) meets 0.61 at Re 9.3, and real holes pass gradually above it."""
    for diameter in (0.1e-3, 0.5e-3):
        hole = Orifice.model_validate({"diameter": f"{diameter!r} m"})
        transition = hole.parameters(OIL)["p_tr"]
        speed = flow_of(hole, transition) / (0.25 * pi * diameter**2)
        assert 9.3 < speed * diameter / 46e-6 < 20.0


def test_large_holes_are_laminar_below_a_hundredth_of_a_bar_only() -> None:
    """There the true transition, 5 Pa for 10 mm, would cost steps of microseconds and nobody could measure it."""
    assert Orifice.model_validate({"diameter": "10 mm"}).parameters(OIL)["p_tr"] == 1e3


@given(flow=st.floats(1e-4, 100.0), drop=st.floats(1e-3, 300.0), viscosity=st.floats(1.0, 1000.0))
def test_curve_passes_through_the_datasheet_point_whether_laminar_or_not(
    flow: float, drop: float, viscosity: float
) -> None:
    fluid = Fluid.model_validate({"viscosity": f"{viscosity!r} mm^2/s"})
    given_at = {"flow": f"{flow!r} l/min", "drop": f"{drop!r} bar"}
    orifice = Orifice.model_validate({"nominal_flow": given_at})
    assert flow_of(orifice, drop * BAR, fluid) == pytest.approx(flow * L_MIN, rel=1e-9)


@given(diameter=st.floats(0.05, 20.0), share=st.floats(0.0, 10.0))
def test_point_and_size_of_the_same_hole_are_the_same_orifice(diameter: float, share: float) -> None:
    hole = Orifice.model_validate({"diameter": f"{diameter!r} mm"})
    at = 20 * BAR
    point = {"flow": f"{flow_of(hole, at)!r} m^3/s", "drop": "20 bar"}
    p_tr = hole.parameters(OIL)["p_tr"]
    same = Orifice.model_validate({"nominal_flow": point, "transition_pressure": f"{p_tr!r} Pa"})
    drop = share * p_tr
    assert flow_of(same, drop) == pytest.approx(flow_of(hole, drop), rel=1e-6, abs=1e-25)


# --- check valve -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drop", [1.0, 1.5, 3.0, 12.0])
def test_check_valve_without_a_spring_follows_the_root_law(drop: float) -> None:
    """40 l/min at 3 bar; nothing against it. A poppet that opened up to 3 bar would pass a third at 1 bar."""
    check = CheckValve.model_validate({"nominal_flow": {"flow": "40 l/min", "drop": "3 bar"}})
    assert evaluate(check, p_A=drop * BAR, p_B=0.0)["q_B"] == pytest.approx(40 * L_MIN * sqrt(drop / 3), rel=1e-9)
    assert evaluate(check, p_A=0.0, p_B=drop * BAR)["q_B"] == 0.0
    assert evaluate(check, p_A=0.0, p_B=0.0)["q_B"] == 0.0


def test_check_valve_opens_gradually_where_specified() -> None:
    """A given full_open_pressure counts without a spring's preload too."""
    sheet = {"nominal_flow": {"flow": "40 l/min", "drop": "4 bar"}, "full_open_pressure": "3 bar"}
    half = evaluate(CheckValve.model_validate(sheet), p_A=1.5 * BAR, p_B=0.0)["q_B"]
    assert half == pytest.approx(0.5 * 40 * L_MIN * sqrt(1.5 / 4), rel=1e-9)


# --- reducing valve --------------------------------------------------------------------------------------------------


def test_two_way_reducing_valve_settles_at_its_setting_after_the_start() -> None:
    """Nothing takes oil from A, which starts at 158 bar: p = 158 bar·exp(-t·B·C/V) until it reaches 50 bar."""
    bench = Bench("""
        [components.valve]
        type = "reducing_valve"
        ports = { P = "P", A = "A", T = "T" }
        set_pressure = "50 bar"
        nominal_flow = { flow = "40 l/min", drop = "8 bar" }
        leakage = "0.0005 l/min/bar"
        [components.supply]
        type = "pressure_source"
        ports = { P = "P" }
        pressure = "160 bar"
        [components.line]
        type = "volume"
        ports = { P = "A" }
        volume = "0.1 l"
        [components.tank]
        type = "tank"
        ports = { T = "T" }
        [nodes.A]
        pressure = "158 bar"
    """)
    rate = 1.5e9 / 1e-4 * 0.0005 * L_MIN / BAR
    bench.run(0.5, 1e-3)
    assert bench["A.p"] == pytest.approx(158 * BAR * exp(-0.5 * rate), rel=1e-6)
    bench.run(3.0, 1e-3)
    assert bench["A.p"] / BAR == pytest.approx(50.0, abs=0.05)


# --- cylinder --------------------------------------------------------------------------------------------------------

SHEET: dict[str, Any] = {
    "bore": "50 mm",
    "rod_diameter": "30 mm",
    "stroke": "500 mm",
    "moving_mass": "20 kg",
    "dead_volume_A": "0.1 l",
    "dead_volume_B": "0.1 l",
    "friction": {"efficiency": 1.0},
}


@pytest.mark.parametrize("degrees", [90.0, 30.0, 0.0, -90.0])
def test_weight_of_piston_and_rod(degrees: float) -> None:
    """m·g·sin(alpha) against extending; none without a direction."""
    at = {"p_A": 10 * BAR, "p_B": 10 * BAR, "x_rod": 0.1, "v_rod": 0.0, "z": 0.0}
    plain = evaluate(Cylinder.model_validate(SHEET), OIL, **at)["F_rod"]
    heavy = evaluate(Cylinder.model_validate({**SHEET, "direction": f"{degrees} deg"}), OIL, **at)["F_rod"]
    assert plain - heavy == pytest.approx(20 * G * sin(degrees * pi / 180), abs=1e-9)


def circuit(mass: str, load: bool) -> dict[str, Any]:
    """A cylinder that pushes a load at 40 bar on a level."""
    source = {"type": "pressure_source", "ports": {"P": "A"}, "pressure": "40 bar"}
    parts: dict[str, Any] = {
        "cylinder": {
            "type": "cylinder",
            "ports": {"A": "A", "B": "B", "rod": "rod"},
            **SHEET,
            "moving_mass": mass,
        },
        "source": source,
        "tank": {"type": "tank", "ports": {"T": "B"}},
    }
    if load:
        parts["load"] = {"type": "load_mass", "ports": {"rod": "rod"}, "mass": "1000 kg", "gravity": "0 m/s^2"}
    return {"components": parts}


def test_a_piston_without_mass_moves_with_its_load() -> None:
    """v = F·t/m, F = 40 bar·19.635 cm² = 7854 N, m = 1000 kg: that of the load alone. Analytic."""
    run = simulate(circuit("0 kg", load=True), until=0.1)
    assert np.allclose(run["rod.v"], 7.853982 * run.time, rtol=1e-6)


def test_a_rod_without_any_mass_is_refused() -> None:
    with pytest.raises(ConfigurationError, match='node "rod" has no mass: its motion is undefined'):
        pack(read_circuit(circuit("0 kg", load=False), standard_library()), standard_library())


@pytest.mark.parametrize("mass", ["-1 kg", "nan kg", "1 bar"])
def test_a_wrong_mass_is_refused(mass: str) -> None:
    with pytest.raises(ConfigurationError, match=r"components\.cylinder\.moving_mass"):
        read_circuit(circuit(mass, load=True), standard_library())
