"""The server's MQTT side: takes commands, gives answers, publishes state and telemetry, reconnects automatically.

Nothing here blocks the caller: publishing puts a message into a bounded queue and returns. A broker that is offline,
slow or full costs messages, never time.
"""

import asyncio
import contextlib
import functools
import hashlib
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from hilserver.errors import shown
from hilserver.protocol.address import BrokerAddress
from hilserver.protocol.connection import LOST, connection, new_client
from hilserver.protocol.published import (
    Answer,
    CircuitStatus,
    ComponentTypes,
    Description,
    Event,
    MarginStatus,
    ServerState,
    Telemetry,
)
from hilserver.protocol.stopping import STOPPING
from hilserver.protocol.topics import HEARTBEAT, Topics
from hilserver.service.backoff import Backoff
from hilserver.service.broker_process import PACKET_LIMIT
from hilserver.service.inbox import Arrival, Commands, Inbox, Reply

_log = logging.getLogger(__name__)

INCOMING_LIMIT, INCOMING_BYTES = 2000, 8_000_000
"""Received messages that may wait in a connection, and their bytes; more are discarded."""
OUTBOX_LIMIT = 1000
"""Events and answers that may wait to be sent, and again answers in the queue of the priority connection."""
TELEMETRY_LIMIT = 200
"""Telemetry messages that may wait to be sent."""
EVENTS_RETAINED = 100
"""Number of events, the latest ones, that clients receive when they connect later."""
SILENCE = 1.0
"""Seconds between two checks whether the broker is to be queried, for as long as it is not."""
_UNSPECIFIED, _UNSUPPORTED_PROTOCOL, _TAKEN_OVER = 128, 132, 142  # reason codes of MQTT 5


@functools.cache
def identifier(rig: str, password: str | None) -> str:
    """The server's client identifier at the broker; nobody without its password can guess it.

    A client that connects with the same identifier would end the server's connection.
    """
    if password is None:
        return f"hilserver-{rig}"
    return f"hilserver-{rig}-{hashlib.pbkdf2_hmac('sha256', password.encode(), rig.encode(), 100_000).hex()[:16]}"


@dataclass(frozen=True)
class _Outgoing:
    topic: str
    payload: bytes
    qos: int
    retain: bool = False
    reply: Reply | None = None


class _Incoming(asyncio.Queue[aiomqtt.Message]):
    """Received messages, limited in number and bytes: ``discard`` gets the last level of the topics of more."""

    def __init__(self, discard: Callable[[str], None], maxsize: int) -> None:
        super().__init__(maxsize)
        self._discard = discard
        self._bytes = 0

    def _put(self, message: aiomqtt.Message) -> None:
        self._bytes += len(bytes(message.payload))
        super()._put(message)

    def _get(self) -> aiomqtt.Message:
        message = super()._get()
        self._bytes -= len(bytes(message.payload))
        return message

    def put_nowait(self, message: aiomqtt.Message) -> None:
        fits = self.empty() or self._bytes + len(bytes(message.payload)) <= INCOMING_BYTES  # a single one is answered
        if fits and self.qsize() < INCOMING_LIMIT:
            super().put_nowait(message)
        else:
            self._discard(message.topic.value.rpartition("/")[2])


