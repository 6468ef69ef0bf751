"""The supervisor's side of an I/O worker process: started, monitored, replaced, made safe at the end.

A second process stands by: it has imported everything and waits to open the device. It takes over as soon as the
first one has ended or is killed because it does not answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hilserver.errors import HilserverError
from hilserver.realtime.devices import ADVICE, DeviceSetup
from hilserver.realtime.segment import SharedMemoryError
from hilserver.realtime.stand_by import WAITING
from hilserver.realtime.worker import WorkerMemory, write_worker_file
from hilserver.service.backoff import Backoff
from hilserver.service.children import Child, all_ready
from hilserver.service.device_reports import DeviceReports
from hilserver.service.silence import CountedSilence
from hilserver.service.troubles import TellOfSource

WORKER, STAND_BY = "hilserver.realtime.worker", "hilserver.realtime.stand_by"
"""Modules of its two processes."""
LOOK = 0.01
"""Seconds between two checks of a worker's heartbeat."""
GRACE = 0.05
"""Seconds by which a worker's silence may exceed the time that its device takes, while the rig is being made safe."""
BEGINNING = 0.5
"""Seconds within which a stand-by that waits must begin to open the device; else it hangs, and another is started."""
OPENING = 10.0
"""Seconds allowed for opening a device, where its ``hang_time`` is not longer."""
TAKE_OVER = 3.0
"""Seconds to wait for the worker of a killed run to end unprompted."""


