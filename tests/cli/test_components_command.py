"""``hilserver components``: types found by the words of the field, and shown with what a circuit needs."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from command_line import Command

from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.components.synonyms import SYNONYMS, meant_type
from hilserver.errors import ConfigurationError

TYPES = standard_library().types


def test_every_type_has_other_names() -> None:
    assert set(SYNONYMS) | {"torque_source"} >= set(TYPES)
    assert not set(SYNONYMS) - set(TYPES)


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("overcentre", "counterbalance_valve"),
        ("PRV", "relief_valve"),
        ("prv", "reducing_valve"),
        ("non-return", "check_valve"),
        ("DCV", "directional_valve_4_3"),
        ("LS pump", "load_sensing_pump"),
        ("gear pump", "fixed_pump"),
        ("LVDT", "position_sensor"),
        ("hydrostat", "pressure_compensator"),
    ],
)
def test_a_type_is_found_by_the_words_of_the_field(words: str, kind: str, hilserver: Command) -> None:
    said = hilserver("components", *words.split())
    assert said.code == 0
    assert kind in said.out.split()


def test_without_words_all_are_listed(hilserver: Command) -> None:
    said = hilserver("components")
    assert said.code == 0
    assert set(TYPES) <= set(said.out.split())


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_a_type_is_shown_with_all_its_ports_and_values(kind: str, hilserver: Command) -> None:
    said = hilserver("components", kind)
    assert said.code == 0
    model = TYPES[kind]
    names = [*model.hydraulic, *model.mechanical, *model.rotational, *model.inputs, *model.outputs, *model.model_fields]
    assert set(names) <= set(said.out.split())
    assert f'type = "{kind}"' in said.out


@pytest.mark.parametrize("kind", ["counterbalance_valve", "table_signal", "hydraulic_motor"])
def test_the_example_alone_is_a_circuit_with_that_type(kind: str, hilserver: Command) -> None:
    said = hilserver("components", kind, "--example")
    assert said.code == 0
    circuit = read_circuit(tomllib.loads(said.out), standard_library())
    assert kind in {placed.component.type_name for placed in circuit.placed}


def test_own_components_are_listed(hilserver: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from hilserver.components.base import Component, kernel\n\n\n"
        "class Leak(Component):\n"
        '    """A leak that nobody ordered."""\n\n'
        '    type_name = "leak"\n    hydraulic = ("A",)\n\n\n'
        "@kernel(Leak)\ndef leak(p_A):\n    q_A = -1e-12 * p_A\n    return q_A\n"
    )
    said = hilserver("components", "nobody", "--library", tmp_path / "mine.py")
    assert said.code == 0, said.err
    assert "A leak that nobody ordered." in said.out


def test_an_unknown_word_is_refused_with_a_hint(hilserver: Command) -> None:
    for words, hint in (
        ("releif_valve", "Did you mean relief_valve?"),
        ("flux capacitor", "hilserver components lists all"),
        ("PRV --example", "needs a component type"),
    ):
        said = hilserver("components", *words.split())
        assert said.code == 2
        assert hint in said.err


@pytest.mark.parametrize(
    ("named", "meant"),
    [
        ("overcentre_valve", "counterbalance_valve"),
        ("gear_pump", "fixed_pump"),
        ("non_return_valve", "check_valve"),
        ("reliefvalve", "relief_valve"),
    ],
)
def test_an_unknown_type_in_a_circuit_is_understood_by_its_other_names(named: str, meant: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"Did you mean .*{meant}"):
        read_circuit({"components": {"x": {"type": named}}}, standard_library())


@pytest.mark.parametrize(
    ("named", "hint"),
    [
        ("overcentre", "Did you mean counterbalance_valve?"),
        ("over_center_valve", "Did you mean counterbalance_valve?"),
        ("PRV", "Did you mean reducing_valve or relief_valve or static_relief_valve?"),
        ("4/3 valve", "Did you mean directional_valve_4_3 or proportional_valve_4_3?"),
        ("pressure_relief_valve", "Did you mean relief_valve?"),
        ("hydraulic_cylinder", "Did you mean cylinder?"),
        ("checkvalve", "Did you mean check_valve?"),
        ("DR", "Did you mean pressure_compensated_pump?"),
        ("cyl", "Did you mean cylinder or double_rod_cylinder or single_acting_cylinder?"),
        ("volme", "Did you mean volume?"),
        ("valve", "Allowed: accumulator, check_valve, "),
        ("xyz", "Allowed: accumulator, check_valve, "),
    ],
)
def test_a_hint_names_the_types_that_are_called_so(named: str, hint: str) -> None:
    assert meant_type(named, standard_library().types).strip().startswith(hint)


def test_the_version_is_printed(hilserver: Command) -> None:
    said = hilserver("--version")
    assert said.code == 0
    assert said.out.startswith("hilserver ")
