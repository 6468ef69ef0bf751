"""Logs of every format, read by column: the same numbers, times, units and moments; what is wrong is said."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from log_bench import header, numbered_rows
from viewer_bench import SPIKE, STARTED, Run, record

from hilserver.record.export import export
from hilserver.record.format import BLOCK_ROWS, RecordError
from hilserver.record.writer import LogWriter
from hilserver.viewer.measurement import Measurement
from hilserver.viewer.opening import open_log


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return record(tmp_path_factory.mktemp("logs") / "run.arrow")


@pytest.fixture(scope="module", params=["arrow", "lz4", "zstd", "parquet", "csv", "mf4"])
def log(request: pytest.FixtureRequest, run: Run, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measurement]:
    """The run in every format, and compressed; made anew where another format was read in between."""
    path = run.path.with_suffix(f".{request.param}")
    if request.param in BLOCK_ROWS:
        path = record(tmp_path_factory.mktemp("compressed") / "run.arrow", compression=request.param).path
    elif request.param != "arrow":
        export(run.path, path)
    opened = open_log(path)
    yield opened
    opened.close()


def test_every_signal_has_the_recorded_samples(log: Measurement, run: Run) -> None:
    """The log has two files and two circuits; a value that one of them lacks is NaN there."""
    assert set(run.values) - set(log.units) <= {"time"}, "the time of an MDF4 file is no channel"
    for name in log.units:
        count = len(run.values[name])
        np.testing.assert_array_equal(log.read(name, 0, count), run.values[name], name)
        np.testing.assert_array_equal(log.times(name), run.values["time"])
        for start, stop in ((2950, 3050), (0, 1), (count - 1, count), (1234, 4567), (4500, 5500), (10, 10)):
            np.testing.assert_array_equal(log.read(name, start, stop), run.values[name][start:stop])


def test_units_start_and_moments_are_known(log: Measurement) -> None:
    has_units = not log.path.name.endswith(".csv")
    assert log.units["channel.p_A"] == ("Pa" if has_units else "")
    assert log.units["circuit.supply.p"] == "Pa"
    assert log.started == pytest.approx(STARTED, abs=1e-6)
    assert log.span == (0.0, 5.999)
    found = {(moment.kind, round(moment.time, 3)): moment.text for moment in log.moments}
    assert found["command", 1.0] == "command arm"
    assert found["mode", 1.0] == "ARMED"
    assert found["mode", 2.0] == "RUNNING"
    switched = "switched: relief.opening_pressure: 150 bar → 120 bar"
    assert found["switch", 3.0] == (switched if log.path.suffix == ".arrow" else "circuit switched")
    if has_units:  # with the header, which has the order of the limits
        assert found["fault", 5.0] == "FAULT: limit p_A.max"
    assert len(log.moments) == 5
    assert [moment.time for moment in log.moments] == sorted(moment.time for moment in log.moments)
    assert list(log.notes) == []


def test_a_section_is_read_by_time(log: Measurement, run: Run) -> None:
    times, values = log.between("channel.p_A", 4.19, 4.21)
    assert times[0] == 4.19
    assert times[-1] == 4.21
    assert values.max() == SPIKE == run.values["channel.p_A"][run.spike]


def test_an_unknown_signal_is_named(log: Measurement) -> None:
    with pytest.raises(RecordError, match=r"has no signal channel\.p_X"):
        log.between("channel.p_X", 0.0, 1.0)


def test_a_torn_log_is_read_up_to_its_last_batch(run: Run, tmp_path: Path) -> None:
    second = run.path.with_name("run.001.arrow")
    whole = open_log(second)
    path = tmp_path / "torn.001.arrow"
    path.write_bytes(second.read_bytes()[:-5000])
    torn = open_log(path)
    rows = len(torn.times("channel.x"))
    assert 0 < rows < len(whole.times("channel.x"))
    np.testing.assert_array_equal(torn.read("channel.p_A", 0, rows), whole.read("channel.p_A", 0, rows))
    (note,) = torn.notes
    assert f"shown are the {rows} rows before" in note
    assert "hilserver log check" in note


def test_a_log_with_a_removed_batch_ends_there(run: Run, tmp_path: Path) -> None:
    """What is behind the gap is not shown as if nothing was missing."""
    content = run.path.read_bytes()
    mark = b"\xff\xff\xff\xff"
    batches = [at for at in range(0, len(content), 8) if content[at : at + 4] == mark]
    path = tmp_path / "gap.arrow"
    path.write_bytes(content[: batches[5]] + content[batches[6] :])
    log = open_log(path)
    assert len(log.times("channel.x")) == 400
    assert "lacks rows before row 500 of the run" in log.notes[0]


def test_damaged_values_of_a_compressed_log_are_left_out(tmp_path: Path) -> None:
    """A hundred rows of the one signal whose bytes are damaged; every other signal has all of its rows."""
    run = record(tmp_path / "run.arrow", seconds=2.0, compression="lz4")
    content = bytearray(run.path.read_bytes())
    frame = content.index(pa.compress(run.values["channel.x"][300:400].tobytes(), codec="lz4", asbytes=True))
    content[frame] ^= 1
    run.path.write_bytes(content)
    log = open_log(run.path)
    for name, values in run.values.items():
        expected = values.copy()
        if name == "channel.x":
            expected[300:400] = np.nan
        np.testing.assert_array_equal(log.read(name, 0, len(values)), expected, name)


@pytest.mark.parametrize("compression", sorted(BLOCK_ROWS))
def test_no_damaged_byte_ends_the_viewer(tmp_path: Path, compression: str) -> None:
    """Texts of events and their places are no longer what they were; the process of the panel would end with it."""
    path, generator = tmp_path / "run.arrow", random.Random(3)
    rows = numbered_rows(60)
    with LogWriter(path, header(columns=("time", "x"), compression=compression), batch_rows=6) as writer:
        for start in range(0, len(rows), 6):
            writer.append(rows[start : start + 6], {2: [{"kind": "trigger", "name": "pressure", "text": "p > 90 bar"}]})
    content = path.read_bytes()
    begin, found = 8 + int.from_bytes(content[4:8], "little"), set()
    for _ in range(500):
        damaged, at = bytearray(content), generator.randrange(begin, len(content) - 8)
        damaged[at : at + 4] = generator.choice(
            [b"\x00\x00\x00\x7f", b"\xff\xff\xff\xff", b'", "', generator.randbytes(4)]
        )
        path.write_bytes(damaged)
        with suppress(RecordError):
            log = open_log(path)
            values = log.read("x", 0, len(log.times("x")))
            found.add((len(values) < len(rows), bool(np.isnan(values).any())))
    assert (True, False) in found


@pytest.mark.parametrize("suffix", ["arrow", "parquet"])
def test_a_log_that_is_removed_meanwhile_is_an_error_with_its_name(run: Run, tmp_path: Path, suffix: str) -> None:
    """As a server removes its oldest recordings."""
    path = tmp_path / f"old.{suffix}"
    if suffix == "arrow":
        path.write_bytes(run.path.read_bytes())
    else:
        export(run.path, path)
    log = open_log(path)
    path.unlink()
    with pytest.raises(RecordError, match=rf"old\.{suffix}: can't be read: "):
        log.read("channel.x", 0, 10)
    log.close()


def test_a_table_of_another_system_is_read(tmp_path: Path) -> None:
    """Semicolons, decimal commas, a text column, empty cells and a line that is too short."""
    path = tmp_path / "press.csv"
    path.write_text("Time;Druck [bar];Status\n0,0;1,5;on\n0,1;;on\n0,2;3,25;off\n0,25;9\n0,3;-4e1;off\n", "latin-1")
    log = open_log(path)
    assert list(log.units) == ["Time", "Druck [bar]"]
    np.testing.assert_array_equal(log.times("Druck [bar]"), [0.0, 0.1, 0.2, 0.3])
    np.testing.assert_array_equal(log.read("Druck [bar]", 0, 4), [1.5, np.nan, 3.25, -40.0])
    assert log.notes == ["press.csv: 1 line with too few or too many cells left out"]
    assert log.started is None
    log.close()


def test_parquet_with_time_stamps_counts_from_the_first(tmp_path: Path) -> None:
    path = tmp_path / "plant.parquet"
    stamps = pa.array([1_700_000_000_500, 1_700_000_001_000], pa.timestamp("ms", tz="UTC"))
    pa.parquet.write_table(pa.table({"Timestamp": stamps, "n": pa.array([3, None], pa.int32())}), path)
    log = open_log(path)
    np.testing.assert_allclose(log.times("n"), [0.0, 0.5], atol=1e-6)
    np.testing.assert_array_equal(log.read("n", 0, 2), [3.0, np.nan])
    assert log.started == pytest.approx(1_700_000_000.5, abs=1e-6)
    assert list(log.units) == ["n"]


def test_channels_of_several_rates_and_equal_names_in_an_mdf_file(tmp_path: Path) -> None:
    asammdf = pytest.importorskip("asammdf")
    path = tmp_path / "car.mf4"
    with asammdf.MDF(version="4.10") as mdf:
        for count in (100, 10):
            times = np.arange(count) / count
            mdf.append([asammdf.Signal(np.arange(count) + 0.5, times, name="p", unit="bar")])
        mdf.save(path)
    log = open_log(path)
    assert dict(log.units) == {"p": "bar", "p [1]": "bar"}
    assert (len(log.times("p")), len(log.times("p [1]"))) == (100, 10)
    np.testing.assert_array_equal(log.read("p [1]", 2, 5), [2.5, 3.5, 4.5])
    assert log.span == (0.0, 0.99)
    log.close()


def test_an_mdf_file_of_hundreds_of_megabytes(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """asammdf reads its channels in another way, and fails for parts of them: here it takes that way at any size."""
    pytest.importorskip("asammdf")
    monkeypatch.setattr("asammdf.blocks.mdf_v4.validate_blocks", lambda *_: True)
    export(run.path, tmp_path / "large.mf4")
    log = open_log(tmp_path / "large.mf4")
    assert len(log.units) > 8
    for name in ("channel.p_A", "channel.gap"):
        np.testing.assert_array_equal(log.read(name, 3_990, 4_020), run.values[name][3_990:4_020])
    log.close()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.arrow", None, "does not exist"),
        ("run.xlsx", b"PK", r"is not a log: its name must end with one of \.arrow, \.mf4"),
        ("empty.csv", b"", "is empty"),
        ("no.arrow", 100 * b"no log  ", "is not a log of hilserver"),
        ("no.parquet", 100 * b"no such thing", "can't be read as Parquet"),
        ("no.mf4", 100 * b"no such thing", "can't be read as MDF4"),
        ("no.csv", b"p_A,p_B\n1,2\n", r"has no column with the time.*\(it has .?p_A.?, .?p_B.?\)"),
        ("back.csv", b"time,p\n0,1\n1,1\n0.5,1\n", "time decreases or is missing in row 2"),
        ("hole.csv", b"time,p\n0,1\n,1\n0.5,1\n", "time decreases or is missing in row 1"),
        ("twice.csv", b"time,p,p\n0,1,2\n", "has 2 columns named"),
        ("header.csv", b"time,p\n", "no samples|can't be read as a table"),
    ],
)
def test_what_is_no_log_is_refused_with_the_reason(
    name: str, content: bytes | None, message: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RecordError, match=message):
        open_log(path)
