"""The server's MQTT side: takes commands, gives answers, publishes state and telemetry, reconnects by itself.

Nothing here blocks the caller: publishing puts a message into a bounded queue and returns. A broker that is offline,
slow or full costs messages, never time.
"""

import asyncio
import contextlib
import functools
import hashlib
import json
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from hilserver.errors import Problem, shown
from hilserver.protocol.address import BrokerAddress
from hilserver.protocol.commands import Command
from hilserver.protocol.connection import LOST, connection, new_client
from hilserver.protocol.parsing import PayloadError, leading_id, read_command
from hilserver.protocol.published import (
    Answer,
    CircuitStatus,
    ComponentTypes,
    Description,
    Event,
    MarginStatus,
    ServerState,
    Telemetry,
    refusal,
)
from hilserver.protocol.topics import Topics
from hilserver.service.broker_process import PACKET_LIMIT

_log = logging.getLogger(__name__)

WAITING_LIMIT = 32
"""Largest number of waiting commands; twice as many for those of STOPPING, so that a flood of other commands does not
keep them out."""

TRIP = "trip"
STOPPING = ("stop", "disarm", TRIP)
"""Commands that only make the rig safer: they need neither id nor expiry, whatever the server requires of others."""

REMEMBERED_IDS = 1000
OUTBOX_LIMIT = 1000
TELEMETRY_LIMIT = 200
LONGEST_EXPIRY = 366 * 24 * 3600.0
FIRST_DELAY, LONGEST_DELAY = 0.1, 5.0
STABLE_AFTER = 5.0
_UNSPECIFIED, _UNSUPPORTED_PROTOCOL, _TAKEN_OVER = 128, 132, 142  # reason codes of MQTT 5


class Commands(Protocol):
    """Carries out commands; the supervisor implements it."""

    async def execute(self, command: Command) -> Answer:
        """Carry out one command, or refuse it in the answer.

        Called for one command at a time, in order of arrival; only a trip may arrive while another one is carried out.
        """


@functools.cache
def identifier(rig: str, password: str | None) -> str:
    """The server's client identifier at the broker; nobody without its password can guess it.

    A client that connects with the same identifier would end the server's connection.
    """
    if password is None:
        return f"hilserver-{rig}"
    return f"hilserver-{rig}-{hashlib.pbkdf2_hmac('sha256', password.encode(), rig.encode(), 100_000).hex()[:16]}"


@dataclass(frozen=True)
class _Reply:
    """The response topic of an MQTT 5 client."""

    topic: str
    correlation: bytes | None

    def properties(self) -> Properties:
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        if self.correlation is not None:
            properties.CorrelationData = self.correlation
        return properties


_Asked = tuple[Command, _Reply | None]


@dataclass(frozen=True, slots=True)
class _Answered:
    """An answered command in few bytes: a thousand are kept, among them whole circuits."""

    name: str
    expires: float | None
    digest: bytes
    answer: bytes


def _digest(command: Command) -> bytes:
    """A hash of the command without its expiry."""
    content = command.model_dump(mode="json", exclude={"expires"})
    return hashlib.sha256(f"{command.name} {json.dumps(content, sort_keys=True)}".encode()).digest()


