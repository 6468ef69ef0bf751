"""The rehearsal of a tick: it is over before the deadline, and has no effect."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from service_harness import Panel, Server, talk

from hilserver.compiler import compiled_program
from hilserver.driver import Driver, PlantDriver, StandInDriver
from hilserver.numerics.arrays import Floats
from hilserver.realtime import clock as clock_module
from hilserver.realtime.clock import RehearsingClock
from hilserver.realtime.devices import DeviceSetup
from hilserver.realtime.process import Loop
from hilserver.realtime.rig_setup import REHEARSAL_VARIABLE, make_setup
from hilserver.realtime.setup import read_setup, write_setup
from hilserver.realtime.shared import LoopMemory
from hilserver.realtime.simulated_device import DeviceMemory
from hilserver.realtime.worker import RemoteDevice, WorkerMemory
from hilserver.rig.build import load_rig
from hilserver.rig.rig import Rig
from hilserver.simulation.replay import replay_log
from hilserver.tick.codes import CommandKind, Mode
from hilserver.tick.program import command_record
from hilserver.tick.row import COLUMN, header

TICKS = 1500
OF_THE_CLOCK = ("utc", "heartbeat_age", "wake_error", "read_time", "compute_time", "write_time", "publish_time")
"""Values of the header that differ from run to run."""


@pytest.fixture(scope="module", params=["demo", "lift", "boom"])
def rig(request: pytest.FixtureRequest) -> Rig:
    return load_rig(Path(__file__).parents[2] / "config" / "rigs" / f"{request.param}.toml")


class Bench:
    """A loop whose device is in the hands of the test, stepped without a clock."""

    def __init__(self, rig: Rig, folder: Path) -> None:
        folder.mkdir()
        (device,) = rig.devices
        self.device = DeviceMemory.create(folder / "rig", len(device.inputs), len(device.outputs))
        self.memory = LoopMemory.create(folder / "loop", row_width=rig.layout.width, ring_rows=TICKS + 1)
        setup = make_setup(rig, {device.name: str(folder / "rig")}, {})
        self.loop = Loop(replace(setup, row=setup.row.copy()), compiled_program(rig.library), self.memory)
        self.loop.open(setup.devices)
        self._reading = np.zeros(self.device.readings.width)
        self._reading[0] = np.inf  # readings are never old, however busy this computer is
        self.memory.supervisor_heartbeat.beat()

    def step(self, readings: Floats) -> None:
        """A scan with these readings of the sensors."""
        self._reading[1 : self.device.applied.start] = readings
        self.device.readings.publish(self._reading)
        self.memory.supervisor_heartbeat.beat()
        self.loop.clock.tick += 1
        self.loop.scan.run(self.loop.clock)

    def rows(self) -> Floats:
        """All rows so far, without what the clock of the computer makes of them."""
        rows = np.zeros((TICKS + 1, self.memory.ring.width))
        count, _, lost = self.memory.ring.read(0, rows)
        assert lost == 0
        rows[:, [COLUMN[name] for name in OF_THE_CLOCK]] = 0.0
        return rows[:count]

    def close(self) -> None:
        self.loop.close()
        self.memory.close()
        self.device.close()


@pytest.fixture
def benches(rig: Rig, tmp_path: Path) -> Iterator[Sequence[Bench]]:
    made = [Bench(rig, tmp_path / name) for name in ("rehearsed", "plain")]
    yield made
    for bench in made:
        bench.close()


def test_a_rehearsal_has_no_effect(rig: Rig, benches: Sequence[Bench]) -> None:
    """Rows and commands are the same, bit for bit, with and without rehearsals; a command waits for its own tick."""
    rng = np.random.default_rng(5)
    readings = 2.0 + np.cumsum(rng.normal(0.0, 0.01, (TICKS, benches[0].device.applied.start - 1)), axis=0)
    orders = {50: CommandKind.ARM, 300: CommandKind.START, 400: CommandKind.CYCLE}
    written = []
    for bench in benches:
        commands = bench.device.commands
        for k in range(TICKS):
            if k in orders:
                bench.memory.mailbox.post(command_record(orders[k], 1.0))
            if bench is benches[0]:
                published = (bench.memory.ring.published, commands.published, bench.loop.row.tobytes())
                for _ in range(1 + k % 3):
                    bench.loop.rehearse()
                assert (bench.memory.ring.published, commands.published, bench.loop.row.tobytes()) == published
            bench.step(readings[k])
        assert bench.memory.mailbox.posted == len(orders)
        found = np.zeros(commands.width)
        assert commands.latest(found) == commands.published - 1
        written.append((commands.published, found[1:].tolist()))
        modes = {int(header(row).mode) for row in bench.rows()}
        assert {Mode.SAFE, Mode.ARMED, Mode.RUNNING} <= modes
    assert written[0] == written[1]
    rehearsed, plain = (bench.rows().view(np.int64) for bench in benches)
    assert np.array_equal(rehearsed, plain)
    for valve in rig.layout.valves:
        assert np.ptp(benches[0].rows()[:, rig.layout.column(f"valve.{valve}.command")]) > 0.01


@pytest.mark.parametrize("driver", [PlantDriver, Driver], ids=["of a simulated device", "of hardware"])
def test_a_rehearsal_takes_the_path_of_the_tick(
    rig: Rig, tmp_path: Path, driver: type[Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its mode is that of the tick, no sample is missing, no output unconfirmed: it takes the same branches."""
    monkeypatch.setattr(PlantDriver, "stand_in", driver.stand_in)
    bench = Bench(rig, tmp_path / "loop")
    try:
        orders = {50: CommandKind.ARM, 300: CommandKind.START}
        readings = np.full(bench.device.applied.start - 1, 3.0)
        fresh = [k for k, name in enumerate(rig.layout.names) if name.startswith(("stale.", "confirmed_age."))]
        for k in range(500):
            if k in orders:
                bench.memory.mailbox.post(command_record(orders[k], 1.0))
            bench.loop.rehearse()
            if k > 1 and k not in orders:
                rehearsed = bench.loop.rehearsed.row
                assert header(rehearsed).mode == header(bench.loop.row).mode or k - 1 in orders, k
                assert (rehearsed[fresh] == bench.loop.row[fresh]).all()
            bench.step(readings)
        assert header(bench.loop.row).mode == Mode.RUNNING
    finally:
        bench.close()


