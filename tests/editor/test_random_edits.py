"""Random sequences of edits of the ready circuits: text, table, loader and picture always say the same."""

from __future__ import annotations

import contextlib
import random
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from editor_bench import RUBBISH, spoil

from hilserver.circuit.library import circuit_library
from hilserver.drawing.layout import draw
from hilserver.drawing.placed import GRID
from hilserver.editor.changes import changed_table
from hilserver.editor.checks import check
from hilserver.editor.document import CircuitDocument
from hilserver.editor.edits import (
    AddComponent,
    Connect,
    Disconnect,
    Edit,
    Move,
    RemoveComponent,
    RemoveMechanism,
    RemoveNode,
    RenameComponent,
    RenameNode,
    SetValue,
)
from hilserver.editor.parts import Parts, tables
from hilserver.editor.picture import picture_of
from hilserver.editor.session import EditorSession
from hilserver.editor.sketch import drawable, sketch
from hilserver.errors import HilserverError

ROOT = Path(__file__).parents[2]
FILES = sorted((*ROOT.glob("config/circuits/**/*.toml"), *ROOT.glob("docs/examples/*.toml")))
SEQUENCES, LENGTH = 200, 7


def opened(file: Path) -> CircuitDocument:
    return CircuitDocument.open(file, Parts(circuit_library(file), file.parent))


def random_edit(chance: random.Random, document: CircuitDocument) -> Edit:
    """An edit that a user might try; it may be one that is refused."""
    table, parts = document.table, document.parts
    names = [*tables(table, "components"), "nobody"]
    ends = [end for end, _ in parts.ends(table)]
    nodes = [*parts.nodes(table), "new node", "node_7", "rig.A"]
    name, place = chance.choice(names), (chance.randrange(40), chance.randrange(40))
    other = f"part_{chance.randrange(5)}"
    choices: list[Edit] = [
        AddComponent(chance.choice([*parts.library.types]), place),
        AddComponent("volume", None, "a volume" if chance.random() < 0.2 else other, {"volume": "0.5 l"}),
        RemoveComponent(name),
        RenameComponent(name, other),
        RenameNode(chance.choice(nodes), chance.choice(nodes)),
        RemoveNode(chance.choice(nodes)),
        RemoveMechanism(chance.choice([*tables(table, "mechanisms"), "nobody"])),
        Move({name: place}),
        SetValue(("components", name, "description"), f'says "{other}" # not a comment'),
        SetValue(("components", name, "description")),
        SetValue(("components", name, "nominal_flow", "flow"), "12 l/min"),
        SetValue(("nodes", chance.choice(nodes), "pressure"), chance.choice(["10 bar", None])),
        SetValue(("solver", "substeps"), chance.choice([4, None])),
        SetValue(("description",), "another"),
    ]
    if ends:
        choices += [
            Connect(chance.choice(ends), chance.choice(ends)),
            Connect(chance.choice(ends), chance.choice(nodes)),
            Disconnect(chance.choice(ends)),
        ]
    return chance.choice(choices)


def edited(table: Mapping[str, Any], parts: Parts, edit: Edit) -> Mapping[str, Any]:
    for change in list(edit.changes(table, parts)):
        table = changed_table(table, change)
    return table


def without_empty(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    inner = {key: without_empty(each) for key, each in value.items()}
    return {key: each for key, each in inner.items() if each != {}}


@pytest.mark.parametrize("start", range(0, SEQUENCES, 20))
def test_file_and_picture_stay_equal(start: int) -> None:
    made = refused = 0
    unwritten: list[bool] = []
    for number in range(start, start + 20):
        chance = random.Random(number)
        document = opened(FILES[number % len(FILES)])
        original, model = document.text, document.table
        for _ in range(LENGTH):
            edit = random_edit(chance, document)
            before = document.text
            try:
                document.make(edit)
            except HilserverError as error:
                refused += 1
                unwritten += ["Edit the text instead" in str(error), document.text != before]
                continue
            made += 1
            model = edited(model, document.parts, edit)
            assert without_empty(tomllib.loads(document.text)) == without_empty(model), edit
        assert "\n\n\n" not in document.text
        assert not document.text.startswith("\n")
        assert draw(drawable(document.table, document.parts)) == draw(drawable(model, document.parts))
        assert "Traceback" not in str(check(document).findings)
        texts = [document.text]
        while document.undo():
            texts.append(document.text)
        assert document.text == original
        while document.redo():
            assert document.text == texts[-2]
            del texts[-1]
    assert not any(unwritten), "each possible edit is written, each other one changes nothing"
    assert made > 3 * refused / 2, "otherwise little was tried"


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_comments_and_lines_of_untouched_parts_survive(file: Path) -> None:
    """One component is changed, renamed, moved, removed; every line that is not in its section is still there."""
    document = opened(file)
    before = document.text
    name, kept = next(iter(tables(document.table, "components"))), []
    inside = drawn = False
    for line in before.splitlines():
        if line.startswith("["):
            inside = line.startswith(
                (f"[components.{name}]", f"[components.{name}.", "[nodes")
            )  # initial values of its own nodes go with it
            drawn = line == "[drawing]"
        if not inside and line.strip() and not (drawn and line.startswith(f"{name} = ")):  # so does its place
            kept.append(line)
    for edit in (
        SetValue(("components", name, "description"), "changed"),
        Move({name: (3, 4)}),
        RenameComponent(name, "renamed"),
        RemoveComponent("renamed"),
    ):
        document.make(edit)
        lines = document.text.splitlines()
        assert [line for line in kept if line not in lines] == []
        assert "\n\n\n" not in document.text


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_the_picture_is_that_of_the_loaded_circuit(file: Path) -> None:
    """As `hilserver check` draws it, without sub-circuits and parameters; places are kept in the file."""
    document = opened(file)
    checked = check(document)
    if checked.circuit is None:  # a sub-circuit, or the drive of a machine, which has the volumes, or the mass
        missing = ("has no volume", "has no mass")
        assert "ports" in document.table or all(any(m in each.text for m in missing) for each in checked.findings)
        return
    if "parameters" in document.table:
        return
    if any(part.get("type") == "subcircuit" for part in document.table.get("components", {}).values()):
        return
    drawing = draw(checked.circuit.source)
    assert sketch(document.table, document.parts).drawing == drawing
    parts = [item.part.name for item in drawing.items if not item.part.mechanism]
    places = {name: (3 * k, 2 * k) for k, name in enumerate(parts)}
    document.make(Move(places))
    checked = check(document)
    assert checked.circuit is not None
    drawing = draw(checked.circuit.source)
    assert sketch(document.table, document.parts).drawing == drawing
    found = {item.part.name: (item.x / GRID, item.y / GRID) for item in drawing.items}
    assert {name: found[name] for name in parts} == places


def test_faulty_files_are_shown_with_their_problems_and_can_be_edited() -> None:
    for seed in range(60):
        chance = random.Random(seed)
        whole = opened(FILES[seed % len(FILES)])
        table = tomllib.loads(whole.text)
        spoil(chance, table)
        if seed % 3 == 0:
            table["drawing"] = chance.choice([*RUBBISH, {"tank": [1, 2], "pump": "x"}])
        text = tomlkit.dumps(table)
        session = EditorSession(CircuitDocument(whole.file, text, text, whole.parts))
        assert session.checked.findings or session.checked.circuit is not None
        for _ in range(3):
            with contextlib.suppress(HilserverError):
                session.make(random_edit(chance, session.document))
        ElementTree.fromstring(picture_of(session.sketch, "tank", session.checked.findings))
