"""The client's single requests over real brokers: answers, and the reasons why there is none."""

import pytest
from mqtt_bench import NEEDS_MOSQUITTO, PROGRAMS, RecordingCommands, rig, run, serving

from hilserver import client as client_module
from hilserver.client import RequestFailed, read_status, request
from hilserver.protocol.address import BrokerAddress
from hilserver.protocol.commands import Arm, Jog
from hilserver.service.broker import EmbeddedBroker, Program, _free_port
from hilserver.service.mqtt import MqttService

pytestmark = pytest.mark.slow


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
def test_client_reports_why_there_is_no_answer() -> None:
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
