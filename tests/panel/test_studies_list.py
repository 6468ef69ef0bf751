"""The list of studies without a browser: what runs, was interrupted or has ended; which files a browser gets."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from bare_page import bare_page
from fastapi import Request, Response
from study_bench import written_state

from hilserver.panel.connection import Connection
from hilserver.panel.settings import PanelSettings
from hilserver.panel.studies import StudiesView, study_row
from hilserver.panel.view import Page
from hilserver.panel.web import Panel, UserSession
from hilserver.protocol.address import BrokerAddress
from hilserver.report.studies import UNFINISHED, is_locked, lock, studies_in


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A study that has ended, one that was interrupted, one that can't be read; pages that are of no study."""
    folder = tmp_path / "reports"
    folder.mkdir()
    written_state(folder / "relief", runs=40, done=40, failed=3, finished=True, written=100.0)
    written_state(folder / "types", runs=90, done=50, written=200.0)
    (folder / "broken.study.json").write_text('{"runs": ')
    for name in ("relief.html", "types.html", "relief-set.html", "lift-size.html"):
        (folder / name).write_text(f"<h1>{name}</h1>")
    (folder / "relief.parquet").write_bytes(b"PAR1")
    (tmp_path / "secret.html").write_text("not of this folder")
    return folder


def rows_of(folder: Path) -> Sequence[dict[str, Any]]:
    async def run() -> Sequence[dict[str, Any]]:
        async with bare_page():
            page = cast(Page, SimpleNamespace(tab="Studies"))
            view = StudiesView(page, folder)
            await view.refresh()
            return list(view._table.rows)

    return asyncio.run(run())


def test_studies_are_listed_with_their_runs_and_state(folder: Path) -> None:
    found = [(row["name"], row["runs"], row["failed"], row["state"], row["page"]) for row in rows_of(folder)]
    assert found == [
        ("types", "50 of 90 runs", "none failed", "interrupted; --resume continues it", ""),
        ("relief", "40 runs", "3 failed", "finished", "relief.html"),
        ("broken", "", "", "its file can't be read", ""),
    ]


def test_a_folder_that_is_not_there_has_no_studies(tmp_path: Path) -> None:
    assert rows_of(tmp_path / "reports") == []


def test_a_study_runs_as_long_as_a_process_holds_its_lock(folder: Path) -> None:
    """However that ends: here it is killed."""
    table = folder / f"types{UNFINISHED}"
    table.touch()
    written_state(folder / "types", runs=90, done=50, remaining=240.0)
    hold = "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); input()"
    with subprocess.Popen(
        (sys.executable, "-c", hold, table), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (found,) = (each for each in studies_in(folder) if each.name == "types")
        assert study_row(found)["state"] == "running, 4 min left"
        with table.open("rb") as other:
            assert not lock(other)
        process.kill()
    assert not is_locked(table)
    (found,) = (each for each in studies_in(folder) if each.name == "types")
    assert study_row(found)["state"].startswith("interrupted")


def test_the_page_of_an_earlier_study_of_this_name_is_not_shown(folder: Path) -> None:
    os.utime(folder / "relief.html", (1000.0, 1000.0))
    written_state(folder / "relief", runs=40, done=40, finished=True, began=5000.0, written=5001.0)
    (found,) = (each for each in studies_in(folder) if each.name == "relief")
    assert found.page is None
    assert found.table is not None
    assert study_row(found)["state"] == "finished, without a page"


def test_a_browser_gets_the_page_of_a_study_without_rights_and_no_other_file(folder: Path) -> None:
    browser = cast(Request, SimpleNamespace(session={"id": "firefox"}))

    async def run() -> None:
        panel = Panel(PanelSettings("lab", BrokerAddress(), studies=folder))

        async def got(name: str) -> Response:
            return await panel._study(name, browser)

        assert (await got("relief.html")).headers["location"] == "/", "not logged in"
        panel._sessions["firefox"] = UserSession(Connection(BrokerAddress(), "lab"))
        page = await got("relief.html")
        assert page.body == b"<h1>relief.html</h1>"
        directives = page.headers["content-security-policy"].split("; ")
        assert {"sandbox", "default-src 'none'"} <= set(directives), "no script, and not of the panel's origin"
        table = await got("relief.parquet")
        assert table.body == b"PAR1"
        assert table.headers["content-disposition"].startswith("attachment")
        for name in (
            "types.html",
            "relief-set.html",
            "lift-size.html",
            "../secret.html",
            "relief.study.json",
            "/etc/passwd",
            "",
        ):
            refused = await got(name)
            assert refused.status_code == 404, name
            assert refused.headers["content-type"].startswith("text/plain")

    asyncio.run(run())
