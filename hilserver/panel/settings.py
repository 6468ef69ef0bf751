"""Settings of the panel: rig, broker, and the address for browsers."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path

from hilserver.protocol.address import BrokerAddress
from hilserver.web.listening import LOOPBACK, new_token

PORT = 8080


@dataclass(frozen=True)
class PanelSettings:
    """Settings of the panel: rig, broker, and the address for browsers.

    ``recordings``: their folder, None: the one that the server reports. ``studies``: folder of the results of studies,
    by default that in which ``hilserver study`` writes them. ``with_parent``: the panel ends when the
    process that started it ends. User and password in ``address`` are not used: each user logs in with their own.
    ``token``: what admits a browser where the broker admits everybody, unless the panel is ``open`` to all.
    ``names``: more host names of the panel.
    """

    rig: str
    address: BrokerAddress
    host: str = LOOPBACK
    port: int = PORT
    recordings: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    with_parent: bool = False
    open: bool = False
    names: tuple[str, ...] = ()
    studies: Path = Path("reports")
    token: str = field(default_factory=new_token, repr=False)

    @property
    def url(self) -> str:
        """The address to open in the browser; unless the panel is open, it contains the token."""
        host = "127.0.0.1" if self.host == "0.0.0.0" else self.host
        place = f"http{'s' if self.certificate else ''}://{host}:{self.port}"
        return place if self.open else f"{place}/?token={self.token}"

    def admits(self, token: str) -> bool:
        """Whether this is the token of the panel."""
        return secrets.compare_digest(token.encode(), self.token.encode())
