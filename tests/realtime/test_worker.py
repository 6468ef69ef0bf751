"""Slow devices: a worker process reads and writes them; whatever happens to it, to the loop or to the device."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import probe
import pytest
from probe import ProbeDevice
from probe_rig import CIRCUIT, MAX_AGE, RIG
from service_harness import Panel, Server, eventually, talk

from hilserver.commissioning.calibrate import measure
from hilserver.commissioning.live import live, readings
from hilserver.driver import Floats
from hilserver.errors import HilserverError
from hilserver.realtime.worker import WRITE, Worker, WorkerMemory
from hilserver.rig.build import load_rig
from hilserver.tick.codes import Mode

pytestmark = pytest.mark.realtime

PUMP_ON = 5.0


class Run:
    """A server with both probes, and the probes."""

    def __init__(self, folder: Path) -> None:
        self.card, self.io = ProbeDevice(folder / "card"), ProbeDevice(folder / "io")
        self.card.measure(a=5.0, b=8.0)
        self.io.measure(a=1.0, c=4.0)
        (folder / "circuit.toml").write_text(CIRCUIT)
        text = RIG.replace("{folder}", str(folder))
        self.path = probe.install(folder / "installed")
        self.server = Server(folder, text=text, path=self.path, defects=["ZeroDivisionError: a defect"])


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """One that may be destroyed."""
    started = Run(tmp_path)
    with started.server:
        yield started


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """One that recovers from everything; each test leaves it so that it can be reset."""
    started = Run(tmp_path_factory.mktemp("lasting"))
    with started.server:
        yield started


async def be_running(run: Run, user: Panel) -> None:
    """RUNNING with the valve open and the pump on, from whatever mode."""
    await until(lambda: run.io.condition == run.card.condition == probe.WORKS)
    await user.command("reset")
    for name in ("arm", "start"):
        await user.do(name)
    await user.do("jog", valve="main", command=0.2)
    await until(lambda: run.card.output("u") == pytest.approx(2.0))
    await until(lambda: run.io.output("u") == PUMP_ON)


async def until(condition: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(eventually, condition)


async def recovers(run: Run, user: Panel) -> None:
    """A reset is refused no longer, and the device is written again."""
    await until(lambda: run.io.condition == probe.WORKS)
    reads = run.io.reads
    await until(lambda: run.io.reads > reads + 5)
    async with asyncio.timeout(60):
        while not (await user.command("reset"))["ok"]:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)
    await be_running(run, user)
    await user.do("disarm")


def actions(device: ProbeDevice, start: int = 0) -> list[str]:
    """What was done to a device, without the processes that did it."""
    return [line.split()[0] for line in device.journal()[start:]]


def has_safe_values(device: ProbeDevice, *outputs: str) -> bool:
    return all(device.output(name) == probe.SAFE[name] for name in outputs)


def assert_safe(run: Run) -> None:
    """Both devices have their safe values."""
    assert has_safe_values(run.card, "u", "v"), run.card.journal()
    assert has_safe_values(run.io, "u"), run.io.journal()


async def sees_trip(user: Panel, start: int, *reasons: str) -> None:
    fault = await user.see("event", lambda event: event["kind"] == "fault", start)
    assert any(reason in fault["text"] for reason in reasons), fault


BY_AGE, BY_CONFIRMATION = ".age was violated", "device io does not confirm the command of output pump"


# ---------------------------------------------------------------------------------------------------------------------
# what it goes on after


def test_values_go_both_ways_with_their_ages(lasting: Run) -> None:
    async def watch(user: Panel) -> None:
        await be_running(lasting, user)
        lasting.io.measure(c=7.0)
        await user.see("state", lambda state: state["actual"]["x"] == pytest.approx(0.35))
        await user.do("disarm")
        await until(lambda: lasting.io.output("u") == 0.0)
        assert user.all("state")[-1]["devices"].keys() == {"card", "io"}

        columns = await until(lambda: lasting.server.logged(user.all("state")[-1]["tick"]))
        ages = columns["age.x"][columns["mode"] == Mode.RUNNING]
        assert ages.min() >= 0.0
        assert ages.max() <= MAX_AGE
        assert (np.diff(ages) < 0.0).any(), "no other sample came"

    talk(lasting.server, watch)


def test_channels_and_calibrate_take_their_readings_from_the_running_server(
    lasting: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without touching the devices, which are open already; but not by another configuration."""
    for path in lasting.path:
        monkeypatch.syspath_prepend(path)
    opened = [actions(device).count("open") for device in (lasting.card, lasting.io)]
    lasting.card.measure(a=3.0)
    rig = load_rig(lasting.server.rig)
    with live(rig) as source:
        assert source.described == "from the running server"
        eventually(lambda: {r.channel: r.raw for r in readings(rig, source.row())}.get("p_A") == 3.0)
        wanted = ("p_A", "p_S", "p_T", "x")  # without trouble, but for a moment after a pause of the machine
        eventually(lambda: not any(r.trouble for r in readings(rig, source.row()) if r.channel in wanted))
        assert measure(rig, source, "p_A", 0.05).raw == 3.0
    lasting.card.measure(a=5.0)
    assert [actions(device).count("open") for device in (lasting.card, lasting.io)] == opened
    other = lasting.server.rig.with_name("other.toml")
    other.write_text(lasting.server.rig.read_text().replace("[ports]", 'p_9 = { value = "1 bar" }\n[ports]'))
    with pytest.raises(HilserverError, match="runs with another configuration"), live(load_rig(other)):
        pass


