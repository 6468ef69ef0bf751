"""A rig file in the editor: its text, its forms, its picture and its problems say the same; no browser is needed."""

from __future__ import annotations

import contextlib
import random
import shutil
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from editor_bench import rig, spoil

from hilserver.editor.changes import changed_table
from hilserver.editor.edits import SetValue
from hilserver.editor.open_files import OpenFiles
from hilserver.editor.rig_edits import AddEntry, AddInner, RemoveEntry, RenameEntry, RigEdit
from hilserver.editor.rig_fields import SECTIONS, RigFields, parts_of, path_of
from hilserver.editor.rig_flow import rig_blocks, rig_lines
from hilserver.editor.rig_session import RigDocument, RigSession, rig_findings
from hilserver.editor.session import EditorSession
from hilserver.errors import HilserverError
from hilserver.rig.build import load_rig
from hilserver.rig.settings import RigSettings

CONFIG = Path(__file__).parents[2] / "config"
FILES = sorted(CONFIG.glob("rigs/*.toml"))
SEQUENCES, LENGTH = 40, 7


def lines_changed(before: str, after: str) -> tuple[list[str], list[str]]:
    """The lines that are only in the one or the other text."""
    one, other = before.splitlines(), after.splitlines()
    return [line for line in one if line not in other], [line for line in other if line not in one]


# --- edits -----------------------------------------------------------------------------------------------------------


def test_a_value_is_changed_in_its_line_and_nothing_else() -> None:
    session = rig()
    before = session.document.text
    session.make(SetValue(("loop", "max_age"), "30 ms", 1))
    session.make(SetValue(("limits", "stroke", "max"), "970 mm", 2))
    assert lines_changed(before, session.document.text) == (
        [
            'max_age = "1 s"               # for the same reason; the default is 20 ms',
            'stroke = { channel = "x", min = "20 mm", max = "980 mm", action = "warn" }',
        ],
        [
            'max_age = "30 ms"               # for the same reason; the default is 20 ms',
            'stroke = { channel = "x", min = "20 mm", max = "970 mm", action = "warn" }',
        ],
    )
    session.make(SetValue(("loop", "rate"), None, 1))
    session.undo()
    session.undo()
    session.undo()
    assert session.document.text == before


def test_channel_limit_and_valve_are_added_as_a_person_writes_them_and_removed_again() -> None:
    session = rig()
    before = session.document.text
    assert session.add("channels") == "channels.channel"
    assert session.add("limits", channel="x") == "limits.limit"
    assert session.add("valves") == "valves.valve"
    after = session.document.text
    assert lines_changed(before, after)[1] == [
        'channel = { device = "rig" }',
        'limit = { channel = "x" }',
        "[valves.valve]",
    ]
    table = session.document.table
    assert (table["channels"]["channel"], table["limits"]["limit"]) == ({"device": "rig"}, {"channel": "x"})
    assert table["valves"]["valve"] == {"device": "rig"}, "the only device; there are several channels and ports"
    wrong = {each.part for each in session.findings}
    assert {"channels.channel", "limits.limit", "valves.valve"} <= wrong, "what is missing is said where it is"
    for section, name in (("channels", "channel"), ("limits", "limit"), ("valves", "valve")):
        session.make(RemoveEntry(section, name))
    assert session.document.text == before
    assert not [each for each in session.findings if not each.is_note]


def test_a_channel_that_is_entered_value_by_value_is_one_that_hilserver_check_accepts() -> None:
    session = rig()
    part = session.add("channels")
    entries = {"source": "x", "scale.raw": [0, 10], "scale.value": ["0 mm", "1000 mm"], "delay": "1 ms"}
    for key, value in entries.items():
        assert session.try_value(SetValue((*path_of(part), *key.split(".")), value, 2), part, key) == ""
    assert not [each for each in session.findings if not each.is_note]
    table = session.document.table["channels"]["channel"]
    assert table == {
        "device": "rig",
        "source": "x",
        "scale": {"raw": [0, 10], "value": ["0 mm", "1000 mm"]},
        "delay": "1 ms",
    }