class MqttService:
    """The MQTT side of one server. Everything but ``run`` returns at once; all of it belongs to one event loop.

    ``timeout`` is the time in s for one exchange with the broker, ``clock`` the system clock that commands expire by.
    With a ``lifetime`` (s), commands must have an id and expire within it: then none can be replayed.
    """

    def __init__(
        self,
        address: BrokerAddress,
        rig: str,
        commands: Commands,
        *,
        timeout: float = 5.0,
        clock: Callable[[], float] = time.time,
        lifetime: float | None = None,
    ) -> None:
        self.address = address
        self.topics = Topics(rig)
        self.connected = False
        """Whether the broker is connected and commands are taken."""
        self.telemetry_dropped = 0
        """Telemetry messages dropped since the start, because the broker was offline or too slow."""
        self.heard = 0
        """Number of responses of the broker since the start."""
        self.on_heartbeat: Callable[[bytes], None] = lambda _: None
        """Gets the messages on the topic of the clients' heartbeats."""
        self.ask_every: float | None = None
        """Seconds of silence after which the broker is queried; None: never."""
        self._rig = rig
        self._timeout = timeout
        self._wake = asyncio.Event()
        self.inbox = Inbox(rig, commands, self._answer, clock=clock, lifetime=lifetime)
        self._first: asyncio.Queue[_Outgoing] = asyncio.Queue(OUTBOX_LIMIT)
        self._retained: dict[str, bytes] = {}
        self._changed: dict[str, None] = {}  # an ordered set
        self._outbox: deque[_Outgoing] = deque(maxlen=OUTBOX_LIMIT)
        self._telemetry: deque[_Outgoing] = deque(maxlen=TELEMETRY_LIMIT)
        self._events: deque[bytes] = deque(maxlen=EVENTS_RETAINED)
        self._retain_events()  # none yet: those of an earlier run are not shown as present ones

    async def run(self) -> None:
        """Serve until cancelled. Reconnects to a lost or missing broker indefinitely; raises nothing."""
        tasks = [asyncio.create_task(part) for part in (self.inbox.work(), self._stay_connected())]
        try:
            await asyncio.wait(tasks)
        finally:
            await _end(tasks)

    # -- publishing ---------------------------------------------------------------------------------------------------

    def publish_description(self, description: Description) -> None:
        """Publish the description of the server (retained)."""
        self._retain(self.topics.description, description.payload())

    def publish_types(self, types: ComponentTypes) -> None:
        """Publish which components a circuit may use (retained)."""
        self._retain(self.topics.types, types.payload())

    def publish_state(self, state: ServerState) -> None:
        """Publish the state of the server (retained). If several states are waiting, only the latest is sent."""
        self._retain(self.topics.state, state.payload())

    def publish_circuit(self, circuit: CircuitStatus) -> None:
        """Publish the active virtual circuit (retained)."""
        self._retain(self.topics.circuit, circuit.payload())

    def publish_margins(self, margins: MarginStatus) -> None:
        """Publish the margins of the running circuit (retained)."""
        self._retain(self.topics.margins, margins.payload())

    def publish_telemetry(self, telemetry: Telemetry) -> None:
        """Publish samples. While the broker cannot be reached, the oldest ones are dropped and counted."""
        if len(self._telemetry) == TELEMETRY_LIMIT:
            self.telemetry_dropped += 1
        self._telemetry.append(_Outgoing(self.topics.telemetry, telemetry.payload(), qos=0))
        self._wake.set()

    def publish_event(self, event: Event) -> None:
        """Publish something that happened; kept while the broker cannot be reached (the latest 1000 events and
        answers). The latest 100 are retained, for clients that come later."""
        self._events.append(event.payload())
        self._post(_Outgoing(self.topics.event, self._events[-1], qos=1))
        self._retain_events()

    def _retain_events(self) -> None:
        self._retain(self.topics.events, b'{"events":[' + b",".join(self._events) + b"]}")

    def _retain(self, topic: str, payload: bytes) -> None:
        if self._retained.get(topic) != payload:
            self._retained[topic] = payload
            self._changed[topic] = None
            self._wake.set()

    def _post(self, message: _Outgoing) -> None:
        self._outbox.append(message)
        self._wake.set()

    # -- connection ---------------------------------------------------------------------------------------------------

    async def _stay_connected(self) -> None:
        backoff, complaint, short = Backoff(first=0.1, longest=5.0, stable_after=5.0), "", 0
        while True:
            began = time.monotonic()
            try:
                await self._connect(await self._best_protocol())
            except aiomqtt.MqttError as error:
                reason = _reason(error)
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                _log.debug("MQTT connection failed", exc_info=True)
            seconds = time.monotonic() - began
            lived = seconds >= backoff.stable_after
            short = short + 1 if reason == LOST and not lived else 0
            if short == 3:
                reason += " three times within seconds: does a second hilserver serve the same rig?"
            if lived or reason != complaint:
                _log.warning("MQTT broker %s: %s; trying again", self.address, reason)
            complaint = reason
            await asyncio.sleep(backoff.ended(seconds))

    async def _best_protocol(self) -> aiomqtt.ProtocolVersion:
        """MQTT 5 where the broker supports it, otherwise 3.1.1. Checked each time: the broker may have been replaced.

        Checked without a last will: some brokers for 3.1.1 don't understand the rest of a CONNECT with one, and hang.
        """
        version = aiomqtt.ProtocolVersion.V5
        try:
            async with connection(new_client(self.address, version, timeout=self._timeout)):
                return version
        except aiomqtt.MqttCodeError as error:
            if isinstance(error.rc, ReasonCode) and error.rc.value == _UNSUPPORTED_PROTOCOL:
                return aiomqtt.ProtocolVersion.V311
            raise

    async def _connect(self, protocol: aiomqtt.ProtocolVersion) -> None:
        """Both connections, from login to loss. The sessions are clean: no command from before is delivered.

        The second one, the priority connection, carries only stopping commands and their answers, so that they do not
        wait behind whatever is in the queues of the broker and of the other connection.
        """
        will = aiomqtt.Will(self.topics.availability, b"offline", qos=1, retain=True)
        # always the same identifier, so that the broker ends a half-open connection before it accepts this one
        name = identifier(self._rig, self.address.password())
        client, priority = (
            new_client(
                self.address,
                protocol,
                identifier=identifier,
                packet_limit=PACKET_LIMIT,
                will=last_will,
                timeout=self._timeout,
                queue=functools.partial(_Incoming, self.inbox.discard),
            )
            for identifier, last_will in ((name, will), (f"{name}-stop", None))
        )
        async with connection(client), connection(priority):
            self.inbox.forget_copies()
            for command in STOPPING:
                await self._subscribe(priority, self.topics.command(command), protocol)
            await self._subscribe(client, self.topics.commands, protocol)
            await client.publish(self.topics.availability, b"online", qos=1, retain=True)
            _log.info("connected to the MQTT broker %s (%s)", self.address, protocol.name)
            self._changed = dict.fromkeys(self._retained)
            self._wake.set()
            self.connected = True
            self.heard += 1
            work = (
                self._ask(client),
                self._receive(client, priority=False),
                self._receive(priority, priority=True),
                self._send(client),
                self._send_priority(priority),
            )
            tasks = [asyncio.create_task(part) for part in work]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                self.connected = False
                try:  # no last will reports the loss of the priority connection alone
                    await self._publish_offline(client)
                finally:
                    await _end(tasks)
            for task in done:
                task.result()

    async def _subscribe(self, client: aiomqtt.Client, topic: str, protocol: aiomqtt.ProtocolVersion) -> None:
        if protocol is aiomqtt.ProtocolVersion.V5:
            # so that a retained command is recognised at once, not only at the next connection
            await client.subscribe(topic, options=SubscribeOptions(qos=1, retainAsPublished=True))
        else:
            await client.subscribe(topic, qos=1)

    async def _publish_offline(self, client: aiomqtt.Client) -> None:
        with contextlib.suppress(aiomqtt.MqttError):
            await client.publish(self.topics.availability, b"offline", qos=1, retain=True, timeout=1.0)

    async def _send(self, client: aiomqtt.Client) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while message := self._next():
                await self._publish(client, message)

    async def _ask(self, client: aiomqtt.Client) -> None:
        """Request an acknowledgement whenever the broker has been silent."""
        while True:
            heard = self.heard
            await asyncio.sleep(self.ask_every or SILENCE)
            if self.ask_every is not None and self.heard == heard:
                await client.publish(self.topics.availability, b"online", qos=1, retain=True)
                self.heard += 1

    async def _send_priority(self, priority: aiomqtt.Client) -> None:
        while True:
            await self._publish(priority, await self._first.get())

    def _next(self) -> _Outgoing | None:
        if self._changed:
            topic = next(iter(self._changed))
            del self._changed[topic]
            return _Outgoing(topic, self._retained[topic], qos=1, retain=True)
        if self._outbox:
            return self._outbox.popleft()
        return self._telemetry.popleft() if self._telemetry else None

    async def _publish(self, client: aiomqtt.Client, message: _Outgoing) -> None:
        properties = _properties(message.reply) if message.reply else None
        try:
            await client.publish(
                message.topic, message.payload, qos=message.qos, retain=message.retain, properties=properties
            )
            self.heard += message.qos > 0  # acknowledged
        except ValueError as error:  # no connection could send this message
            _log.warning("not published on %s: %s", shown(message.topic), error)
        except BaseException:
            if message.qos and not message.retain:
                self._outbox.appendleft(message)  # retained messages are sent again anyway
            raise

    # -- commands -----------------------------------------------------------------------------------------------------

    async def _receive(self, client: aiomqtt.Client, *, priority: bool) -> None:
        async for message in client.messages:
            self.heard += 1
            name = message.topic.value.rpartition("/")[2]
            if name == HEARTBEAT:
                if not message.retain:
                    self.on_heartbeat(bytes(message.payload))
                continue
            arrival = Arrival(name, bytes(message.payload), message.retain, self._reply_to(message), priority)
            self.inbox.accept(arrival)

    def _answer(self, answer: Answer, reply: Reply | None) -> None:
        payload = answer.payload()
        messages = [_Outgoing(self.topics.answer, payload, qos=1)]
        if reply is not None:
            messages.append(_Outgoing(reply.topic, payload, qos=1, reply=reply))
        for message in messages:
            if answer.command in STOPPING and not self._first.full():
                self._first.put_nowait(message)
            else:
                self._post(message)

    def _reply_to(self, message: aiomqtt.Message) -> Reply | None:
        topic = getattr(message.properties, "ResponseTopic", None)
        if not topic:
            return None
        if topic.startswith(("hil/", "$")) or set(topic) & set("+#"):
            _log.warning(
                "response topic %s not used: it belongs to a server or to the broker, or is a pattern", shown(topic)
            )
            return None
        return Reply(topic, getattr(message.properties, "CorrelationData", None))


def _properties(reply: Reply) -> Properties:
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    if reply.correlation is not None:
        properties.CorrelationData = reply.correlation
    return properties


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel these tasks until they are done: `asyncio.wait_for` (Python 3.11) may swallow a cancellation."""
    for task in tasks:  # the caller raises one exception, and asyncio would report the others
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=2.0)


def _reason(error: aiomqtt.MqttError) -> str:
    cause = error.__cause__ or error
    code = getattr(getattr(cause, "rc", None), "value", None)
    return LOST if code in (_UNSPECIFIED, _TAKEN_OVER) else str(cause)