FAILURES: dict[str, tuple[Callable[[Run], None], str]] = {
    "killed": (lambda run: run.server.kill("worker"), "killed by SIGKILL"),
    "told to end": (lambda run: run.server.kill("worker", number=signal.SIGTERM), "exit code 0"),
    "stopped": (lambda run: run.server.kill("worker", number=signal.SIGSTOP), "did not answer for"),
    "hanging driver": (lambda run: be(run.io, probe.HANGS), "did not answer for"),
    "driver that gives up": (lambda run: be(run.io, probe.GIVES_UP), "device io: it must not go on."),
    "defect in the driver": (
        lambda run: be(run.io, probe.IS_DEFECT),
        "device io: internal error in its driver: ZeroDivisionError: a defect",
    ),
    "driver that crashes": (lambda run: be(run.io, probe.CRASHES), "exit code 3"),
}


def be(device: ProbeDevice, condition: int) -> None:
    device.condition = condition


@pytest.mark.parametrize("failure", list(FAILURES))
def test_a_worker_that_ends_or_hangs_is_replaced_without_effect_on_the_loop(lasting: Run, failure: str) -> None:
    strike, reason = FAILURES[failure]

    async def watch(user: Panel) -> None:
        await be_running(lasting, user)
        before = await user.see("state", start=len(user.seen))
        lasting.server.note_children()
        number, start = len(lasting.io.journal()), len(user.seen)
        strike(lasting)
        ended = await user.see("event", lambda event: "device io: its I/O process ended" in event["text"], start)
        assert reason in ended["text"]
        assert ended["kind"] == "warning"
        await sees_trip(user, start, BY_AGE, BY_CONFIRMATION)  # the loop goes on, and knows of it
        lasting.io.condition = probe.WORKS
        back = await user.see("event", lambda event: event["text"] == "device io: its I/O process runs again", start)
        assert back["kind"] == "info"
        done = actions(lasting.io, number)
        if failure not in ("killed", "stopped", "hanging driver", "driver that crashes"):
            assert done[:2] == ["safe", "close"], "whatever ends a worker that can still act, safe values come first"
        assert done[done.index("open") + 1] == "safe", "the first that a new worker writes"
        await recovers(lasting, user)
        state = await user.see("state", start=len(user.seen))
        assert state["devices"]["io"]["restarts"] > before["devices"]["io"]["restarts"]
        assert not any("device io" in text for text in state["warnings"])
        missed, ticks = (state[key] - before[key] for key in ("missed_ticks", "tick"))
        assert missed < ticks / 2

    talk(lasting.server, watch)


@pytest.mark.parametrize(("name", "limit"), [("io", "p_T.age"), ("card", "p_A.age")])
def test_a_device_is_unplugged_and_plugged_in_again(lasting: Run, name: str, limit: str) -> None:
    device = getattr(lasting, name)

    async def watch(user: Panel) -> None:
        await be_running(lasting, user)
        counted = (await user.see("state", start=len(user.seen)))["devices"][name]["errors"].get("unplugged", 0)
        start = len(user.seen)
        device.condition = probe.UNPLUGGED
        await sees_trip(user, start, BY_AGE)  # (failures are events only after 10 s without any: see DeviceReports)
        state = await user.see(
            "state", lambda state: state["devices"][name]["errors"].get("unplugged", 0) > counted, start
        )
        assert state["devices"][name]["last_error"] == f"device {name}: it is unplugged."
        telemetry = await user.see("telemetry", start=len(user.seen))
        assert (telemetry["channels"][f"device.{name}.errors"][0] or 0) > 0
        refused = await user.command("reset")
        assert "limit" in refused["reason"]
        restarts = state["devices"][name]["restarts"]
        device.condition = probe.WORKS
        await recovers(lasting, user)
        state = await user.see("state", start=len(user.seen))
        assert state["devices"][name]["restarts"] == restarts
        tripped_in_time(await until(lambda: lasting.server.logged(state["tick"])), name, limit)

    talk(lasting.server, watch)


