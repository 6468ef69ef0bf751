"""Edits of files in every form in which TOML can be written, and the words for edits that can't be made."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from editor_bench import document

from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.drawing.layout import draw
from hilserver.editor.checks import check
from hilserver.editor.document import CircuitDocument
from hilserver.editor.edited_file import ChangedByOthersError
from hilserver.editor.edits import (
    AddComponent,
    Connect,
    Disconnect,
    Edit,
    Move,
    RemoveComponent,
    RenameComponent,
    RenameNode,
    SetValue,
)
from hilserver.editor.parts import Parts, PortEnd
from hilserver.editor.toml_parts import read_sections
from hilserver.errors import ConfigurationError, HilserverError
from hilserver.rig.simulated import joined

PARTS = Parts(standard_library(), Path("nowhere"))
SECTIONS = """\
# A pump and its valve

# The oil comes from here.
[components.tank]
type = "tank"
ports = { T = "tank" }                # below the level

# Pump:
[components.pump] # the first [one]
type = "fixed_pump"
ports = { P = "supply", T = "tank" }
displacement = "10 cm^3"    # per revolution
speed = "1450 rpm"
description = \"\"\"
[components.nothing]
type = "no # comment\"\"\"

# --- starts ---

[nodes]
supply = { pressure = "0 bar" }       # at rest
"""
INLINE = """\
description = "inline"
components = { tank = { type = "tank", ports = { T = "tank" } }, \
pump = { type = "fixed_pump", ports = { P = "supply", T = "tank" }, displacement = "10 cm^3", speed = "1450 rpm" } }
nodes.supply.pressure = "0 bar"
"""
LINES = """\
[components]
tank = { type = "tank", ports = { T = "tank" } } # tank
pump = { type = "fixed_pump", ports = { P = "supply", T = "tank" }, displacement = "10 cm^3", speed = "1450 rpm" }
[nodes.supply]
pressure = "0 bar"
"""
DOTTED = """\
components.tank.type = "tank"
components.tank.ports.T = "tank"
components.pump.type = "fixed_pump"
components.pump.ports = { P = "supply", T = "tank" }
components.pump.displacement = "10 cm^3"
components . "pump" . speed = "1450 rpm" # last
nodes = { supply = { pressure = "0 bar" } }"""
FORMS = {"sections": SECTIONS, "inline": INLINE, "lines": LINES, "dotted": DOTTED}
FORMS |= {"windows": SECTIONS.replace("\n", "\r\n"), "no last line end": SECTIONS.rstrip(), "mark": "\ufeff" + SECTIONS}


@pytest.mark.parametrize("form", FORMS)
def test_every_edit_is_written_in_every_form(form: str) -> None:
    one = document(FORMS[form])
    edits: list[Edit] = [
        AddComponent("volume", (4, 2), values={"volume": "1 l"}),
        Connect(PortEnd("volume", "P"), PortEnd("pump", "P")),
        RenameComponent("pump", "supply_pump"),
        RenameNode("supply", "P"),
        SetValue(("components", "supply_pump", "speed"), "1500 rpm"),
        SetValue(("nodes", "P", "pressure"), "3 bar"),
        Move({"supply_pump": (7, 8)}),
        Disconnect(PortEnd("supply_pump", "P")),
        RemoveComponent("tank"),
    ]
    for edit in edits:
        one.make(edit)
    table = one.table
    assert table["components"]["volume"] == {"type": "volume", "ports": {"P": "P"}, "volume": "1 l"}
    pump = {key: value for key, value in table["components"]["supply_pump"].items() if key != "description"}
    ports = {"T": "tank"}
    assert pump == {"type": "fixed_pump", "ports": ports, "displacement": "10 cm^3", "speed": "1500 rpm"}
    assert table["nodes"] == {"P": {"pressure": "3 bar"}}
    assert table["drawing"] == {"volume": [4, 2], "supply_pump": [7, 8]}
    assert "tank" not in table["components"]
    assert form != "windows" or "\n" not in one.text.replace("\r\n", "")
    for _ in edits:
        one.undo()
    assert one.text == FORMS[form]


def test_a_person_would_have_written_it_so() -> None:
    one = document(SECTIONS)
    one.make(RemoveComponent("tank"))
    one.make(SetValue(("components", "pump", "displacement"), "12 cm^3"))
    one.make(RenameComponent("pump", "source"))
    one.make(AddComponent("volume", (4, 2), "line", {"volume": "1 l", "ports": {"P": "supply"}}))
    assert one.text == (
        '''\
# A pump and its valve

# Pump:
[components.source] # the first [one]
type = "fixed_pump"
ports = { P = "supply", T = "tank" }
displacement = "12 cm^3"    # per revolution
speed = "1450 rpm"
description = """
[components.nothing]
type = "no # comment"""

[components.line]
type = "volume"
ports = { P = "supply" }
volume = "1 l"

# --- starts ---

[nodes]
supply = { pressure = "0 bar" }       # at rest

