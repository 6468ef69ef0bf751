"""A task that is cancelled ends, whatever arrives at the same time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiomqtt
import pytest

from hilserver.protocol.address import BrokerAddress
from hilserver.protocol.connection import new_client

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("later", range(6))
def test_a_cancellation_that_comes_with_the_broker_s_answer_is_not_lost(later: int) -> None:
    """Seen once on a busy machine: the heartbeats continued, and the program that ended them waited forever."""

    async def work() -> None:
        client, answered = new_client(BrokerAddress(), aiomqtt.ProtocolVersion.V311), asyncio.Event()
        waiting = asyncio.create_task(client._wait_for(answered.wait(), 60.0))
        await asyncio.sleep(0)
        answered.set()
        for _ in range(later):
            await asyncio.sleep(0)
        was_done = waiting.done()
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled() is not was_done

    asyncio.run(work())


def test_nothing_waits_in_the_way_that_loses_cancellations() -> None:
    files = [*(ROOT / "hilserver").rglob("*.py"), *(ROOT / "drivers").rglob("*.py")]
    assert len(files) > 100
    assert [file for file in files if "asyncio.wait_for(" in file.read_text()] == []
