"""The I/O worker: a slow device read and written in a process of its own; and the loop's side of it.

The supervisor makes the shared memory, so that the loop stays attached to it whichever worker is behind it. Samples go
one way, each with the time at which it was taken; commands the other way. The loop takes the latest samples, however
old: their ages tell. A worker that gets no more commands for ``watchdog`` writes the device's safe values by itself.

Started by the supervisor as ``python -m hilserver.realtime.worker FILE PID``, the last being the supervisor's.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.driver import ChannelInfo, Driver, Floats, SlowDriverConfig
from hilserver.errors import DriverError, HilserverError
from hilserver.realtime.clock import GridClock
from hilserver.realtime.devices import DeviceSetup
from hilserver.realtime.queues import Ring
from hilserver.realtime.scheduling import Scheduling, prepare
from hilserver.realtime.segment import Segment
from hilserver.realtime.shared import Heartbeat
from hilserver.realtime.talk import FailureReport, say

ROWS = 64
ORPHAN_LINGER = 0.5
"""Seconds without a command after which a worker without a supervisor ends."""
SAFE_AGAIN = 1.0
"""Seconds after which a device without commands gets its safe values again: it may have lost them, unplugged."""
PRIORITY_BELOW_LOOP = 10
ERRORS, SAMPLES = 0, 1
"""Columns of a row of samples: failures counted so far; then raw values, and the monotonic times they were taken at."""
TIME, WHAT, VALUES = 0, 1, 2
"""Columns of a command: its monotonic time, what it is; then raw values."""
NOTHING, WRITE, MAKE_SAFE = 0.0, 1.0, 2.0
_LINE = 64


class WorkerMemory:
    """What a worker, the loop and the supervisor share: rows of samples, rows of commands, the worker's state."""

    def __init__(self, segment: Segment, n_inputs: int, n_outputs: int) -> None:
        parts, start = [], 0
        for size in self._sizes(n_inputs, n_outputs):
            parts.append(segment.buffer[start : start + size])
            start += size
        self.segment = segment
        self._state = parts[0].cast("q")
        self.heartbeat = Heartbeat(parts[1])
        self.samples = Ring(parts[2], SAMPLES + 2 * n_inputs, ROWS)
        self.commands = Ring(parts[3], VALUES + n_outputs, ROWS)
        self.raw = slice(SAMPLES, SAMPLES + n_inputs)
        self.times = slice(SAMPLES + n_inputs, SAMPLES + 2 * n_inputs)

    @staticmethod
    def _sizes(n_inputs: int, n_outputs: int) -> list[int]:
        rings = (Ring.nbytes(SAMPLES + 2 * n_inputs, ROWS), Ring.nbytes(VALUES + n_outputs, ROWS))
        return [_LINE, Heartbeat.nbytes(), *rings]

    @classmethod
    def create(cls, path: Path, n_inputs: int, n_outputs: int) -> WorkerMemory:
        """New memory, owned by this process."""
        size = sum(cls._sizes(n_inputs, n_outputs))
        return cls(Segment.create(path, size, (n_inputs, n_outputs)), n_inputs, n_outputs)

    @classmethod
    def attach(cls, path: Path) -> WorkerMemory:
        """The memory another process created. Raises SharedMemoryError."""
        segment = Segment.attach(path)
        return cls(segment, segment.shape[0], segment.shape[1])

    @property
    def worker_pid(self) -> int:
        """The worker's process; the supervisor notes it."""
        return self._state[0]

    @worker_pid.setter
    def worker_pid(self, pid: int) -> None:
        self._state[0] = pid

    @property
    def made_safe(self) -> int:
        """Number of the latest command up to which the device has, or had since, its safe values; counted from 1."""
        return self._state[1]

    @made_safe.setter
    def made_safe(self, number: int) -> None:
        self._state[1] = number

    def request_safe_values(self) -> int:
        """Ask the worker for the safe values, as whoever writes the commands. Returns the command's number."""
        command = np.zeros(self.commands.width)
        command[TIME], command[WHAT] = time.monotonic(), MAKE_SAFE
        return self.commands.publish(command) + 1

    def close(self) -> None:
        """Release the segment."""
        self.segment.close()


class RemoteDevice(Driver):
    """The loop's side, in the place of a slow driver: its worker does the I/O. Never waits for anything."""

    Config = SlowDriverConfig

    def __init__(self, setup: DeviceSetup) -> None:
        super().__init__(setup.name, None, setup.inputs, setup.outputs)
        self._path = Path(setup.segment)
        self._memory: WorkerMemory | None = None

    @classmethod
    def channels(cls, config: Any) -> tuple[Sequence[ChannelInfo], Sequence[ChannelInfo]]:
        """None of its own: those of the device are its driver's."""
        return (), ()

    def open(self) -> None:
        """Attach to the worker's memory. Raises SharedMemoryError where there is none."""
        self._memory = memory = WorkerMemory.attach(self._path)
        self._row, self._command = np.zeros(memory.samples.width), np.zeros(memory.commands.width)
        self._raw, self._times, self._values = self._row[memory.raw], self._row[memory.times], self._command[VALUES:]

    def read(self, values: Floats, ages: Floats) -> None:
        """The worker's last samples and their ages; no sample before the first."""
        assert self._memory is not None
        if self._memory.samples.latest(self._row) < 0:
            values[:], ages[:] = np.nan, np.inf
            return
        values[:] = self._raw
        np.subtract(time.monotonic(), self._times, out=ages)
        np.maximum(ages, 0.0, out=ages)
        self.errors["counted by its worker"] = int(self._row[ERRORS])

    def write(self, values: Floats) -> None:
        """Values for the worker to write in its next turn."""
        assert self._memory is not None
        self._command[TIME], self._command[WHAT], self._values[:] = time.monotonic(), WRITE, values
        self._memory.commands.publish(self._command)

    def make_safe(self) -> None:
        """Let the worker write the safe values."""
        if self._memory is not None:
            self._memory.request_safe_values()

    def close(self) -> None:
        """Release the shared memory; the worker belongs to the supervisor."""
        if self._memory is not None:
            self._memory.close()
            self._memory = None


