"""The panel's connection to a rig, at a real broker."""

from __future__ import annotations

import asyncio
import json

import aiomqtt
import pytest

from hilserver.panel import connection as module
from hilserver.panel.connection import Connection
from hilserver.protocol.address import BrokerAddress
from hilserver.protocol.published import refusal
from hilserver.service.broker import EmbeddedBroker


async def serve(port: int, unanswered: int) -> None:
    """A server that is too busy for the first probes."""
    async with aiomqtt.Client("127.0.0.1", port) as client:
        await client.subscribe("hil/lab/command/probe", qos=1)
        await client.publish("hil/lab/availability", "online", qos=1, retain=True)
        seen = 0
        async for message in client.messages:
            seen += 1
            if seen > unanswered:
                id = json.loads(bytes(message.payload))["id"]
                answer = refusal("probe", id, ["there is no command probe."], time=0.0)
                await client.publish("hil/lab/answer", answer.model_dump_json(), qos=1)


def test_an_operator_is_recognised_even_if_the_server_is_busy_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PROBE_WITHIN", 0.3)
    monkeypatch.setattr(module, "PROBE_AGAIN", 0.1)

    async def run() -> list[str]:
        roles: list[str] = []
        async with EmbeddedBroker() as broker:
            panel = Connection(BrokerAddress(port=broker.port), "lab")
            tasks = [asyncio.create_task(serve(broker.port, unanswered=2)), asyncio.create_task(panel.run())]
            async with asyncio.timeout(60.0):
                while panel.role != "operator":
                    roles.append(panel.role)
                    await asyncio.sleep(0.02)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return roles

    assert "viewer" in asyncio.run(run())


def test_whom_the_broker_refuses_has_no_role_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as an operator whose account was removed while the broker was restarted."""

    async def refuse(connection: Connection) -> None:
        raise aiomqtt.MqttCodeError(5)

    monkeypatch.setattr(Connection, "_connect", refuse)
    panel = Connection(BrokerAddress(), "lab")
    panel.role = "operator"
    asyncio.run(panel.run())
    assert (panel.refused is not None, panel.role) == (True, "unknown")