@pytest.mark.parametrize(
    ("in_file", "in_environment", "rehearsed"),
    [(True, "on", True), (True, None, True), (True, "off", False), (False, "on", False)],
)
def test_the_loop_is_told_whether_to_rehearse(
    rig: Rig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    in_file: bool,
    in_environment: str | None,
    rehearsed: bool,
) -> None:
    monkeypatch.delenv(REHEARSAL_VARIABLE, raising=False)
    if in_environment is not None:
        monkeypatch.setenv(REHEARSAL_VARIABLE, in_environment)
    loop = rig.settings.loop.model_copy(update={"rehearsal": in_file})
    changed = replace(rig, settings=rig.settings.model_copy(update={"loop": loop}))
    write_setup(make_setup(changed, {}, {}), tmp_path / "setup")
    assert read_setup(tmp_path / "setup").rehearsal is rehearsed


@pytest.mark.realtime
@pytest.mark.slow
def test_the_log_of_a_rehearsed_run_replays(tmp_path: Path) -> None:
    with Server(tmp_path, environment={"HILSERVER_REHEARSAL": "on"}) as server:

        async def work(panel: Panel) -> None:
            await panel.run_cycle()
            await panel.see("telemetry", lambda batch: (batch["channels"]["tick"][-1] or 0) > 1000)

        talk(server, work)
        server.kill("supervisor", number=signal.SIGTERM)
        assert server.wait_exit() == 0
        assert replay_log(server.logs[0]).ok


class TimedClock(RehearsingClock):
    """In a time of its own: wake-ups are late, and rehearsals take, as long as the test wants."""

    def __init__(self, late_ns: Callable[[], int], takes_ns: Callable[[], int], period_s: float = 0.001) -> None:
        self.now, self.slept, self.slept_until, self.rehearsals, self._late = 0, 0, 0, 0, late_ns
        self._takes = takes_ns
        super().__init__(period_s, self._pass)

    def _pass(self) -> None:
        self.rehearsals += 1
        self.now += self._takes()

    def read(self) -> int:
        self.now += 200
        return self.now

    def _slept(self, until_ns: int) -> bool:
        self.slept += max(0, until_ns - self.now)
        self.slept_until = until_ns
        self.now = max(self.now, until_ns) + self._late()
        return True