def test_a_simulated_device_gets_a_sensor() -> None:
    session = rig()
    assert [*session.fields.lists("devices.rig")] == ["sensors", "actuators"]
    assert (session.fields.lists("recording"), session.fields.lists("loop")) == ({"triggers": []}, {})
    session.make(AddInner(("devices", "rig", "sensors"), "speed"))
    assert "speed = {}" in session.document.text
    for key, value in (("of", "rod.v"), ("value", ["-1 m/s", "1 m/s"])):
        path, name = ("devices", "rig", "sensors", "speed", key), f"sensors.speed.{key}"
        assert session.try_value(SetValue(path, value, 2), "devices.rig", name) == ""
    assert not [each for each in session.findings if not each.is_note]
    source = next(field for field in session.fields.of("channels.x") if field.key == "source")
    assert "speed" in source.info.choices
    with pytest.raises(HilserverError, match='already a name in sensors called "speed"'):
        session.make(AddInner(("devices", "rig", "sensors"), "speed"))


@pytest.mark.parametrize(
    ("part", "key", "value", "said"),
    [
        ("valves.main", "f90", "-3 Hz", "out of range"),
        ("valves.main", "supply", "x", "a channel with the unit bar is required here"),
        ("valves.main", "nominal_flow.flow", "3 bar", "wrong unit"),
        ("limits.stroke", "max", "3 bar", 'is in bar, but channel "x" is in mm.'),
        ("channels.p_A", "source", "p_Z", 'device rig has no channel "p_Z"'),
        ("ports.A", "", "x", "has the unit mm"),
        ("loop", "rate", "1 kg", "wrong unit"),
        ("", "name", "my rig", "letters, digits"),
    ],
)
def test_a_wrong_value_is_refused_with_the_reason_of_the_check(part: str, key: str, value: str, said: str) -> None:
    session = rig()
    before = session.document.text
    path = (*path_of(part), *(key.split(".") if key else ()))
    assert said in session.try_value(SetValue(path, value, len(path_of(part))), part, key)
    assert session.document.text == before
    assert not session.document.past


def test_what_refers_to_an_entry_follows_its_name() -> None:
    session = rig("lift")
    for section, name, new in (
        ("channels", "p_S", "supply"),
        ("devices", "rig", "card"),
        ("valves", "A", "meter_in"),
        ("channels", "x", "position"),
    ):
        session.make(RenameEntry(section, name, new))
    assert not [each for each in session.findings if not each.is_note]
    table = session.document.table
    assert table["valves"]["meter_in"]["supply"] == "supply"
    assert {channel["device"] for channel in table["channels"].values()} == {"card"}
    assert table["cylinders"]["lift"]["position"] == "position"
    stop = 'end = { channel = "x", max = "980 mm", action = "stop", valves = { main = 1 } }\n'
    text = rig().document.text.replace("stroke = {", f"{stop}stroke = {{")
    session = rig(text=text)
    session.make(RenameEntry("valves", "main", "servo"))
    assert session.document.table["limits"]["end"]["valves"] == {"servo": 1}
    with pytest.raises(HilserverError, match='already a channel called "p_B"'):
        session.make(RenameEntry("channels", "p_A", "p_B"))


def test_what_a_removed_channel_leaves_behind_is_said_at_its_users_with_their_lines() -> None:
    session = rig()
    session.make(RemoveEntry("channels", "p_A"))
    found = {each.part: each.line for each in session.findings if "p_A" in each.text}
    lines = session.document.text.splitlines()
    at = {"ports.A": 'A = "p_A"', "limits.p_A_high": "p_A_high"}
    assert found == {
        part: next(number for number, line in enumerate(lines, 1) if line.startswith(begin))
        for part, begin in at.items()
    }


# --- forms -----------------------------------------------------------------------------------------------------------


def test_every_setting_has_its_place_in_a_form_with_its_description() -> None:
    session = rig()
    fields = session.fields
    assert {*SECTIONS, *(field.key for field in fields.of(""))} == {*RigSettings.model_fields}
    for part, model in (("loop", "loop"), ("valves.main", "valves"), ("channels.p_A", "channels")):
        known = SECTIONS[model].model
        assert known is not None
        shown = fields.of(part)
        assert {field.key.partition(".")[0] for field in shown} == {*known.model_fields}
        for key, info in known.model_fields.items():
            one = [field for field in shown if field.key == key]
            assert all(field.info.description == info.description for field in one)
    assert len({field.key for field in fields.of("valves.main")}) == len(fields.of("valves.main"))


