"""Notes on the logs: at a time, kept beside the log, found by their words."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from nicegui import run, ui
from pydantic import ValidationError

from hilserver.errors import HilserverError
from hilserver.record.notes import LogNote
from hilserver.viewer.layout_view import NO_RIGHT
from hilserver.viewer.overlay import Overlay
from hilserver.viewer.plot_view import PlotView
from hilserver.viewer.store import OpenedLog
from hilserver.web.style import heading

LISTED_NOTES = 100
"""Notes that are listed at a time; the others are found by searching."""


class NotesView:
    """The card. ``changed`` is called when notes have changed, ``show`` shows a common time in the plot."""

    def __init__(
        self,
        overlay: Overlay,
        plot: PlotView,
        may_write: Callable[[], bool],
        changed: Callable[[], None],
        show: Callable[[float], None],
    ) -> None:
        self.overlay, self.plot = overlay, plot
        self._may_write, self._changed, self._show = may_write, changed, show
        self._author = ""
        self._listed: object = None
        with ui.column().classes("card w-full gap-2 notes"):
            with ui.row().classes("w-full items-center gap-3"):
                heading("Notes")
                self._words = ui.input(placeholder="Search notes", on_change=self.refresh)
                self._words.props("outlined dense clearable").classes("w-64 note-search")
                ui.space()
                self._add = ui.button("Add a note", icon="note_add", on_click=lambda: self._edit(None, None))
                self._add.props("outline no-caps dense").classes("px-3")
                self._add.tooltip("At cursor 1, or in the middle of the visible section")
            self._list = ui.column().classes("w-full gap-0")

    def refresh(self) -> None:
        """List the notes that have all words of the search."""
        words = str(self._words.value or "").lower().split()
        may_write = self._may_write()
        key = ([(opened, offset, opened.log.remarks) for opened, offset in self.overlay.placed], words, may_write)
        if key == self._listed:
            return
        self._listed = key
        found = [
            (opened, note, offset)
            for opened, offset in self.overlay.placed
            for note in opened.log.remarks
            if all(word in f"{note.text} {note.author}".lower() for word in words)
        ]
        found.sort(key=lambda entry: entry[1].time + entry[2])
        self._add.set_enabled(bool(self.overlay.logs) and may_write)
        self._list.clear()
        with self._list:
            for opened, note, offset in found[:LISTED_NOTES]:
                self._row(opened, note, note.time + offset, may_write)
            more = len(found) - LISTED_NOTES
            if more > 0:
                ui.label(f"{more} more: search for them.").classes("text-xs text-slate-500")

    def _row(self, opened: OpenedLog, note: LogNote, time: float, may_write: bool) -> None:
        several = f"log {self.overlay.logs.index(opened) + 1}, " if len(self.overlay.logs) > 1 else ""
        with ui.row().classes("w-full items-center gap-2 no-wrap note-row"):
            ui.button(f"{several}{time:.3f} s", on_click=lambda: self._show(time)).props("flat no-caps dense size=sm")
            ui.label(note.text).classes("whitespace-pre-line grow")
            ui.label(note.author).classes("text-xs text-slate-500").tooltip(note.written)
            if may_write:
                for icon, what, action in (
                    ("edit", "Change this note", partial(self._edit, opened, note)),
                    ("delete", "Remove this note", partial(self._write, opened, note, None)),
                ):
                    button = ui.button(icon=icon, on_click=action)
                    button.props(f'flat dense round size=sm aria-label="{what}"')

    async def _edit(self, opened: OpenedLog | None, note: LogNote | None) -> None:
        """Ask for the note; without one, for a new one, and for its log if there are several."""
        cursor = self.plot.cursors[0]
        at = sum(self.plot.section) / 2 if cursor is None else cursor
        placed = [(log, offset) for log, offset in self.overlay.placed if opened in (None, log)]
        if not placed:  # closed in the meantime
            return
        if note is not None:
            at = note.time + placed[0][1]
        logs = {place: log.log.name for place, (log, _) in enumerate(placed)}
        with ui.context.client.content, ui.dialog() as dialog, ui.column().classes("card gap-3"):
            log = ui.select(logs, value=0, label="log").props("outlined dense").classes("w-96")
            log.visible = len(logs) > 1
            time = ui.number("at, s (as on the axis)", value=round(at, 6)).props("outlined dense").classes("w-96")
            text = ui.textarea("Note", value="" if note is None else note.text)
            text.props("outlined autofocus autogrow maxlength=2000").classes("w-96 note-text")
            author = ui.input("By", value=self._author if note is None else note.author)
            author.props("outlined dense maxlength=60").classes("w-96")
            with ui.row().classes("w-full justify-end"):
                ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
                ui.button("Keep", on_click=lambda: dialog.submit(True)).props("no-caps")
        kept = await dialog
        dialog.delete()
        if not kept:
            return
        of, offset = placed[int(log.value)]
        by = str(author.value or "")
        if note is None:  # of the next one, too; somebody else's note may be changed in between
            self._author = by
        try:
            written = datetime.now(UTC).isoformat(timespec="seconds")
            moment = round(float(time.value) - offset, 6)
            new = LogNote(time=moment, text=str(text.value or ""), author=by, written=written)
        except (ValidationError, TypeError):
            ui.notify("A note has a time, and between 1 and 2000 characters.", type="negative")
            return
        await self._write(of, note, new)

    async def _write(self, opened: OpenedLog, old: LogNote | None, new: LogNote | None) -> None:
        if not self._may_write():
            ui.notify(f"Nothing was changed: {NO_RIGHT}", type="negative")
            return
        try:
            await run.io_bound(opened.change_note, old, new)
        except HilserverError as error:
            ui.notify(str(error), type="negative", multi_line=True, close_button="OK", timeout=12_000)
            opened.read_notes()
        self.refresh()
        self._changed()


def notes_table(overlay: Overlay) -> str:
    """All notes as CSV: log, time in the log in s, text, author, when they were written."""
    text = io.StringIO()
    table = csv.writer(text)
    table.writerow(["log", "time", "note", "by", "written"])
    for opened in overlay.logs:
        table.writerows([opened.log.name, n.time, n.text, n.author, n.written] for n in opened.log.remarks)
    return text.getvalue()
