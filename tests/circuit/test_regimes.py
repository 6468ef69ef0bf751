"""Stiffness in the regimes that a circuit can enter, and initial values that no node has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hilserver.circuit.analysis import Stiffness, too_long
from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.circuit.pack import pack
from hilserver.circuit.regimes import stiffest
from hilserver.compiler import compiled_program
from hilserver.errors import ConfigurationError

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
            r"nodes\.tank\.pressure: tank prescribes it from the start: leave this out\.",
        ),
        (
            {"rod": {"position": "0.1 m"}},
            r"nodes\.rod\.position: held prescribes it .* set components\.held\.initial\.",
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
