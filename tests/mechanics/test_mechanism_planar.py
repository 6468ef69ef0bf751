"""Mechanisms in a plane against equations of Lagrange written down here, in circuits, through the compiled engine."""

from __future__ import annotations

import functools
import tomllib
from math import cos, pi, sin, sqrt
from typing import Any

import numpy as np
import pytest
from component_bench import Bench, program
from planar_bench import CONFIG, G, alone, body, lagrange, pin, table
from scipy.integrate import solve_ivp

from hilserver.bench.boom_reference import HEAVY, LIGHT, Boom
from hilserver.circuit import engine as e
from hilserver.circuit.analysis import Analysis
from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.circuit.pack import pack
from hilserver.mechanics.assembly import Assembly, closures
from hilserver.mechanics.model import read_mechanism
from hilserver.numerics.arrays import Floats

# --- single mechanisms ------------------------------------------------------------------------------------------------


def test_a_pendulum() -> None:
    """Released level: exact equation of one angle; RK4 with 1 ms over 3 s, 1e-8 rad."""
    pendulum = {"bodies": {"b": body(2.0, 0.5, 0.8, 0.0)}, "joints": {"p": pin("ground", "b", 0.0, 0.0)}}
    bench = Bench(alone(pendulum))
    found = bench.record(("m.b.angle", "m.b.w"), 3.0, 1e-3)
    times = np.arange(1.0, 3001.0) * 1e-3
    J = 0.5 + 2.0 * 0.8**2
    expected = lagrange(lambda _: J, lambda q: 2.0 * G * 0.8 * sin(q), [0.0, 0.0], times)
    assert np.abs(found["m.b.angle"] - expected[0]).max() < 1e-8
    assert np.abs(found["m.b.w"] - expected[1]).max() < 1e-7


def double_pendulum(solver: dict[str, Any] | None = None) -> dict[str, Any]:
    bodies = {"a": body(1.0, 0.08, 0.5, 0.0), "b": body(0.7, 0.05, 1.4, 0.0)}
    joints = {"p": pin("ground", "a", 0.0, 0.0), "q": pin("a", "b", 1.0, 0.0)}
    return alone({"bodies": bodies, "joints": joints}, solver)


def double_pendulum_rates(t: float, y: Floats) -> list[float]:
    """Textbook equations of a compound double pendulum, angles from the horizontal."""
    l1, c1, c2, m1, m2, J1, J2 = 1.0, 0.5, 0.4, 1.0, 0.7, 0.08, 0.05
    a, b, w, o = y
    matrix = [
        [J1 + m1 * c1**2 + m2 * l1**2, m2 * l1 * c2 * cos(a - b)],
        [m2 * l1 * c2 * cos(a - b), J2 + m2 * c2**2],
    ]
    right = [
        -m2 * l1 * c2 * sin(a - b) * o**2 - (m1 * c1 + m2 * l1) * G * cos(a),
        m2 * l1 * c2 * sin(a - b) * w**2 - m2 * c2 * G * cos(b),
    ]
    return [w, o, *np.linalg.solve(matrix, right)]


def test_a_double_pendulum_agrees_until_it_becomes_chaotic() -> None:
    """1.5 s from the horizontal: RK4 with 1 ms, 1e-7 rad."""
    times = np.arange(1, 1501) * 1e-3
    found = Bench(double_pendulum()).record(("m.a.angle", "m.b.angle"), 1.5, 1e-3)
    expected = solve_ivp(double_pendulum_rates, (0.0, 1.5), [0.0] * 4, "DOP853", times, rtol=1e-11, atol=1e-12).y
    assert np.abs(found["m.a.angle"] - expected[0]).max() < 1e-7
    assert np.abs(found["m.b.angle"] - expected[1]).max() < 1e-7


def test_energy_of_a_double_pendulum_stays() -> None:
    """No friction, no forces: 10 s with 1 ms, 1e-7 of what it has moved (some 10 J)."""
    bench = Bench(double_pendulum())

    def energy() -> float:
        total = 0.0
        for name, m, J in (("a", 1.0, 0.08), ("b", 0.7, 0.05)):
            x, y, w = (bench[f"m.{name}.{part}"] for part in ("vx", "vy", "w"))
            total += 0.5 * m * (x * x + y * y) + 0.5 * J * w * w + m * G * bench[f"m.{name}.y"]
        return total

    before = energy()
    for _ in range(10):
        bench.run(1.0, 1e-3)
        assert energy() == pytest.approx(before, abs=1e-6)


