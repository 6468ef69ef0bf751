"""What a browser tab shows: one of the open files, each on a page of its kind."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nicegui import ui
from nicegui.events import GenericEventArguments

from hilserver.drawing.flow import FLOW_STYLE
from hilserver.drawing.schematic import STYLE
from hilserver.editor.editing_page import EditingPage
from hilserver.editor.file_session import FileSession
from hilserver.editor.live import RigLink
from hilserver.editor.open_files import OpenFiles
from hilserver.editor.page import EditorPage
from hilserver.editor.rig_page import RigPage
from hilserver.editor.rig_session import RigSession
from hilserver.editor.session import EditorSession
from hilserver.errors import HilserverError
from hilserver.web.style import CIRCUIT_STYLE, add_style, add_zoom

HERE = Path(__file__).parent


class EditorWindow:
    """A browser tab; ``link``: to the rig to which circuits can be applied."""

    def __init__(self, files: OpenFiles, link: RigLink | None = None) -> None:
        self._files, self._link = files, link
        add_style(STYLE + FLOW_STYLE + CIRCUIT_STYLE + (HERE / "editor.css").read_text())
        add_zoom()
        ui.add_body_html(f"<script>{(HERE / 'editor.js').read_text()}</script>")
        self._content = ui.element("div").classes("w-full")
        self.page: EditingPage | None = None
        self._show(files.first)
        ui.on("circuit-edit", self._edit)
        files.followers.append(self._show_first)
        ui.context.client.on_delete(self._end)

    def open(self, file: Path, part: str = "") -> None:
        """Show a circuit file, with a part selected, if there is one of this name. Raises HilserverError."""
        session = self._files.open(file)
        if not isinstance(session, EditorSession):
            raise HilserverError(f"{file} is already open.")
        self._show(session)
        if part and self.page is not None:
            self.page.select(part)

    def _show_first(self) -> None:
        self._show(self._files.first)

    def _end(self) -> None:
        self._files.followers.remove(self._show_first)
        self._close()

    def _close(self) -> None:
        if self.page is not None:
            self.page.close()

    def _show(self, session: FileSession) -> None:
        self._close()
        self._content.clear()
        first = self._files.first
        session.look()  # a file that it names may have been edited meanwhile
        leave = None if session is first else (first.document.file.name, self._show_first)
        with self._content:
            if isinstance(session, RigSession):
                self.page = RigPage(session, self.open)
            elif isinstance(session, EditorSession):
                begin = self._files.begin_rig if self._files.can_become_rig and self._link is None else None
                link = self._link if self._files.is_of_rig(session) else None
                self.page = EditorPage(session, link, leave, begin)

    async def _edit(self, event: GenericEventArguments) -> None:
        if self.page is not None and isinstance(event.args, Mapping):
            await self.page.edit(event.args)
