"""A run that is not recorded is noticed: a recorder that hangs, a log that is deleted, a disk that is unmounted."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from service_harness import Panel, Server, read_log, talk

from hilserver.protocol.commands import Arm, Command, Disarm, Start, Stop, Trip
from hilserver.protocol.published import Answer
from hilserver.realtime.rig_setup import RING_BYTES, loop_memory_shape
from hilserver.record.format import LogHeader, RecordError
from hilserver.record.writer import LogWriter
from hilserver.rig.build import load_rig
from hilserver.rig.plan import first_row
from hilserver.rig.recording_settings import RecordingSettings
from hilserver.rig.rig import Rig
from hilserver.service import recording_watch
from hilserver.service.recording import RecorderProcess, _Written
from hilserver.service.recording_watch import RecordingWatch
from hilserver.service.telemetry import TelemetryReader
from hilserver.tick.codes import Mode
from hilserver.tick.columns import is_whole
from hilserver.tick.row import header


@functools.cache
def demo() -> Rig:
    return load_rig(Path(__file__).parents[2] / "config" / "rigs" / "demo.toml")


# --- the writer -------------------------------------------------------------------------------------------------------


def writer(path: Path) -> LogWriter:
    about = LogHeader(software="test", rig="lab", started="now", period_s=1e-3, columns=("tick",))
    log = LogWriter(path, about, batch_rows=1)
    log.append(np.zeros((1, 1)))
    return log


def delete(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    """Another file with the same contents: a look at its name and size would not tell."""
    content = path.read_bytes()
    path.rename(path.with_suffix(".old"))
    path.write_bytes(content)


def move_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


def mount_over(path: Path) -> None:
    """Another folder in the place of its own, as when a disk is mounted there or unmounted."""
    move_folder(path)
    path.parent.mkdir()


@pytest.mark.parametrize("happens", [delete, replace, move_folder, mount_over])
def test_a_log_that_is_no_longer_in_its_place_is_noticed(tmp_path: Path, happens: Callable[[Path], None]) -> None:
    path = tmp_path / "logs" / "run.arrow"
    path.parent.mkdir()
    with writer(path) as log:
        log.require_in_place()
        happens(path)
        with pytest.raises(RecordError, match=r"run\.arrow: is gone: it was deleted, moved or replaced while"):
            log.require_in_place()


def test_the_next_file_of_a_run_is_watched_too(tmp_path: Path) -> None:
    about = LogHeader(software="test", rig="lab", started="now", period_s=1e-3, columns=("tick",))
    with LogWriter(tmp_path / "run.arrow", about, batch_rows=1, max_rows=2) as log:
        log.append(np.zeros((3, 1)))
        (tmp_path / "run.arrow").unlink()  # an older file, as retention removes it
        log.require_in_place()
        (tmp_path / "run.001.arrow").unlink()
        with pytest.raises(RecordError, match=r"run\.001\.arrow: is gone"):
            log.require_in_place()


def test_a_file_that_is_gone_is_noticed_before_the_next_one_is_begun(tmp_path: Path) -> None:
    """Else a recorder that catches up would begin it before it looks, and nobody would miss the rows."""
    about = LogHeader(software="test", rig="lab", started="now", period_s=1e-3, columns=("tick",))
    with LogWriter(tmp_path / "run.arrow", about, batch_rows=1, max_rows=2) as log:
        log.append(np.zeros((1, 1)))
        (tmp_path / "run.arrow").unlink()
        with pytest.raises(RecordError, match=r"run\.arrow: is gone"):
            log.append(np.zeros((2, 1)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("happens", [move_folder, mount_over])
def test_a_disk_that_is_unmounted_between_two_files_is_noticed(tmp_path: Path, happens: Callable[[Path], None]) -> None:
    """Else the run would go on in the folder that was under it, as the second part of something that is not there."""
    about = LogHeader(software="test", rig="lab", started="now", period_s=1e-3, columns=("tick",))
    path = tmp_path / "logs" / "run.arrow"
    path.parent.mkdir()
    with LogWriter(path, about, batch_rows=1, max_rows=1) as log:
        log.append(np.zeros((1, 1)))
        happens(path)
        with pytest.raises(RecordError, match=r"run\.arrow: is gone"):
            log.append(np.zeros((1, 1)))
    assert not list(tmp_path.glob("logs/run.001.arrow"))


# --- the ring ---------------------------------------------------------------------------------------------------------


def test_the_ring_has_the_configured_length(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(**changes: Any) -> int:
        recording = demo().settings.recording.model_copy(update=changes)
        settings = demo().settings.model_copy(update={"recording": recording})
        rig = SimpleNamespace(settings=settings, layout=demo().layout, clock_rate=demo().clock_rate)
        return loop_memory_shape(cast("Any", rig))["ring_rows"]

    assert rows() == 20.0 * demo().settings.loop.rate
    assert rows(buffer=60.0) == 60.0 * demo().settings.loop.rate
    monkeypatch.setattr("hilserver.realtime.rig_setup.RING_BYTES", RING_BYTES / 10)
    assert rows() == pytest.approx(RING_BYTES / 10 / (8 * demo().layout.width), abs=1)


def test_files_that_a_killed_recorder_has_begun_without_a_report_count(tmp_path: Path) -> None:
    """Reported was the first of three; the rows of the others are not lost, and those of another run are not ours."""
    columns = demo().layout.names
    about = LogHeader(
        software="test",
        rig="lab",
        started="now",
        period_s=1e-3,
        columns=columns,
        whole=tuple(filter(is_whole, columns)),
    )
    row = first_row(demo().layout, demo().plan, demo().packed)
    for name in ("run", "other"):
        with LogWriter(tmp_path / f"{name}.arrow", about, batch_rows=10, max_rows=100) as log:
            for tick in range(250 if name == "run" else 990):
                header(row).tick = tick
                log.append(row[np.newaxis])
    memory = cast("Any", SimpleNamespace(ring=SimpleNamespace(capacity=1000), segment=None))
    telemetry = cast("Any", SimpleNamespace())
    recording = RecorderProcess(demo(), memory, tmp_path, "", cast("Any", None), telemetry)
    assert recording.last_tick == -1
    recording.log_file = tmp_path / "run.arrow"
    recording._files = [_Written(recording.log_file, 57)]
    recording._note_unreported()
    assert [file.path.name for file in recording._files] == ["run.arrow", "run.001.arrow", "run.002.arrow"]
    for file in recording._files[-2:]:
        file.read_last_tick()
    assert telemetry.recorded() == recording.last_tick == 249
    recording._note_unreported()
    assert len(recording._files) == 3, "each counts once"


@pytest.mark.parametrize("happens", [delete, replace, move_folder, mount_over])
def test_a_recorded_file_that_is_gone_or_replaced_counts_as_lost(
    tmp_path: Path, happens: Callable[[Path], None]
) -> None:
    memory = cast("Any", SimpleNamespace(ring=SimpleNamespace(capacity=1000), segment=None))
    recording = RecorderProcess(demo(), memory, tmp_path, "", cast("Any", None), cast("Any", SimpleNamespace()))
    path = tmp_path / "logs" / "run.arrow"
    path.parent.mkdir()
    recording._files = [_Written(path)]
    writer(path).close()
    recording._files[0].identify()
    recording._note_vanished()
    assert recording.vanished == []
    happens(path)
    recording._note_vanished()
    assert recording.vanished == [path]
    assert recording.last_tick == -1


def test_recordings_are_numbered_on_when_the_disk_changes(tmp_path: Path) -> None:
    """A recorder may be started under a disk that is mounted before it opens its file there."""
    memory = cast("Any", SimpleNamespace(ring=SimpleNamespace(capacity=1000), segment=None))
    recording = RecorderProcess(demo(), memory, tmp_path, "", cast("Any", None), cast("Any", SimpleNamespace()))
    disk, under_it = tmp_path / "disk", tmp_path / "logs"
    for folder, number in ((disk, 190), (under_it, 7)):
        folder.mkdir()
        about = LogHeader(software="", rig="demo", started="", period_s=1e-3, columns=("tick",), number=number)
        with LogWriter(folder / "2026-11-26T02-49-41_demo.arrow", about, batch_rows=1) as log:
            log.append(np.zeros((1, 1)))
    for folder, expected in ((disk, 191), (under_it, 192), (disk, 193)):
        recording._number = recording._next_number(folder)
        assert recording._number == expected


# --- the rules, without a server --------------------------------------------------------------------------------------


class Watched:
    """A watch over a loop and a recording of which the test says how far they are."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.row = first_row(demo().layout, demo().plan, demo().packed)
        self.recorded, self.now = 0, 0.0
        self.done: list[Command] = []
        self.told: list[tuple[str | None, str]] = []
        telemetry = cast("TelemetryReader", SimpleNamespace(latest=lambda: self.row, trip_reason=""))
        self.watch = RecordingWatch(
            RecordingSettings(**settings), telemetry, lambda: self.recorded, self.execute, lambda _: None
        )
        self.telemetry = telemetry
        monkeypatch.setattr("hilserver.service.silence.time.monotonic", lambda: self.now)
        self._monkeypatch = monkeypatch

    async def execute(self, command: Command) -> Answer:
        self.done.append(command)
        return command.answer(time=0.0)

    def tell(self, source: str, trouble: str | None, text: str, *, warn: bool = False) -> None:
        assert (source, warn) == (recording_watch.SOURCE, False)
        self.told.append((trouble, text))

    def run(self, seconds: float, mode: Mode, *, is_recorded: bool) -> None:
        """So many seconds of the loop at 1 kHz."""

        class Over(Exception):
            pass

        end = self.now + seconds

        async def sleep(step: float) -> None:
            if self.now >= end:
                raise Over
            self.now += step
            header(self.row).mode = mode
            header(self.row).tick += round(1000 * step)
            if is_recorded:
                self.recorded = int(header(self.row).tick)

        with self._monkeypatch.context() as patch:
            patch.setattr(recording_watch, "asyncio", SimpleNamespace(sleep=sleep))
            with pytest.raises(Over):
                asyncio.run(self.watch.keep(self.tell))