def slider_crank(angle: float) -> tuple[float, float]:
    """Twice the kinetic energy over the squared speed of the crank, and the potential, of config's slider-crank."""
    r, L = 0.1, 0.35
    s, c = sin(angle), cos(angle)
    lean = sqrt(L * L - r * r * s * s)  # the rod's level length
    turn = -r * c / lean  # the rod's angle per angle of the crank: sin(rod) = -r sin(crank)/L
    slide = -r * s - r * r * s * c / lean
    crank = np.hypot(0.0353553, 0.0353553)
    share = np.hypot(0.2421021 - 0.0707107, 0.0353553 - 0.0707107) / L  # the rod's centre along it
    vx, vy = (1 - share) * -r * s + share * slide, (1 - share) * r * c
    inertia = 0.0033 + 1.0 * crank**2 + 1.2 * (vx * vx + vy * vy) + 0.0145 * turn**2 + 2.0 * slide**2
    return inertia, G * (1.0 * crank * s + 1.2 * (1 - share) * r * s)


def test_a_slider_crank() -> None:
    """Falls from 45 degrees and swings: one angle after Lagrange; RK4 with 1 ms over 5 s, 1e-5 rad.

    The file's numbers close its loop to some 1e-8 m; that is what is left.
    """
    bench = Bench(alone(table("slider_crank")))
    found = bench.record(("crank_torque.phi", "m.slider.y"), 5.0, 1e-3)
    times = np.arange(1.0, 5001.0) * 1e-3
    expected = lagrange(lambda q: slider_crank(q)[0], lambda q: slider_crank(q)[1], [pi / 4, 0.0], times)
    assert np.abs(found["crank_torque.phi"] + pi / 4 - expected[0]).max() < 1e-5
    assert np.abs(found["m.slider.y"]).max() < 1e-8


def test_a_four_bar_linkage_turned_by_a_torque() -> None:
    """What the torque does, 10 J in 1 s, becomes energy, to 2e-5 J with 1 ms; closed to what one step opens: 1e-8 m."""
    torque = {"type": "torque_source", "ports": {"shaft": "crank_torque"}, "command": 1, "torque": "0.5 N*m"}
    bench = Bench(alone(table("four_bar"), motor=torque))
    masses = {"crank": (0.6, 0.0008), "coupler": (1.5, 0.0155), "rocker": (1.1, 0.0058)}
    closed = Assembly(mechanism := read_mechanism(table("four_bar")), closures(mechanism))

    def energy() -> float:
        total = 0.0
        for name, (m, J) in masses.items():
            vx, vy, w = (bench[f"m.{name}.{part}"] for part in ("vx", "vy", "w"))
            total += 0.5 * m * (vx * vx + vy * vy) + 0.5 * J * w * w + m * G * bench[f"m.{name}.y"]
        return total - 0.5 * bench["crank_torque.phi"]

    before = energy()
    for _ in range(10):
        bench.run(0.1, 1e-3)
        assert energy() == pytest.approx(before, abs=2e-5)
        states = np.array([bench[f"m.{name}.{x}"] for name in masses for x in ("x", "y", "angle", "vx", "vy", "w")])
        places, speeds, _ = closed.of(states)
        assert np.abs(places).max() < 1e-8
        assert np.abs(speeds).max() < 1e-5
    assert bench["crank_torque.phi"] > 2 * pi


def test_the_masses_of_a_circuit_move_with_its_nodes() -> None:
    """A mass at a node counts along the cylinder: a boom lifted by a force, one angle after Lagrange, 1e-8 rad."""
    force = {"type": "force_source", "ports": {"rod": "lift"}, "command": 1, "force": "5 kN"}
    mass = {"type": "load_mass", "ports": {"rod": "lift"}, "mass": "300 kg", "gravity": "0 m/s^2"}
    bench = Bench(alone(table("boom"), push=force, mass=mass))
    found = bench.record(("m.boom.angle",), 0.5, 1e-3)
    boom = Boom(1.306064, LIGHT.cylinder, m_rod=300.0)
    expected = solve_ivp(
        lambda t, y: [y[1], boom.acceleration(y[0], y[1], 5e3)],
        (0.0, 0.5), [0.0, 0.0], "DOP853", np.arange(1, 501) * 1e-3, rtol=1e-11, atol=1e-12,
    ).y  # fmt: skip
    assert np.abs(found["m.boom.angle"] - expected[0]).max() < 1e-8
    assert expected[0][-1] > 0.02


# --- the hydraulic boom -----------------------------------------------------------------------------------------------


def boom_circuit(name: str, **solver: Any) -> dict[str, Any]:
    """config's boom with its work cycle as signals, so that it is not held over a tick."""
    source = tomllib.loads((CONFIG / "circuits/boom.toml").read_text())
    for k, (begin, rise, height) in enumerate([(0.3, 0.4, 0.5), (1, 0.2, -0.5), (2, 0.3, -0.8), (2.5, 0.5, 0.8)]):
        source["components"][f"step{k}"] = {
            "type": "step_signal", "signal": f"u{k}", "start": f"{begin} s", "rise_time": f"{rise} s", "after": height,
        }  # fmt: skip
    for a, b, both in (("u0", "u1", "up"), ("u2", "u3", "down"), ("up", "down", "joystick")):
        source["components"][both] = {"type": "sum", "a": a, "b": b, "signal": both}
    source["mechanisms"]["boom"] = {"definition": table(name), "nodes": {"lift": "rod"}}
    return {**source, "solver": solver}


