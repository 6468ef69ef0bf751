"""Signals of several logs on a common time, and their differences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from viewer_bench import STARTED, record

import hilserver.viewer.overlay
from hilserver.errors import HilserverError
from hilserver.viewer.layout import ViewAlign
from hilserver.viewer.overlay import DrawnSignal, Overlay
from hilserver.viewer.store import LogStore
from hilserver.viewer.trigger import Trigger

BAR = 1e5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, and another 100 s later at half the rate."""
    folder = tmp_path_factory.mktemp("overlay")
    record(folder / "one.arrow")
    record(folder / "two.arrow", rate=500.0, seed=1, start=STARTED + 100.0)
    return folder


def overlay(folder: Path, *names: str) -> Overlay:
    store = LogStore()
    return Overlay([store.open(folder / name) for name in names])


def curve(of: Overlay, name: str) -> DrawnSignal:
    return next(curve for curve in of.curves() if curve.name == name)


def test_a_log_is_opened_once_until_it_changes(folder: Path) -> None:
    store = LogStore()
    first = store.open(folder / "one.arrow")
    assert store.open(folder / "one.arrow") is first
    (folder / "copy.arrow").write_bytes((folder / "one.arrow").read_bytes())
    copy = store.open(folder / "copy.arrow")
    (folder / "copy.arrow").write_bytes((folder / "two.arrow").read_bytes())
    assert store.open(folder / "copy.arrow") is not copy


def test_a_signal_is_drawn_for_every_log_that_has_it(folder: Path) -> None:
    both = overlay(folder, "one.arrow", "two.arrow")
    both.choose(["channel.p_A", "channel.x"])
    assert [c.name for c in both.curves()] == ["channel.p_A · 1", "channel.p_A · 2", "channel.x · 1", "channel.x · 2"]
    assert {c.shown.unit for c in both.curves()} == {"bar", "mm"}
    with pytest.raises(HilserverError, match=r"has no signal channel\.y"):
        both.choose(["channel.y"])
    assert both.signals == ("channel.p_A", "channel.x")


def test_the_difference_of_two_signals_of_a_log_is_exact(folder: Path) -> None:
    one = overlay(folder, "one.arrow")
    one.choose(["channel.p_A", "circuit.supply.p", "channel.x"])
    one.subtract("channel.p_A", "circuit.supply.p")
    found = curve(one, "channel.p_A − circuit.supply.p")
    (times, values), (_, p), (_, supply) = (
        c.samples(1.0, 4.5) for c in (found, curve(one, "channel.p_A"), curve(one, "circuit.supply.p"))
    )
    np.testing.assert_allclose(values, p - supply, rtol=0, atol=1e-9)
    assert found.statistics(1.0, 4.5).mean == pytest.approx(float(np.mean(p - supply)), rel=1e-9)
    assert found.value(2.0) == pytest.approx(values[np.argmin(np.abs(times - 2.0))])
    one.subtract("channel.p_A", "circuit.supply.p")
    assert len(one.curves()) == 3, "twice is none"


def test_the_difference_of_two_logs_is_interpolated(folder: Path) -> None:
    """A cosine over 6 s at 1000 and at 500 Hz, aligned by their starts: the same within the chord of 2 ms."""
    both = overlay(folder, "one.arrow", "two.arrow")
    both.choose(["channel.x"])
    both.subtract("channel.x · 1", "channel.x · 2")
    times, values = curve(both, "channel.x · 1 − channel.x · 2").samples(-1.0, 9.0)
    assert len(times) == 6000
    known = np.isfinite(values)
    assert np.count_nonzero(~known) == 1, "the sample behind the last of the other log"
    assert np.abs(values[known]).max() < 100.0 * (2e-3) ** 2 / 8 * 1.01, "in mm: h² / 8 times the second derivative"
    both.align(ViewAlign(by="clock"))
    assert np.isnan(curve(both, "channel.x · 1 − channel.x · 2").samples(-1.0, 9.0)[1]).all(), "100 s apart"


def test_what_has_no_difference_is_refused(folder: Path) -> None:
    one = overlay(folder, "one.arrow")
    one.choose(["channel.p_A", "channel.x"])
    with pytest.raises(HilserverError, match=r"channel\.p_A is in bar, channel\.x in mm"):
        one.subtract("channel.p_A", "channel.x")
    with pytest.raises(HilserverError, match="Choose two signals that are shown"):
        one.subtract("channel.p_A", "channel.p_A")


def test_a_log_can_be_closed_however_it_is_aligned(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read for it, on the event loop; and nothing can fail, as aligning by a trigger of other logs would."""
    both = overlay(folder, "one.arrow", "two.arrow")
    both.choose(["channel.x"])
    first, second = both.logs
    both.search(Trigger(signal="channel.x", level="50 mm"))
    both.align(ViewAlign(by="trigger"))
    before = both.placed
    assert both.search(Trigger(signal="channel.x", level="5 m")) == [0, 0]
    with pytest.raises(HilserverError, match="no occurrence"):
        both.align(both.aligned)
    assert (both.placed, both.layout.trigger) == (before, Trigger(signal="channel.x", level="50 mm"))
    again = Overlay(both.logs)
    again.load(both.layout)
    assert again.placed == before
    monkeypatch.setattr(hilserver.viewer.overlay, "offsets", None)
    both.remove(first)
    both.remove(first)
    assert both.placed == before[1:]
    assert [(c.name, c.opened) for c in both.curves()] == [("channel.x", second)]
    both.remove(second)
    assert (both.placed, both.extent()) == ([], (0.0, 1.0))


def test_a_log_that_is_closed_while_logs_are_aligned_stays_closed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = overlay(folder, "one.arrow", "two.arrow")
    first, second = both.logs

    def slowly(logs: list[object], *how: object) -> list[float]:
        both.remove(first)
        return [0.0 for _ in logs]

    monkeypatch.setattr(hilserver.viewer.overlay, "offsets", slowly)
    both.align(ViewAlign(by="clock"))
    assert both.logs == [second]
    both.add(first)
    assert both.logs == [second, first], "opened again"


def test_a_difference_goes_with_its_signals(folder: Path) -> None:
    one = overlay(folder, "one.arrow")
    one.choose(["channel.p_A", "circuit.supply.p"])
    one.subtract("circuit.supply.p", "channel.p_A")
    one.choose(["channel.p_A"])
    assert [c.name for c in one.curves()] == ["channel.p_A"]
