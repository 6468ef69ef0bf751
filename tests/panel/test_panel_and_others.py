"""The panel beside other clients: what they change meanwhile, and the page as the link to the operator."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from panel_bench import CALM, CHROMIUM, STANDING, WITHIN, becomes_active, chromium, printed_address, served
from playwright.sync_api import Browser, Page, Route, expect
from service_harness import Server

from hilserver.client import Client, CommandRefused, connect
from hilserver.protocol.commands import Reset, Switch, Trip

pytestmark = [
    pytest.mark.realtime,
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="not installed: chromium (make test-programs)"),
]

LOST_AFTER = 20.0
"""lost_after of the rig, s: a page on a busy machine may take half of it to show an update, and still is the link."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("others")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def url(folder: Path, attended: Server) -> Iterator[str]:
    with served(folder, attended.port, attended) as url:
        yield url


@pytest.fixture
def relief(folder: Path, url: str, browser: Browser) -> Iterator[Page]:
    """The page with the dialog of the relief valve."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000}, reduced_motion=CALM)
    context.set_default_timeout(WITHIN)
    page = context.new_page()
    page.goto(printed_address(folder, url))
    page.locator('[data-part="relief"] .hit').first.click(timeout=WITHIN)
    expect(page.locator(".apply")).to_be_enabled()
    yield page
    context.close()


@pytest.fixture(scope="module")
def other(attended: Server) -> Iterator[Client]:
    with connect(attended.name, f"127.0.0.1:{attended.port}", within=60.0) as client:
        yield client


def opening_pressure(client: Client) -> str:
    components: Any = client.circuit.source["components"]
    return str(components["relief"]["opening_pressure"])


def opens_at(client: Client, value: str, state: object) -> bool:
    return opening_pressure(client) == value


def test_a_change_is_taken_back(relief: Page, other: Client) -> None:
    """The server publishes a circuit some time after the answer, or before it: either is this page's change."""
    before = opening_pressure(other)
    now, undo = relief.locator(".datasheet .now").first, relief.get_by_role("button", name="Undo")
    expect(now).to_have_text(before)
    for value in ("111 bar", "112 bar"):
        relief.locator('input[data-field="opening_pressure"]').fill(value)
        becomes_active(relief, relief.locator(".apply"))
        expect(now).to_have_text(value)
        other.wait(partial(opens_at, other, value), 60.0)
        expect(relief.locator(".changed-by-others")).to_be_hidden()
        expect(undo).to_be_enabled()
    undo.click()
    expect(relief.locator(".applied")).to_contain_text("Taken back.")
    expect(now).to_have_text("111 bar")
    other.wait(lambda _: opening_pressure(other) == "111 bar", 60.0)
    expect(undo).to_be_hidden()
    other.switch("relief", {"opening_pressure": before})


def test_what_somebody_else_has_changed_meanwhile_is_shown(relief: Page, other: Client) -> None:
    """The entry is kept; a change made for an older version, or out of range, is refused by the server."""
    version, before = other.circuit.version, opening_pressure(other)
    field = relief.locator('input[data-field="opening_pressure"]')
    field.fill("140 bar")
    other.switch("relief", {"opening_pressure": "130 bar"})
    notice = relief.locator(".changed-by-others")
    expect(notice).to_contain_text(f"Somebody else changed this meanwhile:\nopening pressure *: {before} → 130 bar")
    expect(relief.locator(".datasheet .now").first).to_have_text("130 bar")
    expect(field).to_have_value("140 bar")
    becomes_active(relief, relief.locator(".apply"))
    other.wait(lambda _: opening_pressure(other) == "140 bar", 60.0)
    late = Switch(component="relief", set={"opening_pressure": "99 bar"}, version=version)
    with pytest.raises(CommandRefused, match="somebody else has changed the circuit meanwhile"):
        other.do(late)
    with pytest.raises(CommandRefused, match="out of range: at most 4000 bar"):
        other.switch("relief", {"opening_pressure": "100000 bar"})
    assert opening_pressure(other) == "140 bar"


@pytest.fixture(scope="module")
def attended(folder: Path) -> Iterator[Server]:
    """A rig without accounts that requires its operator, with a hold-to-run input."""
    changes = {
        **STANDING,
        "max_missed": "max_missed = 5000",
        "max_age": 'max_age = "5 s"',
        "rate =": 'rate = "250 Hz"\nheartbeat_timeout = "5 s"',
        "embedded =": 'embedded = true\ntelemetry_batch = "500 ms"',  # a circuit is published after its answer
        "lost_after =": f'lost_after = "{LOST_AFTER:g} s"',
        "require =": 'require = "client"',
        "[inputs.joystick]": f'[inputs.joystick]\nhold_to_run = "{LOST_AFTER:g} s"',
    }
    with Server(folder, changes=changes) as server:
        yield server


