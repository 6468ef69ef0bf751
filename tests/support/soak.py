"""A soak test's parts: faults of all kinds for a running server, and what must hold after each.

Who keeps the service (systemd, in this place the test) starts a server again when it has ended by itself. Nothing else
is done for it: after each fault it must come back to normal without help, but for an operator who resets, arms and
starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from fake_system import FakeSystem
from modbus_bench import TcpBench
from service_harness import (
    COMPILED,
    Panel,
    Server,
    applied,
    busy_processors,
    children_of,
    eventually,
    listens,
    panel,
    rig_text,
)
from service_inputs import random_switch
from soak_logs import look_at_logs
from soak_usage import Usage

from hilserver.numerics.arrays import Floats
from hilserver.realtime.rig_setup import RING_SECONDS
from hilserver.realtime.shared import LoopMemory
from hilserver.record.folder import SUFFIX
from hilserver.rig.build import load_rig
from hilserver.tick.row import header

__all__ = ["ENDING", "SURVIVED", "Fault", "Soak", "Usage", "be_running", "live", "service_is_stopped", "switches"]

HEARTBEAT, MAX_MISSED = 3.0, 5000
"""s and ticks of 1 ms: what the loop stands. A shared machine stands still for more than a second now and then."""
SAFE_WITHIN = 3.0
"""s; the ramp to null takes half a second, and a busy machine some time."""

RECORDING = """
max_duration = "{file_length}"
min_free_megabytes = 100
keep = {{ gigabytes = {keep}, running = false }}
"""
SLOW_DEVICE = """
[devices.network]
driver = "modbus"
tcp = {{ host = "127.0.0.1", port = {port} }}
{settings}
[channels.p_network]
device = "network"
source = "p_A"
scale = {{ raw = [{low}, {high}], value = ["0 bar", "100 bar"] }}
[limits.old_network]
channel = "p_network"
max_age = "4 s"
action = "trip"
"""


# ---------------------------------------------------------------------------------------------------------------------
# a server that has to stand it


@dataclass
class Soak:
    """The present server, and the fakes by which faults are injected."""

    folder: Path
    random: np.random.Generator
    fake: FakeSystem
    bench: TcpBench
    usage: Usage
    file_length: str = "2 s"
    keep: float = 2.0
    report: list[str] = field(default_factory=list)
    server: Server = field(init=False, repr=False)
    memory: LoopMemory = field(init=False, repr=False)
    seen: set[Path] = field(default_factory=set)
    switches: int = 0

    def new_server(self) -> Server:
        """Another one of the same rig, as after a restart of the service."""
        changes = {
            **COMPILED,
            "rate =": f'rate = "1 kHz"\nheartbeat_timeout = "{HEARTBEAT:g} s"',
            "max_missed =": f"max_missed = {MAX_MISSED}",
            "max_age =": 'max_age = "2 s"',
        }
        low, high = self.bench.input_span["p_A"]
        settings = {**self.bench.settings, "timeout": "200 ms", "hang_time": "2 s", "rate": "50 Hz"}
        address = settings.pop("tcp")
        lines = "".join(f"{key} = {_inline(value)}\n" for key, value in settings.items())
        name = f"soak_{os.getpid()}"
        text = rig_text(name, self.folder, changes)
        text += RECORDING.format(file_length=self.file_length, keep=self.keep)
        text += SLOW_DEVICE.format(port=address["port"], settings=lines, low=low, high=high)
        server = Server(self.folder, name, text=text, environment=self.fake.environment)
        self._age_column = load_rig(server.rig).layout.column("age.p_network")
        return server

    def latest_row(self) -> Floats:
        """The loop's newest row."""
        row = np.empty(self.memory.ring.width)
        self.memory.ring.latest(row)
        return row

    def age_of_network(self) -> float:
        """Age of the slow device's latest sample, s."""
        return float(self.latest_row()[self._age_column])

    @contextlib.asynccontextmanager
    async def user(self) -> AsyncIterator[Panel]:
        async with panel(self.server) as user:
            yield user

    async def wait(self, condition: Callable[[], Any], seconds: float = 15.0) -> Any:
        """Wait for a condition without holding up the user."""
        return await asyncio.to_thread(eventually, condition, seconds)

    def new_logs(self, *folders: Path) -> list[Path]:
        """The logs of the life that has just ended."""
        found = {path for folder in folders or (self.folder / "logs",) for path in folder.glob(f"*{SUFFIX}")}
        new = sorted(found - self.seen)
        self.seen |= set(new)
        return new

    async def watch_usage(self, every: float) -> None:
        """Note what the processes hold, from time to time."""
        while True:
            self.server.note_children()
            self.usage.look(self.server.pids)
            await asyncio.sleep(every)


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_inline(part)}" for key, part in value.items()) + " }"
    return f'"{value}"' if isinstance(value, str) else str(value)