@functools.cache
def converged(boom: Boom) -> Floats:
    return boom.run(np.arange(1.0, 4001.0) * 1e-3)


BOOMS = {"boom": LIGHT, "boom_heavy_cylinder": HEAVY}


@pytest.mark.parametrize("name", BOOMS)
@pytest.mark.parametrize(
    ("solver", "step", "rad", "pascals"),
    [
        ({"substeps": 1}, 1e-3, 1e-6, 50.0),
        ({"substeps": 1, "integrator": "rosenbrock"}, 1e-3, 1e-6, 1e3),
        ({"substeps": 10, "mechanics_substeps": 1}, 1e-4, 2e-6, 50.0),
        ({"substeps": 10, "mechanics_substeps": 5}, 1e-4, 1e-6, 50.0),
    ],
)
def test_the_boom_of_the_source(name: str, solver: dict[str, Any], step: float, rad: float, pascals: float) -> None:
    """The source's cycle of 4 s against an independent solution (boom_reference); there 2.5e-3 rad and 1.5e5 Pa apart.

    With 1 ms, and with hydraulic steps of 0.1 ms that share solutions of the mechanics.
    """
    found = Bench(boom_circuit(name, **solver)).record(("boom.boom.angle", "A.p", "B.p"), 4.0, step, 1e-3)
    angle, _, p_A, p_B, _ = converged(BOOMS[name])
    assert np.abs(found["boom.boom.angle"] - angle).max() < rad
    assert np.abs(found["A.p"] - p_A).max() < pascals
    assert np.abs(found["B.p"] - p_B).max() < pascals
    assert angle.max() > 0.08


def test_shared_solutions_are_of_second_order() -> None:
    """Steps that share a solution take that of their middle: twice as often, a quarter of the error."""

    def angle(**solver: int) -> float:
        bench = Bench(double_pendulum(solver))
        for _ in range(50):
            bench.run(0.01, 0.01 / solver["substeps"])
        return bench["m.a.angle"]

    exact = angle(substeps=20)
    errors = [abs(angle(substeps=20, mechanics_substeps=n) - exact) for n in (2, 4, 10)]
    assert 3.0 < errors[0] / errors[1] < 5.0
    assert 5.0 < errors[1] / errors[2] < 8.0


@pytest.mark.parametrize("shared", [0, 2])
def test_the_boom_starts_at_rest_and_has_an_equilibrium(shared: int) -> None:
    """The file's start is in equilibrium: nothing moves by itself, and the analysis finds it where it is (1e-5 rad)."""
    source = tomllib.loads((CONFIG / "circuits/boom.toml").read_text())
    if shared:
        source["solver"] = {"substeps": shared, "mechanics_substeps": 1}
    circuit = read_circuit(source, standard_library(), folder=CONFIG / "circuits")
    packed = pack(circuit, standard_library())
    analysis = Analysis(program(), packed)
    rates = analysis.rates(analysis.values[: packed.n_states].copy())
    assert np.abs(rates[[packed.values.index(f"boom.boom.{x}") for x in ("vx", "vy", "w")]]).max() < 1e-5
    assert int(packed.index[e.SOLUTION_STEPS]) == shared
    settled = analysis.steady_state()
    assert settled[packed.values.index("boom.boom.angle")] == pytest.approx(0.0, abs=1e-5)
    assert settled[packed.values.index("A.p")] == pytest.approx(92e5, rel=1e-3)


def test_a_linearised_mechanism_has_no_motions_of_its_closures() -> None:
    """What is not closed closes again (Baumgarte): beside the boom's own poles all are at -20 1/s, four of them.

    The stroke follows the mechanism within 10 ms: -100 1/s.
    """
    boom = {**table("boom"), "gravity": ["0 m/s^2", "0 m/s^2"]}
    packed = pack(read_circuit(alone(boom), standard_library()), standard_library())
    poles = Analysis(program(), packed).linearised().poles()
    assert sorted(np.round(poles.real, 1)) == [-100.0] + [-20.0] * 4 + [0.0] * 2


# --- drift ------------------------------------------------------------------------------------------------------------


def test_an_open_loop_is_closed_at_once() -> None:
    """After a switch the carried values may not fit the new mechanism: 10 mm and 0.1 m/s off, closed after one step."""
    bench = Bench(alone(table("boom_heavy_cylinder"), {"substeps": 1}))
    bench["m.boom.x"] = bench["m.boom.x"] + 0.01
    bench["m.lift.rod.vy"] = 0.1
    bench.run(1e-3, 1e-3)
    mechanism = read_mechanism(table("boom_heavy_cylinder"))
    states = bench.z[bench.packed.values.index("m.boom.x") :][: 6 * len(mechanism.bodies)]
    places, speeds, _ = Assembly(mechanism, closures(mechanism)).of(states)
    assert np.abs(places).max() < 1e-8
    assert np.abs(speeds).max() < 1e-6
