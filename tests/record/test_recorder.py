"""The recorder, with and without a server: what it lost, a full disk, old files."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_system import FakeSystem, needs_compiler
from log_bench import make_files
from service_bench import assert_no_gap
from service_harness import Panel, Server, rig_text, talk

from hilserver.realtime.shared import LoopMemory
from hilserver.record.cuts import CutTrigger
from hilserver.record.folder import files_of
from hilserver.record.format import RecordError
from hilserver.record.reader import LogReader
from hilserver.record.recorder import CIRCUIT_VERSION, FLUSH_EVERY, PREVIOUS_TICK, LogRecorder
from hilserver.record.repair import check_log
from hilserver.record.run import run_header
from hilserver.record.writer import LogWriter
from hilserver.rig.build import load_rig
from hilserver.rig.plan import first_row
from hilserver.rig.rig import Rig
from hilserver.tick.row import header as row_header


@pytest.fixture(scope="module")
def rig() -> Rig:
    return load_rig(Path(__file__).parents[2] / "config" / "rigs" / "demo.toml")


class Ring:
    """Publishes rows as the loop does, and a recorder that has one second to flush in each step."""

    def __init__(self, rig: Rig, folder: Path) -> None:
        self.memory = LoopMemory.create(folder / "segment", row_width=rig.layout.width, ring_rows=1000)
        self.rig, self.folder, self.tick = rig, folder, 0
        self.row = first_row(rig.layout, rig.plan, rig.packed)
        row_header(self.row).circuit_version = 1

    def run(self, ticks: int) -> None:
        for _ in range(ticks):
            row_header(self.row).tick = self.tick
            self.memory.ring.publish(self.row)
            self.tick += 1

    def recorder(
        self, name: str, previous_tick: int | None = None, min_free: int = 0, triggers: Sequence[CutTrigger] = ()
    ) -> tuple[LogRecorder, list[Any]]:
        told: list[Any] = []
        header = run_header(self.rig, "program", "real time")
        extra = {**header.extra, CIRCUIT_VERSION: 1, PREVIOUS_TICK: previous_tick}
        writer = LogWriter(self.folder / name, header.model_copy(update={"extra": extra}), max_rows=300)
        return LogRecorder(self.memory, writer, min_free, told.append, triggers), told


def step(recorder: LogRecorder) -> None:
    """A step with the flush that is due once a second."""
    recorder._flushed -= 2 * FLUSH_EVERY
    recorder.step()


def test_a_recorder_reports_its_state_and_the_rows_it_lost(rig: Rig, tmp_path: Path) -> None:
    ring = Ring(rig, tmp_path)
    log, told = ring.recorder("a.arrow")
    step(log)
    assert told == [], "there is nothing to tell before the first row"
    ring.run(250)
    step(log)
    written = (tmp_path / "a.arrow").stat().st_size
    ring.run(1500)
    step(log)
    log._writer.close()
    kept = 250 + 999
    assert [(t["rows"], t["tick"], t["lost"], t["gap"]) for t in told] == [(250, 249, 0, 0), (kept, 1749, 501, 0)]
    assert [t["file"] for t in told] == [str(tmp_path / "a.arrow"), str(LogReader(tmp_path / "a.arrow").parts[-1])]
    assert Path(told[1]["file"]).name == "a.003.arrow"
    assert told[0]["bytes"] == written > 0
    assert told[0]["free"] > 0
    table = LogReader(tmp_path / "a.arrow").read_all()
    assert len(table.columns["tick"]) == kept
    assert [(row, event) for row, event in table.events if event["kind"] == "lost"] == [
        (250, {"kind": "lost", "rows": 501})
    ]


def test_a_recorder_that_follows_another_one_names_the_ticks_between_them(rig: Rig, tmp_path: Path) -> None:
    ring = Ring(rig, tmp_path)
    ring.run(2500)
    for name, previous, gap in (("a.arrow", 1000, 500), ("b.arrow", 1600, 0), ("c.arrow", None, 0)):
        log, told = ring.recorder(name, previous)
        step(log)
        log._writer.close()
        assert told[-1]["gap"] == gap
        events = [(row, event["rows"]) for row, event in LogReader(tmp_path / name).read_all().events]
        assert events == ([(0, gap)] if gap else [])


def test_a_log_ends_whole_before_the_disk_is_full(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = [600e6]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=int(free[0])))
    ring = Ring(rig, tmp_path)
    log, told = ring.recorder("a.arrow", min_free=500_000_000)
    ring.run(100)
    step(log)
    free[0] = 499e6
    ring.run(50)
    with pytest.raises(
        RecordError, match=r"a\.arrow: ends here: only 499 MB are free on its disk; 500 MB must stay free"
    ):
        step(log)
    assert told[-1]["tick"] == 149
    assert told[-1]["free"] == 499e6
    assert check_log(tmp_path / "a.arrow").ok
    assert not LogReader(tmp_path / "a.arrow").read_all().torn


def test_cuts_end_before_the_log_does(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the disk is nearly full, and where the rows wait to be written; but not because a recorder begins late."""
    free = [1000e6]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=int(free[0])))
    ring = Ring(rig, tmp_path)
    ring.run(1500)
    log, told = ring.recorder("a.arrow", min_free=500_000_000, triggers=[CutTrigger("a", "", 0, 0, event="limit")])
    step(log)
    assert told[-1]["cut_trouble"] == ""
    for now, trouble in ((700e6, "700 MB are free on its disk; 750 MB must stay free (for the log)"), (800e6, "")):
        free[0] = now
        for _ in range(2):
            ring.run(10)
            step(log)
        assert trouble in told[-1]["cut_trouble"]
        assert bool(trouble) == bool(told[-1]["cut_trouble"])
    log._rows = log._rows[:100]
    ring.run(900)
    step(log)
    assert told[-1]["cut_trouble"].endswith("too slow, and the log comes first")
    for _ in range(9):
        step(log)
    assert (told[-1]["cut_trouble"], told[-1]["lost"]) == ("", 0)
    log._writer.close()


