"""Mechanisms in a plane against equations of Lagrange written down here, in circuits, through the compiled engine."""

from __future__ import annotations

import copy
import functools
import re
import tomllib
from collections.abc import Callable
from math import cos, hypot, pi, sin, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from boom_reference import HEAVY, LIGHT, Boom
from component_bench import Bench, program
from scipy.integrate import solve_ivp

from hilserver.circuit import engine as e
from hilserver.circuit.analysis import Analysis
from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.circuit.pack import PackedCircuit, pack
from hilserver.errors import ConfigurationError
from hilserver.mechanics.assembly import Assembly, closures, mobility, start
from hilserver.mechanics.model import Mechanism, read_mechanism
from hilserver.numerics.arrays import Floats

CONFIG = Path(__file__).parents[2] / "config"
G = 9.81


def table(name: str) -> dict[str, Any]:
    return tomllib.loads((CONFIG / f"mechanisms/{name}.toml").read_text())


def alone(definition: dict[str, Any], solver: dict[str, Any] | None = None, **components: Any) -> dict[str, Any]:
    """A circuit with one mechanism m."""
    return {"solver": solver or {}, "components": components, "mechanisms": {"m": {"definition": definition}}}


def body(mass: float, inertia: float, x: float, y: float) -> dict[str, Any]:
    return {"mass": f"{mass} kg", "inertia": f"{inertia} kg*m^2", "centre": [f"{x} m", f"{y} m"]}


def pin(one: str, other: str, x: float, y: float, **more: Any) -> dict[str, Any]:
    return {"type": "revolute", "between": [one, other], "point": [f"{x!r} m", f"{y!r} m"], **more}


def lagrange(
    inertia: Callable[[float], float], potential: Callable[[float], float], y0: list[float], times: Floats
) -> Floats:
    """Place and speed of one degree of freedom: I(q) q'' + I'(q) q'^2 / 2 + V'(q) = 0; slopes by differences."""

    def slope(f: Callable[[float], float], q: float) -> float:
        h = 1e-3
        return (8 * (f(q + h) - f(q - h)) - f(q + 2 * h) + f(q - 2 * h)) / (12 * h)

    def rates(t: float, y: Floats) -> list[float]:
        return [y[1], -(slope(potential, y[0]) + 0.5 * slope(inertia, y[0]) * y[1] ** 2) / inertia(y[0])]

    found = solve_ivp(rates, (0.0, times[-1]), y0, "DOP853", times, rtol=1e-11, atol=1e-12)
    return np.asarray(found.y)


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


def test_a_double_pendulum_is_followed_until_it_is_chaotic() -> None:
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
    """What is not closed closes again (Baumgarte): beside the boom's own poles all are at -20 1/s, four of them."""
    boom = {**table("boom"), "gravity": ["0 m/s^2", "0 m/s^2"]}
    packed = pack(read_circuit(alone(boom), standard_library()), standard_library())
    poles = Analysis(program(), packed).linearised().poles()
    assert sorted(np.round(poles.real, 1)) == [-20.0] * 4 + [0.0] * 2


# --- drift ------------------------------------------------------------------------------------------------------------


def test_what_has_come_apart_is_put_together_at_once() -> None:
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


# --- start ------------------------------------------------------------------------------------------------------------


def test_a_start_other_than_the_drawing() -> None:
    """The boom at a piston of 0.40 m that extends with 50 mm/s: the triangle's angle, and w = v / arm."""
    definition = table("boom")
    definition["actuators"]["lift"] |= {"start": "0.40 m", "start_speed": "50 mm/s"}
    bench = Bench(alone(definition))
    bench.run(0.0, 1e-3)
    assert bench["lift.x"] == pytest.approx(0.40, abs=1e-9)
    assert bench["lift.v"] == pytest.approx(0.05, abs=1e-9)
    length, arm, *_ = LIGHT.geometry(bench["m.boom.angle"])
    assert length == pytest.approx(0.40 + 0.6233981, abs=1e-9)
    assert bench["m.boom.w"] == pytest.approx(0.05 / arm, rel=1e-9)


