"""Dry friction: as a component and in cylinders."""

from __future__ import annotations

import functools
from math import exp, log, pi, sqrt, tanh
from typing import Any

import numpy as np
import pytest
from component_bench import BAR, Bench, evaluate, refusal, root
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

from hilserver.components.base import Fluid
from hilserver.components.cylinder import Cylinder
from hilserver.components.friction import Friction
from hilserver.numerics.friction import lugre

# The published case: Canudas de Wit, Olsson, Åström & Lischinsky, IEEE TAC 40 (1995), section on stick-slip motion.
M, K, PULL = 1.0, 2.0, 0.1
SIGMA0, SIGMA1, SIGMA2, F_C, F_S, V_S = 1e5, sqrt(1e5), 0.4, 1.0, 1.5, 1e-3
STICK_SLIP = """
[components.friction]
type = "friction"
ports = { rod = "block" }
law = "lugre"
static = "1.5 N"
coulomb = "1 N"
viscous = "0.4 N*s/m"
stribeck_speed = "1 mm/s"
sigma0 = "1e5 N/m"
sigma1 = "316.22776601683796 N*s/m"
[components.block]
type = "load_mass"
ports = { rod = "block" }
mass = "1 kg"
direction = "0 deg"
"""
PULLED = """
[components.spring]
type = "spring"
ports = { rod = "block", base = "hand" }
stiffness = "2 N/m"
[components.pull]
type = "velocity_source"
ports = { rod = "hand" }
command = 1
velocity = "0.1 m/s"
"""
PUSHED = """
[components.push]
type = "force_source"
ports = { rod = "block" }
command = "push"
force = "1 N"
"""
SLIPS = (7.458015, 13.820735, 20.183454)
"""Seconds at which the block passes 10 mm/s upwards; and downwards: both LSODA, the same at two tight tolerances."""
STICKS = (10.223503, 16.586223)


@functools.cache
def published_case() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times of slip and stick of the equations as published, with a constant sigma1, by LSODA at tight tolerances."""

    def f(t: float, y: NDArray[np.float64]) -> list[float]:
        x, v, z = y
        g = F_C + (F_S - F_C) * exp(-((v / V_S) ** 2))
        dz = v - SIGMA0 * abs(v) / g * z
        return [v, (K * (PULL * t - x) - SIGMA0 * z - SIGMA1 * dz - SIGMA2 * v) / M, dz]

    def fast(t: float, y: NDArray[np.float64]) -> float:
        return float(y[1] - 0.01)

    def slow(t: float, y: NDArray[np.float64]) -> float:
        return float(y[1] - 0.01)

    fast.direction, slow.direction = 1.0, -1.0  # type: ignore[attr-defined]
    run = solve_ivp(
        f, (0.0, 21.0), [0.0, 0.0, 0.0], "LSODA", events=(fast, slow), rtol=1e-10, atol=1e-13, max_step=0.01
    )
    assert run.success
    return run.t_events[0], run.t_events[1]


def crossings(t: NDArray[np.float64], v: NDArray[np.float64], sign: int) -> NDArray[np.float64]:
    """Times at which v passes 10 mm/s upwards (sign 1) or downwards (-1), straight between the samples."""
    d = sign * (v - 0.01)
    i = np.flatnonzero((d[:-1] < 0.0) & (d[1:] >= 0.0))
    return np.asarray(t[i] - d[i] / (d[i + 1] - d[i]) * (t[i + 1] - t[i]))


def test_reference_of_the_stick_slip() -> None:
    slips, sticks = published_case()
    assert slips == pytest.approx(SLIPS, abs=2e-6)
    assert sticks == pytest.approx(STICKS, abs=2e-6)


@pytest.mark.parametrize(("integrator", "step", "within"), [("rk4", 5e-5, 1e-5), ("rosenbrock", 2e-4, 2e-5)])
def test_stick_slip_of_the_published_case(integrator: str, step: float, within: float) -> None:
    """Times of slip and stick agree with the published equations; 1 ms is asked for, a few microseconds are measured.

    Here the bristles' damping is bounded (passivity), there sigma1 is constant: no difference that shows.
    """
    bench = Bench(f'[solver]\nintegrator = "{integrator}"\n{STICK_SLIP}{PULLED}')
    run = bench.record(("t", "block.v"), 21.0, step, every=2e-4)
    assert crossings(run["t"], run["block.v"], 1) == pytest.approx(SLIPS, abs=within)
    assert crossings(run["t"], run["block.v"], -1) == pytest.approx(STICKS, abs=within)


@pytest.mark.parametrize("law", ["stribeck", "lugre"])
@pytest.mark.parametrize("v", [0.0005, 0.001, 0.002, 0.1, -0.0005, -0.3])
def test_both_laws_follow_the_same_curve_at_a_steady_speed(law: str, v: float) -> None:
    """g(v) + b·v = F_C + (F_S - F_C)·exp(-(v/v_s)²) + b·v, by hand. Source: theory §3."""
    circuit = f"""
