"""Oil, free air, volumes, pipes, hoses, tank."""

from __future__ import annotations

from math import pi

import pytest
from circuit_text import flow_source, tank, volume
from component_bench import BAR, L_MIN, Bench, evaluate, refusal
from hypothesis import given
from hypothesis import strategies as st

from hilserver.components.base import Fluid
from hilserver.components.hose import Hose
from hilserver.components.pipe import Pipe
from hilserver.components.tank import Tank
from hilserver.components.volume import OilVolume
from hilserver.numerics.fluid import capacitance
from hilserver.units import ATMOSPHERE

LITRE = OilVolume.model_validate({"volume": "1 l"})
PIPE = {"inner_diameter": "16 mm", "length": "10 m", "wall_thickness": "2 mm"}
HOSE = {"inner_diameter": "16 mm", "length": "10 m", "wall_coefficient": "2e5 Pa^0.5"}


def filled(air: float) -> str:
    """A flow source fills a volume with 1 l/min."""
    fluid = f"[fluid]\nair_fraction = {air}\npolytropic_exponent = 1.4\n"
    return fluid + flow_source("P=node T=tank", "1 l/min") + tank("tank") + volume("node", "1 l")


def test_volume_without_air_has_the_capacitance_of_its_oil() -> None:
    assert evaluate(LITRE, p_P=50 * BAR)["C_P"] == pytest.approx(1e-3 / 1.5e9, rel=1e-15)


@pytest.mark.parametrize("p", [0.0, 10 * BAR, 200 * BAR])
def test_air_is_compressed_as_a_polytropic_gas(p: float) -> None:
    """-dV/dp of V_air = V·alpha_0·(p_0/p)^(1/kappa) by central differences (their error: 1e-6)."""
    V, alpha_0, kappa, dp = 1e-3, 0.02, 1.4, 100.0
    gas = [V * alpha_0 * (ATMOSPHERE / (p + ATMOSPHERE + shift)) ** (1 / kappa) for shift in (-dp, dp)]
    expected = V / 1.5e9 + (gas[0] - gas[1]) / (2 * dp)
    assert capacitance(V, p, 1.5e9, alpha_0, kappa, ATMOSPHERE) == pytest.approx(expected, rel=1e-6)


@given(p=st.floats(-2 * ATMOSPHERE, 400 * BAR), air=st.floats(0.0, 0.4), kappa=st.floats(1.0, 1.67))
def test_air_only_softens_and_stays_finite_near_vacuum(p: float, air: float, kappa: float) -> None:
    soft = capacitance(1e-3, p, 1.5e9, air, kappa, ATMOSPHERE)
    assert 1e-3 / 1.5e9 <= soft < 1e-5
    assert capacitance(1e-3, p + 10 * BAR, 1.5e9, air, kappa, ATMOSPHERE) <= soft


def test_filling_a_volume_raises_the_pressure_by_b_over_v() -> None:
    """1 l/min into 1 litre for 1 s: dp = B·Q·t/V = 250 bar. Analytic; the integration is exact for a constant slope."""
    bench = Bench(filled(0))
    bench.run(1.0, 1e-3)
    assert bench["node.p"] == pytest.approx(250 * BAR, rel=1e-9)


def test_filling_a_volume_with_air_takes_the_compressed_volume_of_oil_and_air() -> None:
    """The oil let in equals V·(dp/B_o + alpha_0·(1 - (p_0/p)^(1/kappa))), the integral of the capacitance. Analytic."""
    bench = Bench(filled(0.02))
    bench.run(1.3, 1e-4)
    p = bench["node.p"]
    given_way = 1e-3 * (p / 1.5e9 + 0.02 * (1 - (ATMOSPHERE / (p + ATMOSPHERE)) ** (1 / 1.4)))
    assert 20 * BAR < p < 100 * BAR
    assert given_way == pytest.approx(1.3 * L_MIN, rel=1e-9)


def test_pipe_wall_stiffness_is_t_e_over_d() -> None:
    """Steel 20x2: B_c = 2/16·210 GPa = 26.25 GPa. Source: theory §2."""
    V = pi / 4 * 0.016**2 * 10
    assert evaluate(Pipe.model_validate(PIPE), p_P=0.0)["C_P"] == pytest.approx(V / 1.5e9 + V / 26.25e9, rel=1e-12)


def test_oil_volume_and_mass_of_a_line() -> None:
    pipe = Pipe.model_validate(PIPE)
    assert pipe.oil_volume() == pytest.approx(2.01062e-3, rel=1e-5)
    assert pipe.oil_mass(Fluid()) == pytest.approx(2.01062e-3 * 870, rel=1e-5)


def test_thick_pipe_is_refused() -> None:
    assert "more than a quarter of the inner diameter" in refusal(Pipe, **{**PIPE, "wall_thickness": "5 mm"})


@pytest.mark.parametrize(
    ("p", "wall"), [(100 * BAR, 6.3246e8), (1 * BAR, 6.3246e7), (0.0, 6.3246e7), (-0.5 * BAR, 6.3246e7)]
)
def test_hose_stiffens_with_the_root_of_pressure_down_to_its_floor(p: float, wall: float) -> None:
    """B_h = 2e5·sqrt(p): 0.632 GPa at 100 bar. Source: theory §2."""
    V = pi / 4 * 0.016**2 * 10
    assert evaluate(Hose.model_validate(HOSE), p_P=p)["C_P"] == pytest.approx(V / 1.5e9 + V / wall, rel=1e-4)


def test_volumes_at_one_node_add_up() -> None:
    circuit = filled(0) + ('[components.second]\ntype = "volume"\nports = { P = "node" }\nvolume = "3 l"\n')
    bench = Bench(circuit)
    bench.run(1.0, 1e-3)
    assert bench["node.p"] == pytest.approx(250 / 4 * BAR, rel=1e-9)


def test_tank_holds_its_pressure() -> None:
    assert evaluate(Tank.model_validate({"pressure": "2 bar"})) == {"p_T": 2 * BAR}


def test_impossible_datasheets_are_refused() -> None:
    assert "must be > 0" in refusal(OilVolume, volume="0 l")
    assert 'write it like "2 l"' in refusal(OilVolume, volume="2 bar")
    assert "must be > -1.01325 bar" in refusal(Tank, pressure="-2 bar")
