"""Pages of other sites, and browsers without the token, at a panel whose broker admits everybody: a real browser."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from panel_bench import CALM, CHROMIUM, WITHIN, chromium, printed_address, served
from playwright.sync_api import Browser, Frame, Page, expect
from service_harness import Server

from hilserver.client import connect

pytestmark = [
    pytest.mark.realtime,
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="not installed: chromium (make test-programs)"),
]

FOREIGN = "rig.evil.example"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("intruders")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    """A rig whose broker admits everybody."""
    changes = {
        "max_age": 'max_age = "5 s"',
        "rate =": 'rate = "250 Hz"\nheartbeat_timeout = "5 s"',
        "embedded =": 'embedded = true\ntelemetry_batch = "500 ms"',
    }
    with Server(folder, changes=changes) as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """For this browser, the attacker's name has the address of this computer: the second half of DNS rebinding."""
    with chromium(f"--host-resolver-rules=MAP {FOREIGN} 127.0.0.1") as browser:
        yield browser


@pytest.fixture(scope="module")
def url(folder: Path, server: Server) -> Iterator[str]:
    with served(folder, server.port, server) as url:
        yield url


@pytest.fixture(scope="module")
def open_url(folder: Path, server: Server) -> Iterator[str]:
    with served(folder, server.port, server, "--open") as url:
        yield url


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(reduced_motion=CALM)
    context.set_default_timeout(WITHIN)
    yield context.new_page()
    context.close()


def mode(server: Server) -> str:
    with connect(server.name, f"127.0.0.1:{server.port}") as client:
        return client.state.mode


def operates(page: Page) -> bool:
    """Whether this page shows the rig and its buttons."""
    return page.get_by_role("button", name="Arm", exact=True).count() > 0


@contextmanager
def site(content: str) -> Iterator[str]:
    """Another web site, with this page; its address, under the attacker's name."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(content.encode())

        def log_message(self, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        try:
            yield f"http://{FOREIGN}:{http.server_port}/"
        finally:
            http.shutdown()
            thread.join()


@pytest.mark.parametrize("way", ["address", "printed", "open"])
def test_requests_under_a_rebound_name_are_refused(
    way: str, page: Page, url: str, open_url: str, folder: Path, server: Server
) -> None:
    """Not even with the token, and not where everybody is admitted."""
    address = {"address": url, "printed": printed_address(folder, url), "open": open_url}[way]
    response = page.goto(address.replace("127.0.0.1", FOREIGN))
    assert response is not None
    assert response.status == 403
    assert not operates(page)
    assert mode(server) == "SAFE"


def test_a_browser_without_the_token_is_refused(page: Page, url: str, server: Server) -> None:
    for address in (url, f"{url}/?token=guessed", f"{url}/?token="):
        response = page.goto(address)
        assert response is not None
        assert response.status == 401
        expect(page.locator("body")).to_contain_text("Open the address that hilserver panel has printed")
        assert not operates(page)
    assert page.request.get(f"{url}/recordings/{server.logs[-1].name}").status == 404


def test_the_printed_address_admits_a_browser_until_the_panel_ends(page: Page, url: str, folder: Path) -> None:
    page.goto(printed_address(folder, url))
    expect(page.get_by_role("button", name="Arm", exact=True)).to_be_enabled()
    assert "token" not in page.url
    page.goto(url)
    expect(page.get_by_role("button", name="Arm", exact=True)).to_be_enabled()
    (cookie,) = page.context.cookies()
    assert cookie["name"] == f"hilserver-{urlsplit(url).port}", "a panel on another port has its own"
    assert cookie["httpOnly"]


def test_an_open_panel_admits_everybody(page: Page, open_url: str) -> None:
    page.goto(open_url)
    expect(page.get_by_role("button", name="Arm", exact=True)).to_be_enabled()


def test_a_link_from_another_site_leads_to_the_panel(page: Page, url: str, folder: Path) -> None:
    """The link itself is harmless, and it may be in a wiki or a mail."""
    with site(f'<a href="{printed_address(folder, url)}">the rig</a>') as there:
        page.goto(there)
        page.get_by_text("the rig").click()
        expect(page.get_by_role("button", name="Arm", exact=True)).to_be_enabled()


def refused(page: Page, name: str) -> Frame:
    """The frame of this name, when the browser shows its error page there, for which it makes another frame."""
    place = page.locator(f'iframe[name="{name}"]').element_handle()
    for _ in range(200):
        frame = place.content_frame()
        if frame is not None and frame.url.startswith("chrome-error:"):
            return frame
        page.wait_for_timeout(100)
    raise AssertionError(f"the frame {name} shows {frame.url if frame is not None else 'nothing'}")


def test_the_panel_is_shown_in_no_frame(page: Page, url: str, open_url: str, folder: Path) -> None:
    page.goto(printed_address(folder, url))
    expect(page.get_by_role("button", name="Arm", exact=True)).to_be_enabled()
    with site(f'<iframe name="mine" src="{url}"></iframe><iframe name="open" src="{open_url}"></iframe>') as there:
        page.goto(there)
        for name in ("mine", "open"):
            frame = refused(page, name)
            assert frame.get_by_role("button").count() == 0


def test_another_site_s_scripts_reach_neither_page_nor_socket(page: Page, open_url: str) -> None:
    """What a page of another site can try with the address of an open panel; its own page can do all of it."""
    attempts = """async (url) => {
        const socket = (kind) => new Promise((done) => {
            const ws = new WebSocket(url.replace("http", "ws") + "/_nicegui_ws/socket.io/?EIO=4&transport=websocket");
            ws.onopen = () => done(true);
            ws.onerror = () => done(false);
        });
        const read = async () => { try { return (await fetch(url)).ok; } catch { return false; } };
        const post = async () => {
            const way = url + "/_nicegui_ws/socket.io/?EIO=4&transport=polling";
            try { return (await fetch(way, { method: "POST", body: "40" })).status !== 403; } catch { return false; }
        };
        return { socket: await socket(), read: await read(), post: await post() };
    }"""
    with site("nothing to see") as there:
        page.goto(there)
        assert page.evaluate(attempts, open_url) == {"socket": False, "read": False, "post": False}
    page.goto(open_url)
    assert page.evaluate(attempts, open_url) == {"socket": True, "read": True, "post": True}
