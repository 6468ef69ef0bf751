"""A connection to a running server: it follows topics, sends commands and reconnects automatically."""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

import aiomqtt

from hilserver.client.heartbeat import HeartbeatSender, operator_name
from hilserver.errors import HilserverError
from hilserver.protocol.address import BrokerAddress, LoginError
from hilserver.protocol.commands import Arm, Command, Start
from hilserver.protocol.connection import connection, new_client
from hilserver.protocol.message import Published
from hilserver.protocol.published import (
    Answer,
    CircuitStatus,
    Description,
    Event,
    MarginStatus,
    OperatorDescription,
    ServerState,
    Telemetry,
)
from hilserver.protocol.server_clock import ServerClock
from hilserver.protocol.topics import Topics

RETRY = 1.0
"""Seconds between two attempts to reconnect."""
LOOK_UP = 2.0
"""Seconds allowed for the broker to send the retained topics of a rig."""
FIRST_STATE = 1.0
"""Seconds allowed for a server that has just started to publish its first state."""
EVENTS_KEPT = 100
_AVAILABILITIES = "hil/+/availability"
_Message = TypeVar("_Message", bound=Published)


class RequestFailed(HilserverError):
    """The server could not be reached: no broker, no such rig, server offline, or no answer in time."""


class Session:
    """The present state of a server; belongs to one event loop. Created by `open_session`.

    ``description``, ``state``, ``circuit`` and ``margins`` are the latest messages, None if nothing was published.
    ``events`` are the latest ones, ``on_event`` gets each, and ``listeners`` each telemetry message. ``trouble``: why
    there is no connection; empty while there is one. ``operator``: the program as which it arms and starts a rig that
    requires heartbeats, which are sent while it is ``alive()``.
    """

    def __init__(
        self,
        address: BrokerAddress,
        rig: str,
        *,
        telemetry: bool = False,
        operator: str | None = None,
        alive: Callable[[], bool] = lambda: True,
    ) -> None:
        self.address, self.rig = address, rig
        self.availability: str | None = None
        self.description: Description | None = None
        self.state: ServerState | None = None
        self.circuit: CircuitStatus | None = None
        self.margins: MarginStatus | None = None
        self.events: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self.listeners: list[Callable[[Telemetry], object]] = []
        self.on_event: list[Callable[[Event], object]] = []
        self.trouble = ""
        self.others: set[str] = set()
        self._topics = Topics(rig)
        self._telemetry = telemetry
        self._operator, self._alive = operator, alive
        self._heartbeat: HeartbeatSender | None = None
        self._client: aiomqtt.Client | None = None
        self._waiting: dict[str, asyncio.Future[Answer]] = {}
        self._clock = ServerClock()
        self._news = asyncio.Event()

    @property
    def online(self) -> bool:
        """Whether broker and server are online."""
        return self._client is not None and self.availability == "online"

    async def until(self, condition: Callable[[], bool], within: float | None = None) -> None:
        """Return once the condition holds. Raises TimeoutError if it does not within ``within`` s."""
        async with asyncio.timeout(within):
            while not condition():
                await self.next_news()

    async def next_news(self) -> None:
        """Return with the next message, or when the connection is lost or restored."""
        self._news.clear()
        await self._news.wait()

    async def request(self, command: Command, *, within: float | None = None) -> Answer:
        """Send one command and return its answer; it gets an id and expires after ``within`` s (or its patience).

        Raises RequestFailed with the reason; a refused command is an answer, not an error.
        """
        within = command.patience if within is None else within
        command = self._prepared(command, within)
        if not self.online or self._client is None:
            raise RequestFailed(self.trouble or f"the server of rig {self.rig} is {self.availability}. {_START}")
        if isinstance(command, Arm | Start):
            command = await self._signed(command, within)
        assert command.id is not None
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[command.id] = answer
        payload = command.model_dump_json(exclude_unset=True)
        try:
            async with asyncio.timeout(within):
                await self._client.publish(self._topics.command(command.name), payload, qos=1)
                return await answer
        except TimeoutError:
            raise RequestFailed(
                f"the server of rig {self.rig} did not answer {command.name} within {within:g} s. "
                "It may still be carried out: check the status before sending it again. "
                "Or this login has no right to send commands, and the broker did not forward it."
            ) from None
        except aiomqtt.MqttError as error:
            raise RequestFailed(_no_broker(self.address, error)) from None
        finally:
            del self._waiting[command.id]

    def _prepared(self, command: Command, within: float) -> Command:
        """The command with an id, and with an expiry by the server's clock."""
        if command.id is None:
            command = command.model_copy(update={"id": uuid.uuid4().hex})
        if command.expires is None and self._clock.is_known:
            lifetime = self.description.command_lifetime if self.description is not None else None
            valid = within if lifetime is None else min(within, lifetime)
            command = command.model_copy(update={"expires": self._clock.now() + valid})
        return command

    async def _signed(self, command: Arm | Start, within: float) -> Command:
        """The command with our name, where the rig requires the heartbeats of its operator; we send them from now on.

        Raises RequestFailed if the broker takes none.
        """
        required = self.description.operator if self.description is not None else OperatorDescription()
        if self._operator is None or required.require != "client" or command.client is not None:
            return command
        if self._heartbeat is None:
            name = operator_name(self._operator)
            self._heartbeat = HeartbeatSender(self.address, self.rig, name, required, self._alive)
        try:
            await self._heartbeat.start(within)
        except HilserverError as error:
            raise RequestFailed(str(error)) from None
        return command.model_copy(update={"client": self._heartbeat.name})

    async def leave(self) -> None:
        """End the heartbeats: a rig that this session has armed or started stops, where it requires them."""
        if self._heartbeat is not None:
            await self._heartbeat.end()

    # --- the connection ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Follow the server until cancelled; reconnects indefinitely."""
        while True:
            try:
                client = new_client(self.address, aiomqtt.ProtocolVersion.V311)
                async with connection(client):
                    await client.subscribe(self._subscriptions())
                    self._client, self.trouble = client, ""
                    self._news.set()
                    async for message in client.messages:
                        self._take(message)
                        self._news.set()
            except LoginError as error:
                self.trouble = str(error)
            except RequestFailed as error:
                self.trouble = str(error)
            except (aiomqtt.MqttError, OSError, ValueError) as error:
                self.trouble = _no_broker(self.address, error)
            finally:
                self._client = None
                self._give_up(f"{self.trouble} It was lost before an answer came.")
            self._news.set()
            await asyncio.sleep(RETRY)

    def _subscriptions(self) -> list[tuple[str, int]]:
        """The topics, availability last: brokers send retained messages in the order of subscription."""
        topics = self._topics
        wanted = [topics.description, topics.state, topics.circuit, topics.margins, topics.event, topics.answer]
        return [(topic, 1) for topic in [*wanted, *([topics.telemetry] * self._telemetry), _AVAILABILITIES]]

    def _take(self, message: aiomqtt.Message) -> None:
        topic, payload, topics = message.topic.value, bytes(message.payload), self._topics
        if topic == topics.availability:
            self.availability = payload.decode(errors="replace")
            if self.availability != "online":
                self._give_up(f"the server of rig {self.rig} went offline before it answered.")
        elif topic.endswith("/availability"):
            self.others.add(topic.split("/")[1])
        elif topic == topics.answer:
            answer = _parse(Answer, payload)
            if answer.id in self._waiting and not self._waiting[answer.id].done():
                self._waiting[answer.id].set_result(answer)
        elif topic == topics.telemetry:
            telemetry = _parse(Telemetry, payload)
            for listener in self.listeners:
                listener(telemetry)
        elif topic == topics.event:
            event = _parse(Event, payload)
            self.events.append(event)
            for hear in self.on_event:
                hear(event)
        else:
            self._keep(topic, payload)

    def _keep(self, topic: str, payload: bytes) -> None:
        """Store a retained message."""
        topics = self._topics
        if topic == topics.description:
            self.description = _parse(Description, payload)
        elif topic == topics.state:
            self.state = _parse(ServerState, payload)
            if self.state is not None:
                self._clock.hear(self.state.time)
        elif topic == topics.circuit:
            self.circuit = _parse(CircuitStatus, payload)
        elif topic == topics.margins:
            self.margins = _parse(MarginStatus, payload)

    def _give_up(self, reason: str) -> None:
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(RequestFailed(reason))

    async def first_contact(self, within: float) -> None:
        """Wait for the retained topics of the server. Raises RequestFailed if the broker knows no such rig."""
        try:
            await self.until(lambda: self._client is not None or bool(self.trouble), within)
        except TimeoutError:
            raise RequestFailed(_no_broker(self.address, f"no connection within {within:g} s")) from None
        with suppress(TimeoutError):
            await self.until(lambda: self.availability is not None or bool(self.trouble), min(within, LOOK_UP))
        if self.availability == "online":  # published before its first state
            with suppress(TimeoutError):
                await self.until(lambda: self.state is not None or bool(self.trouble), min(within, FIRST_STATE))
        if self.trouble:
            raise RequestFailed(self.trouble)
        if self.availability is None:
            known = f"It knows: {', '.join(sorted(self.others))}." if self.others else "It knows no rig."
            raise RequestFailed(f"the MQTT broker {self.address} knows no rig {self.rig}. {known}")


