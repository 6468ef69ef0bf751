"""A circuit read and packed like another one is the same, bit for bit, as if it had been read and packed alone."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hilserver.circuit.change import with_component, with_values
from hilserver.circuit.datasheet import with_value
from hilserver.circuit.library import standard_library
from hilserver.circuit.model import Circuit, read_circuit, read_part
from hilserver.circuit.pack import PackedCircuit, pack
from hilserver.circuit.variant import read_variant, source_of_part
from hilserver.errors import ConfigurationError
from hilserver.simulation.circuit_run import read_circuit_file
from hilserver.studies.quantities import WrittenValue, changeable
from hilserver.tolerances import TolerancedText

CONFIG = Path(__file__).parents[2] / "config" / "circuits"
LIBRARY = standard_library()
FACTORS = (1.02, 20.0, -1.0, 0.0)
AXES = """
[parameters]
flow = "40 l/min"
[components.supply]
type = "pressure_source"
pressure = "150 bar"
ports = { P = "P" }
[components.front]
type = "subcircuit"
file = "axis.toml"
parameters = { size = "2 l" }
ports = { P = "P" }
[components.rear]
type = "subcircuit"
file = "axis.toml"
ports = { P = "P" }
[components.inlet]
type = "orifice"
nominal_flow = { flow = "=flow", drop = "35 bar" }
ports = { A = "P", B = "middle" }
[components.middle]
type = "volume"
volume = "1 l"
ports = { P = "middle" }
"""
AXIS = """
ports = ["P"]
[parameters]
size = "1 l"
[components.orifice]
type = "orifice"
nominal_flow = { flow = "10 l/min", drop = "35 bar" }
ports = { A = "P", B = "A" }
[components.volume]
type = "volume"
volume = "=size"
ports = { P = "A" }
"""


def outcome(make: Callable[[], tuple[Circuit, PackedCircuit]]) -> object:
    """A circuit and all of its numbers, or the problems of one that can't be."""
    try:
        circuit, packed = make()
    except ConfigurationError as error:
        return error.problems
    arrays = packed.index.tobytes(), packed.value.tobytes()
    tables = repr(circuit.source), repr(circuit.written), circuit.origin
    return circuit, tables, arrays, packed.values, packed.recorded, packed.kinds


def changed_tables_of(circuit: Circuit) -> Iterator[Mapping[str, Any]]:
    for each in changeable(circuit).values():
        table = circuit.written if isinstance(each, WrittenValue) else circuit.source
        for factor in FACTORS:
            x = factor * each.value
            yield with_value(table, each.path, f"{x!r} {each.unit}" if each.unit else x)


def require_same(before: Circuit, raw: Mapping[str, Any], folder: Path = CONFIG) -> None:
    like = pack(before, LIBRARY)

    def alone() -> tuple[Circuit, PackedCircuit]:
        circuit = read_circuit(raw, LIBRARY, "circuit.toml", folder)
        return circuit, pack(circuit, LIBRARY, file="circuit.toml")

    def as_variant() -> tuple[Circuit, PackedCircuit]:
        circuit = read_variant(before, raw, LIBRARY, "circuit.toml", folder)
        return circuit, pack(circuit, LIBRARY, file="circuit.toml", like=like)

    assert outcome(as_variant) == outcome(alone)


@pytest.mark.parametrize("name", ["verification", "lift_machine", "lowering", "boom_machine"])
def test_any_value_may_differ(name: str) -> None:
    """Also values that are impossible: the errors are the same."""
    whole = read_circuit_file(CONFIG / f"{name}.toml", LIBRARY)
    for table in (whole.source, whole.written):
        before = read_circuit(table, LIBRARY, "circuit.toml", CONFIG)
        for raw in changed_tables_of(before):
            require_same(before, raw)


@pytest.fixture
def axes(tmp_path: Path) -> Circuit:
    """With parameters, and two sub-circuits of one file."""
    (tmp_path / "axis.toml").write_text(AXIS)
    return read_circuit(tomllib.loads(AXES), LIBRARY, "circuit.toml", tmp_path)


@pytest.mark.parametrize(
    ("component", "values"),
    [
        ("front", {"size": "3 l"}),
        ("front", {"size": "3 bar"}),
        ("front.orifice", {"nominal_flow": {"flow": "12 l/min", "drop": "35 bar"}}),
        ("inlet", {"nominal_flow.drop": "40 bar"}),
        ("inlet", {"nominal_flow.flow": "=2*flow"}),
        ("inlet", {"nominal_flow.flow": "=2*flo"}),
        ("inlet", {"ports": {"A": "P", "B": "nowhere"}}),
        ("middle", {"volume": True}),
        ("middle", {"volum": "1 l"}),
        ("parameters", {"flow": "50 l/min"}),
    ],
)
def test_sub_circuits_and_expressions(component: str, values: Mapping[str, Any], axes: Circuit, tmp_path: Path) -> None:
    require_same(axes, with_values(axes.written, component, values), tmp_path)


