"""Recordings over the years: in parts, damaged and repaired, listed, removed when they are many."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_system import FakeSystem, needs_compiler
from numpy.typing import NDArray
from service_harness import Panel, Server, panel, rig_text
from typer.testing import CliRunner

from hilserver.cli import app
from hilserver.realtime.shared import LoopMemory
from hilserver.record.folder import files_of, new_log, recordings, superfluous
from hilserver.record.format import LogHeader, RecordError, circuit_event
from hilserver.record.reader import LogReader, last_batch, read_header
from hilserver.record.recorder import CIRCUIT_VERSION, FLUSH_EVERY, PREVIOUS_TICK, LogRecorder
from hilserver.record.repair import check_log, repair_log
from hilserver.record.run import run_header
from hilserver.record.writer import LogWriter, is_being_written
from hilserver.rig.build import Rig, load_rig
from hilserver.rig.plan import first_row
from hilserver.rig.settings import KeepSettings
from hilserver.service.supervisor import RING_SECONDS
from hilserver.tick.row import header as row_header

Rows = NDArray[np.float64]


def header(**changes: Any) -> LogHeader:
    values: dict[str, Any] = {
        "software": "hilserver 0.1.0",
        "rig": "lab",
        "started": "2026-11-20T10:12:00+00:00",
        "period_s": 1e-3,
        "columns": ("tick", "time", "raw.p_A"),
        "circuit_names": ("supply.p", "main.x"),
    }
    return LogHeader(**(values | changes))


def some_rows(count: int, width: int = 5) -> Rows:
    rows = np.random.default_rng(1).normal(size=(count, width))
    rows[:, 0] = np.arange(count)
    return rows


def write_parts(path: Path, count: int = 200, rows_per_part: int = 50) -> Rows:
    """A run whose circuit changes in row 90 to one with three values."""
    rows = some_rows(count, 6)
    with LogWriter(path, header(), batch_rows=10, max_rows=rows_per_part) as writer:
        writer.append(rows, {90: [circuit_event(("a", "b", "c"), {"n": 3})]})
    return rows


def ticks(path: Path) -> Rows:
    return np.concatenate([batch.column("tick") for batch in LogReader(path).batches()])


def damage(path: Path, tick: float) -> int:
    """Change the batch that holds this tick; returns where it begins."""
    (batch,) = [batch for batch in LogReader(path, gaps=True).batches() if tick in batch.column("tick")]
    content = bytearray(path.read_bytes())
    at = content.index(batch.column("tick").tobytes())
    content[at + 3] ^= 1
    path.write_bytes(content)
    return at


# --- parts


def test_a_new_part_is_begun_after_so_many_rows_and_says_what_came_before(tmp_path: Path) -> None:
    rows = write_parts(tmp_path / "run.arrow")
    parts = LogReader(tmp_path / "run.arrow").parts
    assert [part.name for part in parts] == ["run.arrow", "run.001.arrow", "run.002.arrow", "run.003.arrow"]
    headers = [LogReader(part).header for part in parts]
    assert [h.part for h in headers] == [0, 1, 2, 3]
    assert [h.previous for h in headers] == ["", "run.arrow", "run.001.arrow", "run.002.arrow"]
    assert [h.first_row for h in headers] == [0, 50, 100, 150]
    assert [h.first_circuit for h in headers] == [0, 0, 1, 1]
    assert [h.circuit_names for h in headers] == [("supply.p", "main.x")] * 2 + [("a", "b", "c")] * 2
    np.testing.assert_array_equal(ticks(tmp_path / "run.arrow"), rows[:, 0])


def test_a_run_has_more_than_a_thousand_parts(tmp_path: Path) -> None:
    path = tmp_path / "run.arrow"
    with LogWriter(path, header(part=998, first_row=7, previous="run.997.arrow"), batch_rows=1, max_rows=1) as writer:
        writer.append(some_rows(4))
    assert [part.name for part in LogReader(path).parts[1:]] == ["run.999.arrow", "run.1000.arrow", "run.1001.arrow"]
    np.testing.assert_array_equal(ticks(path), np.arange(4.0))


def test_the_last_whole_batch_is_found_from_the_end(tmp_path: Path) -> None:
    path = tmp_path / "run.arrow"
    with LogWriter(path, header(), batch_rows=10) as writer:
        writer.append(some_rows(40))
    size, head = path.stat().st_size, 8 + int.from_bytes(path.read_bytes()[4:8], "little")
    for length, last in ((size, 39), (size - 8, 39), (size - 9, 29), (size - 200, 29), (head + 9, None), (head, None)):
        os.truncate(path, length)
        batch = last_batch(path)
        assert last == (None if batch is None else batch.column("tick")[-1].as_py())


def test_a_log_is_known_to_be_written_until_its_writer_ends(tmp_path: Path) -> None:
    path = tmp_path / "run.arrow"
    with LogWriter(path, header(), batch_rows=10) as writer:
        writer.append(some_rows(25))
        assert is_being_written(path)
        checked = check_log(path)
        assert (checked.rows, checked.torn, checked.being_written, checked.ok) == (20, True, True, True)
        with pytest.raises(RecordError, match="is still being written"):
            repair_log(path)
        with path.open("ab") as file:
            file.write(b"\xff\xff\xff\xff\x50\x00\x00\x00half of")
        assert check_log(path).ok, "half a batch is what a log that is being written may end with"
        os.truncate(path, writer.size)
    assert not is_being_written(path)
    assert check_log(path).ok


# --- check and repair


def test_a_repaired_log_holds_all_that_is_whole_and_says_what_is_lost(tmp_path: Path) -> None:
    """Damaged: a batch, the batch of a switch, the header of a part."""
    path = tmp_path / "run.arrow"
    rows = write_parts(path, 300)
    place = damage(path, 20)
    damage(tmp_path / "run.001.arrow", 90)
    third = tmp_path / "run.003.arrow"
    third.write_bytes(b"\0" * 200 + third.read_bytes()[200:])
    originals = {file: file.read_bytes() for file in tmp_path.iterdir()}
    assert not check_log(path).ok

    repaired = repair_log(path)
    assert repaired is not None
    assert {file: file.read_bytes() for file in originals} == originals
    assert repaired.files[0] == tmp_path / "run-repaired.arrow"
    lost = [*range(20, 30), *range(90, 100)]
    np.testing.assert_array_equal(ticks(repaired.files[0]), np.delete(rows[:, 0], lost))
    assert repaired.rows == 300 - len(lost)
    assert [(d.file.name, d.row, d.lost) for d in repaired.damages] == [
        ("run.arrow", 20, 10),
        ("run.001.arrow", 80, 10),
    ]
    assert 0 < place - repaired.damages[0].byte < 1000
    table = LogReader(repaired.files[0]).read_all()
    assert not table.torn
    assert check_log(repaired.files[0]).ok
    assert [(c.version.start, c.version.names) for c in table.circuits] == [
        (0, ("supply.p", "main.x")),
        (80, ("a", "b", "c")),
    ]
    np.testing.assert_array_equal(table.circuits[1].values, rows[100:, 3:])
    events = [(row, event["kind"], event.get("rows")) for row, event in table.events]
    assert events == [(20, "lost", 10), (80, "lost", 10), (80, "circuit", None)]
    told = table.header.extra["repaired"]
    assert told["from"] == "run.arrow"
    assert [(where["file"], where["lost"]) for where in told["missing"]] == [("run.arrow", 10), ("run.001.arrow", 10)]


def test_a_missing_part_is_a_gap_for_repair(tmp_path: Path) -> None:
    path = tmp_path / "run.arrow"
    rows = write_parts(path)
    (tmp_path / "run.002.arrow").unlink()
    with pytest.raises(RecordError, match=r"run\.002\.arrow: is missing.*hilserver log repair"):
        LogReader(path)
    repaired = repair_log(path, tmp_path / "new.arrow")
    assert repaired is not None
    np.testing.assert_array_equal(ticks(tmp_path / "new.arrow"), np.delete(rows[:, 0], slice(100, 150)))
    assert [str(d) for d in repaired.damages] == [
        "run.003.arrow, byte 0: the previous file ends too early; 50 rows missing before row 100"
    ]


def test_a_log_without_its_end_mark_gets_one(tmp_path: Path) -> None:
    path = tmp_path / "run.arrow"
    with LogWriter(path, header(), batch_rows=10) as writer:
        writer.append(some_rows(40))
    os.truncate(path, path.stat().st_size - 8 - 100)
    repaired = repair_log(path)
    assert repaired is not None
    assert [(d.row, d.lost, d.reason) for d in repaired.damages] == [(30, None, "the file ends within a batch")]
    assert check_log(repaired.files[0]).ok
    np.testing.assert_array_equal(ticks(repaired.files[0]), np.arange(30.0))


def test_what_can_not_be_repaired_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "run.arrow"
    write_parts(path)
    assert repair_log(path) is None
    (tmp_path / "run.003.arrow").write_bytes(b"")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(RecordError, match=r"run\.001\.arrow: exists already"):
        repair_log(path, tmp_path / "run.001.arrow")
    with pytest.raises(RecordError, match="No such file"):
        repair_log(path, tmp_path / "nowhere" / "new.arrow")
    path.write_bytes(b"\xff\xff\xff\xff\x10\x00\x00\x00" + bytes(range(100)))
    with pytest.raises(RecordError, match="header is damaged"):
        repair_log(path)
    assert sorted(tmp_path.iterdir()) == before


# --- commands


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_the_commands_list_check_and_repair(tmp_path: Path) -> None:
    path = tmp_path / "run.arrow"
    write_parts(path)
    (tmp_path / "other.arrow").write_bytes(b"nonsense")
    with LogWriter(tmp_path / "now.arrow", header(rig="crane", previous="run.003.arrow")) as writer:
        writer.append(some_rows(3))
        writer.flush()
        code, text = run("log", "list", tmp_path)
    assert code == 0
    assert [line.split()[0] for line in text.splitlines()] == ["recording", "now.arrow", "other.arrow", "run.arrow"]
    assert "crane  2026-11-20 10:12:00" in text
    assert "being written, continues run.003.arrow" in text
    assert "is not a log of hilserver" in text
    assert run("log", "check", path) == (0, f"{path}: 4 files, 200 complete rows.\n")
    damage(path, 20)
    code, text = run("log", "check", path)
    assert code == 1
    assert "190 complete rows" in text
    assert "10 rows missing before row 20" in text
    assert f"hilserver log repair {path}" in text
    code, text = run("log", "repair", path)
    assert code == 0
    assert "190 rows recovered" in text
    assert run("log", "repair", tmp_path / "run-repaired.arrow")[1].endswith(
        "is complete: there is nothing to repair.\n"
    )
    code, text = run("export", path, tmp_path / "run.csv")
    assert "190 rows" in text
    assert "The log is damaged: run.arrow, byte" in text


# --- what is kept


def make_files(folder: Path, names: str, size: int = 1000) -> None:
    """Files with these names, the last one of now, each one older than the next by an hour."""
    for number, name in enumerate(reversed(names.split())):
        path = folder / name
        path.write_bytes(bytes(size))
        os.utime(path, (NOW - 3600 * number, NOW - 3600 * number))


NOW = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()
OLD, RUN, LAST = "2026-11-20T01-00-00_lab", "2026-11-21T01-00-00_lab", "2026-11-21T02-00-00_lab"


def left(folder: Path, keep: KeepSettings, running: str | None = None) -> list[str]:
    files = files_of(folder, "lab")
    gone = superfluous(files, keep, NOW, None if running is None else folder / running)
    assert gone == files[: len(gone)]
    return [file.path.name for file in files[len(gone) :]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_files(
        tmp_path,
        f"{OLD}.arrow {OLD}.001.arrow {OLD}.002.arrow 2026-11-20T01-00-00-2_lab.arrow {RUN}.arrow {LAST}.arrow"
        f" {LAST}.999.arrow {LAST}.1000.arrow",
    )
    others = "2026-11-20T01-00-00_crane.arrow 2026-11-20T01-00-00_big_lab.arrow notes_lab.arrow run.arrow"
    make_files(tmp_path, f"{others} {OLD}-repaired.arrow {OLD}.arrow.part {OLD}.csv", 10_000)
    return tmp_path


def test_only_recordings_of_the_rig_count_in_the_order_of_their_begin(folder: Path) -> None:
    assert [file.path.name for file in files_of(folder, "lab")] == [
        f"{OLD}.arrow",
        f"{OLD}.001.arrow",
        f"{OLD}.002.arrow",
        "2026-11-20T01-00-00-2_lab.arrow",
        f"{RUN}.arrow",
        f"{LAST}.arrow",
        f"{LAST}.999.arrow",
        f"{LAST}.1000.arrow",
    ]


def test_without_limits_all_recordings_are_kept(folder: Path) -> None:
    assert len(left(folder, KeepSettings())) == 8


@pytest.mark.parametrize(
    ("keep", "count"),
    [
        ({"files": 3}, 3),
        ({"files": 100}, 8),
        ({"gigabytes": 4.5e-6}, 4),
        ({"age": "150 min"}, 3),
        ({"age": "150 min", "files": 2}, 2),
        ({"age": "1 day", "gigabytes": 5e-6}, 5),
    ],
)
def test_the_oldest_files_go_by_age_number_and_size(folder: Path, keep: dict[str, Any], count: int) -> None:
    assert left(folder, KeepSettings(**keep)) == [file.path.name for file in files_of(folder, "lab")][8 - count :]


def test_the_running_recording_is_never_touched(folder: Path) -> None:
    none = {"files": 1, "age": "1 s", "gigabytes": 1e-9}
    parts = [f"{LAST}.arrow", f"{LAST}.999.arrow", f"{LAST}.1000.arrow"]
    assert left(folder, KeepSettings(**none), parts[-1]) == parts
    assert left(folder, KeepSettings(**none, running=False), parts[-1]) == parts[-1:]
    assert left(folder, KeepSettings(**none), f"{OLD}.002.arrow") == [f.path.name for f in files_of(folder, "lab")]


def test_names_of_logs_that_begin_in_the_same_second_differ(tmp_path: Path) -> None:
    now = datetime(2026, 11, 21, 1, 0, 0, tzinfo=UTC)
    for expected in (f"{RUN}.arrow", "2026-11-21T01-00-00-2_lab.arrow", "2026-11-21T01-00-00-3_lab.arrow"):
        path = new_log(tmp_path, "lab", now)
        assert path.name == expected
        path.touch()
    assert [file.path.name for file in files_of(tmp_path, "lab")] == sorted(
        (path.name for path in tmp_path.iterdir()), key=lambda name: ("-2_" in name) + 2 * ("-3_" in name)
    )


def test_recordings_in_a_folder(tmp_path: Path) -> None:
    write_parts(tmp_path / "run.arrow")
    with pytest.raises(RecordError, match="is not a folder"):
        recordings(tmp_path / "nowhere")
    os.truncate(tmp_path / "run.003.arrow", (tmp_path / "run.003.arrow").stat().st_size - 4)
    (found,) = recordings(tmp_path)
    assert (len(found.files), found.state) == (4, "no end mark")
    assert found.size == sum(file.stat().st_size for file in tmp_path.iterdir())


def test_a_recording_that_is_removed_while_the_folder_is_read_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a server removes its oldest files."""
    for name in ("old", "new"):
        write_parts(tmp_path / f"{name}.arrow")

    def removed_after_reading(path: Path) -> LogHeader:
        header = read_header(path)
        if path.name.startswith("old"):
            path.unlink()
        return header

    monkeypatch.setattr("hilserver.record.folder.read_header", removed_after_reading)
    assert [found.files[0].name for found in recordings(tmp_path)] == ["new.arrow"]