_START = "Start it with: hilserver run"


@asynccontextmanager
async def open_session(
    address: BrokerAddress,
    rig: str,
    *,
    within: float = 5.0,
    telemetry: bool = False,
    operator: str | None = "client",
    alive: Callable[[], bool] = lambda: True,
) -> AsyncIterator[Session]:
    """Open a session with the server of ``rig``; ``telemetry``: subscribe to its samples, too.

    ``operator``: the program as which it arms and starts a rig that requires heartbeats, which are sent until the
    session ends, while the program is ``alive()``; None: such a rig is neither armed nor started. ``within`` in s, for
    the connection. Raises RequestFailed if there is no broker, or it knows no such rig.
    """
    session = Session(address, rig, telemetry=telemetry, operator=operator, alive=alive)
    running = asyncio.create_task(session.run())
    try:
        await session.first_contact(within)
        yield session
    finally:
        await session.leave()
        running.cancel()
        await asyncio.wait([running])


def _no_broker(address: BrokerAddress, reason: object) -> str:
    return f"MQTT broker {address}: {reason}. Is it running, and is the address right?"


def _parse(model: type[_Message], payload: bytes) -> _Message:
    try:
        return model.model_validate_json(payload)
    except ValueError as error:
        raise RequestFailed(
            f"the server's {model.__name__.lower()} can't be read ({error}). Is its version different?"
        ) from None
