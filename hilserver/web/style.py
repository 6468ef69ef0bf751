"""The common look of the pages."""

from __future__ import annotations

from pathlib import Path

from nicegui import ui

APPEARANCES = {"system": "system setting", "light": "light", "dark": "dark"}
_DARK = {"system": None, "light": False, "dark": True}
_REMEMBERED = "hilserver-appearance"

ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="6" fill="#0f4c81"/>'
    '<circle cx="16" cy="16" r="9" fill="none" stroke="#fff" stroke-width="2"/><path d="M16 7l-5 8h10z" fill="#fff"/>'
    "</svg>"
)
"""The icon of a page in the browser's tab."""

CIRCUIT_STYLE = (Path(__file__).parent / "circuit.css").read_text()
"""How a page shows circuits, beyond `hilserver.drawing.schematic.STYLE`."""


def add_zoom() -> None:
    """Let the schematics of a page be zoomed: elements of the class ``schematic-view``."""
    ui.add_body_html(f"<script>{(Path(__file__).parent / 'zoom.js').read_text()}</script>")


def add_style(css: str = "") -> None:
    """Add the common style sheet to a page, and more rules after it."""
    ui.colors(primary="#0f4c81", positive="#15803d", negative="#b91c1c", warning="#b45309")
    ui.add_css(f"{(Path(__file__).parent / 'page.css').read_text()}\n{css}")


class AppearanceChoice:
    """The choice between light and dark, which the browser remembers; without one, a page follows its system."""

    def __init__(self) -> None:
        self._choice = ui.toggle(APPEARANCES, value="system", on_change=self._choose)
        self._choice.props("no-caps unelevated size=sm").classes("appearance")
        with ui.context.client.content:  # a menu has its content only while it is open
            self._mode = ui.dark_mode(None)
            ui.timer(0.0, self._recall, once=True)

    async def _recall(self) -> None:
        try:
            known = await ui.run_javascript(f"localStorage.getItem('{_REMEMBERED}')")
        except TimeoutError:  # the browser is gone, or too slow: as the system
            return
        if known in APPEARANCES:
            self._choice.value = known

    def _choose(self) -> None:
        self._mode.value = _DARK[str(self._choice.value)]
        ui.run_javascript(f"localStorage.setItem('{_REMEMBERED}', '{self._choice.value}')")


def heading(text: str) -> ui.label:
    """The title of a card."""
    return ui.label(text).classes("heading")
