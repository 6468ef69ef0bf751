"""A command that stops, from a client that is there in a moment: sent, answered, and why there is no answer."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import aiomqtt
import pytest
from mosquitto_lab import NEEDS_MOSQUITTO, Lab
from mqtt_bench import RecordingCommands, rig, run, serving

from hilserver.errors import HilserverError
from hilserver.protocol import stopping
from hilserver.protocol.address import BrokerAddress
from hilserver.protocol.stopping import STOPPING, send_stopping
from hilserver.service.broker import EmbeddedBroker, _free_port
from hilserver.service.mqtt import MqttService

pytestmark = pytest.mark.slow


@NEEDS_MOSQUITTO
def test_every_stopping_command_is_carried_out_and_answered() -> None:
    async def work() -> None:
        async with rig() as lab:
            for name in STOPPING:
                answer = await asyncio.to_thread(send_stopping, BrokerAddress(port=lab.port), "lab", name, within=60.0)
                assert (answer["command"], answer["ok"], answer["result"]) == (name, True, {"did": name})
            assert [command.name for command in lab.commands.executed] == list(STOPPING)

    run(work())


@NEEDS_MOSQUITTO
def test_it_logs_in_over_tls_and_a_viewer_is_told_that_it_may_not(tmp_path: Path) -> None:
    lab = Lab(tmp_path)

    async def work() -> None:
        commands = RecordingCommands()
        async with lab.running(), serving(MqttService(lab.address("hilserver-lab"), "lab", commands)):
            answer = await asyncio.to_thread(send_stopping, lab.address("anna"), "lab", "stop", within=60.0)
            assert answer["ok"]
            with pytest.raises(HilserverError, match=r"did not answer stop within 1 s.*no right to send commands"):
                await asyncio.to_thread(send_stopping, lab.address("wall"), "lab", "stop", within=1.0)
            wrong = lab.address("anna", password_file=tmp_path / "wall")
            with pytest.raises(HilserverError, match="Not authorized"):
                await asyncio.to_thread(send_stopping, wrong, "lab", "stop", within=60.0)
            assert [command.name for command in commands.executed] == ["stop"]

    run(work())


def test_why_there_is_no_answer_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "LOOK_UP", 0.3)

    async def work() -> None:
        nobody = BrokerAddress(port=_free_port())
        with pytest.raises(HilserverError, match=f"MQTT broker {nobody}: .*refused.* Is it running"):
            await asyncio.to_thread(send_stopping, nobody, "lab", "stop")
        async with EmbeddedBroker() as broker:
            address = BrokerAddress(port=broker.port)
            with pytest.raises(HilserverError, match=f"{address} knows no rig lab"):
                await asyncio.to_thread(send_stopping, address, "lab", "stop", within=60.0)
            async with aiomqtt.Client("127.0.0.1", broker.port) as client:
                await client.publish("hil/lab/availability", "offline", qos=1, retain=True)
            with pytest.raises(HilserverError, match="the server of rig lab is offline"):
                await asyncio.to_thread(send_stopping, address, "lab", "stop", within=60.0)

    run(work())


def test_answers_to_others_are_not_taken_for_its_own() -> None:
    """Another client's command is answered on the same topic, before ours."""

    async def serve(port: int, ready: asyncio.Event) -> None:
        async with aiomqtt.Client("127.0.0.1", port) as client:
            await client.subscribe("hil/lab/command/stop", qos=1)
            await client.publish("hil/lab/availability", "online", qos=1, retain=True)
            ready.set()
            async for message in client.messages:
                own = json.loads(bytes(message.payload))["id"]
                for id, ok in ((None, False), ("another", False), (own, True)):
                    await client.publish("hil/lab/answer", json.dumps({"id": id, "ok": ok}), qos=1)

    async def work() -> None:
        async with EmbeddedBroker() as broker:
            ready = asyncio.Event()
            serving = asyncio.create_task(serve(broker.port, ready))
            await ready.wait()
            answer = await asyncio.to_thread(send_stopping, BrokerAddress(port=broker.port), "lab", "stop", within=60.0)
            assert answer["ok"]
            serving.cancel()

    run(work())
