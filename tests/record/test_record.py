"""The log: what was appended is read, bit for bit, whatever happened to the writer or the file."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import zlib
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import hilserver.record.writer as writer_module
from hilserver.record.export import export
from hilserver.record.format import Event, LogHeader, RecordError, circuit_event, encode
from hilserver.record.reader import LogReader, LogTable
from hilserver.record.writer import LogWriter
from hilserver.rig.build import load_rig
from hilserver.simulation.lockstep import LockstepRun

COLUMNS = ("tick", "time", "raw.p_A")
FIRST_CIRCUIT = ("supply.p", "main.x")
Rows = NDArray[np.float64]


def header(**changes: Any) -> LogHeader:
    packed = {"index": np.array([3, -1, 2**62]), "value": np.array([0.1, -0.0, np.nan, np.inf, 5e-324])}
    values: dict[str, Any] = {
        "software": "hilserver 0.1.0",
        "rig": "lab",
        "started": "2026-11-20T10:12:00+00:00",
        "period_s": 1e-3,
        "columns": COLUMNS,
        "circuit_names": FIRST_CIRCUIT,
        "configuration": {"rig": {"supply": "140 bar", "note": "20 °C"}, "limits": [1, 2.5, None, True]},
        "packed": packed,
        "units": {"time": "s", "raw.p_A": "V", "supply.p": "Pa"},
    }
    return LogHeader(**(values | changes))


def random_rows(count: int, width: int = 5, seed: int = 0) -> Rows:
    """Values of all kinds: every bit pattern is a value that must survive."""
    generator = np.random.default_rng(seed)
    return generator.integers(0, 2**64, size=(count, width), dtype=np.uint64).view(np.float64)


def write(path: Path, rows: Rows, events: dict[int, list[Event]] | None = None, **options: Any) -> None:
    with LogWriter(path, header(), **options) as writer:
        writer.append(rows, events)


def assert_same_bits(actual: Rows, expected: Rows) -> None:
    assert actual.shape == expected.shape
    np.testing.assert_array_equal(
        np.ascontiguousarray(actual).view(np.uint64), np.ascontiguousarray(expected).view(np.uint64)
    )


def all_rows(reader: LogReader) -> Rows:
    """The rows of a log whose circuit has always two values."""
    return np.concatenate([np.empty((0, 5)), *(batch.rows() for batch in reader.batches())])


def fixed_part(table: LogTable) -> Rows:
    return np.stack([table.columns[name] for name in COLUMNS], axis=1)


def test_what_was_appended_is_read_bit_for_bit(tmp_path: Path) -> None:
    rows = random_rows(257)
    write(tmp_path / "run.arrow", rows)
    table = LogReader(tmp_path / "run.arrow").read_all()
    assert_same_bits(fixed_part(table), rows[:, :3])
    (circuit,) = table.circuits
    assert circuit.version.names == FIRST_CIRCUIT
    assert_same_bits(circuit.values, rows[:, 3:])
    assert not table.torn
    assert_same_bits(all_rows(LogReader(tmp_path / "run.arrow")), rows)


def test_rows_may_be_wider_than_what_is_logged(tmp_path: Path) -> None:
    rows = random_rows(30, width=40)
    write(tmp_path / "run.arrow", rows)
    assert_same_bits(all_rows(LogReader(tmp_path / "run.arrow")), rows[:, :5])


def test_the_header_comes_back_with_its_arrays_exactly(tmp_path: Path) -> None:
    given_header = header()
    write(tmp_path / "run.arrow", random_rows(1))
    found = LogReader(tmp_path / "run.arrow").header
    assert found.model_dump(exclude={"packed"}) == given_header.model_dump(exclude={"packed"})
    for name, array in given_header.packed.items():
        assert found.packed[name].dtype == array.dtype
        assert found.packed[name].tobytes() == array.tobytes()


def test_any_arrow_reader_reads_a_log(tmp_path: Path) -> None:
    rows = np.arange(50.0).reshape(10, 5)
    write(tmp_path / "run.arrow", rows, {3: [{"kind": "fault"}]})
    with pa.ipc.open_stream(str(tmp_path / "run.arrow")) as stream:
        table = stream.read_all()
    assert table.column_names == [*COLUMNS, "circuit", "events"]
    assert table["circuit"].to_pylist() == rows[:, 3:].tolist()
    assert table["events"].to_pylist() == [None] * 3 + [['{"kind":"fault"}']] + [None] * 6


def test_columns_must_be_distinct() -> None:
    with pytest.raises(ValueError, match=r"distinct.*tick"):
        header(columns=("tick", "time", "tick"))


# --- circuits and events


def test_a_new_circuit_starts_a_new_segment(tmp_path: Path) -> None:
    wide, narrow = ("pump.q", "supply.p", "main.x", "load.y"), ("main.x",)
    arrays = {"index": np.array([7, 8]), "value": np.array([1e-300])}
    rows = random_rows(60, width=10)
    events: dict[int, list[Event]] = {
        17: [{"kind": "command", "name": "switch", "arguments": {"component": "relief"}}, circuit_event(wide, arrays)],
        18: [{"kind": "fault", "text": "p_A above 250 bar"}],
        40: [circuit_event(narrow, {})],
    }
    write(tmp_path / "run.arrow", rows, events, batch_rows=16)
    table = LogReader(tmp_path / "run.arrow").read_all()
    assert_same_bits(fixed_part(table), rows[:, :3])
    first, second, third = table.circuits
    assert [c.version.start for c in table.circuits] == [0, 17, 40]
    assert [c.version.names for c in table.circuits] == [FIRST_CIRCUIT, wide, narrow]
    assert_same_bits(first.values, rows[:17, 3:5])
    assert_same_bits(second.values, rows[17:40, 3:7])
    assert_same_bits(third.values, rows[40:, 3:4])
    np.testing.assert_array_equal(second.version.packed["index"], arrays["index"])
    np.testing.assert_array_equal(second.version.packed["value"], arrays["value"])
    assert [(row, event["kind"]) for row, event in table.events] == [
        (17, "command"),
        (17, "circuit"),
        (18, "fault"),
        (40, "circuit"),
    ]
    assert table.events[0][1] == events[17][0]


def test_a_circuit_of_the_same_size_is_another_circuit_too(tmp_path: Path) -> None:
    rows = random_rows(20)
    write(tmp_path / "run.arrow", rows, {0: [circuit_event(("a", "b"), {})], 10: [circuit_event(("a", "b"), {"r": 2})]})
    circuits = LogReader(tmp_path / "run.arrow").read_all().circuits
    assert [(c.version.start, c.version.names, c.version.packed) for c in circuits] == [
        (0, ("a", "b"), {}),
        (10, ("a", "b"), {"r": 2}),
    ]


def test_a_circuit_without_values(tmp_path: Path) -> None:
    rows = random_rows(20)
    write(tmp_path / "run.arrow", rows, {5: [circuit_event((), {})]})
    circuits = LogReader(tmp_path / "run.arrow").read_all().circuits
    assert [c.values.shape for c in circuits] == [(5, 2), (15, 0)]


@settings(max_examples=60)
@given(
    appends=st.lists(
        st.tuples(
            st.integers(0, 40),  # rows
            st.dictionaries(st.integers(0, 39), st.one_of(st.none(), st.integers(0, 6)), max_size=4),  # events
            st.booleans(),  # flush
        ),
        max_size=8,
    ),
    batch_rows=st.integers(1, 30),
    max_bytes=st.one_of(st.none(), st.integers(1, 6000)),
)
def test_no_pattern_of_appends_switches_and_parts_loses_or_mixes_rows(
    appends: list[tuple[int, dict[int, int | None], bool]], batch_rows: int, max_bytes: int | None
) -> None:
    """Events: a number is a circuit with that many values, None another event."""
    expected: list[list[float]] = []
    expected_events = []
    width = len(FIRST_CIRCUIT)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run.arrow"
        with LogWriter(path, header(), batch_rows=batch_rows, max_bytes=max_bytes) as writer:
            for seed, (count, happened, flush) in enumerate(appends):
                rows = np.random.default_rng(seed).normal(size=(count, 9))
                events: dict[int, list[Event]] = {}
                for row in range(count):
                    if row in happened:
                        size = happened[row]
                        event = {"kind": "note"} if size is None else circuit_event([f"v{i}" for i in range(size)], {})
                        events[row] = [event]
                        expected_events.append((len(expected), event))
                        width = width if size is None else size
                    expected.append(rows[row, : 3 + width].tolist())
                writer.append(rows, events)
                if flush:
                    writer.flush()
        reader = LogReader(path)
        batches = list(reader.batches())
        assert [row for batch in batches for row in batch.rows().tolist()] == expected
        assert [event for batch in batches for event in batch.events] == expected_events
        assert reader.torn is False


def test_rows_that_are_too_narrow_for_the_circuit_are_refused(tmp_path: Path) -> None:
    with (
        LogWriter(tmp_path / "run.arrow", header()) as writer,
        pytest.raises(RecordError, match=r"rows of 4 values.*have 5"),
    ):
        writer.append(random_rows(3, width=4))


def test_an_event_outside_the_rows_is_refused(tmp_path: Path) -> None:
    with (
        LogWriter(tmp_path / "run.arrow", header()) as writer,
        pytest.raises(RecordError, match="event for row 3 of 3 rows"),
    ):
        writer.append(random_rows(3), {3: [{"kind": "note"}]})


# --- torn and damaged files


def write_batches(path: Path, rows: Rows, batch_rows: int) -> list[int]:
    """Writes a log; the length of the file after the header and after each batch."""
    ends = []
    with LogWriter(path, header(), batch_rows=batch_rows) as writer:
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


def test_a_log_cut_within_its_header_says_so(tmp_path: Path) -> None:
    whole, cut = tmp_path / "run.arrow", tmp_path / "cut.arrow"
    header_end = write_batches(whole, random_rows(6), batch_rows=6)[0]
    content = whole.read_bytes()
    for length in range(1, header_end):
        cut.write_bytes(content[:length])
        with pytest.raises(RecordError, match="ends within its header"):
            LogReader(cut)


def test_a_tail_of_zeros_is_torn(tmp_path: Path) -> None:
    """After a power failure a file may have its length, but not its last blocks."""
    path = tmp_path / "run.arrow"
    rows = random_rows(60)
    ends = write_batches(path, rows, batch_rows=6)
    content = path.read_bytes()
    for start in (*ends[3:6], ends[5] + 8, ends[5] + 300, ends[6] - 9):
        path.write_bytes(content[:start] + bytes(5000))
        reader = LogReader(path)
        assert_same_bits(all_rows(reader), rows[: 6 * sum(end <= start for end in ends[1:])])
        assert reader.torn


def test_damage_never_gives_wrong_values_and_costs_one_batch(tmp_path: Path) -> None:
    path = tmp_path / "run.arrow"
    rows = random_rows(60)
    ends = write_batches(path, rows, batch_rows=6)
    content = path.read_bytes()
    generator = random.Random(2)
    harmless = 0
    for _ in range(400):
        damaged = bytearray(content)
        place = generator.randrange(ends[0], ends[-1])
        damaged[place] ^= 1 << generator.randrange(8)
        path.write_bytes(damaged)
        reader = LogReader(path)
        found = all_rows(reader)
        if len(found) == len(rows):  # a bit between the buffers, or one that has no meaning
            assert_same_bits(found, rows)
            assert reader.torn is False
            harmless += 1
            continue
        batch = sum(end <= place for end in ends) - 1
        assert_same_bits(found, np.delete(rows, slice(6 * batch, 6 * batch + 6), axis=0))
        assert reader.torn
        (damage,) = reader.damages
        assert (damage.file, damage.byte, damage.row) == (path, ends[batch], 6 * batch)
        assert damage.lost == (6 if batch < 9 else None), "behind the last batch nobody knows how many there were"
    assert harmless < 100


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


def test_logs_of_older_versions_say_no_numbers_and_are_read_as_far_as_their_circuit_is_known(
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


def test_a_damaged_header_is_an_error_or_what_it_was(tmp_path: Path) -> None:
    path = tmp_path / "run.arrow"
    header_end = write_batches(path, random_rows(6), batch_rows=6)[0]
    content = path.read_bytes()
    generator = random.Random(3)
    refused = 0
    for _ in range(400):
        damaged = bytearray(content)
        damaged[generator.randrange(header_end)] ^= 1 << generator.randrange(8)
        path.write_bytes(damaged)
        try:
            found = LogReader(path).header
        except RecordError:
            refused += 1
        else:
            assert encode(found.model_dump()) == encode(header().model_dump())
    assert refused > 300


KILLED_WRITER = """
import sys, itertools, numpy as np
from hilserver.record.format import LogHeader
from hilserver.record.writer import LogWriter
header = LogHeader(software="test", rig="lab", started="now", period_s=1e-3, columns=("tick", "noise"),
                   circuit_names=("x",))