class Worker:
    """Reads and writes a device in turn. Whatever ends it, the device gets its safe values first."""

    def __init__(self, driver: Driver, memory: WorkerMemory, supervisor: int) -> None:
        self._driver, self._memory, self._supervisor = driver, memory, supervisor
        self._row, self._command = np.zeros(memory.samples.width), np.zeros(memory.commands.width)
        memory.samples.latest(self._row)
        self._counted = self._row[ERRORS]  # by the workers before this one
        self._raw, self._ages = self._row[memory.raw], np.zeros(len(driver.inputs))
        self._begun = time.monotonic()
        self._is_safe, self._safe_due = True, 0.0
        period = 1.0 / driver.config.rate
        self._looks = math.ceil(2.0 * period / driver.config.watchdog)
        """Looks at the commands' age per turn, so that the watchdog is in time at a slow rate too."""
        self._clock = GridClock(period / self._looks)

    def stop(self, *_: Any) -> None:
        """End after this turn. May be called from a signal handler."""
        self._clock.stop()

    def run(self) -> None:
        """Open the device and serve it until stopped or left alone. Raises DriverError where it must not go on."""
        self._driver.open()
        try:
            self._driver.make_safe()
            say(ready=True)
            os.set_blocking(1, False)  # a supervisor that doesn't listen must not stop the worker
            self._serve()
        finally:
            try:
                self._driver.make_safe()
            finally:
                self._driver.close()

    def _serve(self) -> None:
        clock, report, turn = self._clock, FailureReport(self._driver), -1
        clock.start()
        while clock.wait() and not self._is_left_alone():
            self._memory.heartbeat.beat()
            self._keep_safe()
            if clock.tick // self._looks != turn:
                turn = clock.tick // self._looks
                self._write()
                self._read()
                report.tell()

    def _keep_safe(self) -> None:
        """Take the latest command; safe values where it asks for them, or is too old."""
        number = self._memory.commands.latest(self._command) + 1
        if self._is_commanded():
            return
        if time.monotonic() >= self._safe_due:
            self._make_safe()
        if self._is_safe:
            self._memory.made_safe = number

    def _is_commanded(self) -> bool:
        """Whether there are fresh values to write."""
        return bool(self._command[WHAT] == WRITE and self._silence() <= self._driver.config.watchdog)

    def _write(self) -> None:
        if self._is_commanded():
            self._is_safe, self._safe_due = False, 0.0
            self._driver.write(self._command[VALUES:])

    def _make_safe(self) -> None:
        """Write the safe values, and when to do so again: soon where that failed, the driver has counted it."""
        try:
            self._driver.make_safe()
            self._is_safe = True
        except DriverError:
            self._is_safe = False
        self._safe_due = time.monotonic() + (SAFE_AGAIN if self._is_safe else self._driver.config.watchdog)

    def _read(self) -> None:
        self._driver.read(self._raw, self._ages)
        np.subtract(time.monotonic(), self._ages, out=self._row[self._memory.times])
        self._row[ERRORS] = self._counted + self._driver.errors.total()
        self._memory.samples.publish(self._row)

    def _silence(self) -> float:
        """Seconds without a command."""
        return time.monotonic() - max(float(self._command[TIME]), self._begun)

    def _is_left_alone(self) -> bool:
        return self._silence() > ORPHAN_LINGER and os.getppid() != self._supervisor


def write_worker_file(setup: DeviceSetup, priority: int, path: Path) -> None:
    """What a worker is started with; only this user can read it (it may hold passwords)."""
    path.touch(mode=0o600)
    path.write_text(json.dumps({"device": asdict(setup), "priority": priority}))


def serve(file: Path, supervisor: int) -> int:
    """The body of the worker process; returns its exit code."""
    text = json.loads(file.read_text())
    setup = DeviceSetup(**{**text["device"], **{key: tuple(text["device"][key]) for key in ("inputs", "outputs")}})
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        kind, config = setup.configured()
        driver = kind(setup.name, config, setup.inputs, setup.outputs)
        with contextlib.closing(WorkerMemory.attach(Path(setup.segment))) as memory:
            worker = Worker(driver, memory, supervisor)
            signal.signal(signal.SIGTERM, worker.stop)
            prepare(Scheduling(max(text["priority"] - PRIORITY_BELOW_LOOP, 1), lock_memory=False, freeze_gc=False))
            worker.run()
    except HilserverError as error:
        say(error=str(error))
        return 1
    except Exception as error:
        say(error=f"device {setup.name}: a defect in its driver: {type(error).__name__}: {error}")
        raise
    return 0


if __name__ == "__main__":
    sys.exit(serve(Path(sys.argv[1]), int(sys.argv[2])))
