"""Modbus over TCP, Modbus on a serial line and a serial device in one run: unplugged, plugged in again, ended."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from driver_conformance import HardwareBench
from modbus_bench import RtuBench, TcpBench
from serial_bench import AskedLineBench
from service_harness import Server, eventually, panel, rig_text

from hilserver.tick.codes import Mode
from hilserver_drivers.modbus import Modbus

pytestmark = pytest.mark.realtime

MAX_AGE = 1.5
"""s; ample for a busy machine."""
ON = 1.0


class Run:
    """The demo's rig with three slow devices besides: each measures a pressure, and a pump hangs on each."""

    def __init__(self, folder: Path) -> None:
        self.benches: dict[str, HardwareBench] = {
            "network": TcpBench(),
            "line": RtuBench(folder),
            "serial": AskedLineBench(folder),
        }
        text = rig_text("{name}", folder)
        for name, bench in self.benches.items():
            bench.measure({input_: span[1] for input_, span in bench.input_span.items()})
            text += devices_table(name, bench)
        self.server = Server(folder, text=text)

    def pump(self, name: str) -> float:
        """What was last written to a device's pump."""
        return dict(self.benches[name].written())["enable"]

    def close(self) -> None:
        for bench in self.benches.values():
            bench.close()  # type: ignore[attr-defined]


def devices_table(name: str, bench: HardwareBench) -> str:
    """A device, its first input as a channel with an age limit, its output "enable" as a pump that is on when armed."""
    driver = "modbus" if bench.driver is Modbus else "serial"
    settings = {**bench.settings, "timeout": "1 s", "hang_time": "4 s", "rate": "100 Hz"}
    low, high = bench.input_span["p_A"]
    return f"""
[devices.{name}]
driver = "{driver}"
{"".join(f"{key} = {inline(value)}" + chr(10) for key, value in settings.items())}
[channels.p_{name}]
device = "{name}"
source = "p_A"
scale = {{ raw = [{low}, {high}], value = ["0 bar", "100 bar"] }}
[limits.old_{name}]
channel = "p_{name}"
max_age = "{MAX_AGE} s"
action = "trip"
[outputs.pump_{name}]
device = "{name}"
output = "enable"
max_age = "30 s"
raw = [0, {ON}]
on = "armed"
"""


def inline(value: Any) -> str:
    """A value in TOML."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {inline(part)}" for key, part in value.items()) + " }"
    return "'''" + value + "'''" if isinstance(value, str) and "\n" not in value else toml_text(value)


def toml_text(value: Any) -> str:
    return '"' + value.replace("\r", "\\r").replace("\n", "\\n") + '"' if isinstance(value, str) else str(value)


@contextlib.contextmanager
def started(folder: Path) -> Iterator[Run]:
    made = Run(folder)
    try:
        with made.server:
            yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with started(tmp_path_factory.mktemp("slow")) as run:
        yield run


@pytest.mark.parametrize("name", ["network", "line", "serial"])
def test_an_unplugged_device_trips_by_age_and_continues_when_reconnected(run: Run, name: str) -> None:
    async def watch() -> None:
        async with panel(run.server) as user:
            await user.do("arm")
            await user.do("start")
            await asyncio.to_thread(eventually, lambda: run.pump(name) == ON)
            telemetry = await user.see("telemetry", start=len(user.seen))
            assert telemetry["channels"][f"p_{name}"][-1] == pytest.approx(100e5, rel=1e-4)

            start, before = len(user.seen), len(run.benches[name].written())
            await asyncio.to_thread(run.benches[name].unplug)
            fault = await user.see("event", lambda event: event["kind"] == "fault", start)
            assert f"old_{name}.age was violated" in fault["text"]
            failing = await user.see("state", lambda state: state["devices"][name]["last_error"], start)
            assert failing["devices"][name]["last_error"].startswith(f"device {name}: ")
            assert not (await user.command("reset"))["ok"]

            await asyncio.to_thread(run.benches[name].plug)
            bench = run.benches[name]
            await asyncio.to_thread(bench.measure, {input_: span[1] for input_, span in bench.input_span.items()})
            async with asyncio.timeout(60):
                while not (await user.command("reset"))["ok"]:  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.05)
            await user.do("arm")
            await asyncio.to_thread(eventually, lambda: dict(bench.written()[before:]).get("enable") == ON)
            await user.do("disarm")
            await asyncio.to_thread(eventually, lambda: run.pump(name) == 0.0)
            state = await user.see("state", start=len(user.seen))
            assert state["devices"][name]["restarts"] == 0
            tripped_in_time(await asyncio.to_thread(eventually, lambda: run.server.logged(state["tick"])), name)

    asyncio.run(watch())


def tripped_in_time(columns: dict[str, Any], name: str) -> None:
    """The last fault came in the tick in which the channel's last sample had passed its age limit."""
    tripped = np.flatnonzero(np.diff((columns["mode"] == Mode.FAULT).astype(int)) == 1)[-1] + 1
    stale = columns[f"stale.p_{name}"]
    assert stale[tripped - 1] <= MAX_AGE + 1e-9 < stale[tripped]
    assert columns[f"errors.{name}"][tripped] > 0


def test_all_devices_have_safe_values_at_the_end(tmp_path: Path) -> None:
    async def arm(run: Run) -> None:
        async with panel(run.server) as user:
            await user.do("arm")
            await asyncio.to_thread(eventually, lambda: all(run.pump(name) == ON for name in run.benches))

    with started(tmp_path) as run:
        asyncio.run(arm(run))
        run.server.kill("supervisor", number=signal.SIGTERM)
        assert run.server.wait_exit() == 0, run.server.stderr
        for bench in run.benches.values():
            last = dict(bench.written())
            assert last["enable"] == bench.safe["enable"] == 0.0
