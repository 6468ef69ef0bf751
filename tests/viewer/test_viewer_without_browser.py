"""What the viewer's page does when things happen at the same time, or are entered wrongly; no browser is needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from bare_page import bare_page
from nicegui import ui
from viewer_bench import record

from hilserver.panel.connection import Connection, Role
from hilserver.panel.settings import PanelSettings
from hilserver.panel.web import Panel, UserSession
from hilserver.protocol.address import BrokerAddress
from hilserver.record.notes import LogNote, read_notes
from hilserver.viewer.layout import ViewAlign, ViewAnalysis, ViewLayout, ViewPlot, ViewTab, read_layout, write_layout
from hilserver.viewer.layout_view import ViewerFiles
from hilserver.viewer.page import ViewerPage
from hilserver.viewer.store import LogStore


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("bare") / "one.arrow").path


async def opened(log: Path, files: ViewerFiles | None = None) -> ViewerPage:
    """A page with this log."""
    page = ViewerPage(LogStore(), lambda: {log.name: log}, [], files or ViewerFiles(lambda: log.parent))
    await page._open([log.name])
    return page


def show_another_tab(page: ViewerPage) -> None:
    page._tabs._do(lambda: page.overlay.tabs.show(1), True)


def lay_another_layout(page: ViewerPage) -> None:
    """As it is loaded in another thread: the page shows it later."""
    page.overlay.load(ViewLayout(tabs=(ViewTab(analyses=()),)))
    page._analyses.refresh()


@pytest.mark.parametrize("leave", [show_another_tab, lay_another_layout])
def test_a_tab_may_be_left_while_its_analyses_are_computed(
    log: Path, monkeypatch: pytest.MonkeyPatch, leave: Callable[[ViewerPage], None]
) -> None:
    """The second analysis has no place in what is shown then, and is not computed any more; the first is not shown."""
    computed: list[str] = []

    async def run() -> None:
        async with bare_page():
            page = await opened(log)
            plots = (ViewPlot(signals=("channel.x", "channel.p_A")),)
            analyses = tuple(ViewAnalysis(signals=(name,)) for name in plots[0].signals)
            await page._load(ViewLayout(tabs=(ViewTab(plots=plots, analyses=analyses), ViewTab(analyses=()))))

            async def meanwhile(compute: Callable[..., Any], kind: str, one: Any, *others: Any) -> Any:
                computed.append(one.name)
                leave(page)
                return "computed", None

            monkeypatch.setattr("nicegui.run.io_bound", meanwhile)
            cards = page._analyses._cards
            await page._analyses.compute()
            assert computed == ["channel.x"]
            assert [card._note.text for card in cards] == ["", ""]

    asyncio.run(run())


def test_who_has_logged_out_can_neither_open_nor_write_on_a_page_that_is_open(tmp_path: Path) -> None:
    """The page stays open; the server refuses, whatever the page still shows."""
    log = record(tmp_path / "one.arrow").path
    note, file = LogNote(time=1.0, text="squeals"), tmp_path / "bench.layout.toml"

    async def run() -> None:
        async with bare_page():
            panel = Panel(PanelSettings("lab", BrokerAddress(), recordings=tmp_path))
            session = panel._sessions["firefox"] = UserSession(Connection(BrokerAddress(), "lab"))
            session.connection.role = "operator"
            recorded = panel._recorded("firefox", session)
            offered, files = recorded.offered, recorded.files
            page = ViewerPage(recorded.store, offered, [], files)
            await page._open([log.name])
            (shown,) = page.overlay.logs
            await page._notes._write(shown, None, note)
            assert read_notes(log) == (note,)
            ends: list[tuple[dict[str, UserSession], Role]] = [({"firefox": session}, "viewer"), ({}, "operator")]
            for panel._sessions, session.connection.role in ends:
                await page._notes._write(shown, note, None)
                page._layouts._save(file)
                assert page._note.text.startswith("bench.layout.toml was not saved")
            assert (read_notes(log), file.exists()) == ((note,), False)
            assert (offered(), files.folder()) == ({}, None)
            panel._sessions["firefox"] = UserSession(session.connection)
            assert not files.may_write(), "logged in again: as somebody else, perhaps"

    asyncio.run(run())


@pytest.mark.parametrize(
    ("number", "expected"), [(-3, "-3 is out of range: must be >= 1"), (10_001, "must be <= 10000")]
)
def test_there_is_no_event_with_such_a_number(log: Path, number: int, expected: str) -> None:
    async def run() -> None:
        async with bare_page():
            page = await opened(log)
            page._align.value, page._number.value = "trigger", number
            await page._realign()
            assert page._note.text.startswith("number: ")
            assert expected in page._note.text
            assert page.overlay.aligned == ViewAlign()

    asyncio.run(run())


def test_a_layout_that_somebody_else_has_changed_is_not_overwritten(log: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "bench.layout.toml", tmp_path / "new.layout.toml"
    theirs = ViewLayout(tabs=(ViewTab(name="theirs"),))

    async def run() -> None:
        async with bare_page():
            page = await opened(log, ViewerFiles(lambda: tmp_path, layout=file))
            menu = page._layouts
            menu._save(file)
            page.overlay.tabs.change(name="mine")
            menu._save(file)
            assert read_layout(file).tabs[0].name == "mine"
            write_layout(theirs, file)
            menu._save(file)
            assert page._note.text.startswith("bench.layout.toml was not saved: somebody else has changed it")
            assert read_layout(file) == theirs
            await menu._open(file)
            page.overlay.tabs.change(name="both")
            menu._save(file)
            assert (page._note.text, read_layout(file).tabs[0].name) == ("", "both")
            write_layout(theirs, other)
            menu._save(other)
            assert read_layout(other) == theirs, "made by somebody else while a name was asked for"
            later = await opened(log, ViewerFiles(lambda: tmp_path, layout=other))
            later._layouts._save(other)
            assert read_layout(other) == theirs, "it was not there, or not read"
            await later._begin([])
            later._layouts._save(other)
            assert (later._note.text, read_layout(other)) == ("", theirs)

    asyncio.run(run())


def test_the_event_that_is_chosen_is_the_one_that_was_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else may have added a note since, on another page of this log."""
    log, zoomed = record(tmp_path / "one.arrow").path, list[tuple[float, float]]()

    async def run() -> None:
        async with bare_page():
            page = await opened(log)
            monkeypatch.setattr(page.plot, "zoom", lambda *section: zoomed.append(section))
            (place,) = (k for k, text in dict(page._moments.options).items() if "RUNNING" in text)
            page.overlay.logs[0].change_note(None, LogNote(time=0.5, text="before all others"))
            page._moments.value = place
            page._go_to()
            assert {(begin + end) / 2 for begin, end in zoomed} == {2.0}

    asyncio.run(run())


