"""The trigger: occurrences are those of a comparison sample by sample, and of the function that was recorded."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pages import only
from viewer_bench import record

import hilserver.viewer.trigger
from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.record.crossings import EDGES, Edge
from hilserver.units import to_si
from hilserver.viewer.layout import ViewAlign, ViewLayout, layout_text, parse_layout
from hilserver.viewer.measurement import Measurement
from hilserver.viewer.overlay import Overlay
from hilserver.viewer.store import LogStore, OpenedLog
from hilserver.viewer.trigger import Trigger, level_text, occurrences
from hilserver.web.display import CHOICES, Units


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[OpenedLog]:
    """6 s in two files; x = 0.1 m · cos(t). The second has half the rate."""
    folder, store = tmp_path_factory.mktemp("trigger"), LogStore()
    paths = [record(folder / "one.arrow").path, record(folder / "two.arrow", rate=500.0, seed=1).path]
    return [store.open(path) for path in paths]


def sample_by_sample(values: list[float], level: float, hysteresis: float) -> list[int]:
    """Where it is triggered: what an oscilloscope does with each sample in turn."""
    found, armed = [], False
    for place, value in enumerate(values):
        if value > level and armed:
            found.append(place)
            armed = False
        elif value <= level - hysteresis:
            armed = True
    return found


class Samples(Measurement):
    """A log of one signal, y, with a sample each second."""

    def __init__(self, values: list[float]) -> None:
        super().__init__(Path("samples"))
        self.units, self._values = {"y": ""}, np.array(values)

    def times(self, signal: str) -> Floats:
        return np.arange(len(self._values), dtype=float)

    def read(self, signal: str, start: int, stop: int) -> Floats:
        return self._values[start:stop]


@given(
    st.lists(st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, math.nan, math.inf, -math.inf]), max_size=40),
    st.sampled_from([0.0, 0.25, 0.5]),
    st.sampled_from([0.0, 0.6, 1.5]),
    st.integers(1, 40),
)
@settings(max_examples=300, deadline=None)
def test_it_is_triggered_where_an_oscilloscope_would_be(
    values: list[float], level: float, hysteresis: float, part: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hilserver.viewer.trigger, "CHUNK", part)
        found = occurrences(Samples(values), Trigger(signal="y", level=level, hysteresis=hysteresis))
    expected = sample_by_sample(values, level, hysteresis)
    assert len(found) == len(expected)
    for time, place in zip(found, expected, strict=True):
        before, after = values[place - 1], values[place]
        if math.isfinite(after - before):
            assert np.interp(time, [place - 1, place], [before, after]) == pytest.approx(level, abs=1e-12)
            assert place - 1 <= time < place
        else:
            assert time == place, "a gap, or infinity"


@pytest.mark.parametrize(
    ("edge", "level", "expected"),
    [
        ("rising", "0 mm", [3 * math.pi / 2]),
        ("falling", 0.0, [math.pi / 2]),
        ("either", "50 mm", [math.pi / 3, 5 * math.pi / 3]),
        ("falling", "-100.1 mm", []),
    ],
)
def test_occurrences_are_those_of_the_recorded_function(
    logs: list[OpenedLog], edge: Edge, level: str | float, expected: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it is read in small parts; the chord of a cosine over 2 ms is off by less than 1e-6 s."""
    for size in (1 << 18, 7):
        monkeypatch.setattr(hilserver.viewer.trigger, "CHUNK", size)
        for opened in logs:
            found = occurrences(opened.log, Trigger(signal="channel.x", level=level, edge=edge))
            assert found == pytest.approx(expected, abs=1e-6)


def test_hysteresis_tells_swings_from_noise(logs: list[OpenedLog]) -> None:
    """100 bar ± 40 bar at 3 Hz with 1 bar of noise: 18 swings in 6 s, each of which crosses the level several times."""
    counts = [
        len(occurrences(logs[0].log, Trigger(signal="channel.p_A", level="100 bar", hysteresis=h, edge=edge)))
        for h in ("0 bar", "10 bar")
        for edge in EDGES
    ]
    assert counts[0] > 20, "noise"
    assert counts[3] == pytest.approx(18, abs=1)
    assert counts[5] == counts[3] + counts[4]


