"""A rig that is set up in the editor from an empty file; its picture, and its list of parts; no browser is needed."""

from __future__ import annotations

import asyncio
import shutil
import tomllib
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
from bare_page import bare_page
from nicegui import ui

from hilserver.drawing.flow import FlowPicture
from hilserver.editor.edits import SetValue
from hilserver.editor.open_files import OpenFiles
from hilserver.editor.rig_edits import AddInner, RenameEntry
from hilserver.editor.rig_fields import path_of
from hilserver.editor.rig_page import RigPage
from hilserver.editor.rig_session import RigDocument, RigSession
from hilserver.errors import HilserverError
from hilserver.rig.file_kinds import kind_of
from hilserver.web.datasheet import DatasheetField

CONFIG = Path(__file__).parents[2] / "config"
RIGS = sorted(CONFIG.glob("rigs/*.toml"))


def begun(folder: Path, name: str = "lift.toml") -> tuple[OpenFiles, RigSession]:
    """A rig that was begun in a file that did not exist, beside the ready circuits."""
    shutil.copytree(CONFIG / "circuits", folder / "circuits")
    files = OpenFiles(folder / name)
    files.begin_rig()
    assert isinstance(files.first, RigSession)
    return files, files.first


def enter(session: RigSession, part: str, **values: Any) -> None:
    """Enter values of a part in its form; ``a__b``: b in table a."""
    for name, value in values.items():
        key = name.replace("__", ".")
        assert key in [field.key for field in session.fields.of(part)]
        path = path_of(part)
        reason = session.try_value(SetValue((*path, *key.split(".")), value, len(path)), part, key)
        assert reason == "", (part, key, reason)


def added(session: RigSession, section: str, name: str, **values: Any) -> None:
    """Add an entry, name it, and enter its values."""
    part = session.add(section)
    session.make(RenameEntry(section, part.partition(".")[2], name))
    enter(session, f"{section}.{name}", **values)


def devices_and_channels(session: RigSession) -> None:
    enter(session, "", circuit="circuits/lift.toml")
    added(session, "devices", "rig", driver="simulated")
    enter(session, "devices.rig", machine="circuits/lift_machine.toml", drive="circuits/two_valves.toml")
    for name in ("p_A", "p_B", "p_S", "p_T"):
        session.make(AddInner(("devices", "rig", "sensors"), name))
        values = {"of": name[-1], "value": ["0 bar", "250 bar"]}
        enter(session, "devices.rig", **{f"sensors__{name}__{key}": value for key, value in values.items()})
    for name in ("A", "B"):
        session.make(AddInner(("devices", "rig", "actuators"), f"valve_{name}"))
        key = f"actuators__valve_{name}"
        enter(session, "devices.rig", **{f"{key}__to": f"u_{name}", f"{key}__raw": [-10, 10]})
    for name in ("p_A", "p_B", "p_S", "p_T"):
        added(session, "channels", name, source=name, scale__raw=[0, 10], scale__value=["0 bar", "250 bar"])


def test_a_rig_of_two_valves_is_set_up_from_nothing_and_reads_like_one_that_a_person_wrote(tmp_path: Path) -> None:
    _, session = begun(tmp_path)
    devices_and_channels(session)
    for name in ("A", "B"):
        added(session, "ports", name)  # takes the next pressure that is not taken
    added(session, "inputs", "joystick")
    for name in ("A", "B"):
        added(session, "valves", name, port=name, supply="p_S", tank="p_T", output=f"valve_{name}", raw=[-10, 10])
        flow = {"nominal_flow__flow": "60 l/min", "nominal_flow__drop": "35 bar", "nominal_flow__per": "edge"}
        enter(session, f"valves.{name}", **flow, f90="80 Hz")
    assert [each.sentence for each in session.findings if not each.is_note] == []
    text = session.document.text
    assert text.startswith('name = "lift"\ncircuit = "circuits/lift.toml"\n\n[loop]\nrate = "1 kHz"\n\n[devices.rig]\n')
    for part in (
        '\n[devices.rig.sensors]\np_A = { of = "A", value = ["0 bar", "250 bar"] }\np_B = { of = "B", ',
        '\n[devices.rig.actuators]\nvalve_A = { to = "u_A", raw = [-10, 10] }\nvalve_B = { to = "u_B", ',
        '\n[channels]\np_A = { device = "rig", source = "p_A", scale = { raw = [0, 10], value = ["0 bar", ',
        '\n[ports]\nA = "p_A"\nB = "p_B"\n',
        '\n[valves.B]\ndevice = "rig"\nport = "B"\nsupply = "p_S"\ntank = "p_T"\noutput = "valve_B"\nraw = [-10, 10]\n'
        'nominal_flow = { flow = "60 l/min", drop = "35 bar", per = "edge" }\nf90 = "80 Hz"\n',
    ):
        assert part in text
    assert overlapping(session.picture) == []


@pytest.mark.parametrize(("name", "called"), [("my rig.toml", "my_rig"), ("2.toml", "_2"), ("ü.toml", "_")])
def test_an_empty_file_becomes_a_rig_that_is_known_as_one_when_it_is_opened_again(
    tmp_path: Path, name: str, called: str
) -> None:
    files, session = begun(tmp_path, name)
    assert session.document.table["name"] == called
    assert not [each for each in session.findings if each.key == "name"]
    assert files.kind == "Rig"
    session.document.save()
    assert kind_of(tomllib.loads((tmp_path / name).read_text())) == "rig"
    assert isinstance(OpenFiles(tmp_path / name).first, RigSession)
    session.undo()
    assert session.document.text == ""


