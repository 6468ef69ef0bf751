"""Excel files: what another program reads is what the log has."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from openpyxl import load_workbook
from viewer_bench import record

import hilserver.record.excel
from hilserver.errors import HilserverError
from hilserver.record.excel import LONGEST_TEXT, ExcelWriter
from hilserver.record.export import export
from hilserver.viewer.opening import open_log
from hilserver.viewer.span_export import export_span


def sheets(file: Path) -> dict[str, list[tuple[object, ...]]]:
    """The rows of each sheet."""
    with closing(load_workbook(file, read_only=True)) as book:
        return {sheet.title: [*sheet.iter_rows(values_only=True)] for sheet in book.worksheets}


def test_a_log_is_exported_with_names_units_and_events(tmp_path: Path) -> None:
    """Values to 16 digits; what is missing is an empty cell."""
    run = record(tmp_path / "run.arrow")
    out = tmp_path / "run.xlsx"
    done = export(run.path, out, columns=["time", "channel.p_A", "mode", "events"], every=50)
    found = sheets(out)
    names, units, *rows = found["data"]
    assert (names, units) == (("time", "mode", "channel.p_A"), ("s", None, "Pa"))
    assert len(rows) == done.rows == 120
    for name, column in zip(names, zip(*rows, strict=True), strict=True):
        values = [np.nan if value is None else value for value in column]
        np.testing.assert_allclose(values, run.values[str(name)][::50], rtol=1e-15, err_msg=str(name))
    _, _, *events = found["events"]
    assert (3.0, "circuit") in [(time, json.loads(str(text))["kind"]) for time, text in events]
    assert sorted(path.name for path in tmp_path.iterdir() if "xlsx" in path.name) == ["run.xlsx"]


def test_a_span_of_the_viewer_is_exported(tmp_path: Path) -> None:
    run = record(tmp_path / "run.arrow")
    (file,) = export_span(open_log(run.path), ["channel.p_A"], 2.9, 4.3, tmp_path, "xlsx")
    _, _, *rows = sheets(file)["data"]
    inside = (run.values["time"] >= 2.9) & (run.values["time"] <= 4.3)
    found = np.array(rows, dtype=float)
    np.testing.assert_allclose(found[:, 0], run.values["time"][inside], rtol=1e-15)
    np.testing.assert_allclose(found[:, 1], run.values["channel.p_A"][inside], rtol=1e-15)


@pytest.mark.parametrize(("limit", "value", "said"), [("MOST_ROWS", 1000, "998 row"), ("MOST_COLUMNS", 1, "1 col")])
def test_what_excel_has_no_room_for_is_refused(
    limit: str, value: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = record(tmp_path / "run.arrow")
    monkeypatch.setattr(hilserver.record.excel, limit, value)
    with pytest.raises(HilserverError, match=f"at most {said}"):
        export(run.path, tmp_path / "run.xlsx", columns=["time", "mode"])
    assert not [path for path in tmp_path.iterdir() if "xlsx" in path.name]


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    """A folder that is not there; and one that vanishes before the workbook is complete."""
    run = record(tmp_path / "run.arrow")
    with pytest.raises(HilserverError, match=r"can't be written"):
        export(run.path, tmp_path / "none" / "run.xlsx")
    assert not (tmp_path / "none").exists()
    schema = pa.schema([pa.field("time", pa.float64())])
    (tmp_path / "taken.xlsx").mkdir()
    with pytest.raises(IsADirectoryError), ExcelWriter(str(tmp_path / "taken.xlsx"), schema):
        pass
    assert {path.name for path in tmp_path.iterdir()} == {"run.arrow", "run.001.arrow", "taken.xlsx"}


def test_texts_are_no_formulas_and_long_events_are_marked(tmp_path: Path) -> None:
    schema = pa.schema(
        [pa.field("time", pa.float64()), pa.field("=1+1", pa.float64()), pa.field("events", pa.string())]
    )
    events = json.dumps([{"kind": "note", "text": "x" * 40_000}])
    with ExcelWriter(str(tmp_path / "run.xlsx"), schema) as sink:
        sink.write_table(pa.Table.from_arrays([pa.array([1.5]), pa.array([np.nan]), pa.array([events])], schema=schema))
    found = sheets(tmp_path / "run.xlsx")
    assert found["data"] == [("time", "=1+1"), (None, None), (1.5, None)]
    ((time, text),) = found["events"][2:]
    assert (time, len(str(text)), str(text)[-20:]) == (1.5, LONGEST_TEXT, "x… (40028 characters)"[-20:])
