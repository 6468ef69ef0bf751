"""Who may do what: accounts and roles at a real broker, secrets in private files, commands that can't be replayed."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
from mosquitto_lab import NEEDS_MOSQUITTO, PASSWORDS, Lab, passwd
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from service_harness import Server as RealServer

from hilserver.client import RequestFailed, read_status, request, where
from hilserver.errors import ConfigurationError, HilserverError
from hilserver.protocol.accounts import Accounts, AccountsError
from hilserver.protocol.address import BrokerAddress, LoginError, read_address, read_password
from hilserver.protocol.commands import COMMANDS, Arm, Command, Jog
from hilserver.protocol.connection import new_client
from hilserver.protocol.published import Answer, ServerState
from hilserver.protocol.topics import Topics, describe
from hilserver.rig.settings import MqttSettings
from hilserver.service.broker import BrokerError, EmbeddedBroker, Program
from hilserver.service.mqtt import MqttService, identifier

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TOPICS = Topics("lab")
V3, V5 = aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V5
STATE = ServerState(mode="SAFE", tick=7, time=0.0)


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
                await self.service.wait_connected()
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


# --- roles at a mosquitto with the example's access list --------------------------------------------------------------


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def forgeries() -> list[tuple[str, bytes]]:
    """What somebody would publish to change something: commands, also with wildcards' neighbours, and false states."""
    offline = [(topic, b"offline") for topic in TOPICS.published]
    commands = [(TOPICS.command(name), b'{"id": "forged"}') for name in COMMANDS]
    odd = ("hil/lab/command", "hil/lab/command/", "hil/lab/command/arm/now", "hil/lab/commands/arm", "hil//command/arm")
    return offline + commands + [(topic, b'{"id": "forged"}') for topic in odd]


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
def test_a_response_topic_outside_of_the_servers_rights_costs_nothing(lab: Lab) -> None:
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
def test_a_viewer_can_not_throw_the_server_out_by_its_name(lab: Lab) -> None:
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


# --- commands that come late, twice, or too large ---------------------------------------------------------------------


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
def test_what_is_too_large_for_the_broker_ends_the_senders_connection_not_the_servers(lab: Lab) -> None:
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


# --- the embedded broker's accounts -----------------------------------------------------------------------------------


@NEEDS_MOSQUITTO
def test_accounts_of_the_embedded_broker(tmp_path: Path) -> None:
    file = tmp_path / "accounts"
    passwd(file, anna="operator's", wall="viewer's")
    accounts = Accounts("lab", file, ("anna",))

    def login(port: int, user: str, password: str) -> BrokerAddress:
        secret = tmp_path / f"{user}.password"
        secret.touch(0o600)
        secret.write_text(password)
        return BrokerAddress(port=port, user=user, password_file=secret)

    async def work() -> None:
        async with EmbeddedBroker(accounts=accounts) as broker:
            server = Server(login(broker.port, "hilserver", accounts.server_password))
            async with server.serving(), logged_in(login(broker.port, "anna", "operator's")) as operator:
                async with logged_in(login(broker.port, "wall", "viewer's")) as viewer:
                    await viewer.until(lambda: dict(viewer.seen).get(TOPICS.state))
                    for topic, payload in forgeries():
                        await viewer.client.publish(topic, payload, qos=1)
                    await operator.send("arm", {"id": "1"})
                    await viewer.answer("1")
                for address in (BrokerAddress(port=broker.port), login(broker.port, "wall", "guessed")):
                    with pytest.raises(aiomqtt.MqttError, match=r"[Nn]ot authori"):
                        async with logged_in(address):
                            pass
            assert [command.id for command in server.commands.executed] == ["1"]
            arguments = await asyncio.to_thread(Path(f"/proc/{broker.pid}/cmdline").read_text)
            assert "mosquitto" in arguments
            assert accounts.server_password not in arguments

    run(work())


