"""Notes beside a log: kept, changed by several at once, part of exports and reports; the log itself is not touched."""

from __future__ import annotations

import csv
import errno
import fcntl
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from log_bench import header
from pages import only
from viewer_bench import record

from hilserver.errors import ConfigurationError, HilserverError
from hilserver.record import notes
from hilserver.record.export import export
from hilserver.record.notes import LogNote, change_note, notes_path, read_notes
from hilserver.viewer.alignment import offsets
from hilserver.viewer.measurement import Moment, event_name
from hilserver.viewer.opening import open_log
from hilserver.viewer.store import LogStore

EARLY = LogNote(time=1.25, text='opens at 150 bar ± 5 %, "too early"\nsee run 7', author="Anna", written="2026-11-26")
LATE = LogNote(time=4.0, text="# squeals = true")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return record(tmp_path / "run.arrow").path


def test_notes_are_kept_beside_the_log_in_the_order_of_time(log: Path) -> None:
    before = log.read_bytes()
    assert read_notes(log) == ()
    change_note(log, None, LATE)
    assert change_note(log, None, EARLY) == (EARLY, LATE)
    assert read_notes(log) == (EARLY, LATE)
    assert [path.name for path in log.parent.glob("*.toml*")] == ["run.arrow.notes.toml"]
    changed = LogNote(time=5.0, text="later")
    assert change_note(log, EARLY, changed) == (LATE, changed)
    assert change_note(log, LATE, None) == (changed,)
    assert log.read_bytes() == before


def test_the_documented_file_of_notes_is_read(log: Path) -> None:
    """The key recording is that of the log that is made here."""
    text = only("tested: tests/record/test_log_notes.py::test_the_documented_file_of_notes_is_read").text
    notes_path(log).write_text(re.sub(r'recording = ".*"', f'recording = "{header().started}"', text))
    (note,) = read_notes(log)
    assert (note.time, note.author) == (12.5, "Anna")


def test_all_files_of_a_long_recording_have_the_same_notes(log: Path) -> None:
    change_note(log.with_name("run.001.arrow"), None, EARLY)
    assert read_notes(log) == (EARLY,)


def test_a_note_that_somebody_else_has_changed_is_not_lost(log: Path) -> None:
    change_note(log, None, EARLY)
    change_note(log, EARLY, LATE)
    with pytest.raises(HilserverError, match="changed or removed by somebody else"):
        change_note(log, EARLY, None)
    assert read_notes(log) == (LATE,)


def test_notes_that_are_written_at_once_are_all_kept(log: Path) -> None:
    written = [LogNote(time=float(k), text=f"note {k}") for k in range(24)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda note: change_note(log, None, note), written))
    assert read_notes(log) == tuple(written)


def test_a_note_is_refused_while_another_program_changes_notes(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait for ever for a program that hangs."""
    monkeypatch.setattr(notes, "PATIENCE", 0.02)
    handle = os.open(log.parent, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(HilserverError, match="another program is changing notes of this folder: try again"):
            change_note(log, None, EARLY)
    finally:
        os.close(handle)
    assert change_note(log, None, EARLY) == (EARLY,)


def test_notes_are_kept_on_a_file_system_without_locks(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On NFS, a folder can't be locked."""

    def refused(handle: int, operation: int) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(fcntl, "flock", refused)
    assert change_note(log, None, EARLY) == (EARLY,)
    assert read_notes(log) == (EARLY,)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("notes = [", "run.arrow.notes.toml: the file is not valid TOML"),
        ("[[notes]]\ntime = 1.0", r"run.arrow.notes.toml:1: notes\[0\].text: missing"),
        ("[[notes]]\ntime = 'soon'\ntext = 'x'", r"notes\[0\].time: \"soon\" is not a number"),
        ("recording = '2020-01-01'", r"begun at 2020-01-01, not to run\.arrow, begun at 2026-11-20T10:12:00\+00:00"),
    ],
)
def test_what_is_wrong_with_notes_is_said_and_the_log_is_shown(log: Path, text: str, expected: str) -> None:
    notes_path(log).write_text(text)
    with pytest.raises(HilserverError, match=expected):
        read_notes(log)
    with pytest.raises(HilserverError, match=expected):
        change_note(log, None, EARLY)
    assert notes_path(log).read_text() == text, "not replaced"
    with pytest.raises(HilserverError, match=expected):
        export(log, log.with_suffix(".csv"))
    opened = LogStore().open(log)
    assert re.search(expected, opened.trouble)
    assert opened.log.remarks == ()


def test_a_note_has_words(log: Path) -> None:
    notes_path(log).write_text(f'recording = "{header().started}"\n[[notes]]\ntime = 1.0\ntext = "  "\n')
    with pytest.raises(ConfigurationError, match=r"notes\[0\].text"):
        read_notes(log)


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_an_export_has_the_notes_at_their_times(log: Path, suffix: str) -> None:
    for note in (EARLY, LATE, LogNote(time=-1.0, text="before"), LogNote(time=99.0, text="after")):
        change_note(log, None, note)
    out = log.with_suffix(suffix)
    export(log, out, every=7)
    again = open_log(out)
    found = [moment for moment in again.moments if moment.kind == "note"]
    assert [moment.time for moment in found] == [-1.0, 1.25, 4.0, 99.0]
    assert found[1].text == 'note: opens at 150 bar ± 5 %, "too early" see run 7 (Anna)'
    again.close()
    if suffix == ".csv":
        with out.open() as file:
            rows = [row for row in csv.DictReader(file) if "squeals" in row["events"]]
        (row,) = rows
        assert 3.99 < float(row["time"]) <= 4.0, "one row of 7"
        assert {"kind": "note", "time": 4.0, "text": "# squeals = true"} in json.loads(row["events"])


def test_runs_are_aligned_by_a_note_of_the_same_words(tmp_path: Path) -> None:
    store = LogStore()
    logs = []
    for name, time in (("one.arrow", 1.5), ("two.arrow", 2.25)):
        change_note(record(tmp_path / name).path, None, LogNote(time=time, text="impact"))
        logs.append(store.open(tmp_path / name).log)
    name = event_name(Moment(0.0, "note", "note: impact"))
    assert offsets(logs, "event", name) == [-1.5, -2.25]