# --- a recorder without a server


@pytest.fixture(scope="module")
def rig() -> Rig:
    return load_rig(Path(__file__).parents[2] / "config" / "rigs" / "demo.toml")


class Ring:
    """Publishes rows as the loop does, and a recorder that has one second to flush in each step."""

    def __init__(self, rig: Rig, folder: Path) -> None:
        self.memory = LoopMemory.create(folder / "segment", row_width=rig.layout.width, ring_rows=1000)
        self.rig, self.folder, self.tick = rig, folder, 0
        self.row = first_row(rig.layout, rig.plan, rig.packed)
        row_header(self.row).circuit_version = 1.0

    def run(self, ticks: int) -> None:
        for _ in range(ticks):
            row_header(self.row).tick = self.tick
            self.memory.ring.publish(self.row)
            self.tick += 1

    def recorder(self, name: str, previous_tick: int | None = None, min_free: int = 0) -> tuple[LogRecorder, list[Any]]:
        told: list[Any] = []
        header = run_header(self.rig, "program", "real time")
        extra = {**header.extra, CIRCUIT_VERSION: 1, PREVIOUS_TICK: previous_tick}
        writer = LogWriter(self.folder / name, header.model_copy(update={"extra": extra}), max_rows=300)
        return LogRecorder(self.memory, writer, min_free, told.append), told


