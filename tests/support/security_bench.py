"""The MQTT side of a server, and users with their rights, at a real broker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import aiomqtt

from hilserver.protocol.address import BrokerAddress
from hilserver.protocol.commands import COMMANDS, Command
from hilserver.protocol.connection import new_client
from hilserver.protocol.description import describe
from hilserver.protocol.published import Answer, ServerState
from hilserver.protocol.topics import Topics
from hilserver.service.mqtt import MqttService

TOPICS = Topics("lab")
V3, V5 = aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V5
STATE = ServerState(mode="SAFE", tick=7, time=0.0)


def login(folder: Path, port: int, user: str, password: str) -> BrokerAddress:
    """The address of a broker on this computer, with the password in a private file in ``folder``."""
    secret = folder / f"{user}.password"
    secret.touch(0o600)
    secret.write_text(password)
    return BrokerAddress(port=port, user=user, password_file=secret)


class Commands:
    """Stands in for the supervisor: notes what it is asked to do."""

    def __init__(self) -> None:
        self.executed: list[Command] = []

    async def execute(self, command: Command) -> Answer:
        self.executed.append(command)
        return command.answer(time=time.time(), tick=len(self.executed))


class Server:
    """The MQTT side of a server, with a clock that can be set."""

    def __init__(self, address: BrokerAddress, lifetime: float | None = None) -> None:
        self.commands = Commands()
        self.ahead = 0.0
        self.lifetime = lifetime
        self.service = MqttService(address, "lab", self.commands, clock=self.now, lifetime=lifetime)

    def now(self) -> float:
        return time.time() + self.ahead

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Server]:
        task = asyncio.create_task(self.service.run())
        description = describe("lab", "0", channels={}, inputs={}, valves={}, command_lifetime=self.lifetime)
        self.service.publish_description(description)
        self.service.publish_state(STATE.model_copy(update={"time": self.now()}))
        try:
            async with asyncio.timeout(60):
                while not self.service.connected:  # noqa: ASYNC110 - what is waited for comes over a socket
                    await asyncio.sleep(0.01)
            yield self
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.wait([task])


class User:
    """A client that notes all it is shown."""

    def __init__(self, client: aiomqtt.Client) -> None:
        self.client = client
        self.seen: list[tuple[str, bytes]] = []

    async def follow(self) -> None:
        async for message in self.client.messages:
            self.seen.append((message.topic.value, bytes(message.payload)))

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(60):
            while not condition():  # noqa: ASYNC110 - what is waited for comes over a socket
                await asyncio.sleep(0.01)

    async def send(self, name: str, payload: bytes | dict[str, Any], **options: Any) -> None:
        data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        await self.client.publish(TOPICS.command(name), data, qos=1, **options)

    def answers(self, id: str | None) -> list[Any]:
        found = [json.loads(payload) for topic, payload in self.seen if topic == TOPICS.answer]
        return [answer for answer in found if answer["id"] == id]

    async def answer(self, id: str | None, count: int = 1) -> Any:
        """The latest of ``count`` answers to this id."""
        await self.until(lambda: len(self.answers(id)) >= count)
        return self.answers(id)[count - 1]


@contextlib.asynccontextmanager
async def logged_in(
    address: BrokerAddress, protocol: aiomqtt.ProtocolVersion = V3, **options: Any
) -> AsyncIterator[User]:
    async with new_client(address, protocol, **options) as client:
        user = User(client)
        following = asyncio.create_task(user.follow())
        await client.subscribe("#", qos=1)
        try:
            yield user
        finally:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError, aiomqtt.MqttError):
                await following


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await work

    asyncio.run(bounded())


def forgeries() -> list[tuple[str, bytes]]:
    """What somebody would publish to change something: commands, also with wildcards' neighbours, and false states."""
    offline = [(topic, b"offline") for topic in TOPICS.published]
    commands = [(TOPICS.command(name), b'{"id": "forged"}') for name in COMMANDS]
    odd = ("hil/lab/command", "hil/lab/command/", "hil/lab/command/arm/now", "hil/lab/commands/arm", "hil//command/arm")
    return offline + commands + [(topic, b'{"id": "forged"}') for topic in odd]