def test_who_changes_a_note_of_somebody_else_is_not_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next note is by whom the last new one was."""
    log, given = record(tmp_path / "one.arrow").path, iter(["Anna", None, None])
    shown: list[str] = []

    class Entered(ui.dialog):
        """Kept at once, with a name if there is one to enter."""

        def __await__(self) -> Generator[Any, None, Any]:
            author, text = (element for element in self.descendants() if isinstance(element, ui.input | ui.textarea))
            if isinstance(author, ui.textarea):
                author, text = text, author
            shown.append(str(author.value))
            author.value = next(given) or author.value
            text.value = text.value or "a note"
            return True
            yield

    async def run() -> None:
        async with bare_page():
            page = await opened(log)
            (one,) = page.overlay.logs
            bobs = LogNote(time=1.0, text="squeals", author="Bob")
            one.change_note(None, bobs)
            monkeypatch.setattr(ui, "dialog", Entered)
            await page._notes._edit(None, None)
            await page._notes._edit(one, bobs)
            await page._notes._edit(None, None)
            assert shown == ["", "Bob", "Anna"]
            assert sorted(note.author for note in read_notes(log)) == ["Anna", "Anna", "Bob"]

    asyncio.run(run())


def test_the_buttons_of_an_analysis_say_what_they_do(log: Path) -> None:
    async def run() -> list[str]:
        async with bare_page():
            page = await opened(log)
            buttons = [
                element for element in page._analyses._cards[0].head.descendants() if isinstance(element, ui.button)
            ]
            return [button.props["aria-label"] for button in buttons if "aria-label" in button.props]

    assert asyncio.run(run()) == ["Save analysis 1", "Move analysis 1 up", "Move analysis 1 down", "Remove analysis 1"]
