"""Exports of a log: CSV, Parquet and MDF hold every value."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from log_bench import COLUMNS, Rows, assert_same_bits, random_rows, write

from hilserver.record.export import export
from hilserver.record.format import Event, RecordError, circuit_event, encode
from hilserver.record.reader import LogReader
from hilserver.rig.build import load_rig
from hilserver.simulation.lockstep import LockstepRun


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
    assert file.schema_arrow.names[0] == "time"
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
        ("run.xls", {}, "xls is not an export format. Did you mean xlsx?"),
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
