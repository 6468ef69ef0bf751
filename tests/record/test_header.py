"""The header of a log exists twice: damage to one of them costs no row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hilserver.record.format import LogHeader, RecordError, encode
from hilserver.record.header import find_header, read_header
from hilserver.record.reader import LogReader, last_batch
from hilserver.record.repair import check_log, repair_log
from hilserver.record.writer import LogWriter

Rows = NDArray[np.float64]


def header(**changes: Any) -> LogHeader:
    values: dict[str, Any] = {
        "software": "hilserver 0.1.0",
        "rig": "lab",
        "started": "2026-11-20T10:12:00+00:00",
        "period_s": 1e-3,
        "columns": ("tick", "time", "raw.p_A"),
        "circuit_names": ("supply.p",),
        "packed": {"value": np.array([0.1, np.nan])},
        "configuration": {"rig": {"description": "hilserver header, crc32 0, 0 bytes:\n"}},
    }
    return LogHeader(**(values | changes))


def write(path: Path, count: int = 25, **options: Any) -> Rows:
    rows = np.random.default_rng(1).normal(size=(count, 4))
    rows[:, 0] = np.arange(count)
    with LogWriter(path, header(), batch_rows=10, **options) as writer:
        writer.append(rows)
    return rows


def length_of_header(content: bytes | bytearray) -> int:
    return 8 + int.from_bytes(content[4:8], "little")


def all_rows(path: Path) -> Rows:
    return np.concatenate([batch.rows() for batch in LogReader(path).batches()])


def same_header(path: Path) -> bool:
    return encode(read_header(path).model_dump()) == encode(header().model_dump())


def test_a_damaged_byte_in_the_header_loses_no_row(tmp_path: Path) -> None:
    path = tmp_path / "run.arrow"
    rows = write(path)
    content = path.read_bytes()
    noticed = 0
    for at in range(length_of_header(content)):
        damaged = bytearray(content)
        damaged[at] ^= 1 << at % 8
        path.write_bytes(damaged)
        assert same_header(path), at
        np.testing.assert_array_equal(all_rows(path), rows)
        checked = check_log(path)
        assert checked.rows == len(rows)
        assert all(damage.lost == 0 for damage in checked.damages)
        noticed += not checked.ok
    assert noticed > 0.88 * length_of_header(content), "what remains is padding that nobody reads"


def test_a_log_without_readable_header_is_read_from_the_copy_and_repaired(tmp_path: Path) -> None:
    path = tmp_path / "run.arrow"
    rows = write(path)
    content = path.read_bytes()
    length = length_of_header(content)
    path.write_bytes(bytes(length) + content[length:])
    assert last_batch(path) is not None
    checked = check_log(path)
    assert not checked.ok
    (damage,) = checked.damages
    assert (damage.byte, damage.row, damage.lost) == (0, 0, 0)
    assert "its copy is used" in str(damage)

    repaired = repair_log(path)
    assert repaired is not None
    assert check_log(repaired.files[0]).ok
    np.testing.assert_array_equal(all_rows(repaired.files[0]), rows)


def test_damage_to_the_copy_is_reported_and_repaired(tmp_path: Path) -> None:
    path = tmp_path / "run.arrow"
    rows = write(path)
    content = bytearray(path.read_bytes())
    content[content.rindex(b"2026-11-20")] ^= 1
    path.write_bytes(content)
    assert not find_header(path).trouble
    (damage,) = check_log(path).damages
    assert damage.reason == "the copy of the header is damaged"
    assert damage.lost == 0
    repaired = repair_log(path)
    assert repaired is not None
    np.testing.assert_array_equal(all_rows(repaired.files[0]), rows)


def test_every_part_of_a_run_has_both(tmp_path: Path) -> None:
    path = tmp_path / "run.arrow"
    rows = write(path, 60, max_rows=20)
    for part in LogReader(path).parts:
        content = bytearray(part.read_bytes())
        content[length_of_header(content) // 2] ^= 1
        part.write_bytes(content)
    np.testing.assert_array_equal(all_rows(path), rows)
    assert [damage.file for damage in check_log(path).damages] == list(LogReader(path).parts)


def test_with_header_and_copy_damaged_the_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.arrow"
    write(path)
    path.write_bytes(path.read_bytes().replace(b"2026-11-20", b"2026-11-21"))
    with pytest.raises(RecordError, match="its checksum does not match"):
        LogReader(path)


def test_a_log_of_an_older_version_has_no_copy_and_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hilserver.record.writer.header_copy", lambda header: b"")
    monkeypatch.setattr("hilserver.record.writer.COPY_KEY", b"something else")
    path = tmp_path / "run.arrow"
    rows = write(path)
    assert check_log(path).ok
    np.testing.assert_array_equal(all_rows(path), rows)
