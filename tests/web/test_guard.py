"""Which requests the panel refuses: by the name under which it is reached, and by the page that sends them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.responses import PlainTextResponse

from hilserver.panel.settings import PanelSettings
from hilserver.protocol.address import BrokerAddress
from hilserver.web.guard import Guard, own_names


def answered(method: str, *headers: tuple[str, str], **own: str) -> tuple[int, dict[str, str]]:
    """Status and headers with which a guarded application answers; for the method WEBSOCKET, to a handshake.

    ``own``: headers of the application. Several values of a header are separated by commas.
    """
    kind = "websocket" if method == "WEBSOCKET" else "http"
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await PlainTextResponse("the panel", headers=own)(scope, receive, send)

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nothing is received")

    raw = [(name.encode(), value.encode()) for name, value in headers]
    scope = {"type": kind, "method": method, "path": "/", "headers": raw, "extensions": {"websocket.http.response": {}}}
    guard = Guard(app, own_names("127.0.0.1", ["Panel.lab"]))
    asyncio.run(guard(scope, receive, send))
    start = sent[0]
    assert start["type"].endswith("http.response.start")
    found = dict[str, str]()
    for name, value in start["headers"]:
        found[name.decode()] = ", ".join([*filter(None, [found.get(name.decode())]), value.decode()])
    return start["status"], found


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost:8080", "192.168.1.7", "[::1]:8080", "panel.LAB:8443"])
def test_the_panel_s_own_names_and_all_addresses_are_accepted(host: str) -> None:
    assert answered("GET", ("host", host))[0] == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example", "127.0.0.1@evil.example", "[::1", ""],
)
@pytest.mark.parametrize("method", ["GET", "POST", "WEBSOCKET"])
def test_every_request_under_a_foreign_name_is_refused(host: str, method: str) -> None:
    assert answered(method, ("host", host), ("origin", f"http://{host}"))[0] == 403


def test_exactly_one_host_name_is_required() -> None:
    assert answered("GET")[0] == 403
    assert answered("GET", ("host", "localhost"), ("host", "evil.example"))[0] == 403


@pytest.mark.parametrize("method", ["POST", "DELETE", "WEBSOCKET"])
def test_state_changing_requests_must_come_from_the_panel_itself(method: str) -> None:
    host = ("host", "127.0.0.1:8080")
    assert answered(method, host, ("origin", "http://127.0.0.1:8080"))[0] == 200
    assert answered(method, host)[0] == 403
    for foreign in ("http://evil.example", "http://127.0.0.1:9000", "http://localhost:8080", "http://[::1", "null"):
        assert answered(method, host, ("origin", foreign))[0] == 403, foreign
    assert answered(method, host, ("origin", "http://127.0.0.1:8080"), ("origin", "http://evil.example"))[0] == 403


def test_other_sites_cannot_read_responses() -> None:
    """Without Origin a browser reads for a page of the same origin, or because somebody follows a link."""
    assert answered("GET", ("host", "127.0.0.1:8080"))[0] == 200
    assert answered("GET", ("host", "127.0.0.1:8080"), ("origin", "http://evil.example"))[0] == 403


def test_a_stricter_policy_of_a_response_is_kept() -> None:
    """Of several policies, browsers obey all (RFC 9110: values of one header, separated by commas)."""
    _, headers = answered("GET", ("host", "localhost"), **{"Content-Security-Policy": "sandbox"})
    assert headers["content-security-policy"] == "sandbox, frame-ancestors 'none'"


@pytest.mark.parametrize("origin", [(), (("origin", "http://evil.example"),)])
def test_no_response_may_be_framed(origin: tuple[tuple[str, str], ...]) -> None:
    _, headers = answered("GET", ("host", "localhost"), *origin)
    assert headers["content-security-policy"] == "frame-ancestors 'none'"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"


def test_each_panel_has_a_token_of_its_own_that_its_printed_address_contains() -> None:
    one, other = (PanelSettings("lab", BrokerAddress()) for _ in range(2))
    assert one.url == f"http://127.0.0.1:8080/?token={one.token}"
    assert len(one.token) >= 32
    assert one.admits(one.token)
    assert not one.admits(other.token)
    assert not one.admits("")
    assert not one.admits("ä")
    assert one.token not in repr(one)
    assert PanelSettings("lab", BrokerAddress(), open=True).url == "http://127.0.0.1:8080"
