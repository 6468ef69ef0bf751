"""The real-time process: wait, read, tick, write, publish. One thread, no asyncio, no compiler, no garbage collection.

Forked by ``hilserver run``, or started as ``python -m hilserver.realtime.process SEGMENT SETUP``; reports ``ready`` and
what the operating system did not grant on its standard output, as JSON lines.

It terminates in an orderly way at the supervisor's request, after the supervisor's death and on SIGTERM: the valves
ramp to null first.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.circuit.engine import CODE
from hilserver.circuit.program import Program
from hilserver.compiler import program_for
from hilserver.compiler.circuit_code import address
from hilserver.driver import Driver, Pace, Plant, SampleSource
from hilserver.errors import DriverError, HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.realtime.clock import GridClock, RehearsingClock
from hilserver.realtime.devices import ADVICE, DeviceSetup
from hilserver.realtime.queues import Bytes, Mailbox
from hilserver.realtime.reports import FailureReport, arguments, send_report
from hilserver.realtime.scan import HEARTBEAT_AGE, LoopDevice, Scan
from hilserver.realtime.scheduling import prepare
from hilserver.realtime.setup import Setup, read_setup, read_swap_payload
from hilserver.realtime.shared import LoopMemory
from hilserver.realtime.simulated_device import START_TIMEOUT, RemotePlant
from hilserver.realtime.worker import RemoteDevice
from hilserver.tick.codes import CommandKind
from hilserver.tick.plan import Plan
from hilserver.tick.program import no_command, work_needed
from hilserver.tick.row import ACTUATOR_CELLS, ActuatorState, command_in, valve_columns

ORPHAN_LINGER = 2.0
"""Seconds beyond the heartbeat's timeout after which a loop without a supervisor terminates."""
RAMP_MARGIN = 0.5
"""Seconds by which a ramp to null may exceed its expected time before the loop terminates in any case."""