[components.friction]
type = "friction"
ports = {{ rod = "block" }}
law = "{law}"
static = "1.5 N"
coulomb = "1 N"
viscous = "0.4 N*s/m"
stribeck_speed = "1 mm/s"
reversal_speed = "0.01 mm/s"
sigma0 = "1e5 N/m"
sigma1 = "300 N*s/m"
[components.hand]
type = "velocity_source"
ports = {{ rod = "block" }}
command = 1
velocity = "{v} m/s"
"""
    bench = Bench(circuit)
    bench.run(1.0, 5e-5)
    curve = (1.0 + 0.5 * exp(-((v / 1e-3) ** 2))) * (1 if v > 0 else -1) + 0.4 * v
    assert bench["friction.F_mu"] == pytest.approx(curve, rel=1e-9)


@pytest.mark.parametrize("sign", [1, -1])
def test_lugre_deflects_elastically_before_it_slides(sign: int) -> None:
    """Under a slowly growing force dx/dF = 1/(sigma0·(1 - F/F_S)): x = -F_S/sigma0·ln(1 - F/F_S), 16.5 µm at 1 N.

    (By hand.) There it rests; above F_S it slides on and on.
    """
    bench = Bench(STICK_SLIP + PUSHED)
    for k in range(1, 1001):
        bench["push"] = sign * 1e-3 * k
        bench.run(1e-3, 5e-5)
    bench.run(0.5, 5e-5)
    given_way = bench["block.x"]
    assert sign * given_way == pytest.approx(1.5e-5 * log(3.0), rel=0.01)
    bench.run(5.0, 5e-5)
    assert bench["block.x"] == pytest.approx(given_way, rel=1e-6)
    assert abs(bench["block.v"]) < 1e-12
    bench["push"] = sign * 1.6
    bench.run(2.0, 5e-5)
    assert sign * bench["block.x"] > 0.1


@pytest.mark.parametrize(("integrator", "step"), [("rk4", 5e-5), ("rosenbrock", 1e-3)])
def test_stribeck_creeps_under_load(integrator: str, step: float) -> None:
    """What the smooth sign costs: 0.9 N, less than F_C, move it where tanh(v/v_0)·g(v) + b·v is 0.9 N; for ever."""
    creeping = STICK_SLIP.replace('law = "lugre"', 'law = "stribeck"\nreversal_speed = "0.05 mm/s"')
    bench = Bench(f'[solver]\nintegrator = "{integrator}"\n{creeping}{PUSHED}')
    bench["push"] = 0.9
    bench.run(1.0, step)
    start = bench["block.x"]
    bench.run(10.0, step)
    v = root(lambda v: tanh(v / 5e-5) * (1.0 + 0.5 * exp(-((v / 1e-3) ** 2))) + 0.4 * v - 0.9, 0.0, 5e-5)
    assert 0.6 * 5e-5 < v < 0.8 * 5e-5
    assert bench["block.x"] - start == pytest.approx(10.0 * v, rel=1e-6)


def friction(**values: Any) -> Friction:
    return Friction.model_validate({"static": "1.5 N", "coulomb": "1 N", "sigma1": "300 N*s/m", **values})


@given(v=st.floats(-5, 5), viscous=st.floats(0, 100))
def test_stribeck_only_dissipates_energy(v: float, viscous: float) -> None:
    force = evaluate(friction(viscous=f"{viscous} N*s/m"), v_rod=v, z=0.0)
    assert force["F_rod"] * v <= 0.0
    mirrored = evaluate(friction(viscous=f"{viscous} N*s/m"), v_rod=-v, z=0.0)
    assert mirrored["F_rod"] == -force["F_rod"]


@given(
    v=st.floats(-10, 10),
    bend=st.floats(-3, 3),
    g=st.floats(0.01, 1e4),
    ratio=st.floats(1, 3),
    b=st.floats(0, 1e3),
    sigma0=st.floats(1e2, 1e8),
    sigma1=st.floats(0, 1e6),
)
def test_lugre_returns_at_most_the_energy_of_its_bristles(
    v: float, bend: float, g: float, ratio: float, b: float, sigma0: float, sigma1: float
) -> None:
    """Dissipation: F·v - d/dt(sigma0·z²/2) >= 0 at every speed and bend, also far beyond g/sigma0, for all values."""
    z = bend * g / sigma0
    force, dz = lugre(v, z, g, ratio * g, b, sigma0, sigma1)
    lost = force * v - sigma0 * z * dz
    assert lost >= -1e-12 * (abs(force * v) + abs(sigma0 * z * dz))
    assert lugre(-v, -z, g, ratio * g, b, sigma0, sigma1) == (-force, -dz)
    assert abs(force) <= ratio * g + 4 * (1 + ratio) * g + b * abs(v)
    if abs(bend) >= 1.0:
        assert z * dz <= 1e-12 * abs(z * v)  # the bend does not grow beyond g/sigma0


@pytest.mark.parametrize("integrator", ["euler", "rk4", "rosenbrock"])
def test_lugre_stays_finite_and_right_where_it_slides_fast(integrator: str) -> None:
    """21 N push it up to 50 m/s, where sigma0·v/g is 5e6 1/s: F_C + b·v all the same, in steps of 0.1 ms; and back"""
    bench = Bench(f'[solver]\nintegrator = "{integrator}"\n{STICK_SLIP}{PUSHED}')
    for push in (21.0, -21.0):
        bench["push"] = push
        bench.run(30.0, 1e-4)
        assert bench["block.v"] == pytest.approx(push / 21.0 * 50.0, rel=1e-4)
        assert bench["friction.F_mu"] == pytest.approx(push, rel=1e-4)


@given(st.lists(st.floats(-1, 1), min_size=5, max_size=15))
def test_lugre_dissipates_energy_over_any_motion(speeds: list[float]) -> None:
    """The work done against it from its rest, whatever the motion, is positive; its bend stays within F_S/sigma0."""
    circuit = """
