"""Benchmark: Modbus TCP with 8 registers at 200 Hz, Modbus RTU and a serial device at 100 Hz.

    python tests/benchmarks/slow_devices.py                       # 60 s each
    python tests/benchmarks/slow_devices.py --seconds 10 tcp rtu
    chrt -f 10 python tests/benchmarks/slow_devices.py            # with the priority that an I/O worker has on a rig

Each turn reads all inputs and writes an output that changes, on a fixed grid, as an I/O worker does. The devices are
processes of their own: a pymodbus server, a pty as serial line. What bytes take on a real line (8 registers at
115 200 bit/s: 3 ms) comes on top. The gap is that between two turns with a sample of every input; how late the machine
woke the process is shown beside it. Fails where less than 99 % of the turns had samples, or the last command got lost.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from modbus_server import Server
from serial_port import Cable, Port, Served

from hilserver.driver import Driver
from hilserver.realtime.clock import GridClock
from hilserver_drivers.modbus import Modbus
from hilserver_drivers.serial_line import SerialLine

REGISTERS = {f"r{k}": {"table": "holding", "address": k, "type": "int16"} for k in range(8)}
REGISTER_OUT = {"valve": {"table": "holding", "address": 100, "type": "int16", "safe": 0}}
COLUMNS = {f"c{k}": {"column": k} for k in range(8)}
COLUMN_OUT = {"valve": {"format": "V {:.0f}\r\n", "safe": 0}}

Bench = tuple[Driver, float, Callable[[], int]]
"""A driver, the rate to hold, and what the device got last."""


@contextmanager
def tcp() -> Iterator[Bench]:
    """Modbus TCP."""
    server = Server("tcp", "0")
    settings = {"tcp": {"host": "127.0.0.1", "port": server.port}, "inputs": REGISTERS, "outputs": REGISTER_OUT}
    try:
        yield made(Modbus, settings), 200.0, lambda: server.get("holding", 100)[0]
    finally:
        server.close()


@contextmanager
def rtu() -> Iterator[Bench]:
    """Modbus RTU."""
    with tempfile.TemporaryDirectory() as folder, beside(cable, folder) as ends:
        server = Server("rtu", f"{folder}/far")
        settings = {"rtu": {"port": f"{folder}/near", "baud": 115_200}, "inputs": REGISTERS, "outputs": REGISTER_OUT}
        try:
            yield made(Modbus, settings), 100.0, lambda: server.get("holding", 100)[0]
        finally:
            server.close()
            ends.send("end")


@contextmanager
def serial() -> Iterator[Bench]:
    """Lines with 8 columns, asked for; commands are confirmed."""
    with tempfile.TemporaryDirectory() as folder, beside(balance, folder) as device:
        settings = {
            "port": f"{folder}/near",
            "baud": 115_200,
            "lines": {"columns": 8},
            "request": "?\r\n",
            "answer": "OK",
            "inputs": COLUMNS,
            "outputs": COLUMN_OUT,
        }

        def last() -> int:
            device.send("last")
            value: int = device.recv()
            return value

        yield made(SerialLine, settings), 100.0, last
        device.send("end")


@contextmanager
def beside(body: Callable[[str, Connection], None], folder: str) -> Iterator[Connection]:
    """A process that does something in a folder, and the connection to it; it says when it is ready."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=body, args=(folder, there), daemon=True)
    process.start()
    here.recv()
    yield here
    process.join(5.0)


def cable(folder: str, commands: Connection) -> None:
    """A serial line between two ports."""
    line = Cable(Port(Path(folder, "near")), Port(Path(folder, "far")))
    commands.send("ready")
    commands.recv()
    line.close()


def balance(folder: str, commands: Connection) -> None:
    """A device that answers a question with 8 numbers and a command with OK."""
    got = 0

    def hear(data: bytes) -> bytes:
        nonlocal got
        said = b""
        for line in data.decode("ascii").split():
            if line == "?":
                said += b"1.25,-2.5,3.75,-5,6.25,-7.5,8.75,-10\r\n"
            elif line != "V":
                got = int(line)
                said += b"OK\r\n"
        return said

    line = Served(Port(Path(folder, "near")), hear)
    commands.send("ready")
    while commands.recv() != "end":
        commands.send(got)
    line.close()


def made(kind: Any, settings: dict[str, Any]) -> Driver:
    """A driver with all channels of its settings."""
    config = kind.Config.model_validate(settings)
    driver: Driver = kind("io", config, list(config.inputs), list(config.outputs))
    return driver


def run(name: str, bench: Bench, seconds: float) -> bool:
    """Read and write on the grid; prints a line of the table, returns whether that was good enough."""
    driver, rate, last_command = bench
    values, ages, command = np.zeros(8), np.zeros(8), np.zeros(1)
    turns = round(seconds * rate)
    times, good, late = np.zeros(turns), np.full(turns, np.nan), np.zeros(turns)
    driver.open()
    driver.make_safe()
    clock = GridClock(1.0 / rate)
    while clock.wait() and clock.tick < turns:
        late[clock.tick] = clock.wake_error
        begin = time.monotonic()
        command[0] = clock.tick % 10_000
        driver.write(command)
        driver.read(values, ages)
        end = time.monotonic()
        times[clock.tick] = end - begin
        if np.isfinite(values).all():
            good[clock.tick] = end
    arrived = last_command() == command[0]
    driver.make_safe()
    driver.close()
    samples = good[np.isfinite(good)]
    done = times[times > 0]
    figures = (
        f"{len(samples) / seconds:6.1f} of {rate:.0f}",
        f"{np.diff(samples).max() * 1e3:8.1f}",
        f"{late.max() * 1e3:8.1f}",
        f"{np.median(done) * 1e3:5.2f} / {np.quantile(done, 0.99) * 1e3:.2f}",
        ", ".join(f"{count} {error}" for error, count in driver.errors.items()) or "none",
    )
    print(f"| {name} | " + " | ".join(figures) + " |", flush=True)
    return bool(arrived and len(samples) >= 0.99 * turns)


def main() -> None:
    """Run the benchmarks that are asked for."""
    kinds = {"tcp": tcp, "rtu": rtu, "serial": serial}
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("kinds", nargs="*", metavar="|".join(kinds), default=[*kinds])
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    print(f"{options.seconds:g} s each, load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(
        "| | turns/s with samples | worst gap, ms | woken late at most, ms | read + write, ms: median / 99 % | errors |"
    )
    print("|---|---|---|---|---|---|")
    failed = []
    for name in options.kinds:
        with kinds[name]() as bench:
            if not run(name, bench, options.seconds):
                failed.append(name)
    if failed:
        sys.exit(f"not held: {', '.join(failed)}")


if __name__ == "__main__":
    main()
