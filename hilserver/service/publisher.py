"""Publishes a run: telemetry, state, circuit and events, from the ring to MQTT and to the server's own log."""

from __future__ import annotations

import asyncio
import json
import logging
import time

from hilserver.circuit.change import change_text
from hilserver.numerics.arrays import Floats
from hilserver.protocol.published import CircuitStatus, Event
from hilserver.service.executor import Executor
from hilserver.service.mqtt import MqttService
from hilserver.service.strategies import present_laws, present_strategies
from hilserver.service.telemetry import TelemetryReader
from hilserver.tick.codes import Mode
from hilserver.tick.row import header

_log = logging.getLogger(__name__)
STATE_EVERY = 0.5
"""Seconds between two publications of the state, unless something changes that is published at once."""
LONGEST_ROUND = 1.0
"""Seconds between two rounds at most, however long a telemetry batch is: the ring holds some seconds only."""


class Publisher:
    """Publishes in rounds: telemetry and events as they arrive, the state periodically, and changes at once."""

    def __init__(self, mqtt: MqttService, telemetry: TelemetryReader, executor: Executor) -> None:
        self._mqtt = mqtt
        self._telemetry = telemetry
        self._executor = executor
        self._version = 0
        self._shown: tuple[object, ...] = ()
        self._due = 0.0

    async def run(self) -> None:
        """Publish in rounds until cancelled."""
        pause = min(self._telemetry.rig.settings.mqtt.telemetry_batch, LONGEST_ROUND)
        while True:
            self.round()
            await asyncio.sleep(pause)

    def round(self) -> None:
        """Publish what is new."""
        rows = self._telemetry.read()
        if len(rows) == 0:
            return
        for event in self._telemetry.events(rows):
            self.tell(self._with_change(event) if event.kind == "switch" else event)
        for text in self._telemetry.devices.news():
            self.publish_now(Event(kind="warning", text=text, tick=0, time=0.0))
        if batch := self._telemetry.samples.batch(rows):
            self._mqtt.publish_telemetry(batch)
        self._executor.adopt(rows[-1])
        if self._executor.running.version != self._version:
            self._version = self._executor.running.version
            self._mqtt.publish_circuit(self._circuit_status())
        self._publish_state(rows[-1])

    def _with_change(self, event: Event) -> Event:
        """The event of a switch, with the old and the new values."""
        version = int(str(event.details["version"]))
        before, after = (self._executor.ran(number).circuit.written for number in (version - 1, version))
        return event.model_copy(update={"text": f"{event.text}: {change_text(before, after)}"})

    def tell(self, event: Event) -> None:
        """Publish an event, and log it."""
        self._mqtt.publish_event(event)
        _log.log(logging.WARNING if event.kind in ("fault", "warning") else logging.INFO, "%s", event.text)

    def publish_now(self, event: Event) -> None:
        """Publish an event outside the loop: the present tick and time are filled in."""
        row = self._telemetry.latest()
        self.tell(event.model_copy(update={"tick": 0 if row is None else int(header(row).tick), "time": time.time()}))

    def end(self, fault: str | None = None) -> None:
        """A last round, after the loop has ended; ``fault`` is published where the loop could not report it."""
        self.round()
        row = self._telemetry.latest()
        if row is None:
            return
        if fault is not None:
            header(row).mode = Mode.FAULT
            self.publish_now(Event(kind="fault", text=fault, tick=0, time=0.0))
        state = self._telemetry.state(row, self._mqtt.telemetry_dropped)
        self._mqtt.publish_state(state if fault is None else state.model_copy(update={"fault": fault}))

    def _publish_state(self, row: Floats) -> None:
        rig = self._telemetry.rig
        strategies = present_strategies(rig, row), present_laws(rig, row)
        triggers = [(name, trigger.state, trigger.count) for name, trigger in self._telemetry.triggers().items()]
        shown = (header(row).mode, header(row).fault, strategies, tuple(self._telemetry.troubles), triggers)
        if shown != self._shown or time.monotonic() >= self._due:
            self._shown, self._due = shown, time.monotonic() + STATE_EVERY
            self._mqtt.publish_state(self._telemetry.state(row, self._mqtt.telemetry_dropped))

    def _circuit_status(self) -> CircuitStatus:
        running = self._executor.running
        circuit = running.circuit
        source, written = (json.loads(json.dumps(dict(table))) for table in (circuit.source, circuit.written))
        return CircuitStatus(
            source=source,
            written=written if written != source else None,
            file=running.file,
            version=running.version,
            tick=running.tick,
        )