@pytest.mark.realtime
@NEEDS_MOSQUITTO
def test_a_server_with_accounts_and_a_local_enable(tmp_path: Path) -> None:
    """The whole of it: a viewer is not heard, an operator is, and at the rig the key is off."""
    passwd(tmp_path / "accounts", anna="operator's", wall="viewer's")
    changes = {
        "port = 0": 'port = 0\naccounts = "accounts"\noperators = ["anna"]\n[enable]\nchannel = "key"',
        "x = { device": "\n".join(
            f'{name} = {{ device = "rig", source = "x", scale = {{ raw = [0, 10], value = {value} }} }}'
            for name, value in (("x", '["0 mm", "1000 mm"]'), ("key", "[0, 0.1]"))
        ),
    }

    def login(server: RealServer, user: str, password: str) -> BrokerAddress:
        secret = tmp_path / f"{user}.password"
        secret.touch(0o600)
        secret.write_text(password)
        return BrokerAddress(port=server.port, user=user, password_file=secret)

    async def work(server: RealServer) -> None:
        topics = Topics(server.name)
        async with logged_in(login(server, "wall", "viewer's")) as viewer:
            await viewer.until(lambda: dict(viewer.seen).get(topics.state))
            for name in COMMANDS:
                await viewer.client.publish(topics.command(name), b'{"id": "forged"}', qos=1)
            answer = await request(login(server, "anna", "operator's"), server.name, Arm())
            await viewer.until(lambda: dict(viewer.seen).get(topics.answer))
        answers = [json.loads(payload) for topic, payload in viewer.seen if topic == topics.answer]
        assert [found["id"] for found in answers] == [answer.id]
        assert answer.reason == "the local enable is off: switch it on at the rig first."
        states = [json.loads(payload) for topic, payload in viewer.seen if topic == topics.state]
        assert {(state["mode"], state["enabled"]) for state in states} <= {("SAFE", False), ("STARTUP", False)}
        with pytest.raises(RequestFailed, match=r"[Nn]ot authori"):
            await request(where(server.name, f"127.0.0.1:{server.port}")[1], server.name, Arm(), within=1.0)

    with RealServer(tmp_path, changes=changes) as server:
        run(work(server))


@pytest.mark.realtime
@NEEDS_MOSQUITTO
def test_nothing_unlawful_reaches_the_loop_of_a_real_server(lab: Lab, tmp_path: Path) -> None:
    """A server in processes of its own, over TLS: what its loop was asked to do is counted in the shared memory."""
    login = (
        f'embedded = false\nhost = "localhost"\nport = {lab.port}\nuser = "hilserver-lab"\n'
        f'password_file = "{lab.folder}/hilserver-lab"\nca_file = "{lab.folder}/ca.crt"'
    )
    server = RealServer(tmp_path, changes={"embedded =": login, "port = 0": ""})
    acl = lab.folder / "acl"
    acl.write_text(acl.read_text().replace("hil/lab/", f"hil/{server.name}/"))
    topics = Topics(server.name)
    mine = [(topic.replace("hil/lab/", f"hil/{server.name}/"), payload) for topic, payload in forgeries()]

    def asked() -> int:
        return server.memory.mailbox.posted

    async def work() -> None:
        async with lab.running():
            await asyncio.to_thread(server.__enter__)
            async with logged_in(lab.address("anna")) as operator, logged_in(lab.address("wall")) as viewer:

                async def send(name: str, payload: bytes | dict[str, Any]) -> Any:
                    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
                    seen = len(operator.seen)
                    await operator.client.publish(topics.command(name), data, qos=1)
                    await operator.until(lambda: topics.answer in dict(operator.seen[seen:]))
                    return json.loads(dict(operator.seen[seen:])[topics.answer])

                await operator.until(lambda: dict(operator.seen).get(topics.availability) == b"online")
                for topic, payload in mine:
                    await viewer.client.publish(topic, payload, qos=1, retain=True)
                assert "is past" in (await send("arm", {"id": "late", "expires": time.time() - 1}))["reason"]
                assert "at most 64 KiB" in (await send("arm", b"{}" + b" " * 70_000))["reason"]
                assert asked() == 0
                assert (await send("arm", {"id": "once"}))["ok"]
                assert (await send("disarm", {"id": "off"}))["ok"]
                assert asked() == 2
                again = await send("arm", {"id": "once"})
                assert (again["ok"], again["duplicate"]) == (True, True)
                assert asked() == 2
                state = len(viewer.seen)
                await viewer.until(lambda: topics.state in dict(viewer.seen[state:]))
                assert json.loads(dict(viewer.seen[state:])[topics.state])["mode"] == "SAFE"
            assert all(payload not in (b"offline", b'{"id": "forged"}') for _, payload in operator.seen)
            server.kill("supervisor", number=signal.SIGTERM)
            assert await asyncio.to_thread(server.wait_exit) == 0

    try:
        run(work())
    finally:
        if server.process is not None:
            server.__exit__()


