"""A hold-to-run input returns to rest when the browser of the person who holds it is killed or closed."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from panel_bench import CHROMIUM, WITHIN, chromium, served
from playwright.sync_api import Browser, Page, expect
from service_harness import Server

from hilserver.client import Client, connect

pytestmark = [
    pytest.mark.realtime,
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="not installed: chromium (make test-programs)"),
]

STATED = 12.0
"""hold_to_run of the rig, s: so long that a busy machine is not taken for a lost browser, and that it may be late by
seconds: the panel gives a browser up after 0.6 of it.
"""

SLOWLY = 0.06
"""Where the joystick is held. The load does not reach its end stop: there it stands still while the virtual valve
passes oil, and a computer that stalls may then let its sensor look stuck.
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Starts the browsers that are ended here."""
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    changes = {
        "max_age": 'max_age = "60 s"',
        "rate =": 'rate = "250 Hz"\nheartbeat_timeout = "60 s"',
        "embedded =": 'embedded = true\ntelemetry_batch = "500 ms"',
        "[inputs.joystick]": f'[inputs.joystick]\nhold_to_run = "{STATED:g} s"',
    }
    with Server(tmp_path_factory.mktemp("hold"), changes=changes) as server:
        yield server


def killed(page: Page, tag: str) -> None:
    """As by a crash, or by somebody who pulls the plug: its main process gets SIGKILL, and the script it came from."""
    main = [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and tag in (line := command_line(entry)) and "--type=" not in line
    ]
    assert main
    for process in main:
        os.kill(process, signal.SIGKILL)


def closed(page: Page, tag: str) -> None:
    page.close()


def command_line(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().decode(errors="replace")
    except OSError:  # it has ended
        return ""


@pytest.mark.parametrize("end", [closed, killed])
def test_the_input_is_at_rest_within_the_stated_time(
    tmp_path: Path, server: Server, browser: Browser, end: Callable[[Page, str], None]
) -> None:
    tag = f"--test-of-hold-to-run={uuid4().hex}"
    options = ["--no-sandbox", "--disable-gpu", tag]
    with (
        served(tmp_path, server.port, server, "--open") as url,
        connect(server.name, f"127.0.0.1:{server.port}", within=60.0) as rig,
    ):
        mine = browser.browser_type.launch(executable_path=CHROMIUM, args=options)
        page = mine.new_page(viewport={"width": 1400, "height": 1000})
        page.set_default_timeout(WITHIN)
        page.goto(url)
        expect(page.locator('[data-value="node.supply"]')).to_have_text(re.compile(r"\d bar"), timeout=WITHIN)
        run(rig)
        assert any(is_kept(page, rig) for _ in range(3)), "it is held"
        end(page, tag)
        ended = time.monotonic()
        rig.wait(lambda state: state.target["input.joystick"] == 0.0, 60.0)
        print(f"{end.__name__}: at rest after {time.monotonic() - ended:.1f} s, stated {STATED:g} s")
        assert time.monotonic() - ended < STATED
        assert (rig.state.mode, rig.state.fault) == ("RUNNING", None), "the rig runs on, with its input at rest"
        mine.close()


def run(rig: Client) -> None:
    """Let the rig run, wherever it is; also where the test before this one left it tripped."""
    if (found := rig.wait(lambda state: state.mode in ("SAFE", "ARMED", "RUNNING", "FAULT"), 60.0)).mode == "FAULT":
        print(f"it was in FAULT: {found.fault}")
        rig.reset()
    if rig.wait(lambda state: state.mode in ("SAFE", "ARMED", "RUNNING"), 60.0).mode == "SAFE":
        rig.arm()
    if rig.wait(lambda state: state.mode in ("ARMED", "RUNNING"), 60.0).mode == "ARMED":
        rig.start()
    rig.wait(lambda state: state.mode == "RUNNING", 60.0)


def is_kept(page: Page, rig: Client) -> bool:
    """Whether the joystick stays where it is held; not if a busy machine stands still for so long that it is lost."""
    page.mouse.up()
    hold(page, SLOWLY)
    rig.wait(lambda state: state.target["input.joystick"] > 0.5 * SLOWLY, 60.0)
    page.wait_for_timeout(1000 * 1.2 * STATED)
    return rig.state.target["input.joystick"] > 0.5 * SLOWLY


def hold(page: Page, value: float) -> None:
    """Take the joystick's slider and move it there, -1 ... 1, without letting it go."""
    box = page.get_by_role("slider", name="joystick").bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.5 * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + (0.5 + value / 2) * box["width"], y, steps=5)
