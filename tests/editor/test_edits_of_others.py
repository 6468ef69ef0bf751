"""Edits concern what they name, everything that refers to it, and nothing else; what is not saved is never lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from editor_bench import BASE, document

from hilserver.editor.checks import check
from hilserver.editor.document import open_circuit
from hilserver.editor.edits import (
    AddComponent,
    Connect,
    Disconnect,
    RemoveComponent,
    RenameComponent,
    RenameNode,
    SetValue,
)
from hilserver.editor.kept import UnsavedChanges, kept_before
from hilserver.editor.parts import PortEnd
from hilserver.editor.session import EditorSession
from hilserver.errors import HilserverError

ROOT = Path(__file__).parents[2]
CIRCUITS = ROOT / "config/circuits"


def test_a_refused_value_takes_back_no_other_edit() -> None:
    """It is the wrong value that the file has already, in another form: nothing is changed by it."""
    wrong = """[components.relief]
type = "relief_valve"
ports = { P = "supply", T = "tank" }
opening_pressure = "150 bar"
override = [["5 bar", "20 bar"]]
"""
    session = EditorSession(document(BASE + wrong))
    session.make(SetValue(("components", "pump", "speed"), "1500 rpm"))
    text = session.document.text
    edit = SetValue(("components", "relief", "override"), [["5 bar", "20 bar"]])
    assert "wrong unit" in session.try_value(edit, "relief", "override")
    assert session.document.text == text
    assert [label for _, label in session.document.past] == ["set pump.speed"]


INNER = """
[components.axis]
type = "subcircuit"
file = "parts/axis.toml"
ports = { P = "supply", T = "tank", rod = "rod", command = "joystick" }

[components.gauge]
type = "pressure_sensor"
ports = { P = "axis.A" }
signal = "axis.measured"

[components.axis_2]
type = "volume"
ports = { P = "axis_2.A" }
volume = "1 l"
"""


def test_who_connects_to_the_inside_of_a_sub_circuit_follows_its_name() -> None:
    one = document(BASE + INNER, CIRCUITS)
    one.make(RenameComponent("axis", "arm"))
    components = one.table["components"]
    assert components["gauge"]["ports"] == {"P": "arm.A"}
    assert components["gauge"]["signal"] == "arm.measured"
    assert components["axis_2"]["ports"] == {"P": "axis_2.A"}, "another one, whose name begins alike"
    one.undo()
    assert one.text == BASE + INNER


@pytest.fixture
def moved(tmp_path: Path) -> Path:
    """A cylinder that moves an actuator named like its node, as the circuit of docs/mechanics.md."""
    (tmp_path / "boom.toml").write_text((ROOT / "config/mechanisms/boom.toml").read_text())
    text = (CIRCUITS / "boom.toml").read_text().replace("../mechanisms/", "")
    text = text.replace('nodes = { lift = "rod" }\n', "").replace('rod = "rod"', 'rod = "lift"')
    file = tmp_path / "circuit.toml"
    file.write_text(text)
    return file


def test_a_mechanism_follows_the_node_that_has_its_actuators_name(moved: Path) -> None:
    one = open_circuit(moved)
    assert check(one).circuit is not None
    one.make(RenameNode("lift", "boom_rod"))
    assert one.table["mechanisms"]["boom"]["nodes"] == {"lift": "boom_rod"}
    assert check(one).circuit is not None
    one.undo()
    with pytest.raises(HilserverError, match='already a node "lift"'):
        one.make(RenameNode("A", "lift"))


def test_joined_nodes_keep_the_initial_value_of_either() -> None:
    """It does not matter from which end the line was drawn."""
    text = BASE.replace('{ P = "supply" }', '{ P = "other" }') + '\n[nodes]\nsupply = { pressure = "3 bar" } # filled\n'
    ends = PortEnd("pump", "P"), PortEnd("line", "P")
    for end, to in (ends, ends[::-1]):
        one = document(text)
        one.make(Connect(end, to))
        (start,) = one.table["nodes"].items()
        assert start == (one.table["components"]["pump"]["ports"]["P"], {"pressure": "3 bar"})
        assert "# filled" in one.text


@pytest.mark.parametrize("name", ["rig.", "rig.a b", 'rig."', "rig.A.B"])
def test_ports_of_the_machine_have_names_of_nodes(name: str) -> None:
    one = document(BASE)
    with pytest.raises(HilserverError, match="is not a name for a node"):
        one.make(Connect(PortEnd("pump", "P"), name))
    with pytest.raises(HilserverError, match="is not a name for a node"):
        one.make(RenameNode("supply", name))


def test_a_sub_circuits_file_may_have_any_name() -> None:
    one = document(BASE)
    one.make(AddComponent("subcircuit", values={"file": "parts/my axis.v2.toml"}))
    assert one.table["components"]["my_axis_v2"]["file"] == "parts/my axis.v2.toml"


def test_a_port_that_somebody_else_removed_meanwhile_is_named() -> None:
    one = document(BASE)
    one.make(RemoveComponent("pump"))
    for edit in (Connect(PortEnd("line", "P"), PortEnd("pump", "P")), Disconnect(PortEnd("pump", "P"))):
        with pytest.raises(HilserverError, match=r"no component pump"):
            one.make(edit)
    with pytest.raises(HilserverError, match=r"no port pump.P"):
        one.parts.kind(one.table, PortEnd("pump", "P"))


def test_what_is_not_saved_is_kept_with_each_edit_until_it_is(tmp_path: Path) -> None:
    file = tmp_path / "circuit [1].toml"
    file.write_text(BASE)
    earlier = tmp_path / "circuit [1].toml.unsaved"
    earlier.write_text("# of an earlier session")
    one = open_circuit(file)
    assert kept_before(file) == [earlier]
    unsaved = UnsavedChanges(one)
    unsaved.keep()
    assert unsaved.file is None
    one.make(SetValue(("components", "pump", "speed"), "1500 rpm"))
    unsaved.keep()
    assert unsaved.file == tmp_path / "circuit [1].toml.unsaved-2"
    assert unsaved.file.read_text() == one.text
    one.make(SetValue(("components", "pump", "speed"), "1600 rpm"))
    unsaved.keep()
    assert "1600 rpm" in unsaved.file.read_text()
    one.save()
    unsaved.keep()
    assert unsaved.file is None
    assert sorted(tmp_path.iterdir()) == [file, earlier]
    assert earlier.read_text() == "# of an earlier session"


def test_where_nothing_can_be_written_changes_are_kept_in_the_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, folder = tmp_path / "home", tmp_path / "removed"
    monkeypatch.setenv("HOME", str(home))
    folder.mkdir()
    one = open_circuit(folder / "circuit.toml")
    folder.rmdir()
    one.make(SetValue(("description",), "mine"))
    unsaved = UnsavedChanges(one)
    unsaved.keep()
    assert "can't be written" in unsaved.problem
    home.mkdir()
    unsaved.keep()
    assert (unsaved.problem, unsaved.file) == ("", home / "circuit.toml.unsaved")
    assert kept_before(folder / "circuit.toml") == [unsaved.file]
