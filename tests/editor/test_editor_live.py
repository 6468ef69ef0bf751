"""What is drawn is applied to a rig that runs, by the same switch as every other client's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from editor_bench import edited
from pages import only
from panel_bench import CHROMIUM, chromium
from playwright.sync_api import expect
from service_harness import CONFIG, Server, eventually

from hilserver.client import read_status
from hilserver.protocol.address import BrokerAddress
from hilserver.protocol.published import CircuitStatus

pytestmark = [
    pytest.mark.realtime,
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="not installed: chromium (make test-programs)"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("rig")) as server:
        yield server


def documented(server: Server) -> list[str]:
    """The options of the command in docs/editing.md, for this server."""
    words = only("tested: tests/editor/test_editor_live.py::documented").text.split()
    assert words == ["hilserver", "edit", "lift.toml", "--rig", "lift", "--broker", "127.0.0.1:1883"]
    return [{"lift": server.name, "127.0.0.1:1883": f"127.0.0.1:{server.port}"}.get(word, word) for word in words[2:]]


def running(server: Server) -> CircuitStatus:
    with ThreadPoolExecutor(1) as elsewhere:  # Playwright's event loop runs in this thread
        asked = elsewhere.submit(lambda: asyncio.run(read_status(BrokerAddress(port=server.port), server.name)))
        circuit = asked.result().circuit
    assert circuit is not None
    return circuit


def test_a_change_is_applied_after_it_was_shown(server: Server, tmp_path: Path) -> None:
    (tmp_path / "lift.toml").write_text((CONFIG / "circuits/lift.toml").read_text())
    before = running(server)
    with edited(tmp_path, *documented(server)) as url, chromium() as browser:
        page = browser.new_page(viewport={"width": 1500, "height": 1000})
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
    components: Any = running(server).source["components"]
    assert components["relief"]["opening_pressure"] == "157 bar"
    assert "157" not in (tmp_path / "lift.toml").read_text(), "applied, but not saved"
    assert 'opening_pressure = "157 bar"' in (tmp_path / "lift.toml.unsaved").read_text(), "kept at the end"
