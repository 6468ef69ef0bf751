"""Where a page is served: a free port, and the token that admits a browser."""

from __future__ import annotations

import secrets
import socket

from hilserver.errors import HilserverError

LOOPBACK = "127.0.0.1"


def new_token() -> str:
    """A token that nobody can guess: 192 random bits."""
    return secrets.token_urlsafe(24)


def free_port(host: str, port: int, tries: int = 1) -> int:
    """The first free port of ``tries``, from ``port`` on; 0: any free one. Raises HilserverError if all are in use."""
    for number in range(port, port + tries):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, number))
            except OSError as error:
                reason = error.strerror
            else:
                return int(probe.getsockname()[1])
    raise HilserverError(f"the page can't be served on {host}:{port}: {reason}. Choose another address: --host, --port")
