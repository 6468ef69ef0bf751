"""Talking to a running server over MQTT: send one command and wait for its answer; read its status.

Works with every broker (MQTT 3.1.1): the answer is found by the command's id.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

import aiomqtt

from hilserver.errors import HilserverError
from hilserver.service.address import BrokerAddress, LoginError
from hilserver.service.messages import Answer, CircuitStatus, Command, Description, Published, State, Topics
from hilserver.service.mqtt import connection, new_client

_AVAILABILITIES = "hil/+/availability"
_Message = TypeVar("_Message", bound=Published)


class RequestFailed(HilserverError):
    """The server could not be asked: no broker, no such rig, server offline, or no answer in time."""


@dataclass(frozen=True)
class Status:
    """What the broker holds about a server; None where nothing is retained. If not online, it is from before."""

    online: bool
    description: Description | None
    state: State | None
    circuit: CircuitStatus | None


async def request(address: BrokerAddress, rig: str, command: Command, *, within: float = 5.0) -> Answer:
    """Send one command and return its answer; a command without an id gets one, and expires when nobody waits any more.

    ``within`` in s, for the connection and for the answer each. Raises RequestFailed with the reason; a refused
    command is an answer, no error.
    """
    topics = Topics(rig)
    if command.id is None:
        command = command.model_copy(update={"id": uuid.uuid4().hex})
    async with _connected(address, within) as client:
        server = await _look_up(client, address, rig, within)
        if server.availability != "online":
            raise RequestFailed(f"the server of rig {rig} is {server.availability}. Start it with: hilserver run")
        if command.expires is None and (expires := server.time_in(within)) is not None:
            command = command.model_copy(update={"expires": expires})
        await client.subscribe(topics.answer, qos=1)
        payload = command.model_dump_json(exclude_unset=True)
        try:
            async with asyncio.timeout(within):
                await client.publish(topics.command(command.name), payload, qos=1)
                return await _answer(client, topics, rig, command)
        except TimeoutError:
            raise RequestFailed(
                f"the server of rig {rig} did not answer {command.name} within {within:g} s. "
                "It may still be carried out: look at the status before sending it again. "
                "Or this log-in may not command: then the broker passed nothing on."
            ) from None


async def read_status(address: BrokerAddress, rig: str, *, within: float = 5.0) -> Status:
    """The retained topics of a server. ``within`` in s. Raises RequestFailed with the reason."""
    topics = Topics(rig)
    async with _connected(address, within) as client:
        server = await _look_up(client, address, rig, within)
        payloads: dict[str, bytes] = {}
        wanted = (topics.description, topics.state, topics.circuit)
        await client.subscribe([(topic, 1) for topic in wanted])
        try:
            async with asyncio.timeout(min(within, 1.0)):  # a topic that was never published doesn't come
                while len(payloads) < len(wanted):
                    message = await anext(client.messages)
                    if message.topic.value in wanted:
                        payloads[message.topic.value] = bytes(message.payload)
        except TimeoutError:
            pass
        return Status(
            online=server.availability == "online",
            description=_parse(Description, payloads.get(topics.description)),
            state=_parse(State, payloads.get(topics.state)),
            circuit=_parse(CircuitStatus, payloads.get(topics.circuit)),
        )


def send(address: BrokerAddress, rig: str, command: Command, *, within: float = 5.0) -> Answer:
    """Like ``request``, for callers without an event loop."""
    return asyncio.run(request(address, rig, command, within=within))


def status(address: BrokerAddress, rig: str, *, within: float = 5.0) -> Status:
    """Like ``read_status``, for callers without an event loop."""
    return asyncio.run(read_status(address, rig, within=within))


@asynccontextmanager
async def _connected(address: BrokerAddress, within: float) -> AsyncIterator[aiomqtt.Client]:
    try:
        client = new_client(address, aiomqtt.ProtocolVersion.V311, timeout=within)
        async with connection(client):
            yield client
    except LoginError as error:
        raise RequestFailed(str(error)) from None
    except (aiomqtt.MqttError, OSError, ValueError) as error:
        raise RequestFailed(f"MQTT broker {address}: {error}. Does it run, and is the address right?") from None


@dataclass(frozen=True)
class _Server:
    """A server as the broker knows it: `online` or `offline`, and what it last said of itself."""

    availability: str
    description: Description | None
    state: State | None

    def time_in(self, seconds: float) -> float | None:
        """What the server's clock, not ours, shows in so many seconds, or at the end of a command's lifetime there."""
        if self.state is None:
            return None
        lifetime = self.description.command_lifetime if self.description is not None else None
        return self.state.time + (seconds if lifetime is None else min(seconds, lifetime))


async def _look_up(client: aiomqtt.Client, address: BrokerAddress, rig: str, within: float) -> _Server:
    """What the broker holds of this rig's server; raises RequestFailed where it knows none of this name."""
    topics = Topics(rig)
    # in this order: brokers send what is retained as it was asked for, so that the availability comes last
    await client.subscribe([(topics.description, 1), (topics.state, 1), (_AVAILABILITIES, 1)])
    others: set[str] = set()
    found: dict[str, bytes] = {}
    try:
        async with asyncio.timeout(min(within, 2.0)):
            while topics.availability not in found:
                message = await anext(client.messages)
                found[message.topic.value] = bytes(message.payload)
                others |= {message.topic.value.split("/")[1]} - {rig}
        return _Server(
            found[topics.availability].decode(errors="replace"),
            _parse(Description, found.get(topics.description)),
            _parse(State, found.get(topics.state)),
        )
    except TimeoutError:
        known = f"It knows: {', '.join(sorted(others))}." if others else "It knows no rig at all."
        raise RequestFailed(f"the MQTT broker {address} knows no rig {rig}. {known}") from None


async def _answer(client: aiomqtt.Client, topics: Topics, rig: str, command: Command) -> Answer:
    while True:
        message = await anext(client.messages)
        if message.topic.value == topics.availability and bytes(message.payload) != b"online":
            raise RequestFailed(f"the server of rig {rig} went offline before it answered {command.name}.")
        if message.topic.value == topics.answer:
            answer = _parse(Answer, bytes(message.payload))
            if answer is not None and answer.id == command.id:
                return answer


def _parse(model: type[_Message], payload: bytes | None) -> _Message | None:
    if payload is None:
        return None
    try:
        return model.model_validate_json(payload)
    except ValueError as error:
        raise RequestFailed(f"the server's {model.__name__.lower()} can't be read ({error}). Other version?") from None