def test_an_angle_of_a_joint_at_the_start() -> None:
    definition = table("slider_crank")
    definition["joints"]["shaft"] |= {"start": "75 deg", "start_speed": "60 rpm"}
    states = start(read_mechanism(definition)).reshape(-1, 6)
    assert states[0, 2] == pytest.approx(75 * pi / 180)
    assert states[0, 5] == pytest.approx(2 * pi)
    angle = pi / 4 + 75 * pi / 180
    assert states[2, 0] == pytest.approx(0.1 * cos(angle) + sqrt(0.35**2 - (0.1 * sin(angle)) ** 2), abs=1e-6)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"start": "2 m"}, "m.actuators.lift.start: the mechanism can't reach this start"),
        (
            {"start_speed": "1 m/s", "pivot": "1 rpm"},
            "joints.pivot, actuators.lift.start_speed: the mechanism can't have",
        ),
    ],
)
def test_an_impossible_start_is_refused(change: dict[str, str], expected: str) -> None:
    definition = table("boom")
    if speed := change.pop("pivot", ""):
        definition["joints"]["pivot"]["start_speed"] = speed
    definition["actuators"]["lift"] |= change
    with pytest.raises(ConfigurationError, match=re.escape(expected)):
        packed_of(definition)


def packed_of(definition: dict[str, Any]) -> PackedCircuit:
    return pack(read_circuit(alone(definition), standard_library(), "c.toml"), standard_library(), file="c.toml")


# --- mobility ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "freedom"),
    [("boom", 1), ("boom_heavy_cylinder", 1), ("slider_crank", 1), ("four_bar", 1), ("excavator", 3)],
)
def test_degrees_of_freedom_of_the_ready_mechanisms(name: str, freedom: int) -> None:
    found = mobility(read_mechanism(table(name)))
    assert found.freedom == freedom
    assert found.redundant == {}


def parallelogram(cranks: int, length: float = 0.5) -> dict[str, Any]:
    """A level bar on upright cranks: with more than two one constraint each says nothing new."""
    bodies = {"bar": body(5.0, 1.0, 0.5, length)}
    joints = {}
    for k in range(cranks):
        x = k / (cranks - 1)
        bodies[f"crank{k}"] = body(1.0, 0.02, x, 0.5 * length)
        joints[f"foot{k}"] = pin("ground", f"crank{k}", x, 0.0)
        joints[f"top{k}"] = pin(f"crank{k}", "bar", x, length)
    return {"bodies": bodies, "joints": joints}


def test_a_redundant_constraint_is_named_and_left_out() -> None:
    """Three cranks do what two do: the same motion as with two, whose third crank is then on the second (1e-7 rad)."""
    mechanism = read_mechanism(parallelogram(3))
    found = mobility(mechanism)
    assert found.freedom == 1
    assert found.redundant == {"top2": 1}
    definition = parallelogram(3)
    definition["joints"]["foot0"]["start_speed"] = "20 rpm"
    bench = Bench(alone(definition))
    bench.run(1.0, 1e-3)
    inertia = 3 * (0.02 + 1.0 * 0.25**2) + 5.0 * 0.5**2
    weight = G * (3 * 1.0 * 0.25 + 5.0 * 0.5)
    expected = lagrange(lambda _: inertia, lambda q: weight * cos(q), [0.0, 2 * pi / 3], np.array([1.0]))
    assert bench["m.crank2.angle"] == pytest.approx(expected[0, -1], abs=1e-7)
    assert bench["m.bar.angle"] == pytest.approx(0.0, abs=1e-9)


def test_a_dead_centre_at_the_start_is_no_redundancy_and_refused() -> None:
    """A flat parallelogram could go on as one or as a crossed one."""
    definition = parallelogram(2)
    for name, centre, x in (("crank0", 0.25, 0.0), ("crank1", 1.25, 1.0)):
        definition["bodies"][name]["centre"] = [f"{centre} m", "0 m"]
        definition["joints"][f"top{name[-1]}"]["point"] = [f"{x + 0.5} m", "0 m"]
    definition["bodies"]["bar"]["centre"] = ["1 m", "0 m"]
    with pytest.raises(ConfigurationError, match=r"mechanisms\.m: the start is a dead centre"):
        packed_of(definition)


