"""The page of the editor: palette, drawing, what is wrong, and what is selected."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nicegui import ui
from nicegui.events import GenericEventArguments

from hilserver.drawing.schematic import STYLE
from hilserver.editor.document import ChangedByOthersError
from hilserver.editor.edits import Connect, RemoveComponent, RemoveNode
from hilserver.editor.live import RigLink
from hilserver.editor.live_view import LiveView
from hilserver.editor.parts import PortEnd, tables
from hilserver.editor.picture import offered_files, palette, picture_of
from hilserver.editor.selection import Selection
from hilserver.editor.session import EditorSession
from hilserver.editor.subcircuit_files import subcircuit_files
from hilserver.editor.trial_view import TrialView
from hilserver.errors import HilserverError
from hilserver.web.style import CIRCUIT_STYLE, AppearanceChoice, add_style, add_zoom, heading

HERE = Path(__file__).parent
_ZOOM = {"smaller": "zoom_out", "fit": "fit_screen", "larger": "zoom_in"}


class EditorPage:
    """A page with a circuit that is being edited; ``link``: to the rig to which it can be applied."""

    def __init__(self, session: EditorSession, link: RigLink | None = None) -> None:
        self.session, self._link = session, link
        self.selected = ""
        add_style(STYLE + CIRCUIT_STYLE + (HERE / "editor.css").read_text())
        add_zoom()
        ui.add_body_html(f"<script>{(HERE / 'editor.js').read_text()}</script>")
        with ui.column().classes("w-full gap-3 px-3 py-3 max-w-[2200px] mx-auto"):
            self._bar()
            for note in session.notes:
                ui.label(note).classes("note warn w-full")
            with ui.element("div").classes("editor"):
                self._palette()
                self._sheet()
                self._selection = Selection(session, self.select, self.guarded)
        ui.on("circuit-edit", self._edit)
        session.listeners.append(self.refresh)
        ui.context.client.on_delete(lambda: session.listeners.remove(self.refresh))
        self.refresh()

    def _bar(self) -> None:
        with ui.row().classes("card w-full items-center gap-2"):
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
            keep = ui.button("Keep places", icon="push_pin", on_click=lambda: self.guarded(self.session.keep_places))
            keep.props("flat no-caps dense").tooltip("Write the places of all parts into the file, as they are now.")
            self._live = LiveView(self.session, self._link) if self._link is not None else None
            self._save = ui.button("Save", icon="save", on_click=self.save).props("unelevated no-caps").classes("save")
            with (
                ui.button(icon="tune").props("flat round dense aria-label=Appearance"),
                ui.menu(),
                ui.column().classes("p-4"),
            ):
                AppearanceChoice()

    def _palette(self) -> None:
        with ui.column().classes("card w-full gap-2"):
            heading("Components")
            self._files = dict(subcircuit_files(self.session.document.file))
            search = ui.input(placeholder="overcentre, PRV, LS, DCV …", on_change=lambda e: self._offer(e.value or ""))
            search.props("outlined dense clearable aria-label='Search components'").classes("w-full palette-search")
            self._offered = ui.html("", sanitize=False).classes("palette")
            self._offer("")

    def _offer(self, words: str) -> None:
        found = palette(self.session.document.parts.library.types, words)
        self._offered.set_content(found + offered_files(self._files, words))

    def _sheet(self) -> None:
        with ui.column().classes("card w-full gap-2 min-w-0"):
            about = "Drag components here; drag from port to port to connect them; click a part or a line."
            ui.label(about).classes("text-xs text-slate-500")
            self._picture = ui.html("", sanitize=False).classes("w-full schematic-view editor-sheet")
            self._picture.props(
                "tabindex=0 role=region aria-label='Drawing: arrows move the selected part, Delete removes it'"
            )
            self._verdict = ui.label().classes("text-sm verdict")
            self._findings = ui.column().classes("w-full gap-0 findings no-wrap")
            self._trial = TrialView(self.session)

    # --- what is shown -----------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Show the document as it is now."""
        document = self.session.document
        names = {*tables(document.table, "components"), *(f"node {n}" for n in document.parts.nodes(document.table))}
        if self.selected not in names:
            self.selected = ""
        self._draw()
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
        self._trial.refresh()
        if self._live is not None:
            self._live.refresh()
        self._selection.show(self.selected)

    def _draw(self) -> None:
        picture = picture_of(self.session.sketch, self.selected, self.session.checked.findings)
        if picture != self._picture.content:
            self._picture.set_content(picture)

    def _list_findings(self) -> None:
        found = self.session.checked.findings
        count = f"{len(found)} problem{'s' if len(found) != 1 else ''}"
        self._verdict.set_text(count if found else "No problems: hilserver check accepts this circuit.")
        self._findings.clear()
        with self._findings:
            for each in found:
                where = ".".join(filter(None, (each.part or each.node, each.key)))
                name = each.part or (f"node {each.node}" if each.node else "")
                button = ui.element("button").classes("finding").on("click", lambda name=name: self.select(name))
                with button:
                    ui.label(f"{where}: {each.text}" if where else each.text)

    def select(self, name: str) -> None:
        """Show a part, or a node ("node supply"); nothing: the circuit."""
        self.selected = name
        self._draw()
        self._selection.show(name)

    # --- what is done ------------------------------------------------------------------------------------------------

    def guarded(self, action: Any, *arguments: Any) -> bool:
        """Do something; if it can't be done, say why. Returns whether it was done."""
        try:
            action(*arguments)
        except HilserverError as error:
            ui.notify(str(error), type="negative", multi_line=True)
            return False
        return True

    async def _edit(self, event: GenericEventArguments) -> None:
        given = event.args
        if not isinstance(given, Mapping):
            return
        if given.get("what") == "save":
            await self.save()
            return
        self.guarded(self._done, given)

    def _done(self, given: Mapping[str, Any]) -> None:
        session, what = self.session, given.get("what")
        if what == "add":
            at = (float(given["x"]), float(given["y"])) if "x" in given else None
            more = {"file": str(given["file"])} if "file" in given else {}
            name = session.add(str(given["kind"]), at, **more)
            self.select(name)
        elif what == "move":
            to = float(given["x"]), float(given["y"])
            session.move(str(given["name"]), (float(given["dx"]), float(given["dy"])), to)
            if str(given["name"]) in tables(session.document.table, "components"):
                self.select(str(given["name"]))
        elif what == "nudge":
            session.move(self.selected, (float(given["dx"]), float(given["dy"])))
        elif what == "connect":
            session.make(Connect(PortEnd(str(given["component"]), str(given["port"])), self._target(given)))
        elif what == "select":
            self.select(str(given["name"]))
        elif what in ("undo", "redo"):
            session.undo() if what == "undo" else session.redo()
        elif what == "remove" and self.selected:
            name = self.selected.removeprefix("node ")
            session.make(RemoveNode(name) if name != self.selected else RemoveComponent(name))

    def _target(self, given: Mapping[str, Any]) -> PortEnd | str:
        """What a line leads to: a port, a node, or the only free port of a part on which it was dropped."""
        if "to" in given:
            component, port = given["to"]
            return PortEnd(str(component), str(port))
        parts, table = self.session.document.parts, self.session.document.table
        end = PortEnd(str(given["component"]), str(given["port"]))
        if "node" in given:
            node = str(given["node"])
            at_node = parts.at(table, node) if parts.node(table, end) else []  # two lines become one
            return at_node[0] if at_node else node
        name = str(given["part"])
        kind = parts.kind(table, end)
        ends = [e for e, _ in parts.ends(table) if e.component == name and parts.kind(table, e) in (kind, "")]
        free = [each for each in ends if not parts.node(table, each)] or ends
        if len(free) != 1:
            ports = f"{len(free)} {kind} ports: drop the line on one of them" if free else f"no {kind} port"
            raise HilserverError(f"{name} has {ports}.")
        return free[0]

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
