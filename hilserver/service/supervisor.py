"""The supervisor: starts and monitors the processes of a run, sends the heartbeat, serves MQTT; asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import shutil
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hilserver.circuit.catalogue import component_types
from hilserver.circuit.program import Program
from hilserver.compiler import compiled_program, is_compiled
from hilserver.margins.solver import solver_warning
from hilserver.protocol import commands
from hilserver.protocol.accounts import SERVER, Accounts
from hilserver.protocol.address import BrokerAddress
from hilserver.protocol.description import describe
from hilserver.protocol.published import Event, OperatorDescription
from hilserver.protocol.running import announce, withdraw, working_folder
from hilserver.realtime.rig_setup import loop_memory_shape
from hilserver.realtime.segment import UNMAP_EVERY, SharedMemoryError
from hilserver.realtime.segment_folder import other_users, segment_path
from hilserver.realtime.shared import LoopMemory
from hilserver.rig.rig import Rig
from hilserver.service.broker import EmbeddedBroker
from hilserver.service.change_point_watch import ChangePointWatch
from hilserver.service.children import Child, Prepared, all_ready
from hilserver.service.compiled_circuit import CompiledCircuit, may_take_over
from hilserver.service.descriptions import (
    actuator_descriptions,
    channel_descriptions,
    input_descriptions,
    valve_descriptions,
)
from hilserver.service.executor import Executor
from hilserver.service.flood import cut_off
from hilserver.service.held_inputs import HeldInputs
from hilserver.service.loop_processes import LoopProcesses, end_predecessor
from hilserver.service.mqtt import MqttService
from hilserver.service.notify import Notifier
from hilserver.service.operator_link import OperatorLink
from hilserver.service.publisher import Publisher
from hilserver.service.recording import RecorderProcess
from hilserver.service.recording_watch import RecordingWatch
from hilserver.service.restarts import STABLE_AFTER, Restarts
from hilserver.service.telemetry import TelemetryReader
from hilserver.service.troubles import Tell
from hilserver.tick.codes import Mode
from hilserver.tick.row import header

if TYPE_CHECKING:
    from hilserver.service.arming_check import ArmingCheck

_log = logging.getLogger(__name__)
BEAT = 0.02
"""Seconds between two beats of the heartbeat, which shows the loop that this process works."""
LAST_MESSAGES_TIMEOUT = 0.3
"""Seconds for sending the last messages."""


@dataclass(frozen=True)
class ServerRun:
    """What runs, once all of it has started. ``address`` is for clients: that of an embedded broker has no login."""

    rig: Rig
    address: BrokerAddress
    telemetry: TelemetryReader
    executor: Executor
    check: ArmingCheck
    recording: RecorderProcess
    processes: LoopProcesses
    mqtt: MqttService
    publisher: Publisher


class Supervisor:
    """A run of a rig in real time. ``await run()`` returns its exit code after a stop, or when the loop has died.

    It is made in an event loop. ``attended``: this program operates the rig itself; then no link to another operator is
    required.
    """

    def __init__(
        self,
        rig: Rig,
        notifier: Notifier | None = None,
        restarts: Restarts | None = None,
        prepared: Prepared | None = None,
        *,
        attended: bool = False,
    ) -> None:
        self.rig = rig
        self._attended = attended
        self._prepared = prepared or Prepared()
        self._notifier = notifier or Notifier()
        self._restarts = restarts or Restarts(None)
        self._started: asyncio.Future[ServerRun] = asyncio.get_running_loop().create_future()
        self._recording: RecorderProcess | None = None
        self._stop = asyncio.Event()

    @property
    def log_file(self) -> Path | None:
        """The log that is being written; another one after a restart of the recorder."""
        return self._recording.log_file if self._recording is not None else None

    async def started(self) -> ServerRun:
        """Wait until everything has started; a first start also compiles the program."""
        return await asyncio.shield(self._started)

    async def until_it_can_be_armed(self) -> ServerRun:
        """Wait until it has started and simulated its circuit."""
        run = await self.started()
        await run.check.finished.wait()
        return run

    def stop(self) -> None:
        """Request an orderly end: valves to null, safe values, log closed."""
        self._stop.set()

    async def run(self) -> int:
        """Start everything, serve until stopped. Raises HilserverError if the start fails, with all undone."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stop)
        try:
            async with contextlib.AsyncExitStack() as stack:
                starting = asyncio.create_task(self._start(stack))
                if not await self._before_stop(starting):
                    return 0
                self._started.set_result(run := starting.result())
                code = await self._serve(run)
            if self._recording is not None and self._recording.vanished:
                code = code or 1
            if code == 0:
                self._restarts.succeed()
            return code
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    async def _before_stop(self, task: asyncio.Task[Any]) -> bool:
        """Wait for a task, or for a stop, which cancels the task; returns whether the task was done first."""
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return task.done()
        finally:
            await _cancel(stopping)
            if not task.done():
                await _cancel(task)

    # --- starting ----------------------------------------------------------------------------------------------------

    async def _start(self, stack: contextlib.AsyncExitStack) -> ServerRun:
        """Start everything; the stack takes what has to be undone at the end."""
        if not self.rig.settings.mqtt.embedded:
            self.rig.broker.check()
        memory = await self._claim_memory(stack)
        folder = working_folder(self.rig.settings.name)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        telemetry = TelemetryReader(self.rig, memory)
        processes = LoopProcesses(self.rig, memory, folder, telemetry.devices, self._prepared)
        if not is_compiled(self.rig.library):
            await self._compile(processes)
        program = compiled_program(self.rig.library)
        executor = Executor(self.rig, memory, telemetry, program)
        self._recording = recording = RecorderProcess(
            self.rig, memory, folder, program.fingerprint, executor.ran, telemetry, self._prepared
        )
        executor.triggers, telemetry.triggers = recording.triggers, recording.triggers.status
        stack.push_async_callback(recording.end)  # last: the log holds the end of the run
        stack.push_async_callback(processes.end)
        _background(stack, "the heartbeat", functools.partial(_every, BEAT, memory.supervisor_heartbeat.beat))
        children = await processes.start()
        if self.rig.settings.recording.enabled and (recorder := await recording.start_if_room()) is not None:
            children.append(recorder)
        self._prepared.end()

        # Imported while the processes start: these need the simulation, which takes 0.1 s.
        from hilserver.service.arming_check import ArmingCheck
        from hilserver.service.margin_monitor import MarginMonitor

        monitor = MarginMonitor(self.rig, program, telemetry, lambda: executor.running)
        check = ArmingCheck(self.rig, telemetry, lambda: executor.running, folder)

        async def refusals(arm: commands.Arm) -> tuple[str, ...]:
            return monitor.refusals() or await check.refusals(arm)

        executor.arming_warnings, executor.arming_refusals = lambda: monitor.warnings() + check.doubts(), refusals
        mqtt, address = await self._start_mqtt(stack, executor, folder)
        await all_ready(*children)
        telemetry.degradations = (*processes.degradations, *address.weaknesses(), *_rivals(self.rig.settings.name))
        for text in telemetry.degradations:
            _log.warning("%s", text)
        checking = asyncio.create_task(self._check_solver(program, telemetry))
        stack.push_async_callback(_cancel, checking)
        publisher = Publisher(mqtt, telemetry, executor)
        run = ServerRun(self.rig, address, telemetry, executor, check, recording, processes, mqtt, publisher)
        tell = self._watch(stack, run)
        self._require_operator(stack, run, tell)
        mqtt.inbox.report = lambda text: tell("commands", None, text, warn=True)
        warn = functools.partial(tell, "margins", None, warn=True)
        change_points = ChangePointWatch(telemetry, lambda: executor.running, executor.execute)
        _background(stack, "watching change points", lambda: change_points.keep(functools.partial(tell, "mechanism")))
        _background(stack, "the margin monitor", lambda: monitor.keep(mqtt.publish_margins, warn))
        if self.rig.settings.arming.virtual_commissioning:
            _background(stack, "the check before arming", lambda: check.keep(functools.partial(tell, "arming")))
        if may_take_over(self.rig.settings.loop, self.rig.clock_rate):
            compiled = CompiledCircuit(lambda: executor.running, executor.use_code)
            _background(stack, "compiling the circuit", lambda: compiled.keep(functools.partial(tell, "compiling")))
        stack.callback(withdraw, announce(self.rig.settings.name, address))
        return run

    async def _compile(self, processes: LoopProcesses) -> None:
        """Compile in a separate process, so that this one still reacts to signals."""
        _log.warning("first start of this version: compiling it, which takes about a minute")
        self._notifier.status("compiling this version, which takes about a minute")
        await processes.compile()

    async def _check_solver(self, program: Program, telemetry: TelemetryReader) -> None:
        """Warn, for as long as the server runs, where the first circuit's integrator is not suitable for it."""
        if text := await asyncio.to_thread(solver_warning, self.rig, program):
            telemetry.troubles["solver"] = f"solver: {text}"
            _log.warning("solver: %s", text)

    async def _claim_memory(self, stack: contextlib.AsyncExitStack) -> LoopMemory:
        """The shared memory of this rig, for this process only; the loop of a killed supervisor is ended first."""
        path = segment_path(self.rig.settings.name)
        try:
            left_behind = LoopMemory.attach(path)
        except SharedMemoryError:
            left_behind = None
        memory = LoopMemory.create(path, **loop_memory_shape(self.rig))
        stack.callback(memory.close)
        _background(stack, "unmapping rows", functools.partial(_every, UNMAP_EVERY, memory.segment.unmap))
        memory.supervisor_heartbeat.beat()
        memory.info.layout = self.rig.layout.fingerprint
        if left_behind is not None:  # its owner is dead, otherwise `create` had failed
            await end_predecessor(left_behind)
        return memory

    async def _start_mqtt(
        self, stack: contextlib.AsyncExitStack, executor: Executor, folder: Path
    ) -> tuple[MqttService, BrokerAddress]:
        """The MQTT side, and the address for clients."""
        settings, name = self.rig.settings.mqtt, self.rig.settings.name
        new_service = functools.partial(MqttService, rig=name, commands=executor, lifetime=settings.command_lifetime)
        if not settings.embedded:
            return new_service(self.rig.broker), self.rig.broker
        accounts = None
        if settings.accounts is not None:
            accounts = Accounts(name, self.rig.file.parent / settings.accounts, settings.operators)
        broker = await stack.enter_async_context(EmbeddedBroker(settings.port, accounts=accounts))
        address = BrokerAddress(port=broker.port)
        own = _own_login(address, accounts, folder) if accounts is not None else address
        mqtt = new_service(own)
        mqtt.inbox.blame = functools.partial(cut_off, broker, own)
        return mqtt, address

    def _require_operator(self, stack: contextlib.AsyncExitStack, run: ServerRun, tell: Tell) -> None:
        """Watch the link to the operator, and return hold-to-run inputs to rest when they are no longer held."""
        executor, mqtt = run.executor, run.mqtt
        held = HeldInputs(self.rig.settings.inputs, executor.execute)
        executor.done.append(held.follow)
        stack.callback(held.end)
        self._require_recording(stack, run, tell)
        settings = self.rig.settings.operator
        if self._attended:
            return
        refuse = mqtt.inbox.refuse_waiting
        link = OperatorLink(settings, run.telemetry, lambda: (mqtt.heard, str(mqtt.address)), executor.execute, refuse)
        executor.against.append(link.refusal)
        executor.done.append(link.take_over)
        mqtt.on_heartbeat = link.hear
        mqtt.ask_every = settings.lost_after / 4 if settings.require != "none" else None
        run.telemetry.operator = lambda: link.client
        _background(stack, "watching the link to the operator", functools.partial(link.keep, tell))

    def _require_recording(self, stack: contextlib.AsyncExitStack, run: ServerRun, tell: Tell) -> None:
        """Monitor that the run is recorded."""
        settings, refuse = self.rig.settings.recording, run.mqtt.inbox.refuse_waiting
        if not settings.enabled:
            return
        watch = RecordingWatch(settings, run.telemetry, lambda: run.recording.last_tick, run.executor.execute, refuse)
        run.executor.against.append(watch.refusal)
        _background(stack, "watching the recording", functools.partial(watch.keep, tell))

    def _watch(self, stack: contextlib.AsyncExitStack, run: ServerRun) -> Tell:
        """Start the background tasks; returns the function that reports the problem of a source, or that it is over."""
        telemetry, processes, publisher, mqtt = run.telemetry, run.processes, run.publisher, run.mqtt

        def tell(source: str, trouble: str | None, text: str, *, warn: bool = False) -> None:
            telemetry.troubles.pop(source, None)
            if trouble is not None:
                telemetry.troubles[source] = trouble
            publisher.publish_now(Event(kind="warning" if trouble or warn else "info", text=text, tick=0, time=0.0))

        async def watch_device(device: Child) -> None:
            text = (
                f"{device.name} ended ({await device.wait_ended()}): its samples are outdated, and it accepts no "
                f"commands"
            )
            tell(device.name, text, text)

        settings = self.rig.settings
        description = describe(
            settings.name,
            version("hilserver"),
            channels=channel_descriptions(self.rig),
            inputs=input_descriptions(self.rig),
            valves=valve_descriptions(self.rig),
            actuators=actuator_descriptions(self.rig),
            command_lifetime=settings.mqtt.command_lifetime,
            operator=OperatorDescription(**settings.operator.model_dump()),
            reactions=settings.loop.reactions,
            playouts=settings.loop.playouts,
        )
        mqtt.publish_description(description)
        mqtt.publish_types(component_types(self.rig.library))
        _background(stack, "MQTT", mqtt.run)
        _background(stack, "publishing", publisher.run)
        if settings.recording.enabled:
            _background(stack, "recording", functools.partial(run.recording.keep, tell))
            _background(stack, "tidying up", functools.partial(run.recording.tidy_up, tell))
        _background(stack, "watching the loop", processes.watch)
        follow = functools.partial(self._notifier.follow, lambda: _tick(telemetry), lambda: _status(telemetry))
        _background(stack, "notifying the service manager", follow)
        _background(stack, "counting this start as a success", self._succeed)
        for device in processes.devices:
            _background(stack, f"watching {device.name}", functools.partial(watch_device, device))
        for worker in processes.workers:
            keep = functools.partial(worker.keep, functools.partial(tell, f"device {worker.name}"))
            _background(stack, f"watching device {worker.name}", keep)
        return tell

    async def _succeed(self) -> None:
        await asyncio.sleep(STABLE_AFTER)
        self._restarts.succeed()

    # --- serving -----------------------------------------------------------------------------------------------------

    async def _serve(self, run: ServerRun) -> int:
        """Serve until a stop is requested or the real-time process ends; leaves the devices safe in both cases."""
        dying = asyncio.create_task(run.processes.died())
        fault = dying.result() if await self._before_stop(dying) else None
        self._notifier.stopping(fault or "stopping")
        if fault is None:
            await run.executor.execute(commands.Disarm())  # refused where nothing is armed
            fault = await run.processes.end_loop() or await run.processes.unsafe()
        run.publisher.end(fault)
        await asyncio.sleep(LAST_MESSAGES_TIMEOUT)
        return 0 if fault is None else 1


