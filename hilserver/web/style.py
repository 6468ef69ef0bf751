"""The common look of the pages."""

from __future__ import annotations

from pathlib import Path

from nicegui import ui

ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="6" fill="#0f4c81"/>'
    '<circle cx="16" cy="16" r="9" fill="none" stroke="#fff" stroke-width="2"/><path d="M16 7l-5 8h10z" fill="#fff"/>'
    "</svg>"
)
"""The icon of a page in the browser's tab."""


def add_style(css: str = "") -> None:
    """Add the common style sheet to a page, and more rules after it."""
    ui.colors(primary="#0f4c81", positive="#15803d", negative="#b91c1c", warning="#b45309")
    ui.add_css(f"{(Path(__file__).parent / 'page.css').read_text()}\n{css}")


def heading(text: str) -> ui.label:
    """The title of a card."""
    return ui.label(text).classes("heading")