RECORDING = """
max_duration = "500 ms"
min_free_megabytes = 100
buffer = "5 s"
keep = {keep}
"""


def recording_server(folder: Path, keep: str, fake: FakeSystem | None = None) -> Server:
    text = rig_text("{name}", folder, {"rate =": 'rate = "500 Hz"\nheartbeat_timeout = "2.5 s"'})
    return Server(
        folder, text=text + RECORDING.format(keep=keep), environment=fake.environment if fake is not None else None
    )


@pytest.mark.realtime
def test_a_server_rotates_its_log_files_while_running(tmp_path: Path) -> None:
    """Four old recordings of this rig and one of another; five files are kept. The old ones were begun with a clock
    that was years ahead: their names say that they are the newest."""
    server = recording_server(tmp_path, "{ files = 5, running = false }")
    (tmp_path / "logs").mkdir()
    old = [f"2040-01-0{day}T00-00-00_{server.name}.arrow" for day in (1, 2, 3, 4)]
    make_files(tmp_path / "logs", " ".join([*old, "2040-01-01T00-00-00_other.arrow"]))
    started: list[str] = []

    async def watch(user: Panel) -> None:
        await user.run_cycle()
        state = await user.see("state", lambda state: (state["recording"] or {}).get("rows", 0) > 3000)
        recording = state["recording"]
        assert Path(recording["file"]).name.count(".") == 2, "a later part"
        assert (recording["lost"], recording["gap"]) == (0, 0)
        assert recording["free_megabytes"] > 100
        event = await user.see("event", lambda event: "old recordings removed" in event["text"])
        assert event["kind"] == "info"
        assert old[0] in str(user.seen)
        started.append(Path(recording["file"]).name)

    with server:
        talk(server, watch)
        server.kill("supervisor", number=signal.SIGTERM)
        assert server.wait_exit() == 0
    names = [file.path.name for file in files_of(tmp_path / "logs", server.name)]
    assert 5 <= len(names) <= 6, "the last file may have been begun after the last look"
    assert not set(old) & set(names)
    assert (tmp_path / "logs" / "2040-01-01T00-00-00_other.arrow").exists()
    table = LogReader(tmp_path / "logs" / names[0]).read_all()
    assert not table.torn
    assert_no_gap(table)
    assert len(table.columns["tick"]) > 1000


@pytest.mark.realtime
@needs_compiler
def test_a_full_disk_stops_the_recording_visibly_and_not_the_loop(tmp_path: Path) -> None:
    fake = FakeSystem(tmp_path)
    fake.set(free_bytes=50e6)
    server = recording_server(tmp_path, "{ age = '100 d' }", fake)

    async def watch(user: Panel) -> None:
        state = await user.see("state", lambda state: "not recorded" in str(state["warnings"]))
        assert "only 50 MB are free on its disk; 100 MB must stay free" in str(state["warnings"])
        assert state["recording"]["file"] is None
        await user.run_cycle()
        fake.set(free_bytes=1e9)
        await user.see("event", lambda event: "recording resumed" in event["text"])
        await user.see("state", lambda state: bool(state["recording"]["file"]) and state["warnings"] == [])
        start = len(user.seen)
        fake.set(free_bytes=99e6)
        event = await user.see("event", lambda event: "ends here" in event["text"], start)
        assert event["kind"] == "warning"
        assert "only 99 MB are free" in event["text"]
        await user.see("state", lambda state: state["recording"]["file"] is None, start)
        fake.set(free_bytes=109e6)
        await asyncio.sleep(2.5)
        assert user.all("state")[-1]["recording"]["file"] is None, "a little more room is not enough"
        assert user.all("state")[-1]["mode"] == "RUNNING"
        await asyncio.sleep(5.0)  # the ring has no room for more
        fake.set(free_bytes=111e6)
        await user.see("event", lambda event: "are in no log" in event["text"], start)
        assert user.all("state")[-1]["mode"] == "RUNNING"
        await user.do("stop")

    with server:
        talk(server, watch)
        server.kill("supervisor", number=signal.SIGTERM)
        assert server.wait_exit() == 0
        assert "Traceback" not in server.stderr
    first, second = (LogReader(path) for path in server.logs if path.name.count(".") == 1)
    before, after = first.read_all(), second.read_all()
    assert not before.torn
    assert second.header.previous == first.parts[-1].name
    for table in (before, after):
        assert_no_gap(table)
    gap = after.columns["tick"][0] - before.columns["tick"][-1] - 1
    assert gap > 0
    assert after.events[0] == (0, {"kind": "lost", "rows": gap - after.columns["missed"][0]})