def _tick(telemetry: TelemetryReader) -> float | None:
    """The loop's latest tick."""
    row = telemetry.latest()
    return None if row is None else float(header(row).tick)


def _status(telemetry: TelemetryReader) -> str:
    """Mode and fault, in one line."""
    row = telemetry.latest()
    if row is None:
        return "starting"
    mode, fault = Mode(int(header(row).mode)), telemetry.fault(row)
    if mode == Mode.SAFE_NOT_CONFIRMED:
        return " ".join(telemetry.unconfirmed(row))
    return f"{mode.name}: {fault}" if fault else mode.name


def _own_login(address: BrokerAddress, accounts: Accounts, folder: Path) -> BrokerAddress:
    """The address with the server's own account, whose password is in its private folder."""
    file = folder / "broker-password"
    file.touch(mode=0o600)
    file.write_text(accounts.server_password)
    return address.model_copy(update={"user": SERVER, "password_file": file})


def _rivals(rig: str) -> list[str]:
    """Other users who run a rig of this name, or pretend to. Refusing to start would let anybody prevent a start."""
    return [
        f"{user} also has the shared memory of a rig {rig}. If they run it too, two servers command the same devices: "
        "stop one of them"
        for user in other_users(rig)
    ]


def _background(stack: contextlib.AsyncExitStack, name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Run ``work`` in the background until the stack is unwound."""
    stack.push_async_callback(_cancel, asyncio.create_task(_endlessly(name, work)))


async def _endlessly(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """``work``, restarted after an internal error: a run must not end because its telemetry fails."""
    while True:
        try:
            return await work()
        except Exception:
            _log.exception("internal error in %s, which continues; please report it", name)
        await asyncio.sleep(1.0)


async def _every(seconds: float, action: Callable[[], None]) -> None:
    while True:
        action()
        await asyncio.sleep(seconds)


async def _cancel(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its end, whatever it is."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # retrieved, otherwise asyncio reports it as never retrieved