[components.friction]
type = "friction"
ports = { rod = "block" }
law = "lugre"
static = "1.5 N"
sigma0 = "1e4 N/m"
sigma1 = "100 N*s/m"
[components.hand]
type = "velocity_source"
ports = { rod = "block" }
command = "speed"
velocity = "0.01 m/s"
"""
    bench = Bench(circuit)
    work = 0.0
    for speed in speeds:
        bench["speed"] = speed
        run = bench.record(("friction.F_mu", "block.v", "friction.z"), 0.02, 1e-4)
        work += float(np.sum(run["friction.F_mu"] * run["block.v"])) * 1e-4
        assert np.abs(run["friction.z"]).max() <= 1.5e-4 * (1 + 1e-9)
        assert work >= -1e-7  # the sum over the steps is no exact integral


# --- cylinders -------------------------------------------------------------------------------------------------------

DATA: dict[str, Any] = {
    "bore": "63 mm",
    "rod_diameter": "36 mm",
    "stroke": "500 mm",
    "moving_mass": "12 kg",
    "dead_volume_A": "0.2 l",
    "dead_volume_B": "0.3 l",
}


def test_default_friction_follows_rules_of_thumb() -> None:
    """63 mm, 160 bar: 49.88 kN; F_S 10 %, F_C 30 % below, b as F_S, sigma0 = F_S/0.2 mm, sigma1 = sqrt(sigma0·m)."""
    model = Cylinder.model_validate({**DATA, "friction": {"law": "lugre"}})
    values = model.parameters(Fluid())
    assert values["F_S"] == pytest.approx(4987.6, abs=0.1)
    assert values["F_C"] == pytest.approx(3491.3, abs=0.1)
    assert values["b"] == pytest.approx(4987.6, abs=0.1)
    assert values["sigma0"] == pytest.approx(2.4938e7, rel=1e-4)
    assert values["sigma1"] == pytest.approx(17_299, rel=1e-4)
    assert values["v_s"] == 8e-3


@pytest.mark.parametrize(("p_A", "p_B", "psi"), [(0, 0, 1), (100, 100, 2), (150, 0, 1.5), (0, 150, 2), (-1, -1, 1)])
def test_seal_friction_increases_with_pressure(p_A: float, p_B: float, psi: float) -> None:
    """Psi = 1 + (p_A/3 + 2·p_B/3)/p_ref: twice the friction with p_ref in both chambers. Source: [Linjama]."""
    law = {"law": "stribeck", "static": "900 N", "coulomb": "600 N", "viscous": "0 N*s/m"}
    model = Cylinder.model_validate({**DATA, "friction": {**law, "reference_pressure": "100 bar"}})
    result = evaluate(model, p_A=p_A * BAR, p_B=p_B * BAR, x_rod=0.2, v_rod=0.5, z=0.0)
    assert result["F_mu"] == pytest.approx(600 * psi, rel=1e-9)


@given(
    law=st.sampled_from(["efficiency", "stribeck", "lugre"]),
    p_A=st.floats(-BAR, 350 * BAR),
    p_B=st.floats(-BAR, 350 * BAR),
    v=st.floats(-3, 3),
    bend=st.floats(-1, 1),
)
def test_every_friction_of_a_cylinder_is_passive(law: str, p_A: float, p_B: float, v: float, bend: float) -> None:
    """Also where the pressures change the friction: the bristles' stiffness does not depend on them."""
    values: dict[str, Any] = {"law": law} | ({"reference_pressure": "160 bar"} if law != "efficiency" else {})
    model = Cylinder.model_validate({**DATA, "friction": values})
    parameters = model.parameters(Fluid())
    z = bend * parameters["z_max"] if law == "lugre" else 0.0
    result = evaluate(model, p_A=p_A, p_B=p_B, x_rod=0.2, v_rod=v, z=z)
    work, stored = result["F_mu"] * v, parameters["sigma0"] * z * result["dz"]
    assert work - stored >= -1e-12 * (abs(work) + abs(stored))


