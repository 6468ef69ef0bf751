"""A log that is torn or damaged: what is whole is read, bit for bit, and nothing else."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import zlib
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from log_bench import FIRST_CIRCUIT, Rows, all_rows, assert_same_bits, fixed_part, header, random_rows, write

import hilserver.record.writer as writer_module
from hilserver.record.format import BLOCK_ROWS, Event, RecordError, circuit_event
from hilserver.record.reader import LogReader
from hilserver.record.writer import LogWriter

COMPRESSIONS = pytest.mark.parametrize("compression", sorted(BLOCK_ROWS))


def write_batches(path: Path, rows: Rows, batch_rows: int, compression: str = "none") -> list[int]:
    """Writes a log; the length of the file after the header and after each batch."""
    ends = []
    with LogWriter(path, header(compression=compression), batch_rows=batch_rows) as writer:
        for start in range(0, len(rows), batch_rows):
            writer.append(rows[start : start + batch_rows], {0: [{"kind": "note", "text": "grüß Gott"}]})
            ends.append(path.stat().st_size)
    header_length = 8 + int.from_bytes(path.read_bytes()[4:8], "little")
    return [header_length, *ends]


def cuts(ends: list[int]) -> Iterable[int]:
    """Every byte of the last two batches and the end mark, and some places before."""
    yield from range(ends[-3], ends[-1] + 9)
    yield from random.Random(1).sample(range(ends[0], ends[-3]), 150)
    yield from ends


@pytest.mark.slow
def test_a_log_cut_at_any_byte_gives_all_whole_batches_before(tmp_path: Path) -> None:
    whole, cut = tmp_path / "run.arrow", tmp_path / "cut.arrow"
    rows = random_rows(60)
    ends = write_batches(whole, rows, batch_rows=6)
    content = whole.read_bytes()
    assert len(content) == ends[-1] + 8, "the end mark"
    for length in cuts(ends):
        cut.write_bytes(content[:length])
        reader = LogReader(cut)
        batches = sum(end <= length for end in ends[1:])
        assert_same_bits(all_rows(reader), rows[: 6 * batches])
        assert reader.torn is (length < len(content))


def test_a_log_cut_within_its_header_is_reported(tmp_path: Path) -> None:
    whole, cut = tmp_path / "run.arrow", tmp_path / "cut.arrow"
    header_end = write_batches(whole, random_rows(6), batch_rows=6)[0]
    content = whole.read_bytes()
    for length in range(1, header_end):
        cut.write_bytes(content[:length])
        with pytest.raises(RecordError, match="ends within its header"):
            LogReader(cut)


@COMPRESSIONS
def test_a_tail_of_zeros_counts_as_torn(tmp_path: Path, compression: str) -> None:
    """After a power failure a file may have its length, but not its last blocks."""
    path = tmp_path / "run.arrow"
    rows = random_rows(60)
    ends = write_batches(path, rows, 6, compression)
    content = path.read_bytes()
    for start in (*ends[3:6], ends[5] + 8, ends[5] + 300, ends[6] - 9):
        torn = content[:start] + bytes(5000)
        path.write_bytes(torn)
        reader = LogReader(path)
        same = sum(torn[:end] == content[:end] for end in ends[1:])  # a batch may end with zeros
        assert_same_bits(all_rows(reader), rows[: 6 * same])
        assert reader.torn


@COMPRESSIONS
def test_damage_loses_one_batch_and_gives_no_wrong_values(tmp_path: Path, compression: str) -> None:
    """Also where a column is so repetitive that nearly every byte of it stands for several values."""
    path = tmp_path / "run.arrow"
    rows = random_rows(60)
    if compression != "none":
        rows[:, 0], rows[:, 1] = 7.0, np.repeat(random_rows(20)[:, 0], 3)
    ends = write_batches(path, rows, 6, compression)
    content = path.read_bytes()
    generator = random.Random(2)
    harmless = 0
    for _ in range(tries := 400 if compression == "none" else 200):
        damaged = bytearray(content)
        place = generator.randrange(ends[0], ends[-1])
        damaged[place] ^= 1 << generator.randrange(8)
        path.write_bytes(damaged)
        reader = LogReader(path)
        found = all_rows(reader)
        if len(found) == len(rows):  # a bit between the buffers, or one that has no meaning
            assert_same_bits(found, rows)
            assert all(d.reason == "the copy of the header is damaged" for d in reader.damages)
            harmless += 1
            continue
        batch = sum(end <= place for end in ends) - 1
        assert_same_bits(found, np.delete(rows, slice(6 * batch, 6 * batch + 6), axis=0))
        assert reader.torn
        (damage,) = reader.damages
        assert (damage.file, damage.byte, damage.row) == (path, ends[batch], 6 * batch)
        assert damage.lost == (6 if batch < 9 else None), "behind the last batch nobody knows how many there were"
    assert harmless < tries / 4


def with_longer_body(content: bytes, start: int, end: int, more: int) -> bytes:
    """A log in which the batch from ``start`` to ``end`` claims so many bytes more for its body."""
    body = int(pa.ipc.read_message(pa.BufferReader(content[start:end])).body.size)
    at = content.index(body.to_bytes(8, "little"), start)
    assert at < end - body
    return content[:at] + (body + more).to_bytes(8, "little") + content[at + 8 :]


@pytest.mark.parametrize("bit", [1, 3, 7, 10, 11])
def test_a_damaged_length_of_a_batch_hides_none_of_the_following(tmp_path: Path, bit: int) -> None:
    """The body is longer by 2, 8, 128, 1024 or 2048 bytes, up to two further batches; what it holds is intact."""
    path = tmp_path / "run.arrow"
    rows = random_rows(60)
    ends = write_batches(path, rows, batch_rows=6)
    path.write_bytes(with_longer_body(path.read_bytes(), ends[3], ends[4], 1 << bit))
    reader = LogReader(path)
    assert_same_bits(all_rows(reader), rows)
    assert reader.damages == ()


@COMPRESSIONS
@pytest.mark.parametrize("hidden", [1, 2, 4])
def test_a_damaged_length_does_not_hide_the_last_batches(tmp_path: Path, hidden: int, compression: str) -> None:
    """It ends exactly where the file does, with and without an end mark: nothing else shows that rows are missing."""
    path = tmp_path / "run.arrow"
    rows = random_rows(60)
    ends = write_batches(path, rows, 6, compression)
    content = with_longer_body(path.read_bytes(), ends[-hidden - 2], ends[-hidden - 1], ends[-1] - ends[-hidden - 1])
    for torn in (False, True):
        path.write_bytes(content[: ends[-1]] if torn else content)
        reader = LogReader(path)
        assert_same_bits(all_rows(reader), rows)
        assert (reader.damages, reader.torn) == ((), torn)


def test_a_batch_that_was_altered_removed_or_doubled_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.arrow"
    rows = random_rows(60)
    ends = write_batches(path, rows, batch_rows=6)
    content = path.read_bytes()

    def damages(changed: bytes) -> list[str]:
        path.write_bytes(changed)
        reader = LogReader(path)
        found = all_rows(reader)
        assert_same_bits(found, np.delete(rows, slice(12, 12 + 60 - len(found)), axis=0))
        return [str(damage) for damage in reader.damages]

    def batches(*numbers: int) -> bytes:
        return content[: ends[0]] + b"".join(content[ends[n] : ends[n + 1]] for n in numbers) + content[ends[-1] :]

    at = ends[3] - 20  # within the numbers of the third batch
    assert damages(content[:at] + b"\x01\x02" + content[at + 2 :]) == [
        f"run.arrow, byte {ends[2]}: a batch is damaged (its checksum does not match); 6 rows missing before row 12"
    ]
    assert damages(batches(0, 1, 4, 5, 6, 7, 8, 9)) == [
        f"run.arrow, byte {ends[2]}: batches before this one were removed; 12 rows missing before row 12"
    ]
    assert damages(content[: ends[2]] + content[ends[2] + 80 : ends[3]] + bytes(80) + content[ends[3] :]) == [
        f"run.arrow, byte {ends[2]}: the data there is not a batch; 6 rows missing before row 12"
    ]
    assert damages(batches(*range(10))) == []
    path.write_bytes(batches(0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9))
    reader = LogReader(path)
    assert_same_bits(all_rows(reader), rows)
    assert [str(damage) for damage in reader.damages] == [
        f"run.arrow, byte {ends[4]}: a batch that was already read is repeated; 0 rows missing before row 24"
    ]


def test_behind_a_lost_switch_rows_are_left_out_until_the_circuit_is_known_again(tmp_path: Path) -> None:
    path = tmp_path / "run.arrow"
    rows = random_rows(70, width=6)
    events: dict[int, list[Event]] = {
        20: [circuit_event(("a",), {"n": 1})],
        40: [circuit_event(("a", "b", "c"), {"n": 2})],
    }
    write(path, rows, events, batch_rows=10)
    (found,) = [batch for batch in LogReader(path).batches() if batch.start == 20]
    at = path.read_bytes().index(found.column("time").tobytes())
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"\0")
    reader = LogReader(path)
    table = reader.read_all()
    assert_same_bits(fixed_part(table), np.concatenate([rows[:20, :3], rows[40:, :3]]))
    assert [(c.version.start, c.version.names) for c in table.circuits] == [(0, FIRST_CIRCUIT), (20, ("a", "b", "c"))]
    assert_same_bits(table.circuits[1].values, rows[40:, 3:])
    assert [(damage.row, damage.lost) for damage in reader.damages] == [(20, 20)]


def test_logs_without_row_numbers_are_read_as_far_as_their_circuit_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have a checksum over rows and events only, and their headers no place in the run."""
    monkeypatch.setattr(
        writer_module, "batch_metadata", lambda batch, row, circuit: {b"crc32": old_checksum(batch), b"other": b"1"}
    )
    rows = random_rows(300, width=5)
    write(tmp_path / "run.arrow", rows, batch_rows=10, max_bytes=8000)
    parts = LogReader(tmp_path / "run.arrow").parts
    assert len(parts) >= 4
    assert_same_bits(all_rows(LogReader(tmp_path / "run.arrow")), rows)
    first, second = (len(all_rows(LogReader(a))) - len(all_rows(LogReader(b))) for a, b in pairwise(parts[:3]))
    damaged = bytearray(parts[1].read_bytes())
    damaged[damaged.index(rows[first + 10 : first + 20, 0].tobytes())] ^= 1
    parts[1].write_bytes(damaged)
    reader = LogReader(tmp_path / "run.arrow")
    assert_same_bits(all_rows(reader), np.delete(rows, slice(first + 10, first + second), axis=0))
    assert [(damage.file, damage.row, damage.lost) for damage in reader.damages] == [(parts[1], first + 10, None)]


