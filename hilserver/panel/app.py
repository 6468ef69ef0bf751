"""Starting the panel: which rig, which broker, where browsers find it."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from hilserver.errors import HilserverError
from hilserver.protocol.address import BrokerAddress

PORT = 8080
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class PanelSettings:
    """Which rig's panel, where its broker is, where browsers find it, where recordings lie (None: as the server says).

    ``with_parent``: it ends when the process that started it ends. Of ``address``, user and password are not used: who
    opens the panel gives their own.
    """

    rig: str
    address: BrokerAddress
    host: str = LOOPBACK
    port: int = PORT
    recordings: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    with_parent: bool = False

    @property
    def url(self) -> str:
        """What to open in the browser."""
        host = "127.0.0.1" if self.host == "0.0.0.0" else self.host
        return f"http{'s' if self.certificate else ''}://{host}:{self.port}"


def free_port(host: str, port: int, tries: int = 1) -> int:
    """This port, or one of the next ``tries``, if nobody has it. Raises HilserverError."""
    for number in range(port, port + tries):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, number))
            except OSError as error:
                reason = error.strerror
            else:
                return int(probe.getsockname()[1])
    raise HilserverError(f"the panel can't listen on {host}:{port}: {reason}. Choose another place: --host, --port")


@asynccontextmanager
async def beside(rig: str, address: BrokerAddress) -> AsyncIterator[str | None]:
    """A panel in a process of its own, as long as this lasts; its URL, None where NiceGUI is not installed."""
    if find_spec("nicegui") is None:
        yield None
        return
    port = free_port(LOOPBACK, PORT, tries=50)
    options = ("--rig", rig, "--broker", f"{address.host}:{address.port}", "--port", str(port), "--with-parent")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from hilserver.cli import main; main()", "panel", *options),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for us
    )
    try:
        yield PanelSettings(rig, address, port=port).url
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), 5.0)
        except TimeoutError:
            process.kill()
            await process.wait()


def serve(settings: PanelSettings) -> None:
    """Serve the panel until Ctrl-C or SIGTERM. Raises HilserverError where NiceGUI is not installed.

    It gives way to everything else on this machine: it shows a loop that must not notice it.
    """
    if find_spec("nicegui") is None:
        raise HilserverError("the panel needs NiceGUI: pip install 'hilserver[panel]'")
    os.environ.setdefault("NICEGUI_STORAGE_PATH", tempfile.gettempdir())  # nothing is stored; not even in this folder
    from hilserver.panel.web import Panel

    os.nice(10)
    Panel(settings).run()
