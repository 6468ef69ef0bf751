"""The embedded broker's accounts, and a whole server that carries out no unauthorised command."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
from mosquitto_lab import NEEDS_MOSQUITTO, Lab, passwd
from security_bench import TOPICS, Server, forgeries, logged_in, login, run
from service_harness import Server as RealServer

from hilserver.client import RequestFailed, request, where
from hilserver.protocol.accounts import Accounts, AccountsError
from hilserver.protocol.address import BrokerAddress, LoginError
from hilserver.protocol.commands import COMMANDS, Arm
from hilserver.protocol.topics import Topics
from hilserver.service.broker import BrokerError, EmbeddedBroker

pytestmark = pytest.mark.slow


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


@NEEDS_MOSQUITTO
def test_accounts_of_the_embedded_broker(tmp_path: Path) -> None:
    file = tmp_path / "accounts"
    passwd(file, anna="operator's", wall="viewer's")
    accounts = Accounts("lab", file, ("anna",))

    async def work() -> None:
        async with EmbeddedBroker(accounts=accounts) as broker:
            server = Server(login(tmp_path, broker.port, "hilserver", accounts.server_password))
            async with server.serving(), logged_in(login(tmp_path, broker.port, "anna", "operator's")) as operator:
                async with logged_in(login(tmp_path, broker.port, "wall", "viewer's")) as viewer:
                    await viewer.until(lambda: dict(viewer.seen).get(TOPICS.state))
                    for topic, payload in forgeries():
                        await viewer.client.publish(topic, payload, qos=1)
                    await operator.send("arm", {"id": "1"})
                    await viewer.answer("1")
                for address in (BrokerAddress(port=broker.port), login(tmp_path, broker.port, "wall", "guessed")):
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

    async def work(server: RealServer) -> None:
        topics = Topics(server.name)
        async with logged_in(login(tmp_path, server.port, "wall", "viewer's")) as viewer:
            await viewer.until(lambda: dict(viewer.seen).get(topics.state))
            for name in COMMANDS:
                await viewer.client.publish(topics.command(name), b'{"id": "forged"}', qos=1)
            answer = await request(login(tmp_path, server.port, "anna", "operator's"), server.name, Arm())
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
def test_no_refused_command_reaches_the_loop(lab: Lab, tmp_path: Path) -> None:
    """A server in processes of its own, over TLS: what its loop was asked to do is counted in the shared memory."""
    login = (
        f'embedded = false\nhost = "localhost"\nport = {lab.port}\nuser = "hilserver-lab"\n'
        f'password_file = "{lab.folder}/hilserver-lab"\nca_file = "{lab.folder}/ca.crt"'
    )
    # All that the loop is asked is counted here: the supervisor asks it to load the circuit's code if that is compiled.
    rate = 'rate = "500 Hz"\nheartbeat_timeout = "2.5 s"'
    server = RealServer(tmp_path, changes={"embedded =": login, "port = 0": "", "rate =": rate})
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