BREAK_AWAY = """
[solver]
integrator = "{integrator}"
[components.cylinder]
type = "cylinder"
ports = {{ A = "A", B = "B", rod = "rod" }}
bore = "63 mm"
rod_diameter = "36 mm"
stroke = "500 mm"
moving_mass = "12 kg"
dead_volume_A = "0.2 l"
dead_volume_B = "0.3 l"
friction = {{ law = "lugre", static = "2 kN", coulomb = "1.2 kN", viscous = "3 kN*s/m", sigma1 = "5e4 N*s/m", \
reference_pressure = "100 bar" }}
[components.load]
type = "load_mass"
ports = {{ rod = "rod" }}
mass = "488 kg"
direction = "0 deg"
[components.source]
type = "pressure_source"
ports = {{ P = "A" }}
command = "level"
pressure = "10 bar"
[components.tank]
type = "tank"
ports = {{ T = "B" }}
[nodes.rod]
position = "100 mm"
"""


@pytest.mark.parametrize(("integrator", "step"), [("rk4", 1e-4), ("rosenbrock", 1e-4)])
def test_cylinder_breaks_away_as_an_independent_solution_does(integrator: str, step: float) -> None:
    """4 bar hold (1.25 kN at once, against 2 kN·Psi), 8 bar break away. Equations by hand, LSODA, tight."""
    area, psi_per_bar = pi / 4 * 0.063**2, 1.0 / 3.0 / 100.0
    sigma0, sigma1, b, v_s = 2e3 / 2e-4, 5e4, 3e3, 8e-3

    def f(t: float, y: NDArray[np.float64], bar: float) -> list[float]:
        _, v, z = y
        g = (1 + bar * psi_per_bar) * (1200 + 800 * exp(-((v / v_s) ** 2)))
        dz = v - sigma0 * abs(v) / g * z
        damping = min(sigma1, 4 * g / max(abs(v), 1e-300))
        return [v, (area * bar * 1e5 - sigma0 * z - damping * dz - b * v) / 500, dz]

    bench = Bench(BREAK_AWAY.format(integrator=integrator))
    y = np.array([0.1, 0.0, 0.0])
    for bar, duration in ((4.0, 0.5), (8.0, 0.3), (0.0, 0.3)):
        solution = solve_ivp(f, (0, duration), y, "LSODA", args=(bar,), rtol=1e-10, atol=1e-13, max_step=1e-3)
        y = solution.y[:, -1]
        bench["level"] = bar / 10.0
        bench.run(duration, step)
        assert bench["rod.x"] == pytest.approx(y[0], abs=5e-6)  # 1e-5 of the stroke
        assert bench["rod.v"] == pytest.approx(y[1], abs=2e-4)
        assert bar != 4.0 or abs(bench["rod.v"]) < 1e-5
    assert y[0] > 0.12


def test_impossible_friction_is_refused() -> None:
    assert 'law "lugre" needs sigma1' in refusal(Friction, static="100 N", law="lugre")
    assert "coulomb 120 N must not be above the static friction of 100 N" in refusal(
        Friction, static="100 N", coulomb="120 N"
    )
    assert "static: missing" in refusal(Friction, law="stribeck")
    message = refusal(Cylinder, **DATA, friction={"static": "2 kN"})
    assert 'static has no meaning with law = "efficiency": it belongs to law = "stribeck" or "lugre"' in message
    message = refusal(Cylinder, **DATA, friction={"law": "lugre", "efficiency": 0.9})
    assert 'efficiency has no meaning with law = "lugre": it belongs to law = "efficiency"' in message
    assert "coulomb 9000 N must not be above" in refusal(
        Cylinder, **DATA, friction={"law": "stribeck", "coulomb": "9 kN"}
    )