def test_the_wall_view_shows_the_rig_and_has_no_command_but_stop(
    folder: Path, url: str, browser: Browser, other: Client
) -> None:
    """Its address chooses channels; without any it shows all that are measured."""
    context = browser.new_context(viewport={"width": 1920, "height": 1080}, reduced_motion=CALM)
    context.set_default_timeout(WITHIN)
    page, admitted = context.new_page(), printed_address(folder, url)
    page.goto(admitted.replace("/?", "/wall?channel=p_A&seconds=10&"))
    assert page.url.endswith("/wall?channel=p_A&seconds=10"), "the token is not left in the address"
    mode = page.locator(".wall .mode")
    expect(mode).to_have_text("SAFE", timeout=WITHIN)
    expect(page.locator(".tile")).to_have_count(1)
    expect(page.locator('[data-value="tile.p_A"]')).to_have_text(re.compile(r"^-?\d+(\.\d+)? bar$"))
    expect(page.locator(".chart canvas")).to_have_count(1)
    for name in ("Arm", "Start", "Trip", "Reset"):
        expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)
    other.do(Trip())
    expect(mode).to_have_text("FAULT")
    expect(page.locator(".note.fault")).to_contain_text("FAULT")
    other.do(Reset())
    expect(mode).to_have_text("SAFE")
    page.goto(f"{url}/wall?seconds={'9' * 5000}")  # what is no time counts as none
    expect(page.locator(".tile").nth(2)).to_be_visible()
    expect(page.locator(".chart canvas").nth(1)).to_be_visible()
    context.close()


def test_a_page_is_the_operator_s_link_as_long_as_it_is_shown(folder: Path, attended: Server, browser: Browser) -> None:
    with served(folder, attended.port, attended) as url, connect(attended.name, f"127.0.0.1:{attended.port}") as client:
        context = browser.new_context(viewport={"width": 1400, "height": 1000}, reduced_motion=CALM)
        context.set_default_timeout(WITHIN)
        page = context.new_page()
        page.goto(printed_address(folder, url))
        page.get_by_role("button", name="Arm", exact=True).click(timeout=WITHIN)
        expect(page.locator(".mode.ARMED")).to_be_visible()
        page.get_by_role("button", name="Start", exact=True).click(timeout=WITHIN)
        expect(page.locator(".mode.RUNNING")).to_be_visible()
        assert client.wait(lambda state: state.operator is not None, 60.0).operator.startswith("panel on ")  # type: ignore[union-attr]

        slider = page.get_by_role("slider", name="joystick")
        box = slider.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + box["height"] / 2)
        page.mouse.down()
        page.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + box["height"] / 2, steps=5)
        client.wait(lambda state: state.target["input.joystick"] > 0.4, 60.0)
        time.sleep(LOST_AFTER + 1.0)
        assert client.state.target["input.joystick"] > 0.4, "it is held"
        page.mouse.up()
        client.wait(lambda state: state.target["input.joystick"] == 0.0, 60.0)
        assert client.state.mode == "RUNNING", "the page has been shown for longer than lost_after"

        page.close()
        state = client.wait(lambda state: state.mode == "SAFE", within=LOST_AFTER + 60.0)
        assert [text for text in state.warnings if text.startswith("operator lost: no heartbeat of")], state.warnings
        context.close()


HELD_UP = """
const waiting = setInterval(() => {
  const load = window.socket?.listeners("load_js_components")[0];
  if (!load) return;
  clearInterval(waiting);
  load({ components: [{ key: "held_up.js", tag: "held-up" }] });
  const update = panel.update;
  window.said = {};
  panel.update = (message) => {
    Object.assign(said, message.texts);
    update(message);
  };
}, 1);
"""
"""The browser must fetch something before it continues with the elements of the page. Values are noted in ``said``."""
NO_MORE_VALUES = "void (panel.update = (message) => link.hear(message.link))"


@pytest.mark.parametrize(("path", "values"), [("/?", ["node.supply", "value.p_A"]), ("/wall?", ["tile.p_A"])])
def test_values_that_come_before_their_elements_are_shown(
    folder: Path, url: str, browser: Browser, path: str, values: list[str]
) -> None:
    """Also those that never change, as the pressure of a good supply."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000}, reduced_motion=CALM)
    context.set_default_timeout(WITHIN)
    page, held = context.new_page(), list[Route]()
    page.add_init_script(HELD_UP)
    page.route("**/held_up.js", lambda route: held.append(route))
    page.goto(printed_address(folder, url).replace("/?", path))
    for value in values:
        page.wait_for_function(f"window.said && / bar/.test(said['{value}'])")
        expect(page.locator(f'[data-value="{value}"]')).to_have_count(0)
    page.evaluate(NO_MORE_VALUES)
    held[0].fulfill(body="export default {}", content_type="text/javascript")
    for value in values:
        expect(page.locator(f'[data-value="{value}"]').first).to_have_text(re.compile(r"\d bar"))
    context.close()
