"""Carries out the operator's commands: checks them, prepares circuits outside the loop, posts records to the loop."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.circuit.pack import PackedCircuit
from hilserver.circuit.program import Program
from hilserver.compiler.circuit_code import address
from hilserver.errors import ConfigurationError, HilserverError
from hilserver.numerics.arrays import Floats, Integers
from hilserver.protocol.commands import Arm, ArmTrigger, BeginPlayout, CircuitCommand, Command, React, TriggerCommand
from hilserver.protocol.published import Answer
from hilserver.protocol.stopping import STOPPING
from hilserver.realtime.shared import LoopMemory
from hilserver.rig.end_of_running import columns_of, ending_now
from hilserver.rig.notes import unconnected_ports
from hilserver.rig.rig import Rig
from hilserver.service.command_translation import RowCommand, loop_command, loop_commands
from hilserver.service.loop_command import LoopCommand
from hilserver.service.refusals import invalid, refusal_text
from hilserver.service.running_circuit import RunningCircuit
from hilserver.service.switching import prepare_switch
from hilserver.service.telemetry import TelemetryReader
from hilserver.service.telemetry_samples import CIRCUITS_KEPT
from hilserver.service.triggers import TriggerTable
from hilserver.tick.codes import CommandKind, FaultCode, Mode, ResultCode
from hilserver.tick.program import no_command, work_array
from hilserver.tick.row import header, headers

ANSWER_TIMEOUT, MIN_LOOKS = 2.0, 100
"""Seconds that the loop has to take a command, and the minimum number of checks of its rows within this time."""
TRIAL_TICKS, MIN_TICKS, LONG_TRIAL = 100, 9, 0.5
"""Ticks in the trial of a circuit; the minimum before it ends because their total time is too long; this time, s."""
BUDGET = 0.5
"""Largest share of the tick for a circuit; above it a switch is refused, since it would cause missed ticks."""
NOT_RUNNING = "the real-time loop is not running yet."
SWITCHING = "the last switch is still waiting for the real-time loop."
WATCHED = 0.05
"""Seconds after a switch for which the movement of the commands is reported."""


class NotTaken(HilserverError):
    """The loop did not take a command in time; it may still take it."""


async def nothing(arm: Arm) -> tuple[str, ...]:
    """No reasons."""
    return ()


class Executor:
    """Executes one command at a time, and one of STOPPING beside it. ``running``: the circuit that the loop runs."""

    def __init__(self, rig: Rig, memory: LoopMemory, telemetry: TelemetryReader, program: Program) -> None:
        self.running = RunningCircuit(rig.circuit, rig.packed, 1, rig.settings.circuit)
        self.arming_warnings: Callable[[], tuple[str, ...]] = tuple
        """Warnings that the answer to ``arm`` contains."""
        self.arming_refusals: Callable[[Arm], Awaitable[tuple[str, ...]]] = nothing
        """Reasons for which ``arm`` is refused."""
        self.against: list[Callable[[Command], str | None]] = []
        """The reasons to refuse a command at present: its sender, or that nothing is recorded."""
        self.done: list[Callable[[Command], None]] = []
        """Called after each command that was carried out, other than those that change the circuit."""
        self.triggers: TriggerTable | None = None
        """Those of the recording."""
        self._posted: RunningCircuit | None = None
        self._stops = 0
        self._recent = deque([self.running], maxlen=CIRCUITS_KEPT)
        self._rig = rig
        self._memory = memory
        self._telemetry = telemetry
        self._program = program

    async def execute(self, command: Command) -> Answer:
        """Carry out a command, or refuse it with the reason. No command can stop the loop."""
        try:
            result = await self._carry_out(command)
        except ConfigurationError as error:
            return command.answer(time=time.time(), problems=[str(problem) for problem in error.problems])
        except HilserverError as error:
            return command.answer(time=time.time(), problems=[str(error)])
        return command.answer(time=time.time(), tick=result["tick"], result=result)

    def adopt(self, row: Floats) -> None:
        """Note where the loop has taken a posted circuit, even after its answer was given."""
        if self._posted is not None and header(row).circuit_version >= self._posted.version:
            self.running, self._posted = replace(self._posted, tick=int(header(row).tick)), None
            self._recent.append(self.running)

    async def use_code(self, circuit: RunningCircuit, file: Path) -> bool:
        """Let the loop run a circuit with its code, in this file; whether the loop still runs this circuit.

        Raises OSError if the file can't be loaded: it is loaded here first, so that the loop finds it in memory.
        """
        if self._posted is not None or circuit.version != self.running.version:
            return False
        address(circuit.packed.index, self._program, file)
        await self._post(LoopCommand(CommandKind.CODE, float(circuit.version), about={"file": str(file)}))
        return True

    def ran(self, version: int) -> RunningCircuit:
        """The circuit of this version; the present one where that is no longer known."""
        known = (*self._recent, self._posted)
        return next((circuit for circuit in known if circuit is not None and circuit.version == version), self.running)

    async def _carry_out(self, command: Command) -> dict[str, Any]:
        if isinstance(command, CircuitCommand):
            return await self._switch(command)
        self._stops += command.name in STOPPING
        for refusal in self.against:
            if reason := refusal(command):
                raise HilserverError(reason)
        if isinstance(command, TriggerCommand):
            return self._set_trigger(command)
        if isinstance(command, Arm):
            await self._check_before_arming(command)
        for order in self._orders(command):
            done = await self._post(order, command=command)
        for follow in self.done:
            follow(command)
        return {**done, "warnings": list(self.arming_warnings())} if isinstance(command, Arm) else done

    def _orders(self, command: Command) -> list[LoopCommand]:
        """What the loop receives of a command that leaves the circuit as it is."""
        if not isinstance(command, RowCommand):  # a stop asks for nothing else
            return [loop_command(self._rig, command)]
        row = self._telemetry.latest()
        if row is None:
            raise HilserverError(NOT_RUNNING)
        if self._posted is not None and isinstance(command, React | BeginPlayout):
            raise HilserverError(SWITCHING)
        packed = self.ran(int(header(row).circuit_version)).packed
        reactions, playouts = self._telemetry.reactions, self._telemetry.playouts
        return loop_commands(self._rig, command, packed, row, reactions, playouts)

    def _set_trigger(self, command: TriggerCommand) -> dict[str, Any]:
        """Arm or disarm a trigger of the recording: the loop knows nothing of it."""
        row = self._telemetry.latest()
        if row is None or self.triggers is None:
            raise HilserverError(NOT_RUNNING)
        if isinstance(command, ArmTrigger):
            self.triggers.arm(command, self.running.packed, int(header(row).tick))
        else:
            self.triggers.end(command)
        return {"mode": Mode(int(header(row).mode)).name, "tick": int(header(row).tick)}

    async def _check_before_arming(self, arm: Arm) -> None:
        """Raises HilserverError if there is a reason not to arm, or the rig was stopped during the check."""
        stops = self._stops
        reasons = await self.arming_refusals(arm)
        if self._stops > stops:
            reasons = ("overtaken by a stop, disarm or trip.",)
        if reasons:
            raise HilserverError(" ".join(reasons))

    # --- plain commands ----------------------------------------------------------------------------------------------

    async def _post(self, order: LoopCommand, payload: bytes = b"", command: Command | None = None) -> dict[str, Any]:
        """Post a command to the loop and wait for the tick that takes it. Raises HilserverError if it refuses."""
        if order.about is not None:
            payload = json.dumps(order.about).encode()
        cursor = self._telemetry.published
        row = await self._taken(self._memory.mailbox.post(order.record(), payload) + 1, cursor)
        self.adopt(row)
        result, mode = int(header(row).result), Mode(int(header(row).mode)).name
        if result != ResultCode.DONE and command is not None:
            violated = ending_now(self._rig, columns_of(self._rig, row[None]), 0)
            raise HilserverError(refusal_text(command, result, mode, violated))
        return {"mode": mode, "tick": int(header(row).tick)}

    async def _taken(self, number: int, cursor: int) -> Floats:
        """The row of the tick that took command ``number``, which is at or behind ``cursor``. Raises NotTaken."""
        deadline, looks = time.monotonic() + ANSWER_TIMEOUT, 0
        while time.monotonic() < deadline or looks < MIN_LOOKS:  # after a pause of this process, the loop has gone on
            looks += 1
            row = self._telemetry.latest()
            if row is not None and header(row).command >= number:
                rows = self._telemetry.since(cursor)
                taken: Floats = rows[int(np.argmax(headers(rows)["command"] >= number))]
                return taken
            await asyncio.sleep(0.001)
        raise NotTaken("the real-time loop did not accept the command in time: is it running?")

    # --- switching ---------------------------------------------------------------------------------------------------

    async def _switch(self, command: CircuitCommand) -> dict[str, Any]:
        """Prepare another circuit, try it on a copy, let the loop swap it in, and report how far the commands moved."""
        if self._posted is not None:
            raise HilserverError(SWITCHING)
        if command.version not in (None, self.running.version):
            raise HilserverError(
                f"somebody else has changed the circuit meanwhile: version {self.running.version} is active, and this "
                f"change was made for version {command.version}."
            )
        began, before = time.monotonic(), self.running.circuit
        new, payload = await asyncio.to_thread(self._prepare, command)
        prepared = time.monotonic() - began
        cursor = self._telemetry.published
        self._telemetry.samples.expect(new.version, new.packed)
        stays = float(new.packed.names == self.running.packed.names)
        self._posted = new
        try:
            done = await self._post(LoopCommand(CommandKind.SWAP, float(new.version), stays), payload, command)
        except NotTaken:
            raise
        except HilserverError:
            self._posted = None
            raise
        active, known = time.monotonic() - began, set(unconnected_ports(self._rig, before))
        await asyncio.sleep(WATCHED)
        return {
            **done,
            "version": new.version,
            "prepared_ms": 1e3 * prepared,
            "active_ms": 1e3 * active,
            **self._effect(self._telemetry.since(max(cursor - 1, 0)), done["tick"]),
            "warnings": [text for text in unconnected_ports(self._rig, new.circuit) if text not in known],
        }

    def _prepare(self, command: CircuitCommand) -> tuple[RunningCircuit, bytes]:
        """Prepare a switch and try it; returns the circuit and the mailbox's payload. Runs in a separate thread."""
        row, running = self._telemetry.latest(), self.running
        if row is None:
            raise HilserverError(NOT_RUNNING)
        new = prepare_switch(self._rig, self._program, running.circuit, running.packed, row, command)
        payload, room = new.payload(), self._memory.mailbox.payload_bytes
        if len(payload) > room:
            raise HilserverError(f"the circuit is too large: {len(payload)} bytes packed, at most {room} are possible.")
        self._try(new.packed, new.carried)
        file = new.change.file if new.change.whole else running.file
        return RunningCircuit(new.circuit, new.packed, running.version + 1, file), payload

    def _effect(self, rows: Floats, tick: int) -> dict[str, Any]:
        """How far each valve's or actuator's command moved at most since the row before ``tick``, in % of its range.

        And the number of missed ticks.
        """
        after = headers(rows)["tick"] >= tick
        before = rows[~after][-1] if not after.all() else rows[0]
        columns = {valve: self._rig.layout.column(f"valve.{valve}.command") for valve in self._rig.layout.valves}
        spans = {name: 0.01 * (a.range[1] - a.range[0]) for name, a in self._rig.settings.actuators.items()}
        moved = {valve: 50.0 * float(np.abs(rows[after, k] - before[k]).max()) for valve, k in columns.items()}
        for name, span in spans.items():
            column = self._rig.layout.column(f"actuator.{name}.command")
            moved[name] = float(np.abs(rows[after, column] - before[column]).max()) / span
        return {"command_moved_percent": moved, "missed_ticks": int(headers(rows)["missed"][after].sum())}

    def _try(self, packed: PackedCircuit, carried: Integers) -> None:
        """Step a copy of the running row with the new circuit. Raises HilserverError if it diverges or is too slow."""
        row = self._telemetry.latest()
        if row is None:
            raise HilserverError(NOT_RUNNING)
        plan, period = self._rig.plan, 1.0 / self._rig.clock_rate
        work = work_array(packed, self._rig.plan)
        self._program.swap(plan.block, row, packed.index, packed.value, carried, work)
        head = header(row)
        head.missed, head.heartbeat_age, head.device_error = 0, 0.0, 0
        if head.mode != Mode.RUNNING:  # a fault of the rig must not hide one of the circuit
            head.mode, head.fault = Mode.SAFE, FaultCode.NONE
        took: list[float] = []
        while len(took) < MIN_TICKS or (len(took) < TRIAL_TICKS and sum(took) < LONG_TRIAL):
            head.tick += 1
            began = time.thread_time()  # CPU time of this thread only
            self._program.tick(plan.block, packed.index, packed.value, row, work, no_command())
            took.append(time.thread_time() - began)
            if head.fault == FaultCode.DIVERGED:
                raise invalid(
                    "solver",
                    "the circuit diverges when it is tested from the present state: "
                    "use more substeps, or the rosenbrock integrator.",
                )
        typical = float(np.percentile(took, 25))  # other processes, which share its caches, only add to it
        if typical > BUDGET * period:
            raise invalid(
                "solver.substeps",
                f"a tick would take {typical * 1e6:.0f} µs of {period * 1e6:.0f} µs: "
                "use fewer substeps or a smaller circuit.",
            )
