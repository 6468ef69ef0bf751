"""The panel in a process of its own, a broker with accounts that can be lost, and a user at a real browser."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from mosquitto_lab import PROGRAM_PATH, passwd
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright
from playwright.sync_api import TimeoutError as PlaywrightTimeout
from service_harness import Server, eventually, listens
from warm_start import Command, start

from hilserver.client import read_status, where
from hilserver.protocol.published import CircuitStatus
from hilserver.service.broker import _free_port

BROWSERS = ("chromium-headless-shell", "chromium")
"""Where both are installed, the one without windows: it opens a page in half the processor time."""
CHROMIUM = next((p for name in BROWSERS if (p := shutil.which(name, path=PROGRAM_PATH))), None)
MOSQUITTO = shutil.which("mosquitto", path=PROGRAM_PATH)

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--font-render-hinting=none",  # fonts as on a screen
    "--js-flags=--no-opt --no-maglev",  # no page is open for so long that the optimising compiler pays
)
"""Of a browser that runs as root and without a screen."""
CALM: Final = "reduce"
"""What a browser of the tests says of motion, as one does for users who want less: a dialog takes less than half of the
processor time without its transitions. On the desktops of test_safe_hands.py everything moves.
"""
WITHIN = 120_000
"""Milliseconds in which the browser must show something: a shared machine has slow moments."""
RACE = re.compile(r"ERROR: +Traceback.*?LocalProtocolError: Event CloseConnection.*?CancelledError", re.S)
"""What uvicorn writes when it is told to end while a browser closes its connection."""
STANDING = {"strategy =": 'strategy = "manual"'}
"""A change of the demo's rig for tests that hold its joystick: the machine stands. Else it would soon be at its end
stop, where a computer that stalls lets the sensor of the position look stuck, and disturbs the virtual circuit.
"""
PASSWORDS = {"anna": "operator's", "wall": "viewer's", "server": "server's"}


class Broker:
    """A mosquitto with an operator, a viewer and the server's account, which can be ended and started again."""

    def __init__(self, folder: Path) -> None:
        self.port = _free_port()
        passwd(folder / "passwords", **PASSWORDS)
        for name, password in PASSWORDS.items():
            (folder / name).touch(0o600)
            (folder / name).write_text(f"{password}\n")
        everything = "user server\ntopic readwrite hil/#\n\nuser anna\ntopic write hil/+/command/+\n"
        (folder / "acl").write_text(f"pattern read hil/+/+\n\n{everything}")
        (folder / "acl").chmod(0o600)
        settings = f"password_file {folder}/passwords\nacl_file {folder}/acl\nset_tcp_nodelay true\n"
        root = "user root\n" if os.geteuid() == 0 else ""
        self._file = folder / "mosquitto.conf"
        self._file.write_text(f"listener {self.port} 127.0.0.1\nallow_anonymous false\n{settings}{root}")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert MOSQUITTO is not None
        self._process = subprocess.Popen(
            (MOSQUITTO, "-c", self._file), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        eventually(lambda: listens(self.port))

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def launched(
    folder: Path, broker_port: int, server: Server, *options: str, port: int | None = None, really: bool = False
) -> tuple[Command | subprocess.Popen[str], int]:
    """The process of a panel as the command starts it, and its port; it listens. ``really``: see `warm_start`."""
    port = port or _free_port()
    said = folder / f"panel-{port}.log"
    place = ("--rig", server.name, "--broker", f"127.0.0.1:{broker_port}", "--port", str(port))
    with said.open("w") as log:
        # NiceGUI looks whether pytest runs, and would behave otherwise than for users
        own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
        words = ("panel", *place, *options)
        process = start(words, stdout=log, stderr=log, folder=folder, environment=own, really=really)
    eventually(lambda: listens(port) or process.poll() is not None, 60)
    assert process.poll() is None, said.read_text()
    with contextlib.suppress(PermissionError):  # it steps back behind a rig; here it would step back behind other tests
        os.setpriority(os.PRIO_PROCESS, process.pid, 0)
    return process, port


@contextmanager
def served(
    folder: Path, broker_port: int, server: Server, *options: str, scheme: str = "http", really: bool = False
) -> Iterator[str]:
    """The panel, in a process of its own; its address."""
    process, port = launched(folder, broker_port, server, *options, really=really)
    try:
        yield f"{scheme}://127.0.0.1:{port}"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (0, -signal.SIGTERM)
    finally:
        process.kill()
        process.wait()
    text = RACE.sub("", (folder / f"panel-{port}.log").read_text())
    assert text.startswith(f"Panel of {server.name}: {scheme}://127.0.0.1:{port}")
    assert "Traceback" not in text, text
    assert not list(folder.glob(".nicegui*"))


@contextmanager
def held(*processes: int) -> Iterator[None]:
    """The processes stand still, as on a machine that has nothing left for them."""
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)


