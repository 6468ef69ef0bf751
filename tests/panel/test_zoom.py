"""Zoom and movement of the schematic in a real browser, by mouse, fingers and keys; what a click does stays.

A page with the panel's script and style sheet and nothing else; with the panel around it: test_panel.py.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from panel_bench import CHROMIUM, chromium
from PIL import Image
from playwright.sync_api import Browser, Page

from hilserver.drawing.schematic import STYLE, schematic
from hilserver.toml import read_toml

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="not installed: chromium (make test-programs)"),
]

ROOT = Path(__file__).parents[2]
PANEL, WEB = ROOT / "hilserver/panel", ROOT / "hilserver/web"
SIZES = {"desktop": (1400, 1000), "tablet": (820, 1180), "phone": (390, 844)}
RELIEF = '[data-part="relief"] .hit'
SCRIPT = """
window.opened = [];
document.querySelector(".schematic-view").addEventListener("click", (event) => {
  const part = event.target.closest("[data-part]");
  if (part) opened.push(part.dataset.part);
});
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """The schematic of the lift below a heading, on a screen of some size."""
    size = getattr(request, "param", "desktop")
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, has_touch=size != "desktop")
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    style = STYLE + (WEB / "circuit.css").read_text() + (PANEL / "panel.css").read_text()
    picture = schematic(read_toml(ROOT / "config/circuits/lift.toml"))
    page.set_content(
        f"<style>{style}</style><h3>lift</h3><div class='schematic-view' tabindex=0>{picture}</div>"
        f"<div style='height: 2000px'></div><script>{(WEB / 'zoom.js').read_text()}{SCRIPT}</script>"
    )
    yield page
    context.close()
    assert errors == []


def middle(page: Page, what: str) -> tuple[float, float]:
    """The middle of an element on the screen."""
    box = page.locator(what).first.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def scale(page: Page) -> float:
    """Pixels per unit of the drawing."""
    return float(page.evaluate("document.querySelector('.schematic').getScreenCTM().a"))


RESTS = """async () => {
    const place = () => document.querySelector(".schematic-view").scrollLeft;
    const before = place();
    await new Promise((done) => setTimeout(done, 300));
    return place() === before;
}"""
"""The drawing does not move any more."""


class Fingers:
    """Fingers on the screen, as the browser gets them from a touch screen."""

    def __init__(self, page: Page) -> None:
        self._session = page.context.new_cdp_session(page)

    def __call__(self, kind: str, *places: tuple[float, float]) -> None:
        points = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(places)]
        self._session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})


def on_the_drawing(page: Page, x: float, y: float) -> tuple[float, float]:
    """What is at a point of the screen, in the units of the drawing."""
    place = page.evaluate(
        """([x, y]) => {
            const matrix = document.querySelector(".schematic").getScreenCTM().inverse();
            const point = new DOMPoint(x, y).matrixTransform(matrix);
            return [point.x, point.y];
        }""",
        [x, y],
    )
    return place[0], place[1]


def wheel(page: Page, steps: int) -> None:
    """Turn the wheel, towards the drawing, and wait until the page has done it."""
    wanted = scale(page) * 1.25**steps
    for _ in range(steps):
        page.mouse.wheel(0, -100)
    done = "(wanted) => document.querySelector('.schematic').getScreenCTM().a > 0.999 * wanted"
    page.wait_for_function(done, arg=wanted)
    assert scale(page) == pytest.approx(wanted, rel=1e-3)


def test_the_wheel_zooms_about_the_pointer_and_a_click_still_opens_what_is_there(page: Page) -> None:
    page.mouse.move(*middle(page, RELIEF))
    wheel(page, 3)  # larger than its frame from now on: before, it stays in its middle
    place = middle(page, RELIEF)
    page.mouse.move(*place)
    wheel(page, 2)
    assert middle(page, RELIEF) == pytest.approx(place, abs=1.5)
    page.mouse.click(*place)
    assert page.evaluate("opened") == ["relief"]


def shade(page: Page) -> tuple[int, ...]:
    """The prevailing brightness of the left and of the right edge of the drawing's frame."""
    with Image.open(io.BytesIO(page.locator(".schematic-view").screenshot())) as shot:
        grey = shot.convert("L")
        edges = ((x, 0, x + 1, grey.height) for x in (0, grey.width - 1))
        return tuple(int(np.median(np.asarray(grey.crop(edge)))) for edge in edges)


@pytest.mark.parametrize("page", ["phone"], indirect=True)
def test_a_shadow_is_where_the_drawing_goes_on_beyond_its_frame(page: Page) -> None:
    left, right = shade(page)
    assert (left, right < 220) == (255, True)
    page.evaluate("document.querySelector('.schematic-view').scrollLeft = 1e6")
    left, right = shade(page)
    assert (left < 220, right) == (True, 255)


