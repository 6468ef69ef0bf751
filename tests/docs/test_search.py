"""The search of the documentation works in pages that are opened from a folder, and loads nothing from the network."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from panel_bench import CHROMIUM, WITHIN, chromium
from playwright.sync_api import expect

ROOT = Path(__file__).parents[2]
SCRIPT = "iframe-worker.js"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pages, built with our theme, search and scripts, without what documents the program."""
    folder = tmp_path_factory.mktemp("two pages")
    (folder / "docs").mkdir()
    (folder / "docs/index.md").write_text("# Start\n\nNothing here.\n")
    (folder / "docs/valves.md").write_text("# Valves\n\n## Overcentre\n\nA counterbalance valve holds the load.\n")
    shutil.copy(ROOT / "docs" / SCRIPT, folder / "docs")
    ours = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    plugins = [plugin for plugin in ours["plugins"] if isinstance(plugin, str)]
    pages = {key: value for key, value in ours.items() if key not in ("nav", "hooks", "extra_css", "validation")}
    (folder / "mkdocs.yml").write_text(yaml.safe_dump({**pages, "plugins": plugins}))
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict"]
    subprocess.run(command, cwd=folder, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True)
    return folder / "site"


def test_no_page_loads_anything_from_the_network(site: Path) -> None:
    for page in site.glob("*.html"):
        loaded = re.findall(r'<(?:script|img|iframe)[^>]* src="([^"]*)|<link[^>]* href="([^"]*)', page.read_text())
        addresses = [script or link for script, link in loaded]
        assert any(address.endswith(SCRIPT) for address in addresses)
        assert [address for address in addresses if "//" in address] == []


@pytest.mark.skipif(CHROMIUM is None, reason="not installed: chromium (make test-programs)")
def test_search_finds_words_in_pages_that_are_opened_from_a_folder(site: Path) -> None:
    asked = list[str]()
    with chromium() as browser:
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "index.html").as_uri())
        page.locator("input[name=query]").press_sequentially("counterbalance")  # the page waits for keys, not for text
        found = page.locator(".md-search-result__link").first
        expect(found).to_have_attribute("href", re.compile(r"/valves\.html"), timeout=WITHIN)
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
