"""What holds for every component of the standard library: its kernels' names, parameters, states, descriptions."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from component_bench import BAR, L_MIN

from hilserver.circuit.library import Role, Term, standard_library
from hilserver.circuit.model import read_circuit
from hilserver.compiler.lowering import register_marks
from hilserver.components.base import Component, Datasheet, Fluid, Table
from hilserver.toml import read_toml

VALVE = {
    "nominal_flow": {"flow": "40 l/min", "drop": "35 bar", "per": "edge"},
    "leakage": {"flow": "0.6 l/min", "drop": "70 bar", "per": "edge"},
}
POINT = {"flow": "40 l/min", "drop": "2 bar"}
LINE = {"inner_diameter": "16 mm", "length": "5 m"}
DATASHEETS: dict[str, dict[str, Any]] = {
    "cylinder": {
        "bore": "63 mm",
        "rod_diameter": "36 mm",
        "stroke": "500 mm",
        "moving_mass": "12 kg",
        "dead_volume_A": "0.2 l",
        "dead_volume_B": "0.2 l",
        "line_A": LINE,
        "leakage": "0.001 l/min/bar",
    },
    "fixed_pump": {"displacement": "28 cm^3/rev", "speed": "1500 rpm", "max_power": "11 kW"},
    "flow_sensor": {"nominal_flow": POINT},
    "flow_source": {"flow": "20 l/min"},
    "hose": {**LINE, "wall_coefficient": "2e5 Pa^0.5"},
    "load_mass": {"mass": "500 kg", "inertia": "20 kg*m^2", "radius": "0.5 m"},
    "orifice": {"nominal_flow": POINT},
    "pipe": {**LINE, "wall_thickness": "2 mm"},
    "position_sensor": {},
    "pressure_compensated_pump": {"max_flow": "60 l/min", "set_pressure": "140 bar", "max_power": "11 kW"},
    "pressure_sensor": {},
    "pressure_source": {"pressure": "210 bar"},
    "proportional_valve_4_3": {**VALVE, "f45": "30 Hz"},
    "relief_valve": {"opening_pressure": "150 bar", "override": [["5 bar", "20 l/min"], ["15 bar", "60 l/min"]]},
    "servo_valve": {**VALVE, "f90": "100 Hz", "opening_rate": "50 1/s", "overlap": 0.03},
    "tank": {},
    "volume": {"volume": "2 l"},
}
_PISTON = {"F_mu", "F_end"}
EXTRA_RESULTS = {
    "accumulator": {"p_gas"},
    **dict.fromkeys(("cylinder", "double_rod_cylinder", "single_acting_cylinder"), _PISTON),
    "crane_arm": {"theta", "w"},
    "friction": {"F_mu"},
    "pilot_operated_check_valve": {"opening"},
    "rack_and_pinion": {"phi", "w"},
}
"""Results that are logged without adding to a node: all others must be understood by their name."""

LIBRARY = standard_library()
TYPES = [k for k, c in LIBRARY.types.items() if c.__module__.startswith("hilserver.components.")]
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def example(kind: str) -> Component:
    """With the datasheet above, else as in the example circuit of its page."""
    if kind in DATASHEETS:
        return LIBRARY.types[kind].model_validate(DATASHEETS[kind])
    file = EXAMPLES / f"{kind}.toml"
    circuit = read_circuit(read_toml(file), LIBRARY, str(file))
    return next(placed.component for placed in circuit.placed if placed.component.type_name == kind)


@pytest.mark.parametrize("kind", TYPES)
def test_every_argument_name_of_a_kernel_is_valid(kind: str) -> None:
    component = example(kind)
    parameters = component.parameters(Fluid())
    states = {state.name for state in component.states}
    derived, extra = set(), set()
    for contract in LIBRARY.contracts_of(type(component)):
        for term in contract.arguments:
            assert not term.from_parameters or term.name in parameters, f"{kind}: {term.word} is no parameter"
        derived |= {term.name for term in contract.results if term.role is Role.DERIVATIVE}
        extra |= {term.word for term in contract.results if term.role is Role.OBSERVABLE}
    assert derived == states
    assert extra == EXTRA_RESULTS.get(kind, set())


@pytest.mark.parametrize("kind", TYPES)
def test_states_start_within_their_limits(kind: str) -> None:
    component = example(kind)
    parameters = component.parameters(Fluid())
    for state in component.states:
        lower, initial, upper, scale = (
            parameters[value] if isinstance(value, str) else value
            for value in (state.lower, state.initial, state.upper, state.scale)
        )
        assert lower <= initial <= upper
        assert 0.0 < scale < math.inf


@pytest.mark.parametrize("kind", TYPES)
def test_every_value_of_a_datasheet_is_described(kind: str) -> None:
    def check(model: type[Datasheet]) -> None:
        for name, field in model.model_fields.items():
            assert field.description, f"{kind}: {name}"

    check(LIBRARY.types[kind])
    component = example(kind)
    for name in type(component).model_fields:
        if isinstance(value := getattr(component, name), Datasheet):
            check(type(value))


@functools.cache
def compiled(kernel: Any) -> Any:
    """A kernel by itself, compiled once for all pressures."""
    register_marks()
    return numba.njit(kernel, error_model="numpy")


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("p", [0.0, 120 * BAR, -0.9 * BAR])
def test_compiled_and_plain_kernels_agree(kind: str, p: float) -> None:
    """Numba and CPython agree to rounding; a kernel that Numba can't compile fails here with its name."""
    component = example(kind)
    known = {
        **component.parameters(Fluid(air_fraction=0.01)),
        **dict.fromkeys(("p_P", "p_A"), p),
        **dict.fromkeys(("p_T", "p_B"), 3 * BAR),
        **{"x_rod": 0.5003, "v_rod": -0.2, "u_command": 0.7, "U": 0.05, "W": 1.0, "y": 0.1, "K": 1e-8, "Q": 20 * L_MIN},
    }
    for contract in LIBRARY.contracts_of(type(component)):
        function = contract.kernel.function
        first, second = ([_value(component, term, known) for term in contract.arguments] for _ in range(2))
        assert compiled(function)(*first) == pytest.approx(function(*second), rel=1e-12, abs=1e-18)


def _value(component: Component, term: Term, known: dict[str, Any]) -> Any:
    """What a kernel gets for an argument: a number, or array and start; 0.3 (40 bar) for names not known."""
    value = known.get(term.word, 40 * BAR if term.role is Role.PRESSURE else 0.3)
    if isinstance(value, Table):
        return np.array([len(value.x), *value.x, *value.y]), 0
    sizes = {memory.name: memory.size for memory in component.memories}
    if sizes.get(term.word, 1) > 1:
        return np.zeros(sizes[term.word]), 0
    return float(value)
