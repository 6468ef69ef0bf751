"""The simulated device as a process of its own, with the watchdog a real one should have; and the loop's side of it.

Two rings in one shared memory segment: readings (device -> loop) and commands (loop -> device), each row beginning with its
monotonic time. When no command came for the watchdog's time, the device goes to its safe values by itself.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from hilserver.circuit.library import standard_library
from hilserver.driver import driver_named
from hilserver.numerics.arrays import Floats
from hilserver.realtime.clock import GridClock
from hilserver.realtime.compiled import compiled_program
from hilserver.realtime.scheduling import Scheduling, prepare
from hilserver.realtime.setup import DeviceSetup, read_setup
from hilserver.realtime.shared import Ring, Segment, SharedMemoryError
from hilserver.rig import columns as c
from hilserver.rig.plant import SAFE_RAW

ROWS = 64
START_TIMEOUT = 100.0
"""Seconds to wait for the device's process: the first start on a machine compiles the circuit engine."""
ORPHAN_LINGER = 3.0
"""Seconds without a command after which a device without a supervisor ends."""


class DeviceMemory:
    """The two rings between a simulated device and the loop."""

    def __init__(self, segment: Segment, n_inputs: int, n_outputs: int) -> None:
        size = Ring.nbytes(n_inputs + 1, ROWS)
        self._segment = segment
        self.readings = Ring(segment.buffer[:size], n_inputs + 1, ROWS)
        self.commands = Ring(segment.buffer[size : size + Ring.nbytes(n_outputs + 1, ROWS)], n_outputs + 1, ROWS)

    @classmethod
    def create(cls, path: Path, n_inputs: int, n_outputs: int) -> DeviceMemory:
        """New memory, owned by this process."""
        size = Ring.nbytes(n_inputs + 1, ROWS) + Ring.nbytes(n_outputs + 1, ROWS)
        return cls(Segment.create(path, size, (n_inputs, n_outputs)), n_inputs, n_outputs)

    @classmethod
    def attach(cls, path: Path) -> DeviceMemory:
        """The memory another process created."""
        segment = Segment.attach(path)
        return cls(segment, segment.shape[0], segment.shape[1])

    def close(self) -> None:
        """Let go of the segment."""
        self._segment.close()


class RemotePlant:
    """The loop's side: a plant for the simulated driver that lives in another process."""

    def __init__(self, path: Path, safe: Floats) -> None:
        self._memory = _attach_when_there(path)
        self._reading = np.zeros(self._memory.readings.width)
        self._command = np.zeros(self._memory.commands.width)
        self._safe = safe

    def read(self, values: Floats, ages: Floats) -> None:
        """The device's last readings and their age."""
        if self._memory.readings.latest(self._reading) < 0:
            values[:], ages[:] = np.nan, np.inf
            return
        values[:] = self._reading[1:]
        ages[:] = max(time.monotonic() - self._reading[0], 0.0)

    def write(self, values: Floats) -> None:
        """A command for the device."""
        self._command[0] = time.monotonic()
        self._command[1:] = values
        self._memory.commands.publish(self._command)

    def make_safe(self) -> None:
        """The safe values as a command."""
        self.write(self._safe)

    def close(self) -> None:
        """Let go of the shared memory."""
        self._memory.close()


def _attach_when_there(path: Path) -> DeviceMemory:
    """Attach to a device that may still be starting. Raises SharedMemoryError where it does not come."""
    deadline = time.monotonic() + START_TIMEOUT
    while True:
        try:
            return DeviceMemory.attach(path)
        except SharedMemoryError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def simulate_device(setup_file: Path, name: str) -> None:
    """Run simulated device ``name`` in real time until SIGTERM or until the supervisor is gone. The body of the process."""
    setup = read_setup(setup_file)
    device = next(d for d in setup.devices if d.name == name)
    plant, dt = setup.plants[name], float(setup.plan.loop[c.DT])
    program = compiled_program(standard_library())
    raw, command = np.zeros(len(device.inputs)), np.zeros(len(device.outputs))
    safe = plant.actuator[:, SAFE_RAW].copy()
    program.sample(plant._replace(line=plant.line.copy(), count=plant.count.copy()), raw)
    program.move(plant._replace(values=plant.values.copy()), safe, dt)
    memory = DeviceMemory.create(Path(device.segment), len(raw), len(command))
    clock = GridClock(dt)
    signal.signal(signal.SIGTERM, lambda *_: clock.stop())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    priority = max(setup.scheduling.priority - 10, 1) if setup.scheduling.priority else None
    prepare(Scheduling(priority, None, setup.scheduling.lock_memory))
    print(json.dumps({"ready": True}), flush=True)
    parent, watchdog = os.getppid(), _watchdog(device)
    row, got = np.zeros(len(raw) + 1), np.zeros(len(command) + 1)
    clock.start()
    while clock.wait():
        silence = time.monotonic() - got[0] if memory.commands.latest(got) >= 0 else np.inf
        fresh = silence <= watchdog
        if silence > ORPHAN_LINGER and os.getppid() != parent:
            break
        command[:] = got[1:] if fresh else safe
        for _ in range(min(clock.missed, 1000) + 1):
            program.move(plant, command, dt)
        program.sample(plant, raw)
        row[0], row[1:] = time.monotonic(), raw
        memory.readings.publish(row)
    memory.close()


def _watchdog(device: DeviceSetup) -> float:
    return float(driver_named(device.driver).Config.model_validate(device.settings).watchdog)  # type: ignore[attr-defined]


if __name__ == "__main__":
    simulate_device(Path(sys.argv[1]), sys.argv[2])
