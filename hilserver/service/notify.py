"""Notifications to the service manager: systemd's datagrams (sd_notify(3)).

READY and the watchdog follow the loop's ticks: that this process is alive proves nothing about the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from typing import Self

from hilserver.service.forking import OF_SERVICE_MANAGER

STARTING = 0.02
"""Seconds between two checks of the loop until it ticks."""
LONGEST = 1.0
"""Seconds between two later checks; less where the watchdog's timeout is short."""


class Notifier:
    """Sends the state of a run to systemd's socket at ``address``; does nothing where that is empty.

    ``watchdog``: seconds without a notification after which systemd ends the service; None: never.
    """

    def __init__(self, address: str = "", watchdog: float | None = None) -> None:
        self.watchdog = watchdog
        self._address = "\0" + address[1:] if address.startswith("@") else address  # @: an abstract socket
        self._status = ""
        self._over = False

    @classmethod
    def from_environment(cls) -> Self:
        """As in systemd's environment variables, which are removed: no child process may notify in our place."""
        address, microseconds, pid = (os.environ.pop(name, "") for name in OF_SERVICE_MANAGER)
        watched = microseconds.isdecimal() and int(microseconds) > 0 and pid in ("", str(os.getpid()))
        return cls(address, int(microseconds) * 1e-6 if watched else None)

    def tell(self, **fields: str | int) -> None:
        """Send fields, such as ``READY=1``. Failures are ignored: a run must not fail because nobody listens."""
        if not self._address:
            return
        text = "\n".join(f"{name}={' '.join(str(value).split())}" for name, value in fields.items())
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to_manager:
            to_manager.setblocking(False)
            to_manager.sendto(text.encode(), self._address)

    def status(self, text: str) -> None:
        """Set the text that `systemctl status` shows; sent only where it has changed."""
        if text != self._status:
            self._status = text
            self.tell(STATUS=text)

    def stopping(self, text: str) -> None:
        """Announce the end of the run, and why; nothing is sent after it."""
        self._over = True
        self.tell(STOPPING=1, STATUS=text)

    async def follow(self, tick: Callable[[], float | None], status: Callable[[], str]) -> None:
        """Send READY once the loop ticks, WATCHDOG whenever it has ticked since. ``tick`` returns its number."""
        last = tick()
        pause = STARTING
        while not self._over:
            now = tick()
            if now is not None and last is not None and now > last:
                if pause == STARTING:
                    self.tell(READY=1)
                    pause = min(LONGEST, (self.watchdog or LONGEST) / 4)
                self.tell(WATCHDOG=1)
            if now is not None:
                last = now
                self.status(status())
            await asyncio.sleep(pause)
