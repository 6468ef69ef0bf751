"""The page of a circuit: palette, drawing, what is wrong, and what is selected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nicegui import ui

from hilserver.editor.checks import MECHANISM
from hilserver.editor.editing_page import EditingPage
from hilserver.editor.edits import Connect, RemoveComponent, RemoveMechanism, RemoveNode
from hilserver.editor.live import RigLink
from hilserver.editor.live_view import LiveView
from hilserver.editor.parts import PortEnd, tables
from hilserver.editor.picture import offered_files, palette, picture_of
from hilserver.editor.selection import Selection
from hilserver.editor.session import EditorSession
from hilserver.editor.subcircuit_files import subcircuit_files
from hilserver.editor.trial_view import TrialView
from hilserver.errors import HilserverError
from hilserver.web.style import heading


class EditorPage(EditingPage):
    """A page with a circuit that is being edited; ``link``: to the rig to which it can be applied.

    ``begin_rig``: makes the file that of a rig, as long as it is empty.
    """

    session: EditorSession
    _no_problems = "No problems: hilserver check accepts this circuit."

    def __init__(
        self,
        session: EditorSession,
        link: RigLink | None = None,
        leave: tuple[str, Callable[[], None]] | None = None,
        begin_rig: Callable[[], None] | None = None,
    ) -> None:
        self._link, self._begin_rig = link, begin_rig
        super().__init__(session, leave)

    def _content(self) -> None:
        self._palette()
        self._sheet()
        self._selection = Selection(self.session, self.select, self.guarded)

    def _more_buttons(self) -> None:
        begin = ui.button("Begin a rig instead", icon="alt_route", on_click=lambda: self.guarded(self._begin_rig))
        begin.props("flat no-caps dense").tooltip("Make this empty file a rig file: sensors, channels, valves.")
        self._begin = begin
        keep = ui.button("Fix positions", icon="push_pin", on_click=lambda: self.guarded(self.session.keep_places))
        keep.props("flat no-caps dense").tooltip("Write the current positions of all parts to the file.")
        self._live = LiveView(self.session, self._link) if self._link is not None else None

    def _palette(self) -> None:
        with ui.column().classes("card w-full gap-2"):
            heading("Components")
            self._files = dict(subcircuit_files(self.session.document.file))
            search = ui.input(placeholder="PRV, LS, DCV …", on_change=lambda e: self._offer(e.value or ""))
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
            self._problems()
            self._trial = TrialView(self.session)

    # --- what is shown -----------------------------------------------------------------------------------------------

    def _is_there(self, name: str) -> bool:
        document = self.session.document
        nodes = (f"node {node}" for node in document.parts.nodes(document.table))
        mechanisms = (f"{MECHANISM}{each}" for each in tables(document.table, "mechanisms"))
        return name in (*tables(document.table, "components"), *nodes, *mechanisms)

    def _show(self) -> None:
        self._begin.set_visibility(self._begin_rig is not None and not self.session.document.text.strip())
        self._draw()
        self._trial.refresh()
        if self._live is not None:
            self._live.refresh()
        self._selection.show(self.selected)

    def _draw(self) -> None:
        picture = picture_of(self.session.sketch, self.selected, self.session.checked.findings)
        if picture != self._picture.content:
            self._picture.set_content(picture)

    def select(self, name: str) -> None:
        """Show a part, or a node ("node supply"); nothing: the circuit."""
        self.selected = name
        self._draw()
        self._selection.show(name)

    # --- what is done ------------------------------------------------------------------------------------------------

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
        elif what == "remove" and self.selected:
            kind, _, name = self.selected.rpartition(" ")
            removed = {"node": RemoveNode(name), MECHANISM.strip(): RemoveMechanism(name)}
            session.make(removed.get(kind, RemoveComponent(self.selected)))
        else:
            super()._done(given)

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