def test_a_circuit_does_not_become_a_rig(tmp_path: Path) -> None:
    file = tmp_path / "circuit.toml"
    file.write_text("[fluid]\n")
    with pytest.raises(HilserverError, match="is not empty: begin the rig"):
        OpenFiles(file).begin_rig()


def test_a_circuit_that_is_not_there_yet_is_begun_from_the_rig_which_follows_it(tmp_path: Path) -> None:
    files, session = begun(tmp_path)
    enter(session, "", description="new")
    session.make(SetValue(("circuit",), "circuits/new.toml"))
    [(name, file)] = session.circuits("").items()
    assert (name, file.exists()) == ("circuits/new.toml", False)
    circuit = files.open(file)
    assert [each.text for each in session.findings if each.file] == [f"{file}: no such file."]
    circuit.document.replace("[components.tank]\n", "begin")
    circuit.changed()
    assert [each.text for each in session.findings if each.file] != [f"{file}: no such file."]


@pytest.mark.parametrize("name", [f"{'a' * 300}.toml", "a\0b.toml", ".", "/"])
@pytest.mark.parametrize("key", ["circuit", "cycle", "library"])
def test_names_that_no_file_can_have_are_problems_of_the_rig(tmp_path: Path, key: str, name: str) -> None:
    files, session = begun(tmp_path)
    session.make(SetValue((key,), [name] if key == "library" else name))
    assert any("can't be read: " in each.text for each in session.findings)
    for file in session.circuits("").values():
        with pytest.raises(HilserverError):
            files.open(file)


def test_an_entry_of_a_device_is_removed_again_with_the_table_that_it_leaves_empty(tmp_path: Path) -> None:
    _, session = begun(tmp_path)
    added(session, "devices", "rig", driver="simulated")
    before = session.document.text
    assert not {"sensors", "actuators"} & {field.key for field in session.fields.of("devices.rig")}
    session.make(AddInner(("devices", "rig", "sensors"), "p"))
    assert session.fields.lists("devices.rig") == {"sensors": ["p"], "actuators": []}
    session.make(SetValue(("devices", "rig", "sensors", "p"), stays=2))
    assert session.document.text == before


# --- the page --------------------------------------------------------------------------------------------------------


def rows(of: str) -> dict[str, ui.element]:
    """The buttons of a page that have this property or class, by their text."""
    every = [each for each in ui.context.client.elements.values() if of in each.props or of in each.classes]
    return {next(each.text for each in button if isinstance(each, ui.label)): button for button in every}


def test_buttons_stay_when_others_change_so_that_no_click_is_lost() -> None:
    session = RigSession(RigDocument.open(CONFIG / "rigs/demo.toml"))
    session.make(SetValue(("valves", "main", "nominal_flow"), stays=2))

    async def run() -> None:
        async with bare_page():
            RigPage(session, lambda file, part="": None)
            parts, said = rows("data-entry"), rows("finding")
            assert "main !" in parts
            session.make(RenameEntry("channels", "p_T", "p_R"))
            session.make(SetValue(("limits", "stroke"), {}))
            now, more = rows("data-entry"), rows("finding")
            assert {"p_R", "stroke !"} <= now.keys()
            kept = parts.keys() & now.keys()
            assert parts.keys() - kept == {"p_T", "stroke"}
            assert all(now[text] is parts[text] for text in kept)
            assert now["stroke !"] is parts["stroke"]
            channels = now["p_R"].parent_slot
            assert channels is not None
            order = [button.props["data-entry"] for button in channels.children]
            assert order == [f"channels.{name}" for name in session.document.table["channels"]]
            [sentence] = said
            assert more[sentence] is said[sentence]
            assert len(more) > 1

    asyncio.run(run())


def test_bounds_are_shown_with_all_their_digits() -> None:
    session = RigSession(RigDocument.open(CONFIG / "rigs/demo.toml"))
    session.make(SetValue(("devices", "rig", "driver"), "modbus"))
    fields: dict[str, DatasheetField] = {field.key: field for field in session.fields.of("devices.rig")}
    assert (fields["tcp.port"].range, fields["rate"].range) == ("1 … 65535", "1 … 10000 1/s")


# --- the picture -----------------------------------------------------------------------------------------------------


def overlapping(picture: FlowPicture) -> list[object]:
    """Pieces of lines that lie over one another, so that two signals look like one."""
    pieces = [pair for _, way in picture.ways for pair in pairwise(way) if pair[0] != pair[1]]
    assert pieces
    assert all(a[0] == b[0] or a[1] == b[1] for a, b in pieces), "level or upright"
    found: list[object] = []
    for (a, b), (c, d) in combinations(pieces, 2):
        for along, across in ((0, 1), (1, 0)):
            if a[across] == b[across] and c[across] == d[across] and abs(a[across] - c[across]) < 2:
                begin = max(min(a[along], b[along]), min(c[along], d[along]))
                if min(max(a[along], b[along]), max(c[along], d[along])) > begin:
                    found.append((a, b, c, d))
    return found


@pytest.mark.parametrize("file", RIGS, ids=[file.stem for file in RIGS])
def test_lines_of_different_signals_never_lie_over_one_another(file: Path) -> None:
    assert overlapping(RigSession(RigDocument.open(file)).picture) == []