def test_a_locked_mechanism_has_no_freedom() -> None:
    definition = parallelogram(2)
    brace = body(1.0, 0.02, 0.75, 0.25)
    definition["bodies"]["brace"] = brace
    definition["joints"] |= {"b0": pin("ground", "brace", 1.5, 0.0), "b1": pin("brace", "bar", 0.4, 0.5)}
    found = mobility(read_mechanism(definition))
    assert (found.freedom, found.redundant) == (0, {})


# --- in a circuit -----------------------------------------------------------------------------------------------------


def said(circuit: dict[str, Any], folder: Path | None = None) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        pack(read_circuit(circuit, standard_library(), "c.toml", folder), standard_library(), file="c.toml")
    return [str(problem) for problem in caught.value.problems]


BOOM = table("boom")
LIFT = {"type": "force_source", "ports": {"rod": "lift"}, "force": "5 kN", "command": 1}


@pytest.mark.parametrize(
    ("mechanisms", "components", "nodes", "expected"),
    [
        ({"m": 3}, {}, {}, "c.toml: mechanisms.m: 3 is not a table"),
        ({"m": {}}, {}, {}, 'c.toml: mechanisms.m: give file, such as "../mechanisms/boom.toml", or definition.'),
        ({"a.b": {"definition": BOOM}}, {}, {}, "c.toml: mechanisms.a.b: a mechanism's name has no dots"),
        ({"m": {"definition": BOOM, "node": {}}}, {}, {}, "mechanisms.m.node: unknown key. Did you mean nodes?"),
        ({"m": {"definition": {}}}, {}, {}, "c.toml: mechanisms.m.definition.bodies: a mechanism needs at least one"),
        (
            {"m": {"definition": BOOM, "nodes": {"lft": "x"}}},
            {},
            {},
            "mechanisms.m.nodes.lft: the mechanism has no such",
        ),
        (
            {"m": {"definition": BOOM, "nodes": {"lift": 3}}},
            {},
            {},
            "mechanisms.m.nodes.lift: 3 is not the name of a node",
        ),
        ({"m": {"definition": BOOM, "nodes": 3}}, {}, {}, "mechanisms.m.nodes: 3 is not a table such as"),
        (
            {"m": {"definition": BOOM}, "n": {"definition": BOOM}},
            {},
            {},
            'mechanisms.n.nodes.lift: "lift" is also moved by mechanisms.m.nodes.lift',
        ),
        (
            {"m": {"definition": BOOM}},
            {"v": {"type": "volume", "ports": {"P": "lift"}, "volume": "1 l"}},
            {},
            '"lift" is a hydraulic node elsewhere and a mechanical node here',
        ),
        (
            {"m": {"definition": BOOM}},
            {},
            {"lift": {"position": "1 m"}},
            "nodes.lift: mechanisms.m moves this node: its actuator lift determines the initial position.",
        ),
        (
            {"m": {"definition": BOOM}},
            {"s": {"type": "position_source", "ports": {"rod": "lift"}, "command": 1, "travel": "1 m"}},
            {},
            '"lift" is moved by mechanisms.m and also prescribed by a component.',
        ),
        ({"m": {"definition": BOOM}}, {"m": LIFT}, {}, ""),
    ],
)
def test_a_wrong_mechanism_in_a_circuit_is_told_where(
    mechanisms: dict[str, Any], components: dict[str, Any], nodes: dict[str, Any], expected: str
) -> None:
    circuit = {"components": components, "mechanisms": mechanisms, "nodes": nodes}
    if not expected:
        pack(read_circuit(circuit, standard_library()), standard_library())
        return
    assert any(expected in text for text in said(circuit)), said(circuit)


