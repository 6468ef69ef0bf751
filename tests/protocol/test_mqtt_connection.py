"""Published topics, and connections that are lost, found again, ended and secured, with real brokers."""

import asyncio
import gc
import logging
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
from mosquitto_lab import PROGRAM_PATH
from mqtt_bench import NEEDS_MOSQUITTO, PROGRAMS, RecordingCommands, panel, panel_when_there, rig, run, serving, until

from hilserver.client import RequestFailed, read_status, request
from hilserver.protocol.address import BrokerAddress
from hilserver.protocol.commands import Arm
from hilserver.protocol.connection import connection, new_client
from hilserver.protocol.description import describe
from hilserver.protocol.published import (
    CircuitStatus,
    ComponentTypes,
    Event,
    Events,
    MarginStatus,
    ServerState,
    Telemetry,
)
from hilserver.service.broker import EmbeddedBroker, Program, _free_port
from hilserver.service.mqtt import MqttService

pytestmark = pytest.mark.slow

STATE = ServerState(mode="SAFE", tick=1000, time=1.7e9)


def _publish_all(service: MqttService) -> None:
    service.publish_description(describe("lab", "1.0", channels={}, inputs={}, valves={}))
    service.publish_state(STATE)
    service.publish_circuit(CircuitStatus(source={"components": {}}, version=1, tick=5))
    service.publish_types(ComponentTypes(types={}))
    service.publish_margins(MarginStatus(calculated=False, version=1))


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
                for _ in range(7):
                    message = await anext(late.client.messages)
                    assert message.retain
                    if message.topic.value == "hil/lab/events":
                        kept = Events.model_validate_json(bytes(message.payload)).events
                        assert [event.text for event in kept] == ["relief switched"]
                    seen_topics.add(message.topic.value)
                names = ("availability", "description", "state", "circuit", "types", "margins", "events")
                assert seen_topics == {f"hil/lab/{name}" for name in names}
                lab.service.publish_state(STATE)  # unchanged: nothing is sent
                lab.service.publish_event(Event(kind="info", text="mark", tick=6, time=2.0))
                while (message := await anext(late.client.messages)).topic.value != "hil/lab/event":
                    again = message.topic.value == "hil/lab/events"
                    assert message.retain or again, "amqtt sends retained messages twice; a new one is not retained"

    run(work())


@NEEDS_MOSQUITTO
def test_a_killed_broker_loses_no_command_and_no_retained_topic() -> None:
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
            await until(lambda: lab.service.connected)
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
def test_connection_to_a_stalled_broker_is_closed_and_renewed() -> None:
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
            await until(lambda: lab.service.connected)
            await user.send("arm", {"id": "7"})
            assert (await user.answer("7"))["ok"]
            status = await read_status(lab.address, "lab", within=0.2)
            assert status.online
            assert status.state == STATE

    run(work())


@NEEDS_MOSQUITTO
def test_an_end_during_the_last_message_to_a_stalled_broker_leaves_no_exception_behind() -> None:
    complaints: list[str] = []

    async def end_while_the_broker_stands_still() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))
        async with rig(timeout=0.2) as lab:
            lab.service.ask_every = 0.05
            os.kill(lab.broker.pid, signal.SIGSTOP)
            await until(lambda: not lab.service.connected)  # it waits for its last message to be acknowledged

    async def work() -> None:
        await end_while_the_broker_stands_still()
        gc.collect()
        await asyncio.sleep(0)

    run(work())
    assert complaints == []


@NEEDS_MOSQUITTO
def test_a_subscription_that_is_confirmed_too_late_leaves_no_trace(caplog: pytest.LogCaptureFixture) -> None:
    """The broker stands still for longer than we wait, and answers when it goes on."""

    async def work() -> None:
        async with (
            EmbeddedBroker(program="mosquitto") as broker,
            connection(new_client(BrokerAddress(port=broker.port), aiomqtt.ProtocolVersion.V5)) as client,
        ):
            os.kill(broker.pid, signal.SIGSTOP)
            try:
                with pytest.raises(aiomqtt.MqttError, match="timed out"):
                    await client.subscribe("a", timeout=0.2)
            finally:
                os.kill(broker.pid, signal.SIGCONT)
            await client.subscribe("b", timeout=10.0)

    run(work())
    assert "Traceback" not in caplog.text
    assert "Unexpected message ID" not in caplog.text


@NEEDS_MOSQUITTO
def test_connection_lost_while_writing_leaves_no_watched_socket() -> None:
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
def test_an_unacknowledged_event_is_sent_again_after_a_broker_failure(tmp_path: Path) -> None:
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
def test_two_servers_for_one_rig_are_detected(caplog: pytest.LogCaptureFixture) -> None:
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
def test_last_will_reports_a_killed_server(program: Program) -> None:
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
def test_a_server_that_ends_publishes_offline(program: Program) -> None:
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
        mosquitto = shutil.which("mosquitto", path=PROGRAM_PATH)
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
