"""Byte streams to devices, TCP or serial: every call ends at a deadline; lost connections are re-established.

Deadlines are times of ``time.monotonic()``. Reading is ``select`` and ``read`` on the file descriptor: received data is
available at once, and an unplugged device is detected.
"""

from __future__ import annotations

import importlib
import os
import select
import socket
import termios
import time
from abc import ABC, abstractmethod
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from hilserver.errors import DriverError

CHUNK = 65_536
MAX_WAITING = 1_000_000
"""Maximum number of bytes read at once, so that reading ends even if data arrives continuously."""


class WireError(Exception):
    """No connection, or a lost one; the text gives the reason. The wire is closed."""


class TcpSettings(BaseModel):
    """The network address of a device."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    host: str = Field(min_length=1, description="IP address (a host name requires a look-up at each connection)")
    port: int = Field(default=502, ge=1, le=65_535, description="TCP port")


class PortSettings(BaseModel):
    """A serial port."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    port: str = Field(
        min_length=1,
        description="device file; names in /dev/serial/by-id stay the same when the device is plugged in elsewhere",
    )
    baud: int = Field(default=9600, ge=50, le=4_000_000, description="bits per second")
    data_bits: Literal[7, 8] = Field(default=8, description="data bits per character")
    parity: Literal["none", "even", "odd"] = Field(default="none", description="parity bit of each character")
    stop_bits: Literal[1, 2] = Field(default=1, description="stop bits per character")

    @property
    def character_time(self) -> float:
        """Seconds that one character takes on the line."""
        return (1 + self.data_bits + (self.parity != "none") + self.stop_bits) / self.baud


def library(name: str, device: str, extra: str) -> Any:
    """Import a driver's library. Raises DriverError with the command that installs it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        text = f"device {device}: {name} can't be imported ({error}): pip install 'hilserver[{extra}]'"
        raise DriverError(text) from None


class Retry:
    """Times of retries after failures: at once after the first, then after pauses that double, up to the longest."""

    FIRST, LONGEST = 0.05, 1.0

    def __init__(self) -> None:
        self._pause = self._next = 0.0

    @property
    def due(self) -> bool:
        """Whether it is time to try."""
        return time.monotonic() >= self._next

    def failed(self) -> None:
        """Record a failure."""
        self._next = time.monotonic() + self._pause
        self._pause = min(max(2 * self._pause, self.FIRST), self.LONGEST)

    def worked(self) -> None:
        """Record a success: the next failure is a first one."""
        self._pause = self._next = 0.0


class Wire(ABC):
    """A byte stream to a device; ``where`` names its other end for the user."""

    def __init__(self, where: str) -> None:
        self.where = where
        self._fd = -1
        self._settled = 0.0

    @property
    def ready(self) -> bool:
        """Whether sending is allowed: not while a disturbed line settles."""
        return time.monotonic() >= self._settled

    def settle(self, seconds: float) -> None:
        """Send nothing for some time, so that data still on the line is not mistaken for an answer."""
        self._settled = time.monotonic() + seconds

    @property
    def connected(self) -> bool:
        """Whether there is a connection, as far as known."""
        return self._fd >= 0

    @abstractmethod
    def connect(self, deadline: float) -> None:
        """Connect. Raises WireError."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection; may be called more than once."""

    def send(self, data: bytes, deadline: float) -> None:
        """Send all of ``data``. Raises WireError if it can't be sent by the deadline: a partial message is lost."""
        self._check()
        while data:
            try:
                self._wait([], [self._fd], deadline, "takes no data")
                data = data[os.write(self._fd, data) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise self._broken(error) from None

    def receive(self, deadline: float) -> bytes:
        """Received data; waits for it until the deadline, then returns nothing. Raises WireError."""
        self._check()
        try:
            if not select.select([self._fd], [], [], max(deadline - time.monotonic(), 0.0))[0]:
                return b""
            data = os.read(self._fd, CHUNK)
        except BlockingIOError:
            return b""
        except OSError as error:
            raise self._broken(error) from None
        if not data:
            raise self._broken("it was closed at the other end, or unplugged")
        return data

    def waiting(self) -> bytes:
        """All received data, without waiting; the kernel returns it in pieces. Raises WireError."""
        data = b""
        while len(data) < MAX_WAITING and (piece := self.receive(0.0)):
            data += piece
        return data

    def _check(self) -> None:
        if self._fd < 0:
            raise WireError(f"no connection to {self.where}")

    def _wait(self, reading: list[int], writing: list[int], deadline: float, text: str) -> None:
        if not any(select.select(reading, writing, [], max(deadline - time.monotonic(), 0.0))):
            raise self._broken(f"it {text}")

    def _broken(self, why: object) -> WireError:
        self.close()
        return WireError(f"connection to {self.where} lost: {reason(why)}")


class TcpWire(Wire):
    """A TCP connection."""

    def __init__(self, settings: TcpSettings) -> None:
        super().__init__(f"{settings.host}:{settings.port}")
        self._address = (settings.host, settings.port)
        self._socket: socket.socket | None = None

    def connect(self, deadline: float) -> None:
        """Connect to the first of the host's addresses that answers."""
        self.close()
        self._settled = 0.0
        why: object = "the name has no address"
        try:
            addresses = socket.getaddrinfo(*self._address, type=socket.SOCK_STREAM)
        except OSError as error:
            addresses, why = [], error
        for family, kind, protocol, _, address in addresses:
            connection = socket.socket(family, kind, protocol)
            try:
                connection.settimeout(max(deadline - time.monotonic(), 0.001))
                connection.connect(address)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.setblocking(False)
            except OSError as error:
                connection.close()
                why = error
                continue
            self._socket, self._fd = connection, connection.fileno()
            return
        raise WireError(f"no connection to {self.where}: {reason(why)}")

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._fd = None, -1


class SerialWire(Wire):
    """A serial port, for this process alone."""

    def __init__(self, settings: PortSettings) -> None:
        super().__init__(settings.port)
        self._settings = settings
        self._port: Any = None

    def connect(self, deadline: float) -> None:
        """Open the port; what arrived before is dropped."""
        import serial

        self.close()
        self._settled = 0.0
        s = self._settings
        try:
            self._port = serial.Serial(
                s.port,
                s.baud,
                bytesize=s.data_bits,
                parity=s.parity[0].upper(),
                stopbits=s.stop_bits,
                timeout=0,
                write_timeout=0,
                exclusive=True,
            )
            self._fd = self._port.fileno()
            if s.parity != "none":
                self._check_parity()
        except (OSError, ValueError, termios.error) as error:  # SerialException is an OSError
            self.close()
            raise WireError(f"no connection to {self.where}: {reason(error)}") from None

    def _check_parity(self) -> None:
        """Read a character of wrong parity as 0, because pyserial sends parity but does not check it."""
        attributes = termios.tcgetattr(self._fd)
        attributes[0] |= termios.INPCK
        termios.tcsetattr(self._fd, termios.TCSANOW, attributes)

    def close(self) -> None:
        """Close the port."""
        if self._port is not None:
            self._port.close()
        self._port, self._fd = None, -1


def reason(why: object) -> str:
    """The reason of a failure, in words, with the remedy for common causes."""
    if isinstance(why, PermissionError) or getattr(why, "errno", None) == 13:
        return "permission denied: the user must be in the group of the device file (often dialout)"
    if isinstance(why, TimeoutError):
        return "no answer"
    if getattr(why, "errno", None) == 11:
        return "another program has it open"
    if isinstance(why, OSError) and why.errno:
        return os.strerror(why.errno) if why.errno > 0 else str(why.strerror)
    return str(why)
