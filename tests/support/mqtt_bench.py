"""A broker, the server's side of MQTT with a stand-in for the supervisor, and a plain client that sees all topics."""

import asyncio
import contextlib
import importlib.util
import json
import shutil
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import aiomqtt
import pytest
from mosquitto_lab import PROGRAM_PATH

from hilserver.protocol.address import BrokerAddress
from hilserver.protocol.commands import Command
from hilserver.protocol.connection import new_client
from hilserver.protocol.published import Answer
from hilserver.protocol.stopping import STOPPING
from hilserver.service.broker import EmbeddedBroker, Program
from hilserver.service.mqtt import MqttService

NEEDS_MOSQUITTO = pytest.mark.skipif(
    shutil.which("mosquitto", path=PROGRAM_PATH) is None or shutil.which("mosquitto_pub") is None,
    reason="mosquitto and mosquitto-clients are not installed: apt install them",
)
NEEDS_AMQTT = pytest.mark.skipif(
    importlib.util.find_spec("amqtt") is None, reason="amqtt is not installed: pip install amqtt"
)
PROGRAMS = [pytest.param("mosquitto", marks=NEEDS_MOSQUITTO), pytest.param("amqtt", marks=NEEDS_AMQTT)]

FLOOD = """
import os, sys, time
import paho.mqtt.client as mqtt
parent = os.getppid()
client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "a (flooding) client")
client.max_queued_messages_set(2000)
client.on_disconnect = lambda *_: print("disconnected", flush=True)
client.connect("127.0.0.1", int(sys.argv[1]))
client.loop_start()
name, payload = sys.argv[3:] or ("set_input", '{"input": "joystick", "value": 0.5}')
while os.getppid() == parent:
    for _ in range(500):
        client.publish(f"hil/{sys.argv[2]}/command/{name}", payload)
    time.sleep(0.05)
"""
"""A client that sends as many commands as it can; it says when it is disconnected. Arguments: port, rig; command and
payload."""


class RecordingCommands:
    """Stands in for the supervisor: notes each command and answers that it is done."""

    def __init__(self) -> None:
        self.executed: list[Command] = []
        self.free = asyncio.Event()
        self.free.set()
        self.defect: Exception | None = None

    async def execute(self, command: Command) -> Answer:
        self.executed.append(command)
        if command.name not in STOPPING:
            await self.free.wait()
        if self.defect is not None:
            raise self.defect
        return command.answer(time=time.time(), tick=len(self.executed), result={"did": command.name})


class Panel:
    """A plain client that sees everything under hil/lab/ (and its own reply topic)."""

    def __init__(self, client: aiomqtt.Client) -> None:
        self.client = client

    async def send(self, name: str, payload: object, **options: Any) -> None:
        data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        await self.client.publish(f"hil/lab/command/{name}", data, qos=1, **options)

    async def see(self, topic: str, where: Callable[[Any], bool] = lambda payload: True) -> Any:
        """The next payload on this topic for which ``where`` is true."""
        async with asyncio.timeout(60):
            while True:
                message = await self.see_message(topic)
                payload = bytes(message.payload)
                value = payload.decode() if topic.endswith("availability") else json.loads(payload)
                if where(value):
                    return value

    async def see_message(self, topic: str) -> aiomqtt.Message:
        async with asyncio.timeout(60):
            async for message in self.client.messages:
                if message.topic.value == topic:
                    return message
        raise AssertionError("unreachable")

    async def answers(self, *ids: str) -> dict[str, Any]:
        """The next answer to each of these, in whichever order they come."""
        found: dict[str, Any] = {}
        while len(found) < len(ids):
            answer = await self.see("hil/lab/answer", lambda answer: answer["id"] in ids)
            found.setdefault(answer["id"], answer)
        return found

    async def answer(self, id: str | None) -> Any:
        return await self.see("hil/lab/answer", lambda answer: answer["id"] == id)


@contextlib.asynccontextmanager
async def panel(port: int, protocol: int = 4) -> AsyncIterator[Panel]:
    async with new_client(BrokerAddress(port=port), aiomqtt.ProtocolVersion(protocol)) as client:
        await client.subscribe([("hil/lab/#", 1), ("panel/#", 1)])
        yield Panel(client)


@contextlib.asynccontextmanager
async def panel_of_answers(port: int) -> AsyncIterator[Panel]:
    """A client that sees the answers only."""
    async with new_client(BrokerAddress(port=port), aiomqtt.ProtocolVersion.V5) as client:
        await client.subscribe("hil/lab/answer", 1)
        yield Panel(client)


@contextlib.asynccontextmanager
async def panel_when_there(port: int) -> AsyncIterator[Panel]:
    """A panel at a broker that is just starting."""
    while True:
        with contextlib.suppress(aiomqtt.MqttError):
            async with panel(port) as user:
                yield user
                return
        await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def serving(service: MqttService) -> AsyncIterator[None]:
    task = asyncio.create_task(service.run())
    try:
        async with asyncio.timeout(60):
            await until(lambda: service.connected)
        yield
        assert not task.done(), "run() ended by itself"
    finally:
        task.cancel()
        await asyncio.wait([task])


class Rig:
    """A broker, a service and the stand-in for the supervisor."""

    def __init__(self, broker: EmbeddedBroker, service: MqttService, commands: RecordingCommands) -> None:
        self.broker, self.service, self.commands = broker, service, commands
        self.address = service.address
        self.port = broker.port


@contextlib.asynccontextmanager
async def rig(program: Program = "mosquitto", **options: Any) -> AsyncIterator[Rig]:
    commands = RecordingCommands()
    async with EmbeddedBroker(program=program) as broker:
        service = MqttService(BrokerAddress(port=broker.port), "lab", commands, **options)
        async with serving(service):
            yield Rig(broker, service, commands)


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(120):
            await work

    asyncio.run(bounded())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for is the other side of a socket
        await asyncio.sleep(0.01)
