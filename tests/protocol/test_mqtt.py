"""The MQTT side against real brokers: mosquitto (MQTT 5) and amqtt (MQTT 3.1.1 only)."""

import asyncio
import contextlib
import importlib.util
import json
import logging
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
from command_payloads import MALFORMED, VALID
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from hilserver import client as client_module
from hilserver.client import RequestFailed, read_status, request
from hilserver.protocol.address import BrokerAddress
from hilserver.protocol.commands import COMMANDS, Arm, Command, Jog
from hilserver.protocol.connection import connection, new_client
from hilserver.protocol.published import (
    Answer,
    CircuitStatus,
    ComponentTypes,
    Event,
    MarginStatus,
    ServerState,
    Telemetry,
)
from hilserver.protocol.topics import describe
from hilserver.service.broker import EmbeddedBroker, Program, _free_port
from hilserver.service.inbox import STOPPING, WAITING_LIMIT
from hilserver.service.mqtt import INCOMING_LIMIT, MqttService, _Incoming

pytestmark = pytest.mark.slow

_SBIN = os.environ.get("PATH", "") + ":/usr/sbin"
NEEDS_MOSQUITTO = pytest.mark.skipif(
    shutil.which("mosquitto", path=_SBIN) is None or shutil.which("mosquitto_pub") is None,
    reason="mosquitto and mosquitto-clients are not installed: apt install them",
)
NEEDS_AMQTT = pytest.mark.skipif(
    importlib.util.find_spec("amqtt") is None, reason="amqtt is not installed: pip install amqtt"
)
PROGRAMS = [pytest.param("mosquitto", marks=NEEDS_MOSQUITTO), pytest.param("amqtt", marks=NEEDS_AMQTT)]

REFUSED = [case for case in MALFORMED if case[0] not in STOPPING]
STATE = ServerState(mode="SAFE", tick=1000, time=1.7e9)


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
            await service.wait_connected()
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
        async with asyncio.timeout(30):
            await work

    asyncio.run(bounded())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for is the other side of a socket
        await asyncio.sleep(0.01)


# ---------------------------------------------------------------------------------------------------------------------
# commands and answers


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_command_is_executed_in_order_and_answered(program: Program) -> None:
    async def work() -> None:
        async with rig(program) as lab, panel(lab.port) as user:
            usual = {name: rights for name, rights in VALID.items() if name not in STOPPING}
            sent = [(name, values) for name, rights in usual.items() for values in rights]
            for number, (name, values) in enumerate(sent):
                await user.send(name, {"id": str(number), **values})
            for number, (name, _) in enumerate(sent):
                answer = await user.answer(str(number))
                assert (answer["ok"], answer["command"], answer["tick"]) == (True, name, number + 1)
                assert answer["result"] == {"did": name}
            assert [command.name for command in lab.commands.executed] == [name for name, _ in sent]

    run(work())


