"""The editor in a real browser: a circuit drawn by the mouse is the one that a person would have written."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from local_page import local_page, opened
from pages import only
from panel_bench import CALM, CHROMIUM, IMAGES, chromium
from playwright.sync_api import Browser, Page, expect
from service_harness import CONFIG, Server, eventually

from hilserver.circuit.library import circuit_library
from hilserver.circuit.model import read_circuit
from hilserver.circuit.pack import pack
from hilserver.client import read_status
from hilserver.protocol.address import BrokerAddress
from hilserver.protocol.published import CircuitStatus
from hilserver.toml import read_toml

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="not installed: chromium (make test-programs)"),
]
EXPECTED = """
[components.pump]
type = "fixed_pump"
ports = { P = "supply", T = "tank" }
displacement = "10 cm^3"
speed = "1450 rpm"

[components.relief_valve]
type = "relief_valve"
ports = { P = "supply", T = "tank" }
opening_pressure = "150 bar"
override = [["5 bar", "20 l/min"], ["15 bar", "60 l/min"]]

[components.tank]
type = "tank"
ports = { T = "tank" }

[components.volume]
type = "volume"
ports = { P = "supply" }
volume = "1 l"
"""


def documented() -> list[str]:
    """The options of the command in docs/editing.md."""
    command, verb, *options = only("tested: tests/editor/test_editor_page.py::documented").text.split()
    assert (command, verb) == ("hilserver", "edit")
    return options


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def url(folder: Path) -> Iterator[str]:
    with local_page(folder, "edit", *documented()) as url:
        yield url


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    with opened(browser, url, 1500) as page:
        page.wait_for_function("window.did_handshake")
        yield page


def middle(page: Page, what: str) -> tuple[float, float]:
    box = eventually(lambda: page.locator(what).first.bounding_box(), 20)  # None while it is drawn anew
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def drag(page: Page, start: tuple[float, float], end: tuple[float, float]) -> None:
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
    page.mouse.move(*end)
    page.mouse.up()


def add(page: Page, words: str, kind: str, at: tuple[float, float], name: str) -> None:
    """Search the palette and drag a component to a place on the sheet."""
    page.locator(".palette-search input").fill(words)
    item = page.locator(".palette-item").first
    expect(item).to_have_attribute("data-kind", kind)
    sheet = page.locator(".editor-sheet").bounding_box()
    assert sheet is not None
    drag(page, middle(page, ".palette-item"), (sheet["x"] + at[0], sheet["y"] + at[1]))
    expect(page.locator(f'.part[data-part="{name}"]')).to_have_count(1)


def handle(component: str, port: str) -> str:
    return f'.handle[data-component="{component}"][data-port="{port}"]'


def connect(page: Page, one: tuple[str, str], other: tuple[str, str]) -> None:
    drag(page, middle(page, handle(*one)), middle(page, handle(*other)))
    expect(page.locator(f"{handle(*one)}:not(.free)")).to_have_count(1)


def enter(page: Page, field: str, text: str, *, shown: str = "", refused: bool = False) -> None:
    box = page.locator(f'input[data-field="{field}"]')
    box.fill(text)
    box.press("Enter")
    if not refused:
        expect(page.locator(".datasheet .now", has_text=shown or text).first).to_be_visible()


def select(page: Page, part: str) -> None:
    page.mouse.click(*middle(page, f'.part[data-part="{part}"] .hit'))
    expect(page.locator(".part-name input")).to_have_value(part)


def rename(page: Page, new: str) -> None:
    page.locator(".part-name input").fill(new)
    page.locator(".part-name input").press("Enter")


def test_a_circuit_is_drawn_by_the_mouse_and_changed_by_keys(
    page: Page, folder: Path, browser: Browser, url: str, request: pytest.FixtureRequest
) -> None:
    """It is the one of its file, nothing of somebody else is lost, and strangers see nothing of it."""
    strangers_are_kept_out(browser, url)
    drawn_by_the_mouse(page, folder, screenshots=bool(request.config.getoption("--screenshots", default=False)))
    changed_by_keys(page, folder / "circuit.toml")


def drawn_by_the_mouse(page: Page, folder: Path, *, screenshots: bool) -> None:
    add(page, "gear pump", "fixed_pump", (200, 400), "fixed_pump")
    add(page, "safety valve", "relief_valve", (450, 300), "relief_valve")
    add(page, "reservoir", "tank", (320, 560), "tank")
    add(page, "manifold", "volume", (650, 150), "volume")
    connect(page, ("fixed_pump", "T"), ("tank", "T"))
    connect(page, ("relief_valve", "T"), ("tank", "T"))
    connect(page, ("relief_valve", "P"), ("fixed_pump", "P"))
    connect(page, ("volume", "P"), ("fixed_pump", "P"))
    select(page, "fixed_pump")
    enter(page, "displacement", "10 cm^3")
    enter(page, "speed", "1450 rpm")
    rename(page, "pump")
    select(page, "relief_valve")
    expect(page.locator(".problem[data-part=relief_valve]")).to_have_count(1)
    enter(page, "opening_pressure", "-3 bar", refused=True)
    expect(page.locator(".datasheet .wrong:visible")).to_contain_text("out of range")
    enter(page, "opening_pressure", "150 bar")
    enter(
        page, "override", "5 bar at 20 l/min; 15 bar at 60 l/min", shown=(table := "5 bar, 20 l/min; 15 bar, 60 l/min")
    )
    expect(page.locator('[data-field="override"]')).to_have_value(table)
    expect(page.locator(".characteristic canvas")).to_be_visible()
    select(page, "volume")
    enter(page, "volume", "1 l")
    expect(page.locator(".verdict")).to_contain_text("No problems")
    expect(page.locator(".problem")).to_have_count(0)
    node = page.locator('.wire-hit[data-node="relief_valve_P"]').first.get_attribute("data-node")
    assert node is not None
    page.locator(f'circle.wire-hit[data-node="{node}"]').click()
    expect(page.locator(".part-name input")).to_have_value(node)
    rename(page, "supply")
    expect(page.locator('.wire-hit[data-node="supply"]').first).to_be_attached()
    select(page, "relief_valve")
    expect(page.locator(".characteristic canvas")).to_be_visible()
    if screenshots:
        page.locator(".palette-search input").fill("")
        page.wait_for_timeout(1000)
        page.screenshot(path=IMAGES / "editor.png", scale="css")
    page.get_by_label("time [s]").fill("0.5")
    page.get_by_role("button", name="Simulate").click()
    expect(page.locator(".trial-chart canvas").first).to_be_visible()
    page.get_by_role("button", name="Save").click()
    file = folder / "circuit.toml"
    eventually(file.exists, 20)
    found = tomllib.loads(file.read_text())
    assert found["components"] == tomllib.loads(EXPECTED)["components"]
    assert found.keys() == {"components", "drawing"}
    assert found["drawing"].keys() == {"pump", "relief_valve", "tank", "volume"}
    library = circuit_library(file)
    pack(read_circuit(read_toml(file), library, str(file)), library)


def strangers_are_kept_out(browser: Browser, url: str) -> None:
    """Only who has the token sees the circuit, and only under a name of this computer."""
    stranger = browser.new_context()
    address = url.partition("?")[0]
    answer = stranger.request.get(address)
    assert (answer.status, "hilserver edit" in answer.text()) == (401, True)
    assert stranger.request.get(f"{address}?token=guessed").status == 401
    assert stranger.request.get(address, headers={"Host": "evil.example"}).status == 403
    assert stranger.request.get(url).status == 200
    stranger.close()


def changed_by_keys(page: Page, file: Path) -> None:
    page.locator(".palette-search input").fill("overcentre")
    first = page.locator(".palette-item").first
    expect(first).to_have_attribute("data-kind", "counterbalance_valve")
    for words, kind in (("volume", "volume"), ("tank", "tank")):
        page.locator(".palette-search input").fill(words)
        expect(first).to_have_attribute("data-kind", kind)
        first.focus()
        page.keyboard.press("Enter")
        expect(page.locator(f'.part[data-part="{kind}_2"]').first).to_be_attached()
    page.locator('.part[data-part="volume_2"]').focus()
    page.keyboard.press("Enter")
    expect(page.locator(".part-name input")).to_have_value("volume_2")
    page.locator('input[data-port="P"]').fill("tank_2")
    page.locator('input[data-port="P"]').press("Enter")
    expect(page.locator(f"{handle('volume_2', 'P')}:not(.free)")).to_have_count(1)
    page.locator(".editor-sheet").focus()
    expect(page.get_by_role("button", name="Undo")).to_be_enabled()
    page.keyboard.press("Control+z")
    expect(page.locator(f"{handle('volume_2', 'P')}.free")).to_have_count(1)
    page.keyboard.press("Control+y")
    expect(page.locator(f"{handle('volume_2', 'P')}:not(.free)")).to_have_count(1)
    before = middle(page, ".selected")
    page.keyboard.press("ArrowRight")
    eventually(lambda: middle(page, ".selected")[0] > before[0] + 5, 20)
    assert "volume_2" in file.with_name("circuit.toml.unsaved").read_text()
    page.keyboard.press("Control+s")
    eventually(lambda: "volume_2" in file.read_text(), 20)
    eventually(lambda: not file.with_name("circuit.toml.unsaved").exists(), 20)
    theirs = file.read_text() + "# a note of somebody else\n"
    file.write_text(theirs)
    page.keyboard.press("Delete")
    expect(page.locator('.part[data-part="volume_2"]')).to_have_count(0)
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".asked")).to_contain_text("somebody else")
    page.get_by_role("button", name="Read it again").click()
    expect(page.locator('.part[data-part="volume_2"]')).to_have_count(1)
    assert file.read_text() == theirs
    page.locator(".palette-search input").fill("cylinder ram")
    expect(first).to_have_attribute("data-kind", "cylinder")
    drag(page, middle(page, ".palette-item"), middle(page, ".editor-sheet"))
    expect(page.locator('.part[data-part="cylinder"]')).to_have_count(1)
    drag(page, middle(page, handle("cylinder", "rod")), middle(page, handle("volume_2", "P")))
    expect(page.locator(".q-notification", has_text="mechanical port")).to_be_visible()
    expect(page.locator(f"{handle('cylinder', 'rod')}.free")).to_have_count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("rig")) as server:
        yield server


def documented_for_a_rig(server: Server) -> list[str]:
    """The options of the command in docs/editing.md, for this server."""
    words = only("tested: tests/editor/test_editor_page.py::documented_for_a_rig").text.split()
    assert words == ["hilserver", "edit", "lift.toml", "--rig", "lift", "--broker", "127.0.0.1:1883"]
    return [{"lift": server.name, "127.0.0.1:1883": f"127.0.0.1:{server.port}"}.get(word, word) for word in words[2:]]


def running(server: Server) -> CircuitStatus:
    with ThreadPoolExecutor(1) as elsewhere:  # Playwright's event loop runs in this thread
        asked = elsewhere.submit(lambda: asyncio.run(read_status(BrokerAddress(port=server.port), server.name)))
        circuit = asked.result().circuit
    assert circuit is not None
    return circuit


@pytest.mark.realtime
def test_a_change_is_applied_after_it_was_shown(server: Server, browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "lift.toml").write_text((CONFIG / "circuits/lift.toml").read_text())
    before = running(server)
    with local_page(tmp_path, "edit", *documented_for_a_rig(server)) as url:
        page = browser.new_page(viewport={"width": 1500, "height": 1000}, reduced_motion=CALM)
        page.goto(url)
        page.wait_for_function("window.did_handshake")
        page.locator('.part[data-part="relief"] .hit').click()
        box = page.locator('input[data-field="opening_pressure"]')
        box.fill("157 bar")
        box.press("Enter")
        expect(page.locator(".editor-state")).to_have_text("not saved")
        page.locator(".apply-live").click()
        dialog = page.locator(".live-changes")
        expect(dialog).to_contain_text("relief: opening_pressure: 150 bar → 157 bar")
        assert running(server).version == before.version, "nothing happens before it is wanted"
        dialog.get_by_role("button", name="Apply").click()
        eventually(lambda: running(server).version == before.version + 1, 20)
        page.close()
    components: Any = running(server).source["components"]
    assert components["relief"]["opening_pressure"] == "157 bar"
    assert "157" not in (tmp_path / "lift.toml").read_text(), "applied, but not saved"
    assert 'opening_pressure = "157 bar"' in (tmp_path / "lift.toml.unsaved").read_text(), "kept at the end"