def test_running_but_not_recorded_is_reported_until_it_is_recorded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Watched(monkeypatch)
    rig.run(10.0, Mode.RUNNING, is_recorded=True)
    rig.run(2.9, Mode.RUNNING, is_recorded=False)
    assert rig.told == []
    rig.run(10.0, Mode.RUNNING, is_recorded=False)
    ((trouble, _),) = rig.told
    assert trouble == "RUNNING but not recorded: no row has reached the log for more than 3 s"
    assert rig.watch.refusal(Arm()) is None
    rig.run(1.0, Mode.RUNNING, is_recorded=True)
    assert rig.told[1:] == [(None, "the rows of the loop arrive in the log again")]
    assert rig.done == []


@pytest.mark.parametrize(("action", "command"), [("ramp", Disarm), ("trip", Trip)])
def test_the_configured_action_is_carried_out_once_and_arming_is_refused(
    monkeypatch: pytest.MonkeyPatch, action: str, command: type[Command]
) -> None:
    rig = Watched(monkeypatch, action=action)
    rig.run(10.0, Mode.SAFE, is_recorded=False)
    assert rig.done == []
    assert "only while it is recorded" in (rig.watch.refusal(Arm()) or "")
    assert rig.watch.refusal(Start()) is not None
    assert rig.watch.refusal(Stop()) is None
    rig.run(5.0, Mode.RUNNING, is_recorded=True)
    assert rig.watch.refusal(Arm()) is None
    rig.run(10.0, Mode.RUNNING, is_recorded=False)
    assert [type(done) for done in rig.done] == [command]
    assert rig.telemetry.trip_reason.startswith("not recorded") == (action == "trip")