def step(recorder: LogRecorder) -> None:
    """A step with the flush that is due once a second."""
    recorder._flushed -= 2 * FLUSH_EVERY
    recorder.step()


def test_a_recorder_tells_how_it_is_and_names_what_it_lost(rig: Rig, tmp_path: Path) -> None:
    ring = Ring(rig, tmp_path)
    log, told = ring.recorder("a.arrow")
    step(log)
    assert told == [], "there is nothing to tell before the first row"
    ring.run(250)
    step(log)
    ring.run(1500)
    step(log)
    log._writer.close()
    kept = 250 + 999
    assert [(t["rows"], t["tick"], t["lost"], t["gap"]) for t in told] == [(250, 249, 0, 0), (kept, 1749, 501, 0)]
    assert [t["file"] for t in told] == [str(tmp_path / "a.arrow"), str(LogReader(tmp_path / "a.arrow").parts[-1])]
    assert Path(told[1]["file"]).name == "a.003.arrow"
    assert told[0]["bytes"] == 0 or told[0]["bytes"] > 250 * 8 * len(rig.layout.names)
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
    with pytest.raises(RecordError, match=r"a\.arrow: ends here: only 499 MB are free on its disk; 500 MB are left"):
        step(log)
    assert told[-1]["tick"] == 149
    assert told[-1]["free"] == 499e6
    assert check_log(tmp_path / "a.arrow").ok
    assert not LogReader(tmp_path / "a.arrow").read_all().torn


