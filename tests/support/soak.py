"""A soak test's parts: faults of all kinds for a running server, and what must hold after each and in the logs.

Who keeps the service (systemd, in this place the test) starts a server again when it has ended by itself. Nothing else
is done for it: after each fault it must come back to normal without help, but for an operator who resets, arms and
starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from fake_system import FakeSystem
from modbus_bench import TcpBench
from service_harness import Panel, Server, applied, busy_processors, children_of, eventually, panel, rig_text
from service_inputs import random_switch

from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.realtime.shared import LoopMemory
from hilserver.record.folder import SUFFIX
from hilserver.record.reader import LogReader
from hilserver.rig.build import load_rig
from hilserver.service.supervisor import RING_SECONDS
from hilserver.tick.codes import Mode
from hilserver.tick.row import header

HEARTBEAT, MAX_MISSED = 3.0, 5000
"""s and ticks of 1 ms: what the loop stands. A shared machine stands still for more than a second now and then."""
SAFE_WITHIN = 3.0
"""s; the ramp to null takes half a second, and a busy machine some time."""
MIB = 1024.0
"""KiB."""

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
# memory and descriptors


@dataclass(frozen=True)
class Use:
    """What a process holds: resident memory that is its own or its program's, KiB; open descriptors."""

    time: float
    memory: int
    descriptors: int


