"""Stiffness in the regimes that a circuit can enter, and initial values that no node has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hilserver.circuit.analysis import Analysis, Stiffness, too_long
from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.circuit.pack import pack
from hilserver.circuit.regimes import regimes, stiffest
from hilserver.compiler import compiled_program
from hilserver.errors import ConfigurationError
from hilserver.mechanics.model import Revolute
from hilserver.toml import read_toml

FRICTION = {"type": "friction", "ports": {"rod": "rod"}, "static": "2 kN", "coulomb": "1.5 kN"}
LOAD = {"type": "load_mass", "ports": {"rod": "rod"}, "mass": "5 kg", "gravity": "0 m/s^2"}
STOP = {"type": "end_stop", "ports": {"rod": "rod"}, "upper": "0.1 m"}


def examined(circuit: dict[str, Any], step: float) -> Stiffness:
    library = standard_library()
    read = read_circuit(circuit, library)
    return stiffest(compiled_program(library), read, pack(read, library), step)


def test_stiff_friction_is_found_while_it_slides() -> None:
    """Stribeck: F_S/v_0 = 2 kN / 0.5 mm/s on 5 kg: 1.25 µs, at standstill only."""
    start = {"rod": {"velocity": "0.2 m/s"}}
    found = examined({"components": {"friction": FRICTION, "load": LOAD}, "nodes": start}, 1e-4)
    assert found.regime == "at standstill"
    assert found.time_constant == pytest.approx(5 / (2000 / 5e-4), rel=0.01)
    text = too_long(found, "rk4", 1e-3, 10)
    assert text is not None
    assert "too long for rk4 at standstill: rod.v changes within 1 µs" in text


@pytest.mark.parametrize("mass", [0.01, 1.0, 5.0, 100.0])
@pytest.mark.parametrize("step", [5e-5, 1e-4, 1e-3])
def test_contact_with_the_default_stop_is_stable_at_any_step(mass: float, step: float) -> None:
    circuit = {"components": {"stop": STOP, "load": {**LOAD, "mass": f"{mass} kg"}}}
    assert too_long(examined(circuit, step), "rk4", step, 1) is None


def test_an_end_stop_too_stiff_for_euler_is_found_from_any_position() -> None:
    """K = 1e9 N/m without damping: euler amplifies every undamped motion, also of a mass far from the stop."""
    stop = {**STOP, "stiffness": "1e9 N/m", "damping": "1e4 N*s/m"}
    circuit = {"solver": {"integrator": "euler"}, "components": {"stop": stop, "load": LOAD}}
    found = examined(circuit, 1e-4)
    assert found.regime == "with rod at an end stop"
    text = too_long(found, "euler", 1e-3, 10)
    assert text is not None
    assert "too long for euler with rod at an end stop" in text


def test_advised_settings_are_valid_for_the_solver() -> None:
    """More than 1000 substeps are not possible; and at the limit of stability nothing decays."""
    fast = Stiffness(1e-7, "A.content", np.array([-1e7]))
    text = too_long(fast, "rk4", 1e-3, 10)
    assert text is not None
    assert "at least" not in text
    assert 'Use integrator = "rosenbrock"' in text
    moderate = too_long(Stiffness(1e-5, "A.content", np.array([-1e5])), "rk4", 1e-3, 10)
    assert moderate is not None
    needed = int(moderate.split("at least ")[1].split()[0])
    assert 1e5 * 1e-3 / needed < 2.0  # of 2.785


# --- initial values ---------------------------------------------------------------------------------------------------

TANK = {"type": "tank", "ports": {"T": "tank"}}
VOLUME = {"type": "volume", "ports": {"P": "line"}, "volume": "1 l"}
ORIFICE = {"type": "orifice", "ports": {"A": "line", "B": "tank"}, "diameter": "1 mm"}
HELD = {"type": "velocity_source", "ports": {"rod": "rod"}}


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        (
            {"tank": {"pressure": "3 bar"}},
            r"nodes\.tank\.pressure: tank already prescribes it: remove this value\.",
        ),
        (
            {"rod": {"position": "0.1 m"}},
            r"nodes\.rod\.position: held already prescribes it: .* set components\.held\.initial\.",
        ),
        ({"line": {"pressure": "-1.5 bar"}}, r"nodes\.line\.pressure: -1\.5 bar is below the vapour pressure"),
        ({"line": {"position": "0.1 m"}}, r"nodes\.line\.position: a hydraulic node has pressure and pressure_from\."),
        ({"rod": {"pressure": "1 bar"}}, r"nodes\.rod\.pressure: a mechanical node has position and velocity\."),
    ],
)
def test_an_initial_value_without_effect_is_refused(nodes: dict[str, Any], text: str) -> None:
    components = {"tank": TANK, "line": VOLUME, "way": ORIFICE, "held": HELD, "load": LOAD}
    library = standard_library()
    with pytest.raises(ConfigurationError, match=text):
        pack(read_circuit({"components": components, "nodes": nodes}, library), library)


# --- closed valves, and stops of mechanisms ---------------------------------------------------------------------------


def test_a_valve_that_closes_leaves_an_oscillation_that_euler_amplifies() -> None:
    """The open valve damps 20 kg on their oil; closed, the oil is a spring: J has a pair at sqrt(A²·(1/C_A + 1/C_B)/m).

    The mass slides, so that its friction (none here) would not damp it either.
    """
    valve = {
        "type": "proportional_valve_4_3",
        "ports": {"P": "P", "T": "tank", "A": "A", "B": "B"},
        "command": 1.0,
        "nominal_flow": {"flow": "60 l/min", "drop": "5 bar", "per": "edge"},
        "f45": "50 Hz",
    }
    cylinder = {
        "type": "cylinder",
        "ports": {"A": "A", "B": "B", "rod": "rod"},
        "bore": "63 mm",
        "rod_diameter": "36 mm",
        "stroke": "500 mm",
        "moving_mass": "20 kg",
        "dead_volume_A": "0.5 l",
        "dead_volume_B": "0.5 l",
        "friction": {"efficiency": 1.0},
    }
    supply = {"type": "pressure_source", "ports": {"P": "P"}, "pressure": "100 bar"}
    raw = {
        "solver": {"integrator": "euler"},
        "components": {"valve": valve, "cylinder": cylinder, "supply": supply, "tank": TANK},
        "nodes": {
            "A": {"pressure": "99.9 bar"},
            "B": {"pressure": "0.1 bar"},
            "rod": {"position": "250 mm", "velocity": "0.1 m/s"},
        },
    }
    library = standard_library()
    circuit = read_circuit(raw, library)
    packed, program = pack(circuit, library), compiled_program(library)
    start = Analysis(program, packed).values
    start[packed.values.index("valve.U")] = 1.0
    found = {name: Analysis(program, packed, at).stiffness() for name, at in regimes(circuit, packed, start)}
    assert "with closed valves" in found
    area, annulus = 0.25 * np.pi * 0.063**2, 0.25 * np.pi * (0.063**2 - 0.036**2)
    C_A, C_B = (5e-4 + 0.25 * area) / 1.5e9, (5e-4 + 0.25 * annulus) / 1.5e9
    omega = np.sqrt((area**2 / C_A + annulus**2 / C_B) / 20.0)
    closed = found["with closed valves"].eigenvalues
    pair = closed[np.abs(closed.imag) > 0.5 * omega]
    assert np.abs(pair) == pytest.approx(omega, rel=1e-3)
    assert np.abs(pair.real).max() < 1e-3 * omega
    opened = found[""].eigenvalues
    oscillating = opened[np.abs(opened.imag) > 0.5 * omega]
    assert (oscillating.real < -0.05 * omega).all()


def test_the_stops_of_a_cylinder_on_a_mechanism_are_examined() -> None:
    """A stop of 1e9 N/m without damping at the boom's cylinder: the boom stands there, and swings on it.

    Its moment of inertia about its pivot and the lever of the cylinder at the stop (by differences of the pose) give
    the mass at the rod; barrel and rod of the cylinder add a little: 3 %.
    """
    library = standard_library()
    definition = read_toml(Path(__file__).parents[2] / "config" / "mechanisms" / "boom.toml")
    stop = {
        "type": "end_stop",
        "ports": {"rod": "lift"},
        "upper": "0.45 m",
        "stiffness": "1e9 N/m",
        "damping": "0 N*s/m",
    }
    raw = {"mechanisms": {"boom": {"definition": definition}}, "components": {"stop": stop}}
    circuit = read_circuit(raw, library)
    packed, program = pack(circuit, library), compiled_program(library)
    start = Analysis(program, packed).values
    touching = dict(regimes(circuit, packed, start))["with lift at an end stop"]
    there = Analysis(program, packed, touching)
    assert there.values[packed.values.index("lift.x")] == pytest.approx(0.4501, abs=1e-6)
    (placed,) = circuit.mechanisms
    one, other = (placed.values_with("lift", 0.4501 + dx) for dx in (-1e-4, 1e-4))
    lever = (other["boom.boom.angle"] - one["boom.boom.angle"]) / 2e-4
    body, pivot = placed.mechanism.bodies["boom"], placed.mechanism.joints["pivot"]
    assert isinstance(pivot, Revolute)
    reach = np.array(body.centre) - np.array(pivot.point)
    inertia = body.inertia[0] + body.mass * float(reach @ reach)
    omega = np.sqrt(1e9 / (inertia * lever**2))
    fastest = there.stiffness().eigenvalues[0]
    assert abs(fastest) == pytest.approx(omega, rel=0.03)
    found = stiffest(program, circuit, packed, 1e-3)
    assert found.regime == "with lift at an end stop"
