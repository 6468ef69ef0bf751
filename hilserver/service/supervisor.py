"""The supervisor: starts and watches the processes of a run, beats the heartbeat, serves MQTT; asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.realtime.compiled import compiled_program, warm_up
from hilserver.realtime.process import make_devices_safe
from hilserver.realtime.setup import make_setup, write_setup
from hilserver.realtime.shared import LoopMemory, segment_path
from hilserver.record.format import encode
from hilserver.record.run import run_header
from hilserver.rig import columns as c
from hilserver.rig.load import Rig
from hilserver.rig.plan import first_row
from hilserver.service import messages as m
from hilserver.service.broker import EmbeddedBroker
from hilserver.service.children import Child
from hilserver.service.mqtt import BrokerAddress, MqttService
from hilserver.service.observer import Observer
from hilserver.service.operator import Operator
from hilserver.service.running import announce, withdraw

_log = logging.getLogger(__name__)
BEAT = 0.02
STATE_EVERY = 0.5
RING_SECONDS = 5.0
PAYLOAD_BYTES = 1 << 18
STOP_PATIENCE = 3.0


class Supervisor:
    """A run of a rig in real time. ``await run()`` returns its exit code after a stop, or when the loop has died."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.log_file: Path | None = None
        self.address: BrokerAddress | None = None
        self.operator: Operator | None = None
        self.observer: Observer | None = None
        self.ready = asyncio.Event()
        self._stop = asyncio.Event()
        self._folder = Path()
        self._devices: list[Child] = []
        self._recorder: Child | None = None

    def stop(self) -> None:
        """Ask for an orderly end: null, safe values, log closed."""
        self._stop.set()

    async def run(self) -> int:
        """Start everything, serve until stopped. Raises HilserverError where it can't start."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stop)
        self._folder = Path(tempfile.mkdtemp(prefix="hilserver-", dir=os.environ.get("RUNTIME_DIRECTORY")))
        try:
            async with contextlib.AsyncExitStack() as stack:
                return await self._run(stack)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    async def _run(self, stack: contextlib.AsyncExitStack) -> int:
        rate = self.rig.settings.loop.rate
        memory = LoopMemory.create(
            segment_path(self.rig.settings.name),
            row_width=self.rig.layout.width,
            ring_rows=max(round(RING_SECONDS * rate), 1000),
            payload_bytes=PAYLOAD_BYTES,
        )
        stack.callback(memory.close)
        stack.push_async_callback(self._end_children)
        memory.supervisor_heartbeat.beat()
        setup_file = self._write_setup()
        realtime = await self._start_loop(memory, setup_file)
        stack.push_async_callback(realtime.stop)
        beating = asyncio.create_task(_every(BEAT, memory.supervisor_heartbeat.beat))
        stack.push_async_callback(_cancel, beating)
        mqtt = await self._start_mqtt(stack)
        self.observer = observer = Observer(self.rig, memory)
        observer.degradations = tuple((await realtime.wait_ready()).get("degradations", ()))
        for text in observer.degradations:
            _log.warning("%s", text)
        await self._start_recorder(memory)
        self.operator = Operator(self.rig, memory, observer, await asyncio.to_thread(self._program))
        mqtt.commands = self.operator
        serving = asyncio.create_task(mqtt.service.run())
        stack.push_async_callback(_cancel, serving)
        watching = asyncio.create_task(self._publish(mqtt.service))
        stack.push_async_callback(_cancel, watching)
        mqtt.service.publish_description(
            m.describe(
                self.rig.settings.name,
                version("hilserver"),
                channels=observer.channel_infos(),
                inputs=observer.input_infos(),
                valves=observer.valve_infos(),
            )
        )
        assert self.address is not None
        stack.callback(withdraw, announce(self.rig.settings.name, self.address))
        self.ready.set()
        return await self._watch(memory, realtime, mqtt.service, setup_file)

    # --- starting ----------------------------------------------------------------------------------------------------

    def _write_setup(self) -> Path:
        plants = self.rig.plants()
        segments = {name: str(segment_path(f"{self.rig.settings.name}-{name}")) for name in plants}
        path = self._folder / "setup.npz"
        write_setup(make_setup(self.rig, segments, plants), path)
        return path

    async def _start_loop(self, memory: LoopMemory, setup_file: Path) -> Child:
        """The simulated devices, if any, and the real-time process beside them."""
        for device in self.rig.devices:
            if device.driver.handed == "plant":
                self._devices.append(
                    await Child.start(f"device {device.name}", "hilserver.realtime.device", str(setup_file), device.name)
                )
        return await Child.start("real-time process", "hilserver.realtime.process", str(memory.segment.path), str(setup_file))

    async def _start_mqtt(self, stack: contextlib.AsyncExitStack) -> _Mqtt:
        s = self.rig.settings.mqtt
        port = s.port
        if s.embedded:
            port = (await stack.enter_async_context(EmbeddedBroker(s.port))).port
        self.address = BrokerAddress(host=s.host, port=port, username=s.user, password_file=s.password_file, ca_file=s.ca_file)
        return _Mqtt(self.address, self.rig.settings.name)

    async def _start_recorder(self, memory: LoopMemory) -> None:
        recording = self.rig.settings.recording
        if not recording.enabled:
            return
        folder = Path(recording.folder)
        folder.mkdir(parents=True, exist_ok=True)
        started = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S")
        self.log_file = _unused(folder / f"{started}_{self.rig.settings.name}.arrow")
        header = run_header(self.rig, self._fingerprint(), "real time")
        header_file = self._folder / "header.json"
        header_file.write_text(encode(header.model_dump()))
        self._recorder = await Child.start(
            "recorder",
            "hilserver.record.recorder",
            *(str(memory.segment.path), str(header_file), str(self.log_file), str(int(recording.max_megabytes * 1e6))),
        )
        await self._recorder.wait_ready()

    def _fingerprint(self) -> str:
        return compiled_program(self.rig.library).folder.name

    def _program(self):  # type: ignore[no-untyped-def]
        """The compiled program for trial steps; what the real-time process compiled comes from the cache."""
        program = compiled_program(self.rig.library)
        warm_up(program, self.rig.plan, self.rig.packed, first_row(self.rig.layout, self.rig.plan, self.rig.packed))
        return program

    # --- serving -----------------------------------------------------------------------------------------------------

    async def _publish(self, mqtt: MqttService) -> None:
        """Telemetry and events as they come, the state when it changes and now and then, the circuit when it is switched."""
        assert self.observer is not None and self.operator is not None
        published, mode, due = 0, -1.0, 0.0
        while True:
            rows = self.observer.read()
            if len(rows):
                for event in self.observer.events(rows):
                    mqtt.publish_event(event)
                    _log.log(logging.WARNING if event.kind in ("fault", "warning") else logging.INFO, "%s", event.text)
                if telemetry := self.observer.telemetry(rows):
                    mqtt.publish_telemetry(telemetry)
                row: Floats = rows[-1]
                if row[c.MODE] != mode or time.monotonic() >= due:
                    mode, due = float(row[c.MODE]), time.monotonic() + STATE_EVERY
                    mqtt.publish_state(self.observer.state(row, mqtt.telemetry_dropped))
            if self.operator.version != published:
                published = self.operator.version
                mqtt.publish_circuit(self._circuit_status())
            await asyncio.sleep(self.rig.settings.mqtt.telemetry_batch)

    def _circuit_status(self) -> m.CircuitStatus:
        assert self.operator is not None
        source = json.loads(json.dumps(dict(self.operator.circuit.source)))
        return m.CircuitStatus(source=source, file=self.operator.file, version=self.operator.version, tick=self.operator.tick)

    async def _watch(self, memory: LoopMemory, realtime: Child, mqtt: MqttService, setup_file: Path) -> int:
        """Until a stop is asked for, or the real-time process ends by itself; leaves the devices safe either way."""
        dying = asyncio.create_task(realtime.process.wait())
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({dying, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        if not dying.done():
            await self._stop_loop(memory, realtime)
            return 0
        text = f"the real-time process ended (exit code {realtime.process.returncode}); safe values were written by the supervisor"
        await asyncio.to_thread(make_devices_safe, setup_file)
        _log.error("%s", text)
        row = self.observer.latest() if self.observer else None
        if self.observer is not None and row is not None:
            row[c.MODE] = c.FAULTED
            mqtt.publish_state(self.observer.state(row, mqtt.telemetry_dropped).model_copy(update={"fault": text}))
        mqtt.publish_event(m.Event(kind="fault", text=text, tick=0 if row is None else int(row[c.TICK]), time=time.time()))
        await asyncio.sleep(0.3)  # let the message out
        return 1

    async def _stop_loop(self, memory: LoopMemory, realtime: Child) -> None:
        """Disarm, wait for the ramp to null, then end the loop."""
        assert self.operator is not None and self.observer is not None
        with contextlib.suppress(HilserverError):
            await self.operator.execute(m.Disarm())
        commands = [self.rig.layout.column(f"valve.{valve}.command") for valve in self.rig.layout.valves]
        safe = [valve.safe for valve in self.rig.settings.valves.values()]
        end = time.monotonic() + STOP_PATIENCE
        while time.monotonic() < end and realtime.running:
            row = self.observer.latest()
            if row is not None and all(row[k] == value for k, value in zip(commands, safe, strict=True)):
                break
            await asyncio.sleep(0.01)
        memory.info.stop_requested = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(realtime.process.wait(), STOP_PATIENCE)

    async def _end_children(self) -> None:
        """Recorder and simulated devices end last: the log holds the end of the run."""
        for child in (*([self._recorder] if self._recorder else []), *self._devices):
            await child.stop()


class _Mqtt:
    """The MQTT service, whose commands find their operator once the loop is ready."""

    def __init__(self, address: BrokerAddress, rig: str) -> None:
        self.commands: Operator | None = None
        self.service = MqttService(address, rig, self)

    async def execute(self, command: m.Command) -> m.Answer:
        assert self.commands is not None
        return await self.commands.execute(command)


async def _every(seconds: float, action: Callable[[], None]) -> None:
    while True:
        action()
        await asyncio.sleep(seconds)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def _unused(path: Path) -> Path:
    """The path, or one with a number behind it where a log of that name exists."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_stem(f"{path.stem}-{number}")
    return free
