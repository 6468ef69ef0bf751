"""Commands that come late, twice, or too large have no effect."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiomqtt
import pytest
from mosquitto_lab import NEEDS_MOSQUITTO, Lab
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from security_bench import TOPICS, V5, Server, User, logged_in, run

from hilserver.client import request
from hilserver.protocol.address import BrokerAddress
from hilserver.protocol.commands import Arm
from hilserver.service.broker import EmbeddedBroker, Program

pytestmark = pytest.mark.slow


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


BROKERS = ("the example's", "embedded mosquitto", "embedded amqtt")


@contextlib.asynccontextmanager
async def server_and_operator(broker: str, folder: Path) -> AsyncIterator[tuple[Server, User]]:
    """A server and one who may command, at one of these brokers."""
    async with contextlib.AsyncExitStack() as stack:
        if broker == "the example's":
            lab = Lab(folder)
            await stack.enter_async_context(lab.running())
            addresses = lab.address("hilserver-lab"), lab.address("anna")
        else:
            program: Program = "amqtt" if broker.endswith("amqtt") else "mosquitto"
            embedded = await stack.enter_async_context(EmbeddedBroker(program=program))
            addresses = BrokerAddress(port=embedded.port), BrokerAddress(port=embedded.port)
        server = Server(addresses[0])
        await stack.enter_async_context(server.serving())
        yield server, await stack.enter_async_context(logged_in(addresses[1]))


@NEEDS_MOSQUITTO
@pytest.mark.parametrize("broker", BROKERS)
def test_expired_duplicated_and_oversized_commands_have_no_effect_and_are_answered(broker: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with server_and_operator(broker, tmp_path) as (server, operator):
            await operator.send("arm", {"id": "late", "expires": time.time() - 1})
            assert "is past" in (await operator.answer("late"))["reason"]
            await operator.send("arm", {"id": "twice"})
            await operator.answer("twice")
            await operator.send("arm", {"id": "twice"})
            assert (await operator.answer("twice", 2))["duplicate"]
            for size in (65_537, 70_000, 1_000_000, 10_000_000):
                large = b'{"id": "%d", "x": "' % size + b"x" * size + b'"}'
                await operator.send("switch", large)
                answer = await operator.answer(str(size))
                assert (answer["ok"], answer["duplicate"]) == (False, False)
            if broker == "embedded amqtt":  # has no bound of its own; the server has
                await operator.send("switch", b" " * (17 << 20))
                assert "at most 64 KiB are read" in (await operator.answer(None))["reason"]
            else:  # a broker of MQTT 5 passes on that a command was retained
                await operator.send("start", {"id": "retained"}, retain=True)
                assert "retained commands are refused" in (await operator.answer("retained"))["reason"]
            assert [command.id for command in server.commands.executed] == ["twice"]

    run(work())


@NEEDS_MOSQUITTO
def test_an_oversized_message_ends_the_senders_connection_only(lab: Lab) -> None:
    async def work() -> None:
        server = Server(lab.address("hilserver-lab"))
        async with lab.running(), server.serving(), logged_in(lab.address("anna")) as watching:
            with pytest.raises(aiomqtt.MqttError):
                async with logged_in(lab.address("anna")) as operator:
                    await operator.send("switch", b" " * (17 << 20))
            await watching.send("arm", {"id": "1"})
            await watching.answer("1")
        assert len(server.commands.executed) == 1

    run(work())


@contextlib.asynccontextmanager
async def careful_server(lifetime: float) -> AsyncIterator[tuple[Server, User, BrokerAddress]]:
    async with EmbeddedBroker(program="mosquitto") as broker:
        address = BrokerAddress(port=broker.port)
        async with Server(address, lifetime).serving() as server, logged_in(address) as user:
            yield server, user, address


@NEEDS_MOSQUITTO
def test_with_a_lifetime_a_command_must_have_an_id_and_expire_soon() -> None:
    async def work() -> None:
        async with careful_server(10.0) as (server, user, _):
            now = server.now()
            for id, expires, reason in (
                ("1", None, "give id and expires"),
                (None, now + 5, "give id and expires"),
                ("2", now + 60, "this server accepts commands that expire within 10 s"),
            ):
                payload = {"id": id, "expires": expires}
                await user.send("arm", {key: value for key, value in payload.items() if value is not None})
                answer = await user.answer(id)
                assert (answer["ok"], reason in answer["reason"]) == (False, True), answer
            assert server.commands.executed == []
            await user.send("arm", {"id": "3", "expires": now + 5})
            assert (await user.answer("3"))["ok"]
            for name in ("stop", "disarm", "trip"):  # whoever sees something go wrong needs no clock
                await user.send(name, {})
            await user.until(lambda: len(server.commands.executed) == 4)

    run(work())


@NEEDS_MOSQUITTO
def test_with_a_lifetime_nothing_can_be_replayed_however_many_ids_came_since() -> None:
    async def work() -> None:
        async with careful_server(60.0) as (server, user, _):
            recorded = {"id": "first", "expires": server.now() + 50}
            await user.send("arm", recorded)
            await user.answer("first")
            for number in range(1100):  # more than are remembered without a lifetime
                await server.service.inbox.execute(Arm(id=f"n{number}", expires=server.now() + 50))
            await user.send("arm", recorded)
            assert (await user.answer("first", 2))["duplicate"]
            server.ahead = 51.0
            for number in range(1100):
                await server.service.inbox.execute(Arm(id=f"m{number}", expires=server.now() + 0.5))
                server.ahead += 1.0
            assert len(server.service.inbox._answered) == 1000  # what has expired need not be remembered
            await user.send("arm", recorded)
            assert "is past" in (await user.answer("first", 3))["reason"]
        assert [command.id for command in server.commands.executed].count("first") == 1

    run(work())


@NEEDS_MOSQUITTO
@pytest.mark.parametrize("ahead", [0.0, 3600.0, -3600.0])
def test_the_client_gives_expiries_by_the_servers_clock(ahead: float) -> None:
    async def work() -> None:
        async with EmbeddedBroker(program="mosquitto") as broker:
            server = Server(BrokerAddress(port=broker.port), 10.0)
            server.ahead = ahead
            async with server.serving(), logged_in(server.service.address) as user:
                await user.until(lambda: dict(user.seen).get(TOPICS.state))
                answer = await request(server.service.address, "lab", Arm(), within=30.0)
            assert answer.ok, answer
            (command,) = server.commands.executed
            assert command.expires == pytest.approx(server.now() + 10.0, abs=5.0)

    run(work())


@NEEDS_MOSQUITTO
@pytest.mark.parametrize("topic", ["hil/other/command/arm", "hil/lab/state", "$SYS/x"])
def test_a_response_topic_can_not_make_the_server_command_others(topic: str) -> None:
    async def work() -> None:
        async with EmbeddedBroker(program="mosquitto") as broker:
            address = BrokerAddress(port=broker.port)
            async with Server(address).serving(), logged_in(address, V5) as user:
                properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
                properties.ResponseTopic = topic
                await user.send("arm", {"id": "1"}, properties=properties)
                await user.answer("1")
                await user.send("arm", {"id": "2"})
                await user.answer("2")
                assert not [text for where, text in user.seen if where == topic and b'"id":"1"' in text]

    run(work())
