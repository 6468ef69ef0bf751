"""Which recordings are kept: the oldest go by age, number and size."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from log_bench import NOW, header, make_files, numbered_rows, write_numbered_parts

from hilserver.record.folder import files_of, new_log, next_number, recordings, remove_files, superfluous
from hilserver.record.format import LogHeader, RecordError
from hilserver.record.header import read_header
from hilserver.record.notes import NOTES_SUFFIX
from hilserver.record.writer import LogWriter
from hilserver.rig.recording_settings import KeepSettings

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


def test_notes_go_with_the_last_file_of_their_recording(folder: Path) -> None:
    notes = [folder / f"{name}.arrow{NOTES_SUFFIX}" for name in (OLD, RUN, LAST, f"{OLD}-repaired")]
    for path in notes:
        path.touch()
    files = files_of(folder, "lab")
    gone = remove_files(files, files[:2])
    assert gone == files[:2]
    assert not any(file.path.exists() for file in gone)
    assert all(path.exists() for path in notes)  # a file of the recording is left
    files = files_of(folder, "lab")
    remove_files(files, files[:3])  # the rest of it, another without notes, and RUN
    assert [path.exists() for path in notes] == [False, False, True, True]


def test_a_file_that_is_being_written_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / f"{RUN}.arrow"
    with LogWriter(path, header()) as writer:
        writer.append(numbered_rows(3))
        writer.flush()
        files = files_of(tmp_path, "lab")
        assert remove_files(files, files) == []
    assert remove_files(files, files) == files


def number_recordings(folder: Path, *names: str) -> None:
    """Recordings with these names, the first one with number 1, in two files each."""
    for number, name in enumerate(names, start=1):
        with LogWriter(folder / f"{name}.arrow", header(number=number), batch_rows=10, max_rows=10) as writer:
            writer.append(numbered_rows(20))


def test_a_clock_that_is_set_back_changes_nothing(tmp_path: Path) -> None:
    """The newest recording has the earliest name, and is not removed as the oldest one."""
    made = (RUN, LAST, "1970-01-01T00-00-07_lab")
    number_recordings(tmp_path, *made)
    make_files(tmp_path, f"{OLD}.arrow 2030-01-01T00-00-00_lab.arrow")
    of_an_older_version = [f"{OLD}.arrow", "2030-01-01T00-00-00_lab.arrow"]
    parts = [f"{name}{part}.arrow" for name in made for part in ("", ".001")]
    assert [file.path.name for file in files_of(tmp_path, "lab")] == [*of_an_older_version, *parts]
    assert left(tmp_path, KeepSettings(files=2, running=False), parts[-1]) == parts[-2:]
    assert next_number(tmp_path, "lab") == 4
    assert next_number(tmp_path, "crane") == 1


def test_the_number_of_a_recording_survives_damage(tmp_path: Path) -> None:
    """By the copy of its header, or by another one of its files."""
    number_recordings(tmp_path, OLD, LAST, RUN)
    damaged = tmp_path / f"{RUN}.arrow"
    for begin, end in ((8, 400), (0, damaged.stat().st_size)):
        with damaged.open("r+b") as file:
            file.seek(begin)
            file.write(bytes(end - begin))
        assert [file.number for file in files_of(tmp_path, "lab")] == [1, 1, 2, 2, 3, 3]
    (tmp_path / f"{RUN}.001.arrow").write_bytes(bytes(100))
    assert [file.number for file in files_of(tmp_path, "lab")] == [1, 1, 2, 2, 0, 0], "the newest by its last write"


def test_recordings_of_an_older_version_have_their_place_by_time(tmp_path: Path) -> None:
    """As after a release that was rolled back for a while: what it has recorded is not the oldest."""
    number_recordings(tmp_path, "2026-01-01T00-00-00_lab", "2026-03-01T00-00-00_lab")
    make_files(tmp_path, "2025-12-01T00-00-00_lab.arrow 2026-02-02T00-00-00_lab.arrow 2026-02-01T00-00-00_lab.arrow")
    for path in tmp_path.iterdir():
        month, day = int(path.name[5:7]) % 12, int(path.name[8:10])
        os.utime(path, (NOW + (31 * month + day) * 86400,) * 2)
    assert [file.path.name[:10] for file in files_of(tmp_path, "lab") if not file.part] == [
        "2025-12-01", "2026-01-01", "2026-02-01", "2026-02-02", "2026-03-01"
    ]  # fmt: skip


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
    write_numbered_parts(tmp_path / "run.arrow")
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
        write_numbered_parts(tmp_path / f"{name}.arrow")

    def removed_after_reading(path: Path) -> LogHeader:
        header = read_header(path)
        if path.name.startswith("old"):
            path.unlink()
        return header

    monkeypatch.setattr("hilserver.record.folder.read_header", removed_after_reading)
    assert [found.files[0].name for found in recordings(tmp_path)] == ["new.arrow"]