@pytest.mark.realtime
def test_a_server_does_not_start_with_a_password_that_others_can_read(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret")
    (tmp_path / "password").chmod(0o644)
    login = 'embedded = false\nuser = "x"\npassword_file = "password"'
    server = RealServer(tmp_path, changes={"embedded =": login, "port = 0": "port = 1"})
    server.launch()
    try:
        assert server.wait_exit(60.0) == 2
        assert server.stderr.strip().endswith(f"Fix it with: chmod 640 {tmp_path}/password")
    finally:
        server.close()


@pytest.mark.parametrize(
    ("text", "operators", "reason"),
    [
        ("anna:$7$101$c2FsdA==$aGFzaA==\n", ("ana",), r"mqtt.operators: \"ana\" has no account in .*Did you mean anna"),
        ("anna:secret\n", (), "line 1 is not NAME:HASH as made by: mosquitto_passwd"),
        ("hilserver:$7$101$c2FsdA==$aGFzaA==\n", (), "the account hilserver is the server's own"),
    ],
)
def test_unusable_accounts_are_refused(tmp_path: Path, text: str, operators: tuple[str, ...], reason: str) -> None:
    file = tmp_path / "accounts"
    file.touch(0o600)
    file.write_text(text)
    with pytest.raises(AccountsError, match=reason):
        Accounts("lab", file, operators).passwords()
    file.chmod(0o644)
    with pytest.raises(LoginError, match="others may read it"):
        Accounts("lab", file, operators).passwords()


def test_accounts_need_mosquitto(tmp_path: Path) -> None:
    async def work() -> None:
        with pytest.raises(BrokerError, match=r"mqtt\.accounts needs mosquitto"):
            await EmbeddedBroker(program="amqtt", accounts=Accounts("lab", tmp_path)).__aenter__()

    run(work())


# --- secrets lie in private files -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        (0o600, None),
        (0o400, None),
        (0o640, None),
        (0o644, r"others may read it\. Fix it with: chmod 640 "),
        (0o660, "others than its owner may change it"),
        (0o602, "others than its owner may change it"),
    ],
)
def test_a_password_is_read_from_a_private_file_only(tmp_path: Path, mode: int, reason: str | None) -> None:
    file = tmp_path / "password"
    file.write_text("secret\nwhatever\n")
    file.chmod(mode)
    if reason is None:
        assert read_password(file) == "secret"
    else:
        with pytest.raises(LoginError, match=reason) as refused:
            read_password(file)
        assert str(file) in str(refused.value)
        assert "secret\n" not in str(refused.value)


def test_a_password_file_that_is_none(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch(0o600)
    for file, reason in ((empty, "empty"), (tmp_path / "missing", "No such file"), (tmp_path, "is not a file")):
        with pytest.raises(LoginError, match=reason):
            read_password(file)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_password_in_somebody_elses_file_is_refused() -> None:
    with tempfile.TemporaryDirectory() as folder:  # where others may look, other than in pytest's
        Path(folder).chmod(0o755)
        _give_away(Path(folder) / "password")


def _give_away(file: Path) -> None:
    file.touch(0o600)
    file.write_text("secret")
    script = (
        "import os, sys; from pathlib import Path; from hilserver.protocol.address import require_private\n"
        "os.seteuid(65534)\n"
        "try: require_private(Path(sys.argv[1]))\n"
        "except Exception as error: print(error)"
    )
    for owner, said in ((1, "belongs to daemon"), (0, "")):
        os.chown(file, owner, 0)
        done = subprocess.run([sys.executable, "-c", script, file], capture_output=True, text=True, check=True)
        assert said in done.stdout
        assert bool(done.stdout) == bool(said)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_certificates_and_keys_are_checked(tmp_path: Path) -> None:
    folder = Lab(tmp_path).folder
    good = {"ca_file": folder / "ca.crt", "cert_file": folder / "broker.crt", "key_file": folder / "broker.key"}
    BrokerAddress.model_validate(good).check()
    locked = folder / "locked.key"
    protect: list[str | Path] = [
        "openssl",
        "pkey",
        "-in",
        folder / "broker.key",
        "-aes256",
        "-passout",
        "pass:x",
        "-out",
        locked,
    ]
    subprocess.run(protect, check=True, capture_output=True)
    (folder / "public.key").write_bytes((folder / "broker.key").read_bytes())
    (folder / "public.key").chmod(0o644)
    for changes, reason in (
        ({"ca_file": folder / "none.crt"}, "none.crt: No such file"),
        ({"ca_file": folder / "anna"}, "anna: holds no usable certificate"),
        ({"key_file": folder / "public.key"}, "others may read it"),
        ({"key_file": folder / "ca.key"}, "holds no usable certificate or key"),
        ({"key_file": locked}, "the key has a passphrase"),
    ):
        with pytest.raises(LoginError, match=reason):
            BrokerAddress.model_validate({**good, **changes}).check()


def test_what_others_in_the_network_could_do_is_said() -> None:
    assert list(BrokerAddress().weaknesses()) == []
    assert list(BrokerAddress(host="localhost").weaknesses()) == []
    texts = list(BrokerAddress(host="lab-pc", port=1884).weaknesses())
    assert ["no TLS" in texts[0], "no login" in texts[1]] == [True, True]
    assert all(text.startswith("MQTT broker lab-pc:1884") for text in texts)
    assert list(BrokerAddress(host="lab-pc", user="x", ca_file=Path("ca.crt")).weaknesses()) == []


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"password_file": "p"}, "password_file needs user"),
        ({"cert_file": "c", "ca_file": "a"}, "cert_file and key_file belong together"),
        ({"cert_file": "c", "key_file": "k"}, "cert_file needs ca_file"),
        ({"embedded": True, "host": "lab-pc"}, "host is for an external broker"),
        ({"accounts": "a"}, "are for embedded = true"),
        ({"embedded": True, "operators": ["anna"]}, "operators need accounts"),
        ({"port": 0}, "port 0"),
        ({"command_lifetime": "0.5 s"}, "greater than or equal to 1"),
        ({"password": "secret"}, "Extra inputs"),
    ],
)
def test_refused_settings(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        MqttSettings.model_validate(settings)


# --- the command line logs in with a file of its user's ---------------------------------------------------------------


def test_a_broker_file_names_address_log_in_and_rig(tmp_path: Path) -> None:
    file = tmp_path / "lab.toml"
    file.write_text(
        'rig = "lab"\nhost = "lab-pc"\nport = 8883\nuser = "anna"\npassword_file = "password"\nca_file = "ca.crt"\n'
    )
    rig, address = read_address(file)
    assert (rig, str(address), address.user) == ("lab", "lab-pc:8883", "anna")
    assert (address.password_file, address.ca_file) == (tmp_path / "password", tmp_path / "ca.crt")
    assert where(None, str(file)) == ("lab", address)
    assert where("lift", str(file)) == ("lift", address)
    file.write_text('host = "lab-pc"\n')
    with pytest.raises(HilserverError, match="which rig"):
        where(None, str(file))
    file.write_text('hots = "lab-pc"\nport = 70000\n')
    with pytest.raises(ConfigurationError) as refused:
        read_address(file)
    assert "hots" in str(refused.value)
    assert "port" in str(refused.value)
    with pytest.raises(HilserverError, match="no such file"):
        where(None, str(tmp_path / "none.toml"))


# --- nothing in it runs what it is sent -------------------------------------------------------------------------------

FORBIDDEN_MODULES = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "execfile"}
SHELLS = {"system", "popen", "getoutput", "getstatusoutput", "create_subprocess_shell"}


