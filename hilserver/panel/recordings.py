"""The recordings of the rig: list, view, download and replay, where the panel runs on the PC that holds them."""

from __future__ import annotations

import asyncio
import datetime
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nicegui import run, ui

from hilserver.panel.connection import Connection
from hilserver.panel.pieces import piece
from hilserver.panel.view import Page
from hilserver.record.folder import StoredRecording, recordings
from hilserver.record.format import RecordError
from hilserver.viewer.layout_view import ViewerFiles
from hilserver.viewer.store import LogStore
from hilserver.web.style import heading

DOWNLOADS = "/recordings"
VIEW = "/view"
REPLAY = (sys.executable, "-c", "from hilserver.cli import main; main()", "replay")
_WHAT_REPLAY_IS = "Runs the recorded measurements and commands through circuit and bridge again; compares all values."
_VERDICTS = {
    0: ("The replay reproduces the recording.", "good"),
    1: ("The replay deviates from the recording.", "fault"),
    2: ("This recording can't be replayed.", "fault"),
}
"""The result of a replay and its style, by the exit code of the command."""


@dataclass(frozen=True)
class Recorded:
    """The recordings that a page may use: the ``offered`` logs by name, and where layouts are kept."""

    store: LogStore
    offered: Callable[[], Mapping[str, Path]]
    files: ViewerFiles


class RecordingsView:
    """The tab. ``folder``: of the recordings; None: as reported by the server."""

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
            self._table.props("flat dense no-data-label='No recordings.'").classes("w-full recordings")
            self._table.add_slot(
                "body-cell-actions",
                """<q-td :props="props">
                     <q-btn flat dense no-caps icon="query_stats" label="View"
                            @click="$parent.$emit('view', props.row.name)"/>
                     <q-btn flat dense no-caps icon="download" label="Download"
                            @click="$parent.$emit('download', props.row.name)"/>
                     <q-btn flat dense no-caps icon="replay" label="Replay"
                            @click="$parent.$emit('replay', props.row.name)"/>
                   </q-td>""",
            )
            self._table.on("view", lambda e: self._view(str(e.args)))
            self._table.on("download", lambda e: self._download(str(e.args)))
            self._table.on("replay", lambda e: self._replay(str(e.args)))
        self._replays = ReplayDialog()

    async def refresh(self) -> None:
        """Read the folder again."""
        folder = folder_of(self.page.connection, self._given)
        if folder is None:
            self._where.set_text("Not on this computer: run the panel on the PC of the rig, or specify the folder.")
            return
        try:
            found = await run.io_bound(recordings, folder) or []
        except RecordError as error:
            self._where.set_text(str(error))
            return
        self._where.set_text(str(folder))
        listed = in_list(found)
        self._paths = {recorded.name_in(folder): recorded.files for recorded in listed}
        self._table.rows = [table_row(recorded, folder) for recorded in listed]

    def _view(self, name: str) -> None:
        if name in self._paths:
            ui.navigate.to(f"{VIEW}?log={quote(name)}", new_tab=True)

    def _download(self, name: str) -> None:
        for path in self._paths.get(name, ()):
            ui.download.from_url(f"{DOWNLOADS}/{quote(str(Path(name).with_name(path.name)))}", path.name)

    async def _replay(self, name: str) -> None:
        if paths := self._paths.get(name):
            await self._replays.show(paths[0])


class ReplayDialog:
    """Replays a recording and reports the differences, in a separate process that ends with the dialog."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        with (
            ui.dialog() as self._dialog,
            ui.column().classes("card replay gap-3").style("width: 56rem; max-width: 94vw"),
        ):
            self._title = ui.label().classes("font-bold")
            ui.label(_WHAT_REPLAY_IS).classes("text-sm text-slate-500")
            with ui.row().classes("items-center gap-3") as self._busy:
                ui.spinner(size="lg")
                ui.label("Computing …")
            self._verdict = ui.label().classes("w-full replay-verdict")
            self._text = ui.html("", sanitize=False).classes("w-full overflow-auto").style("max-height: 55vh")
            with ui.row().classes("w-full justify-end"):
                ui.button("Close", on_click=self._dialog.close).props("flat no-caps")
        self._dialog.on("hide", self._end)
        ui.context.client.on_delete(self._end)

    async def show(self, log: Path) -> None:
        """Replay a log, with its later files."""
        self._end()
        self._title.set_text(f"Replay of {log.name}")
        self._verdict.set_text("")
        self._text.set_content("")
        self._busy.visible = True
        self._dialog.open()
        process = self._process = await asyncio.create_subprocess_exec(
            *REPLAY,
            str(log),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "COLUMNS": "110"},
        )
        try:
            output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        if self._process is not process:  # closed, or another one was started in the meantime
            return
        self._process = None
        self._busy.visible = False
        verdict, look = _VERDICTS.get(process.returncode or 0, _VERDICTS[2])
        self._verdict.classes(replace=f"w-full replay-verdict note {look}").set_text(verdict)
        self._text.set_content(piece("output", text=output.decode(errors="replace").strip()))

    def _end(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
        self._process = None


def folder_of(connection: Connection, given: Path | None) -> Path | None:
    """The folder of the recordings: as given, or where the server records; None if it is not on this computer."""
    if given is not None:
        return given
    state = connection.state
    file = state.recording.file if state is not None and state.recording is not None else None
    return Path(file).parent if file is not None and Path(file).is_file() else None


def in_list(found: Sequence[StoredRecording]) -> list[StoredRecording]:
    """Recordings (as `recordings` gives them) and their cuts in the order of the list: the latest first."""
    return [each for recorded in reversed(found) for each in (recorded, *reversed(recorded.cuts))]


def table_row(recorded: StoredRecording, folder: Path) -> dict[str, str]:
    """The row of a recording in the list."""
    changed = datetime.datetime.fromtimestamp(recorded.modified).astimezone()
    return {
        "name": recorded.name_in(folder),
        "changed": f"{changed:%Y-%m-%d %H:%M:%S}",
        "size": f"{recorded.size / 1e6:.1f}",
        "state": recorded.state + (f", trigger {recorded.trigger}" if recorded.trigger else ""),
    }


def contents(path: Path, size: int) -> Iterator[bytes]:
    """The first ``size`` bytes of a file, which may grow in the meantime."""
    with path.open("rb") as file:
        while size > 0 and (part := file.read(min(size, 1 << 20))):
            size -= len(part)
            yield part