@pytest.mark.parametrize("program", PROGRAMS)
def test_malformed_payloads_are_refused_without_a_traceback(program: Program, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with rig(program) as lab, panel(lab.port) as user:
            for name, payload, expected in REFUSED:
                await user.send(name, payload)
                answer = await user.see("hil/lab/answer")
                assert (answer["ok"], answer["command"], answer["duplicate"]) == (False, name, False)
                assert expected in answer["reason"]
                assert answer["problems"]
            assert lab.commands.executed == []
            await user.send("arm", {"id": "alive"})
            assert (await user.answer("alive"))["ok"]

    caplog.set_level(logging.INFO)
    run(work())
    refusals = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(refusals) >= len(REFUSED)
    for record in caplog.records:
        assert record.exc_info is None
        assert "\n" not in record.getMessage()
        assert len(record.getMessage()) < 2000


@NEEDS_MOSQUITTO
def test_repeated_id_is_not_executed_again() -> None:
    async def work() -> None:
        async with rig() as lab, panel(lab.port) as user:
            jog = {"id": "7", "valve": "main", "command": 0.1}
            await user.send("jog", jog)
            first = await user.answer("7")
            await user.send("jog", {**jog, "expires": 1.0})  # long past, yet it is the command that was done
            assert await user.answer("7") == {**first, "duplicate": True}
            await user.send("jog", {**jog, "command": 0.2})
            other = await user.answer("7")
            assert (other["ok"], other["duplicate"]) == (False, True)
            assert 'id: "7" was used before, for another command (jog)' in other["reason"]
            assert len(lab.commands.executed) == 1

    run(work())


@NEEDS_MOSQUITTO
def test_refused_payload_leaves_its_id_free() -> None:
    async def work() -> None:
        async with rig() as lab, panel(lab.port) as user:
            await user.send("jog", {"id": "7", "valve": "main", "command": 3})
            assert not (await user.answer("7"))["ok"]
            await user.send("jog", {"id": "7", "valve": "main", "command": 0.3})
            assert (await user.answer("7"))["ok"]

    run(work())


@NEEDS_MOSQUITTO
def test_only_the_latest_ids_are_remembered() -> None:
    async def work() -> None:
        async with rig() as lab, panel(lab.port) as user:
            for number in range(1001):
                await user.send("arm", {"id": str(number)})
            await user.answer("1000")
            await user.send("arm", {"id": "1"})
            assert (await user.answer("1"))["duplicate"]
            await user.send("arm", {"id": "0"})
            assert not (await user.answer("0"))["duplicate"]

    run(work())


@NEEDS_MOSQUITTO
def test_commands_without_an_id_are_each_executed() -> None:
    async def work() -> None:
        async with rig() as lab, panel(lab.port) as user:
            for _ in range(2):
                await user.send("arm", {})
                assert (await user.answer(None))["ok"]
            assert len(lab.commands.executed) == 2

    run(work())


@NEEDS_MOSQUITTO
def test_expired_command_is_refused_with_both_times() -> None:
    async def work() -> None:
        async with rig(clock=lambda: 1000.5) as lab, panel(lab.port) as user:
            await user.send("start", {"id": "late", "expires": 1000.25})
            answer = await user.answer("late")
            assert answer["reason"] == (
                "expires: 1000.250 is past: the server's clock shows 1000.500 (Unix time in s)."
            )
            await user.send("start", {"id": "ms", "expires": 1.7e12})
            assert "not milliseconds" in (await user.answer("ms"))["reason"]
            await user.send("start", {"id": "good", "expires": 1001})
            assert (await user.answer("good"))["ok"]
            assert len(lab.commands.executed) == 1

    run(work())


@NEEDS_MOSQUITTO
def test_command_that_expires_while_it_waits_is_refused() -> None:
    async def work() -> None:
        now = [1000.0]
        async with rig(clock=lambda: now[0]) as lab, panel(lab.port) as user:
            lab.commands.free.clear()
            await user.send("arm", {"id": "first"})
            await user.send("start", {"id": "second", "expires": 1001})
            await user.send("bogus", {"id": "third"})
            await user.answer("third")  # so the second has arrived
            now[0] = 1002.0
            lab.commands.free.set()
            assert (await user.answer("first"))["ok"]
            assert "is past" in (await user.answer("second"))["reason"]
            assert len(lab.commands.executed) == 1

    run(work())


@NEEDS_MOSQUITTO
def test_busy_server_says_so() -> None:
    async def work() -> None:
        async with rig() as lab, panel(lab.port) as user:
            lab.commands.free.clear()
            for number in range(34):  # one is executed, 32 wait
                await user.send("arm", {"id": str(number)})
            busy = await user.answer("33")
            assert busy["reason"].startswith("busy: 32 commands are waiting")
            lab.commands.free.set()
            assert (await user.answer("32"))["ok"]
            await user.send("arm", {"id": "33"})  # a busy refusal leaves the id free
            assert not (await user.answer("33"))["duplicate"]

    run(work())


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("stop", STOPPING)
def test_what_stops_overtakes_what_waits_so_that_nothing_sent_before_undoes_it(program: Program, stop: str) -> None:
    async def work() -> None:
        async with rig(program) as lab, panel(lab.port) as user:
            lab.commands.free.clear()
            await user.send("jog", {"id": "jog", "valve": "main", "command": 0.1})
            await until(lambda: len(lab.commands.executed) == 1)  # it is being carried out; the next ones wait
            for name in ("reset", "arm", "start"):
                await user.send(name, {"id": name})
            await user.send(stop, {"id": "off"})
            answers = await user.answers("reset", "arm", "start", "off")
            assert answers.pop("off")["ok"]
            assert {answer["reason"] for answer in answers.values()} == {f"overtaken by a {stop}."}
            await user.send("reset", {"id": "later"})
            lab.commands.free.set()
            for name in ("jog", "later"):
                assert (await user.answer(name))["ok"]
            assert [command.id for command in lab.commands.executed] == ["jog", "off", "later"]

    run(work())


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("stop", STOPPING)
def test_what_stops_can_not_be_refused(program: Program, stop: str) -> None:
    async def work() -> None:
        async with rig(program, lifetime=10.0) as lab, panel(lab.port) as user:
            await user.send("arm", {"id": "used", "expires": time.time() + 5.0})
            await user.answer("used")
            for payload, id in (
                ({"id": "late", "expires": 1.0}, "late"),
                ({"id": "far", "expires": 1e12}, "far"),
                ({"id": "used"}, "used"),
                ({"id": "used"}, "used"),
                ({"id": "why", "because": "smoke"}, "why"),
                ({}, None),
                (b"", None),
                (b"now!", None),
                (b'{"id": "long", "x": "' + b"x" * 70_000, "long"),
            ):
                executed = len(lab.commands.executed)
                await user.send(stop, payload)
                answer = await user.answer(id)
                assert (answer["ok"], answer["duplicate"], answer["command"]) == (True, False, stop)
                assert len(lab.commands.executed) == executed + 1

    run(work())


@NEEDS_MOSQUITTO
def test_a_retained_stop_stops_at_each_connection_until_it_is_removed() -> None:
    async def work() -> None:
        async with rig() as lab, panel(lab.port) as user:
            reports: list[str] = []
            lab.service.inbox.report = reports.append
            await user.send("stop", {"id": "7"}, retain=True)
            assert (await user.answer("7"))["ok"]
            assert "Remove it with: mosquitto_pub -r -n -t hil/lab/command/stop" in reports[0]
            async with serving(MqttService(lab.address, "lab", lab.commands)):
                assert (await user.answer("7"))["ok"]
                await user.send("stop", b"", retain=True)  # removes it
                await user.send("bogus", {"id": "mark"})
                assert (await user.see("hil/lab/answer"))["id"] == "mark"
            assert [command.id for command in lab.commands.executed] == ["7", "7"]

    run(work())


def test_received_messages_are_limited_in_number_and_the_others_counted() -> None:
    message = aiomqtt.Message("hil/lab/command/jog", b"", 0, False, 1, None)
    discarded: list[str] = []
    queue = _Incoming(discarded.append, 0)
    for _ in range(INCOMING_LIMIT + 3):
        queue.put_nowait(message)
    assert (queue.qsize(), discarded) == (INCOMING_LIMIT, ["jog"] * 3)


FLOOD = """
import os, sys, time
import paho.mqtt.client as mqtt
parent = os.getppid()
client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
client.max_queued_messages_set(2000)
client.connect("127.0.0.1", int(sys.argv[1]))
client.loop_start()
number = 0
while os.getppid() == parent:
    client.publish("hil/lab/command/set_input", '{"input": "joystick", "value": 0.5}', qos=number % 2)
    number += 1
    if number % 500 == 0:
        time.sleep(0.05)
"""


@NEEDS_MOSQUITTO
def test_a_flood_of_commands_does_not_keep_a_trip_out() -> None:
    async def work() -> None:
        async with rig() as lab, panel_of_answers(lab.port) as user:
            reports: list[str] = []
            lab.service.inbox.report = reports.append
            flood = await asyncio.create_subprocess_exec(sys.executable, "-c", FLOOD, str(lab.port))
            try:
                await until(lambda: len(reports) >= 2)
                before = len(lab.commands.executed)
                await user.send("trip", {"id": "help"})
                await until(lambda: "help" in [command.id for command in lab.commands.executed[before:]])
                place = [command.id for command in lab.commands.executed[before:]].index("help")
                assert flood.returncode is None
                assert (await user.answer("help"))["ok"]
                await until(lambda: len(reports) >= 3)
            finally:
                flood.kill()
                await flood.wait()
            # what was read in the meantime, not what stood in the queues: the broker alone keeps a thousand
            assert place < 600
            assert re.fullmatch(
                r"\d+ commands were discarded unread: at most 300 per second are taken\. .*", reports[0]
            )
            assert "Most of them were set_input." in reports[0]
            assert lab.service.inbox._waiting.qsize() <= WAITING_LIMIT

    run(work())


@NEEDS_MOSQUITTO
def test_retained_command_is_refused_at_once_and_at_each_connection() -> None:
    async def work() -> None:
        async with rig() as lab, panel(lab.port) as user:
            await user.send("start", {"id": "7"}, retain=True)
            answer = await user.answer("7")
            assert answer["reason"] == (
                "retained commands are refused: this one would be delivered at each connection. "
                "Remove it with: mosquitto_pub -r -n -t hil/lab/command/start"
            )
            async with serving(MqttService(lab.address, "lab", lab.commands)):
                assert "retained" in (await user.answer("7"))["reason"]
                await user.send("start", b"", retain=True)  # removes it
                await user.send("bogus", {"id": "mark"})
                assert (await user.see("hil/lab/answer"))["id"] == "mark"
            assert lab.commands.executed == []

    run(work())


@NEEDS_AMQTT
def test_retained_command_is_refused_in_mqtt_3() -> None:
    async def work() -> None:
        async with EmbeddedBroker(program="amqtt") as broker, panel(broker.port) as user:
            await user.send("start", {"id": "7"}, retain=True)
            commands = RecordingCommands()
            async with serving(MqttService(BrokerAddress(port=broker.port), "lab", commands)):
                assert "retained" in (await user.answer("7"))["reason"]
            assert commands.executed == []

    run(work())


@NEEDS_MOSQUITTO
def test_response_topic_and_correlation_data_of_mqtt_5() -> None:
    def wanting(topic: str) -> Properties:
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.ResponseTopic = topic
        properties.CorrelationData = b"\x00\xffmine"
        return properties

    async def work() -> None:
        async with rig() as lab, panel(lab.port, protocol=5) as user:
            await user.send("arm", {"id": "7"}, properties=wanting("panel/replies"))
            message = await user.see_message("panel/replies")
            assert json.loads(bytes(message.payload))["id"] == "7"
            assert message.properties is not None
            assert message.properties.CorrelationData == b"\x00\xffmine"  # type: ignore[attr-defined]
            await user.send("arm", b"[]", properties=wanting("panel/replies"))
            assert not json.loads(bytes((await user.see_message("panel/replies")).payload))["ok"]
            for topic in ("hil/lab/command/start", "hil/lab/state", "panel/+"):
                await user.send("arm", {}, properties=wanting(topic))
            await user.send("arm", {"id": "last"})
            answers = 0
            while answers < 4:
                message = await anext(user.client.messages)
                assert message.topic.value in {"hil/lab/command/arm", "hil/lab/answer"}
                answers += message.topic.value == "hil/lab/answer"
            assert len(lab.commands.executed) == 5

    run(work())


@NEEDS_MOSQUITTO
def test_defect_in_a_command_is_an_answer_and_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with rig() as lab, panel(lab.port) as user:
            lab.commands.defect = KeyError("relief")
            await user.send("arm", {"id": "7"})
            assert (await user.answer("7"))["reason"].startswith("internal error in hilserver: KeyError: 'relief'")
            lab.commands.defect = None
            await user.send("arm", {"id": "8"})
            assert (await user.answer("8"))["ok"]

    caplog.set_level(logging.INFO)
    run(work())
    assert any("internal error in hilserver" in record.getMessage() for record in caplog.records)
    assert all(record.exc_info is None for record in caplog.records)


@NEEDS_MOSQUITTO
def test_mosquitto_pub_is_a_client() -> None:
    async def work() -> None:
        async with rig() as lab, panel(lab.port) as user:
            payload = '{"id": "7", "component": "relief", "set": {"opening_pressure": "120 bar"}}'
            process = await asyncio.create_subprocess_exec(
                *("mosquitto_pub", "-h", "127.0.0.1", "-p", str(lab.port), "-t", "hil/lab/command/switch"),
                *("-m", payload),
            )
            assert await process.wait() == 0
            assert (await user.answer("7"))["ok"]
            assert lab.commands.executed[0].model_dump()["set"] == {"opening_pressure": "120 bar"}

    run(work())


# ---------------------------------------------------------------------------------------------------------------------
# published topics and the connection


def _publish_all(service: MqttService) -> None:
    service.publish_description(describe("lab", "1.0", channels={}, inputs={}, valves={}))
    service.publish_state(STATE)
    service.publish_circuit(CircuitStatus(source={"components": {}}, version=1, tick=5))
    service.publish_types(ComponentTypes(types={}))
    service.publish_margins(MarginStatus(examined=False, version=1))


@pytest.mark.parametrize("program", PROGRAMS)
def test_topics_are_retained_or_not(program: Program) -> None:
    async def work() -> None:
        async with rig(program) as lab:
            async with panel(lab.port) as user:
                _publish_all(lab.service)
                lab.service.publish_event(Event(kind="switch", text="relief switched", tick=5, time=1.0))
                lab.service.publish_telemetry(Telemetry(t0=1.0, dt=0.01, channels={"p_A": (1.0, 2.0)}))
                assert (await user.see("hil/lab/event"))["text"] == "relief switched"
                seen = await user.see("hil/lab/telemetry")
                assert seen == {"t0": 1.0, "dt": 0.01, "channels": {"p_A": [1.0, 2.0]}}
            async with panel(lab.port) as late:
                seen_topics = set()
                for _ in range(6):
                    message = await anext(late.client.messages)
                    assert message.retain
                    seen_topics.add(message.topic.value)
                names = ("availability", "description", "state", "circuit", "types", "margins")
                assert seen_topics == {f"hil/lab/{name}" for name in names}
                lab.service.publish_state(STATE)  # unchanged: nothing is sent
                lab.service.publish_event(Event(kind="info", text="mark", tick=6, time=2.0))
                while (message := await anext(late.client.messages)).topic.value != "hil/lab/event":
                    assert message.retain, "amqtt sends retained messages twice; a new one is not retained"

    run(work())


@NEEDS_MOSQUITTO
def test_killed_broker_costs_no_command_and_no_retained_topic() -> None:
    async def work() -> None:
        async with rig() as lab:
            _publish_all(lab.service)
            lab.commands.free.clear()
            async with panel(lab.port) as user:
                await user.send("arm", {"id": "before"})
                await until(lambda: bool(lab.commands.executed))
            os.kill(lab.broker.pid, signal.SIGKILL)
            await until(lambda: not lab.service.connected)
            lab.service.publish_state(STATE.model_copy(update={"mode": "RUNNING"}))
            await lab.service.wait_connected()
            async with panel(lab.port) as user:
                assert await user.see("hil/lab/availability") == "online"
                lab.commands.free.set()
                assert (await user.answer("before"))["ok"], "a command that is being carried out outlives the broker"
                await user.send("arm", {"id": "after"})
                assert (await user.answer("after"))["ok"]
            status = await read_status(lab.address, "lab")
            assert status.online
            assert status.state is not None
            assert status.state.mode == "RUNNING"
            assert status.description is not None
            assert status.circuit is not None

    run(work())


@NEEDS_MOSQUITTO
def test_stalled_broker_is_left_and_found_again() -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    async def work() -> None:
        async with rig(timeout=0.1) as lab, panel(lab.port) as user:
            before = open_files()
            os.kill(lab.broker.pid, signal.SIGSTOP)
            try:
                lab.service.publish_state(STATE)
                await until(lambda: not lab.service.connected)
                await asyncio.sleep(0.8)  # a few attempts that end half-way
                assert open_files() <= before
            finally:
                os.kill(lab.broker.pid, signal.SIGCONT)
            await lab.service.wait_connected()
            await user.send("arm", {"id": "7"})
            assert (await user.answer("7"))["ok"]
            status = await read_status(lab.address, "lab", within=0.2)
            assert status.online
            assert status.state == STATE

    run(work())


@NEEDS_MOSQUITTO
def test_connection_lost_in_the_turn_that_writes_leaves_nothing_to_watch() -> None:
    async def work() -> None:
        complaints: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        async with (
            EmbeddedBroker(program="mosquitto") as broker,
            connection(new_client(BrokerAddress(port=broker.port), aiomqtt.ProtocolVersion.V5)) as client,
        ):
            paho = client._client
            os.kill(broker.pid, signal.SIGKILL)
            select.select([paho.socket()], [], [], 5.0)  # type: ignore[type-var]
            paho.publish("panel/last", b"words")  # the loop shall watch the socket from its next turn on
            paho.loop_read()  # as the loop does when the connection is lost
            assert paho.socket() is None
            await asyncio.sleep(0.1)
        assert complaints == []

    run(work())


@NEEDS_MOSQUITTO
def test_event_on_its_way_while_the_broker_dies_is_sent_again(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.touch(0o600)
    password.write_text("any")  # the embedded broker takes any; without the file, the server can't log in

    async def work() -> None:
        async with EmbeddedBroker(program="mosquitto") as broker:
            address = BrokerAddress(port=broker.port, user="rig", password_file=password)
            service = MqttService(address, "lab", RecordingCommands(), timeout=0.3)
            async with serving(service):
                os.kill(broker.pid, signal.SIGSTOP)
                service.publish_event(Event(kind="fault", text="while dying", tick=7, time=1.0))
                await until(lambda: not service.connected)
                password.unlink()
                first = broker.pid
                os.kill(first, signal.SIGKILL)
                await until(lambda: broker.pid != first)
                async with panel_when_there(broker.port) as user:
                    password.touch(0o600)
                    password.write_text("any")
                    assert (await user.see("hil/lab/event"))["text"] == "while dying"

    run(work())


@NEEDS_MOSQUITTO
def test_two_servers_for_one_rig_are_suspected(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with rig() as lab:
            second = asyncio.create_task(MqttService(lab.address, "lab", lab.commands).run())
            await until(lambda: "does a second hilserver serve the same rig?" in caplog.text)
            second.cancel()
            await asyncio.wait([second])

    run(work())


def test_without_a_broker_nothing_blocks_and_dropped_telemetry_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        service = MqttService(BrokerAddress(port=_free_port()), "lab", RecordingCommands())
        task = asyncio.create_task(service.run())
        for number in range(250):
            service.publish_telemetry(Telemetry(t0=number, dt=0.1, channels={}))
        for number in range(1100):
            service.publish_event(Event(kind="info", text="x", tick=number, time=0.0))
        _publish_all(service)
        assert service.telemetry_dropped == 50
        await asyncio.sleep(0.7)
        assert not task.done()
        assert not service.connected
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    caplog.set_level(logging.INFO)
    run(work())
    complaints = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(complaints) == 1, "the same reason is logged once"
    assert "Connection refused; trying again" in complaints[0].getMessage()
    assert complaints[0].exc_info is None


_SERVER = """
import asyncio, sys
from hilserver.protocol.address import BrokerAddress
from hilserver.service.mqtt import MqttService

class Nobody:
    async def execute(self, command):
        raise AssertionError

asyncio.run(MqttService(BrokerAddress(port=int(sys.argv[1])), "lab", Nobody()).run())
"""


@pytest.mark.parametrize("program", PROGRAMS)
def test_last_will_tells_that_the_server_was_killed(program: Program) -> None:
    async def work() -> None:
        async with EmbeddedBroker(program=program) as broker, panel(broker.port) as user:
            server = await asyncio.create_subprocess_exec(sys.executable, "-c", _SERVER, str(broker.port))
            try:
                assert await user.see("hil/lab/availability") == "online"
            finally:
                server.kill()
                await server.wait()
            assert await user.see("hil/lab/availability") == "offline"

    run(work())


@pytest.mark.parametrize("program", PROGRAMS)
def test_server_that_ends_says_offline(program: Program) -> None:
    async def work() -> None:
        async with EmbeddedBroker(program=program) as broker, panel(broker.port) as user:
            async with serving(MqttService(BrokerAddress(port=broker.port), "lab", RecordingCommands())):
                assert await user.see("hil/lab/availability") == "online"
            assert await user.see("hil/lab/availability") == "offline"

    run(work())


@NEEDS_MOSQUITTO
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_tls_and_password(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tmp_path.chmod(0o755)
    key, certificate, users = tmp_path / "key.pem", tmp_path / "ca.pem", tmp_path / "users"
    for name, text in (("password", "Öl 46\n"), ("wrong", "Öl 32\n")):
        (tmp_path / name).touch(0o600)
        (tmp_path / name).write_text(text)
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", key, "-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    subprocess.run(["mosquitto_passwd", "-b", "-c", users, "rig", "Öl 46"], check=True)
    port = _free_port()
    settings = tmp_path / "mosquitto.conf"
    settings.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous false\npassword_file {users}\n"
        f"certfile {certificate}\nkeyfile {key}\n" + ("user root\n" if os.geteuid() == 0 else "")
    )

    async def work() -> None:
        mosquitto = shutil.which("mosquitto", path=_SBIN)
        assert mosquitto is not None
        broker = await asyncio.create_subprocess_exec(mosquitto, "-c", settings, stderr=asyncio.subprocess.DEVNULL)
        try:
            right = BrokerAddress(
                host="localhost",
                port=port,
                user="rig",
                password_file=tmp_path / "password",
                ca_file=certificate,
            )
            service = MqttService(right, "lab", RecordingCommands())
            async with serving(service):
                assert (await request(right, "lab", Arm())).ok
            for change, reason in (
                ({"password_file": tmp_path / "wrong"}, "[Nn]ot authori"),
                ({"password_file": tmp_path / "missing"}, "No such file"),
                ({"ca_file": None}, "timed out|reset|lost|broker"),
            ):
                with pytest.raises(RequestFailed, match=reason):
                    await request(right.model_copy(update=change), "lab", Arm(), within=0.5)
        finally:
            broker.kill()
            await broker.wait()

    run(work())


# ---------------------------------------------------------------------------------------------------------------------
# the client helper


@pytest.mark.parametrize("program", PROGRAMS)
def test_client_gets_its_answer(program: Program) -> None:
    async def work() -> None:
        async with rig(program) as lab:
            answer = await request(lab.address, "lab", Jog(valve="main", command=0.1))
            assert (answer.ok, answer.command, answer.tick) == (True, "jog", 1)
            assert lab.commands.executed[0].id == answer.id
            late = await request(lab.address, "lab", Arm(id="late", expires=1.0))
            assert not late.ok
            assert late.id == "late"
            status = await read_status(lab.address, "lab", within=0.2)
            assert (status.online, status.state) == (True, None)

    run(work())


@NEEDS_MOSQUITTO
def test_client_says_why_there_is_no_answer() -> None:
    async def work() -> None:
        async with rig() as lab:
            with pytest.raises(RequestFailed, match=r"knows no rig lap\. It knows: lab\."):
                await request(lab.address, "lap", Arm(), within=0.3)
            lab.commands.free.clear()
            with pytest.raises(RequestFailed, match=r"the server of rig lab did not answer arm within 0\.2 s"):
                await request(lab.address, "lab", Arm(), within=0.2)
            lab.commands.free.set()
        async with EmbeddedBroker(program="mosquitto") as broker:
            address = BrokerAddress(port=broker.port)
            with pytest.raises(RequestFailed, match=r"knows no rig lab\. It knows no rig\."):
                await request(address, "lab", Arm(), within=0.3)
            async with serving(MqttService(address, "lab", RecordingCommands())):
                pass
            with pytest.raises(RequestFailed, match="the server of rig lab is offline"):
                await request(address, "lab", Arm(), within=1.0)
            assert not (await read_status(address, "lab", within=0.3)).online

    run(work())


def test_client_without_an_event_loop() -> None:
    nobody = BrokerAddress(port=_free_port())
    for call in (
        lambda: client_module.send(nobody, "lab", Arm()),
        lambda: client_module.status(nobody, "lab"),
    ):
        with pytest.raises(RequestFailed, match=f"MQTT broker 127.0.0.1:{nobody.port}: .*refused"):
            call()


def test_all_commands_have_a_valid_example() -> None:
    assert set(VALID) == set(COMMANDS)