def test_solutions_per_tick_divide_the_steps() -> None:
    (text,) = said(alone(BOOM, {"substeps": 6, "mechanics_substeps": 4}))
    assert text == "c.toml: solver: mechanics_substeps 4 does not divide substeps: use one of 1, 2, 3, 6"


def test_a_circuit_holds_its_mechanisms_file(tmp_path: Path) -> None:
    """So the log, a replay and a switch need no other file."""
    (tmp_path / "circuits").mkdir()
    (tmp_path / "mechanisms").mkdir()
    for place in ("mechanisms", "circuits"):
        (tmp_path / place / "boom.toml").write_text((CONFIG / "mechanisms/boom.toml").read_text())
    for name in ("../mechanisms/boom.toml", "boom.toml"):
        raw = {"mechanisms": {"boom": {"file": name, "nodes": {"lift": "rod"}}}}
        circuit = read_circuit(raw, standard_library(), "c.toml", tmp_path / "circuits")
        assert circuit.source["mechanisms"]["boom"] == {"definition": BOOM, "nodes": {"lift": "rod"}}
        again = read_circuit(circuit.source, standard_library(), "elsewhere.arrow")
        assert again.mechanisms[0].mechanism == circuit.mechanisms[0].mechanism


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "../secret.toml",
            'mechanisms.m: file: "../secret.toml" must be a TOML file in the folder of the circuit file',
        ),
        ("../mechanisms/../secret.toml", "must be a TOML file in the folder of the circuit file"),
        ("/etc/passwd.toml", "must be a TOML file in the folder of the circuit file"),
        ("boom.csv", "must be a TOML file in the folder of the circuit file"),
        (3, "mechanisms.m: file: 3 must be a TOML file in the folder of the circuit file"),
        ("../mechanisms/none.toml", 'mechanisms.m: file: "../mechanisms/none.toml" can\'t be read: no such file'),
    ],
)
def test_a_mechanism_comes_from_beside_the_circuit_only(tmp_path: Path, name: object, expected: str) -> None:
    (tmp_path / "circuits").mkdir()
    (tmp_path / "secret.toml").write_text("")
    texts = said({"mechanisms": {"m": {"file": name}}}, tmp_path / "circuits")
    assert any(expected in text for text in texts), texts


def test_a_problem_in_a_mechanisms_file_names_that_file(tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text("bodys = 1\n[bodies.b]\n")
    texts = said({"mechanisms": {"m": {"file": "m.toml"}}}, tmp_path)
    assert f"{tmp_path / 'm.toml'}: bodys: unknown key. Did you mean bodies?" in texts
    assert f"{tmp_path / 'm.toml'}: bodies.b.mass: missing: this value has no default and must be given." in texts


def test_a_circuit_may_have_several_mechanisms() -> None:
    """Two pendulums that don't know of each other, one mirrored."""
    one = {"bodies": {"b": body(2.0, 0.5, 0.8, 0.0)}, "joints": {"p": pin("ground", "b", 0.0, 0.0)}}
    other = {"bodies": {"b": body(2.0, 0.5, -0.8, 0.0)}, "joints": {"p": pin("ground", "b", 0.0, 0.0)}}
    bench = Bench({"mechanisms": {"one": {"definition": one}, "other": {"definition": other}}})
    bench.run(1.0, 1e-3)
    assert bench["one.b.angle"] == pytest.approx(-bench["other.b.angle"], rel=1e-12)
    assert abs(bench["one.b.angle"]) > 1.0


def drawn_lengths(m: Mechanism) -> dict[str, float]:
    return {name: hypot(*np.subtract(*a.pins)) for name, a in m.actuators.items() if hasattr(a, "pins")}


def test_the_cylinders_of_the_excavator_have_room() -> None:
    """Drawn with each piston somewhere within a stroke that fits between its pins."""
    mechanism = read_mechanism(table("excavator"))
    for name, length in drawn_lengths(mechanism).items():
        retracted = copy.copy(mechanism.actuators[name]).retracted  # type: ignore[union-attr]
        assert 0.1 < length - retracted < 0.8 * retracted, name
