"""Keeps pages of other sites away from the panel: they must not operate a rig through the browser of its user.

Such a page can send requests to the panel's address, or have its own name resolved to it (DNS rebinding), which makes
it of the same origin for the browser. The browser states truthfully, in every request, the name under which it reached
the panel (Host, RFC 9110 section 7.2) and the page that sends it (Origin, RFC 6454 section 7).
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

READING = ("GET", "HEAD", "OPTIONS")
"""Methods that change nothing; a browser may send them without Origin."""
POLICY = "Content-Security-Policy"
FRAMES = "frame-ancestors 'none'"
"""Shown in no frame, where clicks could be stolen. A response may have stricter policies: browsers obey all of them."""
HEADERS = {
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",  # the address may contain the token
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard:
    """ASGI middleware: refuses requests under foreign names, and from pages of other origins.

    ``names``: host names that are the panel's own. IP addresses are always accepted: nobody can have one resolved.
    """

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        self._app = app
        self._names = frozenset(name.lower() for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request with 403, or pass it on and add the protecting headers to the response."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return

        async def protected(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.append(POLICY, FRAMES)
            await send(message)

        refusal = self.refusal(Headers(scope=scope), reads=scope.get("method") in READING)
        answer = self._app if refusal is None else PlainTextResponse(refusal, 403)
        await answer(scope, receive, protected)

    def refusal(self, headers: Headers, *, reads: bool) -> str | None:
        """Why a request with these headers is refused; None if it is not. ``reads``: it changes nothing."""
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or not self._is_own(hosts[0]):
            shown = ", ".join(hosts) or "none"
            return (
                f"The page is not known by this name (Host: {shown}). Open it under its IP address; a panel can also "
                "be started with --name and the name to be used."
            )
        if not origins and reads:
            return None
        if len(origins) != 1 or origins[0].lower().partition("://")[2] != hosts[0].lower():
            return f"Only pages of the panel itself may do this (Origin: {', '.join(origins) or 'none'})."
        return None

    def _is_own(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:  # an incomplete IPv6 address
            return False
        return name in self._names or _is_address(name)


def own_names(host: str, more: Iterable[str]) -> set[str]:
    """Names under which a browser may reach a panel that listens on ``host``: localhost, this computer's, and more."""
    machine = socket.gethostname()
    return {"localhost", machine, f"{machine}.local", host, *more}


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