@pytest.mark.parametrize(("unit", "hysteresis"), [("K", "2 degC"), ("K", "2 K"), ("degC", "2 degC"), ("degC", "2 K")])
def test_the_hysteresis_of_a_temperature_is_a_difference(tmp_path: Path, unit: str, hysteresis: str) -> None:
    """From 50 °C, it rises through 60 °C twice; in between it falls to 59 °C, then to 57 °C."""
    oil = np.array([50.0, 61.0, 59.0, 61.0, 57.0, 61.0]) + (273.15 if unit == "K" else 0.0)
    schema = pa.schema([pa.field("time", pa.float64()), pa.field("oil", pa.float64(), metadata={"unit": unit})])
    pq.write_table(pa.table({"time": np.arange(6.0), "oil": oil}, schema), tmp_path / "oil.parquet")
    log = LogStore().open(tmp_path / "oil.parquet").log
    found = occurrences(log, Trigger(signal="oil", level="60 degC", hysteresis=hysteresis))
    assert found == pytest.approx([10 / 11, 4.75])


def documented() -> Trigger:
    """The trigger of docs/viewing.md."""
    text = only("tested: tests/viewer/test_trigger.py::documented").text
    trigger = parse_layout(text.encode(), "docs/viewing.md").trigger
    assert trigger is not None
    return trigger


def test_the_documented_trigger_shows_its_window(logs: list[OpenedLog]) -> None:
    found = occurrences(logs[0].log, documented())
    assert len(found) == 19, "18 swings and the spike"
    assert documented().window(found[0]) == pytest.approx((found[0] - 0.1, found[0] + 0.5))


def test_a_single_sample_is_found(logs: list[OpenedLog]) -> None:
    found = occurrences(logs[0].log, Trigger(signal="channel.p_A", level="200 bar"))
    assert len(found) == 1
    assert 4.202 < found[0] < 4.203


def test_events_are_occurrences(logs: list[OpenedLog]) -> None:
    assert occurrences(logs[0].log, Trigger(event="mode RUNNING")) == [2.0]
    assert occurrences(logs[0].log, Trigger(event="mode HOLIDAY")) == []


def test_runs_are_aligned_by_an_occurrence(logs: list[OpenedLog]) -> None:
    both = Overlay(logs)
    with pytest.raises(HilserverError, match="no trigger to align by"):
        both.align(ViewAlign(by="trigger"))
    assert both.search(Trigger(signal="channel.x", level="0 mm", edge="either")) == [2, 2]
    both.align(ViewAlign(by="trigger", number=2))
    assert [offset for _, offset in both.placed] == pytest.approx(2 * [-3 * math.pi / 2], abs=1e-6)
    times = [moment.time for moment in both.triggered()]
    assert times == pytest.approx([-math.pi, -math.pi, 0.0, 0.0], abs=1e-6)
    with pytest.raises(HilserverError, match=r"one\.arrow has only 2 occurrences of the trigger either channel\.x"):
        both.align(ViewAlign(by="trigger", number=3))
    layout = both.layout
    assert parse_layout(layout_text(layout).encode(), "a.toml") == layout
    again = Overlay(logs)
    again.load(layout)
    assert again.placed == both.placed


