"""The recordings of the rig: list, download and replay, where the panel runs on the PC that holds them."""

from __future__ import annotations

import asyncio
import datetime
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nicegui import run, ui

from hilserver.panel.connection import Connection
from hilserver.panel.view import Page, heading, refuse
from hilserver.record.folder import Recorded, recordings
from hilserver.record.format import RecordError

DOWNLOADS = "/recordings"
REPLAY = (sys.executable, "-c", "from hilserver.cli import main; main()", "replay")


class RecordingsView:
    """The tab. ``folder``: where to look; None: where the server says that it records."""

    def __init__(self, page: Page, folder: Path | None) -> None:
        self.page, self._given = page, folder
        self._paths: dict[str, tuple[Path, ...]] = {}
        with ui.column().classes("card w-full gap-2"):
            with ui.row().classes("w-full items-center"):
                heading("Recordings")
                self._where = ui.label().classes("text-sm text-slate-500")
                ui.space()
                ui.button("Refresh", icon="refresh", on_click=self.refresh).props("flat no-caps dense")
            columns: list[dict[str, Any]] = [
                {"name": "name", "label": "recording", "field": "name", "align": "left", "sortable": True},
                {"name": "changed", "label": "last written", "field": "changed", "align": "left", "sortable": True},
                {"name": "size", "label": "size, MB", "field": "size", "align": "right", "sortable": True},
                {"name": "state", "label": "state", "field": "state", "align": "left"},
                {"name": "actions", "label": "", "field": "name", "align": "right"},
            ]
            self._table = ui.table(rows=[], columns=columns, row_key="name", pagination=15)
            self._table.props("flat dense no-data-label='There are none.'").classes("w-full recordings")
            self._table.add_slot(
                "body-cell-actions",
                """<q-td :props="props" auto-width>
                     <q-btn flat dense no-caps icon="download" label="Download"
                            @click="$parent.$emit('download', props.row.name)"/>
                     <q-btn flat dense no-caps icon="replay" label="Replay"
                            @click="$parent.$emit('replay', props.row.name)"/>
                   </q-td>""",
            )
            self._table.on("download", lambda e: self._download(str(e.args)))
            self._table.on("replay", lambda e: self._replay(str(e.args)))
        with ui.dialog() as self._dialog, ui.column().classes("card").style("min-width: min(52rem, 92vw)"):
            self._title = ui.label().classes("font-bold")
            self._spinner = ui.spinner(size="lg")
            self._text = ui.code("", language="text").classes("w-full replay-result")
            ui.button("Close", on_click=self._dialog.close).props("flat no-caps")

    async def refresh(self) -> None:
        """Read the folder anew."""
        folder = folder_of(self.page.connection, self._given)
        if folder is None:
            self._where.set_text("Not on this machine: run the panel on the PC of the rig, or name the folder.")
            return
        try:
            found = await run.io_bound(recordings, folder) or []
        except RecordError as error:
            self._where.set_text(str(error))
            return
        self._where.set_text(str(folder))
        self._paths = {_name(recorded): recorded.files for recorded in found}
        self._table.rows = [
            {
                "name": _name(recorded),
                "changed": datetime.datetime.fromtimestamp(recorded.modified)
                .astimezone()
                .strftime("%Y-%m-%d %H:%M:%S"),
                "size": f"{recorded.size / 1e6:.1f}",
                "state": recorded.state,
            }
            for recorded in reversed(found)
        ]

    def _download(self, name: str) -> None:
        for path in self._paths.get(name, ()):
            ui.download.from_url(f"{DOWNLOADS}/{quote(path.name)}", path.name)

    async def _replay(self, name: str) -> None:
        """Compute the recording once more and show what differs; in a process of its own, so as not to hold us up."""
        paths = self._paths.get(name)
        if not paths:
            return
        self._title.set_text(f"Replay of {name}")
        self._text.set_content("")
        self._spinner.visible = True
        self._dialog.open()
        process = await asyncio.create_subprocess_exec(
            "nice", *REPLAY, str(paths[0]), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        output, _ = await process.communicate()
        self._spinner.visible = False
        self._text.set_content(output.decode(errors="replace").strip())
        if process.returncode not in (0, 1):
            refuse(f"The replay of {name} ended with code {process.returncode}.")


def folder_of(connection: Connection, given: Path | None) -> Path | None:
    """Where the recordings are: as given, or where the server records; None where this machine does not have that."""
    if given is not None:
        return given
    state = connection.state
    file = state.recording.file if state is not None and state.recording is not None else None
    return Path(file).parent if file is not None and Path(file).is_file() else None


def contents(path: Path, size: int) -> Iterator[bytes]:
    """The first ``size`` bytes of a file: one that is being written grows meanwhile."""
    with path.open("rb") as file:
        while size > 0 and (part := file.read(min(size, 1 << 20))):
            size -= len(part)
            yield part


def _name(recorded: Recorded) -> str:
    return recorded.files[0].name