def tripped_in_time(columns: dict[str, Any], device: str, limit: str) -> None:
    """The last fault of the log came in the tick in which the last sample had passed max_age."""
    channel = limit.removesuffix(".age")
    tripped = np.flatnonzero(np.diff((columns["mode"] == Mode.FAULT).astype(int)) == 1)[-1] + 1
    stale = columns[f"stale.{channel}"]
    assert stale[tripped] > MAX_AGE
    assert stale[tripped - 1] <= MAX_AGE + 1e-9
    assert columns[f"errors.{device}"][tripped] > 0


async def paused(run: Run, process: str, seconds: float) -> None:
    run.server.kill(process, number=signal.SIGSTOP)
    await asyncio.sleep(seconds)
    run.server.kill(process, number=signal.SIGCONT)


FAULTS: dict[str, Callable[[Run, Panel], Awaitable[Any]]] = {
    "tripped by the operator": lambda _, user: user.do("trip"),
    ".age was violated": lambda run, _: asyncio.to_thread(be, run.card, probe.UNPLUGGED),
    "more ticks in a row were missed": lambda run, _: paused(run, "loop", 1.4),  # 700 ticks
    "the supervisor's heartbeat stopped": lambda run, _: paused(run, "supervisor", 3.5),  # ends itself after 4.5 s
}
EARLIER = {"more ticks in a row were missed": (BY_CONFIRMATION,)}
"""What may come first if the machine is busy when the loop goes on: a device's process has stood still, too."""


def test_the_heartbeat_output_stops_within_two_ticks_of_a_fault(lasting: Run) -> None:
    """On the rig's output: it changes in every tick until the fault, and not once from there to the reset."""

    async def watch(user: Panel) -> None:
        for text, strike in FAULTS.items():
            await be_running(lasting, user)
            await asyncio.sleep(0.2)  # 100 ticks
            start = len(user.seen)
            await strike(lasting, user)
            fault = await user.see("event", lambda event: event["kind"] == "fault", start)
            assert any(cause in fault["text"] for cause in (text, *EARLIER.get(text, ()))), fault
            pulse = lasting.card.output("v")
            for _ in range(50):
                await asyncio.sleep(0.002)
                assert lasting.card.output("v") == pulse
            lasting.card.condition = probe.WORKS
            await recovers(lasting, user)
            columns = await until(functools.partial(lasting.server.logged, fault["tick"] + 100))
            row = np.flatnonzero(columns["tick"] == fault["tick"])[0]
            pulses, faulted = columns["output.pulse"], columns["mode"] == Mode.FAULT
            assert faulted[row]
            assert not faulted[row - 1]
            assert set(np.abs(np.diff(pulses[row - 50 : row]))) == {1.0}
            after = pulses[row:][faulted[row:].cumprod() > 0]
            assert len(after) > 50
            assert set(after) == {0.0}  # in the very tick

    talk(lasting.server, watch)


def test_only_the_defect_has_a_traceback(lasting: Run) -> None:
    said = lasting.server.stderr
    assert said.count("Traceback") == said.count("\nZeroDivisionError: a defect\n")


def test_a_heartbeat_on_a_slow_device_is_no_faster_than_the_device_sees(tmp_path: Path, monkeypatch: Any) -> None:
    """Written 200 times per second, it changes 100 times: every 5 ticks of 500 per second."""
    for path in (run := Run(tmp_path)).path:
        monkeypatch.syspath_prepend(path)
    text = run.server.rig.read_text().replace('on = "armed"', 'on = "heartbeat"')
    run.server.rig.write_text(text)
    assert load_rig(run.server.rig).plan.output["toggle_ticks"].tolist() == [5.0, 1.0]


# ---------------------------------------------------------------------------------------------------------------------
# what ends it


def in_motion(run: Run) -> None:
    async def move(user: Panel) -> None:
        await be_running(run, user)

    talk(run.server, move)
    run.server.note_children()


def test_an_orderly_end_leaves_safe_values(run: Run) -> None:
    in_motion(run)
    run.server.kill("supervisor", number=signal.SIGTERM)
    assert run.server.wait_exit() == 0
    assert run.server.leaves() == []
    assert_safe(run)
    assert actions(run.io) == ["open", "safe", "write", "write", "write", "safe", "close"]
    assert actions(run.card)[-2:] == ["safe", "close"]


