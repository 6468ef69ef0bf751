"""Linearisation, equilibrium and stiffness of packed circuits, against hand calculation and plain integration."""

from __future__ import annotations

import tomllib
from math import inf, pi, sqrt
from pathlib import Path

import numpy as np
import pytest
from circuit_text import component, orifice, pressure_source, tank, volume
from component_bench import program as compiled
from rig_bench import bench_rig

from hilserver.circuit import engine as e
from hilserver.circuit.analysis import Analysis, NoEquilibrium, Stiffness, is_surely_stable
from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.circuit.pack import pack
from hilserver.circuit.program import Program
from hilserver.cli.circuit_tables import solver_table
from hilserver.margins.solver import solver_warning, stiffest

CONFIG = Path(__file__).parents[2] / "config" / "circuits"

OUTLET = orifice("outlet", "A=middle B=tank", "10 l/min", "50 bar")
FILLING = (
    pressure_source("source", "supply")
    + orifice("inlet", "A=supply B=middle", "10 l/min", "50 bar")
    + OUTLET
    + volume("middle", "0.5 l", "volume")
    + tank("tank")
)


@pytest.fixture(scope="module")
def program() -> Program:
    return compiled()


def analysis(program: Program, text: str, **inputs: float) -> Analysis:
    packed = pack(read_circuit(tomllib.loads(text), standard_library()), standard_library())
    found = Analysis(program, packed)
    for name, value in inputs.items():
        found.values[packed.values.index(name)] = value
    return found


def test_two_equal_orifices_halve_the_pressure(program: Program) -> None:
    found = analysis(program, FILLING)
    values = found.steady_state()
    assert values[found.packed.values.index("middle.p")] == pytest.approx(50e5, rel=1e-6)


def test_the_time_constant_is_that_of_the_hand_calculation(program: Program) -> None:
    """C·dp/dt = sum of flows: tau = C/(2·dQ/ddp), dQ/ddp = Q/(2·dp) of each turbulent orifice at 50 bar."""
    found = analysis(program, FILLING)
    found.steady_state()
    conductance = (10 / 6e4) / (2 * 50e5)
    stiffness = found.stiffness()
    assert stiffness.time_constant == pytest.approx(0.5e-3 / 1.5e9 / (2 * conductance), rel=1e-4)
    assert stiffness.state == "middle.content"


def test_longest_stable_steps_are_those_of_the_stability_regions(program: Program) -> None:
    """On the negative real axis: 2 for explicit Euler, 2.7853 for RK4 (Hairer & Wanner II, IV.2); none for L-stable."""
    found = analysis(program, FILLING)
    found.steady_state()
    stiffness = found.stiffness()
    assert stiffness.longest_step("euler") / stiffness.time_constant == pytest.approx(2.0, rel=0.01)
    assert stiffness.longest_step("rk4") / stiffness.time_constant == pytest.approx(2.7853, rel=0.01)
    assert stiffness.longest_step("rosenbrock") == float("inf")


@pytest.mark.parametrize("integrator", ["euler", "rk4"])
def test_longest_stable_step_is_the_last_before_the_first_unstable_one_of_all(integrator: str) -> None:
    """Tried one by one, with motions from well damped to almost undamped, slow and fast."""
    random, steps = np.random.default_rng(1), np.geomspace(1e-9, 1e3, 4000)
    for _ in range(50):
        size, damping = 10.0 ** random.uniform(-2, 9, 4), 10.0 ** random.uniform(-4, 0, 4)
        eigenvalues = size * (-damping + 1j * np.sqrt(1.0 - damping**2))
        z = steps[:, None] * np.concatenate([eigenvalues, eigenvalues.conj()])
        grown = np.abs(1 + z if integrator == "euler" else 1 + z + z**2 / 2 + z**3 / 6 + z**4 / 24)
        near = eigenvalues.real < -1e-9 * size.max()
        unstable = (grown.reshape(len(steps), 2, 4)[:, :, near] > 1.0).any(axis=(1, 2))
        expected = steps[max(int(np.argmax(unstable)) - 1, 0)] if unstable.any() else np.inf
        found = Stiffness(1.0, "", np.concatenate([eigenvalues, eigenvalues.conj()])).longest_step(integrator)
        assert found == expected


@pytest.mark.parametrize("joystick", [-0.5, 0.0, 0.5])
def test_equilibrium_of_the_verification_circuit_stays_where_it_is(program: Program, joystick: float) -> None:
    """Integrated on with RK4 for a second from there, nothing moves by more than 1e-6 of its typical size."""
    found = analysis(program, (CONFIG / "verification.toml").read_text(), joystick=joystick)
    values = found.steady_state()
    packed, later = found.packed, values.copy()
    recorded, work = np.zeros(len(packed.recorded)), np.zeros(packed.work_size)
    program.advance(packed.index, packed.value, later, recorded, work, 10_000, 1e-4)
    moved = np.abs(later - values)[: packed.n_states] / found.scale
    assert moved.max() < 1e-6 * 10


def test_a_held_state_stays_and_the_others_settle_around_it(program: Program) -> None:
    found = analysis(program, (CONFIG / "verification.toml").read_text(), joystick=0.0)
    place = found.packed.values.index("rod.x")
    start = found.values[place]
    values = found.steady_state(held=(place, place + 1))
    assert values[place] == start