[drawing]
line = [4, 2]
'''
    )


@pytest.mark.parametrize("form", FORMS)
def test_sections_are_the_text(form: str) -> None:
    text = FORMS[form].removeprefix("\ufeff")
    assert "".join(section.text for section in read_sections(text)) == text


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (AddComponent("pomp"), 'no component type "pomp"'),
        (AddComponent("volume", name="pump"), 'already a component called "pump"'),
        (AddComponent("volume", name="a.b"), "must not contain dots"),
        (RenameComponent("nobody", "x"), 'no component "nobody"'),
        (RenameNode("supply", "tank"), 'already a node "tank"'),
        (Connect(PortEnd("pump", "P"), PortEnd("pump", "drive")), "hydraulic port, pump.drive a signal one"),
        (Connect(PortEnd("pump", "P"), PortEnd("pump", "P")), "itself"),
        (Connect(PortEnd("pump", "X"), PortEnd("pump", "P")), "pump has no port X"),
        (Disconnect(PortEnd("pump", "drive")), "pump.drive is not connected"),
    ],
)
def test_what_cannot_be_done_is_said(edit: Edit, words: str) -> None:
    one = document(SECTIONS)
    with pytest.raises(HilserverError, match=words):
        one.make(edit)
    assert (one.text, one.past) == (SECTIONS, [])


@pytest.mark.parametrize("value", [[None], {"a": None}, float("nan"), "\ud800"])
def test_what_a_file_cannot_hold_is_refused(value: object) -> None:
    one = document(SECTIONS)
    with pytest.raises(HilserverError, match="Edit the text instead"):
        one.make(SetValue(("components", "pump", "description"), value))
    assert (one.text, one.past) == (SECTIONS, [])


def test_two_nodes_become_one_where_ports_are_connected() -> None:
    one = document(SECTIONS)
    one.make(AddComponent("relief_valve", (1, 1)))
    one.make(AddComponent("volume", (1, 1)))
    one.make(Connect(PortEnd("relief_valve", "P"), PortEnd("volume", "P")))
    assert one.table["components"]["volume"]["ports"] == {"P": "relief_valve_P"}
    one.make(Connect(PortEnd("pump", "P"), PortEnd("volume", "P")))
    assert one.table["components"]["relief_valve"]["ports"] == {"P": "relief_valve_P"}
    assert one.table["components"]["pump"]["ports"]["P"] == "relief_valve_P"
    assert one.table["nodes"] == {"relief_valve_P": {"pressure": "0 bar"}}


def test_findings_name_the_part() -> None:
    one = document(SECTIONS)
    one.make(AddComponent("relief_valve", (1, 1)))
    found = check(one)
    assert found.circuit is None
    assert {each.part for each in found.findings} == {"relief_valve"}
    assert {"ports.P", "ports.T", "opening_pressure", "override"} <= {each.key for each in found.findings}
    one.undo()
    assert [(each.node, "no volume" in each.text) for each in check(one).findings] == [("supply", True)]


def test_a_file_changed_by_somebody_else_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "circuit.toml"
    one = CircuitDocument.open(file, PARTS)
    one.make(AddComponent("tank", (1, 2)))
    assert one.is_changed
    one.save()
    assert not one.is_changed
    assert file.read_text() == '[components.tank]\ntype = "tank"\nports = { T = "tank" }\n\n[drawing]\ntank = [1, 2]\n'
    file.write_text(SECTIONS)
    one.make(AddComponent("volume"))
    with pytest.raises(ChangedByOthersError, match="somebody else"):
        one.save()
    assert file.read_text() == SECTIONS
    mine = one.text
    one.reload()
    assert one.text == SECTIONS
    one.undo()
    assert one.text == mine
    one.save(over=True)
    assert file.read_text() == mine
    assert [path.name for path in tmp_path.iterdir()] == ["circuit.toml"]


@pytest.mark.parametrize(
    ("drawing", "words"),
    [
        ({"pomp": [1, 2]}, "drawing.pomp: there is no such component. Did you mean pump?"),
        ({"pump": [1, -2]}, r"drawing.pump: \[1, -2\] is not a place"),
        ({"pump": "left"}, "is not a place"),
        ([], "is not a table of places"),
        ({"rig.A": [1, 2]}, "drawing.rig.A: there is no such component"),
    ],
)
def test_wrong_places_are_said(drawing: object, words: str) -> None:
    raw = tomllib.loads(SECTIONS)
    raw["components"]["line"] = {"type": "volume", "ports": {"P": "supply"}, "volume": "1 l"}
    read_circuit({**raw, "drawing": {"pump": [1, 2]}}, standard_library(), "c.toml")
    with pytest.raises(ConfigurationError, match=words):
        read_circuit({**raw, "drawing": drawing}, standard_library(), "c.toml")


def test_lines_lead_to_the_ports_of_placed_parts() -> None:
    raw = tomllib.loads(SECTIONS)
    raw["components"]["line"] = {"type": "volume", "ports": {"P": "supply"}, "volume": "1 l"}
    raw["drawing"] = {"pump": [20, 20], "line": [2, 3], "tank": [40, 2]}
    drawing = draw(raw)
    ends = {point for wire in drawing.wires if wire.node == "supply" for point in (wire.points[0], wire.points[-1])}
    for item in drawing.items:
        for port, node in item.part.hydraulic.items():
            x, y = item.symbol.ports[port]
            assert node != "supply" or (item.x + x, item.y + y) in ends
    assert [(item.x, item.y) for item in drawing.items if item.part.name == "tank"] == [(800.0, 40.0)]


def test_circuits_that_are_joined_have_no_places() -> None:
    machine = {"components": {"a": {"type": "volume", "ports": {"P": "A"}, "volume": "1 l"}}, "drawing": {"a": [1, 2]}}
    other = {
        "components": {"b": {"type": "volume", "ports": {"P": "rig.A"}, "volume": "1 l"}},
        "drawing": {"b": [1, 2]},
    }
    whole = joined(machine, other)
    assert "drawing" not in whole
    read_circuit(whole, standard_library())