def test_references_are_chosen_among_what_fits() -> None:
    fields = {field.key: field for field in rig().fields.of("valves.main")}
    assert fields["supply"].info.choices == ("p_A", "p_B", "p_S", "p_T")
    assert fields["flow"].info.choices == ("Q_A",)
    assert fields["port"].info.choices == ("A", "B")
    assert fields["output"].info.choices == ("valve",)
    assert (fields["f90"].given, fields["f90"].range) == ("80 Hz", "at least 0 1/s")
    assert "feedback" in fields["bridge.strategy"].info.choices
    assert not fields["bridge.strategy"].info.required
    assert fields["nominal_flow.flow"].info.required
    source = next(field for field in rig().fields.of("channels.x") if field.key == "source")
    assert source.info.choices == ("p_A", "p_B", "p_S", "p_T", "Q_A", "x")


# --- files -----------------------------------------------------------------------------------------------------------


def test_the_rig_is_checked_with_its_circuit_as_that_is_being_edited(tmp_path: Path) -> None:
    shutil.copytree(CONFIG, tmp_path, dirs_exist_ok=True)
    files = OpenFiles(tmp_path / "rigs/demo.toml")
    session = files.first
    assert isinstance(session, RigSession)
    assert files.kind == "Rig"
    [(name, file)] = session.circuits("").items()
    assert name == "../circuits/lift.toml"
    circuit = files.open(file)
    assert isinstance(circuit, EditorSession)
    assert files.open(tmp_path / "circuits/lift.toml") is circuit
    machine = files.open(tmp_path / "circuits/lift_machine.toml")
    assert isinstance(machine, EditorSession)
    assert files.is_of_rig(circuit)  # what may be applied to the running rig
    assert not files.is_of_rig(machine)
    circuit.make(SetValue(("components", "relief", "opening_pressure"), "150 kg"))
    session.look()
    [wrong] = [each for each in session.findings if not each.is_note]
    line = 1 + next(n for n, text in enumerate(circuit.document.text.splitlines()) if "150 kg" in text)
    assert wrong.text.startswith(f"{tmp_path}/circuits/lift.toml:{line}: components.relief.opening_pressure: ")
    assert [each.line for each in circuit.findings] == [line]
    assert sorted(file.name for file in session.circuits("devices.rig").values()) == ["drive.toml", "machine.toml"]
    session.make(SetValue(("description",), "edited"))
    assert len(list(files.kept())) == 2
    assert sorted(path.name for path in tmp_path.rglob("*.unsaved")) == ["demo.toml.unsaved", "lift.toml.unsaved"]
    load_rig(tmp_path / "rigs/demo.toml")  # nothing was saved


# --- random edits ----------------------------------------------------------------------------------------------------


def random_edit(chance: random.Random, table: Mapping[str, Any]) -> RigEdit:
    """An edit that a user might try; it may be one that is refused."""
    section = chance.choice(
        ["channels", "limits", "valves", "inputs", "outputs", "cylinders", "motors", "devices", "ports"]
    )
    names = [*table.get(section, {}), "nobody"]
    name, new = chance.choice(names), chance.choice(["p_S", "x", "new_one", "new_two", "no name", "main"])
    channel = chance.choice([*table["channels"], "x"])
    choices: list[RigEdit] = [
        AddEntry("channels", new, {"device": "rig", "source": "x"}),
        AddEntry("limits", new, {"channel": channel, "max": "3 bar", "action": "trip"}),
        AddEntry("valves", new, {"port": "A", "supply": channel, "device": "rig", "output": "valve"}),
        AddEntry(section, new, channel if section == "ports" else {}),
        RemoveEntry(section, name),
        RenameEntry(section, name, new),
        SetValue(("channels", channel, "delay"), "2 ms", 2),
        SetValue(("channels", channel, "scale", "value"), ["0 bar", "# 1 bar"], 2),
        SetValue(("loop", "rate"), chance.choice(["2 kHz", None]), 1),
        SetValue(("recording", "keep", "files"), chance.choice([3, None]), 1),
        SetValue(("description",), 'says "this" # not a comment'),
    ]
    return chance.choice(choices)


def edited(table: Mapping[str, Any], edit: RigEdit) -> Mapping[str, Any]:
    for change in list(edit.changes(table)):
        table = changed_table(table, change)
    return table