def dangers(source: str) -> list[str]:
    """What in a Python source could run or unpickle data."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        if any(part in FORBIDDEN_MODULES for name in names for part in name.split(".")):
            found.append(f"line {node.lineno}: imports {names[0]}")  # type: ignore[attr-defined]
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if (isinstance(node.func, ast.Name) and name in FORBIDDEN_CALLS) or name in SHELLS:
                found.append(f"line {node.lineno}: calls {name}")
            for keyword in node.keywords:
                if keyword.arg in ("allow_pickle", "shell") and getattr(keyword.value, "value", None) is not False:
                    found.append(f"line {node.lineno}: {keyword.arg}")
    return found


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "import multiprocessing.pickle",
        "eval('1')",
        "exec(text)",
        "x = compile(t, 'f', 'exec')",
        "__import__(name)",
        "np.load(f, allow_pickle=True)",
        "subprocess.run(text, shell=True)",
        "os.system(text)",
        "asyncio.create_subprocess_shell(text)",
        "import yaml",
    ],
)
def test_the_search_finds_what_it_looks_for(source: str) -> None:
    assert dangers(source)


def test_nothing_unpickles_or_evaluates_data() -> None:
    files = [*(ROOT / "hilserver").rglob("*.py"), *(ROOT / "drivers").rglob("*.py")]
    assert len(files) > 100
    found = {file.relative_to(ROOT).as_posix(): dangers(file.read_text()) for file in files}
    assert {file: what for file, what in found.items() if what} == {}


@NEEDS_MOSQUITTO
def test_nothing_over_mqtt_names_a_file_outside_of_the_circuits(tmp_path: Path) -> None:
    """A circuit may name CSV files beside the rig's circuit; neither others, nor Python files, come in by a command."""
    from hilserver.circuit.library import standard_library
    from hilserver.circuit.model import read_circuit

    circuits = tmp_path / "circuits"
    circuits.mkdir()
    (tmp_path / "secret.csv").write_text("0,1\n1,2\n")
    for name in ("../secret.csv", str(tmp_path / "secret.csv"), "x/../../secret.csv"):
        source = {"components": {"signal": {"type": "table_signal", "signal": "s", "csv": name}}}
        with pytest.raises(ConfigurationError, match="must be a file in the folder of the circuit file"):
            read_circuit(source, standard_library(), "", circuits)
    with pytest.raises(ConfigurationError, match="library"):
        read_circuit({"components": {}, "library": ["evil.py"]}, standard_library(), "", circuits)
