"""Commands over real brokers, mosquitto (MQTT 5) and amqtt (MQTT 3.1.1 only): order, repetition, expiry, answers."""

import asyncio
import json
import logging

import pytest
from command_payloads import MALFORMED, VALID
from mqtt_bench import NEEDS_AMQTT, NEEDS_MOSQUITTO, PROGRAMS, RecordingCommands, panel, rig, run, serving
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from hilserver.protocol.address import BrokerAddress
from hilserver.protocol.commands import COMMANDS
from hilserver.protocol.stopping import STOPPING
from hilserver.service.broker import EmbeddedBroker, Program
from hilserver.service.mqtt import MqttService

pytestmark = pytest.mark.slow

REFUSED = [case for case in MALFORMED if case[0] not in STOPPING]


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
def test_a_busy_server_refuses_with_the_reason() -> None:
    async def work() -> None:
        async with rig() as lab, panel(lab.port) as user:
            lab.commands.free.clear()
            for number in range(34):  # one is executed, 32 wait
                await user.send("arm", {"id": str(number)})
            busy = await user.answer("33")
            assert busy["reason"].startswith("busy: 32 commands are already waiting")
            lab.commands.free.set()
            assert (await user.answer("32"))["ok"]
            await user.send("arm", {"id": "33"})  # a busy refusal leaves the id free
            assert not (await user.answer("33"))["duplicate"]

    run(work())


@NEEDS_MOSQUITTO
def test_retained_command_is_refused_at_once_and_at_each_connection() -> None:
    async def work() -> None:
        async with rig() as lab, panel(lab.port) as user:
            await user.send("start", {"id": "7"}, retain=True)
            answer = await user.answer("7")
            assert answer["reason"] == (
                "retained commands are refused: this one would be delivered each time the server connects. "
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


def test_all_commands_have_a_valid_example() -> None:
    assert set(VALID) == set(COMMANDS)
