"""Mechanisms in the editor: drawn at what they move, with their values beside the picture."""

from __future__ import annotations

import asyncio
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from bare_page import bare_page

from hilserver.circuit.library import circuit_library
from hilserver.editor.checks import check
from hilserver.editor.document import CircuitDocument
from hilserver.editor.edits import RemoveMechanism, SetValue
from hilserver.editor.fields import mechanism_fields
from hilserver.editor.page import EditorPage
from hilserver.editor.parts import Parts, tables
from hilserver.editor.picture import picture_of
from hilserver.editor.session import EditorSession

FILE = Path(__file__).parents[2] / "config/circuits/excavator.toml"


def excavator() -> EditorSession:
    return EditorSession(CircuitDocument.open(FILE, Parts(circuit_library(FILE), FILE.parent)))


def mechanisms(session: EditorSession, selected: str = "") -> list[ElementTree.Element]:
    svg = ElementTree.fromstring(picture_of(session.sketch, selected, session.findings))
    return [each for each in svg.iter() if each.get("data-mechanism")]


def test_a_mechanism_is_drawn_at_each_cylinder_that_moves_it() -> None:
    session = excavator()
    found = mechanisms(session)
    assert {each.get("data-mechanism") for each in found} == {"front"}
    assert ["".join(each.itertext()) for each in found] == [
        f"mechanism frontfront · {name}" for name in ("boom", "arm", "bucket")
    ]
    rods = {wire.node for wire in session.sketch.drawing.wires if wire.kind == "mechanical"}
    assert {"boom_rod", "arm_rod", "bucket_rod"} <= rods, "each is joined with its rod"
    session.make(RemoveMechanism("front"))
    assert mechanisms(session) == []
    assert "mechanisms" not in session.document.table
    session.undo()
    assert len(mechanisms(session)) == 3


def test_its_values_are_edited_and_checked_like_those_of_a_component() -> None:
    session = excavator()
    table = tables(session.document.table, "mechanisms")["front"]
    fields = {field.key: field.given for field in mechanism_fields(table, session.document.parts)}
    assert fields["file"] == "../mechanisms/excavator.toml"
    assert (fields["nodes.boom"], fields["nodes.bucket"]) == ("boom_rod", "bucket_rod")
    session.make(SetValue(("mechanisms", "front", "file"), "none.toml"))
    assert [each.part for each in session.findings] == ["mechanism front"]
    session.undo()
    session.make(SetValue(("mechanisms", "front", "colour"), "red"))
    [wrong] = check(session.document).findings
    line = 1 + session.document.text.splitlines().index('colour = "red"')
    assert (wrong.part, wrong.key, wrong.line) == ("mechanism front", "colour", line)
    assert 'class="problem" data-part="mechanism front"' in picture_of(session.sketch, "", session.findings)


def test_the_page_shows_and_removes_it() -> None:
    session = excavator()

    async def run() -> None:
        async with bare_page():
            page = EditorPage(session)
            page.select("mechanism front")
            assert page.selected == "mechanism front"
            await page.edit({"what": "remove"})
            assert page.selected == ""

    asyncio.run(run())
    assert "mechanisms" not in session.document.table
