"""Benchmark: what one read and write of the NI-DAQmx driver costs in Python, on a fake of the library below it.

    python tests/benchmarks/ni_overhead.py

The fake's own work is a copy of some numbers; what a real device takes (some 10 µs on PCI Express, half a millisecond
and more on USB) comes on top. Prints microseconds per tick for devices of different sizes.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from fake_nidaqmx import FakeNi

from hilserver_drivers.ni import NiDaq

TICKS, WARM_UP = 50_000, 1000
ALLOWED, GOAL = 15.0, "6 ai, 1 ao"
"""One read and one write: no more microseconds than that, in the median."""

ANALOG = {f"p{i}": {"channel": f"ai{i}"} for i in range(6)}
VALVE = {"valve": {"channel": "ao0"}}
LINES = {"e_stop": {"channel": "port0/line0"}, "door": {"channel": "port0/line1"}}
COUNTER = {"x": {"channel": "ctr0", "signal": "encoder"}}
ENABLE = {"enable": {"channel": "port0/line4"}, "heartbeat": {"channel": "port0/line5"}}
SIZES: dict[str, dict[str, Any]] = {
    GOAL: {"inputs": ANALOG, "outputs": VALVE},
    "6 ai, 2 lines, encoder; 1 ao, 2 lines": {"inputs": ANALOG | LINES | COUNTER, "outputs": VALVE | ENABLE},
    "the same with watchdog": {
        "inputs": ANALOG | LINES | COUNTER,
        "outputs": VALVE | ENABLE,
        "watchdog": {"timeout": "1 s", "outputs": ["valve"]},
    },
}


def main() -> None:
    """Run the benchmark."""
    with tempfile.TemporaryDirectory() as folder:
        ni = FakeNi(Path(folder))
        os.environ.update(ni.environment)
        ni.device().watchdog = 1
        ni.state.logging = 0
        print(f"{'µs per tick':40}  read   write   both (medians)   99 %")
        for size, settings in SIZES.items():
            reads, writes = ticks(settings)
            medians = "".join(f"{np.median(part):7.1f}" for part in (reads, writes, reads + writes))
            verdict = f"   at most {ALLOWED:g} µs" if size == GOAL and np.median(reads + writes) <= ALLOWED else ""
            print(f"{size:40}{medians}{np.percentile(reads + writes, 99):17.1f}{verdict}")


def ticks(settings: dict[str, Any]) -> tuple[Any, Any]:
    """Microseconds of each read and of each write; the valve moves and the heartbeat toggles in every tick."""
    config = NiDaq.Config.model_validate({"device": "Dev1", **settings})
    io = NiDaq("io", config, tuple(config.inputs), tuple(config.outputs))
    io.open()
    io.make_safe()
    values, ages, command = np.zeros(len(io.inputs)), np.zeros(len(io.inputs)), np.zeros(len(io.outputs))
    times = np.zeros((TICKS, 3))
    for tick in range(-WARM_UP, TICKS):
        command[0] = 1e-4 * tick
        command[-1] = tick % 2
        begin = time.perf_counter()
        io.read(values, ages)
        middle = time.perf_counter()
        io.write(command)
        times[tick] = begin, middle, time.perf_counter()
    io.close()
    assert not io.errors, io.last_error
    reads, writes = 1e6 * np.diff(times).T
    return reads, writes


if __name__ == "__main__":
    main()