@dataclass(frozen=True)
class _Outgoing:
    topic: str
    payload: bytes
    qos: int
    retain: bool = False
    reply: _Reply | None = None


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
        self.telemetry_dropped = 0
        """Telemetry messages dropped since the start, because the broker was offline or too slow."""
        self._rig = rig
        self._commands = commands
        self._timeout = timeout
        self._clock = clock
        self._lifetime = lifetime
        self._connected = asyncio.Event()
        self._wake = asyncio.Event()
        self._waiting: asyncio.Queue[_Asked] = asyncio.Queue()
        self._trips: asyncio.Queue[_Asked] = asyncio.Queue()
        self._answered: OrderedDict[str, _Answered] = OrderedDict()
        self._retained: dict[str, bytes] = {}
        self._changed: dict[str, None] = {}  # an ordered set
        self._outbox: deque[_Outgoing] = deque(maxlen=OUTBOX_LIMIT)
        self._telemetry: deque[_Outgoing] = deque(maxlen=TELEMETRY_LIMIT)

    @property
    def connected(self) -> bool:
        """Whether the broker is connected and commands are taken."""
        return self._connected.is_set()

    async def wait_connected(self) -> None:
        """Wait until the broker is connected and commands are taken."""
        await self._connected.wait()

    async def run(self) -> None:
        """Serve until cancelled. Reconnects to a lost or missing broker for ever; raises nothing."""
        work = (self._execute_all(self._waiting), self._execute_all(self._trips), self._stay_connected())
        tasks = [asyncio.create_task(part) for part in work]
        try:
            await asyncio.wait(tasks)
        finally:
            await _end(tasks)

    # -- publishing ---------------------------------------------------------------------------------------------------

    def publish_description(self, description: Description) -> None:
        """Publish what the server is (retained)."""
        self._retain(self.topics.description, description.payload())

    def publish_types(self, types: ComponentTypes) -> None:
        """Publish which components a circuit may use (retained)."""
        self._retain(self.topics.types, types.payload())

    def publish_state(self, state: ServerState) -> None:
        """Publish how the server is (retained). Between two sends the latest state wins."""
        self._retain(self.topics.state, state.payload())

    def publish_circuit(self, circuit: CircuitStatus) -> None:
        """Publish the virtual circuit that runs (retained)."""
        self._retain(self.topics.circuit, circuit.payload())

    def publish_margins(self, margins: MarginStatus) -> None:
        """Publish what was found of the circuit that runs (retained)."""
        self._retain(self.topics.margins, margins.payload())

    def publish_telemetry(self, telemetry: Telemetry) -> None:
        """Publish samples. While the broker is away, the oldest ones are dropped and counted."""
        if len(self._telemetry) == TELEMETRY_LIMIT:
            self.telemetry_dropped += 1
        self._telemetry.append(_Outgoing(self.topics.telemetry, telemetry.payload(), qos=0))
        self._wake.set()

    def publish_event(self, event: Event) -> None:
        """Publish something that happened; kept while the broker is away (the latest 1000 events and answers)."""
        self._post(_Outgoing(self.topics.event, event.payload(), qos=1))

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
        delay, complaint, short = FIRST_DELAY, "", 0
        while True:
            began = time.monotonic()
            try:
                await self._connect(await self._best_protocol())
            except aiomqtt.MqttError as error:
                reason = _reason(error)
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                _log.debug("MQTT connection failed", exc_info=True)
            lived = time.monotonic() - began >= STABLE_AFTER
            short = short + 1 if reason == LOST and not lived else 0
            if short == 3:
                reason += " three times within seconds: does a second hilserver serve the same rig?"
            if lived or reason != complaint:
                _log.warning("MQTT broker %s: %s; trying again", self.address, reason)
            complaint = reason
            delay = FIRST_DELAY if lived else min(2 * delay, LONGEST_DELAY)
            await asyncio.sleep(delay)

    async def _best_protocol(self) -> aiomqtt.ProtocolVersion:
        """MQTT 5 where the broker supports it, else 3.1.1. Checked each time: the broker may have been replaced.

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
        """One connection, from login to loss. The session is clean: no command from before is delivered."""
        will = aiomqtt.Will(self.topics.availability, b"offline", qos=1, retain=True)
        # always the same identifier, so that the broker ends a half-open connection before it accepts this one
        name = identifier(self._rig, self.address.password())
        client = new_client(
            self.address, protocol, identifier=name, packet_limit=PACKET_LIMIT, will=will, timeout=self._timeout
        )
        async with connection(client):
            await self._subscribe(client, protocol)
            await client.publish(self.topics.availability, b"online", qos=1, retain=True)
            _log.info("connected to the MQTT broker %s (%s)", self.address, protocol.name)
            self._changed = dict.fromkeys(self._retained)
            self._wake.set()
            self._connected.set()
            tasks = [asyncio.create_task(self._receive(client)), asyncio.create_task(self._send(client))]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                await self._publish_offline(client)
                raise
            finally:
                self._connected.clear()
                await _end(tasks)
            for task in done:
                task.result()

    async def _subscribe(self, client: aiomqtt.Client, protocol: aiomqtt.ProtocolVersion) -> None:
        if protocol is aiomqtt.ProtocolVersion.V5:
            # so that a retained command is recognised at once, not only at the next connection
            await client.subscribe(self.topics.commands, options=SubscribeOptions(qos=1, retainAsPublished=True))
        else:
            await client.subscribe(self.topics.commands, qos=1)

    async def _publish_offline(self, client: aiomqtt.Client) -> None:
        with contextlib.suppress(aiomqtt.MqttError):
            await client.publish(self.topics.availability, b"offline", qos=1, retain=True, timeout=1.0)

    async def _send(self, client: aiomqtt.Client) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while message := self._next():
                await self._publish(client, message)

    def _next(self) -> _Outgoing | None:
        if self._changed:
            topic = next(iter(self._changed))
            del self._changed[topic]
            return _Outgoing(topic, self._retained[topic], qos=1, retain=True)
        if self._outbox:
            return self._outbox.popleft()
        return self._telemetry.popleft() if self._telemetry else None

    async def _publish(self, client: aiomqtt.Client, message: _Outgoing) -> None:
        properties = message.reply.properties() if message.reply else None
        try:
            await client.publish(
                message.topic, message.payload, qos=message.qos, retain=message.retain, properties=properties
            )
        except ValueError as error:  # no connection could send this message
            _log.warning("not published on %s: %s", shown(message.topic), error)
        except BaseException:
            if message.qos and not message.retain:
                self._outbox.appendleft(message)  # retained messages are sent again anyway
            raise

    # -- commands -----------------------------------------------------------------------------------------------------

    async def _receive(self, client: aiomqtt.Client) -> None:
        async for message in client.messages:
            self._accept(message)

    def _accept(self, message: aiomqtt.Message) -> None:
        """Queue a command, or refuse it."""
        topic = message.topic.value
        name, payload, reply = topic.rpartition("/")[2], bytes(message.payload), self._reply_to(message)
        if message.retain and not payload:
            return  # a retained command is being removed
        try:
            if message.retain:
                raise PayloadError([Problem(_RETAINED.format(topic=topic))], leading_id(payload))
            command = read_command(name, payload)
        except PayloadError as error:
            self._answer(refusal(name, error.id, error.problems, self._clock()), reply)
            return
        if name == TRIP and command.id not in self._answered and not self._untimely(command):
            self._overtake()
        queue = self._trips if name == TRIP else self._waiting
        limit = 2 * WAITING_LIMIT if name in STOPPING else WAITING_LIMIT
        if (waiting := queue.qsize()) >= limit:
            busy = f"busy: {waiting} commands are waiting already. Send it again when they are answered."
            self._answer(refusal(name, command.id, [busy], self._clock()), reply)
        else:
            queue.put_nowait((command, reply))

    def _overtake(self) -> None:
        """Refuse all waiting commands: nothing sent before a trip may undo it."""
        while not self._waiting.empty():
            command, reply = self._waiting.get_nowait()
            self._answer(refusal(command.name, command.id, ["overtaken by a trip."], self._clock()), reply)

    async def _execute_all(self, queue: asyncio.Queue[_Asked]) -> None:
        while True:
            command, reply = await queue.get()
            self._answer(await self._execute(command), reply)

    async def _execute(self, command: Command) -> Answer:
        if command.id in self._answered:
            return self._repeated(command)
        if problem := self._untimely(command):
            return refusal(command.name, command.id, [problem], self._clock())
        try:
            answer = await self._commands.execute(command)
        except Exception as error:
            problem = f"internal error in hilserver: {type(error).__name__}: {error}. Please report it."
            _log.debug("command %s failed", command.name, exc_info=True)
            answer = refusal(command.name, command.id, [problem], self._clock())
        if command.id is not None:
            self._answered[command.id] = _Answered(command.name, command.expires, _digest(command), answer.payload())
            self._forget()
        return answer

    def _forget(self) -> None:
        """Forget the oldest ids, except those of commands that could still be replayed."""
        while len(self._answered) > REMEMBERED_IDS:
            oldest = next(iter(self._answered.values()))
            if self._lifetime is not None and oldest.expires is not None and oldest.expires >= self._clock():
                return
            self._answered.popitem(last=False)

    def _repeated(self, command: Command) -> Answer:
        assert command.id is not None
        self._answered.move_to_end(command.id)
        first = self._answered[command.id]
        answer = Answer.model_validate_json(first.answer)
        if first.digest != _digest(command):
            problem = (
                f"id: {shown(command.id)} was used before, for another command ({first.name}). "
                "Nothing was done: give each command a different id."
            )
            answer = refusal(command.name, command.id, [problem], self._clock())
        return answer.model_copy(update={"duplicate": True})

    def _untimely(self, command: Command) -> str | None:
        """Why a command must not be carried out now: it has expired, or could be replayed later."""
        now, expires = self._clock(), command.expires
        lifetime = None if command.name in STOPPING else self._lifetime
        if lifetime is not None and (command.id is None or expires is None):
            return (
                f"this server accepts only commands that have a new id and expire within {lifetime:g} s: "
                f"give id and expires (Unix time in s; the server's clock shows {now:.3f})."
            )
        if expires is None:
            return None
        if now > expires:
            return f"expires: {expires:.3f} is past: the server's clock shows {now:.3f} (Unix time in s)."
        if lifetime is not None and expires - now > lifetime:
            return (
                f"expires: {expires:.3f} is {expires - now:.0f} s after the server's clock, {now:.3f}: "
                f"this server accepts commands that expire within {lifetime:g} s."
            )
        if expires - now > LONGEST_EXPIRY:
            return (
                f"expires: {expires:.3f} is more than a year after the server's clock, {now:.3f}: "
                "it must be Unix time in seconds, not milliseconds."
            )
        return None

    def _answer(self, answer: Answer, reply: _Reply | None) -> None:
        if answer.ok:
            _log.info("%s: done%s", answer.command, " before (same id)" if answer.duplicate else "")
        else:
            _log.warning("command %s refused: %s", shown(answer.command), answer.reason)
        payload = answer.payload()
        self._post(_Outgoing(self.topics.answer, payload, qos=1))
        if reply is not None:
            self._post(_Outgoing(reply.topic, payload, qos=1, reply=reply))

    def _reply_to(self, message: aiomqtt.Message) -> _Reply | None:
        topic = getattr(message.properties, "ResponseTopic", None)
        if not topic:
            return None
        if topic.startswith(("hil/", "$")) or set(topic) & set("+#"):
            _log.warning("response topic %s not used: it is a server's, the broker's, or a pattern", shown(topic))
            return None
        return _Reply(topic, getattr(message.properties, "CorrelationData", None))


_RETAINED = (
    "retained commands are refused: this one would be delivered at each connection. "
    "Remove it with: mosquitto_pub -r -n -t {topic}"
)


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel these tasks until they are done: `asyncio.wait_for` (Python 3.11) may swallow a cancellation."""
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=2.0)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # retrieved: the caller raises one, and asyncio would report the other


def _reason(error: aiomqtt.MqttError) -> str:
    cause = error.__cause__ or error
    code = getattr(getattr(cause, "rc", None), "value", None)
    return LOST if code in (_UNSPECIFIED, _TAKEN_OVER) else str(cause)
