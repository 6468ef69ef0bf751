"""The log: what was appended is read, bit for bit; circuits, parts, and files that are no log."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_bench import COLUMNS, FIRST_CIRCUIT, Rows, all_rows, assert_same_bits, fixed_part, header, random_rows, write

from hilserver.record.format import Event, RecordError, circuit_event, encode
from hilserver.record.reader import LogReader
from hilserver.record.writer import LogWriter


def test_appended_rows_are_read_back_bit_for_bit(tmp_path: Path) -> None:
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


def test_the_header_is_read_back_exactly_with_its_arrays(tmp_path: Path) -> None:
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
def test_rows_survive_any_pattern_of_appends_switches_and_parts(
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
        (arrow_stream('{"format": 4, "software": "hilserver 9"}'), "format 4, .* hilserver 9;.*update"),
        (arrow_stream(encode(header().model_dump())), "has columns that differ from those in its header"),
    ],
)
def test_an_invalid_log_is_refused_with_the_reason(tmp_path: Path, content: bytes, reason: str) -> None:
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


def test_a_compression_that_arrow_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyarrow.Codec", SimpleNamespace(is_available=lambda codec: codec == "zstd"))
    with pytest.raises(RecordError, match=r"the installed pyarrow has no lz4 \(recording\.compression\)"):
        LogWriter(tmp_path / "run.arrow", header(compression="lz4"))
    assert list(tmp_path.iterdir()) == []


def test_reading_holds_one_batch_in_memory(tmp_path: Path) -> None:
    write(tmp_path / "run.arrow", random_rows(50_000), batch_rows=100)
    before = pa.total_allocated_bytes()
    most = max(pa.total_allocated_bytes() for _ in LogReader(tmp_path / "run.arrow").batches())
    assert most - before < 100_000 < (tmp_path / "run.arrow").stat().st_size
