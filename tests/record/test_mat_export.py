"""MAT files: every value of the log, under names that MATLAB accepts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.io import loadmat, whosmat
from viewer_bench import record

import hilserver.record.mat
from hilserver.errors import HilserverError
from hilserver.record.export import export
from hilserver.record.mat import LONGEST_NAME, variables
from hilserver.record.notes import LogNote, change_note
from hilserver.viewer.opening import open_log
from hilserver.viewer.span_export import export_span


def test_a_log_is_exported_with_names_units_and_events(tmp_path: Path) -> None:
    run = record(tmp_path / "run.arrow")
    change_note(run.path, None, LogNote(time=4.0, text="squeals"))
    out = tmp_path / "run.mat"
    done = export(run.path, out)
    assert out.read_bytes().startswith(b"MATLAB 5.0 MAT-file")
    found = loadmat(out, squeeze_me=True, struct_as_record=False)
    assert found["channel_p_A"].dtype == np.float64
    for name, values in run.values.items():
        variable = name.replace(".", "_")
        np.testing.assert_array_equal(found[variable], values, err_msg=name)
        assert getattr(found["info"].names, variable) == name
    assert (found["info"].units.channel_p_A, found["info"].units.mode.size) == ("Pa", 0)
    assert {name: shape for name, shape, _ in whosmat(out)}["channel_p_A"] == (6000, 1)
    assert len(done.columns) - 1 == len([name for name, *_ in whosmat(out)]) - 2
    events = {
        json.loads(text)["kind"]: time for time, text in zip(found["events"].time, found["events"].text, strict=True)
    }
    assert (events["circuit"], events["note"]) == (3.0, 4.0)
    assert sorted(path.name for path in tmp_path.iterdir() if "mat" in path.name) == ["run.mat"]


def test_whole_numbers_stay_whole(tmp_path: Path) -> None:
    run = record(tmp_path / "run.arrow")
    export(run.path, tmp_path / "run.mat", columns=["tick"], every=3)
    found = loadmat(tmp_path / "run.mat", squeeze_me=True)
    np.testing.assert_array_equal(found["tick"], np.arange(0, 6000, 3))


def test_a_span_of_the_viewer_is_exported(tmp_path: Path) -> None:
    run = record(tmp_path / "run.arrow")
    (file,) = export_span(open_log(run.path), ["channel.p_A"], 2.9, 4.3, tmp_path, "mat")
    found = loadmat(file, squeeze_me=True)
    inside = (run.values["time"] >= 2.9) & (run.values["time"] <= 4.3)
    np.testing.assert_array_equal(found["channel_p_A"], run.values["channel.p_A"][inside])
    np.testing.assert_array_equal(found["time"], run.values["time"][inside])


def test_more_rows_than_the_format_has_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hilserver.record.mat, "MOST_ROWS", 5999)
    run = record(tmp_path / "run.arrow")
    with pytest.raises(HilserverError, match=r"run\.mat.*: MAT files have at most 5999 rows: keep every n-th"):
        export(run.path, tmp_path / "run.mat")
    assert list(tmp_path.glob("*mat*")) == []


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    run = record(tmp_path / "run.arrow")
    with pytest.raises(HilserverError, match="can't be written"):
        export(run.path, tmp_path / "none" / "run.mat")
    assert not (tmp_path / "none").exists()


@given(st.lists(st.text(max_size=80), max_size=8, unique=True))
def test_every_column_has_a_variable_of_its_own(names: list[str]) -> None:
    found = variables(names)
    assert len(set(found)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) and len(name) <= LONGEST_NAME for name in found)
