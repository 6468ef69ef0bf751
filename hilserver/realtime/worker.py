"""The I/O process ("worker"): reads and writes a slow device, separately from the loop; and the loop's side.

The supervisor creates the shared memory, so that the loop stays attached to it when the worker is restarted. Samples
are passed in one direction, each with the time at which it was taken, and commands in the other. The loop takes the
latest samples together with their ages. A worker that receives no commands for ``watchdog`` writes the device's safe
values by itself.

Started by the supervisor as ``python -m hilserver.realtime.worker FILE PID``, where PID is the supervisor's; a second
one stands by (`hilserver.realtime.stand_by`).
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.driver import ChannelInfo, Driver, Floats, SlowDriverConfig
from hilserver.errors import DriverError, HilserverError
from hilserver.realtime.clock import GridClock
from hilserver.realtime.devices import DeviceSetup
from hilserver.realtime.queues import Ring, private_ring
from hilserver.realtime.reports import FailureReport, send_report
from hilserver.realtime.scheduling import PRIORITY_BELOW_LOOP, Scheduling, prepare
from hilserver.realtime.segment import LINE, Segment
from hilserver.realtime.shared import Heartbeat

ROWS = 64
ORPHAN_LINGER = 0.5
"""Seconds without a command after which a worker without a supervisor terminates."""
SAFE_AGAIN = 1.0
"""Seconds after which the safe values are written again without commands: an unplugged device may have lost them."""
ERRORS, SAMPLES = 0, 1
"""Columns of a row of samples: number of failures so far; then raw values of the inputs and the monotonic times of
their samples, and the confirmed raw values of the outputs and the times of the commands with which they came."""
TIME, WHAT, VALUES = 0, 1, 2
"""Columns of a command: its monotonic time and kind; then raw values."""
NOTHING, WRITE, MAKE_SAFE = 0.0, 1.0, 2.0


class WorkerMemory:
    """Memory shared by a worker, the loop and the supervisor: rows of samples and commands, the worker's state."""

    def __init__(self, segment: Segment, n_inputs: int, n_outputs: int) -> None:
        parts, start = [], 0
        for size in self._sizes(n_inputs, n_outputs):
            parts.append(segment.buffer[start : start + size])
            start += size
        self.segment = segment
        self._state = parts[0].cast("q")
        self.heartbeat = Heartbeat(parts[1])
        self.samples = Ring(parts[2], self._width(n_inputs, n_outputs), ROWS)
        self.commands = Ring(parts[3], VALUES + n_outputs, ROWS)
        last = SAMPLES + 2 * n_inputs
        self.raw, self.times = slice(SAMPLES, SAMPLES + n_inputs), slice(SAMPLES + n_inputs, last)
        self.confirmed, self.confirmed_at = slice(last, last + n_outputs), slice(last + n_outputs, last + 2 * n_outputs)

    @staticmethod
    def _width(n_inputs: int, n_outputs: int) -> int:
        return SAMPLES + 2 * n_inputs + 2 * n_outputs

    @classmethod
    def _sizes(cls, n_inputs: int, n_outputs: int) -> list[int]:
        rings = (Ring.nbytes(cls._width(n_inputs, n_outputs), ROWS), Ring.nbytes(VALUES + n_outputs, ROWS))
        return [LINE, Heartbeat.nbytes(), *rings]

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
        """The worker's process, as entered by the supervisor."""
        return self._state[0]

    @worker_pid.setter
    def worker_pid(self, pid: int) -> None:
        self._state[0] = pid

    @property
    def made_safe(self) -> int:
        """Number, from 1, of the latest command at or after which the device had its safe values."""
        return self._state[1]

    @made_safe.setter
    def made_safe(self, number: int) -> None:
        self._state[1] = number

    def request_safe_values(self) -> int:
        """Request the safe values from the worker, as a command. Returns the command's number."""
        command = np.zeros(self.commands.width)
        command[TIME], command[WHAT] = time.monotonic(), MAKE_SAFE
        return self.commands.publish(command) + 1

    def close(self) -> None:
        """Release the segment."""
        self.segment.close()