def test_a_search_that_is_not_wanted_any_more_leaves_the_newer_one(logs: list[OpenedLog]) -> None:
    """The newer one ends first; the older one then has only a part of its occurrences."""
    both, newer = Overlay(logs), Trigger(signal="channel.x", level="0 mm", edge="either")
    wanted = iter([True, True])

    def still_wanted() -> bool:
        if next(wanted, False):
            return True
        if both.trigger is None:
            both.search(newer)
        return False

    both.search(Trigger(signal="channel.p_A", level="100 bar"), still_wanted)
    assert both.trigger == newer
    assert len(both.triggered()) == 4


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [
        ({"signal": "channel.y"}, r"has no signal channel\.y\. Did you mean channel\.x\?"),
        ({"signal": "channel.x", "level": "3 bar"}, r'level: "3 bar" has the wrong unit: this value is measured in m'),
        ({"signal": "channel.x", "level": 3.0}, r"level: 3 has no unit: the signal of one\.arrow is measured in m"),
        ({"signal": "channel.x", "hysteresis": "-1 mm"}, r"hysteresis: -1 mm is below 0"),
    ],
)
def test_what_cannot_be_looked_for_is_said(
    logs: list[OpenedLog], trigger: dict[str, str | float], expected: str
) -> None:
    shown = Overlay(logs)
    with pytest.raises(HilserverError, match=expected):
        shown.search(Trigger.model_validate(trigger))
    assert (shown.trigger, shown.triggered()) == (None, [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[trigger]\nlevel = '3 bar'", "trigger: a trigger has either a signal with a level, or an event"),
        ("[trigger]\nevent = 'switch'\nbefore = '3 bar'", r"trigger\.before: .*measured in s"),
        ("[trigger]\nevent = 'switch'\nafter = '-1 s'", r"trigger\.after: a duration can't be negative: -1 s"),
    ],
)
def test_what_is_wrong_in_a_trigger_is_named(text: str, expected: str) -> None:
    with pytest.raises(HilserverError, match=expected):
        parse_layout(text.encode(), "f.toml")


def test_a_log_without_the_signal_is_left_out(logs: list[OpenedLog], tmp_path: Path) -> None:
    (tmp_path / "force.csv").write_text("time,force\n0,-1\n1,1\n2,-1\n")
    shown = Overlay([logs[0], LogStore().open(tmp_path / "force.csv")])
    assert shown.search(Trigger(signal="force", level=0.5)) == [0, 1]
    assert [(moment.time, moment.text) for moment in shown.triggered()] == [(0.75, "2: trigger")]
    shown.remove(shown.logs[1])
    assert shown.triggered() == []
    assert ViewLayout().trigger is None


@pytest.mark.parametrize("unit", ["dB", "9**9**9", "Foo", "("])
def test_the_signal_of_another_program_has_any_unit(tmp_path: Path, unit: str) -> None:
    """A level in that very unit is understood; another one is refused."""
    schema = pa.schema([pa.field("time", pa.float64()), pa.field("noise", pa.float64(), metadata={"unit": unit})])
    pq.write_table(pa.table({"time": [0.0, 1.0, 2.0], "noise": [0.0, 4.0, 0.0]}, schema), tmp_path / "other.parquet")
    log = LogStore().open(tmp_path / "other.parquet").log
    level = level_text("3", unit, log.units["noise"])
    assert occurrences(log, Trigger(signal="noise", level=level)) == [0.75]
    for wrong in ("3 bar", f"nan {unit}"):
        with pytest.raises(HilserverError, match="level: "):
            occurrences(log, Trigger(signal="noise", level=wrong))


def test_a_level_is_entered_in_the_unit_that_is_shown() -> None:
    assert level_text("120", "bar", "Pa") == "120 bar"
    assert level_text("30", "m³/h", "m^3/s") == "30 m^3/h"
    assert level_text("0,5", "", "") == 0.5
    assert level_text("soon", "bar", "Pa") == "soon"


@pytest.mark.parametrize("si", ["Pa", "m^3/s", "m^3", "m", "m/s", "N*m", "kg/m^3", "m/s^2"])
def test_a_level_is_that_number_in_every_unit_that_is_shown(si: str) -> None:
    for shown in CHOICES.get(si, (Units().of(si),)):
        for number in (20012345.0, 1.0 / 3.0, -1e-7):
            level = level_text(f"{number!r}", shown.unit, si)
            assert isinstance(level, str)
            assert to_si(level, si) == pytest.approx(number * shown.factor, rel=1e-12)


def test_a_comma_is_a_decimal_comma() -> None:
    assert level_text("1,5 bar", "bar", "Pa") == "1.5 bar"
    assert level_text("-0,125", "bar", "Pa") == "-0.125 bar"
    assert level_text("12,3456", "bar", "Pa") == "12.3456 bar"
    for text, expected in (("1,000", r"1000 or 1\.000"), ("-1,250 bar", r"-1250 or -1\.250"), ("1,000,000", "1000000")):
        with pytest.raises(HilserverError, match=rf"thousands are not separated; write {expected}\.$"):
            level_text(text, "bar", "Pa")
