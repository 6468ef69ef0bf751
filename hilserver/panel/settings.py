"""Settings of the panel: rig, broker, and the address for browsers."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

from hilserver.errors import HilserverError
from hilserver.protocol.address import BrokerAddress

PORT = 8080
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class PanelSettings:
    """Settings of the panel: rig, broker, and the address for browsers.

    ``recordings``: their folder, None: the one that the server reports. ``with_parent``: the panel ends when the
    process that started it ends. User and password in ``address`` are not used: each user logs in with their own.
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
        """The address to open in the browser."""
        host = "127.0.0.1" if self.host == "0.0.0.0" else self.host
        return f"http{'s' if self.certificate else ''}://{host}:{self.port}"


def free_port(host: str, port: int, tries: int = 1) -> int:
    """The first free port of ``tries``, from ``port`` on. Raises HilserverError if all are in use."""
    for number in range(port, port + tries):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, number))
            except OSError as error:
                reason = error.strerror
            else:
                return int(probe.getsockname()[1])
    raise HilserverError(f"the panel can't listen on {host}:{port}: {reason}. Choose another address: --host, --port")