class RemoteDevice(Driver):
    """The loop's side, which replaces a slow driver: the worker does the I/O, and no call waits."""

    Config = SlowDriverConfig

    def __init__(self, setup: DeviceSetup) -> None:
        super().__init__(setup.name, None, setup.inputs, setup.outputs)
        self._path = Path(setup.segment)
        self._memory: WorkerMemory | None = None

    @classmethod
    def channels(cls, config: Any) -> tuple[Sequence[ChannelInfo], Sequence[ChannelInfo]]:
        """There are none here: the driver in the worker has those of the device."""
        return (), ()

    def open(self) -> None:
        """Attach to the worker's memory. Raises SharedMemoryError if there is none."""
        memory = WorkerMemory.attach(self._path)
        self._memory = memory
        self._use(memory, memory.commands)
        self.forget_confirmed()

    def _use(self, memory: WorkerMemory, commands: Ring) -> None:
        self._samples, self._commands = memory.samples, commands
        self._row, self._command = np.zeros(memory.samples.width), np.zeros(commands.width)
        self._raw, self._times, self._values = self._row[memory.raw], self._row[memory.times], self._command[VALUES:]
        self._confirmed, self._confirmed_at = self._row[memory.confirmed], self._row[memory.confirmed_at]

    def read(self, values: Floats, ages: Floats) -> None:
        """The worker's last samples and their ages; NaN before the first."""
        if self._samples.latest(self._row) < 0:
            values[:], ages[:] = np.nan, np.inf
            return
        values[:] = self._raw
        np.subtract(time.monotonic(), self._times, out=ages)
        np.maximum(ages, 0.0, out=ages)
        self.errors["counted by its worker"] = int(self._row[ERRORS])

    def command(self, values: Floats, at: float) -> None:
        """Pass values that the worker writes in its next cycle; it passes back those that the device has confirmed."""
        self._command[TIME], self._command[WHAT], self._values[:] = at, WRITE, values
        self._commands.publish(self._command)

    def write(self, values: Floats) -> None:
        """Pass values, as commanded now."""
        self.command(values, time.monotonic())

    def stand_in(self) -> RemoteDevice:
        """The same samples; commands go nowhere, and it has nothing to release."""
        assert self._memory is not None
        device = copy.copy(self)
        device.errors = self.errors.copy()
        device._memory = None
        device._use(self._memory, private_ring(self._commands.width))
        return device

    def make_safe(self) -> None:
        """Request the worker to write the safe values."""
        if self._memory is not None:
            self._memory.request_safe_values()

    def close(self) -> None:
        """Release the shared memory; the worker belongs to the supervisor."""
        if self._memory is not None:
            self._memory.close()
            self._memory = None


class Worker:
    """Reads and writes a device in turn. However it ends, it writes the device's safe values first."""

    def __init__(self, driver: Driver, memory: WorkerMemory, supervisor: int) -> None:
        self._driver, self._memory, self._supervisor = driver, memory, supervisor
        self._row, self._command = np.zeros(memory.samples.width), np.zeros(memory.commands.width)
        memory.samples.latest(self._row)
        self._counted = self._row[ERRORS]  # by earlier workers of this run
        self._raw, self._ages = self._row[memory.raw], np.zeros(len(driver.inputs))
        self._begun = time.monotonic()
        self._is_safe, self._safe_due = True, 0.0
        self._is_news = True
        """Whether safe values were written since the last turn: the loop must see that before others are written."""
        period = 1.0 / driver.config.rate
        self._looks = math.ceil(2.0 * period / driver.config.watchdog)
        """Checks of the commands' age per turn, so that the watchdog acts in time even if the rate is slow."""
        self._clock = GridClock(period / self._looks)

    def stop(self, *_: Any) -> None:
        """End after this cycle. May be called from a signal handler."""
        self._clock.stop()

    def run(self) -> None:
        """Serve the device until stopped or without commands. Raises DriverError if the device must not continue."""
        self._begun = time.monotonic()
        self._driver.open()
        try:
            self._driver.make_safe()
            send_report(ready=True)
            os.set_blocking(1, False)  # a supervisor that does not read must not stop the worker
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
                if not self._is_news:
                    self._write()
                    self._memory.heartbeat.beat()  # silence longer than one call is the driver's fault
                self._is_news = False
                self._read()
                report.send_if_due()

    def _keep_safe(self) -> None:
        """Take the latest command; write the safe values if it requests them or is too old."""
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
            self._driver.command(self._command[VALUES:], self._command[TIME])

    def _make_safe(self) -> None:
        """Write the safe values and set the time of the next write: soon after a failure (counted by the driver)."""
        self._driver.forget_confirmed()
        self._is_news = True
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
        self._driver.confirmed(self._row[self._memory.confirmed], self._row[self._memory.confirmed_at])
        self._memory.samples.publish(self._row)

    def _silence(self) -> float:
        """Seconds without a command."""
        return time.monotonic() - max(float(self._command[TIME]), self._begun)

    def _is_left_alone(self) -> bool:
        return self._silence() > ORPHAN_LINGER and os.getppid() != self._supervisor


def write_worker_file(setup: DeviceSetup, priority: int, path: Path) -> None:
    """Write the start data of a worker; only this user can read the file (it may contain passwords)."""
    path.touch(mode=0o600)
    path.write_text(json.dumps({"device": asdict(setup), "priority": priority}))


def serve(file: Path, supervisor: int, wait: Callable[[Driver], bool] = lambda driver: True) -> int:
    """The body of the worker process; returns its exit code. It opens the device once ``wait`` returns true."""
    text = json.loads(file.read_text())
    setup = DeviceSetup(**text["device"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        kind, config = setup.configured()
        driver = kind(setup.name, config, setup.inputs, setup.outputs)
        with contextlib.closing(WorkerMemory.attach(Path(setup.segment))) as memory:
            worker = Worker(driver, memory, supervisor)
            signal.signal(signal.SIGTERM, worker.stop)
            prepare(Scheduling(max(text["priority"] - PRIORITY_BELOW_LOOP, 1), lock_memory=False, freeze_gc=False))
            if wait(driver):
                memory.heartbeat.beat()  # a stand-by shows that it has begun
                worker.run()
    except HilserverError as error:
        send_report(error=str(error))
        return 1
    except Exception as error:
        send_report(error=f"device {setup.name}: internal error in its driver: {type(error).__name__}: {error}")
        raise
    return 0


if __name__ == "__main__":
    sys.exit(serve(Path(sys.argv[1]), int(sys.argv[2])))