class Usage:
    """What each process of a server holds over time. Shared memory of the ring is not counted: it has a fixed size."""

    def __init__(self) -> None:
        self.of: dict[tuple[str, int], list[Use]] = {}
        self._began = time.monotonic()

    def look(self, pids: dict[str, int]) -> None:
        """Note what these processes hold now; those that are gone are left out."""
        for name, pid in pids.items():
            with contextlib.suppress(OSError, KeyError):
                status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
                memory = sum(int(status[key].split()[0]) for key in ("RssAnon", "RssFile"))
                descriptors = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
                use = Use(time.monotonic() - self._began, memory, descriptors)
                self.of.setdefault((name, pid), []).append(use)

    def grown(self, warm_up: float) -> Iterator[Grown]:
        """How much each process that lasted longer than ``warm_up`` (s) has grown since then."""
        for (name, pid), uses in self.of.items():
            after = [use for use in uses if use.time - uses[0].time >= warm_up]
            if len(after) < 5:
                continue
            few = max(len(after) // 10, 2)
            begin, end = after[:few], after[-few:]
            yield Grown(
                name,
                pid,
                hours=(after[-1].time - after[0].time) / 3600,
                memory=(median(use.memory for use in end) - median(use.memory for use in begin)) / MIB,
                most=max(use.memory for use in after) / MIB,
                descriptors=round(median(use.descriptors for use in end) - median(use.descriptors for use in begin)),
            )


@dataclass(frozen=True)
class Grown:
    """A process since its warm-up: MiB more, the most it held (MiB), descriptors more."""

    name: str
    pid: int
    hours: float
    memory: float
    most: float
    descriptors: int

    def __str__(self) -> str:
        return (
            f"{self.name:12}{self.pid:>8}  {self.hours * 60:7.1f} min  {self.most:8.1f} MiB at most  "
            f"{self.memory:+7.2f} MiB  {self.descriptors:+3d} descriptors"
        )


# ---------------------------------------------------------------------------------------------------------------------
# a server that has to stand it


@dataclass
class Soak:
    """The present server, and with what it is plagued."""

    folder: Path
    random: np.random.Generator
    fake: FakeSystem
    bench: TcpBench
    usage: Usage
    file_length: str = "2 s"
    keep: float = 2.0
    report: list[str] = field(default_factory=list)
    server: Server = field(init=False)
    memory: LoopMemory = field(init=False)
    seen: set[Path] = field(default_factory=set)
    switches: int = 0

    def new_server(self) -> Server:
        """Another one of the same rig, as after a restart of the service."""
        changes = {
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


async def be_running(user: Panel) -> None:
    """What an operator does after whatever has happened, until the rig runs with its work cycle."""
    reasons: set[str] = set()
    async with asyncio.timeout(60):
        while True:
            for name in ("reset", "arm", "start"):
                answer = await user.command(name)
                reasons.add(str(answer.get("reason")))
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
    await soak.wait(lambda: _is_listening(soak.server.port))
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
        soak.fake.mend()
        assert (await user.see("state", start=len(user.seen)))["mode"] == "RUNNING"


async def disk_is_too_slow(soak: Soak) -> None:
    """Rows are lost; the loop goes on, everybody is told how many, and the log names them."""
    async with soak.user() as user:
        soak.fake.set(write_delay=RING_SECONDS + 2.0)
        await asyncio.sleep(3.0)  # a write begins meanwhile, on a busy machine too
        soak.fake.mend()
        event = await user.see("event", lambda event: "rows of the log are lost" in event["text"])
        assert event["kind"] == "warning"
        state = await user.see("state", lambda state: state["recording"]["lost"] > 0, len(user.seen))
        assert state["mode"] == "RUNNING"


async def disk_is_full(soak: Soak) -> None:
    """All at once, without a warning: writes fail."""
    async with soak.user() as user:
        soak.fake.set(full=1)
        await user.see("event", lambda event: "can't be written" in event["text"])
        state = await user.see("state", lambda state: state["recording"]["file"] is None)
        assert state["mode"] == "RUNNING"
        assert "not recorded" in str(state["warnings"])
        soak.fake.mend()
        await _recorded_again(user)


async def disk_fills_up(soak: Soak) -> None:
    """The recording ends before it is full, and goes on when there is room."""
    async with soak.user() as user:
        soak.fake.set(free_bytes=99e6)
        await user.see("event", lambda event: "are left free" in event["text"])
        state = await user.see("state", lambda state: state["recording"]["file"] is None)
        assert state["mode"] == "RUNNING"
        soak.fake.mend()
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
        await user.see("event", lambda event: "ticks missed and compensated" in event["text"])
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


def _is_listening(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
        return True
    return False


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
    """Start a server, plague it with faults, end it with the last; then look at what it has recorded."""
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
            soak.fake.mend()
            soak.fake.set(clock_offset=0.0)
        assert "Traceback" not in soak.server.stderr, soak.server.stderr
        last = int(header(soak.latest_row()).tick)
    soak.report.append(look_at_logs(soak, last, is_whole=end is not everything_is_killed))
    soak.report.append(f"{'':32}{time.monotonic() - began:6.1f} s of life")


# ---------------------------------------------------------------------------------------------------------------------
# what must hold in the logs


@dataclass
class Found:
    """What a log holds: first tick, ticks missed before it, last one; rows; what it names as lost, before it: gap."""

    path: Path
    first: int
    missed: int
    last: int
    rows: int
    gap: int
    lost: int


def look_at_logs(soak: Soak, last_tick: int, *, is_whole: bool) -> str:
    """Check the logs of the life that has just ended: no row is missing unless it is named, and the valve was safe."""
    new = sorted(set((soak.folder / "logs").glob(f"*{SUFFIX}")) - soak.seen)
    soak.seen |= set(new)
    numbers = {path: _part(path) for path in new}
    firsts = [p for p in new if not any(_run(o) == _run(p) and numbers[o] < numbers[p] for o in new)]
    logs = sorted((found for path in firsts if (found := look_at_log(path)) is not None), key=lambda log: log.first)
    before_all = Found(Path(), -1, 0, -1, 0, 0, 0)
    for before, after in itertools.pairwise([before_all, *logs]):
        missing = after.first - before.last - 1
        named = f"{missing} ticks between {before.path} and {after.path}, {after.gap} are named"
        assert max(missing - after.missed, 0) == after.gap, named
    if is_whole:
        assert logs[-1].last == last_tick, f"{logs[-1].path} ends with tick {logs[-1].last}, the loop with {last_tick}"
    else:
        assert logs[-1].last >= last_tick - 3000
    rows, lost, gap = (sum(getattr(log, name) for log in logs) for name in ("rows", "lost", "gap"))
    return f"{'':32}{len(new)} files of {len(logs)} recordings, {rows} rows, {lost} lost, {gap} between, all named"


def _run(path: Path) -> str:
    return path.name.split(".")[0]


def _part(path: Path) -> int:
    return int(path.name.split(".")[1]) if path.name.count(".") > 1 else 0


def look_at_log(path: Path) -> Found | None:
    """Go through a log and its parts; None where it was ended before its first row."""
    try:
        reader = LogReader(path)
    except HilserverError:
        assert path.stat().st_size == 0, f"{path} has no header"
        return None
    found, state = None, _Rows()
    for batch in reader.batches():
        named = {row - batch.start: event["rows"] for row, event in batch.events if event["kind"] == "lost"}
        if found is None:
            first, missed = (int(batch.column(name)[0]) for name in ("tick", "missed"))
            found = Found(path, first, missed, first, 0, named.get(0, 0), 0)
            named.pop(0, None)
        found.lost += state.follow(batch.rows(), named, reader.header.columns)
        found.rows += len(batch)
        found.last = int(batch.column("tick")[-1])
    assert all(damage.lost is None for damage in reader.damages), reader.damages  # a torn end, at most
    return found


class _Rows:
    """Follows the rows of a log: ticks, and the command in modes in which the valve must be safe."""

    def __init__(self) -> None:
        self._last: Any = None

    def follow(self, rows: Any, named: dict[int, int], names: tuple[str, ...]) -> int:
        """Check these rows; returns how many between them are named as lost."""
        tick, missed, mode, command = (
            rows[:, names.index(name)] for name in ("tick", "missed", "mode", "valve.main.command")
        )
        if self._last is not None:
            tick, missed, mode, command = (
                np.concatenate([[last], values])
                for last, values in zip(self._last, (tick, missed, mode, command), strict=True)
            )
            named = {row + 1: count for row, count in named.items()}
        missing = np.diff(tick) - missed[1:] - 1
        lost = np.zeros(len(missing))
        for row, count in named.items():
            lost[row - 1] = count
        wrong = np.where(lost > 0, missing < lost, missing != 0)  # ticks missed in lost rows are missing too
        assert not wrong.any(), f"{missing[wrong][0]:.0f} rows missing behind tick {tick[:-1][wrong][0]:.0f}, not named"
        is_safe = np.isin(mode, (Mode.SAFE, Mode.FAULT))
        both = is_safe[1:] & is_safe[:-1]
        assert (np.abs(command[1:][both]) <= np.abs(command[:-1][both]) + 1e-12).all(), "it opens the valve when safe"
        self._last = (tick[-1], missed[-1], mode[-1], command[-1])
        return int(lost.sum())
