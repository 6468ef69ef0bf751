"""Pages that ``hilserver view`` and ``hilserver edit`` serve on this computer, and how a browser opens them."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from panel_bench import CALM, WITHIN
from playwright.sync_api import Browser, Page
from service_harness import eventually, listens
from warm_start import start


@contextmanager
def local_page(folder: Path, command: str, *options: str) -> Iterator[str]:
    """The command's page, served by a process of its own that works in this folder; its address."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    said = folder / f"{command}.log"
    words = (command, "--no-browser", *options)
    with said.open("w") as log:
        process = start(words, stdout=log, stderr=log, folder=folder, environment=environment)
    try:
        url = eventually(lambda: (found := re.search(r"http://\S+", said.read_text())) and found[0])
        eventually(lambda: listens(int(url.split(":")[2].partition("/")[0])))
        yield url
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (0, -signal.SIGTERM)
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in said.read_text(), said.read_text()


@contextmanager
def opened(browser: Browser, url: str, width: int) -> Iterator[Page]:
    """A page in a browser that knows nothing of others; it has no error at the end."""
    context = browser.new_context(viewport={"width": width, "height": 1000}, locale="en-GB", reduced_motion=CALM)
    context.set_default_timeout(WITHIN)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(f"{error}\n{error.stack}"))
    page.goto(url)
    yield page
    context.close()
    assert errors == []