class WorkerProcess:
    """The worker of a slow device. ``start``, ``keep`` in the background, and ``end`` in any case."""

    def __init__(
        self, setup: DeviceSetup, priority: int, folder: Path, reports: DeviceReports, is_tripped: Callable[[], bool]
    ) -> None:
        """Create the shared memory. Raises SharedMemoryError if another run uses the device.

        ``is_tripped``: whether the loop has tripped, so that a device that does not answer is taken over at once.
        """
        self.name = setup.name
        self.child: Child | None = None
        self._stand_by: Child | None = None
        self._stand_by_waits = False
        self._is_tripped = is_tripped
        config = setup.configured()[1]
        self._hang_time = float(config.hang_time)
        self._own_time = min(float(getattr(config, "timeout", 1.0 / config.rate)) + GRACE, self._hang_time)
        self._taken_over = False
        path = Path(setup.segment)
        self._left_behind = _pid_of_worker(path)
        self._memory = WorkerMemory.create(path, len(setup.inputs), len(setup.outputs))
        self._file = folder / f"worker-{setup.name}.json"
        self._reports = reports
        self._opened = False
        self._starting = asyncio.Lock()
        write_worker_file(setup, priority, self._file)

    async def start(self) -> Child:
        """Start a worker; it is ready once the device is open and at its safe values."""
        await _await_end(self._left_behind, self._file)
        if self.child is not None:
            self._opened |= self.child.was_ready
            self._reports.restarted(self.name)
        self.child = await self._take_stand_by() or await self._process(WORKER)
        self._memory.worker_pid = self.child.process.pid
        return self.child

    async def _take_stand_by(self) -> Child | None:
        """Let the stand-by begin; None if there is none that does."""
        waiting, self._stand_by = self._stand_by, None
        if waiting is None or not waiting.running:
            return None
        beats, looks = self._memory.heartbeat.beats, 0
        patience = BEGINNING if self._stand_by_waits else OPENING
        waiting.go()
        while self._memory.heartbeat.beats == beats and waiting.running:  # checks are counted, as in `CountedSilence`
            if (looks := looks + 1) * LOOK > patience:
                waiting.kill()
                await waiting.wait_ended()
                return None
            await asyncio.sleep(LOOK)
        return waiting

    async def _process(self, module: str) -> Child:
        """A worker process, or one that stands by."""
        arguments, waits = (str(self._file), str(os.getpid())), module == STAND_BY
        return await Child.start(f"device {self.name}", module, *arguments, heard=self._heard, keep_input=waits)

    def _heard(self, message: dict[str, Any]) -> None:
        if WAITING in message:
            self._stand_by_waits = True
        else:
            self._reports.heard(message)

    async def _have_stand_by(self) -> None:
        """Start a stand-by, if there is none."""
        if self._stand_by is None or not self._stand_by.running:
            self._stand_by_waits = False
            self._stand_by = await self._process(STAND_BY)

    async def keep(self, tell: TellOfSource) -> None:
        """Replace the worker whenever it ends; kill it where it hangs. One that was stable is replaced at once."""
        # the longest delay is short: a device that answers again must not wait long for its safe values
        backoff = Backoff(first=0.2, longest=1.0, stable_after=2.0, failures=0)
        while self.child is not None:
            await self._have_stand_by()
            began = time.monotonic()
            reason = await self._ended(self.child)
            backoff.ended(time.monotonic() - began)
            text = (
                f"device {self.name}: its I/O process ended ({reason}); its samples are outdated, and it accepts no "
                f"commands"
            )
            tell(text, f"{text}. Another one is started.")
            await asyncio.sleep(backoff.delay)
            while trouble := await self._start_again():
                await self._have_stand_by()
                delay = backoff.ended()
                tell(f"device {self.name}: {trouble}", f"device {self.name}: {trouble} Next attempt in {delay:g} s.")
                await asyncio.sleep(delay)
            tell(None, f"device {self.name}: its I/O process runs again")

    async def _ended(self, child: Child) -> str:
        """Wait for the end of a worker, and kill it where it hangs; returns why it ended.

        A stand-by that has ended is replaced, once per second.
        """
        silence, looks, hung = CountedSilence(LOOK), 0, ""
        ending = asyncio.create_task(child.wait_ended())
        while not ending.done():
            if (silent := silence.update(self._memory.heartbeat.beats)) > self._patience(child):
                hung = f"the driver did not answer for {silent:.2g} s and was killed"
                child.kill()
                break
            looks += 1
            if looks % round(1.0 / LOOK) == 0:
                await self._have_stand_by()
            await asyncio.wait({ending}, timeout=LOOK)
        reason = await ending
        return hung or reason

    def _patience(self, child: Child) -> float:
        """Seconds for which a worker may be silent: after a trip only the device's own time, but once per trip."""
        if not child.was_ready:
            return max(self._hang_time, OPENING)
        tripped = self._is_tripped()
        self._taken_over &= tripped
        return self._own_time if tripped and not self._taken_over else self._hang_time

    async def _start_again(self) -> str | None:
        """Start another worker; returns why that failed."""
        async with self._starting:
            if self.child is not None and self.child.running:  # started in the meantime, to write safe values
                return None
            try:
                self._taken_over = True
                await all_ready(await self.start(), within=max(self._hang_time, OPENING))
            except HilserverError as error:
                if self.child is not None:
                    self.child.kill()
                    await self.child.wait_ended()
                return str(error)
        return None

    async def make_safe(self) -> str | None:
        """Make sure that the device is at its safe values, once no loop writes to it; returns why that failed.

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
        """Request safe values from the worker; whether it confirms them in time, and is not silent for too long."""
        assert self.child is not None
        number, deadline = self._memory.request_safe_values(), time.monotonic() + self._hang_time
        beats, silent_since = -1, 0.0
        while self.child.running and (now := time.monotonic()) < deadline:
            if self._memory.made_safe >= number:
                return True
            if self._memory.heartbeat.beats != beats:
                beats, silent_since = self._memory.heartbeat.beats, now
            elif now - silent_since > self._own_time:
                return False
            await asyncio.sleep(0.005)
        return False

    async def end(self) -> str | None:
        """Make the device safe, again where that has failed before, and end its processes; returns why it failed."""
        trouble = await self.make_safe()
        if self._stand_by is not None:
            self._stand_by.kill()
            await self._stand_by.wait_ended()
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
    """Wait for the worker of a killed run, which holds the device; kill it if it does not end unprompted."""
    began = time.monotonic()
    while worker and _is_worker(worker, file) and time.monotonic() < began + 2.0 * TAKE_OVER:
        if time.monotonic() > began + TAKE_OVER:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        await asyncio.sleep(0.02)


def _is_worker(pid: int, file: Path) -> bool:
    """Whether this process is a worker of this rig and device: its process id may have been reused."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return not {WORKER.encode(), STAND_BY.encode()}.isdisjoint(words) and str(file).encode() in words
    return False