class Loop:
    """The loop and its state: the row, the packed circuit, the devices."""

    def __init__(self, setup: Setup, program: Program, memory: LoopMemory) -> None:
        self.plan, self.index, self.value = setup.plan, setup.index, setup.value
        self.row, self._copy = setup.row, setup.row.copy()
        self.clock = RehearsingClock(setup.period_s, self.rehearse) if setup.rehearsal else GridClock(setup.period_s)
        self.devices: list[LoopDevice] = []
        self._stand_ins: list[LoopDevice] = []
        self._reports: list[FailureReport] = []
        self._program = program
        self._memory = memory
        self._speed = setup.speed
        self._work = np.zeros(work_needed(self.index, self.plan))
        self._command = no_command()
        self._nothing = no_command()
        self._commands, self._at_rest = commands_at_rest(self.plan)
        self._heartbeat_limit = float(self.plan.loop[0].heartbeat_timeout) + ORPHAN_LINGER
        self._last_tick: int | None = None
        self._abandoned = False
        self.scan = Scan(self.row, self.devices, self._silence, self._tick, self._publish)
        self.rehearsed = Scan(self._copy, self._stand_ins, self._silence, self._tick_on_copy, self._prepare_publishing)
        self._no_mail = Mailbox(memoryview(bytearray(Mailbox.nbytes(2, 0))), 2, 0)
        self._bind()

    def _bind(self) -> None:
        """The tick with the present circuit: without a command, with one, and on the copy of the row."""
        arguments = (self.plan.block, self.index, self.value, self.row, self._work)
        self._tick_alone = self._program.tick.bound(*arguments, self._nothing)
        self._tick_with_command = self._program.tick.bound(*arguments, self._command)
        on_copy = (self.plan.block, self.index, self.value, self._copy, self._work)
        self._rehearse_tick = self._program.tick.bound(*on_copy, self._nothing)

    def warm_up(self) -> None:
        """Call tick and swap once on copies, so that their code is in memory."""
        row, nowhere = self.row.copy(), np.full(len(self.row), -1, dtype=np.int64)
        self._program.tick(self.plan.block, self.index, self.value, row, self._work, self._nothing)
        self._program.swap(self.plan.block, row, self.index, self.value, nowhere, self._work)

    def open(self, setups: Sequence[DeviceSetup]) -> None:
        """Open all devices and write their safe values. Raises DriverError; close() makes those already open safe."""
        for setup in setups:
            driver = make_driver(setup, speed=self._speed)
            device = LoopDevice(setup, driver, self.row, self.plan.layout[0], self._speed)
            device.driver.open()
            self.devices.append(device)
            self._stand_ins.append(LoopDevice(setup, driver.stand_in(), self._copy, self.plan.layout[0], self._speed))
            device.driver.make_safe()
            if not setup.slow:  # an I/O process reports its failures itself
                self._reports.append(FailureReport(device.driver))

    def close(self) -> bool:
        """Write the safe values of every device, even after errors, and release it; False if a device failed."""
        worked = True
        for device in self.devices:
            for action in (device.driver.make_safe, device.driver.close):
                try:
                    action()
                except Exception as error:  # the other devices must have their safe values regardless of this one
                    send_report(error=f"device {device.driver.name}: {error}")
                    worked = False
        return worked

    def abandon(self, *_: Any) -> None:
        """Ramp to null and terminate, as without a supervisor. May be called from a signal handler."""
        self._abandoned = True

    def run(self) -> None:
        """Tick until a stop is requested or the supervisor has died; the valves ramp to null before the end."""
        clock, scan = self.clock, self.scan
        clock.start(delay_s=2.0 * clock.period_s)
        while clock.wait():
            scan.run(clock)
            if self._is_over():
                break
            scan.note_times()

    def _publish(self) -> None:
        """The row for recorder and supervisor, the heartbeat, and the failures of devices."""
        self._memory.ring.publish(self.row)
        self._memory.loop_heartbeat.beat()
        for report in self._reports:
            report.send_if_due()

    def _silence(self) -> float:
        """Age of the supervisor's heartbeat; infinite when the loop is to terminate, so that the tick ramps to null."""
        if self._abandoned or self._memory.info.stop_requested:
            return np.inf
        return self._memory.supervisor_heartbeat.age()

    def _is_over(self) -> bool:
        """Whether the loop may terminate: all commands have reached their safe values or a timeout has passed."""
        if self.row[HEARTBEAT_AGE] <= self._heartbeat_limit:
            self._last_tick = None
            return False
        if self._last_tick is None:
            self._last_tick = self.clock.tick + round(ramp_time(self.plan) / float(self.plan.loop[0].dt))
        return np.array_equal(self.row[self._commands], self._at_rest) or self.clock.tick > self._last_tick

    def _tick(self) -> None:
        """One tick, with at most one command from the mailbox."""
        message = self._memory.mailbox.take()
        if message is None:
            self._tick_alone()
            return
        self._command[:] = message.record
        order = command_in(self._command)
        order.sequence = message.sequence + 1  # 0 stands for none
        if order.kind == CommandKind.SWAP:
            self._swap(message.payload)
        elif order.kind == CommandKind.CODE:
            self._use_code(message.payload)
        self._tick_with_command()

    # --- rehearsal ---------------------------------------------------------------------------------------------------

    def rehearse(self) -> None:
        """The next scan on a copy of the row, without an effect: then its code and data are in the processor's caches.

        For the loop it is a scan of its own with stand-ins of the devices, an empty mailbox, and no command. If it
        fails, because of a stand-in, the loop continues without rehearsals.
        """
        try:
            np.copyto(self._copy, self.row)
            self.rehearsed.run(self.clock)
            self.rehearsed.note_times()
        except Exception as error:  # whatever a driver of somebody else raises
            self.rehearse_no_more()
            send_report(warning=f"ticks are no longer rehearsed: {type(error).__name__}: {error}")

    def rehearse_no_more(self) -> None:
        """Wait for the ticks without rehearsing them."""
        if isinstance(self.clock, RehearsingClock):
            self.clock.rehearse_no_more()

    def _tick_on_copy(self) -> None:
        self._no_mail.take()
        self._rehearse_tick()

    def _prepare_publishing(self) -> None:
        self._memory.ring.prepare(self._copy)

    # --- another circuit ---------------------------------------------------------------------------------------------

    def _swap(self, payload: Bytes) -> None:
        """Replace the running circuit by the packed circuit of a message."""
        self.index, self.value, source = read_swap_payload(payload)
        needed = work_needed(self.index, self.plan)
        if needed > len(self._work):
            self._work = np.zeros(needed)
        self._program.swap(self.plan.block, self.row, self.index, self.value, source, self._work)
        self._bind()

    def _use_code(self, payload: Bytes) -> None:
        """Integrate with the code compiled for the running circuit, in the file of a message, which takes 0.25 ms.

        Code of a circuit that has been replaced in the meantime is not used.
        """
        file = Path(json.loads(payload.tobytes())["file"])
        with contextlib.suppress(HilserverError, OSError):
            self.index[CODE] = address(self.index, self._program, file)


