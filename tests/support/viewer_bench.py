"""Logs for the tests of the viewer: a run with modes, commands and a switch, and the same in other formats."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from log_bench import header

from hilserver.numerics.arrays import Floats
from hilserver.record.format import circuit_event
from hilserver.record.run import command_event
from hilserver.record.writer import LogWriter
from hilserver.tick.codes import CommandKind
from hilserver.tick.row import CommandRecord, as_whole

COLUMNS = ("tick", "time", "utc", "mode", "fault", "limit.p_A.max", "channel.p_A", "channel.x", "channel.gap")
UNITS = {"time": "s", "channel.p_A": "Pa", "channel.x": "m", "supply.p": "Pa", "main.x": "m"}
STARTED = 1_795_000_000.0
SPIKE = 2.5e7
"""A single sample in the pressure, which no view may lose, Pa."""


@dataclass(frozen=True)
class Run:
    """A recorded run: its file, its samples by signal, and the row of the spike."""

    path: Path
    values: dict[str, Floats]
    spike: int


def record(
    path: Path,
    seconds: float = 6.0,
    rate: float = 1000.0,
    seed: int = 0,
    start: float = STARTED,
    compression: str = "none",
) -> Run:
    """A run that is armed after 1/6, runs after 2/6, is switched in its middle and trips after 5/6 of its time."""
    count = round(seconds * rate)
    generator = np.random.default_rng(seed)
    k = np.arange(count)
    time = k / rate
    mode = np.select([k < count // 6, k < count // 3, k < 5 * count // 6], [1.0, 2.0, 3.0], 4.0)
    pressure = 1e7 + 4e6 * np.sin(2 * np.pi * 3.0 * time) + 1e5 * generator.normal(size=count)
    spike = int(0.7 * count) + 3
    pressure[spike] = SPIKE
    gap = np.where((k > count // 2) & (k < count // 2 + 200), np.nan, time)
    fault = np.where(mode == 4.0, 100.0, 0.0)
    fixed = [k.astype(float), time, start + time, mode, fault, fault / 100, pressure, 0.1 * np.cos(time), gap]
    supply, opening = 1.4e7 + generator.normal(size=count), generator.normal(size=count)
    relief = generator.normal(size=count)
    switched = count // 2
    first = np.stack([*fixed, supply, opening], axis=1)[:switched]
    second = np.stack([*fixed, relief, supply, opening], axis=1)[switched:]
    source = {"components": {"relief": {"opening_pressure": "120 bar"}}}
    event = circuit_event(("relief.q", "supply.p", "main.x"), {"source": source})
    changes = {
        "columns": COLUMNS,
        "units": UNITS,
        "packed": {"source": {"components": {"relief": {"opening_pressure": "150 bar"}}}},
        "extra": {},
        "compression": compression,
    }
    with LogWriter(path, header(**changes), max_rows=count // 2 + 1000) as writer:
        for at in range(0, switched, 10_000):
            events = {count // 6: [arm()]} if at == 0 and count // 6 < 10_000 else {}
            writer.append(first[at : at + 10_000][: switched - at], events)
        for at in range(0, len(second), 10_000):
            writer.append(second[at : at + 10_000], {0: [event]} if at == 0 else {})
    none = np.full(switched, np.nan)
    values = dict(zip(COLUMNS, fixed, strict=True)) | {
        "circuit.supply.p": supply,
        "circuit.main.x": opening,
        "circuit.relief.q": np.concatenate([none, relief[switched:]]),
    }
    return Run(path, values, spike)


def arm() -> dict[str, object]:
    """The event of the command arm."""
    names = CommandRecord.names()
    command = np.zeros(len(names))
    as_whole(command)[names.index("kind")] = int(CommandKind.ARM)
    return command_event(command)
