"""A simulated rig in slow motion, in real processes: its own times stay, those of the clock stretch."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from service_bench import assert_no_gap, assert_ramped_to_null
from service_harness import Panel, Server, read_log, talk

from hilserver.record.reader import LogReader
from hilserver.simulation.replay import replay_log

pytestmark = pytest.mark.realtime

SPEED = 0.2
AT_1_KHZ = {"rate =": 'rate = "1 kHz"\nheartbeat_timeout = "2.5 s"'}


def is_open(batch: Any) -> bool:
    """Whether the valve is well open in a batch of telemetry."""
    commands = [value for value in batch["channels"]["valve.main.command"] if value is not None]
    return any(abs(command) > 0.2 for command in commands)


def test_slow_motion_stretches_the_clock_and_nothing_else(tmp_path: Path) -> None:
    async def drive(user: Panel) -> None:
        state = await user.see("state", lambda state: state["loop"] is not None)
        assert state["loop"]["period"] == pytest.approx(1e-3 / SPEED)
        assert state["loop"]["speed"] == SPEED
        for name in ("arm", "start"):
            await user.do(name)
        await user.do("strategy", valve="main", strategy="manual")
        await user.do("jog", valve="main", command=0.02)
        await user.see("telemetry", lambda _: True, len(user.seen))
        await asyncio.sleep(0.8)
        await user.do("strategy", valve="main", strategy="feedback")
        await user.do("cycle", action="start")
        await user.see("telemetry", is_open, len(user.seen))
        batch = await user.see("telemetry", start=len(user.seen))
        ticks = np.diff([tick for tick in batch["channels"]["tick"] if tick is not None])
        assert batch["dt"] == pytest.approx(ticks.min() * 1e-3 / SPEED)  # telemetry is stamped with the clock

    with Server(tmp_path, changes=AT_1_KHZ, options=("--speed", str(SPEED))) as server:
        talk(server, drive)
        server.kill("supervisor", number=signal.SIGTERM)
        assert server.wait_exit() == 0
        assert server.leaves() == []
        log = server.logs[-1]
    table = read_log(log)
    assert LogReader(log).header.speed == SPEED
    assert_no_gap(table)
    assert_ramped_to_null(table)  # within the slew limit per tick, which is in seconds of the rig
    column = table.columns
    passed = column["utc"][-1] - column["utc"][0]
    assert passed == pytest.approx((column["time"][-1] - column["time"][0]) / SPEED, rel=0.2)
    ages = [name for name in column if name.startswith("age.")]
    assert ages
    for name in ages:  # in seconds of the rig: the simulated device answers within a tick or two
        assert np.nanmedian(column[name]) < 2.5e-3
    assert replay_log(log).ok
    jogged = column["time"][column["valve.main.jog"] != 0.0]
    assert np.ptp(jogged) <= 0.5 * SPEED + 2e-3  # who holds a button does it by the clock
