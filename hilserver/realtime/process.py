"""The real-time process: wait, read, tick, write, publish. One thread, no asyncio, no compilation, no garbage collection.

Started by the supervisor as ``python -m hilserver.realtime.process SEGMENT SETUP``; says ``ready`` and what it could not
get from the system on its standard output, as JSON lines.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import numpy as np

from hilserver.circuit.library import standard_library
from hilserver.circuit.program import Program
from hilserver.driver import Driver, driver_named
from hilserver.errors import DriverError, HilserverError
from hilserver.numerics.arrays import Floats, Integers
from hilserver.realtime.clock import GridClock
from hilserver.realtime.compiled import compiled_program, no_command
from hilserver.realtime.device import RemotePlant
from hilserver.realtime.scheduling import prepare
from hilserver.realtime.setup import Bytes, DeviceSetup, Setup, read_setup, read_swap_payload, work_needed
from hilserver.realtime.shared import LoopMemory
from hilserver.rig import columns as c

ORPHAN_LINGER = 2.0
"""Seconds after the heartbeat's time-out in which the ramp to null ends; then a loop without a supervisor ends itself."""


class Device:
    """A driver with its place in the row: reads straight into the row's raw section, writes from the valves' outputs."""

    def __init__(self, setup: DeviceSetup, driver: Driver, row: Floats, layout: Integers) -> None:
        first, last = setup.first_slot, setup.first_slot + len(setup.inputs)
        self.driver = driver
        self._raw = row[layout[c.RAW] + first : layout[c.RAW] + last]
        self._ages = row[layout[c.AGE] + first : layout[c.AGE] + last]
        self._columns = np.array(setup.output_columns, dtype=np.int64)
        self._out = np.zeros(len(setup.output_columns))
        self._row = row

    def read(self) -> bool:
        """Fill raw values and ages; False where the device failed: its samples are missing then."""
        try:
            self.driver.read(self._raw, self._ages)
        except DriverError:
            self._raw[:], self._ages[:] = np.nan, np.inf
            return False
        return True

    def write(self) -> bool:
        """Write the valves' raw outputs; False where the device failed."""
        np.take(self._row, self._columns, out=self._out)
        try:
            self.driver.write(self._out)
        except DriverError:
            return False
        return True