# --- a server


def assert_no_gap(tick: Rows, missed: Rows) -> None:
    np.testing.assert_array_equal(np.diff(tick), missed[1:] + 1)


def say(server: Server, conversation: Callable[[Panel], Awaitable[None]]) -> None:
    async def run() -> None:
        async with panel(server) as user:
            await conversation(user)

    asyncio.run(run())


RECORDING = """
max_duration = "500 ms"
min_free_megabytes = 100
keep = {keep}
"""


def recording_server(folder: Path, keep: str, fake: FakeSystem | None = None) -> Server:
    text = rig_text("{name}", folder)
    return Server(
        folder, text=text + RECORDING.format(keep=keep), environment=fake.environment if fake is not None else None
    )


@pytest.mark.realtime
def test_a_server_begins_new_files_and_removes_old_ones_while_the_loop_goes_on(tmp_path: Path) -> None:
    """Four old recordings of this rig and one of another; five files are kept."""
    server = recording_server(tmp_path, "{ files = 5, running = false }")
    (tmp_path / "logs").mkdir()
    old = [f"2020-01-0{day}T00-00-00_{server.name}.arrow" for day in (1, 2, 3, 4)]
    make_files(tmp_path / "logs", " ".join([*old, "2020-01-01T00-00-00_other.arrow"]))
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
        say(server, watch)
        server.kill("supervisor", number=signal.SIGTERM)
        assert server.wait_exit() == 0
    names = [file.path.name for file in files_of(tmp_path / "logs", server.name)]
    assert 5 <= len(names) <= 6, "the last file may have been begun after the last look"
    assert not set(old) & set(names)
    assert (tmp_path / "logs" / "2020-01-01T00-00-00_other.arrow").exists()
    table = LogReader(tmp_path / "logs" / names[0]).read_all()
    assert not table.torn
    assert_no_gap(table.columns["tick"], table.columns["missed"])
    assert len(table.columns["tick"]) > 1500


