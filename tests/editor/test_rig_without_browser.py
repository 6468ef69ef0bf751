"""What the boxes of the rig's page do; no browser is needed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from bare_page import bare_page, box_of, elements, happen
from editor_bench import rig
from nicegui import ui

from hilserver.editor.rig_fields import parts_of
from hilserver.editor.rig_page import RigPage

FILE = Path(__file__).parents[2] / "config/rigs/demo.toml"


def enter(box: Any, text: str) -> None:
    box.set_value(text)
    happen("blur", box)


def test_every_part_has_a_card_and_looking_changes_nothing() -> None:
    session = rig()

    async def run() -> None:
        async with bare_page():
            page = RigPage(session, lambda file, part="": None)
            for part in parts_of(session.document.table):
                page.select(part)
                assert page.selected == part
                fields = [field.key for field in session.fields.of(part)]
                boxes = [each for each in elements() if each.props.get("data-field") in fields]
                assert len(boxes) == len(fields)
                for box in boxes:
                    happen("blur", box)

    asyncio.run(run())
    assert not session.document.is_changed


def test_entries_are_written_and_names_are_texts() -> None:
    session = rig()

    async def run() -> None:
        async with bare_page():
            page = RigPage(session, lambda file, part="": None)
            page.select("channels.p_S")
            enter(box_of("source"), "p_T")
            enter(box_of("filter"), "")
            enter(box_of("description"), "250")
            page.select("devices.rig")
            box = box_of("sensors", "data-new")
            box.set_value("null")
            happen("keydown.enter", box)
            page.select("valves.main")
            enter(box_of("other_port"), "")
            page.select("ports.B")
            enter(box_of("B"), "p_T")

    asyncio.run(run())
    table = session.document.table
    channel = table["channels"]["p_S"]
    assert (channel["source"], "filter" in channel, channel["description"]) == ("p_T", False, "250")
    assert table["devices"]["rig"]["sensors"]["null"] == {}
    assert "other_port" not in table["valves"]["main"]
    assert table["ports"] == {"A": "p_A", "B": "p_T"}


def test_names_in_a_file_are_texts_never_elements_of_the_page() -> None:
    evil = "<img src=y onerror=alert(1)>"
    text = FILE.read_text().replace("[ports]", f'"{evil}" = {{ value = "{evil}" }}\n[ports]\n"{evil}" = "{evil}"')
    session = rig(text=text)

    async def run() -> None:
        async with bare_page():
            page = RigPage(session, lambda file, part="": None)
            for part in (f"channels.{evil}", f"ports.{evil}", ""):
                page.select(part)
                assert page.selected == part
                drawn = "".join(each.content for each in elements() if isinstance(each, ui.html))
                assert ("<img" in drawn, "&lt;img" in drawn) == (False, True)

    asyncio.run(run())
