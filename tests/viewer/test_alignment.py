"""Overlaid logs: by their starts, by the clock, by an event."""

from __future__ import annotations

from pathlib import Path

import pytest
from viewer_bench import STARTED, record

from hilserver.errors import HilserverError
from hilserver.viewer.alignment import common_events, offsets
from hilserver.viewer.measurement import Measurement
from hilserver.viewer.opening import open_log


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[Measurement]:
    """Two runs, the second 100 s later and twice as long; and the second file of the first run."""
    folder = tmp_path_factory.mktemp("alignment")
    record(folder / "one.arrow")
    record(folder / "two.arrow", seconds=12.0, start=STARTED + 100.0)
    return [open_log(folder / name) for name in ("one.arrow", "two.arrow", "one.001.arrow")]


def test_each_starts_at_zero(logs: list[Measurement]) -> None:
    for log, offset in zip(logs, offsets(logs, "start"), strict=True):
        assert log.span[0] + offset == 0.0


def test_by_the_clock(logs: list[Measurement]) -> None:
    """The second file of a run lies where its run left it."""
    assert offsets(logs, "clock") == pytest.approx([0.0, 100.0, 0.0], abs=1e-6)
    assert offsets(logs[1:], "clock") == pytest.approx([100.0 - logs[2].span[0], -logs[2].span[0]], abs=1e-6)


def test_by_an_event(logs: list[Measurement]) -> None:
    assert common_events(logs[:2]) == ["mode ARMED", "command arm", "mode RUNNING", "switch", "fault"]
    assert offsets(logs[:2], "event", "switch") == [-3.0, -6.0]
    assert offsets(logs[:2], "event", "mode RUNNING") == [-2.0, -4.0]
    assert common_events(logs) == ["fault"]


def test_what_a_log_lacks_is_named(logs: list[Measurement], tmp_path: Path) -> None:
    with pytest.raises(HilserverError, match=r"one\.arrow has only 1 event named switch"):
        offsets(logs[:2], "event", "switch", 2)
    with pytest.raises(HilserverError, match=r"one\.arrow has no event named swich\..*switch"):
        offsets(logs[:2], "event", "swich")
    table = tmp_path / "table.csv"
    table.write_text("time,p\n0,1\n")
    timeless = open_log(table)
    with pytest.raises(HilserverError, match=r"table\.csv does not say when it was recorded"):
        offsets([logs[0], timeless], "clock")
    timeless.close()