@contextmanager
def chromium(*arguments: str) -> Iterator[Browser]:
    """A browser that runs as root and without a screen, with more ``arguments``; it waits as long as `WITHIN`."""
    expect.set_options(timeout=WITHIN)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*OPTIONS, *arguments])
        yield browser
        browser.close()


def printed_address(folder: Path, url: str) -> str:
    """The address that the panel at this URL has printed, with its token."""
    said = (folder / f"panel-{url.rpartition(':')[2]}.log").read_text()
    found = re.search(r"https?://\S+", said)
    assert found is not None
    assert found[0].startswith(url)
    return found[0]


def becomes_active(page: Page, button: Locator) -> None:
    """Press a button of the component's dialog, and see that the change is active.

    Pressed again where a busy server has not answered in time, as the dialog says.
    """
    for _ in range(5):
        button.click()
        expect(page.locator(".applied:visible, .refusal-reason:visible")).to_have_count(1)
        if not page.locator(".refusal-reason:visible", has_text="No answer came").count():
            break
    expect(page.locator(".applied")).to_contain_text("Active since tick")


class User:
    """Somebody at the panel. What goes wrong in the page goes wrong in the test."""

    def __init__(self, browser: Browser, url: str, name: str, password: str) -> None:
        self.context: BrowserContext = browser.new_context(
            viewport={"width": 1400, "height": 1000},
            locale="en-GB",
            ignore_https_errors=True,
            reduced_motion=CALM,
        )
        self.context.set_default_timeout(WITHIN)
        self.page: Page = self.context.new_page()
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(f"{error}\n{error.stack}"))
        self.page.goto(url)
        self.page.wait_for_function("window.did_handshake")  # before that, the page doesn't tell what is typed
        self.page.get_by_label("User").fill(name)
        self.page.get_by_label("Password").fill(password)
        self.page.get_by_role("button", name="Log in").click()

    def sees_mode(self, mode: str) -> None:
        expect(self.page.locator(f".mode.{mode}")).to_be_visible()

    def sees_strategy(self, strategy: str) -> None:
        """As the server says it, not only as it was chosen here."""
        self.page.wait_for_timeout(1500)
        expect(self.page.locator(".strategy input")).to_have_value(strategy)

    def presses(self, button: str) -> None:
        self.page.get_by_role("button", name=button, exact=True).click()

    def opens(self, tab: str) -> None:
        self.page.get_by_role("tab", name=tab).click()

    def opens_plots(self) -> None:
        """Until the panel answers, the tab before is shown, which has a plot, too."""
        self.opens("Plots")
        expect(self.page.locator(".pause")).to_be_visible()

    def clicks_component(self, name: str) -> None:
        self.page.locator(f'[data-part="{name}"] .hit').first.click()
        expect(self.page.locator(".component-dialog")).to_contain_text(name)

    def closes_component(self) -> None:
        self.presses("Close")
        expect(self.page.locator(".component-dialog")).to_have_count(0)

    def types(self, field: str, value: str) -> None:
        self.page.locator(f'input[data-field="{field}"]').fill(value)

    def applies(self) -> None:
        self.page.locator(".apply").click()

    def applies_live(self) -> None:
        becomes_active(self.page, self.page.locator(".apply"))

    def switches_to(self, kind: str) -> None:
        becomes_active(self.page, self.page.get_by_role("button", name=f"Switch to {kind}"))

    def runs(self) -> None:
        """Let the rig run, wherever it is; also after a test that left it tripped."""
        expect(self.page.locator(".mode.SAFE, .mode.ARMED, .mode.RUNNING, .mode.FAULT")).to_be_visible()
        if self.page.locator(".mode.FAULT").count():
            self.presses("Reset")
            self.sees_mode("SAFE")
        if self.page.locator(".mode.SAFE").count():
            self.presses("Arm")
            self.sees_mode("ARMED")
        if self.page.locator(".mode.ARMED").count():
            self.presses("Start")
        self.sees_mode("RUNNING")

    def acknowledges_all(self) -> None:
        """Press Acknowledge all until no alarm is open: on a busy machine another one may come meanwhile."""
        count = self.page.locator(".alarm-count")
        for _ in range(10):
            with contextlib.suppress(PlaywrightTimeout, AssertionError):
                self.page.get_by_role("button", name="Acknowledge all", exact=True).click(timeout=10_000)
                expect(count).to_be_empty(timeout=10_000)
                return
            if not count.text_content():
                return
        raise AssertionError("an alarm is still open")

    def replays(self, recording: str) -> None:
        """Press Replay in the row of a recording; again if the list was just drawn anew."""
        button = self.page.locator(".recordings tr", has_text=recording).get_by_role("button", name="Replay")
        for _ in range(10):
            button.click()
            with contextlib.suppress(PlaywrightTimeout):
                self.page.locator(".replay").wait_for(state="visible", timeout=10_000)
                return
        raise AssertionError(f"the replay of {recording} was not opened")

    def views(self, recording: str) -> Page:
        """Press View in the row of a recording, as above; returns the page that opens."""
        button = self.page.locator(".recordings tr", has_text=recording).get_by_role("button", name="View")
        for _ in range(10):
            with contextlib.suppress(PlaywrightTimeout):
                with self.page.expect_popup(timeout=10_000) as popup:
                    button.click()
                return popup.value
        raise AssertionError(f"the view of {recording} was not opened")

    def last_point_held(self) -> list[float]:
        """The last point of the first plot, once it has been the last one for a second."""
        last = self.points()[-1]
        for _ in range(30):
            time.sleep(1.0)
            before, last = last, self.points()[-1]
            if last == before:
                return last
        raise AssertionError("the plot goes on")

    def points(self) -> list[list[float]]:
        """What the first plot in view shows of its first channel: times in ms and values."""
        script = """() => {
            const plot = [...document.querySelectorAll(".chart")].find((e) => e.offsetParent);
            const points = plot ? [...(panel.charts.get(Number(plot.id.slice(1)))?.channels[0].kept() || [])] : [];
            return points.flatMap((time, k) => (k % 2 ? [] : [[time, points[k + 1]]]));
        }"""
        found: list[list[float]] = self.page.evaluate(script)
        return found


def login(server: Server, broker: Broker, folder: Path, user: str) -> str:
    """A file with which this user gets to the server."""
    file = folder / f"{user}.toml"
    file.write_text(f'rig = "{server.name}"\nuser = "{user}"\npassword_file = "{user}"\nport = {broker.port}\n')
    return str(file)


def circuit_of(server: Server, broker: Broker, folder: Path) -> CircuitStatus:
    """The circuit that the server says it runs."""
    rig, address = where(broker=login(server, broker, folder, "server"))
    with ThreadPoolExecutor(1) as elsewhere:  # Playwright's event loop runs in this thread
        status = elsewhere.submit(lambda: asyncio.run(read_status(address, rig))).result()
    assert status.circuit is not None
    return status.circuit


def component_of(server: Server, broker: Broker, folder: Path, name: str) -> Any:
    """A component's table in the circuit that the server says it runs."""
    components: Any = circuit_of(server, broker, folder).source["components"]
    return components[name]


def picture(user: User, name: str, wanted: bool) -> None:
    """A picture for the docs, where they are asked for."""
    if wanted:
        time.sleep(1.0)  # whatever still moves comes to rest
        user.page.screenshot(path=IMAGES / f"{name}.png", scale="css")
