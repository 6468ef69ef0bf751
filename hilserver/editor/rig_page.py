"""The page of a rig file: its tables, the picture of its signals, what is wrong, and what is selected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any, Protocol

from nicegui import ui

from hilserver.editor.checks import EditorFinding
from hilserver.editor.editing_page import EditingPage
from hilserver.editor.rig_edits import RemoveEntry
from hilserver.editor.rig_fields import parts_of
from hilserver.editor.rig_flow import CIRCUIT
from hilserver.editor.rig_outline import RigOutline
from hilserver.editor.rig_selection import RigSelection
from hilserver.editor.rig_session import RigSession


class OpensCircuits(Protocol):
    """Shows a circuit file, with a part selected. Raises HilserverError if it can't be opened."""

    def __call__(self, file: Path, part: str = "") -> None: ...


class RigPage(EditingPage):
    """A page with a rig that is being edited; ``open_file``: shows one of its circuits."""

    session: RigSession
    _no_problems = "No problems. hilserver check also examines the margins of valves, rate and stability."

    def __init__(self, session: RigSession, open_file: OpensCircuits) -> None:
        self._open = open_file
        super().__init__(session)

    def _content(self) -> None:
        with ui.column().classes("card w-full gap-0 rig-outline"):
            self._outline = RigOutline(self.select, self._add)
        with ui.column().classes("card w-full gap-2 min-w-0"):
            about = "Signals flow from the sensors to the valves. Click a block to see its values."
            ui.label(about).classes("text-xs text-slate-500")
            self._picture = ui.html("", sanitize=False).classes("w-full schematic-view editor-sheet fixed-places")
            self._picture.props(
                "tabindex=0 role=region aria-label='Picture of the rig: Delete removes what is selected'"
            )
            self._problems()
        self._selection = RigSelection(self.session, self.select, self.guarded, self._open)

    # --- what is shown -----------------------------------------------------------------------------------------------

    def _is_there(self, name: str) -> bool:
        return name in parts_of(self.session.document.table)

    def _show(self) -> None:
        self._draw()
        wrong = {each.part for each in self.session.findings if not each.is_note}
        self._outline.show(self.session.document.table, wrong, self.selected)
        self._selection.show(self.selected)

    def _draw(self) -> None:
        found = self.session.picture
        picture = found.svg(self.selected or CIRCUIT, self._marks())
        if picture != self._picture.content:
            self._picture.set_content(picture)

    def _marks(self) -> Iterator[str]:
        """A mark at each block with a problem; its title says which."""
        said: dict[str, list[str]] = {}
        for each in self.session.findings:
            if not each.is_note:
                said.setdefault(each.part, []).append(each.sentence)
        for block, (x, y), width in self.session.picture.blocks:
            if texts := said.pop(block.part, []):
                title, right = escape("\n".join(texts)), x + width
                yield (
                    f'<g class="problem" data-part="{escape(block.part)}"><title>{title}</title><circle cx="{right:g}" '
                    f'cy="{y:g}" r="8"/><text x="{right:g}" y="{y + 4:g}" text-anchor="middle">!</text></g>'
                )

    def select(self, name: str) -> None:
        """Show a part, such as ``channels.p_A``; nothing, or the virtual circuit: the rig itself."""
        self.selected = name if self._is_there(name) else ""
        self._show()

    # --- what is done ------------------------------------------------------------------------------------------------

    def _go_to(self, finding: EditorFinding) -> None:
        if finding.file:
            component = finding.key.removeprefix("components.").partition(".")[0]
            self.guarded(self._open, Path(finding.file), component)
        else:
            self.select(finding.part)

    def _add(self, section: str) -> None:
        self.guarded(lambda: self.select(self.session.add(section)))

    def _done(self, given: Mapping[str, Any]) -> None:
        section, _, name = self.selected.partition(".")
        if given.get("what") == "remove":
            if name:
                self.session.make(RemoveEntry(section, name))
        else:
            super()._done(given)
