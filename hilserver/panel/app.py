"""Starting the panel: which rig, which broker, where browsers find it."""

from __future__ import annotations

import os
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hilserver.errors import HilserverError
from hilserver.service.address import BrokerAddress

PORT = 8080


@dataclass(frozen=True)
class PanelSettings:
    """Which rig's panel, where its broker is, where browsers find it, where recordings lie (None: as the server says).

    Of ``address``, user and password are not used: who opens the panel gives their own.
    """

    rig: str
    address: BrokerAddress
    host: str = "127.0.0.1"
    port: int = PORT
    recordings: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

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


def serve(settings: PanelSettings) -> None:
    """Serve the panel until Ctrl-C or SIGTERM. Raises HilserverError where NiceGUI is not installed."""
    os.environ.setdefault("NICEGUI_STORAGE_PATH", tempfile.gettempdir())  # nothing is stored; not even in this folder
    try:
        import nicegui  # noqa: F401 - whether it is there
    except ImportError:
        raise HilserverError("the panel needs NiceGUI: pip install 'hilserver[panel]'") from None
    from hilserver.panel.web import Panel

    Panel(settings).run()