def test_other_parts(axes: Circuit, tmp_path: Path) -> None:
    """Another type, another component, one less, the files of a circuit as written, no circuit at all."""
    require_same(axes, with_component(axes.written, "middle", "accumulator", {"volume": "1 l"}), tmp_path)
    components = axes.written["components"]
    require_same(axes, {**axes.written, "components": {**components, "more": components["middle"]}}, tmp_path)
    fewer = {name: table for name, table in components.items() if name != "rear"}
    require_same(axes, {**axes.written, "components": fewer}, tmp_path)
    require_same(axes, tomllib.loads(AXES), tmp_path)
    require_same(axes, {**axes.written, "fluid": {"density": "900 kg/m^3"}}, tmp_path)
    require_same(axes, {"components": "all"}, tmp_path)


def test_a_file_is_read_again(axes: Circuit, tmp_path: Path) -> None:
    """What was read of a component lately is known, but not what stood in its file then."""
    other = AXES.replace('size = "2 l"', 'size = "4 l"')
    for text in (AXIS, AXIS.replace("10 l/min", "11 l/min")):
        (tmp_path / "axis.toml").write_text(text)
        require_same(axes, tomllib.loads(other), tmp_path)


def test_what_is_equal_need_not_be_the_same(axes: Circuit, tmp_path: Path) -> None:
    """``true`` equals 1 in Python; and a value keeps the tolerance that it has here."""
    density = {**axes.written, "fluid": {"air_fraction": 0.0}}
    before = read_circuit(density, LIBRARY, "circuit.toml", tmp_path)
    require_same(before, {**density, "fluid": {"air_fraction": False}}, tmp_path)
    toleranced = TolerancedText("1 l")
    raw = with_values(axes.written, "middle", {"volume": toleranced})
    assert read_variant(axes, raw, LIBRARY, "", tmp_path).written["components"]["middle"]["volume"] is toleranced


def test_a_variant_of_a_variant_has_nothing_of_the_first(axes: Circuit) -> None:
    """Not even of the initial values with which a switch starts the first."""
    circuit = read_circuit_file(CONFIG / "verification.toml", LIBRARY)
    first = read_variant(circuit, with_values(circuit.written, "cylinder", {"bore": "80 mm"}), LIBRARY)
    packed = pack(first, LIBRARY, like=pack(circuit, LIBRARY))
    running = replace(packed, value=packed.value + 1.0)
    second = read_variant(first, with_values(circuit.written, "relief", {"opening_pressure": "90 bar"}), LIBRARY)
    found, expected = pack(second, LIBRARY, like=running), pack(read_circuit(second.written, LIBRARY), LIBRARY)
    assert found.value.tobytes() == expected.value.tobytes()
    assert found.index.tobytes() == expected.index.tobytes()
    assert pack(first, LIBRARY).value.tobytes() == packed.value.tobytes()


def test_sources_of_parts() -> None:
    """A machine alone, as in a study of a rig."""
    machine = tomllib.loads((CONFIG / "machine.toml").read_text())
    before = read_part(machine, LIBRARY, "machine.toml", CONFIG)

    def source_as_part(raw: Mapping[str, Any]) -> Mapping[str, Any]:
        return read_part(raw, LIBRARY, "machine.toml", CONFIG).source

    def source_as_variant(raw: Mapping[str, Any]) -> Mapping[str, Any]:
        return source_of_part(before.source, raw, LIBRARY, "machine.toml", CONFIG)

    def text(read: Callable[[Mapping[str, Any]], Mapping[str, Any]], raw: Mapping[str, Any]) -> str:
        try:
            return repr(read(raw))
        except ConfigurationError as error:
            return str(error)

    for raw in changed_tables_of(before):
        assert text(source_as_variant, raw) == text(source_as_part, raw)


def test_numbers_are_written_in_place() -> None:
    """Otherwise all of the above would say nothing of it."""
    circuit = read_circuit_file(CONFIG / "verification.toml", LIBRARY)
    like = pack(circuit, LIBRARY)
    raw = with_values(circuit.written, "cylinder", {"bore": "80 mm"})
    found = read_variant(circuit, raw, LIBRARY)
    same = [new is old for new, old in zip(found.placed, circuit.placed, strict=True)]
    assert same.count(False) == 1
    packed = pack(found, LIBRARY, like=like)
    assert packed.packing is not None
    assert like.packing is not None
    assert packed.packing.cells is like.packing.cells
    assert not np.array_equal(packed.value, like.value)