def commands_at_rest(plan: Plan) -> tuple[list[int], Floats]:
    """Columns of the commands of valves and actuators and of the other outputs, and their values at rest."""
    layout, place = plan.layout[0], ActuatorState.names().index("command")
    moved = [int(layout.actuator) + i * ACTUATOR_CELLS + place for i in range(len(plan.actuator))]
    others = range(int(layout.output), int(layout.output) + len(plan.output))
    values = np.concatenate([plan.valve["safe_value"], plan.actuator["safe_value"], plan.output["off"]])
    return [*valve_columns(plan, "command"), *moved, *others], np.asarray(values, dtype=np.float64)


def ramp_time(plan: Plan) -> float:
    """Seconds within which every valve and actuator reaches its safe command, and every other output is off."""
    v, a = plan.valve, plan.actuator
    ways = np.maximum(v["u_max"] - v["safe_value"], v["safe_value"] - v["u_min"])
    moves = np.maximum(a["highest"] - a["safe_value"], a["safe_value"] - a["lowest"])
    durations = (ways / v["stop_rate"], moves / a["return_rate"], plan.output["off_delay"])
    return float(max(each.max(initial=0.0) for each in durations)) + RAMP_MARGIN


class _LoopHost:
    """The objects that the loop provides for drivers: the plant of a device simulated in a separate process."""

    def __init__(self, setup: DeviceSetup, patience: float, speed: float) -> None:
        self._setup, self._patience, self._speed = setup, patience, speed

    def plant(self, device: str, config: Any, outputs: Sequence[str]) -> Plant:
        """The plant in the device's process; waits for it."""
        safe = np.array([config.actuators[name].safe for name in outputs], dtype=np.float64)
        return RemotePlant(Path(self._setup.segment), safe, self._patience, self._speed)

    def samples(self, device: str) -> SampleSource:
        """Raises DriverError, because a real-time run has no recorded samples."""
        raise DriverError(
            f"device {device}: driver {self._setup.driver} is for hilserver replay, not for a real-time run."
        )


def make_driver(setup: DeviceSetup, patience: float = START_TIMEOUT, speed: float = 1.0) -> Driver:
    """The driver of a device, not opened yet; for a slow device its substitute in the loop.

    Waits up to ``patience`` seconds for the process of a simulated device, which runs at ``speed``.
    """
    kind, config = setup.configured()
    if kind.pace is Pace.SLOW:
        return RemoteDevice(setup)
    return kind.create(_LoopHost(setup, patience, speed), setup.name, config, setup.inputs, setup.outputs)


def make_devices_safe(setup_file: Path) -> list[str]:
    """Write the safe values of every device that the loop itself wrote; for the supervisor, after the loop's death.

    Slow devices have I/O processes, which continue. Returns the failures, in sentences.
    """
    failures = []
    for setup in read_setup(setup_file).devices:
        if setup.slow:
            continue
        try:
            with contextlib.closing(make_driver(setup, patience=0.0)) as driver:
                driver.open()
                driver.make_safe()
        except Exception as error:  # the other devices must have their safe values regardless of this one
            failures.append(
                f"device {setup.name} could not be set to its safe values: {str(error).rstrip('.')}. {ADVICE}"
            )
    return failures


def run_loop(segment: Path, setup_file: Path) -> int:
    """The body of the real-time process; returns its exit code."""
    try:
        setup, memory = read_setup(setup_file), LoopMemory.attach(segment)
        loop = Loop(setup, program_for(setup.own), memory)
        loop.warm_up()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor handles Ctrl-C and stops the loop
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        try:
            loop.open(setup.devices)
            signal.signal(signal.SIGTERM, loop.abandon)
            degradations = prepare(setup.scheduling)
            if os.sched_getscheduler(0) != os.SCHED_FIFO:  # rehearsals would cost it its turn
                loop.rehearse_no_more()
            os.set_blocking(1, False)  # a supervisor that does not read must not stop the loop
            memory.info.loop_pid = os.getpid()
            send_report(ready=True, degradations=[str(d) for d in degradations])
            loop.run()
        finally:
            are_safe = loop.close()
            memory.info.loop_pid = 0
    except HilserverError as error:
        send_report(error=str(error))
        return 1
    return 0 if are_safe else 1


def main() -> int:
    """The process; returns its exit code."""
    segment, setup = arguments()
    return run_loop(Path(segment), Path(setup))


if __name__ == "__main__":
    sys.exit(main())
