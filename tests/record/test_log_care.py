"""Recordings over the years: in parts, damaged and repaired, listed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from log_bench import Rows, header, numbered_rows, write_numbered_parts
from typer.testing import CliRunner

from hilserver.cli import program
from hilserver.record.cuts import FOLDER
from hilserver.record.format import BLOCK_ROWS, RecordError
from hilserver.record.reader import LogReader, last_batch
from hilserver.record.repair import check_log, repair_log
from hilserver.record.writer import LogWriter, is_being_written

MARKS = {"lz4": b"\x04\x22\x4d\x18", "zstd": b"\x28\xb5\x2f\xfd"}
"""The bytes with which what is compressed begins."""


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


def test_a_new_part_starts_after_the_row_limit_and_names_its_predecessor(tmp_path: Path) -> None:
    rows = write_numbered_parts(tmp_path / "run.arrow")
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
        writer.append(numbered_rows(4))
    assert [part.name for part in LogReader(path).parts[1:]] == ["run.999.arrow", "run.1000.arrow", "run.1001.arrow"]
    np.testing.assert_array_equal(ticks(path), np.arange(4.0))


@pytest.mark.parametrize("compression", sorted(BLOCK_ROWS))
def test_the_last_whole_batch_is_found_from_the_end(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "run.arrow"
    with LogWriter(path, header(compression=compression), batch_rows=10) as writer:
        writer.append(numbered_rows(40))
    size, head = path.stat().st_size, 8 + int.from_bytes(path.read_bytes()[4:8], "little")
    for length, last in ((size, 39), (size - 8, 39), (size - 9, 29), (size - 200, 29), (head + 9, None), (head, None)):
        os.truncate(path, length)
        batch = last_batch(path)
        assert last == (None if batch is None else batch.column("tick")[-1].as_py())


def test_a_log_is_known_to_be_written_until_its_writer_ends(tmp_path: Path) -> None:
    path = tmp_path / "run.arrow"
    with LogWriter(path, header(), batch_rows=10) as writer:
        writer.append(numbered_rows(25))
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


@pytest.mark.parametrize(("compression", "block"), BLOCK_ROWS.items())
def test_parts_and_the_repaired_log_are_compressed_as_the_log(tmp_path: Path, compression: str, block: int) -> None:
    """A torn block costs its rows; every file says how it is compressed, and is."""
    path = tmp_path / "run.arrow"
    rows = np.round(numbered_rows(2500), 1)
    with LogWriter(path, header(compression=compression), max_rows=1500) as writer:
        writer.append(rows)
    parts = LogReader(path).parts
    first = sum(map(len, LogReader(path).batches())) - sum(map(len, LogReader(parts[1]).batches()))
    assert len(next(iter(LogReader(path).batches()))) == block
    os.truncate(parts[0], parts[0].stat().st_size - 100)
    repaired = repair_log(path)
    assert repaired is not None
    np.testing.assert_array_equal(ticks(repaired.files[0]), np.delete(rows[:, 0], slice(first - block, first)))
    for file in (*parts, *repaired.files):
        assert LogReader(file).header.compression == compression
        content = file.read_bytes()
        assert [name for name, mark in MARKS.items() if mark in content] == [compression] * (compression != "none")


def test_a_repaired_log_contains_all_intact_rows_and_lists_the_lost_ones(tmp_path: Path) -> None:
    """Damaged: a batch, the batch of a switch, the header of a part."""
    path = tmp_path / "run.arrow"
    rows = write_numbered_parts(path, 300)
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
        ("run.003.arrow", 130, 0),  # its header, of which there is a copy
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
    rows = write_numbered_parts(path)
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
        writer.append(numbered_rows(40))
    os.truncate(path, path.stat().st_size - 8 - 100)
    repaired = repair_log(path)
    assert repaired is not None
    assert [(d.row, d.lost, d.reason) for d in repaired.damages] == [(30, None, "the file ends within a batch")]
    assert check_log(repaired.files[0]).ok
    np.testing.assert_array_equal(ticks(repaired.files[0]), np.arange(30.0))


def test_a_failed_repair_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "run.arrow"
    write_numbered_parts(path)
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
    result = CliRunner(env={"COLUMNS": "250"}).invoke(program(), [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_the_commands_list_check_and_repair(tmp_path: Path) -> None:
    path = tmp_path / "run.arrow"
    write_numbered_parts(path)
    (tmp_path / "other.arrow").write_bytes(b"nonsense")
    with LogWriter(tmp_path / "now.arrow", header(rig="crane", previous="run.003.arrow")) as writer:
        writer.append(numbered_rows(3))
        writer.flush()
        (tmp_path / FOLDER).mkdir()
        cut = header(part=1, previous="run.001.arrow", extra={"cut": {"trigger": "overload", "tick": 60}})
        LogWriter(tmp_path / FOLDER / "overload.arrow", cut).close()
        code, text = run("log", "list", tmp_path)
    assert code == 0
    names = [line.split()[0] for line in text.splitlines()]
    assert names == ["recording", "now.arrow", "other.arrow", "run.arrow", "cuts/overload.arrow"]
    assert "ended, trigger overload in run.001.arrow" in text
    torn = tmp_path / FOLDER / "overload.arrow"
    os.truncate(torn, torn.stat().st_size - 8)
    assert repair_log(torn) is not None
    (repaired,) = (line for line in run("log", "list", tmp_path)[1].splitlines() if "overload-repaired" in line)
    assert repaired.rstrip().endswith("ended, trigger overload")
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
