"""Recordings over the years: in parts, damaged and repaired, listed, removed when they are many."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from hilserver.cli import app
from hilserver.record.folder import files_of, new_log, recordings, superfluous
from hilserver.record.format import LogHeader, RecordError, circuit_event
from hilserver.record.reader import LogReader
from hilserver.record.repair import check_log, repair_log
from hilserver.record.writer import LogWriter, is_being_written
from hilserver.rig.config import KeepSettings

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


def test_a_log_is_known_to_be_written_until_its_writer_ends(tmp_path: Path) -> None:
    path = tmp_path / "run.arrow"
    with LogWriter(path, header(), batch_rows=10) as writer:
        writer.append(some_rows(25))
        assert is_being_written(path)
        checked = check_log(path)
        assert (checked.rows, checked.torn, checked.being_written, checked.ok) == (20, True, True, True)
        with pytest.raises(RecordError, match="is being written"):
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
        "run.003.arrow, byte 0: the file before ends too early; 50 rows missing before row 100"
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
    assert run("log", "check", path) == (0, f"{path}: 4 files, 200 whole rows.\n")
    damage(path, 20)
    code, text = run("log", "check", path)
    assert code == 1
    assert "190 whole rows" in text
    assert "10 rows missing before row 20" in text
    assert f"hilserver log repair {path}" in text
    code, text = run("log", "repair", path)
    assert code == 0
    assert "190 rows saved" in text
    assert run("log", "repair", tmp_path / "run-repaired.arrow")[1].endswith("is whole: there is nothing to repair.\n")
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
