"""Serial ports for tests: a pty behind a device file that can be unplugged and plugged in again; cables between two."""

from __future__ import annotations

import os
import select
import threading
import time
import tty
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

CHUNK = 4096


class Port:
    """A device file (a link to a pty) and the device's end of the line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.device = self._inside = -1
        self.plug()

    def plug(self) -> None:
        """The device file appears."""
        self.device, self._inside = os.openpty()
        tty.setraw(self._inside)
        self.path.symlink_to(os.ttyname(self._inside))

    def unplug(self) -> None:
        """The device file goes, and who has it open is told so."""
        self.path.unlink()
        for fd in (self._inside, self.device):
            os.close(fd)
        self.device = self._inside = -1

    def close(self) -> None:
        if self.device >= 0:
            self.unplug()

    def send(self, data: bytes) -> None:
        """What the device says."""
        os.write(self.device, data)

    def heard(self, timeout: float = 0.0) -> bytes:
        """What the device hears within a time."""
        with suppress(OSError):
            if select.select([self.device], [], [], timeout)[0]:
                return os.read(self.device, CHUNK)
        return b""


class Served:
    """A port at which a device answers what it hears, and speaks by itself, in a thread of its own."""

    PERIOD = 0.005
    """s between two messages that the device sends by itself."""

    def __init__(self, port: Port, hear: Callable[[bytes], bytes], speak: Callable[[], bytes] = bytes) -> None:
        self.port, self._hear, self._speak = port, hear, speak
        self.through: Callable[[bytes], bytes] = bytes
        """Sees what the device says, and may damage it."""
        self._under_way: list[threading.Timer] = []
        self._end = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._end.wait(0.0005):
            self.serve()
            if time.monotonic() >= due:
                due += self.PERIOD
                self.send(self.through(self._speak()))

    def serve(self) -> None:
        """Let the device hear all that was said to it so far."""
        with self._lock:
            while self.port.device >= 0 and (data := self.port.heard()):
                with suppress(OSError):
                    self.port.send(self.through(self._hear(data)))

    def send(self, data: bytes) -> None:
        """What the device says now."""
        with self._lock, suppress(OSError):
            if self.port.device >= 0 and data:
                self.port.send(data)

    def delayed(self, seconds: float) -> Callable[[bytes], bytes]:
        """For ``through``: delays the output of the device. All of it has arrived when ``repair`` returns."""

        def hold_back(data: bytes) -> bytes:
            if data:
                self._under_way.append(threading.Timer(seconds, self.send, [data]))
                self._under_way[-1].start()
            return b""

        return hold_back

    def unplug(self) -> None:
        with self._lock:
            self.port.unplug()

    def plug(self) -> None:
        with self._lock:
            self.port.plug()

    def repair(self) -> None:
        """Plugged in, and nothing damaged or delayed any more."""
        self.through = bytes
        while self._under_way:
            self._under_way.pop().join()
        if self.port.device < 0:
            self.plug()

    def close(self) -> None:
        self.repair()
        self._end.set()
        self._thread.join()
        self.port.close()


class Cable(Served):
    """A line between two ports. ``through`` sees what comes from the far end, and may damage it."""

    def __init__(self, near: Port, far: Port) -> None:
        self.far = far
        super().__init__(near, self._forward)

    def _forward(self, data: bytes) -> bytes:
        self.far.send(data)
        return b""

    def _run(self) -> None:
        while not self._end.is_set():
            with self._lock:
                near = self.port.device
                ready = select.select([self.far.device, *([near] if near >= 0 else [])], [], [], 0)[0]
                for fd in ready:
                    self._carry(fd)
            if not ready:
                self._end.wait(0.0002)

    def _carry(self, fd: int) -> None:
        with suppress(OSError):
            data = os.read(fd, CHUNK)
            if fd == self.port.device:
                self.far.send(data)
            elif self.port.device >= 0:
                self.port.send(self.through(data))

    def close(self) -> None:
        super().close()
        self.far.close()
