"""The supervisor's side of an I/O worker process: started, monitored, restarted with back-off, made safe at the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from hilserver.errors import HilserverError
from hilserver.realtime.devices import DeviceSetup
from hilserver.realtime.segment import SharedMemoryError
from hilserver.realtime.worker import WorkerMemory, write_worker_file
from hilserver.service.children import Child, all_ready
from hilserver.service.devices import ADVICE, DeviceReports

Tell = Callable[[str | None, str], None]
"""Takes the present trouble of a device, if any, and what happened, as sentences."""

FIRST_DELAY, LONGEST_DELAY, STABLE_AFTER = 0.2, 5.0, 2.0
"""Seconds before a worker is started again: the first time, at most; after how long a run it is a first time."""
LOOK = 0.1
"""Seconds between two checks of a worker's heartbeat."""
OPENING = 10.0
"""Seconds allowed for opening a device, where its ``hang_time`` is not longer."""
TAKE_OVER = 3.0
"""Seconds to wait for the worker of a killed run to end by itself."""


class WorkerProcess:
    """The worker of a slow device. ``start``, ``keep`` in the background, and ``end`` in any case."""

    def __init__(self, setup: DeviceSetup, priority: int, folder: Path, reports: DeviceReports) -> None:
        """Create the shared memory. Raises SharedMemoryError where another run uses the device."""
        self.name = setup.name
        self.child: Child | None = None
        self._hang_time = float(setup.configured()[1].hang_time)
        path = Path(setup.segment)
        self._left_behind = _pid_of_worker(path)
        self._memory = WorkerMemory.create(path, len(setup.inputs), len(setup.outputs))
        self._file = folder / f"worker-{setup.name}.json"
        self._reports = reports
        self._opened = False
        self._starting = asyncio.Lock()
        write_worker_file(setup, priority, self._file)

    async def start(self) -> Child:
        """Start a worker; it is ready once the device is open and has its safe values."""
        await _await_end(self._left_behind, self._file)
        arguments = (str(self._file), str(os.getpid()))
        if self.child is not None:
            self._opened |= self.child.was_ready
            self._reports.restarted(self.name)
        module = "hilserver.realtime.worker"
        self.child = await Child.start(f"device {self.name}", module, *arguments, heard=self._reports.heard)
        self._memory.worker_pid = self.child.process.pid
        return self.child

    async def keep(self, tell: Tell) -> None:
        """Restart the worker whenever it ends; kill it where it hangs."""
        delay = FIRST_DELAY
        while self.child is not None:
            began = time.monotonic()
            reason = await self._ended(self.child)
            delay = FIRST_DELAY if time.monotonic() - began >= STABLE_AFTER else delay
            text = (
                f"device {self.name}: its I/O process ended ({reason}); its samples are outdated, it takes no commands"
            )
            tell(text, f"{text}. Another one is started.")
            await asyncio.sleep(delay)
            while trouble := await self._start_again():
                delay = min(2.0 * delay, LONGEST_DELAY)
                tell(f"device {self.name}: {trouble}", f"device {self.name}: {trouble} Next attempt in {delay:g} s.")
                await asyncio.sleep(delay)
            delay = min(2.0 * delay, LONGEST_DELAY)
            tell(None, f"device {self.name}: its I/O process runs again")

    async def _ended(self, child: Child) -> str:
        """Wait for the end of a worker, and kill it where it hangs; returns why it ended.

        Checks are counted, not seconds: after a pause of the whole machine the worker needs a moment, too.
        """
        beats, looks, hung = -1, 0, ""
        ending = asyncio.create_task(child.wait_ended())
        while not ending.done():
            heartbeat = self._memory.heartbeat.beats
            looks = looks + 1 if heartbeat == beats else 0
            beats = heartbeat
            if looks * LOOK > (self._hang_time if child.was_ready else max(self._hang_time, OPENING)):
                hung = f"the driver did not answer for {looks * LOOK:.1f} s and was killed"
                child.kill()
                break
            await asyncio.wait({ending}, timeout=LOOK)
        reason = await ending
        return hung or reason

    async def _start_again(self) -> str | None:
        """Start another worker; returns why that failed."""
        async with self._starting:
            if self.child is not None and self.child.running:  # started in the meantime, to write safe values
                return None
            try:
                await all_ready(await self.start(), within=max(self._hang_time, OPENING))
            except HilserverError as error:
                if self.child is not None:
                    self.child.kill()
                    await self.child.wait_ended()
                return str(error)
        return None

    async def make_safe(self) -> str | None:
        """Make sure that the device has its safe values, once no loop writes to it; returns why that failed.

        A worker that is dead or hangs is replaced: the new one first writes the safe values.
        """
        if self.child is None or not (self._opened or self.child.was_ready):  # never touched
            return None
        beats = self._memory.heartbeat.beats
        if await self._has_made_safe():
            return None
        trouble: str | None = "its driver reports failures"
        if not self.child.running or self._memory.heartbeat.beats == beats:
            self.child.kill()
            await self.child.wait_ended()
            trouble = await self._start_again()
        return trouble and f"device {self.name} did not confirm its safe values: {trouble.rstrip('.')}. {ADVICE}"

    async def _has_made_safe(self) -> bool:
        """Request safe values from the worker; whether it confirms them in time."""
        assert self.child is not None
        number, deadline = self._memory.request_safe_values(), time.monotonic() + self._hang_time
        while self.child.running and time.monotonic() < deadline:
            if self._memory.made_safe >= number:
                return True
            await asyncio.sleep(0.005)
        return False

    async def end(self) -> str | None:
        """End the worker with the device at its safe values; returns why that failed."""
        trouble = await self.make_safe()
        if self.child is not None:
            await self.child.stop()
        self._memory.close()
        return trouble


def _pid_of_worker(path: Path) -> int:
    """The worker that is attached to this memory, which may be that of a killed run; 0 for none."""
    with contextlib.suppress(SharedMemoryError):
        return WorkerMemory.attach(path).worker_pid
    return 0


async def _await_end(worker: int, file: Path) -> None:
    """Wait for the worker of a killed run, which holds the device; kill it where it does not end by itself."""
    began = time.monotonic()
    while worker and _is_worker(worker, file) and time.monotonic() < began + 2.0 * TAKE_OVER:
        if time.monotonic() > began + TAKE_OVER:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        await asyncio.sleep(0.02)


def _is_worker(pid: int, file: Path) -> bool:
    """Whether this process is a worker of this rig and device: its number may be another's by now."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return b"hilserver.realtime.worker" in words and str(file).encode() in words
    return False
