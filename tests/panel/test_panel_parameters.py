"""The parameters that the panel offers for change."""

from __future__ import annotations

from pathlib import Path

from hilserver.circuit.change import with_values
from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.toml import read_toml
from hilserver.web.datasheet import fields_of, parameter_tables

CIRCUITS = Path(__file__).parents[2] / "config" / "circuits"


def test_each_sub_circuit_shows_its_parameters_and_a_switch_takes_them() -> None:
    file = CIRCUITS / "excavator.toml"
    circuit = read_circuit(read_toml(file), standard_library(), str(file))
    tables = dict(parameter_tables(circuit.written))
    assert [*tables] == ["boom", "arm", "bucket"]
    given = {field.key: field.given for field in fields_of(None, tables["arm"])}
    assert given["bore"] == "90 mm"  # set by the circuit
    assert given["stroke"] == "850 mm"  # default of the file
    for name, table in tables.items():
        for key, value in table.items():
            assert with_values(circuit.written, name, {key: value})


def test_parameters_of_the_circuit_and_of_nested_parts_are_named_as_a_switch_does() -> None:
    inner = {"parameters": {"d": "1 mm"}, "components": {}}
    part = {"type": "subcircuit", "definition": {"components": {"in": {"type": "subcircuit", "definition": inner}}}}
    arm = {"definition": {"parameters": {"length": "1 m"}}, "parameters": {"length": "2 m"}}
    written = {
        "parameters": {"p": "1 bar"},
        "components": {"out": part, "x": {"type": "tank"}},
        "mechanisms": {"m": arm},
    }
    assert dict(parameter_tables(written)) == {
        "parameters": {"p": "1 bar"},
        "out.in": {"d": "1 mm"},
        "m": {"length": "2 m"},
    }
