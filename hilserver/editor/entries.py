"""Rows of values on a page: an entry that is complete is written into the file, unless it is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nicegui import ui

from hilserver.editor.edits import SetValue
from hilserver.editor.file_session import FileSession
from hilserver.web.datasheet import DatasheetField
from hilserver.web.style import heading
from hilserver.web.value_row import ValueRow

Guarded = Callable[..., bool]
"""Carries out an action; if it is impossible, says why. Returns whether it was carried out."""


class Entries:
    """The values of one page. ``entered`` is called when one is written."""

    def __init__(self, session: FileSession, guarded: Guarded, entered: Callable[[], None] = lambda: None) -> None:
        self._session, self._guarded, self._entered = session, guarded, entered
        self.busy = False
        """While an entry is written that does not change what else is shown: the boxes stay as they are."""

    def show(
        self,
        part: str,
        path: tuple[str, ...],
        fields: Sequence[DatasheetField],
        title: str = "",
        *,
        heads: bool = True,
        stays: int = 0,
        where: Callable[[str], str] = lambda key: key,
    ) -> None:
        """Show values of a part, which are at ``path``. ``stays``: see `SetValue`.

        ``where``: of a key, the one that problems of its value have, in this part.
        """
        if not fields:
            return
        if title:
            heading(title)
        with ui.element("div").classes("datasheet w-full"):
            for head in ("", "now", "new") if heads else ():
                ui.label(head).classes("heading")
            for field in fields:
                ValueRow(field, lambda: None, lambda row: self._enter(part, path, row, stays, where(row.field.key)))

    def _enter(self, part: str, path: tuple[str, ...], row: ValueRow, stays: int, where: str) -> None:
        """Write an entry, unless it is wrong; an empty one leaves the value out."""
        key, text = row.field.key, row.entry.strip()
        if row.field.given in (text, row.entry) or (row.problem and row.is_changed and row.field.problem(text)):
            return
        value = row.field.value(text) if text else None
        edit = SetValue((*path, *key.split(".")), text if text and value is None else value, stays)
        reason = ["This value can't be written."]
        self.busy = not row.field.info.choices  # which may change what else is shown
        try:
            self._guarded(lambda: reason.append(self._session.try_value(edit, part, where)))
        finally:
            self.busy = False
        if reason[-1]:
            row.refuse(reason[-1])
            return
        if not row.field.info.choices:
            row.put(edit.value if text else "")
        self._entered()
