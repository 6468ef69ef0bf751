"""STOP from every state of the page, by pointer and by key, and what the page shows when its link to the rig is lost.

In a real browser, on three sizes of screen, with a real server and broker, whose processes are killed or held.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from cut_off import cut_off
from panel_bench import CALM, CHROMIUM, WITHIN, chromium, held, launched, served
from playwright.sync_api import Browser, Page, expect
from service_harness import CONFIG, Server, eventually
from stop_times import RAMP, WATCH, PageClock, closing_ticks

from hilserver.client import Client, connect

pytestmark = [
    pytest.mark.realtime,
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="not installed: chromium (make test-programs)"),
]

SIZES = {"desktop": (1400, 1000), "tablet": (820, 1180), "phone": (390, 844)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hands")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    """A rig that survives processes that are held for some seconds; its circuit has a parameter."""
    circuit = (CONFIG / "circuits/lift.toml").read_text()
    circuit = circuit.replace('set_pressure = "140 bar"', 'set_pressure = "=supply"')
    (folder / "circuit.toml").write_text(f'{circuit}\n[parameters]\nsupply = "140 bar"\n')
    changes = {
        "circuit =": f'circuit = "{folder}/circuit.toml"',
        "max_age": 'max_age = "60 s"',
        "rate =": 'rate = "250 Hz"\nheartbeat_timeout = "60 s"',
        "embedded =": 'embedded = true\ntelemetry_batch = "500 ms"',
    }
    with Server(folder, changes=changes) as server:
        yield server


@pytest.fixture(scope="module")
def url(folder: Path, server: Server) -> Iterator[str]:
    with served(folder, server.port, server, "--open") as url:
        yield url


@pytest.fixture(scope="module")
def rig(server: Server) -> Iterator[Client]:
    """The rig, as another client sees it."""
    with connect(server.name, f"127.0.0.1:{server.port}", within=60.0) as client:
        yield client


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@contextmanager
def shown(browser: Browser, url: str, size: str = "desktop") -> Iterator[Page]:
    """The panel on a screen of this size; on a phone or a tablet it is touched, not clicked, and has no transitions."""
    width, height = SIZES[size]
    moves: Literal["reduce", "no-preference"] = "no-preference" if size == "desktop" else CALM
    context = browser.new_context(
        viewport={"width": width, "height": height}, has_touch=size != "desktop", reduced_motion=moves
    )
    context.set_default_timeout(WITHIN)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(url)
    expect(page.locator('[data-value="node.supply"]')).to_have_text(re.compile(r"\d bar"))
    yield page
    context.close()
    assert errors == []


Screens = Callable[[str], Page]
"""The panel on a size of screen, one for each: a browser that has loaded it need not compile its scripts again."""


@pytest.fixture(scope="module")
def screens(browser: Browser, url: str) -> Iterator[Screens]:
    with ExitStack() as stack:
        yield functools.cache(lambda size: stack.enter_context(shown(browser, url, size)))


@contextmanager
def loaded(screens: Screens, url: str, size: str = "desktop") -> Iterator[Page]:
    """The panel newly loaded. Afterwards the screen is blank: a page that is shown keeps browser and panel busy."""
    page = screens(size)
    if page.url == "about:blank":
        page.goto(url)
        expect(page.locator('[data-value="node.supply"]')).to_have_text(re.compile(r"\d bar"))
    yield page
    page.goto("about:blank")


@pytest.fixture
def page(screens: Screens, url: str, size: str) -> Iterator[Page]:
    with loaded(screens, url, size) as page:
        yield page


def run(rig: Client) -> None:
    """Let the rig run, wherever it is."""
    if rig.state.mode == "SAFE":
        rig.arm()
        rig.wait(lambda state: state.mode == "ARMED", 60.0)
    if rig.state.mode == "ARMED":
        rig.start()
    rig.wait(lambda state: state.mode == "RUNNING", 60.0)


LENGTHS = """() => {
    window.lengths = []
    let down = 0
    document.addEventListener("keydown", () => down = performance.now(), true)
    document.addEventListener("keyup", () => lengths.push(performance.now() - down), true)
}"""
"""How long each key was pressed, ms, as the page has seen it."""
SHORT = 300.0
"""ms; a busy browser can see a short press as a longer one, and stops after 400."""


def middle_of_stop(page: Page) -> tuple[float, float]:
    box = page.locator("#stop").bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def touch_stop(page: Page) -> None:
    """One press in the middle of STOP, whatever is in the way."""
    x, y = middle_of_stop(page)
    if page.evaluate("navigator.maxTouchPoints"):
        page.touchscreen.tap(x, y)
    else:
        page.mouse.click(x, y)


def nothing(page: Page) -> None:
    pass


def component(page: Page) -> None:
    page.locator('[data-part="relief"] .hit').first.click()
    expect(page.locator(".component-dialog")).to_be_visible()


def component_type(page: Page) -> None:
    """The dialog of a component, with its list of types open over it."""
    component(page)
    page.get_by_label("Type").click()
    expect(page.get_by_role("option", name="static_relief_valve", exact=True)).to_be_visible()


def units(page: Page) -> None:
    page.locator(".units").click()
    expect(page.get_by_label("pressure", exact=True)).to_be_visible()


def replay(page: Page) -> None:
    """The dialog of a replay, with a dark page behind it."""
    page.get_by_role("tab", name="Recordings").click()
    expect(page.get_by_role("button", name="Replay").first).to_be_visible()
    page.wait_for_timeout(500)  # the table draws its buttons anew while it is filled
    page.get_by_role("button", name="Replay").first.click()
    expect(page.locator(".replay")).to_be_visible()


@pytest.mark.parametrize("opens", [nothing, component, component_type, units, replay])
@pytest.mark.parametrize("size", SIZES)
def test_the_first_press_of_stop_stops_whatever_is_open(page: Page, rig: Client, opens: Callable[[Page], None]) -> None:
    run(rig)
    expect(page.locator(".mode.RUNNING")).to_be_visible()
    opens(page)
    touch_stop(page)
    rig.wait(lambda state: state.mode == "ARMED", 60.0)
    expect(page.locator("#stop small")).to_contain_text("stop: done in tick")


def test_the_valve_begins_to_close_after_the_press_in_the_tick_that_the_page_names(
    browser: Browser, url: str, server: Server, rig: Client
) -> None:
    """How long that takes is measured by tests/benchmarks/stopping.py, in the same way."""
    with shown(browser, url) as page:
        page.add_init_script(WATCH)
        page.reload()
        run(rig)
        expect(page.locator(".mode.RUNNING")).to_be_visible()
        rig.set_input("joystick", 0.2)
        rig.wait(lambda state: (state.actual["valve.main.command"] or 0.0) > 0.1, 60.0)
        clock = PageClock.of(page)
        touch_stop(page)
        expect(page.locator("#stop small")).to_contain_text("stop: done in tick")
        answer = re.search(r"tick (\d+)", page.locator("#stop small").inner_text())
        press = clock.presses(page)[-1]
    assert answer is not None
    tick = int(answer[1])
    columns = eventually(lambda: server.logged(tick + RAMP))
    around = slice(*np.searchsorted(columns["tick"], (tick - 50, tick + RAMP + 1)))
    found = closing_ticks(columns["mode"][around], columns["valve.main.command"][around])
    assert [int(columns["tick"][around][k]) for k in found] == [tick]
    assert columns["utc"][around][found[0]] > press - clock.uncertain


def test_a_press_right_after_another_click_is_one_press(screens: Screens, url: str, rig: Client) -> None:
    with loaded(screens, url) as page:
        run(rig)
        expect(page.locator(".mode.RUNNING")).to_be_visible()
        page.get_by_role("tab", name="Plots").click()
        page.wait_for_timeout(200)
        page.mouse.move(*middle_of_stop(page))
        page.mouse.down()
        page.wait_for_timeout(400)
        page.mouse.up()
        expect(page.locator("#stop small")).to_contain_text("stop: done in tick")
        page.wait_for_timeout(1000)
        assert rig.state.mode == "ARMED", "a second press disarms"


def test_plots_stay_when_their_elements_are_set_again(screens: Screens, url: str) -> None:
    """NiceGUI sets the options of an element, which are empty, again if it was late or is sent again."""
    with loaded(screens, url) as page:
        options = "[...panel.charts.keys()].map((id) => getElement(id)?.chart?.getOption())"
        drawn = f"{options}.filter((option) => option?.yAxis).length"
        page.wait_for_function(f"{drawn} > 0")
        before = page.evaluate(drawn)
        again = "[...panel.charts.keys()].map(getElement).filter((e) => e?.chart).map((e) => e.update_chart()).length"
        assert page.evaluate(again) >= before
        assert page.evaluate(drawn) >= before


def test_who_presses_twice_at_once_is_not_refused(screens: Screens, url: str, rig: Client) -> None:
    """The second press may overtake the news that the first one has stopped the rig."""
    with loaded(screens, url) as page:
        for _ in range(5):
            run(rig)
            expect(page.locator(".mode.RUNNING")).to_be_visible()
            page.mouse.dblclick(*middle_of_stop(page))
            rig.wait(lambda state: state.mode == "SAFE", 60.0)
            expect(page.locator("#stop small")).to_contain_text("disarm: done in tick")
            assert page.locator("#stop.failed").count() == 0


FIRST_IS_LATE = """() => {
    const fetch = window.fetch, hint = document.querySelector("#stop small"), late = [800];
    window.fetch = async (...request) => {
        const wait = late.pop() ?? 0, response = await fetch(...request);
        await new Promise((resolve) => setTimeout(resolve, wait));
        return response;
    };
    window.said = [];
    new MutationObserver(() => said.push(hint.textContent)).observe(hint, { childList: true, characterData: true });
}"""


def test_a_late_answer_to_the_first_press_does_not_hide_the_second(screens: Screens, url: str, rig: Client) -> None:
    """Each press is a request of its own, hence the answers may arrive in any order."""
    with loaded(screens, url) as page:
        run(rig)
        page.evaluate(FIRST_IS_LATE)
        expect(page.locator(".mode.RUNNING")).to_be_visible()
        page.mouse.dblclick(*middle_of_stop(page))
        page.wait_for_function("said.at(-1) === 'or hold Space or Esc'")
        assert [text for text in page.evaluate("said") if text != "sent …"][-2].startswith("disarm: done in tick")


def test_a_held_key_stops_and_a_short_press_does_what_it_always_does(screens: Screens, url: str, rig: Client) -> None:
    with loaded(screens, url) as page:
        for key in ("Space", "Escape"):
            field = page.locator('input[data-field="opening_pressure"]')
            for _ in range(5):
                run(rig)
                expect(page.locator(".mode.RUNNING")).to_be_visible()
                component(page)
                field.fill("150")
                page.evaluate(LENGTHS)
                page.keyboard.press(key)
                if page.evaluate("lengths.at(-1) ?? 1e9") < SHORT:
                    break
                page.reload()
            page.wait_for_timeout(800)
            assert rig.state.mode == "RUNNING"
            if key == "Space":
                expect(field).to_have_value("150 ")
            page.keyboard.down(key)
            rig.wait(lambda state: state.mode == "ARMED", 60.0)
            page.keyboard.up(key)


def test_the_key_that_stops_does_not_press_the_button_that_has_the_focus(
    screens: Screens, url: str, rig: Client
) -> None:
    """Space on *Start* in ARMED starts, when it is released; held, it disarms."""
    with loaded(screens, url) as page:
        run(rig)
        rig.stop()
        expect(page.locator(".mode.ARMED")).to_be_visible()
        page.get_by_role("button", name="Start", exact=True).focus()
        page.keyboard.down("Space")
        rig.wait(lambda state: state.mode == "SAFE", 60.0)
        page.keyboard.up("Space")
        page.wait_for_timeout(800)
        assert rig.state.mode == "SAFE"
        expect(page.locator(".refusal")).to_have_count(0)


LARGEST = """() => {
    const size = (button) => button.getBoundingClientRect().width * button.getBoundingClientRect().height
    const sizes = [...document.querySelectorAll("button")].map(size).sort((a, b) => b - a)
    return size(document.querySelector("#stop")) === sizes[0] && sizes[1] < 0.5 * sizes[0]
}"""
"""STOP is more than twice as large as any other button."""
ALL_ABOVE = """() => {
    window.scrollTo(0, document.documentElement.scrollHeight)
    const last = [...document.querySelectorAll(".q-tab-panel .card")].pop().getBoundingClientRect()
    return last.bottom <= document.querySelector("#stop").getBoundingClientRect().top
}"""
"""At the end of the page, nothing is below STOP."""


def test_stop_is_the_largest_button_of_a_phone_and_covers_nothing(screens: Screens, url: str) -> None:
    with loaded(screens, url, "phone") as page:
        page.wait_for_function(LARGEST)  # once the page is laid out
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        component(page)
        stop, close = page.locator("#stop").bounding_box(), page.get_by_role("button", name="Close").bounding_box()
        assert stop is not None
        assert close is not None
        assert close["y"] + close["height"] <= stop["y"]
        page.get_by_role("button", name="Close").click()
        page.wait_for_function(ALL_ABOVE)


def every_component(page: Page) -> Iterator[str]:
    """The dialog of each component, and of the parameters, one after the other."""
    names = page.evaluate("[...new Set([...document.querySelectorAll('[data-part]')].map((e) => e.dataset.part))]")
    assert len(names) >= 5
    for name in names:
        page.locator(f'[data-part="{name}"] .hit').first.dispatch_event("click")
        expect(page.locator(".component-dialog")).to_contain_text(name)
        yield f"component {name}"
        page.get_by_role("button", name="Close").click()
        expect(page.locator(".component-dialog")).to_have_count(0)
    page.locator(".parameters").click()
    expect(page.locator('input[data-field="supply"]')).to_have_value("140 bar")
    yield "parameters"
    page.get_by_role("button", name="Close").click()


def wrong_values(page: Page) -> Iterator[str]:
    """Long entries, an entry that is refused at once, and one that the server refuses."""
    component(page)
    field = page.locator('input[data-field="opening_pressure"]')
    field.fill("1234.5678 bar")
    expect(page.locator(".component-dialog .new.changed")).to_have_count(1)
    yield "a changed value"
    field.fill("150 furlongs")
    expect(page.locator(".component-dialog .wrong").filter(visible=True)).to_have_count(1)
    yield "a wrong value"
    page.get_by_role("button", name="Close").click()


def other_type(page: Page) -> Iterator[str]:
    """The list of types, and the dialog of another one."""
    component_type(page)
    yield "types"
    page.get_by_role("option", name="static_relief_valve", exact=True).click()
    expect(page.get_by_role("button", name="Switch to static_relief_valve")).to_be_visible()
    yield "another type"
    page.get_by_role("button", name="Close").click()


def menus_and_tabs(page: Page) -> Iterator[str]:
    """Units, each tab, the choice of channels, and a replay."""
    units(page)
    yield "units"
    page.keyboard.press("Escape")
    expect(page.get_by_label("pressure", exact=True)).to_be_hidden()
    yield "operate"
    for tab in ("Plots", "Timing", "Alarms", "Recordings", "Studies"):
        page.get_by_role("tab", name=tab).click()
        expect(page.get_by_role("tab", name=tab)).to_have_attribute("aria-selected", "true")
        yield tab
        if tab == "Plots":
            page.get_by_role("button", name="Channels").first.click()
            expect(page.locator(".channel-choice")).to_be_visible()
            yield "channels of a plot"
            page.keyboard.press("Escape")
            expect(page.locator(".channel-choice")).to_be_hidden()
    replay(page)
    yield "replay"
    page.get_by_role("button", name="Close").click()


@pytest.mark.parametrize("shows", [every_component, wrong_values, other_type, menus_and_tabs])
@pytest.mark.parametrize("size", ["phone"])
def test_nothing_is_cut_off_on_a_phone(page: Page, rig: Client, shows: Callable[[Page], Iterator[str]]) -> None:
    run(rig)
    expect(page.locator(".mode.RUNNING")).to_be_visible()
    found = [f"{what}: {wrong}" for what in shows(page) for wrong in cut_off(page)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("size", ["phone"])
def test_what_is_cut_off_is_found(page: Page) -> None:
    component(page)
    assert cut_off(page) == []
    page.add_style_tag(content=".datasheet input { width: 3ch } .component-dialog button { margin-right: -40px }")
    said = "\n".join(cut_off(page))
    assert re.search(r'input.* "150 bar" shows \d+ of \d+ pixels', said), said
    assert re.search(r"button.*Apply live.* (reaches|is cut)", said), said


def is_lost(page: Page, why: str, mode: str) -> None:
    """The page shows that its values are old, how old, and that nothing can be operated."""
    banner = page.locator("#lost-link")
    expect(banner).to_contain_text(why)
    expect(banner).to_contain_text(re.compile(r"Values are \d+(\.\d)? s old"))
    expect(banner).to_contain_text(f"the last known mode is {mode}")
    expect(page.locator("#stop")).to_be_disabled()
    assert page.evaluate("getComputedStyle(document.querySelector('.mode')).textDecorationLine") == "line-through"
    age = page.evaluate("getComputedStyle(document.querySelector('.heading'), '::after').content")
    assert re.search(r"\d s old", age)
    assert float(page.evaluate("getComputedStyle(document.querySelector('.number')).opacity")) < 0.5
    assert page.evaluate("[...document.body.children].every((part) => part.inert || part.matches('#stop, #lost-link'))")


def is_back(page: Page) -> None:
    expect(page.locator("#lost-link")).to_be_hidden()
    expect(page.locator("#stop")).to_be_enabled()
    page.wait_for_function("[...document.body.children].every((part) => !part.inert)")


def test_a_server_or_a_broker_that_stands_still_cannot_be_overlooked(
    screens: Screens, url: str, server: Server, rig: Client
) -> None:
    run(rig)
    with loaded(screens, url) as page:
        expect(page.locator(".mode.RUNNING")).to_be_visible()
        for name in ("supervisor", "loop", "broker"):
            with held(server.pids[name]):
                is_lost(page, "The server does not answer", "RUNNING")
            is_back(page)
    rig.wait(lambda state: state.mode == "RUNNING", 60.0)


def test_a_panel_that_stands_still_or_is_killed_cannot_be_overlooked(
    browser: Browser, folder: Path, server: Server, rig: Client
) -> None:
    run(rig)
    process, port = launched(folder, server.port, server, "--open")
    again = None
    try:
        with shown(browser, f"http://127.0.0.1:{port}") as page:
            expect(page.locator(".mode.RUNNING")).to_be_visible()
            with held(process.pid):
                is_lost(page, "No connection to the panel", "RUNNING")
                touch_stop(page)
                expect(page.locator("#stop small")).to_contain_text("use the emergency stop")
            # The request was waiting: late, but safe. It disarms if the panel's state is still from before.
            rig.wait(lambda state: state.mode in ("ARMED", "SAFE"), 60.0)
            is_back(page)
            expect(page.locator(".mode.ARMED, .mode.SAFE")).to_be_visible()  # no longer what it showed before
            run(rig)
            expect(page.locator(".mode.RUNNING")).to_be_visible()
            page.wait_for_timeout(1000)  # until it knows what it will be the last to know
            process.kill()
            process.wait()
            is_lost(page, "No connection to the panel", "RUNNING")
            touch_stop(page)
            expect(page.locator("#stop small")).to_contain_text("not sent: use the emergency stop")
            again, _ = launched(folder, server.port, server, "--open", port=port)
            is_back(page)  # the page has loaded itself again
            touch_stop(page)
            rig.wait(lambda state: state.mode in ("ARMED", "SAFE"), 60.0)
    finally:
        for each in (process, again):
            if each is not None:
                each.kill()
                each.wait()
