"""A page for the user of this computer alone: served on the loopback address, and only to who has the token."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Callable
from importlib.util import find_spec

from hilserver.errors import HilserverError
from hilserver.web.listening import LOOPBACK


def require_nicegui() -> None:
    """Raises `HilserverError` if NiceGUI is not installed."""
    if find_spec("nicegui") is None:
        raise HilserverError("the pages need NiceGUI: pip install 'hilserver[panel]'")


def local_url(port: int, token: str) -> str:
    """The address to open in the browser."""
    return f"http://{LOOPBACK}:{port}/?token={token}"


def serve_locally(
    title: str,
    command: str,
    port: int,
    token: str,
    build: Callable[[], None],
    at_end: Callable[[], None] = lambda: None,
) -> None:
    """Serve a page until Ctrl-C or SIGTERM. ``build`` is called for each browser tab that may see it.

    ``command``: what has printed the address with the token. ``at_end`` is called before the program ends.
    """
    os.environ.setdefault("NICEGUI_STORAGE_PATH", tempfile.gettempdir())  # nothing is stored, but it creates the folder
    from fastapi.responses import HTMLResponse, RedirectResponse
    from nicegui import app, ui
    from wsproto.utilities import LocalProtocolError

    from hilserver.web.guard import Guard, own_names
    from hilserver.web.style import ICON

    admitted: set[str] = set()
    expected = token.encode()

    def index(token: str = ""):  # type: ignore[no-untyped-def]  # FastAPI can't resolve what is imported here
        browser = str(app.storage.browser["id"])
        if token:
            if secrets.compare_digest(token.encode(), expected):
                admitted.add(browser)
            return RedirectResponse("/", 303)  # the token stays neither in the address bar nor in the history
        if browser not in admitted:
            return HTMLResponse(_NO_TOKEN.format(command=command), 401)
        build()
        return None

    app.on_shutdown(at_end)
    app.add_middleware(Guard, names=own_names(LOOPBACK, ()))
    ui.page("/", title=title)(index)
    with contextlib.suppress(LocalProtocolError):  # at shutdown uvicorn closes what browsers have closed
        ui.run(
            host=LOOPBACK,
            port=port,
            reload=False,
            show=False,
            dark=None,  # as the system of the browser
            show_welcome_message=False,
            storage_secret=secrets.token_hex(32),
            session_middleware_kwargs={"session_cookie": f"hilserver-{port}", "same_site": "lax"},
            favicon=ICON,
        )


_NO_TOKEN = (
    "<!doctype html><title>hilserver</title><p>Open the address that <code>{command}</code> has printed: it "
    "contains a token that admits this browser until the program ends."
)
