"""The pieces of HTML on the panel's pages: every text is escaped, none is missing."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest
from jinja2 import UndefinedError

from hilserver.panel.pieces import piece

EVIL = """<script>"&'"""
PIECES: dict[str, dict[str, Any]] = {
    "lines": {"texts": {EVIL: EVIL}},
    "figures": {"unit": EVIL, "titles": [EVIL], "rows": {EVIL: [EVIL]}},
    "notes": {"texts": [("warn", EVIL)]},
    "limited": {"driven": EVIL},
    "learned": {"driven": EVIL},
    "valve_values": {"valve": EVIL, "fields": {EVIL: "command"}},
    "actuator_values": {"actuator": EVIL, "fields": {"position": EVIL}},
    "channel_values": {"descriptions": {EVIL: EVIL}},
    "legend": {"plot": 7, "keys": [("p_A", EVIL, "#123456")]},
    "output": {"text": EVIL},
}


class Reader(HTMLParser):
    """Notes the elements of a page, and its texts and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: set[str] = set()
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.elements.add(tag)
        self.texts += [value or "" for _, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


@pytest.mark.parametrize("name", PIECES)
def test_texts_are_escaped(name: str) -> None:
    found = read(piece(name, **PIECES[name]))
    assert "script" not in found.elements
    assert any(EVIL in text for text in found.texts)


@pytest.mark.parametrize("name", PIECES)
def test_a_piece_without_its_values_is_an_error(name: str) -> None:
    with pytest.raises(UndefinedError):
        piece(name)


def test_values_are_where_the_telemetry_is_written() -> None:
    """By panel.js, into the elements with these attributes."""
    shown = piece("valve_values", valve="main", fields={"command": "command"})
    assert 'data-bar="main.command"' in shown
    assert 'data-value="valve.main.command"' in shown
    assert 'data-value="value.p_A"' in piece("channel_values", descriptions={"p_A": "pressure"})
    assert 'data-series="7:p_A"' in piece("legend", plot=7, keys=[("p_A", "p_A", "#123456")])