async def be_running(user: Panel, patience: float = 60.0) -> None:
    """What an operator does after whatever has happened, until the rig runs with its work cycle.

    ``patience``: s after which the operator repeats what is not answered, as after a flood that has pushed it out.
    """
    async with asyncio.timeout(60):
        while True:
            answer = {"ok": False, "reason": "not answered"}
            for name in ("reset", "arm", "start"):
                with contextlib.suppress(TimeoutError):
                    answer = await asyncio.wait_for(user.command(name), patience)
            if answer["ok"] or "the mode is RUNNING" in str(answer["reason"]):
                break
            await asyncio.sleep(0.1)
    await user.do("switch_circuit", file="lift.toml")
    await user.do("cycle", action="start")


# ---------------------------------------------------------------------------------------------------------------------
# faults that a server survives


async def switches(soak: Soak) -> None:
    """Random switches, one after the other."""
    async with soak.user() as user:
        for _ in range(10):
            name, payload = random_switch(soak.random)
            answer = await user.command(name, **payload)
            assert answer["ok"], answer
            soak.switches += answer["ok"]
        await user.do("cycle", action="start")


async def broker_is_killed(soak: Soak) -> None:
    """Another one comes, at the same address, with all that is retained."""
    killed = soak.server.pids["broker"]
    soak.server.kill("broker")
    await soak.wait(lambda: children_of(soak.server.pids["supervisor"]).get("broker", killed) != killed)
    await soak.wait(lambda: listens(soak.server.port))
    async with soak.user() as user:
        assert (await user.see("state", start=0))["mode"] == "RUNNING"


async def recorder_is_killed(soak: Soak) -> None:
    """Another one takes over, without a gap."""
    async with soak.user() as user:
        soak.server.kill("recorder")
        await user.see("event", lambda event: "not recorded" in event["text"])
        await _recorded_again(user)


async def recorder_hangs(soak: Soak) -> None:
    """For less than the ring holds: nothing is lost."""
    async with soak.user() as user:
        lost = (await user.see("state"))["recording"]["lost"]
        soak.server.kill("recorder", number=signal.SIGSTOP)
        await asyncio.sleep(1.5)
        soak.server.kill("recorder", number=signal.SIGCONT)
        await asyncio.sleep(1.5)
        state = await user.see("state", start=len(user.seen))
        assert (state["mode"], state["recording"]["lost"]) == ("RUNNING", lost)


async def disk_is_slow(soak: Soak) -> None:
    """So slow that the ring fills up, but not that it runs over."""
    async with soak.user() as user:
        soak.fake.set(write_delay=0.2)
        await asyncio.sleep(2.0)
        soak.fake.repair()
        assert (await user.see("state", start=len(user.seen)))["mode"] == "RUNNING"


async def disk_is_too_slow(soak: Soak) -> None:
    """Rows are lost, though the recorder is replaced; the loop goes on, and everybody is told how many."""
    async with soak.user() as user:
        soak.fake.set(write_delay=2 * RING_SECONDS)
        await user.see("event", lambda event: "was killed" in event["text"])
        await asyncio.sleep(RING_SECONDS)
        soak.fake.repair()
        event = await user.see("event", lambda event: "are in no log" in event["text"] or "are lost" in event["text"])
        assert event["kind"] == "warning"
        assert (await user.see("state", start=len(user.seen)))["mode"] == "RUNNING"


