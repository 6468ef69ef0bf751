"""Commands that stop, over real brokers: they overtake what waits, can't be refused and get through a flood."""

import asyncio
import re
import sys
import time

import aiomqtt
import pytest
from mqtt_bench import NEEDS_MOSQUITTO, PROGRAMS, panel, panel_of_answers, rig, run, serving, until

from hilserver.protocol.stopping import STOPPING
from hilserver.service.broker import Program
from hilserver.service.inbox import WAITING_LIMIT
from hilserver.service.mqtt import INCOMING_BYTES, INCOMING_LIMIT, MqttService, _Incoming

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("stop", STOPPING)
def test_a_stopping_command_overtakes_all_waiting_commands(program: Program, stop: str) -> None:
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
def test_stopping_commands_are_never_refused(program: Program, stop: str) -> None:
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


def test_received_messages_are_limited_in_bytes_too() -> None:
    message = aiomqtt.Message("hil/lab/command/switch_circuit", bytes(INCOMING_BYTES // 100), 0, False, 1, None)
    discarded: list[str] = []
    queue = _Incoming(discarded.append, 0)
    for _ in range(102):
        queue.put_nowait(message)
    assert (queue.qsize(), discarded) == (100, ["switch_circuit"] * 2)
    queue.get_nowait()
    queue.put_nowait(message)
    assert (queue.qsize(), len(discarded)) == (100, 2)


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
def test_a_trip_is_carried_out_during_a_flood_of_commands() -> None:
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
