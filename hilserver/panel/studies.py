"""The studies whose results are on this computer: list, progress of those that run, page and table."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nicegui import run, ui

from hilserver.errors import HilserverError
from hilserver.panel.view import Page
from hilserver.report.studies import PAGE, TABLE, StoredStudy, studies_in
from hilserver.web.style import heading

STUDIES = "/studies"
POLICY = "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""A study's page is text, tables and pictures. Whatever else somebody may have put into the folder: in the browser, it
runs no script, loads nothing, sends no form and does not belong to the panel (Content Security Policy Level 3)."""
PERIOD = 2.0
"""s between two looks into the folder while the tab is shown."""


class StudiesView:
    """The tab. ``folder``: of the results of studies, on this computer."""

    def __init__(self, page: Page, folder: Path) -> None:
        self.page, self._folder = page, folder
        with ui.column().classes("card w-full gap-2"):
            with ui.row().classes("w-full items-center"):
                heading("Studies")
                self._where = ui.label().classes("text-sm text-slate-500")
            columns: list[dict[str, Any]] = [
                {"name": "name", "label": "study", "field": "name", "align": "left", "sortable": True},
                {"name": "about", "label": "", "field": "about", "align": "left"},
                {"name": "runs", "label": "runs", "field": "runs", "align": "left"},
                {"name": "failed", "label": "failed", "field": "failed", "align": "left"},
                {"name": "when", "label": "last written", "field": "when", "align": "left", "sortable": True},
                {"name": "state", "label": "state", "field": "state", "align": "left"},
                {"name": "actions", "label": "", "field": "name", "align": "right"},
            ]
            self._table = ui.table(rows=[], columns=columns, row_key="name", pagination=15)
            self._table.props("flat dense no-data-label='No studies.'").classes("w-full recordings studies")
            self._table.add_slot(
                "body-cell-actions",
                """<q-td :props="props">
                     <q-btn v-if="props.row.page" flat dense no-caps icon="query_stats" label="Open"
                            @click="$parent.$emit('open', props.row.page)"/>
                     <q-btn v-if="props.row.table" flat dense no-caps icon="download" label="Table"
                            @click="$parent.$emit('download', props.row.table)"/>
                   </q-td>""",
            )
            self._table.on("open", lambda e: ui.navigate.to(f"{STUDIES}/{quote(str(e.args))}", new_tab=True))
            self._table.on("download", lambda e: ui.download.from_url(f"{STUDIES}/{quote(str(e.args))}", str(e.args)))
        ui.timer(PERIOD, self._follow, immediate=False)

    async def _follow(self) -> None:
        if self.page.tab == "Studies":
            await self.refresh()

    async def refresh(self) -> None:
        """Read the folder again."""
        try:
            found = await run.io_bound(studies_in, self._folder)
        except HilserverError as error:
            self._where.set_text(str(error))
            return
        if found is None:  # the panel ends
            return
        self._where.set_text(str(self._folder.absolute()))
        rows = [study_row(each) for each in found]
        if rows != self._table.rows:  # setting them draws the buttons anew, also under a finger
            self._table.rows = rows


def study_row(study: StoredStudy) -> dict[str, str]:
    """The row of a study in the list. ``page`` and ``table``: their names at `STUDIES`, empty without one."""
    s = study.state
    row = {
        "name": study.name,
        "page": study.page.name if study.page else "",
        "table": study.table.name if study.table else "",
    }
    if s is None:
        return row | dict.fromkeys(("about", "runs", "failed", "when"), "") | {"state": "its file can't be read"}
    written = datetime.datetime.fromtimestamp(s.written).astimezone()
    return row | {
        "about": s.description,
        "runs": f"{s.runs} runs" if s.finished else f"{s.done} of {s.runs} runs",
        "failed": f"{s.failed} failed" if s.failed else "none failed",
        "when": f"{written:%Y-%m-%d %H:%M:%S}",
        "state": _words(study),
    }


def _words(study: StoredStudy) -> str:
    s = study.state
    assert s is not None
    if study.is_running:
        return "running" + (f", {_time(s.remaining)} left" if s.remaining is not None else "")
    if not s.finished:
        return "interrupted; --resume continues it"
    return "finished" if study.page else "finished, without a page"


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120.0 else f"{seconds / 60.0:.0f} min"


def offered_file(folder: Path, name: str) -> Path | None:
    """The page or the table of this name in a folder, if it is one of a study there that has ended.

    Raises HilserverError if the folder can't be read.
    """
    if not name.endswith((PAGE, TABLE)):
        return None
    files = [path for each in studies_in(folder) for path in (each.page, each.table) if path is not None]
    return next((path for path in files if path.name == name), None)