def test_the_page_moves_when_the_drawing_is_whole(page: Page) -> None:
    page.mouse.move(*middle(page, ".schematic"))
    before = scale(page)
    page.mouse.wheel(0, 300)
    page.wait_for_function("window.scrollY > 0")
    assert scale(page) == before


def test_a_drag_moves_the_drawing_and_opens_nothing(page: Page) -> None:
    page.mouse.move(*middle(page, RELIEF))
    wheel(page, 4)
    x, y = middle(page, RELIEF)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 30, y + 20, steps=4)
    page.mouse.up()
    assert middle(page, RELIEF) == pytest.approx((x + 30, y + 20), abs=1.5)
    assert page.evaluate("opened") == []
    page.mouse.click(x + 30, y + 20)
    assert page.evaluate("opened") == ["relief"]


def test_keys_buttons_and_a_double_click(page: Page) -> None:
    whole = scale(page)
    page.locator(".schematic-view").focus()
    page.keyboard.press("+")
    page.keyboard.press("+")
    assert scale(page) == pytest.approx(whole * 1.25**2, rel=1e-3)
    page.keyboard.press("-")
    assert scale(page) == pytest.approx(whole * 1.25, rel=1e-3)
    page.keyboard.press("0")
    assert scale(page) == whole
    for button, factor in (("larger", 1.25), ("larger", 1.25**2), ("smaller", 1.25), ("fit", 1.0)):
        page.evaluate(f"zoom.{button}()")
        assert scale(page) == pytest.approx(whole * factor, rel=1e-3)
    page.keyboard.press("+")
    ground = page.locator(".schematic-view").bounding_box()
    assert ground is not None
    page.mouse.dblclick(ground["x"] + 8, ground["y"] + 8)
    assert scale(page) == whole
    assert page.evaluate("opened") == []


def test_a_new_drawing_keeps_the_zoom_and_its_texts_stay_live(page: Page) -> None:
    """After a switch of the circuit the panel replaces the drawing within its frame."""
    page.evaluate("zoom.larger()")
    zoomed = scale(page)
    page.evaluate("const view = document.querySelector('.schematic-view'); view.innerHTML = view.innerHTML")
    assert scale(page) == pytest.approx(zoomed)
    page.evaluate("document.querySelector('[data-value=\"node.supply\"]').textContent = 'supply  1.0 bar'")
    assert scale(page) == pytest.approx(zoomed)


@pytest.mark.parametrize("page", ["tablet", "phone"], indirect=True)
def test_two_fingers_zoom_and_move(page: Page) -> None:
    fingers, x, y = Fingers(page), 190.0, 300.0
    before, there = scale(page), on_the_drawing(page, x, y)
    fingers("touchStart", (x - 40, y), (x + 40, y))
    for step in range(1, 6):
        fingers("touchMove", (x - 40 - 8 * step, y + 2 * step), (x + 40 + 8 * step, y + 2 * step))
    fingers("touchEnd")
    assert scale(page) == pytest.approx(2 * before, rel=0.02)
    assert on_the_drawing(page, x, y + 10) == pytest.approx(there, abs=3.0), "it went with the fingers"
    assert page.evaluate("window.visualViewport.scale") == 1.0, "the page itself keeps its size"
    assert page.evaluate("opened") == []


@pytest.mark.parametrize("page", ["phone"], indirect=True)
def test_on_a_phone_one_finger_moves_and_a_tap_opens(page: Page) -> None:
    """The drawing is larger than the screen: readable, and reached by a finger; the page is not moved sideways."""
    assert 11.0 * scale(page) >= 9.0
    fingers = Fingers(page)
    assert page.evaluate("document.querySelector('.schematic-view').scrollWidth") > 390 + 100
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    x, y = 300.0, middle(page, ".schematic-view")[1]
    fingers("touchStart", (x, y))
    for step in range(1, 11):
        fingers("touchMove", (x - 20 * step, y))
    page.wait_for_function("document.querySelector('.schematic-view').scrollLeft > 50")
    page.wait_for_timeout(500)  # the finger rests before it leaves: otherwise the drawing runs on, and a tap stops it
    fingers("touchMove", (x - 201, y))
    fingers("touchEnd")
    page.wait_for_function(RESTS)
    assert page.evaluate("opened") == []
    page.evaluate(
        "document.querySelector('[data-part=\"relief\"]').scrollIntoView({block: 'center', inline: 'center'})"
    )
    page.touchscreen.tap(*middle(page, RELIEF))
    page.wait_for_function("opened.length === 1")
    assert page.evaluate("opened") == ["relief"]
