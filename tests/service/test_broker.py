"""The embedded broker: starts, heals, ends with its parent, and says what it lacks."""

import asyncio
import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import aiomqtt
import pytest

from hilserver.service import broker as broker_module
from hilserver.service.broker import BrokerError, EmbeddedBroker, Program

_MOSQUITTO = shutil.which("mosquitto", path=os.environ.get("PATH", "") + ":/usr/sbin")
PROGRAMS = [
    pytest.param(
        "mosquitto", marks=pytest.mark.skipif(_MOSQUITTO is None, reason="mosquitto is not installed: apt install it")
    ),
    pytest.param(
        "amqtt",
        marks=pytest.mark.skipif(
            importlib.util.find_spec("amqtt") is None, reason="amqtt is not installed: pip install amqtt"
        ),
    ),
]


def _until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def _exists(pid: int) -> bool:
    """Whether the process lives (a zombie, dead but not yet collected by its parent, does not)."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def _listening_addresses(port: int) -> set[str]:
    """Local addresses (hexadecimal, as the kernel lists them) on which something listens on this port."""
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            local, state = line.split()[1], line.split()[3]
            address, _, listening = local.rpartition(":")
            if state == "0A" and int(listening, 16) == port:
                found.add(address)
    return found


async def _echo(port: int) -> str:
    """A message sent to the broker and back."""
    async with aiomqtt.Client("127.0.0.1", port, timeout=30) as client:
        await client.subscribe("test/echo", qos=1)
        await client.publish("test/echo", "pressure", qos=1)
        async with asyncio.timeout(60):
            message = await anext(client.messages)
        return bytes(message.payload).decode()


@pytest.mark.parametrize("program", PROGRAMS)
def test_passes_messages_on_the_loopback_only_and_leaves_nothing_behind(program: Program) -> None:
    async def session() -> int:
        async with EmbeddedBroker(program=program) as broker:
            assert await _echo(broker.port) == "pressure"
            assert _listening_addresses(broker.port) == {"0100007F"}
            return broker.pid

    assert not _exists(asyncio.run(session()))


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_killed_broker_restarts_on_the_same_port(program: Program) -> None:
    async def session() -> None:
        async with EmbeddedBroker(program=program) as broker:
            first = broker.pid
            os.kill(first, signal.SIGKILL)
            async with asyncio.timeout(60):
                while True:
                    with contextlib.suppress(aiomqtt.MqttError):
                        if broker.pid != first and await _echo(broker.port) == "pressure":
                            break
                    await asyncio.sleep(0.05)
            second = broker.pid
        assert not _exists(second)

    asyncio.run(session())


_PARENT = """
import asyncio, sys
from hilserver.service.broker import EmbeddedBroker

async def main():
    async with EmbeddedBroker(program=sys.argv[1]) as broker:
        print(broker.pid, flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.parametrize("program", PROGRAMS)
def test_ends_when_its_parent_is_killed(program: Program) -> None:
    with subprocess.Popen([sys.executable, "-c", _PARENT, program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert _exists(child)
        parent.kill()
        assert _until(lambda: not _exists(child))


@pytest.mark.parametrize("program", PROGRAMS)
def test_taken_port_is_named(program: Program) -> None:
    async def session() -> None:
        async with EmbeddedBroker(program=program) as broker:
            with pytest.raises(BrokerError, match=f"port {broker.port} .*already in use"):
                await EmbeddedBroker(port=broker.port, program=program).__aenter__()

    asyncio.run(session())


@pytest.mark.skipif(_MOSQUITTO is None, reason="mosquitto is not installed: apt install it")
def test_a_broker_that_cannot_start_reports_the_reason() -> None:
    async def session(port: int) -> None:
        with pytest.raises(BrokerError, match=r"mosquitto.* does not start: .*in use"):
            await EmbeddedBroker(port=port, program="mosquitto").__aenter__()

    with socket.socket() as bound:  # but not listening: only the broker itself finds out
        bound.bind(("127.0.0.1", 0))
        asyncio.run(session(bound.getsockname()[1]))


def test_port_out_of_range() -> None:
    with pytest.raises(ValueError, match="port 70000 is out of range"):
        EmbeddedBroker(port=70000)


def test_without_any_broker_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "installed_mosquitto", lambda: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    async def session() -> None:
        with pytest.raises(BrokerError, match=r"apt install mosquitto.*hilserver\[embedded-broker\]"):
            await EmbeddedBroker().__aenter__()

    asyncio.run(session())
