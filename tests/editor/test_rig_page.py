"""The editor of a rig in a real browser: what is clicked and typed is in the file as a person would have written it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_page import local_page, opened
from pages import only
from panel_bench import CHROMIUM, IMAGES, chromium
from playwright.sync_api import Browser, Page, expect
from service_harness import CONFIG, eventually

from hilserver.rig.build import load_rig

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="not installed: chromium (make test-programs)"),
]


def documented() -> list[str]:
    """The options of the command in docs/editing.md."""
    command, verb, *options = only("tested: tests/editor/test_rig_page.py::documented").text.split()
    assert (command, verb, options) == ("hilserver", "edit", ["rigs/lift.toml"])
    return options


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


def chosen(page: Page, part: str, name: str) -> None:
    """Click a block of the picture."""
    page.locator(f'.editor-sheet .part[data-part="{part}"]').first.click()
    expect(page.locator(".part-name input")).to_have_value(name)


def enter(page: Page, field: str, text: str) -> None:
    box = page.locator(f'input[data-field="{field}"]')
    box.fill(text)
    box.press("Enter")


def test_a_rig_is_changed_by_mouse_and_keys(browser: Browser, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    shutil.copytree(CONFIG, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "rigs/lift.toml"
    before = file.read_text()
    with local_page(tmp_path, "edit", *documented()) as url, opened(browser, url, 1500) as page:
        page.wait_for_function("window.did_handshake")
        expect(page.locator(".verdict")).to_contain_text("No problems")
        if request.config.getoption("--screenshots", default=False):
            chosen(page, "valves.A", "A")
            page.wait_for_timeout(1000)
            page.screenshot(path=IMAGES / "rig_editor.png", scale="css")
        values_are_entered(page)
        a_limit_is_added(page)
        page.keyboard.press("Control+s")
        eventually(lambda: file.read_text() != before, 60)
        assert file.read_text() == before.replace("60 l/min", "63 l/min", 1).replace(
            'p_B_high = { channel = "p_B", max = "240 bar", action = "trip" }\n',
            'p_B_high = { channel = "p_B", max = "240 bar", action = "trip" }\n'
            'end = { channel = "x", max = "980 mm", action = "warn" }\n',
        )
        the_circuit_is_opened_from_the_rig(page, tmp_path / "circuits/lift.toml")
    load_rig(file)


def values_are_entered(page: Page) -> None:
    chosen(page, "valves.A", "A")
    enter(page, "nominal_flow.flow", "63 bar")
    expect(page.locator(".datasheet .wrong:visible").first).to_contain_text("wrong unit")
    enter(page, "nominal_flow.flow", "63 l/min")
    expect(page.locator(".editor-sheet .text", has_text="63 l/min")).to_have_count(1)
    page.locator(".editor-sheet").focus()
    page.keyboard.press("Delete")
    expect(page.locator('.part[data-part="valves.A"]')).to_have_count(0)
    page.keyboard.press("Control+z")
    expect(page.locator('.part[data-part="valves.A"]')).to_have_count(1)


def a_limit_is_added(page: Page) -> None:
    chosen(page, "channels.x", "x")
    page.get_by_role("button", name="Add a limit").click()
    expect(page.locator(".part-name input")).to_have_value("limit")
    expect(page.locator('.problem[data-part="limits.limit"]')).to_have_count(1)
    expect(page.locator(".finding", has_text="limits.limit").first).to_contain_text("line ")
    page.locator(".part-name input").fill("end")
    page.locator(".part-name input").press("Enter")
    expect(page.locator('.editor-sheet .part[data-part="limits.end"]')).to_have_count(1)
    enter(page, "max", "980 mm")
    expect(page.locator(".editor-sheet .text", has_text="≤ 980 mm")).to_have_count(1)
    page.locator('[data-field="action"]').click()
    page.locator(".q-menu .q-item", has_text="warn").click()
    expect(page.locator(".verdict")).to_contain_text("No problems")


def the_circuit_is_opened_from_the_rig(page: Page, circuit: Path) -> None:
    """It is changed there, so that the rig has a problem, which leads to the component."""
    before = circuit.read_text()
    page.locator('[data-entry=""]').click()
    page.locator(".open-circuit").click()
    page.locator('.part[data-part="relief"] .hit').click()
    page.get_by_role("button", name="Remove").click()
    expect(page.locator('.part[data-part="relief"]')).to_have_count(0)
    page.locator('.part[data-part="line"] .hit').click()
    page.get_by_role("button", name="Remove").click()
    expect(page.locator('.part[data-part="line"]')).to_have_count(0)
    page.locator(".leave").click()
    finding = page.locator(".finding", has_text="circuits/lift.toml:").first
    expect(finding).to_contain_text("no volume")
    finding.click()
    expect(page.locator(".leave")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(page.locator('.part[data-part="line"]')).to_have_count(1)
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".editor-state")).to_have_text("saved")
    assert circuit.read_text() == before


def test_a_rig_is_begun_in_an_empty_file_and_clicks_are_not_lost(browser: Browser, tmp_path: Path) -> None:
    with local_page(tmp_path, "edit", "new.toml") as url, opened(browser, url, 1500) as page:
        page.wait_for_function("window.did_handshake")
        with opened(browser, url, 1500) as other:
            other.wait_for_function("window.did_handshake")
            page.get_by_role("button", name="Begin a rig").click()
            expect(other.locator('[data-entry="loop"]')).to_be_visible()
        page.get_by_label("Add to inputs").click()
        expect(page.locator(".part-name input")).to_have_value("input")
        page.locator(".part-name input").fill("joystick")
        page.get_by_label("Add to channels").click(delay=300)  # the box loses the focus, the list changes
        expect(page.locator(".part-name input")).to_have_value("channel")
        enter(page, "value", "3 bar")
        page.locator('[data-entry="inputs.joystick"]').click(delay=300)
        expect(page.locator(".part-name input")).to_have_value("joystick")
        page.locator('[data-entry=""]').click()
        enter(page, "circuit", "circuit.toml")
        page.locator(".open-circuit", has_text="Draw circuit.toml").click()
        expect(page.locator(".leave")).to_be_visible()
        page.locator('.palette-item[data-kind="tank"]').click()
        page.keyboard.press("Control+s")
        eventually((tmp_path / "circuit.toml").exists, 60)
        page.locator(".leave").click()
        expect(page.locator(".open-circuit", has_text="Open circuit.toml")).to_be_visible()
        page.get_by_role("button", name="Save").click()
        expect(page.locator(".editor-state")).to_have_text("saved")
    assert (tmp_path / "new.toml").read_text() == (
        'name = "new"\ncircuit = "circuit.toml"\n\n[loop]\nrate = "1 kHz"\n\n'
        '[inputs]\njoystick = {}\n\n[channels]\nchannel = { value = "3 bar" }\n'
    )
