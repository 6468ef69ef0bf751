"""Makes the film of the panel, docs/images/film.webp: a minute of a simulated rig, as somebody operates it.

    python docs/film.py

A server with the demo's rig, the panel, and a real Chromium, whose screencast is recorded; everything that is seen has
happened. Each scene fails where the page does not show what its caption says.
"""

from __future__ import annotations

import base64
import io
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import CDPSession, Page, expect

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/support"))

from panel_bench import chromium, served
from service_harness import Server

ROOT = Path(__file__).parents[1]
FILM = ROOT / "docs/images/film.webp"
SCREEN, WIDTH = (1200, 860), 900
"""Size of the page, and width of the film, pixels."""
PACE = 3.0
"""Pictures per second."""
QUALITY = 35
CAPTION = """(text) => {
    let caption = document.getElementById("caption")
    if (!caption) {
        caption = document.createElement("div")
        caption.id = "caption"
        caption.style = "position:fixed;left:0;right:0;bottom:0;z-index:20000;padding:14px 20px;background:#0f172a;" +
            "color:#fff;font-size:1.25rem;text-align:center;pointer-events:none"
        document.documentElement.append(caption)
    }
    caption.textContent = text
}"""


class Camera:
    """Keeps the pictures that the browser sends when the page changes, each with its time."""

    def __init__(self, page: Page) -> None:
        self.pictures: list[tuple[float, bytes]] = []
        self._client: CDPSession = page.context.new_cdp_session(page)
        self._client.on("Page.screencastFrame", self._take)
        size = {"maxWidth": WIDTH, "maxHeight": WIDTH}
        self._client.send("Page.startScreencast", {"format": "jpeg", "quality": 90, "everyNthFrame": 2, **size})

    def _take(self, frame: dict[str, Any]) -> None:
        self.pictures.append((float(frame["metadata"]["timestamp"]), base64.b64decode(frame["data"])))
        self._client.send("Page.screencastFrameAck", {"sessionId": frame["sessionId"]})

    def end(self) -> float:
        """No more pictures; returns the time of the end, s since 1970."""
        self._client.send("Page.stopScreencast")
        return time.time()


def scenes(page: Page) -> list[tuple[str, Callable[[], None], float]]:
    """Caption, what is done, and for how long it is shown, s."""

    def press(name: str, mode: str) -> Callable[[], None]:
        def act() -> None:
            page.get_by_role("button", name=name, exact=True).click()
            expect(page.locator(f".mode.{mode}")).to_be_visible()

        return act

    def starts_cycle() -> None:
        page.get_by_role("button", name="Start work cycle").click()

    def opens_relief() -> None:
        starts_cycle()  # again: the load is to move when the value changes
        page.locator('[data-part="relief"] .hit').first.click()
        expect(page.locator(".component-dialog")).to_be_visible()

    def lowers_relief() -> None:
        page.locator('input[data-field="opening_pressure"]').fill("70 bar")
        page.locator(".apply").click()
        expect(page.locator(".applied")).to_contain_text("Active since tick")

    def shows_plots() -> None:
        page.get_by_role("button", name="Close").click()
        expect(page.locator(".component-dialog")).to_have_count(0)
        starts_cycle()
        page.get_by_role("tab", name="Plots").click()
        expect(page.locator(".pause")).to_be_visible()

    def moves_joystick() -> None:
        page.get_by_role("tab", name="Operate").click()
        page.get_by_role("button", name="Stop work cycle").click()
        slider = page.locator(".q-slider").first
        box = slider.bounding_box()
        assert box is not None
        y, middle = box["y"] + box["height"] / 2, box["x"] + box["width"] / 2
        page.mouse.move(middle, y)
        page.mouse.down()
        for share in range(1, 21):
            page.mouse.move(middle + 0.25 * box["width"] * share / 20, y)
            page.wait_for_timeout(100)
        expect(page.locator(".q-slider").first).to_have_attribute("aria-valuenow", re.compile(r"0\.[3-6]"))
        page.wait_for_timeout(1500)
        page.mouse.up()

    def stops() -> None:
        page.locator("#stop").click()
        expect(page.locator("#stop small")).to_contain_text("stop: done in tick")

    return [
        ("A simulated test rig. SAFE: its servo valve is at null", lambda: None, 3.0),
        ("Arm: the valve may be driven", press("Arm", "ARMED"), 3.0),
        ("Start: the real valve passes the flow of the virtual circuit", press("Start", "RUNNING"), 4.0),
        ("A work cycle lifts and lowers the load", starts_cycle, 9.0),
        ("Click a component: the virtual relief valve opens at 150 bar", opens_relief, 2.0),
        ("70 bar, applied live while the load moves", lowers_relief, 6.0),
        ("Virtual and measured flow, pressures, command", shows_plots, 9.0),
        ("By hand: the joystick of the virtual valve", moves_joystick, 1.0),
        ("STOP: the valve goes to null", stops, 4.0),
    ]


def cut(pictures: list[tuple[float, bytes]], end: float) -> list[Image.Image]:
    """The pictures at an even pace: at each time the latest one."""
    found, latest, moment = [], 0, pictures[0][0]
    while moment < end:
        while latest + 1 < len(pictures) and pictures[latest + 1][0] <= moment:
            latest += 1
        found.append(Image.open(io.BytesIO(pictures[latest][1])).convert("RGB"))
        moment += 1.0 / PACE
    return found


def main() -> None:
    """Play the scenes, and write the film."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        with (
            Server(folder, "lift") as server,
            served(folder, server.port, server, "--open") as url,
            chromium() as browser,
        ):
            width, height = SCREEN
            page = browser.new_page(viewport={"width": width, "height": height}, locale="en-GB")
            page.goto(url)
            expect(page.locator('[data-value="node.supply"]')).to_contain_text("bar")
            page.evaluate(CAPTION, "")
            camera = Camera(page)
            for caption, act, seconds in scenes(page):
                page.evaluate(CAPTION, caption)
                page.wait_for_timeout(700)
                act()
                page.wait_for_timeout(1e3 * seconds)
            end = camera.end()
            page.close()
    first, *others = cut(camera.pictures, end)
    options: dict[str, Any] = {"quality": QUALITY, "method": 4, "minimize_size": True, "loop": 0}
    first.save(FILM, save_all=True, append_images=others, duration=round(1e3 / PACE), **options)
    length = (1 + len(others)) / PACE
    print(f"Written: {FILM.relative_to(ROOT)}: {length:.0f} s, {FILM.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