def test_a_circuit_without_equilibrium_is_named(program: Program) -> None:
    outlet = component("outlet", "flow_source", "P=middle T=tank", flow="10 l/min", command=-1)
    sinking = FILLING.replace(OUTLET, outlet)
    with pytest.raises(NoEquilibrium, match=r"does not reach an equilibrium: middle\.content"):
        analysis(program, sinking.replace('pressure = "100 bar"', 'pressure = "1 bar"')).steady_state()


def test_the_jacobian_is_that_of_the_hand_calculation(program: Program) -> None:
    found = analysis(program, FILLING)
    place = found.packed.values.index("middle.content")
    states = found.values[: found.n].copy()
    states[place] = 30e5
    C, K = 0.5e-3 / 1.5e9, (10 / 6e4) / sqrt(50e5)
    expected = -(K / (2 * sqrt(70e5)) + K / (2 * sqrt(30e5))) / C
    assert found.jacobian(states)[place, place] == pytest.approx(expected, rel=1e-4)


def test_an_undamped_mass_on_a_chamber_has_its_hydraulic_frequency(program: Program) -> None:
    """omega² = A_A²/(C_A·m) + A_B²/(C_B·m), both ports closed (Merritt, Hydraulic Control Systems, 1967, ch. 6)."""
    text = """
    [components.cylinder]
    type = "cylinder"
    ports = { A = "A", B = "B", rod = "rod" }
    bore = "63 mm"
    rod_diameter = "36 mm"
    stroke = "1 m"
    moving_mass = "15 kg"
    dead_volume_A = "0.5 l"
    dead_volume_B = "0.5 l"
    friction = { efficiency = 1 }
    [components.load]
    type = "load_mass"
    ports = { rod = "rod" }
    mass = "985 kg"
    gravity = "0 m/s^2"
    [nodes.A]
    pressure = "50 bar"
    [nodes.B]
    pressure = "74.2 bar"
    [nodes.rod]
    position = "0.4 m"
    """
    A_A, A_B = 0.25 * pi * 0.063**2, 0.25 * pi * (0.063**2 - 0.036**2)
    C_A, C_B = (0.5e-3 + A_A * 0.4) / 1.5e9, (0.5e-3 + A_B * 0.6) / 1.5e9
    omega = sqrt((A_A**2 / C_A + A_B**2 / C_B) / 1000.0)
    eigenvalues = analysis(program, text).stiffness().eigenvalues
    assert np.abs(eigenvalues.imag).max() == pytest.approx(omega, rel=2e-3)


def test_states_at_a_limit_do_not_count(program: Program) -> None:
    """The closed relief valve's poppet rests on its seat: no infinitely fast motion of it."""
    found = analysis(program, (CONFIG / "verification.toml").read_text(), joystick=0.0)
    assert found.stiffness().time_constant > 1e-4
    assert found.packed.index[e.INTEGRATOR] == e.Integrator.RK4


def test_a_circuit_without_states_has_no_stability_limit() -> None:
    """A flow source at the rig's port has nothing that moves: any step is short enough, and it is always at rest."""
    rig = bench_rig()
    found = stiffest(rig, compiled())
    assert found.time_constant == inf
    assert solver_warning(rig, compiled()) is None
    Analysis(compiled(), rig.packed).steady_state()
    assert solver_table(rig).row_count == 1


def test_the_compiled_differences_are_those_of_the_rates(program: Program) -> None:
    """Bit for bit, with a piston at its hard limit, which does not move, and another that is near it."""
    circuit = read_circuit(tomllib.loads((CONFIG / "verification.toml").read_text()), standard_library())
    found = Analysis(program, pack(circuit, standard_library()))
    names, x = found.packed.values[: found.n], found.values[: found.n].copy()
    x[names.index("supply.content")], x[names.index("A.content")], x[names.index("B.content")] = 100e5, 40e5, 20e5
    limited = np.flatnonzero(np.isfinite(found.upper))
    x[limited[0]] = found.upper[limited[0]]
    f = found.rates(x).copy()
    held = (f == 0.0) & ((x <= found.lower) | (x >= found.upper))
    expected = np.zeros((found.n, found.n))
    for k in np.flatnonzero(~held):
        moved, step = x.copy(), 1e-7 * max(abs(x[k]), found.scale[k])
        moved[k] += -step if x[k] + step > found.upper[k] else step
        expected[:, k] = (found.rates(moved) - f) / (moved[k] - x[k])
    expected[held] = 0.0
    assert held.any()
    assert np.array_equal(found.jacobian(x), expected)
    assert np.array_equal(found.rates(found.values[: found.n].copy()), f)


@pytest.mark.parametrize("integrator", ["euler", "rk4"])
def test_a_step_that_is_surely_stable_is_stable(integrator: str) -> None:
    """For motions of any damping; of RK4 the step is examined up to its border."""
    draw, found = np.random.default_rng(7), []
    for _ in range(300):
        eigenvalues = -(10.0 ** draw.uniform(0, 6, 5)) * np.exp(1j * draw.uniform(-1.5, 1.5, 5))
        step = draw.uniform(2.0, 3.0) / np.abs(eigenvalues).max()
        surely = is_surely_stable(eigenvalues, step, integrator)
        assert not surely or step <= Stiffness(1.0, "", eigenvalues).longest_step(integrator)
        found.append(surely)
    assert any(found) == (integrator == "rk4")
    assert not all(found)
