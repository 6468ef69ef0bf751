"""What the boxes of the rig's page do; no browser is needed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bare_page import bare_page
from nicegui import ui
from nicegui.events import ClickEventArguments, handle_event

from hilserver.editor.rig_fields import parts_of
from hilserver.editor.rig_page import RigPage
from hilserver.editor.rig_session import RigDocument, RigSession

FILE = Path(__file__).parents[2] / "config/rigs/demo.toml"


def elements() -> Iterator[Any]:
    yield from ui.context.client.elements.values()


def box_of(name: str, value: str) -> Any:
    return next(each for each in elements() if each.props.get(name) == value)


def happen(event: str, element: Any) -> None:
    """As if the browser had told this event of an element."""
    for listener in list(element._event_listeners.values()):
        if listener.type == event:
            handle_event(listener.handler, ClickEventArguments(sender=element, client=element.client))


def enter(box: Any, text: str) -> None:
    box.set_value(text)
    happen("blur", box)


def opened(text: str = "") -> RigSession:
    document = RigDocument.open(FILE)
    document.text = text or document.text
    return RigSession(document)


def test_every_part_has_a_card_and_looking_changes_nothing() -> None:
    session = opened()

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
    session = opened()

    async def run() -> None:
        async with bare_page():
            page = RigPage(session, lambda file, part="": None)
            page.select("channels.p_S")
            enter(box_of("data-field", "source"), "p_T")
            enter(box_of("data-field", "filter"), "")
            enter(box_of("data-field", "description"), "250")
            page.select("devices.rig")
            box = box_of("data-new", "sensors")
            box.set_value("null")
            happen("keydown.enter", box)
            page.select("valves.main")
            enter(box_of("data-field", "other_port"), "")
            page.select("ports.B")
            enter(box_of("data-field", "B"), "p_T")

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
    session = opened(text)

    async def run() -> None:
        async with bare_page():
            page = RigPage(session, lambda file, part="": None)
            for part in (f"channels.{evil}", f"ports.{evil}", ""):
                page.select(part)
                assert page.selected == part
                assert all("<img" not in each.content for each in elements() if isinstance(each, ui.html))

    asyncio.run(run())