class Loop:
    """The loop and its state: the row, the packed circuit, the devices."""

    def __init__(self, setup: Setup, program: Program, memory: LoopMemory) -> None:
        self.plan, self.index, self.value = setup.plan, setup.index, setup.value
        self.row = setup.row
        self._program = program
        self._memory = memory
        self._space = int(self.plan.layout[c.CIRCUIT_SPACE])
        self._work = np.zeros(work_needed(self.index, self._space))
        self._command = no_command()
        self._nothing = no_command()
        self.clock = GridClock(float(self.plan.loop[c.DT]))
        self.devices: list[Device] = []

    def warm_up(self) -> None:
        """Compile (or load) tick and swap on copies, so that nothing is compiled in the loop."""
        row, work = self.row.copy(), self._work.copy()
        self._program.tick(self.plan, self.index, self.value, row, work, no_command())
        source = np.full(len(row), -1, dtype=np.int64)
        self._program.swap(self.plan, row, self.index, self.value, source, work)

    def open(self, setups: Sequence[DeviceSetup]) -> None:
        """Open all devices and write their safe values. Raises DriverError, with those already open made safe again."""
        for setup in setups:
            driver = make_driver(setup)
            self.devices.append(Device(setup, driver, self.row, self.plan.layout))
            driver.open()
            driver.make_safe()

    def close(self) -> None:
        """Safe values first, on every device, whatever happened before; then let go of them."""
        for device in self.devices:
            for action in (device.driver.make_safe, device.driver.close):
                try:
                    action()
                except HilserverError as error:
                    print(json.dumps({"error": str(error)}), flush=True)

    def run(self) -> None:
        """Tick until the clock is stopped, a stop is asked for, or the supervisor is gone for good."""
        row, clock, memory, ns = self.row, self.clock, self._memory, time.monotonic_ns
        patience = float(self.plan.loop[c.HEARTBEAT_TIMEOUT]) + ORPHAN_LINGER
        failed = False
        clock.start(delay_s=2.0 * clock.period_s)
        while clock.wait():
            begin = ns()
            row[c.TICK], row[c.MISSED], row[c.WAKE_ERROR] = clock.tick, clock.missed, clock.wake_error
            row[c.UTC], row[c.HEARTBEAT_AGE] = time.time(), memory.supervisor_heartbeat.age()
            for device in self.devices:
                failed |= not device.read()
            row[c.DEVICE_ERROR] = failed
            read = ns()
            self._tick()
            computed = ns()
            failed = False
            for device in self.devices:
                failed |= not device.write()
            written = ns()
            memory.ring.publish(row)
            memory.loop_heartbeat.beat()
            row[c.READ_TIME], row[c.COMPUTE_TIME], row[c.WRITE_TIME] = (
                (read - begin) * 1e-9,
                (computed - read) * 1e-9,
                (written - computed) * 1e-9,
            )
            if memory.info.stop_requested or row[c.HEARTBEAT_AGE] > patience:
                break

    def _tick(self) -> None:
        """One tick, with at most one command from the mailbox."""
        message = self._memory.mailbox.take()
        command = self._nothing
        if message is not None:
            command = self._command
            command[:] = message.record
            command[c.COMMAND_SEQUENCE] = message.sequence + 1  # 0 stands for none
            if command[c.COMMAND_KIND] == c.SWAP:
                self._swap(message.payload)
        self._program.tick(self.plan, self.index, self.value, self.row, self._work, command)

    def _swap(self, payload: Bytes) -> None:
        """Let the packed circuit of a message take the place of the running one."""
        self.index, self.value, source = read_swap_payload(payload)
        needed = work_needed(self.index, self._space)
        if needed > len(self._work):
            self._work = np.zeros(needed)
        self._program.swap(self.plan, self.row, self.index, self.value, source, self._work)


def make_driver(setup: DeviceSetup) -> Driver:
    """The driver of a device, not opened yet. A simulated rig is reached through its process' shared memory."""
    kind = driver_named(setup.driver, f"devices.{setup.name}.driver")
    config = kind.Config.model_validate(setup.settings, context={"folder": setup.folder})
    arguments = (setup.name, config, setup.inputs, setup.outputs)
    if kind.handed == "plant":
        safe = np.array([config.actuators[name].safe for name in setup.outputs], dtype=np.float64)  # type: ignore[attr-defined]
        return kind(*arguments, plant=RemotePlant(Path(setup.segment), safe))  # type: ignore[call-arg]
    if kind.handed:
        raise DriverError(f"device {setup.name}: driver {setup.driver} is for hilserver replay, not for a real-time run")
    return kind(*arguments)


def make_devices_safe(setup_file: Path) -> None:
    """Write every device's safe values and let go of it; for the supervisor, when the real-time process is dead."""
    for setup in read_setup(setup_file).devices:
        driver = make_driver(setup)
        try:
            driver.open()
        finally:
            driver.make_safe()
            driver.close()


def run_loop(segment: Path, setup_file: Path) -> int:
    """The body of the real-time process; returns its exit code."""
    setup = read_setup(setup_file)
    memory = LoopMemory.attach(segment)
    loop = Loop(setup, compiled_program(standard_library()), memory)

    def stop(number: int, frame: FrameType | None) -> None:
        loop.clock.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the supervisor stops the loop in order
    loop.warm_up()
    try:
        loop.open(setup.devices)
        degradations = prepare(setup.scheduling)
        memory.info.loop_pid = os.getpid()
        print(json.dumps({"ready": True, "degradations": [str(d) for d in degradations]}), flush=True)
        loop.run()
    except HilserverError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 1
    finally:
        loop.close()
    return 0


if __name__ == "__main__":
    sys.exit(run_loop(Path(sys.argv[1]), Path(sys.argv[2])))
