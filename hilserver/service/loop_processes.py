"""The real-time process and the devices' processes: started, monitored, ended with every device in its safe state."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from pathlib import Path

import numpy as np

from hilserver.driver import Pace
from hilserver.realtime.process import make_devices_safe, ramp_time
from hilserver.realtime.rig_setup import make_setup
from hilserver.realtime.segment import Segment, SharedMemoryError
from hilserver.realtime.segment_folder import segment_path
from hilserver.realtime.setup import write_setup
from hilserver.realtime.shared import ALIVE, LoopMemory
from hilserver.rig.rig import Rig
from hilserver.service.children import Child, Prepared, all_ready
from hilserver.service.device_reports import DeviceReports
from hilserver.service.silence import CountedSilence
from hilserver.service.workers import WorkerProcess
from hilserver.tick.codes import Mode
from hilserver.tick.row import header

_log = logging.getLogger(__name__)
COMPILE_TIMEOUT = 600.0
"""Seconds allowed for compiling the circuit engine; a slow or busy machine needs some minutes."""
LOOK = 0.1
"""Seconds between two checks of the loop's heartbeat."""
MIN_TICKS = 5
"""Missed ticks above which the loop counts as hanging, at slow rates."""
PATIENCE = 3.0
"""Seconds that the loop may take longer than its ramp to null before it is killed."""
TAKE_OVER = 3.0
"""Seconds to wait for the simulated device of a killed run, which terminates without a request."""


