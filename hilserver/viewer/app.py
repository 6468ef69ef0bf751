"""`hilserver view`: a page on this machine that shows the given logs, without rig or broker."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from hilserver.errors import HilserverError
from hilserver.viewer.store import LogStore
from hilserver.web.listening import LOOPBACK, new_token


@dataclass(frozen=True)
class ViewerSettings:
    """The logs to show, by name, and the address of the page. ``layout``: its file; ``token``: what admits a browser.

    Layouts are saved beside the given one, else beside the first log.
    """

    logs: Mapping[str, Path]
    port: int
    layout: Path | None = None
    token: str = field(default_factory=new_token, repr=False)

    @property
    def folder(self) -> Path:
        """Where layouts are kept."""
        return (self.layout or next(iter(self.logs.values()))).parent

    @property
    def url(self) -> str:
        """The address to open in the browser."""
        return f"http://{LOOPBACK}:{self.port}/?token={self.token}"


def named(paths: Sequence[Path]) -> dict[str, Path]:
    """The logs by the names under which they are listed: those of the files, with their folders if they are equal.

    >>> list(named([Path("a/run.arrow"), Path("b/run.arrow"), Path("b/other.csv"), Path("b/other.csv")]))
    ['a/run.arrow', 'b/run.arrow', 'other.csv']
    """
    distinct = list(dict.fromkeys(paths))
    names = [path.name for path in distinct]
    return {str(path) if names.count(path.name) > 1 else path.name: path for path in distinct}


def require_nicegui() -> None:
    """Raises `HilserverError` if NiceGUI is not installed."""
    if find_spec("nicegui") is None:
        raise HilserverError("the pages need NiceGUI: pip install 'hilserver[panel]'")


def view(settings: ViewerSettings, store: LogStore) -> None:
    """Serve the page until Ctrl-C or SIGTERM; only this machine can reach it, and only with the token."""
    os.environ.setdefault("NICEGUI_STORAGE_PATH", tempfile.gettempdir())  # nothing is stored, but it creates the folder
    from fastapi.responses import HTMLResponse, RedirectResponse
    from nicegui import app, ui
    from wsproto.utilities import LocalProtocolError

    from hilserver.viewer.layout_view import ViewerFiles
    from hilserver.viewer.page import ViewerPage
    from hilserver.web.guard import Guard, own_names
    from hilserver.web.style import ICON

    admitted: set[str] = set()

    def index(token: str = ""):  # type: ignore[no-untyped-def]  # FastAPI can't resolve what is imported here
        browser = str(app.storage.browser["id"])
        if token:
            if secrets.compare_digest(token.encode(), settings.token.encode()):
                admitted.add(browser)
            return RedirectResponse("/", 303)  # the token stays neither in the address bar nor in the history
        if browser not in admitted:
            return HTMLResponse(_NO_TOKEN, 401)
        files = ViewerFiles(lambda: settings.folder, settings.layout)
        ViewerPage(store, lambda: settings.logs, list(settings.logs), files)
        return None

    app.add_middleware(Guard, names=own_names(LOOPBACK, ()))
    ui.page("/", title="Recordings · hilserver")(index)
    with contextlib.suppress(LocalProtocolError):  # at shutdown uvicorn closes what browsers have closed
        ui.run(
            host=LOOPBACK,
            port=settings.port,
            reload=False,
            show=False,
            dark=None,  # as the system of the browser
            show_welcome_message=False,
            storage_secret=secrets.token_hex(32),
            session_middleware_kwargs={"session_cookie": f"hilserver-{settings.port}", "same_site": "lax"},
            favicon=ICON,
        )


_NO_TOKEN = (
    "<!doctype html><title>hilserver</title><p>Open the address that <code>hilserver view</code> has printed: it "
    "contains a token that admits this browser until the program ends."
)
