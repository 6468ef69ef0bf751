"""Who may do what: viewers, operators and servers at a mosquitto with the example's access list."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiomqtt
import pytest
from mosquitto_lab import NEEDS_MOSQUITTO, PASSWORDS, Lab
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from security_bench import TOPICS, V3, V5, Server, forgeries, logged_in, run

from hilserver.client import RequestFailed, read_status, request
from hilserver.protocol.commands import Arm, Jog
from hilserver.service.mqtt import identifier

pytestmark = pytest.mark.slow


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


@NEEDS_MOSQUITTO
@pytest.mark.parametrize("protocol", [V3, V5])
def test_a_viewer_sees_everything_and_changes_nothing(lab: Lab, protocol: aiomqtt.ProtocolVersion) -> None:
    async def work() -> None:
        server = Server(lab.address("hilserver-lab"))
        async with lab.running(), server.serving(), logged_in(lab.address("anna")) as operator:
            await operator.until(lambda: dict(operator.seen).get(TOPICS.state))
            async with logged_in(lab.address("wall"), protocol) as viewer:
                await viewer.until(lambda: dict(viewer.seen).get(TOPICS.state))
                before = {**dict(operator.seen)}
                for topic, payload in forgeries():
                    for retain in (False, True):
                        await viewer.client.publish(topic, payload, qos=1, retain=retain)
                # what the operator sends after all this is the first thing that the server hears
                await operator.send("arm", {"id": "real"})
                assert (await operator.answer("real"))["tick"] == 1
                assert await viewer.answer("real")
        assert [command.id for command in server.commands.executed] == ["real"]
        del before[TOPICS.availability]
        assert {topic: payload for topic, payload in operator.seen if topic in before} == before
        assert operator.answers("forged") == []
        assert all(payload != b"offline" for _, payload in operator.seen)

    run(work())


@NEEDS_MOSQUITTO
@pytest.mark.parametrize("version", ["311", "5"])
def test_a_viewers_last_will_changes_nothing(lab: Lab, version: str) -> None:
    """What a broker publishes for somebody who is gone is no way round the access list."""
    wills = {TOPICS.command("trip"): '{"id": "forged"}', TOPICS.availability: "offline", TOPICS.state: "forged"}

    async def die(account: str, topic: str, payload: str) -> None:
        """Log in with a last will, and be killed."""
        login = ("-p", str(lab.plain_port), "-V", version, "-u", account, "-P", PASSWORDS[account])
        will = ("--will-topic", topic, "--will-payload", payload, "--will-qos", "1")
        program = ("mosquitto_sub", *login, *will, "-t", TOPICS.availability)
        client = await asyncio.create_subprocess_exec(*program, stdout=asyncio.subprocess.PIPE)
        assert client.stdout is not None
        assert await client.stdout.readline() == b"online\n"  # it is logged in
        client.kill()
        await client.communicate()

    async def work() -> None:
        server = Server(lab.address("hilserver-lab"))
        async with lab.running(), server.serving(), logged_in(lab.address("anna")) as operator:
            for topic, payload in wills.items():
                await die("wall", topic, payload)
            # an operator's is carried out: the broker does publish them
            await die("anna", TOPICS.command("trip"), '{"id": "will"}')
            await operator.answer("will")
        assert [command.id for command in server.commands.executed] == ["will"]
        assert all(payload != b"forged" for _, payload in operator.seen)
        assert {payload for topic, payload in operator.seen if topic == TOPICS.availability} == {b"online"}

    run(work())


@NEEDS_MOSQUITTO
def test_a_response_topic_outside_the_servers_rights_has_no_effect(lab: Lab) -> None:
    """The answer comes where it always comes; the broker does not pass on the other one, and the connection lives."""

    async def work() -> None:
        server = Server(lab.address("hilserver-lab"))
        async with lab.running(), server.serving(), logged_in(lab.address("anna"), V5) as operator:
            for id in ("1", "2"):
                properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
                properties.ResponseTopic = "panel/reply"
                await operator.send("arm", {"id": id}, properties=properties)
                await operator.answer(id)
            assert [payload for topic, payload in operator.seen if topic == TOPICS.availability] == [b"online"]
        assert "panel/reply" not in dict(operator.seen)

    run(work())


@NEEDS_MOSQUITTO
def test_an_operator_commands_and_can_not_speak_for_the_server(lab: Lab) -> None:
    async def work() -> None:
        server = Server(lab.address("hilserver-lab"))
        async with lab.running(), server.serving():
            assert (await request(lab.address("anna"), "lab", Jog(valve="main", command=0.1))).ok
            assert (await read_status(lab.address("wall"), "lab", within=0.5)).state is not None
            async with logged_in(lab.address("anna")) as operator, logged_in(lab.address("wall")) as viewer:
                await viewer.until(lambda: dict(viewer.seen).get(TOPICS.state))
                for topic in TOPICS.published:
                    await operator.client.publish(topic, b"forged", qos=1, retain=True)
                await operator.send("arm", {"id": "1"})
                await viewer.answer("1")
            assert all(payload != b"forged" for _, payload in viewer.seen)
            assert not any(topic.startswith("hil/lab/command") for topic, _ in viewer.seen)

    run(work())


@NEEDS_MOSQUITTO
def test_a_server_serves_its_own_rig_only(lab: Lab) -> None:
    async def work() -> None:
        server = Server(lab.address("hilserver-lab"))
        async with (
            lab.running(),
            server.serving(),
            logged_in(lab.address("anna")) as operator,
            logged_in(lab.address("hilserver-other")) as other,
        ):
            for topic in (*TOPICS.published, TOPICS.command("arm")):
                await other.client.publish(topic, b'{"id": "forged"}', qos=1)
            await operator.send("disarm", {"id": "1"})
            await operator.answer("1")
            assert not any(topic.startswith("hil/lab/command") for topic, _ in other.seen)
        assert [command.name for command in server.commands.executed] == ["disarm"]
        assert all(b"forged" not in payload for _, payload in operator.seen)

    run(work())


@NEEDS_MOSQUITTO
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the client library leaves a failed TLS socket to be collected
def test_without_a_valid_log_in_nobody_gets_in(lab: Lab, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    authority = Lab(other).folder / "ca.crt"
    nobody = {"user": None, "password_file": None}

    async def work() -> None:
        async with lab.running(), Server(lab.address("hilserver-lab")).serving():
            for changes, reason in (
                (nobody, "[Nn]ot authori"),
                ({"password_file": lab.folder / "anna"}, "[Nn]ot authori"),
                ({**nobody, "port": lab.plain_port, "ca_file": None}, "[Nn]ot authori"),
                ({"ca_file": None}, "timed out|reset|lost|broker"),
                ({"ca_file": authority}, "certificate verify failed"),
                ({"host": "127.0.0.2"}, "certificate verify failed|not valid for|refused"),
            ):
                with pytest.raises(RequestFailed, match=reason):
                    await request(lab.address("wall", **changes), "lab", Arm(), within=1.0)

    run(work())


@NEEDS_MOSQUITTO
def test_a_viewer_cannot_disconnect_the_server_by_its_client_name(lab: Lab) -> None:
    async def work() -> None:
        server = Server(lab.address("hilserver-lab"))
        async with lab.running(), server.serving(), logged_in(lab.address("anna")) as operator:
            async with logged_in(lab.address("wall"), identifier=identifier("lab", None)):
                await operator.send("arm", {"id": "1"})
                await operator.answer("1")
            assert [payload for topic, payload in operator.seen if topic == TOPICS.availability] == [b"online"]

    run(work())


def test_the_name_at_the_broker_is_known_to_those_with_the_password_only() -> None:
    names = [identifier("lab", "one"), identifier("lab", "two"), identifier("lift", "one"), identifier("lab", None)]
    assert len(set(names)) == 4
    assert identifier("lab", "one") == names[0]  # the same after a restart: the broker ends a half-dead connection
    assert "one" not in names[0]
