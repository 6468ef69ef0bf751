"""A hold-to-run input keeps its value while its slider is held, and returns to rest when it is not held any more."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
from panel_bench import CALM, CHROMIUM, OPTIONS, STANDING, WITHIN, chromium, launched, served
from playwright.sync_api import Browser, Locator, Page, expect
from service_harness import Server

from hilserver.client import Client, connect
from hilserver.panel.inputs import SEEN

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


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Starts the browsers that are ended here."""
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    changes = {
        "max_age": 'max_age = "60 s"',
        **STANDING,
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


@pytest.fixture
def rig(server: Server) -> Iterator[Client]:
    with connect(server.name, f"127.0.0.1:{server.port}", within=60.0) as rig:
        run(rig)
        yield rig


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("panel"), server.port, server, "--open") as url:
        yield url


@pytest.fixture(scope="module")
def screen(browser: Browser) -> Iterator[Page]:
    """One that is touched, too."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000}, has_touch=True, reduced_motion=CALM)
    context.set_default_timeout(WITHIN)
    yield context.new_page()
    context.close()


@pytest.fixture
def page(screen: Page, url: str, rig: Client) -> Iterator[Page]:
    """The panel newly loaded, with nothing pressed; afterwards the screen is blank, which is a lost browser, too."""
    yield opened(screen, url)
    screen.goto("about:blank")
    screen.mouse.up()
    screen.keyboard.up("ArrowRight")
    rig.wait(lambda state: state.target["input.joystick"] == 0.0, 60.0)


def opened(page: Page, url: str) -> Page:
    page.goto(url)
    expect(page.locator('[data-value="node.supply"]')).to_have_text(re.compile(r"\d bar"), timeout=WITHIN)
    expect(slider(page)).not_to_have_attribute("aria-disabled", "true")
    return page


@pytest.mark.parametrize("end", [closed, killed])
def test_the_input_is_at_rest_within_the_stated_time(
    url: str, rig: Client, browser: Browser, end: Callable[[Page, str], None]
) -> None:
    tag = f"--test-of-hold-to-run={uuid4().hex}"
    mine = browser.browser_type.launch(executable_path=CHROMIUM, args=[*OPTIONS, tag])
    page = mine.new_page(viewport={"width": 1400, "height": 1000}, reduced_motion=CALM)
    page.set_default_timeout(WITHIN)
    opened(page, url)
    assert any(is_kept(page, rig) for _ in range(3)), "it is held"
    end(page, tag)
    ended = time.monotonic()
    rig.wait(lambda state: state.target["input.joystick"] == 0.0, 60.0)
    print(f"{end.__name__}: at rest after {time.monotonic() - ended:.1f} s, stated {STATED:g} s")
    assert time.monotonic() - ended < STATED
    assert (rig.state.mode, rig.state.fault) == ("RUNNING", None), "the rig runs on, with its input at rest"
    mine.close()


def test_a_press_without_a_movement_holds(page: Page, rig: Client) -> None:
    """The slider jumps to where it is pressed, and moves no further."""
    assert any(is_kept(page, rig, steps=0) for _ in range(3)), "it is held"
    page.mouse.up()
    rig.wait(lambda state: state.target["input.joystick"] == 0.0, 60.0)  # else it would be renewed for ever


def test_the_other_button_of_the_mouse_does_not_hold(page: Page, rig: Client) -> None:
    """A menu of the browser may swallow its release."""
    page.mouse.move(*position(page, 0.5))
    page.mouse.down(button="right")
    page.wait_for_timeout(1500)
    assert rig.state.target["input.joystick"] == 0.0
    expect(slider(page)).to_have_attribute("aria-valuenow", "0")
    page.mouse.up(button="right")


def test_a_slider_that_is_hidden_meanwhile_is_released(page: Page, rig: Client) -> None:
    """Held with the mouse, and the tab changed with a finger."""
    hold(page, 0.5)
    rig.wait(lambda state: state.target["input.joystick"] > 0.4, 60.0)
    page.evaluate("document.querySelectorAll('.q-tab')[1].click()")
    expect(slider(page)).to_be_hidden()
    page.mouse.up()
    rig.wait(lambda state: state.target["input.joystick"] == 0.0, 60.0)  # else it would be renewed for ever


def test_a_finger_holds(page: Page, rig: Client) -> None:
    touch, place = page.context.new_cdp_session(page), position(page, 0.0)
    touch.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": place[0], "y": place[1]}]})
    for step in range(1, 6):
        at = [{"x": place[0] + 10 * step, "y": place[1]}]
        touch.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": at})
    rig.wait(lambda state: state.target["input.joystick"] > 0.1, 60.0)
    page.wait_for_timeout(1000 * 1.2 * STATED)
    assert rig.state.target["input.joystick"] > 0.1
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    rig.wait(lambda state: state.target["input.joystick"] == 0.0, 60.0)


def test_a_key_holds(page: Page, rig: Client) -> None:
    press_right(page, 20)
    rig.wait(lambda state: state.target["input.joystick"] == pytest.approx(0.2), 60.0)
    page.wait_for_timeout(1000 * 1.2 * STATED)
    assert rig.state.target["input.joystick"] == pytest.approx(0.2)
    page.keyboard.up("ArrowRight")
    rig.wait(lambda state: state.target["input.joystick"] == 0.0, 60.0)


def test_no_key_is_lost_if_the_panel_is_late(tmp_path: Path, server: Server, rig: Client, browser: Browser) -> None:
    """The slider moves in the browser, and what the panel says later does not move it back."""
    process, port = launched(tmp_path, server.port, server, "--open")
    try:
        page = opened(browser.new_page(reduced_motion=CALM), f"http://127.0.0.1:{port}")
        for _ in range(5):
            press_right(page, 5)
            rig.wait(lambda state: state.target["input.joystick"] > 0.0, 60.0)
            process.send_signal(signal.SIGSTOP)
            stopped = time.monotonic()
            press_right(page, 15)
            expect(slider(page)).to_have_attribute("aria-valuenow", "0.2")
            process.send_signal(signal.SIGCONT)
            if time.monotonic() - stopped < SEEN * STATED / 2:
                break
            page.keyboard.up("ArrowRight")  # on a busy machine it took so long that the panel rightly gives up
            rig.wait(lambda state: state.target["input.joystick"] == 0.0, 60.0)
            expect(slider(page)).to_have_attribute("aria-valuenow", "0")
        press_right(page, 10)
        expect(slider(page)).to_have_attribute("aria-valuenow", "0.3")
        rig.wait(lambda state: state.target["input.joystick"] == pytest.approx(0.3), 60.0)
        page.keyboard.up("ArrowRight")
        rig.wait(lambda state: state.target["input.joystick"] == 0.0, 60.0)
        page.close()
    finally:
        process.kill()
        process.wait()


def test_a_slider_that_was_released_while_the_rig_stood_moves_nothing(page: Page, rig: Client) -> None:
    """Its release is not reported, since a slider of a rig that stands is disabled."""
    hold(page, 0.5)
    rig.wait(lambda state: state.target["input.joystick"] > 0.4, 60.0)
    rig.stop()
    rig.wait(lambda state: state.mode == "ARMED", 60.0)
    expect(slider(page)).to_have_attribute("aria-disabled", "true")
    page.mouse.up()
    page.wait_for_timeout(1500)
    expect(slider(page)).to_have_attribute("aria-valuenow", "0")
    run(rig)
    joystick = rig.record(STATED / 2, "input.joystick")["input.joystick"]
    seen = joystick[np.isfinite(joystick)]  # a missed tick on the grid of the telemetry has no value
    assert len(seen) > 0
    assert set(seen) == {0.0}


def test_what_the_server_reports_late_moves_no_slider_that_is_held(page: Page, rig: Client, server: Server) -> None:
    hold(page, 0.2)
    rig.wait(lambda state: state.target["input.joystick"] > 0.1, 60.0)
    server.kill("supervisor", number=signal.SIGSTOP)
    x, y = position(page, 0.8)
    page.mouse.move(x, y, steps=5)
    page.wait_for_timeout(3000)
    server.kill("supervisor", number=signal.SIGCONT)
    rig.wait(lambda state: state.target["input.joystick"] > 0.7, 60.0)
    page.mouse.up()
    rig.wait(lambda state: state.target["input.joystick"] == 0.0, 60.0)


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


def slider(page: Page) -> Locator:
    return page.get_by_role("slider", name="joystick")


def is_kept(page: Page, rig: Client, steps: int = 5) -> bool:
    """Whether the joystick stays where it is held; not if a busy machine stands still for so long that it is lost."""
    page.mouse.up()
    rig.wait(lambda state: state.target["input.joystick"] == 0.0, 60.0)
    hold(page, 0.5, steps)
    rig.wait(lambda state: state.target["input.joystick"] > 0.4, 60.0)
    page.wait_for_timeout(1000 * 1.2 * STATED)
    return rig.state.target["input.joystick"] > 0.4


def press_right(page: Page, times: int) -> None:
    """The key is held down, and the keyboard repeats it."""
    slider(page).locator(".q-slider__track-container").focus()
    for _ in range(times):
        page.keyboard.down("ArrowRight")


def hold(page: Page, value: float, steps: int = 5) -> None:
    """Take the joystick's slider and move it there, -1 ... 1, without letting it go."""
    page.mouse.move(*position(page, 0.0 if steps else value))
    page.mouse.down()
    if steps:
        page.mouse.move(*position(page, value), steps=steps)


def position(page: Page, value: float) -> tuple[float, float]:
    """Where the slider is at this value, in pixels."""
    box = slider(page).bounding_box()
    assert box is not None
    return box["x"] + (0.5 + value / 2) * box["width"], box["y"] + box["height"] / 2