def test_a_loop_without_ticks_has_nothing_to_record(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Watched(monkeypatch)
    rig.run(1.0, Mode.RUNNING, is_recorded=True)
    tick = header(rig.row).tick
    for _ in range(100):
        rig.run(0.05, Mode.RUNNING, is_recorded=True)
        header(rig.row).tick, rig.recorded = tick, int(tick)
    assert rig.told == []


# --- a real server ----------------------------------------------------------------------------------------------------


def served(folder: Path, **settings: str) -> Server:
    lines = {"lost_after": "2 s", "buffer": "12 s", **settings}
    text = "\n".join(["[recording]", *(f'{key} = "{value}"' for key, value in lines.items())])
    return Server(folder, changes={"[recording]": text})


def assert_ticks_are_complete(logs: list[Path]) -> None:
    """From the first tick on, without one that is neither in a log nor counted as missed."""
    ticks: dict[float, float] = {}
    for table in map(read_log, logs):
        ticks |= dict(zip(table.columns["tick"], table.columns["missed"], strict=True))
    tick, missed = np.array(sorted(ticks.items())).T
    np.testing.assert_array_equal(np.diff(tick, prepend=-1.0), missed + 1)


@pytest.mark.realtime
def test_a_recorder_that_hangs_is_reported_and_replaced_before_a_row_is_lost(tmp_path: Path) -> None:
    async def work(user: Panel) -> None:
        await user.run_cycle()
        await user.see("state", lambda state: bool(state["recording"]["rows"]))
        server.kill("recorder", number=signal.SIGSTOP)
        for _ in range(100):
            await user.do("set_input", input="joystick", value=0.1)
        state = await user.see("state", lambda state: "no row has reached the log" in str(state["warnings"]))
        assert state["mode"] == "RUNNING"
        assert 0.0 < state["recording"]["buffer_left"] < 12.0 - 2.0, "the state says for how long there is room"
        start = len(user.seen)
        await user.see("event", lambda event: "was killed" in event["text"])
        await user.see("event", lambda event: "recording resumed" in event["text"], start)
        await user.see("event", lambda event: "arrive in the log again" in event["text"], start)
        state = await user.see("state", start=len(user.seen))
        assert (state["recording"]["lost"], state["recording"]["gap"]) == (0, 0)
        await user.see("state", lambda state: state["recording"]["buffer_left"] > 9.0, len(user.seen))
        await user.do("stop")

    with served(tmp_path) as server:
        talk(server, work)
        server.kill("supervisor", number=signal.SIGTERM)
        assert server.wait_exit() == 0
        assert len(server.logs) == 2
        assert_ticks_are_complete(server.logs)
        events = [event for log in server.logs for _, event in read_log(log).events]
        assert [event for event in events if event["kind"] == "lost"] == [], "commands are in the logs, too"


@pytest.mark.realtime
def test_a_deleted_log_is_reported_replaced_from_the_ring_and_makes_the_run_fail(tmp_path: Path) -> None:
    async def work(user: Panel) -> None:
        await user.run_cycle()
        await user.see("state", lambda state: bool(state["recording"]["rows"]))
        deleted.append(server.logs[0])
        deleted[0].unlink()
        event = await user.see("event", lambda event: "is gone" in event["text"])
        assert event["kind"] == "warning"
        await user.see("event", lambda event: "recording resumed" in event["text"])
        state = await user.see("state", lambda state: bool(state["recording"]["rows"]), len(user.seen))
        assert (state["mode"], state["recording"]["gap"]) == ("RUNNING", 0)
        await user.do("stop")

    deleted: list[Path] = []
    with served(tmp_path, buffer="120 s") as server:
        talk(server, work)
        server.kill("supervisor", number=signal.SIGTERM)
        assert server.wait_exit() == 1
        assert f"{os.path.normpath(deleted[0])} no longer exists, and all rows in it are lost" in server.stderr
        assert_ticks_are_complete(server.logs)


@pytest.mark.realtime
def test_a_rig_that_requires_its_recording_is_stopped_without_it(tmp_path: Path) -> None:
    async def work(user: Panel) -> None:
        await user.run_cycle()
        await user.see("state", lambda state: state["mode"] == "RUNNING")
        server.kill("recorder", number=signal.SIGSTOP)
        await user.see("event", lambda event: "ramped to null, SAFE" in event["text"])
        await user.see("state", lambda state: state["mode"] == "SAFE", len(user.seen))
        answer = await user.command("arm")
        assert "only while it is recorded" in answer["reason"]
        server.kill("recorder", number=signal.SIGCONT)
        start = len(user.seen)
        await user.see("event", lambda event: "arrive in the log again" in event["text"], start)
        await user.do("arm")

    with served(tmp_path, action="ramp", buffer="600 s") as server:
        talk(server, work)