def old_checksum(batch: pa.RecordBatch) -> bytes:
    *fixed, circuit, events = batch.columns
    assert events.null_count == len(batch)
    content = b"".join(array.to_numpy().tobytes() for array in (*fixed, circuit.offsets, circuit.values))
    return str(zlib.crc32(content + b"[]")).encode()


KILLED_WRITER = """
import sys, itertools, numpy as np
from hilserver.record.format import LogHeader
from hilserver.record.writer import LogWriter
header = LogHeader(software="test", rig="lab", started="now", period_s=1e-3, columns=("tick", "noise"),
                   circuit_names=("x",), compression=sys.argv[3])
writer = LogWriter(sys.argv[1], header, batch_rows=10, max_bytes=int(sys.argv[2]))
for batch in itertools.count():
    ticks = np.arange(10.0) + 10 * batch
    writer.append(np.stack([ticks, np.sin(ticks), np.sqrt(ticks)], axis=1))
    print(10 * (batch + 1), flush=True)
"""


@pytest.mark.parametrize(("max_bytes", "compression"), [(10**9, "none"), (20_000, "none"), (20_000, "lz4")])
def test_kill_minus_nine_loses_no_flushed_row(tmp_path: Path, max_bytes: int, compression: str) -> None:
    path = tmp_path / "run.arrow"
    command = [sys.executable, "-c", KILLED_WRITER, str(path), str(max_bytes), compression]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= 3000:
                break
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().split("\n")[:-1]
        flushed = int([line, *rest][-1])
    table = LogReader(path).read_all()
    ticks = table.columns["tick"]
    assert len(ticks) >= flushed >= 3000
    np.testing.assert_array_equal(ticks, np.arange(len(ticks)))
    np.testing.assert_array_equal(table.columns["noise"], np.sin(ticks))
    np.testing.assert_array_equal(table.circuits[0].values[:, 0], np.sqrt(ticks))
    assert table.torn or max_bytes < 10**9  # killed between two parts, the last one may have its end mark


