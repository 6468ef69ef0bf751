"""Conversations with a whole server, and what its log must show afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from service_harness import Panel, Server, applied, eventually, talk

from hilserver.realtime.simulated_device import DeviceMemory
from hilserver.record.reader import LogTable
from hilserver.rig.settings import RigSettings
from hilserver.toml import read_toml

DEMO = RigSettings.model_validate(read_toml(Path(__file__).parents[2] / "config" / "rigs" / "demo.toml"))


async def move(user: Panel) -> None:
    await user.run_cycle()


def set_in_motion(server: Server) -> DeviceMemory:
    """Start the work cycle and wait until the valve is well open; returns the device's memory."""
    device = server.device
    talk(server, move)
    eventually(lambda: abs(applied(device)) > 1.0)
    return device


def commands(table: LogTable) -> np.ndarray[Any, np.dtype[np.float64]]:
    return table.columns["valve.main.command"]


def fastest(table: LogTable) -> float:
    """The largest change of the command in a tick, as a share of what the slew limit of the demo's valve allows."""
    return float(np.abs(np.diff(commands(table))).max()) / (DEMO.valves["main"].slew * table.header.period_s)


def assert_ramped_to_null(table: LogTable) -> None:
    """The command was open, came to null by itself, and never moved faster than its slew limit."""
    command = commands(table)
    assert np.abs(command).max() > 0.1
    assert command[-1] == 0.0
    assert fastest(table) <= 1 + 1e-12


def assert_no_gap(table: LogTable) -> None:
    """Every tick is in the log, or counted as missed."""
    tick, missed = table.columns["tick"], table.columns["missed"]
    assert np.array_equal(np.diff(tick), missed[1:] + 1)
