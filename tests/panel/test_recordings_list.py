"""The list of recordings without a browser: cuts beside their log, to view and to download, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from bare_page import bare_page
from fastapi import Request
from fastapi.responses import StreamingResponse
from log_bench import header, numbered_rows, write_numbered_parts

from hilserver.panel.connection import Connection
from hilserver.panel.recordings import RecordingsView
from hilserver.panel.settings import PanelSettings
from hilserver.panel.view import Page
from hilserver.panel.web import Panel, UserSession
from hilserver.protocol.address import BrokerAddress
from hilserver.record.cuts import FOLDER
from hilserver.record.writer import LogWriter


def write_cut(folder: Path, name: str, trigger: str, previous: str) -> Path:
    path = folder / FOLDER / f"{name}.arrow"
    path.parent.mkdir(exist_ok=True)
    extra = {"cut": {"trigger": trigger, "tick": 120}}
    with LogWriter(path, header(part=1, first_row=110, previous=previous, extra=extra)) as writer:
        writer.append(numbered_rows(20))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A recording with two cuts, one of them from a later file, one without, and a cut of one that was removed."""
    folder = tmp_path / "logs"
    folder.mkdir()
    write_numbered_parts(folder / "2026-11-21T01_lab.arrow")
    write_numbered_parts(folder / "2026-11-22T01_lab.arrow")
    write_cut(folder, "2026-11-20T02_lab_fault", "fault", "2026-11-20T01_lab.arrow")
    write_cut(folder, "2026-11-21T02_lab_overload", "overload", "2026-11-21T01_lab.arrow")
    write_cut(folder, "2026-11-21T03_lab_overload", "overload", "2026-11-21T01_lab.002.arrow")
    (tmp_path / "secret.arrow").write_bytes(b"not of this folder")
    return folder


def test_cuts_are_listed_beside_their_log(folder: Path) -> None:
    async def run() -> Sequence[dict[str, Any]]:
        async with bare_page():
            page = cast(Page, SimpleNamespace(connection=Connection(BrokerAddress(), "lab")))
            view = RecordingsView(page, folder)
            await view.refresh()
            assert view._paths.keys() == {row["name"] for row in view._table.rows}
            return list(view._table.rows)

    assert [(row["name"], row["state"]) for row in asyncio.run(run())] == [
        ("2026-11-22T01_lab.arrow", "ended"),
        ("2026-11-21T01_lab.arrow", "ended"),
        ("cuts/2026-11-21T03_lab_overload.arrow", "ended, trigger overload"),
        ("cuts/2026-11-21T02_lab_overload.arrow", "ended, trigger overload"),
        ("cuts/2026-11-20T02_lab_fault.arrow", "ended, trigger fault"),
    ]


def test_a_cut_can_be_viewed_and_downloaded_and_no_other_file(folder: Path) -> None:
    name = "cuts/2026-11-21T02_lab_overload.arrow"
    browser = cast(Request, SimpleNamespace(session={"id": "firefox"}))

    async def download(panel: Panel, name: str) -> bytes | int:
        answer = await panel._download(name, browser)
        if not isinstance(answer, StreamingResponse):
            return answer.status_code
        assert answer.headers["Content-Disposition"].endswith(f"'{Path(name).name}")
        return b"".join([cast(bytes, part) async for part in answer.body_iterator])

    async def run() -> None:
        panel = Panel(PanelSettings("lab", BrokerAddress(), recordings=folder))
        assert await download(panel, name) == 404, "not logged in"
        session = panel._sessions["firefox"] = UserSession(Connection(BrokerAddress(), "lab"))
        offered = panel._recorded("firefox", session).offered
        for each in (name, "2026-11-21T01_lab.002.arrow"):
            assert await download(panel, each) == (folder / each).read_bytes()
            assert offered()[each] == folder / each
        for each in ("../secret.arrow", "cuts/../../secret.arrow", "/etc/passwd", "cuts", Path(name).name):
            assert await download(panel, each) == 404
            assert each not in offered()

    asyncio.run(run())