def waits(monkeypatch: pytest.MonkeyPatch, clock: TimedClock, count: int) -> tuple[Floats, Floats]:
    """Wake errors, and how early it was to wake, in so many periods, s."""
    monkeypatch.setattr(clock_module, "time", SimpleNamespace(monotonic_ns=clock.read))
    clock.start()
    found = np.zeros((2, count))
    for k in range(count):
        assert clock.wait()
        assert clock.missed == 0
        found[:, k] = clock.wake_error, (clock.deadline_ns - clock.slept_until) / 1e9
    return found[0], found[1]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def test_it_wakes_as_early_as_wake_up_and_rehearsal_need(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """Wake-ups late by 5 µs on average and by 23 µs once in 100 times (exponential), rehearsals of 40 µs."""
    clock = TimedClock(lambda: int(rng.exponential(5_000)), lambda: 40_000)
    late, early = waits(monkeypatch, clock, 60_000)
    settled = slice(30_000, None)
    assert early[settled].mean() == pytest.approx(40e-6 + 5e-6 * np.log(100.0), rel=0.1)
    assert np.mean(late[settled] > 0.5e-6) < 0.02
    assert clock.rehearsals > 0.98 * 60_000


def test_late_wake_ups_are_no_later_with_rehearsals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wake-ups that are always late by more than the longest time: nothing is rehearsed, nothing is added."""
    clock = TimedClock(lambda: 300_000, lambda: 40_000)
    late, early = waits(monkeypatch, clock, 2_000)
    assert late[1:].max() == pytest.approx(100e-6, abs=1e-6)
    assert early.max() == 200e-6
    assert clock.rehearsals <= 1 + 2_000 // 100


def test_a_rehearsal_that_takes_too_long_is_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than the longest time: it is tried again now and then, and delays those ticks only."""
    clock = TimedClock(lambda: 0, lambda: 500_000)
    late, _ = waits(monkeypatch, clock, 5_000)
    assert np.mean(late > 1e-6) < 0.02
    assert clock.rehearsals < 0.02 * 5_000


def test_it_stops_in_a_rehearsal(monkeypatch: pytest.MonkeyPatch) -> None:
    clock: TimedClock

    def stop() -> int:
        clock.stop()
        return 40_000

    clock = TimedClock(lambda: 0, stop)
    monkeypatch.setattr(clock_module, "time", SimpleNamespace(monotonic_ns=clock.read))
    clock.start(delay_s=0.001)
    assert not clock.wait()
    assert clock.tick == -1
    assert clock.rehearsals > 0


@pytest.mark.parametrize("number", [1, 2], ids=["first", "repeated"])
def test_one_long_rehearsal_does_not_end_them(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """A pause of the machine of 0.7 ms within a rehearsal: soon there are as many per period as before."""
    counts = [0]

    def takes() -> int:
        counts[-1] += 1
        return 700_000 if (len(counts), counts[-1]) == (1_000, number) else 30_000

    clock = TimedClock(lambda: 0, takes)
    monkeypatch.setattr(clock_module, "time", SimpleNamespace(monotonic_ns=clock.read))
    clock.start()
    for _ in range(2_000):
        assert clock.wait()
        counts.append(0)
    assert np.mean(counts[900:999]) > 3.0
    assert np.mean(counts[1_900:2_000]) > 0.7 * np.mean(counts[900:999])  # it wakes later by then


def test_a_loop_with_long_ticks_still_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the kernel would stop it for 50 ms in each second, as any process with real-time priority that does
    not sleep."""
    clock = TimedClock(lambda: 0, lambda: 800_000)
    monkeypatch.setattr(clock_module, "time", SimpleNamespace(monotonic_ns=clock.read))
    clock.start()
    for _ in range(1_000):
        assert clock.wait()
        clock.now += 800_000
    assert clock.slept > 0.09 * 1_000 * 1_000_000


@pytest.mark.parametrize(("period", "early"), [(0.0001, 20e-6), (0.001, 200e-6), (0.1, 1e-3)])
def test_it_wakes_a_fifth_of_the_period_or_a_millisecond_early_at_most(
    monkeypatch: pytest.MonkeyPatch, period: float, early: float
) -> None:
    """So early it wakes at first; the first deadline is the start itself."""
    clock = TimedClock(lambda: 0, lambda: 1_000, period)
    assert waits(monkeypatch, clock, 2)[1].tolist() == [0.0, early]


def test_after_the_last_rehearsal_it_wakes_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = TimedClock(lambda: 50_000, lambda: 40_000)
    waits(monkeypatch, clock, 100)
    clock.rehearse_no_more()
    late, _ = waits(monkeypatch, clock, 100)
    assert late[1:].min() > 49e-6


def test_a_stand_in_that_fails_ends_the_rehearsals_only(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def read(self: StandInDriver, values: Floats, ages: Floats) -> None:
        raise ZeroDivisionError("nobody expects this")

    monkeypatch.setattr(PlantDriver, "stand_in", Driver.stand_in)
    monkeypatch.setattr(StandInDriver, "read", read)
    bench = Bench(rig, tmp_path / "loop")
    try:
        bench.loop.rehearse()
        bench.step(np.full(bench.device.applied.start - 1, 3.0))
        assert len(bench.rows()) == 1
    finally:
        bench.close()
    assert json.loads(capfd.readouterr().out) == {
        "warning": "ticks are no longer rehearsed: ZeroDivisionError: nobody expects this"
    }


def test_the_stand_in_of_a_slow_device_passes_nothing_to_its_worker(tmp_path: Path) -> None:
    """It has the same samples."""
    with closing(WorkerMemory.create(tmp_path / "worker", 1, 1)) as memory:
        memory.samples.publish(np.arange(memory.samples.width, dtype=float))
        path = str(tmp_path / "worker")
        device = RemoteDevice(DeviceSetup("slow", "", {}, "", ("in",), ("out",), 0, (0,), 0, 0, path))
        with closing(device):
            device.open()
            stand_in = device.stand_in()
            stand_in.write(np.array([1.0]))
            stand_in.make_safe()
            stand_in.close()
            assert memory.commands.published == 0
            found, ages = np.zeros((2, 1)), np.zeros((2, 1))
            device.read(found[0], ages[0])
            stand_in.read(found[1], ages[1])
            assert found.tolist() == [[1.0], [1.0]]
            device.make_safe()
            assert memory.commands.published == 1
