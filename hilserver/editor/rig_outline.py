"""The list beside the picture of a rig: all tables of the file and their entries."""

from __future__ import annotations

from collections.abc import Callable, Collection

from nicegui import ui

from hilserver.editor.parts import Table, below
from hilserver.editor.rig_fields import SECTIONS
from hilserver.editor.stable_rows import StableRows, text_of
from hilserver.web.style import heading

_TABLES = ("", *(key for key, section in SECTIONS.items() if not section.is_list))
"""The rig itself and the tables that are one part each."""


class RigOutline:
    """Buttons for all parts of a rig. ``select``: shows a part; ``add``: adds an entry to a table."""

    def __init__(self, select: Callable[[str], None], add: Callable[[str], None]) -> None:
        self._select = select
        self._tables = self._rows()
        self._entries: dict[str, StableRows[str]] = {}
        for key in (key for key, section in SECTIONS.items() if section.is_list):
            with ui.row().classes("w-full items-center no-wrap gap-1"):
                heading(key).classes("grow")
                button = ui.button(icon="add", on_click=lambda key=key: add(key))
                button.props("flat round dense size=xs").props["aria-label"] = f"Add to {key}"
            self._entries[key] = self._rows()

    def _rows(self) -> StableRows[str]:
        return StableRows(ui.column().classes("w-full gap-0"), self._link)

    def _link(self, part: str) -> ui.element:
        with ui.element("button").classes("outline-part").on("click", lambda: self._select(part)) as button:
            button.props["data-entry"] = part
            ui.label()
        return button

    def show(self, table: Table, wrong: Collection[str], selected: str) -> None:
        """Show the parts of a rig's table; those that are ``wrong`` have a mark."""
        names = {key: key or "Rig" for key in _TABLES}
        self._fill(self._tables, names, wrong, selected)
        for key, rows in self._entries.items():
            self._fill(rows, {f"{key}.{name}": str(name) for name in below(table, key)}, wrong, selected)

    def _fill(self, rows: StableRows[str], names: dict[str, str], wrong: Collection[str], selected: str) -> None:
        rows.show(list(names))
        for part, name in names.items():
            rows[part].classes("chosen") if part == selected else rows[part].classes(remove="chosen")
            text_of(rows[part]).set_text(f"{name} !" if part in wrong else name)
