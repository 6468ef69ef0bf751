"""What the pages of the editor have in common: the bar, the problems, and keyboard commands."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from nicegui import ui

from hilserver.editor.checks import EditorFinding
from hilserver.editor.edited_file import ChangedByOthersError
from hilserver.editor.file_session import FileSession
from hilserver.editor.stable_rows import StableRows, text_of
from hilserver.errors import HilserverError
from hilserver.web.style import AppearanceChoice

_ZOOM = {"smaller": "zoom_out", "fit": "fit_screen", "larger": "zoom_in"}


class EditingPage(ABC):
    """A page with a file that is being edited; ``leave``: back to the file from which it was opened, and its name."""

    def __init__(self, session: FileSession, leave: tuple[str, Callable[[], None]] | None = None) -> None:
        self.session, self._leave = session, leave
        self.selected = ""
        with ui.column().classes("w-full gap-3 px-3 py-3 max-w-[2200px] mx-auto"):
            self._bar()
            for note in session.notes:
                ui.label(note).classes("note warn w-full")
            with ui.element("div").classes("editor"):
                self._content()
        session.listeners.append(self.refresh)
        self.refresh()

    def close(self) -> None:
        """Stop following the file."""
        if self.refresh in self.session.listeners:
            self.session.listeners.remove(self.refresh)

    @abstractmethod
    def _content(self) -> None:
        """What is below the bar."""

    def _more_buttons(self) -> None:  # noqa: B027 - not every page has more
        """The buttons of the bar before *Save*."""

    @abstractmethod
    def _is_there(self, name: str) -> bool:
        """Whether there is still a part of this name."""

    @abstractmethod
    def _show(self) -> None:
        """Show what the file has now."""

    @abstractmethod
    def select(self, name: str) -> None:
        """Show a part; nothing: the file as a whole."""

    def _bar(self) -> None:
        with ui.row().classes("card w-full items-center gap-2"):
            if self._leave is not None:
                name, leave = self._leave
                ui.button(name, icon="arrow_back", on_click=leave).props("flat no-caps dense").classes("leave")
            ui.label(self.session.document.file.name).classes("text-lg font-bold")
            self._state = ui.label().classes("text-sm text-slate-500 editor-state")
            ui.space()
            for name, icon in _ZOOM.items():
                button = ui.button(icon=icon).props(f"flat round dense size=sm aria-label='{name}'")
                button.on("click", js_handler=f"() => zoom.{name}()").tooltip(name)
            self._undo = ui.button("Undo", icon="undo", on_click=self.session.undo).props("flat no-caps dense")
            self._redo = ui.button("Redo", icon="redo", on_click=self.session.redo).props("flat no-caps dense")
            with self._undo:
                self._undo_hint = ui.tooltip("")
            self._more_buttons()
            self._save = ui.button("Save", icon="save", on_click=self.save).props("unelevated no-caps").classes("save")
            with (
                ui.button(icon="tune").props("flat round dense aria-label=Appearance"),
                ui.menu(),
                ui.column().classes("p-4"),
            ):
                AppearanceChoice()

    def _problems(self) -> None:
        """The verdict, and the list of problems."""
        self._verdict = ui.label().classes("text-sm verdict")
        self._findings = StableRows(ui.column().classes("w-full gap-0 findings no-wrap"), self._finding)

    def _finding(self, finding: EditorFinding) -> ui.element:
        kind = "finding noted" if finding.is_note else "finding"
        with ui.element("button").classes(kind).on("click", lambda: self._go_to(finding)) as button:
            ui.label()
        return button

    # --- what is shown -----------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Show the document as it is now."""
        document = self.session.document
        if not self._is_there(self.selected):
            self.selected = ""
        self._undo.set_enabled(bool(document.past))
        self._redo.set_enabled(bool(document.future))
        self._undo_hint.set_text(f"Undo: {document.past[-1][1]} (Ctrl+Z)" if document.past else "Nothing to undo")
        self._save.set_enabled(document.is_changed)
        self._state.set_text("not saved" if document.is_changed else "saved" if document.saved is not None else "new")
        self._state.classes(
            add="editor-unsaved" if document.is_changed else "",
            remove="" if document.is_changed else "editor-unsaved",
        )
        self._list_findings()
        self._show()

    @property
    @abstractmethod
    def _no_problems(self) -> str:
        """What is said where nothing is wrong."""

    def _list_findings(self) -> None:
        found = self.session.findings
        wrong = sum(not each.is_note for each in found)
        count = f"{wrong} problem{'s' if wrong != 1 else ''}"
        self._verdict.set_text(count if wrong else self._no_problems)
        said = {replace(each, line=0): each.sentence for each in found}  # one that only moves stays the same row
        self._findings.show(list(said))
        for each, sentence in said.items():
            text_of(self._findings[each]).set_text(f"Note: {sentence}" if each.is_note else sentence)

    def _go_to(self, finding: EditorFinding) -> None:
        """Show what a problem is about."""
        self.select(finding.part or (f"node {finding.node}" if finding.node else ""))

    # --- what is done ------------------------------------------------------------------------------------------------

    def guarded(self, action: Any, *arguments: Any) -> bool:
        """Carry out an action; if it is impossible, say why. Returns whether it was carried out."""
        try:
            action(*arguments)
        except HilserverError as error:
            ui.notify(str(error), type="negative", multi_line=True)
            return False
        return True

    async def edit(self, given: Mapping[str, Any]) -> None:
        """Do what the browser tells: ``what``, and its values."""
        if given.get("what") == "save":
            await self.save()
        else:
            self.guarded(self._done, given)

    def _done(self, given: Mapping[str, Any]) -> None:
        what = given.get("what")
        if what == "select":
            self.select(str(given["name"]))
        elif what == "undo":
            self.session.undo()
        elif what == "redo":
            self.session.redo()

    async def save(self) -> None:
        """Write the file; asks if it was changed by somebody else."""
        document = self.session.document
        try:
            document.save()
        except ChangedByOthersError as error:
            choice = await self._ask(str(error))
            if choice == "over":
                self.guarded(lambda: document.save(over=True))
            elif choice == "reload":
                self.guarded(document.reload)
        except HilserverError as error:
            ui.notify(str(error), type="negative", multi_line=True)
        else:
            ui.notify(f"Saved: {document.file}", type="positive")
        self.session.changed()

    async def _ask(self, text: str) -> str:
        with ui.dialog() as dialog, ui.column().classes("card gap-3 asked"):
            ui.label(text)
            with ui.row().classes("gap-2"):
                for label, answer in (("Overwrite it", "over"), ("Read it again", "reload"), ("Cancel", "")):
                    ui.button(label, on_click=lambda answer=answer: dialog.submit(answer)).props("no-caps outline")
        answer = await dialog
        dialog.delete()
        return str(answer or "")