class LoopProcesses:
    """The real-time process, its simulated devices and its I/O workers. ``start``, then ``end`` in any case."""

    def __init__(
        self, rig: Rig, memory: LoopMemory, folder: Path, reports: DeviceReports, prepared: Prepared | None = None
    ) -> None:
        self.devices: list[Child] = []
        """The processes of the simulated devices."""
        self.workers: list[WorkerProcess] = []
        self.realtime: Child | None = None
        self._made_safe: str | None = None
        self._row = np.empty(rig.layout.width)
        self._rig = rig
        self._memory = memory
        self._reports = reports
        self._prepared = prepared
        self._plants = rig.plants()
        self.setup_file = folder / "setup.npz"
        own_process = [d.name for d in rig.devices if d.name in self._plants or d.driver.pace is Pace.SLOW]
        segments = {name: str(self._device_memory(name)) for name in own_process}
        self._setup = make_setup(rig, segments, self._plants)
        write_setup(self._setup, self.setup_file)

    @property
    def degradations(self) -> tuple[str, ...]:
        """What the operating system did not grant the real-time process; once that is ready."""
        assert self.realtime is not None
        return tuple(self.realtime.ready.result().get("degradations", ()))

    async def compile(self) -> None:
        """Build the compiled program. Raises ChildFailed."""
        compiler = await Child.start("compiler", "hilserver.realtime.compile")
        try:
            await all_ready(compiler, within=COMPILE_TIMEOUT)
        finally:
            await compiler.stop()

    async def start(self) -> list[Child]:
        """Start the processes and return them; they are ready later."""
        setup = str(self.setup_file)
        for name in self._plants:
            await _released(self._device_memory(name))  # else the loop would attach to that of a killed run
            arguments = ("hilserver.realtime.simulated_device", setup, name, str(os.getpid()))
            self.devices.append(await Child.start(f"device {name}", *arguments, prepared=self._prepared))
        workers = []
        for device in self._setup.devices:
            if device.slow:
                priority, folder = self._rig.settings.loop.priority, self.setup_file.parent
                worker = WorkerProcess(device, priority, folder, self._reports, self._has_tripped)
                self.workers.append(worker)
                workers.append(await worker.start())
        module, segment = "hilserver.realtime.process", str(self._memory.segment.path)
        self.realtime = await Child.start(
            "real-time process", module, segment, setup, heard=self._reports.heard, prepared=self._prepared
        )
        return [*self.devices, *workers, self.realtime]

    async def died(self) -> str:
        """Wait for the end of the real-time process and write safe values at once; returns the outcome in words."""
        assert self.realtime is not None
        reason = await self.realtime.wait_ended()
        safe = await self._make_safe() if self.realtime.process.returncode else "it had written the safe values"
        self._memory.info.loop_pid = 0  # for the recorder, instead of the process itself
        return f"the real-time process ended ({reason}); {safe}"

    async def watch(self) -> None:
        """Kill a loop that has stopped ticking, so that the safe values can be written."""
        patience = max(self._rig.settings.loop.heartbeat_timeout, MIN_TICKS / self._rig.clock_rate)
        silence = CountedSilence(LOOK)
        while self.realtime is not None and self.realtime.running:
            if (silent := silence.update(self._memory.loop_heartbeat.beats)) > patience:
                _log.error("the loop has not ticked for %.1f s and is killed", silent)
                self.realtime.kill()
            await asyncio.sleep(LOOK)

    async def end_loop(self) -> str | None:
        """End the loop after its ramp to null, and write the safe values where it can't.

        Returns what went wrong, None if nothing.
        """
        loop = self.realtime
        if loop is None:
            return None
        if loop.was_ready:
            self._memory.info.stop_requested = True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ramp_time(self._rig.plan) / self._rig.speed + PATIENCE):
                    await loop.process.wait()
        await loop.stop(PATIENCE)
        return await self.died() if loop.was_ready and loop.process.returncode else None

    async def unsafe(self) -> str | None:
        """The slow devices that have not confirmed their safe values after the loop's end, in words; None if all have.

        The loop's own devices have confirmed theirs, or it would have ended with an error.
        """
        troubles = filter(None, await asyncio.gather(*(worker.make_safe() for worker in self.workers)))
        return "; ".join(troubles) or None

    async def end(self) -> None:
        """End everything: the loop first, then the devices."""
        await self.end_loop()
        for trouble in await asyncio.gather(*(worker.end() for worker in self.workers)):
            if trouble is not None:
                _log.error("%s", trouble)
        for device in self.devices:
            await device.stop()
        for name in self._plants:
            _remove(self._device_memory(name))

    def _has_tripped(self) -> bool:
        """Whether the loop has tripped, or a device does not confirm its safe values."""
        if self._memory.ring.latest(self._row) < 0:
            return False
        return header(self._row).mode in (Mode.FAULT, Mode.SAFE_NOT_CONFIRMED)

    def _device_memory(self, device: str) -> Path:
        return segment_path(f"{self._rig.settings.name}-{device}")

    async def _make_safe(self) -> str:
        """Write every device's safe values, once; returns the outcome, as a sentence."""
        if self._made_safe is None:
            workers = asyncio.gather(*(worker.make_safe() for worker in self.workers))
            failures = await asyncio.to_thread(make_devices_safe, self.setup_file)
            failures += filter(None, await workers)
            for failure in failures:
                _log.error("%s", failure)
            self._made_safe = "; ".join(failures) or "the supervisor wrote the safe values"
        return self._made_safe


def _remove(segment: Path) -> bool:
    """Remove the shared memory of a killed device process; whether there is none any more."""
    if segment.exists():
        try:
            Segment.create(segment, 0).close()
        except SharedMemoryError:
            return False
    return True


async def _released(segment: Path) -> None:
    """Wait until the simulated device of a killed run, whose loop has ended, has ended too; remove what it left."""
    deadline = time.monotonic() + TAKE_OVER
    while not _remove(segment) and time.monotonic() < deadline:  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.02)


async def end_predecessor(memory: LoopMemory) -> None:
    """End the loop of a killed supervisor, which still uses this memory; it ramps its valves to null first."""
    memory.info.stop_requested = True
    while memory.info.loop_pid and memory.loop_heartbeat.age() < ALIVE:  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.01)
