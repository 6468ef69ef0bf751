"""The simulated device as a separate process, with the watchdog that a real one should have; and the loop's side.

Two rings in one shared memory segment: readings (device -> loop) and commands (loop -> device), each row beginning with
its monotonic time. Without a command for the watchdog's time, the device sets its safe values without a request. The
readings are followed by the commands that the actuators follow, so that all processes can see the state of the device.

Forked by the supervisor, or started as ``python -m hilserver.realtime.simulated_device SETUP DEVICE PID``, where PID is
the supervisor's.
"""

from __future__ import annotations

import copy
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.compiler import program_for
from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.realtime.clock import GridClock
from hilserver.realtime.queues import Ring, private_ring
from hilserver.realtime.reports import arguments, send_report
from hilserver.realtime.scheduling import PRIORITY_BELOW_LOOP, Scheduling, prepare
from hilserver.realtime.segment import Segment, SharedMemoryError
from hilserver.realtime.setup import read_setup
from hilserver.tick.plant_records import actuators_on

ROWS = 64
START_TIMEOUT = 100.0
"""Seconds to wait for the device's process, which compiles components of the user's own at their first start."""
MIN_TICKS = 5
"""Ticks without a command after which a loop counts as gone at slow rates, however short the watchdog's time."""
ORPHAN_LINGER = 0.5
"""Seconds without a command after which a device without a supervisor terminates."""


class DeviceMemory:
    """The two rings between a simulated device and the loop; ``applied``: the readings' columns of commands."""

    def __init__(self, segment: Segment, n_inputs: int, n_outputs: int) -> None:
        width = 1 + n_inputs + n_outputs
        size = Ring.nbytes(width, ROWS)
        self._segment = segment
        self.readings = Ring(segment.buffer[:size], width, ROWS)
        self.commands = Ring(segment.buffer[size : size + Ring.nbytes(n_outputs + 1, ROWS)], n_outputs + 1, ROWS)
        self.applied = slice(1 + n_inputs, width)

    @classmethod
    def create(cls, path: Path, n_inputs: int, n_outputs: int) -> DeviceMemory:
        """New memory, owned by this process."""
        size = Ring.nbytes(1 + n_inputs + n_outputs, ROWS) + Ring.nbytes(n_outputs + 1, ROWS)
        return cls(Segment.create(path, size, (n_inputs, n_outputs)), n_inputs, n_outputs)

    @classmethod
    def attach(cls, path: Path) -> DeviceMemory:
        """The memory another process created."""
        segment = Segment.attach(path)
        return cls(segment, segment.shape[0], segment.shape[1])

    def close(self) -> None:
        """Release the segment."""
        self._segment.close()


class RemotePlant:
    """The loop's side: a plant for the simulated driver that runs in another process.

    Waits ``patience`` seconds for a device that is still starting. Raises SharedMemoryError if it does not appear.
    Ages are in seconds of the rig, of which ``speed`` pass per second of the clock.
    """

    def __init__(self, path: Path, safe: Floats, patience: float = START_TIMEOUT, speed: float = 1.0) -> None:
        self._memory = _attached(path, patience)
        self._commands = self._memory.commands
        self._reading = np.zeros(self._memory.readings.width)
        self._command = np.zeros(self._commands.width)
        self._samples = self._reading[1 : self._memory.applied.start]
        self._safe, self._speed = safe, speed

    def read(self, values: Floats, ages: Floats) -> None:
        """The device's last readings and their age."""
        if self._memory.readings.latest(self._reading) < 0:
            values[:], ages[:] = np.nan, np.inf
            return
        values[:] = self._samples
        ages[:] = max(time.monotonic() - self._reading[0], 0.0) * self._speed

    def write(self, values: Floats) -> None:
        """A command for the device."""
        self._command[0] = time.monotonic()
        self._command[1:] = values
        self._commands.publish(self._command)

    def make_safe(self) -> None:
        """The safe values as a command."""
        self.write(self._safe)

    def stand_in(self) -> RemotePlant:
        """The same readings; commands go nowhere."""
        plant = copy.copy(self)
        plant._reading, plant._command = self._reading.copy(), self._command.copy()
        plant._samples = plant._reading[1 : self._memory.applied.start]
        plant._commands = private_ring(self._commands.width)
        return plant

    def close(self) -> None:
        """Release the shared memory."""
        self._memory.close()