writer = LogWriter(sys.argv[1], header, batch_rows=10, max_bytes=int(sys.argv[2]))
for batch in itertools.count():
    ticks = np.arange(10.0) + 10 * batch
    writer.append(np.stack([ticks, np.sin(ticks), np.sqrt(ticks)], axis=1))
    print(10 * (batch + 1), flush=True)
"""


@pytest.mark.parametrize("max_bytes", [10**9, 20_000])
def test_kill_minus_nine_loses_no_flushed_row(tmp_path: Path, max_bytes: int) -> None:
    path = tmp_path / "run.arrow"
    command = [sys.executable, "-c", KILLED_WRITER, str(path), str(max_bytes)]
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


def test_a_full_disk_is_reported_and_what_was_written_stays_readable(tmp_path: Path) -> None:
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


# --- parts


def write_parts(path: Path) -> Rows:
    """A run in several parts whose circuit changes in row 95 to one with four values."""
    rows = random_rows(200, width=7)
    names = ("a", "b", "c", "d")
    write(path, rows, {95: [circuit_event(names, {"value": np.arange(4.0)})]}, batch_rows=10, max_bytes=6000)
    return rows


def test_a_long_run_goes_on_in_further_parts(tmp_path: Path) -> None:
    rows = write_parts(tmp_path / "run.arrow")
    names = sorted(file.name for file in tmp_path.iterdir())
    assert len(names) >= 4
    assert names == ["run.001.arrow", *(f"run.{n:03d}.arrow" for n in range(2, len(names))), "run.arrow"]
    assert all(file.stat().st_size < 8500 for file in tmp_path.iterdir())
    table = LogReader(tmp_path / "run.arrow").read_all()
    assert_same_bits(fixed_part(table), rows[:, :3])
    assert [c.version.start for c in table.circuits] == [0, 95]
    assert_same_bits(table.circuits[0].values, rows[:95, 3:5])
    assert_same_bits(table.circuits[1].values, rows[95:, 3:7])
    assert not table.torn


def test_a_part_is_a_log_of_its_own_with_the_circuit_it_starts_with(tmp_path: Path) -> None:
    rows = write_parts(tmp_path / "run.arrow")
    last = sorted(tmp_path.glob("run.0*.arrow"))[-1]
    reader = LogReader(last)
    table = reader.read_all()
    assert reader.header.circuit_names == ("a", "b", "c", "d")
    np.testing.assert_array_equal(reader.header.packed["value"], np.arange(4.0))
    assert reader.header.configuration == header().configuration
    count = len(table.columns["tick"])
    assert_same_bits(table.circuits[0].values, rows[-count:, 3:7])
    second = LogReader(tmp_path / "run.001.arrow")
    assert [part.name for part in second.parts] == sorted(f.name for f in tmp_path.glob("run.0*.arrow"))


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    write_parts(tmp_path / "run.arrow")
    (tmp_path / "run.002.arrow").unlink()
    with pytest.raises(RecordError, match=r"run\.002\.arrow: is missing"):
        LogReader(tmp_path / "run.arrow")


@pytest.mark.parametrize("remaining", [0, 100, 5000])
def test_a_torn_part_does_not_hide_the_parts_after_it(tmp_path: Path, remaining: int) -> None:
    rows = write_parts(tmp_path / "run.arrow")
    middle = tmp_path / "run.001.arrow"
    after = sum(len(batch) for batch in LogReader(tmp_path / "run.002.arrow").batches())
    os.truncate(middle, remaining)
    table = LogReader(tmp_path / "run.arrow").read_all()
    assert table.torn
    assert after < len(table.columns["tick"]) < len(rows)
    assert_same_bits(fixed_part(table)[-after:], rows[-after:, :3])


def test_a_log_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "run.arrow"
    rows = random_rows(5)
    write(path, rows)
    with pytest.raises(RecordError, match=r"run\.arrow: exists already"):
        LogWriter(path, header())
    assert_same_bits(all_rows(LogReader(path)), rows)


def test_a_part_of_an_older_run_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "run.001.arrow").touch()
    with pytest.raises(RecordError, match=r"run\.001\.arrow: exists already"):
        LogWriter(tmp_path / "run.arrow", header())
    assert not (tmp_path / "run.arrow").exists()


def test_parts_of_different_runs_are_not_mixed(tmp_path: Path) -> None:
    write(tmp_path / "run.arrow", random_rows(5))
    with LogWriter(tmp_path / "other.arrow", header(started="2020-01-01T00:00:00+00:00", part=1)) as writer:
        writer.append(random_rows(5))
    (tmp_path / "other.arrow").rename(tmp_path / "run.001.arrow")
    with pytest.raises(RecordError, match="not a part of the run"):
        LogReader(tmp_path / "run.arrow").read_all()


# --- what is no log


def test_an_empty_log_has_no_rows(tmp_path: Path) -> None:
    write(tmp_path / "run.arrow", random_rows(0))
    table = LogReader(tmp_path / "run.arrow").read_all()
    assert {name: len(values) for name, values in table.columns.items()} == dict.fromkeys(COLUMNS, 0)
    assert (table.circuits, table.events, table.torn) == ((), [], False)


def arrow_stream(text: str | None) -> bytes:
    """An Arrow stream with this text as the header of a log."""
    metadata = {} if text is None else {"hilserver": text, "crc32": str(zlib.crc32(text.encode()))}
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, pa.schema([("tick", pa.float64())], metadata)).close()
    return bytes(sink.getvalue())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"tick;time\n1;2\n", "is not a log of hilserver"),
        (b"\xff\xff\xff\xff\x10\x00\x00\x00" + bytes(range(100)), "is not a log of hilserver"),
        (arrow_stream(None), "no hilserver entry"),
        (arrow_stream("{nonsense"), "damaged header"),
        (arrow_stream('{"dtype": "<i0", "shape": [1], "base64": "AA=="}'), "damaged header"),
        (arrow_stream("[1, 2]"), "damaged header"),
        (arrow_stream('{"format": 1, "rig": "lab"}'), "damaged header.*software: missing"),
        (arrow_stream('{"format": 2, "software": "hilserver 9"}'), "format 2, .* hilserver 9;.*update"),
        (arrow_stream(encode(header().model_dump())), "has columns that differ from those in its header"),
    ],
)
def test_a_file_that_is_no_log_is_refused_with_the_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "run.arrow"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=reason) as caught:
        LogReader(path)
    assert str(caught.value).startswith(str(path))


def test_a_missing_file_and_a_missing_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="No such file"):
        LogReader(tmp_path / "run.arrow")
    with pytest.raises(RecordError, match="can't be created: No such file"):
        LogWriter(tmp_path / "logs" / "run.arrow", header())


def test_reading_holds_one_batch_in_memory(tmp_path: Path) -> None:
    write(tmp_path / "run.arrow", random_rows(50_000), batch_rows=100)
    before = pa.total_allocated_bytes()
    most = max(pa.total_allocated_bytes() for _ in LogReader(tmp_path / "run.arrow").batches())
    assert most - before < 100_000 < (tmp_path / "run.arrow").stat().st_size


# --- export


@pytest.fixture
def run(tmp_path: Path) -> tuple[Path, Rows]:
    """A log of 100 rows whose circuit loses supply.p and gains load.y in row 33; events in rows 33, 34 and 99."""
    rows = np.random.default_rng(5).normal(size=(100, 5)) * 10.0 ** np.random.default_rng(6).integers(-12, 12, (100, 5))
    rows[7, 2] = np.nan
    rows[8, 2] = -np.inf
    events: dict[int, list[Event]] = {
        33: [circuit_event(("main.x", "load.y"), {"value": np.zeros(3)})],
        34: [{"kind": "fault", "text": 'p_A "high"; 3,5'}, {"kind": "reset"}],
        99: [{"kind": "stop"}],
    }
    write(tmp_path / "run.arrow", rows, events, batch_rows=9)
    return tmp_path / "run.arrow", rows


def read_export(path: Path) -> pa.Table:
    if path.suffix == ".parquet":
        return pa.parquet.read_table(path)
    options = pa.csv.ConvertOptions(column_types={"events": pa.string()}, strings_can_be_null=True)
    return pa.csv.read_csv(path, convert_options=options)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_an_export_has_every_value_of_the_log(tmp_path: Path, run: tuple[Path, Rows], suffix: str) -> None:
    path, rows = run
    out = tmp_path / f"run.{suffix}"
    done = export(path, out)
    assert (done.rows, done.torn) == (100, False)
    table = read_export(out)
    assert table.column_names == list(done.columns)
    assert done.columns == (*COLUMNS, "circuit.supply.p", "circuit.main.x", "circuit.load.y", "events")
    nothing = np.full(100, np.nan)
    expected = {
        **{name: rows[:, i] for i, name in enumerate(COLUMNS)},
        "circuit.supply.p": np.concatenate([rows[:33, 3], nothing[33:]]),
        "circuit.main.x": np.concatenate([rows[:33, 4], rows[33:, 3]]),
        "circuit.load.y": np.concatenate([nothing[:33], rows[33:, 4]]),
    }
    for name, values in expected.items():
        np.testing.assert_array_equal(table[name].to_numpy(), values, err_msg=name)
    assert table["circuit.load.y"].null_count == 33
    texts = table["events"].to_pylist()
    assert {row: text for row, text in enumerate(texts) if text} == {
        33: '[{"kind":"circuit","names":["main.x","load.y"]}]',
        34: encode([{"kind": "fault", "text": 'p_A "high"; 3,5'}, {"kind": "reset"}]),
        99: '[{"kind":"stop"}]',
    }


def test_parquet_carries_units_and_the_header(tmp_path: Path, run: tuple[Path, Rows]) -> None:
    export(run[0], tmp_path / "run.parquet")
    schema = pa.parquet.read_schema(tmp_path / "run.parquet")
    units = {field.name: field.metadata[b"unit"].decode() for field in schema if b"unit" in (field.metadata or {})}
    assert units == {"time": "s", "raw.p_A": "V", "circuit.supply.p": "Pa"}
    assert b'"rig":"lab"' in schema.metadata[b"hilserver"]


def test_export_of_chosen_columns_and_every_tenth_row_keeps_all_events(tmp_path: Path, run: tuple[Path, Rows]) -> None:
    path, rows = run
    done = export(path, tmp_path / "some.txt", "csv", columns=["time", "circuit.*", "events"], every=10)
    assert done.columns == ("time", "circuit.supply.p", "circuit.main.x", "circuit.load.y", "events")
    table = pa.csv.read_csv(tmp_path / "some.txt")
    np.testing.assert_array_equal(table["time"].to_numpy(), rows[::10, 1])
    texts = table["events"].to_pylist()
    assert [row for row, text in enumerate(texts) if text] == [3, 9]
    assert texts[3].count('"kind"') == 3


def test_mdf_is_read_by_its_own_library(tmp_path: Path) -> None:
    """asammdf, the reference for the format, finds every value with its time, unit and the events; in chunks too."""
    asammdf = pytest.importorskip("asammdf", reason="pip install 'hilserver[export]'")
    rig = load_rig(Path(__file__).parents[2] / "config/rigs/demo.toml")
    with LockstepRun(rig, tmp_path / "run.arrow") as run:
        run.start()
        run.run(25_000)
    rows = LogReader(tmp_path / "run.arrow").read_all().columns
    done = export(tmp_path / "run.arrow", tmp_path / "run.mf4", columns=["channel.*", "circuit.supply.p", "events"])
    assert done.columns[0] == "time"
    with asammdf.MDF(tmp_path / "run.mf4") as mdf:
        for name in [name for name in done.columns if name.startswith("channel.")]:
            signal = mdf.get(name)
            assert_same_bits(np.asarray(signal.samples), rows[name])
            assert_same_bits(np.asarray(signal.timestamps), rows["time"])
        assert (mdf.get("channel.p_A").unit, mdf.get("circuit.supply.p").unit) == ("Pa", "Pa")
        attached = {Path(str(name)).name: bytes(data) for data, name, *_ in map(mdf.extract_attachment, range(2))}
    assert [entry["events"][0]["kind"] for entry in json.loads(attached["events.json"])] == ["command"] * 3
    assert json.loads(attached["hilserver.json"])["rig"] == "demo"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.arrow", "run.mf4"]


def test_an_export_is_written_in_chunks(tmp_path: Path) -> None:
    rows = random_rows(45_000)
    write(tmp_path / "run.arrow", rows, batch_rows=1000)
    export(tmp_path / "run.arrow", tmp_path / "run.parquet", columns=["raw.*"])
    file = pa.parquet.ParquetFile(tmp_path / "run.parquet")
    assert file.num_row_groups == 3
    assert_same_bits(file.read()["raw.p_A"].to_numpy(), rows[:, 2])


def test_a_torn_log_is_exported_as_far_as_it_goes(tmp_path: Path, run: tuple[Path, Rows]) -> None:
    path, _ = run
    os.truncate(path, path.stat().st_size - 20)
    done = export(path, tmp_path / "run.csv")
    assert done.torn
    assert read_export(tmp_path / "run.csv").num_rows == done.rows == 96


@pytest.mark.parametrize(
    ("out", "options", "reason"),
    [
        ("run.xlsx", {}, "xlsx is not an export format. Allowed: csv, mf4, parquet"),
        ("run", {}, "no suffix is not an export format"),
        ("run.csv", {"columns": ["raw.p_B"]}, "has no column raw.p_B. Did you mean raw.p_A?"),
        ("run.csv", {"every": 0}, "every must be a whole number"),
        ("run.arrow", {"format": "csv"}, "is the log itself"),
        ("nowhere/run.csv", {}, "can't be written: .*No such file"),
    ],
)
def test_an_impossible_export_is_refused_and_leaves_nothing(
    tmp_path: Path, run: tuple[Path, Rows], out: str, options: dict[str, Any], reason: str
) -> None:
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(RecordError, match=reason):
        export(run[0], tmp_path / out, **options)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before