@pytest.mark.realtime
@needs_compiler
def test_a_full_disk_stops_the_recording_visibly_and_not_the_loop(tmp_path: Path) -> None:
    fake = FakeSystem(tmp_path)
    fake.set(free_bytes=50e6)
    server = recording_server(tmp_path, "{ age = '100 d' }", fake)

    async def watch(user: Panel) -> None:
        state = await user.see("state", lambda state: "not recorded" in str(state["warnings"]))
        assert "only 50 MB are free on its disk; 100 MB are left free" in str(state["warnings"])
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
        await asyncio.sleep(RING_SECONDS)
        fake.set(free_bytes=111e6)
        await user.see("event", lambda event: "are in no log" in event["text"], start)
        assert user.all("state")[-1]["mode"] == "RUNNING"
        await user.do("stop")

    with server:
        say(server, watch)
        server.kill("supervisor", number=signal.SIGTERM)
        assert server.wait_exit() == 0
        assert "Traceback" not in server.stderr
    first, second = (LogReader(path) for path in server.logs if path.name.count(".") == 1)
    before, after = first.read_all(), second.read_all()
    assert not before.torn
    assert second.header.previous == first.parts[-1].name
    for table in (before, after):
        assert_no_gap(table.columns["tick"], table.columns["missed"])
    gap = after.columns["tick"][0] - before.columns["tick"][-1] - 1
    assert gap > 0
    assert after.events[0] == (0, {"kind": "lost", "rows": gap - after.columns["missed"][0]})
