"""What the service manager is told of a run: systemd's datagrams (sd_notify(3)), in a few lines of our own.

READY and the watchdog come from the loop's ticks: that this process lives says nothing of the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from typing import Self

STARTING = 0.02
"""Seconds between two looks at the loop until it ticks."""
LONGEST = 1.0
"""Seconds between two looks later on; less where the watchdog is impatient."""


class Notifier:
    """Tells systemd how a run is; nobody, where ``address``, that of its socket, is empty.

    ``watchdog``: seconds without a sign of life after which systemd ends the service, None if it doesn't.
    """

    def __init__(self, address: str = "", watchdog: float | None = None) -> None:
        self.watchdog = watchdog
        self._address = "\0" + address[1:] if address.startswith("@") else address  # @: an abstract socket
        self._status = ""
        self._over = False

    @classmethod
    def from_environment(cls) -> Self:
        """As systemd says in the environment, from which it is taken: no child process is to speak in our place."""
        address, microseconds, pid = (
            os.environ.pop(name, "") for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
        )
        watched = microseconds.isdecimal() and int(microseconds) > 0 and pid in ("", str(os.getpid()))
        return cls(address, int(microseconds) * 1e-6 if watched else None)

    def tell(self, **fields: str | int) -> None:
        """Send fields, such as ``READY=1``. What can't be sent is lost: a run is not to fail for want of a listener."""
        if not self._address:
            return
        text = "\n".join(f"{name}={' '.join(str(value).split())}" for name, value in fields.items())
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to_manager:
            to_manager.setblocking(False)
            to_manager.sendto(text.encode(), self._address)

    def status(self, text: str) -> None:
        """What `systemctl status` shows; sent where it is new."""
        if text != self._status:
            self._status = text
            self.tell(STATUS=text)

    def stopping(self, text: str) -> None:
        """The run ends, and why; the last that is said of it."""
        self._over = True
        self.tell(STOPPING=1, STATUS=text)

    async def follow(self, tick: Callable[[], float | None], status: Callable[[], str]) -> None:
        """READY once the loop ticks, WATCHDOG whenever it has ticked since the last look. ``tick``: its number."""
        seen = tick()
        pause = STARTING
        while not self._over:
            now = tick()
            if now is not None and seen is not None and now > seen:
                if pause == STARTING:
                    self.tell(READY=1)
                    pause = min(LONGEST, (self.watchdog or LONGEST) / 4)
                self.tell(WATCHDOG=1)
            if now is not None:
                seen = now
                self.status(status())
            await asyncio.sleep(pause)