@pytest.mark.parametrize("failure", ["killed", "hangs", "defect", "gives up"])
def test_a_loop_that_dies_leaves_safe_values(run: Run, failure: str) -> None:
    in_motion(run)
    if failure == "killed":
        run.server.kill("loop")
    else:
        run.card.condition = {"hangs": probe.HANGS, "defect": probe.IS_DEFECT, "gives up": probe.GIVES_UP}[failure]
    if failure == "gives up":  # a fault; the loop goes on without it
        eventually(lambda: run.card.output("u") == 0.0)
        run.server.kill("supervisor", number=signal.SIGTERM)
    elif failure == "hangs":
        eventually(lambda: "has not ticked for" in run.server.stderr)
        run.card.condition = probe.WORKS
    assert run.server.wait_exit() == (0 if failure == "gives up" else 1)
    assert_safe(run)
    assert run.server.leaves() == []


def test_an_end_without_the_safe_values_of_a_fast_device_is_a_failure(run: Run) -> None:
    in_motion(run)
    run.card.condition = probe.UNPLUGGED
    run.server.kill("supervisor", number=signal.SIGTERM)
    assert run.server.wait_exit() == 1
    assert "device card could not be set to its safe values" in run.server.stderr
    assert "Switch the hydraulic supply off at the machine" in run.server.stderr
    assert has_safe_values(run.io, "u")


def test_without_loop_and_supervisor_the_worker_makes_its_device_safe_and_ends(run: Run) -> None:
    in_motion(run)
    run.server.kill("supervisor", "loop")
    eventually(lambda: has_safe_values(run.io, "u"))
    eventually(lambda: not run.server.alive())
    assert actions(run.io)[-1] == "close"
    assert run.card.output("u") != probe.SAFE["u"], "nobody is left for a device without a watchdog"


def test_without_its_supervisor_everything_is_made_safe_and_a_new_one_takes_over(run: Run) -> None:
    in_motion(run)
    run.server.kill("supervisor")
    again = Server(run.server.folder, run.server.name, text=run.server.rig.read_text(), path=run.path)
    with again:
        eventually(lambda: not run.server.alive() - {"broker"})
        workers = [line.split()[1] for line in run.io.journal() if line.startswith(("open", "close"))]
        assert len(set(workers[:2])) == 1, "the new worker opened the device before the old one had closed it"
        again.kill("supervisor", number=signal.SIGTERM)
        assert again.wait_exit() == 0
    assert_safe(run)


def test_a_hanging_worker_of_a_killed_run_is_killed_by_the_next(run: Run) -> None:
    in_motion(run)
    run.server.kill("worker", number=signal.SIGSTOP)
    run.server.kill("supervisor", "loop")
    again = Server(run.server.folder, run.server.name, text=run.server.rig.read_text(), path=run.path)
    with again:
        eventually(lambda: not run.server.alive() - {"broker", "recorder"})
        assert actions(run.io)[actions(run.io).index("open", 1) :][:2] == ["open", "safe"]
        again.kill("supervisor", number=signal.SIGTERM)
        assert again.wait_exit() == 0
    assert_safe(run)


def test_a_dead_worker_and_a_dead_loop_at_once(run: Run) -> None:
    """The supervisor starts another worker for the safe values alone."""
    in_motion(run)
    run.server.kill("worker", "loop")
    assert run.server.wait_exit() == 1
    assert_safe(run)
    assert run.server.leaves() == []


def test_a_start_without_its_slow_device_is_refused(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.io.condition = probe.UNPLUGGED
    run.server.launch()
    try:
        assert run.server.wait_exit(60) == 2
        assert run.server.stderr.splitlines()[-1] == "device io: it is unplugged."
    finally:
        run.server.close()
    assert actions(run.io) == []
    assert actions(run.card)[-2:] in ([], ["safe", "close"])
    assert run.server.leaves() == []


def test_a_worker_gives_a_sign_of_life_between_writing_and_reading(tmp_path: Path) -> None:
    """A device that answers neither takes the time of both, and its worker must not count as hanging."""
    beats: dict[str, int] = {}

    class Device(probe.SlowProbe):
        def write(self, values: Floats) -> None:
            beats["write"] = memory.heartbeat.beats

        def read(self, values: Floats, ages: Floats) -> None:
            if "write" in beats and "read" not in beats:
                beats["read"] = memory.heartbeat.beats
                worker.stop()

    config = probe.SlowProbe.Config(file=str(tmp_path / "device"), watchdog="60 s")
    device = Device("io", config, ["a"], ["u"])
    memory = WorkerMemory.create(tmp_path / "segment", 1, 1)
    worker = Worker(device, memory, os.getppid())
    memory.commands.publish(np.array([time.monotonic(), WRITE, 0.0]))
    device.open()
    worker._serve()
    memory.close()
    assert beats["read"] == beats["write"] + 1
