"""Starts the panel: in this process, or in a separate process next to another program."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec

from hilserver.errors import HilserverError
from hilserver.panel.settings import PORT, PanelSettings
from hilserver.protocol.address import BrokerAddress
from hilserver.web.listening import LOOPBACK, free_port


@asynccontextmanager
async def panel_process(rig: str, address: BrokerAddress) -> AsyncIterator[str | None]:
    """Run a panel in a separate process for the duration of the context; yields its URL, None without NiceGUI."""
    if find_spec("nicegui") is None:
        yield None
        return
    settings = PanelSettings(rig, address, port=free_port(LOOPBACK, PORT, tries=50))
    options = ("--rig", rig, "--broker", f"{address.host}:{address.port}", "--port", str(settings.port))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from hilserver.cli import main; main()", "panel", *options, "--with-parent"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C goes to this process only
    )
    assert process.stdin is not None
    process.stdin.write(f"{settings.token}\n".encode())  # other users of this machine can read command lines
    process.stdin.close()
    try:
        yield settings.url
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(5.0):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def serve(settings: PanelSettings) -> None:
    """Serve the panel until Ctrl-C or SIGTERM. Raises HilserverError if NiceGUI is not installed.

    It runs at low priority: the panel must not disturb the loop that it shows.
    """
    if find_spec("nicegui") is None:
        raise HilserverError("the panel needs NiceGUI: pip install 'hilserver[panel]'")
    os.environ.setdefault(
        "NICEGUI_STORAGE_PATH", tempfile.gettempdir()
    )  # nothing is stored, but NiceGUI creates the folder
    from hilserver.panel.web import Panel

    os.nice(10)
    Panel(settings).run()