def test_a_log_is_readable_while_it_is_written(tmp_path: Path) -> None:
    rows = random_rows(25)
    with LogWriter(tmp_path / "run.arrow", header(), batch_rows=10) as writer:
        writer.append(rows)
        reader = LogReader(tmp_path / "run.arrow")
        assert_same_bits(all_rows(reader), rows[:20])
        assert reader.torn
        writer.flush()
        assert_same_bits(all_rows(reader), rows)
    assert_same_bits(all_rows(reader), rows)
    assert reader.torn is False


FULL_DISK = """
import resource, sys, numpy as np
from hilserver.record.format import LogHeader, RecordError
from hilserver.record.writer import LogWriter
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
header = LogHeader(software="test", rig="lab", started="now", period_s=1e-3, columns=("tick",))
writer = LogWriter(sys.argv[1], header, batch_rows=50)
for number in range(10_000):
    try:
        writer.append(np.full((1, 1), float(number)))
    except RecordError as error:
        print(number, error)
        break
try:
    writer.append(np.zeros((1, 1)))
except RecordError as error:
    print(error)
writer.close()
"""


def test_a_full_disk_is_reported_and_written_rows_remain_readable(tmp_path: Path) -> None:
    """The limit of the file's size stands for the full disk: the system refuses to write in the middle of a batch."""
    path = tmp_path / "run.arrow"
    command = [sys.executable, "-c", FULL_DISK, str(path)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    first, second = answer.stdout.splitlines()
    number, text = first.split(" ", 1)
    assert text.startswith(f"{path}: can't be written: File too large.")
    assert "closed" in second
    assert answer.stderr == ""
    reader = LogReader(path)
    table = reader.read_all()
    np.testing.assert_array_equal(table.columns["tick"], np.arange(int(number) - 49.0))
    assert len(table.columns["tick"]) > 500
    assert table.torn
