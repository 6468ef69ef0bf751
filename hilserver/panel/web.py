"""The panel's web server: login with the broker's accounts, and a page for each user."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, StreamingResponse
from nicegui import app, background_tasks, run, ui
from wsproto.utilities import LocalProtocolError

from hilserver.errors import HilserverError
from hilserver.panel.connection import Connection, Login
from hilserver.panel.page import WALL, assets, build
from hilserver.panel.recordings import DOWNLOADS, VIEW, Recorded, contents, folder_of
from hilserver.panel.settings import PanelSettings
from hilserver.panel.studies import POLICY, STUDIES, offered_file
from hilserver.panel.wall import DEFAULT_SECONDS, MOST_CHANNELS, build_wall
from hilserver.record.folder import SUFFIX
from hilserver.report.studies import PAGE
from hilserver.viewer.layout import ViewTab, layouts_in, read_layout
from hilserver.viewer.layout_view import ViewerFiles
from hilserver.viewer.opening import logs_in
from hilserver.viewer.page import ViewerPage
from hilserver.viewer.store import LogStore
from hilserver.web.display import Units
from hilserver.web.guard import Guard, own_names
from hilserver.web.style import ICON

PATIENCE = 5.0
"""Seconds allowed for a broker to accept or refuse a login."""


@dataclass
class UserSession:
    """The session of a browser: its connection, its units, and, after a login, the task that keeps it connected."""

    connection: Connection
    task: asyncio.Task[None] | None = None
    units: Units = field(default_factory=Units)


class Panel:
    """The web server: access requires a login at the broker or, if that admits everybody, the panel's token.

    In the second case all users share one connection; otherwise each login has its own.
    """

    def __init__(self, settings: PanelSettings) -> None:
        self._settings = settings
        self._sessions: dict[str, UserSession] = {}
        self._open: UserSession | None = None
        self._admitted: set[str] = set()
        self._logs = LogStore()

    def run(self) -> None:
        """Serve until Ctrl-C or SIGTERM."""
        settings = self._settings
        app.on_startup(self._start)
        app.add_middleware(Guard, names=own_names(settings.host, settings.names))
        app.get(DOWNLOADS + "/{name:path}")(self._download)
        app.get(STUDIES + "/{name}")(self._study)
        app.post("/stop")(self._stop)
        ui.page("/", title=f"{settings.rig} · hilserver")(self._index)
        ui.page(WALL, title=f"{settings.rig} · hilserver")(self._wall)
        ui.page(VIEW, title=f"Recordings of {settings.rig} · hilserver")(self._view)
        tls = (str(settings.certificate), str(settings.key)) if settings.certificate is not None else (None, None)
        with contextlib.suppress(LocalProtocolError):  # at shutdown uvicorn closes what browsers have closed
            ui.run(
                host=settings.host,
                port=settings.port,
                reload=False,
                loop="asyncio",  # uvloop fails where an MQTT connection is lost while its socket is about to be watched
                show=False,
                dark=None,  # as the system of the browser
                show_welcome_message=False,
                reconnect_timeout=30.0,  # open pages survive a sleeping tablet or a busy machine
                storage_secret=secrets.token_hex(32),
                session_middleware_kwargs={
                    "session_cookie": f"hilserver-{settings.port}",  # browsers don't keep cookies of ports apart
                    "same_site": "lax",  # with "strict", whoever follows a link to the panel is not recognised
                    "https_only": settings.certificate is not None,
                },
                favicon=ICON,
                gzip_middleware_factory=None,  # a recording is large and hardly compresses
                ssl_certfile=tls[0],
                ssl_keyfile=tls[1],
            )

    async def _start(self) -> None:
        """Connect to the broker without a login first."""
        self._open = self._connect(None, None)
        if self._settings.with_parent:
            background_tasks.create(_end_with(os.getppid()))

    def _connect(self, user: str | None, password: str | None) -> UserSession:
        connection = Connection(Login.typed(self._settings.address, user, password), self._settings.rig)
        return UserSession(connection, asyncio.create_task(connection.run()))

    async def _admitted_session(self, request: Request) -> UserSession | Response | None:
        """The session of a browser, or what it gets instead; None: the login page, which leads back here."""
        browser, url = str(app.storage.browser["id"]), request.url.remove_query_params("token")
        page = f"{url.path}?{url.query}".removesuffix("?")
        if token := request.query_params.get("token"):
            if self._settings.admits(token):
                self._admitted.add(browser)
            return RedirectResponse(page, 303)  # the token stays neither in the address bar nor in the history
        session = self._sessions.get(browser)
        if session is None:
            assert self._open is not None
            await _decided(self._open.connection)
            if self._open.connection.refused is not None:
                self._ask(browser, page)
                return None
            if not self._settings.open and browser not in self._admitted:
                return HTMLResponse(_NO_TOKEN, 401)
            session = self._sessions[browser] = UserSession(self._open.connection)
        return session

    async def _wall(self, request: Request) -> Response | None:
        """The view for a monitor on the wall."""
        session = await self._admitted_session(request)
        if not isinstance(session, UserSession):
            return session
        seconds = request.query_params.get("seconds", "")
        channels = request.query_params.getlist("channel")[:MOST_CHANNELS]
        shown = int(seconds) if seconds.isdecimal() and len(seconds) < 6 else DEFAULT_SECONDS
        name = request.query_params.get("layout")
        layout = None if name is None else await self._layout(request, str(app.storage.browser["id"]), session, name)
        build_wall(session.connection, session.units, channels, shown, layout)
        return None

    async def _layout(self, request: Request, browser: str, session: UserSession, name: str) -> ViewTab | str:
        """The tab of a saved layout that an address names, by default its first one; or why there is none."""
        folder = self._recorded(browser, session).files.folder()
        path = layouts_in(folder).get(name) if folder is not None else None
        if path is None:
            return f"There is no layout {name} in the folder of the recordings."
        try:
            layout = await run.io_bound(read_layout, path)
        except HilserverError as error:
            return str(error)
        if layout is None:
            return "The panel is shutting down."
        wanted = request.query_params.get("tab", layout.tabs[0].name)
        tabs = (tab for tab in layout.tabs if tab.name == wanted)
        return next(tabs, f"The layout {name} has no tab {wanted}.")

    async def _index(self, request: Request) -> Response | None:
        session = await self._admitted_session(request)
        if not isinstance(session, UserSession):
            return session
        browser = str(app.storage.browser["id"])

        def log_out() -> None:
            if (gone := self._sessions.pop(browser, None)) is not None and gone.task is not None:
                gone.task.cancel()
            ui.navigate.to("/")

        own, recorded = session.task is not None, self._recorded(browser, session)
        s = self._settings
        build(session.connection, session.units, s.recordings, recorded, s.studies, log_out if own else None)
        return None

    async def _view(self, request: Request) -> Response | None:
        """Overlaid recordings, for those who are logged in; no files but those of the folder."""
        browser = str(app.storage.browser["id"])
        session = self._sessions.get(browser)
        if session is None:
            return RedirectResponse("/", 303)
        recorded = self._recorded(browser, session)
        ViewerPage(recorded.store, recorded.offered, request.query_params.getlist("log"), recorded.files)
        return None

    def _recorded(self, browser: str, session: UserSession) -> Recorded:
        """The logs that a page may open, and where it may write; neither any more once this session has ended."""

        def folder() -> Path | None:
            lasts = self._sessions.get(browser) is session
            return folder_of(session.connection, self._settings.recordings) if lasts else None

        def offered() -> Mapping[str, Path]:
            return {} if (where := folder()) is None else logs_in(where)

        def may_write() -> bool:
            return self._sessions.get(browser) is session and session.connection.role == "operator"

        return Recorded(self._logs, offered, ViewerFiles(folder, may_write=may_write))

    async def _stop(self, request: Request) -> JSONResponse:
        """STOP: a request of its own, for those who are logged in; the broker checks their right to command."""
        session = self._sessions.get(str(request.session.get("id")))
        if session is None:
            return JSONResponse({"ok": False, "text": "not sent: this page is no longer logged in, reload it"}, 401)
        try:
            answer = await session.connection.stop()
        except HilserverError as error:
            return JSONResponse({"ok": False, "text": str(error)})
        mode = session.connection.state.mode if session.connection.state is not None else ""
        if answer.ok:
            text = f"{answer.command}: done in tick {answer.tick}"
            return JSONResponse({"ok": True, "text": text, "tick": answer.tick})
        at_rest = mode in ("STARTUP", "SAFE", "FAULT")
        return JSONResponse({"ok": at_rest, "text": f"nothing to stop: {mode}" if at_rest else f"{answer.reason}"})

    async def _download(self, name: str, request: Request) -> Response:
        """A recording, for those who are logged in."""
        session = self._sessions.get(str(request.session.get("id")))
        folder = None if session is None else folder_of(session.connection, self._settings.recordings)
        path = None if folder is None else logs_in(folder).get(name)
        if path is None or path.suffix != SUFFIX:
            return Response("No such recording.", status_code=404)
        size = path.stat().st_size
        saved_as = f"attachment; filename*=UTF-8''{quote(path.name)}"
        return StreamingResponse(
            contents(path, size),
            media_type="application/octet-stream",
            headers={"Content-Length": str(size), "Content-Disposition": saved_as},
        )

    async def _study(self, name: str, request: Request) -> Response:
        """The page or the table of a study, for those who are logged in; the page as a document without any rights."""
        if str(request.session.get("id")) not in self._sessions:
            return RedirectResponse("/", 303)
        try:
            path = await run.io_bound(offered_file, self._settings.studies, name)
            content = None if path is None else await run.io_bound(path.read_bytes)
        except (HilserverError, OSError) as error:
            return PlainTextResponse(str(error), status_code=404)
        if path is None or content is None:
            return PlainTextResponse("There is no such study, or it has not ended.", status_code=404)
        if path.suffix == PAGE:
            return HTMLResponse(content, headers={"Content-Security-Policy": POLICY})
        saved_as = f"attachment; filename*=UTF-8''{quote(path.name)}"
        return Response(content, media_type="application/octet-stream", headers={"Content-Disposition": saved_as})

    def _ask(self, browser: str, page: str) -> None:
        """The login page, which leads to this page."""
        assets()

        async def enter() -> None:
            if not user.value:
                reason.set_text("Enter a user name.")
                return
            reason.set_text("")
            button.disable()
            session = self._connect(user.value, password.value)
            await _decided(session.connection)
            button.enable()
            if session.connection.connected:
                self._sessions[browser] = session
                ui.navigate.to(page)
                return
            assert session.task is not None
            session.task.cancel()
            reason.set_text(session.connection.refused or f"No answer: {session.connection.status()}.")

        with ui.column().classes("w-full items-center pt-24"), ui.column().classes("card gap-3").style("width: 22rem"):
            ui.label("hilserver").classes("heading")
            ui.label(self._settings.rig).classes("text-xl font-bold")
            ui.label("Log in with your account at the MQTT broker.").classes("text-sm text-slate-500")
            user = ui.input("User").props("outlined dense autocomplete=username").classes("w-full user")
            password = ui.input("Password", password=True).props("outlined dense autocomplete=current-password")
            password.classes("w-full password").on("keydown.enter", enter)
            reason = ui.label().classes("text-red-700 text-sm login-reason")
            button = ui.button("Log in", on_click=enter).props("unelevated no-caps").classes("w-full")


async def _end_with(parent: int) -> None:
    """End the panel when the process that started it is gone."""
    while os.getppid() == parent:  # noqa: ASYNC110 - there is no notification
        await asyncio.sleep(0.5)
    app.shutdown()


async def _decided(connection: Connection) -> None:
    """Wait until the broker has accepted or refused the login, or cannot be reached."""
    for _ in range(round(PATIENCE / 0.05)):
        if connection.connected or connection.refused is not None:
            return
        await asyncio.sleep(0.05)


_NO_TOKEN = (
    "<!doctype html><title>hilserver</title><p>Open the address that <code>hilserver panel</code> has printed: it "
    "contains a token that admits this browser until the panel ends."
)