async def disk_is_full(soak: Soak) -> None:
    """All at once, without a warning: writes fail."""
    async with soak.user() as user:
        soak.fake.set(full=1)
        await user.see("event", lambda event: "can't be written" in event["text"])
        state = await user.see("state", lambda state: "not recorded" in str(state["warnings"]))
        assert (state["mode"], state["recording"]["file"]) == ("RUNNING", None)
        soak.fake.repair()
        await _recorded_again(user)


async def disk_fills_up(soak: Soak) -> None:
    """The recording ends before it is full, and goes on when there is room."""
    async with soak.user() as user:
        soak.fake.set(free_bytes=99e6)
        await user.see("event", lambda event: "must stay free" in event["text"])
        state = await user.see("state", lambda state: "not recorded" in str(state["warnings"]))
        assert state["mode"] == "RUNNING"
        soak.fake.repair()
        await _recorded_again(user)


async def clock_jumps(soak: Soak) -> None:
    """By an hour, a month, years, to and fro: the loop goes on, commands are answered, nothing old is removed."""
    async with soak.user() as user:
        for jump in soak.random.choice([3600.0, -3600.0, 30 * 86400.0, 400 * 86400.0, -3 * 86400.0, 0.0], 3):
            soak.fake.set(clock_offset=float(jump))
            await asyncio.sleep(0.5)
            await user.do("set_input", input="joystick", value=0.1)
        state = await user.see("state", start=len(user.seen))
        assert state["mode"] == "RUNNING"
        assert abs(state["time"] - time.time() - jump) < 60.0
    soak.fake.set(clock_offset=0.0)


async def processors_are_busy(soak: Soak) -> None:
    """Everything else on the machine works at full load, and it is switched."""
    with busy_processors():
        await switches(soak)


async def loop_stalls(soak: Soak) -> None:
    """Ticks are missed, and made good."""
    async with soak.user() as user:
        soak.server.kill("loop", number=signal.SIGSTOP)
        await asyncio.sleep(0.1)
        soak.server.kill("loop", number=signal.SIGCONT)
        await user.see("event", lambda event: "missed and compensated" in event["text"])
        assert (await user.see("state", start=len(user.seen)))["mode"] == "RUNNING"


async def supervisor_hangs(soak: Soak) -> None:
    """The loop doesn't wait for it: null, and a fault."""
    soak.server.kill("supervisor", number=signal.SIGSTOP)
    try:
        await soak.wait(lambda: applied(soak.server.device) == 0.0, HEARTBEAT + SAFE_WITHIN)
        await asyncio.sleep(1.0)
    finally:
        soak.server.kill("supervisor", number=signal.SIGCONT)
    async with soak.user() as user:
        state = await user.see("state", lambda state: state["mode"] == "FAULT")
        assert "supervisor" in state["fault"]


async def worker_is_killed(soak: Soak) -> None:
    """The process that stands by takes its device over."""
    killed = soak.server.pids["worker"]
    soak.server.kill("worker")
    await soak.wait(lambda: children_of(soak.server.pids["supervisor"]).get("worker", killed) != killed)
    await soak.wait(lambda: soak.age_of_network() < 0.5)
    async with soak.user() as user:
        await user.see("state", lambda state: state["devices"]["network"]["restarts"] > 0)


async def slow_device_is_unplugged(soak: Soak) -> None:
    """The rig trips by the age of its samples; plugged in again it can be reset."""
    async with soak.user() as user:
        await asyncio.to_thread(soak.bench.unplug)
        try:
            fault = await user.see("event", lambda event: event["kind"] == "fault")
            assert "old_network" in fault["text"]
            await soak.wait(lambda: applied(soak.server.device) == 0.0, SAFE_WITHIN)
        finally:
            await asyncio.to_thread(soak.bench.plug)


async def _recorded_again(user: Panel) -> None:
    await user.see("event", lambda event: "recording resumed" in event["text"])
    await user.see("state", lambda state: bool(state["recording"]["file"]), len(user.seen))


# ---------------------------------------------------------------------------------------------------------------------
# faults after which a server has ended


