"""Variants of a circuit: numbers written in place are those of a circuit packed with the same values."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from study_bench import EMPTYING

from hilserver.circuit.library import standard_library
from hilserver.circuit.model import Circuit, read_circuit
from hilserver.circuit.pack import pack
from hilserver.errors import ConfigurationError
from hilserver.simulation.circuit_run import read_circuit_file
from hilserver.studies.in_place import VariedCircuit
from hilserver.studies.quantities import changeable, changed, find

CONFIG = Path(__file__).parents[2] / "config"
LIBRARY = standard_library()
PACK = partial(pack, library=LIBRARY)


def verification() -> Circuit:
    return read_circuit_file(CONFIG / "circuits/verification.toml", LIBRARY)


def varied(circuit: Circuit, keys: Sequence[str], width: float = 0.1) -> VariedCircuit:
    """With a range of ± this fraction for each."""
    known = changeable(circuit)
    quantities = [find(known, key) for key in keys]
    ranges = [(each.value * (1.0 - width), each.value * (1.0 + width)) for each in quantities]
    return VariedCircuit(circuit, quantities, ranges, PACK, LIBRARY)


@pytest.mark.parametrize(
    ("keys", "in_place"),
    [
        (("load.mass", "supply.volume", "pump.max_flow", "nodes.rod.position"), (True, True, True, True)),
        (("relief.opening_pressure", "load.mass"), (False, True)),  # a fit through the points of the datasheet
        (("cylinder.bore", "main_valve.f45"), (False, False)),  # areas, a time constant
        (("main_valve.nominal_flow.flow",), (True,)),
        (("main_valve.nominal_flow.flow", "main_valve.nominal_flow.drop"), (False, False)),  # one number of both
        (("pump.set_pressure", "pump.control_range"), (True, False)),  # a slope, 1/range
    ],
)
def test_packed_numbers_are_those_of_the_changed_circuit(keys: tuple[str, ...], in_place: tuple[bool, ...]) -> None:
    """To 1e-14: written in place, they may be rounded otherwise. Reference: the circuit read anew from its table."""
    circuit = verification()
    found = varied(circuit, keys)
    assert found.in_place == in_place
    low, high = np.array([(0.9, 1.1)] * len(keys)).T
    for share in np.random.default_rng(3).random((5, len(keys))):
        values = [
            each.value * factor for each, factor in zip(found.quantities, low + share * (high - low), strict=True)
        ]
        table = changed(circuit, found.quantities, values, LIBRARY).source
        expected, packed = pack(read_circuit(table, LIBRARY), LIBRARY), found.at(values)
        assert np.array_equal(packed.index, expected.index)
        np.testing.assert_allclose(packed.value, expected.value, rtol=1e-14, atol=0.0)
        assert not np.array_equal(packed.value, found.packed.value)


def test_a_parameter_changes_all_that_follows_from_it(tmp_path: Path) -> None:
    source = dict(verification().source)
    source["parameters"] = {"flow": "40 l/min"}
    source["components"]["main_valve"]["nominal_flow"] = {"flow": "=flow", "drop": "35 bar", "per": "edge"}
    source["components"]["pump"]["max_flow"] = "=1.5*flow"
    circuit = read_circuit(source, LIBRARY)
    found = varied(circuit, ["parameters.flow", "load.mass"])
    assert found.in_place == (True, True)
    twice = changed(circuit, found.quantities, [50.0 / 6e4, 900.0], LIBRARY)
    assert twice.source["components"]["pump"]["max_flow"] == "0.00125 m^3/s"
    np.testing.assert_allclose(found.at([50.0 / 6e4, 900.0]).value, pack(twice, LIBRARY).value, rtol=1e-14)


def test_impossible_values_are_refused() -> None:
    """The piston can't start outside of its stroke; each value alone is possible."""
    found = varied(verification(), ["nodes.rod.position", "cylinder.stroke"], 0.95)
    assert found.in_place == (False, False)
    with pytest.raises(ConfigurationError, match="outside the stroke"):
        found.at([0.19, 0.03])


def test_a_quantity_without_effect_is_named() -> None:
    """The flow through a laminar restrictor is that of its datasheet, whatever the oil."""
    circuit = read_circuit(tomllib.loads(EMPTYING.replace(" ± 10 %", "")), LIBRARY)
    assert varied(circuit, ["vessel.volume", "fluid.density"]).without_effect == ("fluid.density",)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("relief.opening_presure", "Did you mean relief.opening_pressure?"),
        ("main_valve.nominal_flow", "main_valve.nominal_flow.flow, main_valve.nominal_flow.drop"),
        ("relieve.opening_pressure", "Did you mean relief.opening_pressure?"),
    ],
)
def test_an_unknown_quantity_is_refused_with_similar_ones(key: str, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("?", r"\?")):
        find(changeable(verification()), key)


def test_values_of_sub_circuits_are_found(tmp_path: Path) -> None:
    """Each instance has a tolerance of its own, though their file has it only once."""
    (tmp_path / "vessel.toml").write_text(
        'ports = ["P"]\n[components.volume]\ntype = "volume"\nports = { P = "P" }\nvolume = "1 l ± 10 %"\n'
    )
    text = '[components.{0}]\ntype = "subcircuit"\nfile = "vessel.toml"\nports = {{ P = "{0}" }}\n'
    (tmp_path / "circuit.toml").write_text("".join(map(text.format, ("a", "b"))))
    circuit = read_circuit_file(tmp_path / "circuit.toml", LIBRARY)
    known = changeable(circuit)
    assert {"a.volume.volume", "b.volume.volume"} <= known.keys()
    found = VariedCircuit(circuit, [known["b.volume.volume"]], [(0.0009, 0.0011)], PACK, LIBRARY)
    changed_cells = np.flatnonzero(found.at([0.00105]).value != found.packed.value)
    assert found.at([0.00105]).value[changed_cells].tolist() == [0.00105]