def without_empty(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    inner = {key: without_empty(each) for key, each in value.items()}
    return {key: each for key, each in inner.items() if each != {}}


def expected_in_picture(table: Mapping[str, Any]) -> tuple[set[str], set[tuple[str, str, str]]]:
    """The parts that are in the picture, and which channel or port leads to which key of which valve."""
    sections = ("channels", "limits", "valves", "outputs", "inputs", "ports", "cylinders", "motors", "devices")
    parts = {f"{section}.{name}" for section in sections for name in table.get(section, {})}
    wires = set()
    for name, valve in table.get("valves", {}).items():
        for key, section in (("port", "ports"), ("other_port", "ports"), ("supply", "channels"), ("tank", "channels")):
            if (start := valve.get(key)) in table.get(section, {}):
                wires.add((f"{section}.{start}", f"valves.{name}", key))
    return parts, wires


@pytest.mark.parametrize("start", range(0, SEQUENCES, 10))
def test_rig_file_and_picture_stay_equal(start: int) -> None:
    made, refused = 0, list[tuple[str, bool]]()
    for number in range(start, start + 10):
        chance = random.Random(number)
        session = rig(FILES[number % len(FILES)].stem) if number % 10 < 2 else None
        document = session.document if session is not None else RigDocument.open(FILES[number % len(FILES)])
        original, model = document.text, document.table
        for _ in range(LENGTH):
            edit, before = random_edit(chance, document.table), document.text
            try:
                (session or document).make(edit)
            except HilserverError as error:
                refused.append((str(error), document.text == before))
                continue
            made += 1
            model = edited(model, edit)
            assert without_empty(tomllib.loads(document.text)) == without_empty(model), edit
        assert "\n\n\n" not in document.text
        assert rig_blocks(document.table) == rig_blocks(model)
        parts, wires = expected_in_picture(tomllib.loads(document.text))
        assert {block.part for block in rig_blocks(document.table)} >= parts
        lines = {(line.start[0], line.end[0], line.end[1]) for line in rig_lines(document.table)}
        assert wires <= lines
        if session is not None:
            drawn = {(line.start[0], line.end[0], line.end[1]) for line in session.picture.lines}
            assert wires <= drawn
            svg = ElementTree.fromstring(session.picture.svg("valves.main"))
            assert {each.get("data-part") for each in svg.iter() if each.get("data-part")} >= parts
        while document.undo():
            pass
        assert document.text == original
    assert all(same and "Edit the text instead" not in reason for reason, same in refused)
    assert made > len(refused), "otherwise little was tried"


def test_a_motor_is_drawn_as_what_its_valves_drive() -> None:
    table = tomllib.loads((CONFIG / "rigs/conveyor.toml").read_text())
    [machine] = [block for block in rig_blocks(table) if block.kind == "machine"]
    assert (machine.part, machine.rows, machine.texts) == ("motors.drive", ("port_A", "port_B"), ("32 cm^3", "speed n"))
    flows = {(line.start[1], *line.end) for line in rig_lines(table) if line.kind == "flow"}
    assert flows == {("valve_A", "motors.drive", "port_A"), ("valve_B", "motors.drive", "port_B")}


def test_an_actuator_is_drawn_between_the_circuit_and_its_specimen() -> None:
    table = tomllib.loads((CONFIG / "rigs/frame.toml").read_text())
    blocks = {block.name: block for block in rig_blocks(table)}
    assert blocks["actuators.table"].texts == ("prediction", "-50 mm … 50 mm")
    assert blocks["5 actuators.table"].title == "specimen of table"
    ways = {(line.start, line.end) for line in rig_lines(table)}
    assert ways >= {
        (("circuit", ""), ("actuators.table", "")),
        (("channels.x", ""), ("actuators.table", "position")),
        (("actuators.table", ""), ("4 devices.lab", "command")),
        (("4 devices.lab", "command"), ("5 actuators.table", "")),
    }


def test_faulty_rig_files_are_shown_with_their_problems_and_can_be_edited() -> None:
    for seed in range(30):
        chance = random.Random(seed)
        document = RigDocument.open(FILES[seed % len(FILES)])
        table = tomllib.loads(document.text)
        spoil(chance, table)
        document.text = tomlkit.dumps(table)
        session = RigSession(document)
        with contextlib.suppress(HilserverError):
            session.make(RenameEntry("channels", "p_A", "new"))
        for part in parts_of(document.table):
            RigFields(document.table, document.file.parent).of(part)
            session.circuits(part)
        ElementTree.fromstring(session.picture.svg("channels.p_B"))
        parts = parts_of(document.table)
        assert all(each.file or each.part in parts for each in rig_findings(document))