async def loop_is_killed(soak: Soak) -> None:
    """The supervisor writes the safe values and ends with a failure."""
    device = soak.server.device
    soak.server.kill("loop")
    assert await asyncio.to_thread(soak.server.wait_exit) == 1
    assert applied(device) == 0.0
    assert soak.server.leaves() == []


async def supervisor_is_killed(soak: Soak) -> None:
    """The loop ramps to null and ends, and everything with it."""
    device = soak.server.device
    soak.server.kill("supervisor")
    await soak.wait(lambda: applied(device) == 0.0, HEARTBEAT + SAFE_WITHIN)
    await soak.wait(lambda: not soak.server.alive())


async def supervisor_and_loop_are_killed(soak: Soak) -> None:
    """Nobody is left but the device: its own watchdog makes it safe."""
    device = soak.server.device
    soak.server.kill("supervisor", "loop")
    await soak.wait(lambda: applied(device) == 0.0, SAFE_WITHIN)
    await soak.wait(lambda: not soak.server.alive())


async def device_is_killed(soak: Soak) -> None:
    """A simulated device doesn't come back: the rig trips, and somebody has to start it again."""
    async with soak.user() as user:
        soak.server.kill("device")
        fault = await user.see("event", lambda event: event["kind"] == "fault")
        assert "age was violated" in fault["text"]
        await user.see("state", lambda state: "device rig ended" in str(state["warnings"]))
    await service_is_stopped(soak)


async def service_is_stopped(soak: Soak) -> None:
    """In order: null, everything written, nothing left."""
    device = soak.server.device
    soak.server.kill("supervisor", number=signal.SIGTERM)
    assert await asyncio.to_thread(soak.server.wait_exit) == 0
    assert applied(device) == 0.0 or "device" not in soak.server.alive()
    assert soak.server.leaves() == []


async def everything_is_killed(soak: Soak) -> None:
    """At once, the recorder too: what it had not yet flushed is gone."""
    soak.server.kill(*(name for name in soak.server.pids if name in soak.server.alive()))
    await soak.wait(lambda: not soak.server.alive())


Fault = Callable[[Soak], Awaitable[None]]
SURVIVED: tuple[Fault, ...] = (
    switches,
    broker_is_killed,
    recorder_is_killed,
    recorder_hangs,
    disk_is_slow,
    disk_is_too_slow,
    disk_is_full,
    disk_fills_up,
    clock_jumps,
    processors_are_busy,
    loop_stalls,
    supervisor_hangs,
    worker_is_killed,
    slow_device_is_unplugged,
)
ENDING: tuple[Fault, ...] = (
    loop_is_killed,
    supervisor_is_killed,
    supervisor_and_loop_are_killed,
    device_is_killed,
    service_is_stopped,
    everything_is_killed,
)


# ---------------------------------------------------------------------------------------------------------------------
# a life of a server, from start to end


async def live(soak: Soak, faults: list[Fault], end: Fault) -> None:
    """Start a server, inject faults, end it with the last one, then examine what it has recorded."""
    began = time.monotonic()
    with soak.new_server() as soak.server:
        soak.memory = soak.server.memory
        watching = asyncio.create_task(soak.watch_usage(1.0))
        try:
            async with soak.user() as user:
                assert (await user.see("state"))["mode"] == "SAFE", "it may not start by itself"
            for fault in (*faults, end):
                async with soak.user() as user:
                    await be_running(user)
                at = time.monotonic()
                soak.server.note_children()
                try:
                    await fault(soak)
                except BaseException as error:
                    error.add_note(f"fault: {fault.__name__}; the server said:\n{soak.server.stderr[-3000:]}")
                    raise
                soak.report.append(f"{fault.__name__:32}{time.monotonic() - at:6.1f} s")
        finally:
            watching.cancel()
            soak.fake.repair()
            soak.fake.set(clock_offset=0.0)
        assert "Traceback" not in soak.server.stderr, soak.server.stderr
        last = int(header(soak.latest_row()).tick)
    soak.report.append(look_at_logs(soak.new_logs(), last, is_whole=end is not everything_is_killed))
    soak.report.append(f"{'':32}{time.monotonic() - began:6.1f} s of life")
