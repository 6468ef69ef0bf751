"""A flood over the embedded broker: its sender is named and disconnected, and nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import sys
from pathlib import Path

import aiomqtt
import pytest
from mosquitto_lab import passwd
from mqtt_bench import FLOOD, NEEDS_MOSQUITTO, Panel, panel_of_answers, rig, run
from security_bench import login

from hilserver.protocol.accounts import Accounts
from hilserver.protocol.address import BrokerAddress
from hilserver.protocol.connection import new_client
from hilserver.service.broker import EmbeddedBroker
from hilserver.service.flood import cut_off

pytestmark = [pytest.mark.slow, NEEDS_MOSQUITTO]


async def still_heard(user: Panel) -> None:
    """It is still connected, and is answered as soon as what the broker had kept of the flood is done with."""
    for number in itertools.count():
        await user.send("arm", {"id": f"here {number}"})
        with contextlib.suppress(TimeoutError):
            assert (await asyncio.wait_for(user.answer(f"here {number}"), 1.0))["ok"]
            return


def test_only_the_sender_of_a_flood_is_named_and_disconnected() -> None:
    async def work() -> None:
        async with rig() as lab, panel_of_answers(lab.broker.port) as user:
            reports: list[str] = []
            lab.service.inbox.report = reports.append
            lab.service.inbox.blame = functools.partial(cut_off, lab.broker, BrokerAddress(port=lab.broker.port))
            flood = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", FLOOD, str(lab.broker.port), "lab"), stdout=asyncio.subprocess.PIPE
            )
            assert flood.stdout is not None
            try:
                assert await flood.stdout.readline() == b"disconnected\n"
                assert await flood.stdout.readline() == b"disconnected\n", "again after it came back"
            finally:
                flood.kill()
                await flood.wait()
            named = [report for report in reports if 'Client "a (flooding) client" sent ' in report]
            assert named
            assert all(report.endswith("in 0.3 s and was disconnected.") for report in named)
            assert not any(";" in report.partition("Most of them")[2] for report in reports), "one client only"
            await still_heard(user)

    run(work())


def test_where_the_broker_has_accounts_the_server_ends_an_operators_connection(tmp_path: Path) -> None:
    """The accounts are others; the broker does not ask for that."""
    passwd(tmp_path / "accounts", anna="operator's")
    accounts = Accounts("lab", tmp_path / "accounts", ("anna",))

    async def flood(client: aiomqtt.Client) -> None:
        while True:
            for _ in range(100):
                await client.publish("hil/lab/command/set_input", b"{}")
            await asyncio.sleep(0.01)

    async def work() -> None:
        async with EmbeddedBroker(accounts=accounts) as broker:
            operator = login(tmp_path, broker.port, "anna", "operator's")
            server = login(tmp_path, broker.port, "hilserver", accounts.server_password)
            with contextlib.suppress(aiomqtt.MqttError):  # its connection has ended
                async with new_client(operator, aiomqtt.ProtocolVersion.V5, identifier="hers") as client:
                    flooding = asyncio.create_task(flood(client))
                    said = await cut_off(broker, server)
                    await asyncio.wait([flooding])
            assert isinstance(flooding.exception(), aiomqtt.MqttError)
            assert said.startswith('Client "hers" sent ')
            assert said.endswith(" and was disconnected.")

    run(work())


async def writes_of_a_command(user: Panel, broker: EmbeddedBroker, name: str) -> bool:
    """Whether the broker writes anything into its log while it carries a command and its answer."""
    broker._last_words = before = f"before {name}"
    await user.send("arm", {"id": name})
    await user.answer(name)
    await asyncio.sleep(0.05)
    return broker._last_words != before


def test_the_broker_log_is_verbose_only_during_a_search() -> None:
    async def work() -> None:
        async with rig() as lab, panel_of_answers(lab.broker.port) as user:
            looking = asyncio.create_task(lab.broker.senders(0.5))
            while not looking.done():
                await user.send("arm", {"id": "x"})
                await asyncio.sleep(0.02)
            ((_, count),) = looking.result().items()
            assert count > 3
            # the broker may still be busy with what it received before it was told to be quiet
            for number in range(100):
                if not await writes_of_a_command(user, lab.broker, f"afterwards {number}"):
                    return
            pytest.fail("the broker's log stays verbose")

    run(work())


def test_amqtt_does_not_name_the_sender() -> None:
    async def work() -> None:
        assert await EmbeddedBroker(program="amqtt").senders(0.0) == {}

    run(work())