def _attached(path: Path, patience: float) -> DeviceMemory:
    """The device's memory, as soon as there is one; SharedMemoryError after ``patience`` seconds."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return DeviceMemory.attach(path)
        except SharedMemoryError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.02)


class SimulatedDevice:
    """A plant that is driven in real time by the commands in its memory, and its watchdog."""

    def __init__(self, setup_file: Path, name: str, supervisor: int) -> None:
        setup = read_setup(setup_file)
        device = next(d for d in setup.devices if d.name == name)
        self._plant, self._dt = setup.plants[name], float(setup.plan.loop[0].dt)
        self._period, self._speed = setup.period_s, setup.speed
        self._program = program_for(setup.own)

        self._watchdog, self._supervisor = float(device.configured()[1].watchdog), supervisor
        self._safe = actuators_on(self._plant.actuator)["safe"].copy()
        self._scheduling = setup.scheduling
        self._path, self._shape = Path(device.segment), (len(device.inputs), len(device.outputs))
        self._stopping = False

    def run(self) -> None:
        """Run until SIGTERM or the supervisor's death, then until commands stop, because a loop ramps to null first.

        Raises SharedMemoryError if another run of the rig uses the device.
        """
        memory = DeviceMemory.create(self._path, *self._shape)
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # lower priority than the loop: a real device does not use the loop's processor
        priority = max(self._scheduling.priority - PRIORITY_BELOW_LOOP, 1) if self._scheduling.priority else None
        prepare(Scheduling(priority, None, self._scheduling.lock_memory))
        send_report(ready=True)
        try:
            self._run(memory)
        finally:
            memory.close()

    def _run(self, memory: DeviceMemory) -> None:
        clock, got, row = GridClock(self._period), np.zeros(memory.commands.width), np.zeros(memory.readings.width)
        samples, command = row[1 : memory.applied.start], row[memory.applied]
        move = self._program.move.bound(self._plant, command, self._dt)
        sample = self._program.sample.bound(self._plant, samples)
        command[:], sent = self._safe, -np.inf
        while clock.wait():
            now = time.monotonic()
            for late in reversed(range(min(clock.missed, 1000) + 1)):  # under the command that held until now
                if self._is_too_old(now - late * self._period - sent):
                    command[:] = self._safe
                move()
                sample()
            sent = got[0] if memory.commands.latest(got) >= 0 else -np.inf
            silence = time.monotonic() - sent
            if self._is_over(silence):
                return
            command[:] = self._safe if self._is_too_old(silence) else got[1:]
            row[0] = time.monotonic()
            memory.readings.publish(row)

    def _is_too_old(self, silence: float) -> bool:
        """Whether the watchdog has acted after so many seconds of the clock without a command."""
        return silence * self._speed > self._watchdog

    def _is_over(self, silence: float) -> bool:
        if self._stopping:
            return silence > max(self._watchdog, MIN_TICKS * self._period)
        return silence > ORPHAN_LINGER and os.getppid() != self._supervisor

    def _stop(self, *_: Any) -> None:
        self._stopping = True


def simulate_device(setup_file: Path, name: str, supervisor: int) -> int:
    """The body of the device process; returns its exit code."""
    try:
        SimulatedDevice(setup_file, name, supervisor).run()
    except HilserverError as error:
        send_report(error=str(error))
        return 1
    return 0


def main() -> int:
    """The process; returns its exit code."""
    setup_file, name, supervisor = arguments()
    return simulate_device(Path(setup_file), name, int(supervisor))


if __name__ == "__main__":
    sys.exit(main())
