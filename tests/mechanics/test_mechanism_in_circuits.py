"""A mechanism as part of a circuit's file: what is wrong is told where, and the files that it may come from."""

from __future__ import annotations

import copy
from math import hypot
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from component_bench import Bench
from planar_bench import CONFIG, alone, body, pin, table

from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.circuit.pack import pack
from hilserver.errors import ConfigurationError
from hilserver.mechanics.model import Mechanism, read_mechanism


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
        ({"a..b": {"definition": BOOM}}, {}, {}, "c.toml: mechanisms.a..b: a mechanism's name must not contain"),
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
def test_an_error_in_a_mechanism_of_a_circuit_is_located(
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
