"""Exported spans: all samples of the span, bit for bit, and the viewer opens them again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from viewer_bench import record

from hilserver.errors import HilserverError
from hilserver.viewer.opening import open_log
from hilserver.viewer.overlay import Overlay
from hilserver.viewer.span_export import export_span
from hilserver.viewer.store import LogStore


@pytest.mark.parametrize("format", ["csv", "parquet", "mf4"])
def test_a_span_is_written_and_opens_again(tmp_path: Path, format: str) -> None:
    run = record(tmp_path / "run.arrow")
    log = open_log(run.path)
    (file,) = export_span(log, ["channel.p_A", "circuit.relief.q"], 2.9, 4.3, tmp_path, format)
    assert file.name == f"run_2.9_4.3s.{format}"
    again = open_log(file)
    inside = (run.values["time"] >= 2.9) & (run.values["time"] <= 4.3)
    for name in ("channel.p_A", "circuit.relief.q"):
        np.testing.assert_array_equal(again.read(name, 0, int(inside.sum())), run.values[name][inside])
        np.testing.assert_array_equal(again.times(name), run.values["time"][inside])
    assert again.units["channel.p_A"] == ("" if format == "csv" else "Pa")
    again.close()


def test_a_difference_is_exported_as_a_signal(tmp_path: Path) -> None:
    run = record(tmp_path / "run.arrow")
    shown = Overlay([LogStore().open(run.path)])
    shown.choose(["channel.p_A", "circuit.supply.p"])
    shown.subtract("circuit.supply.p", "channel.p_A")
    difference = shown.curves()[-1]
    (file,) = export_span(difference.opened.log, [difference.signal], 1.0, 2.0, tmp_path, "parquet")
    assert file.name == "circuit.supply.p − channel.p_A_1_2s.parquet"
    again = open_log(file)
    expected = (run.values["circuit.supply.p"] - run.values["channel.p_A"])[1000:2001]
    np.testing.assert_array_equal(again.read("circuit.supply.p − channel.p_A", 0, 1001), expected)
    again.close()


def test_nothing_to_export_is_refused(tmp_path: Path) -> None:
    log = open_log(record(tmp_path / "run.arrow").path)
    with pytest.raises(HilserverError, match="Choose a signal first"):
        export_span(log, [], 0.0, 1.0, tmp_path, "csv")
    with pytest.raises(HilserverError, match="has no samples in this span"):
        export_span(log, ["channel.x"], 7.0, 8.0, tmp_path, "csv")
