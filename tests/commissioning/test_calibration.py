"""Calibrations: fits, the file and its history, what becomes of the channels; the commands calibrate and channels."""

from __future__ import annotations

import io
import json
import shutil
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import probe
import pytest
from command_line import Command
from hypothesis import given
from hypothesis import strategies as st
from probe import ProbeDevice
from rig_bench import BAR, CIRCUIT, RIG, merged

from hilserver.circuit.library import standard_library
from hilserver.commissioning.calibrate import read_points
from hilserver.commissioning.discovery import described
from hilserver.driver import ChannelInfo, Driver, FoundDevice
from hilserver.errors import ConfigurationError, DriverError, HilserverError
from hilserver.record.reader import LogReader
from hilserver.rig.build import assemble, load_rig
from hilserver.rig.calibration import Calibration, add, fit
from hilserver.rig.rig import Rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.simulation.replay import replay_log

ROOT = Path(__file__).parents[2]
ENTRY: dict[str, Any] = {"date": "2026-11-21T10:15:00+01:00", "source": "card.A", "unit": "bar"}


def rig_with(*entries: dict[str, Any], channel: str = "p_A", **changes: Any) -> Rig:
    """The bench's rig with these calibrations of a channel."""
    table = merged(RIG, {"calibration": "cal.toml", "channels": {"p_A": changes}})
    history = [{**ENTRY, **entry} for entry in entries]
    sources = {"rig": table, "circuit": CIRCUIT, "calibration": {channel: history} if history else {}}
    return assemble(sources, Path("bench.toml"), standard_library())


def shown(rig: Rig, raw: float) -> float:
    """What p_A shows for a raw reading, in bar."""
    return rig.settings.channels["p_A"].curve().value(raw) / BAR


# --- fits ------------------------------------------------------------------------------------------------------------


def test_a_line_through_two_points_is_exact() -> None:
    found = fit([(0.1, 0.0), (9.9, 250.0)])
    assert found.polynomial == pytest.approx((-250 / 98, 250 / 9.8), rel=1e-9)
    assert found.largest_residual < 1e-9
    assert found.span == 250.0


def test_a_line_through_many_points_is_that_of_least_squares() -> None:
    """Slope = cov(x, y)/var(x), the line goes through the means: by hand, from the textbook."""
    x, y = np.array([0.0, 1.0, 2.0, 3.0, 4.0]), np.array([1.0, 2.9, 5.1, 7.2, 8.8])
    slope = np.sum((x - 2.0) * (y - 5.0)) / 10.0
    found = fit(list(zip(x.tolist(), y.tolist(), strict=True)))
    assert found.polynomial == pytest.approx((5.0 - 2.0 * slope, slope), rel=1e-9)
    assert found.residuals == pytest.approx(y - (5.0 - 2.0 * slope + slope * x), abs=1e-9)
    assert sum(found.residuals) == pytest.approx(0.0, abs=1e-9)


@given(
    coefficients=st.lists(st.floats(-5, 5), min_size=1, max_size=3),
    scale=st.sampled_from([1e-3, 1.0, 1e4]),
    slope=st.floats(30, 100),
)
def test_a_polynomial_is_recovered(coefficients: list[float], scale: float, slope: float) -> None:
    """Rising over the whole range: raw readings in amperes, volts or counts."""
    true = np.polynomial.Polynomial([coefficients[0], slope, *coefficients[1:]])
    raw = np.linspace(0.0, 1.0, 12)
    found = fit([(scale * r, float(true(r))) for r in raw], len(true.coef) - 1)
    again = np.polynomial.Polynomial(found.polynomial)(scale * raw)
    assert again == pytest.approx(true(raw), abs=1e-7 * slope)


@pytest.mark.parametrize(
    ("points", "degree", "reason"),
    [
        ([(1.0, 2.0)], 1, "needs at least 2 different readings"),
        ([(1.0, 2.0), (1.0, 3.0)], 1, "needs at least 2 different readings"),
        ([(0.0, 0.0), (1.0, 1.0)], 2, "needs at least 3 different readings"),
        ([(0.0, 0.0), (1.0, 5.0), (2.0, 0.0)], 2, "is not monotonic between the points"),
        ([(0.0, 1.0), (1.0, 1.0)], 1, "is not monotonic between the points"),
    ],
)
def test_impossible_fits_are_refused(points: list[tuple[float, float]], degree: int, reason: str) -> None:
    with pytest.raises(HilserverError, match=reason):
        fit(points, degree)


# --- what becomes of the channels ------------------------------------------------------------------------------------


def test_the_last_polynomial_applies_and_starts_without_a_tare() -> None:
    line, tare = {"polynomial": [1, 10]}, {"tare": 0.5}
    assert shown(rig_with(), 5.0) == pytest.approx(50.0)
    assert shown(rig_with(line), 5.0) == pytest.approx(51.0)
    assert shown(rig_with(tare), 5.0) == pytest.approx(49.5)
    assert shown(rig_with(line, tare), 5.0) == pytest.approx(50.5)
    assert shown(rig_with(line, tare, {"tare": 0.25}), 5.0) == pytest.approx(50.75)
    assert shown(rig_with(line, tare, {"polynomial": [0, 11]}), 5.0) == pytest.approx(55.0)
    assert shown(rig_with({"polynomial": [0, 1], "unit": "MPa"}), 5.0) == pytest.approx(50.0)


def test_a_calibration_takes_the_place_of_the_configured_tare() -> None:
    assert shown(rig_with({"polynomial": [0, 10]}, tare="2 bar"), 5.0) == pytest.approx(50.0)
    assert shown(rig_with({"tare": 1}, tare="2 bar"), 5.0) == pytest.approx(49.0)


def test_a_calibrated_channel_keeps_the_noise_of_its_range() -> None:
    for changes in ({}, {"noise": "0.3 bar"}):
        before, after = rig_with(**changes), rig_with({"polynomial": [1, 10]}, **changes)
        deviations = [rig.settings.channels["p_A"].deviation() for rig in (before, after)]
        assert deviations[0] == deviations[1] > 0.0


def test_the_range_of_a_calibrated_sensor_ends_at_the_same_raw_readings() -> None:
    """It reads 0 V at 0.3 bar: that, not 0 bar, is the end of its range."""
    channel = rig_with({"polynomial": [0.3, 10.01]}).settings.channels["p_A"]
    assert channel.measuring_range() == pytest.approx((0.3e5, 100.4e5))


def test_a_broken_wire_is_detected_after_calibration_too() -> None:
    scale = {"raw": None, "value": None, "current": ["0 bar", "160 bar"]}
    rig = rig_with({"polynomial": [-40, 10000]}, scale=scale)
    assert rig.settings.channels["p_A"].raw_limits() == (0.0036, 0.021)
    assert shown(rig, 0.02) == pytest.approx(160.0)
    assert "broken wire" not in rig.settings.channels["p_A"].why_invalid(0.012)
    assert rig.settings.channels["p_A"].why_invalid(0.0)


@pytest.mark.parametrize(
    ("entry", "channel", "reason"),
    [
        ({"polynomial": [1, 10]}, "p_B", r"cal\.toml: p_B: there is no such channel. Did you mean p_"),
        ({"polynomial": [1, 10]}, "p_T", r"p_T\[0\]: the channel has a fixed value"),
        (
            {"polynomial": [1, 10], "source": "card.B"},
            "p_A",
            r'p_A\[0\]: was made at "card.B", but the channel now reads "card.A"',
        ),
        ({"polynomial": [1, 10], "unit": "mm"}, "p_A", r"p_A\[0\]: is in mm, but the channel is measured in bar"),
        ({"polynomial": [1, 10], "unit": "barr"}, "p_A", r'p_A\[0\]: "barr" is not a unit'),
        ({"polynomial": [1, 10], "tare": 1}, "p_A", r"p_A\[0\]: give polynomial or tare"),
        ({}, "p_A", r"p_A\[0\]: give polynomial or tare"),
        ({"polynomial": [1]}, "p_A", r"p_A\[0\]\.polynomial"),
        ({"polynomial": [1, 0]}, "p_A", "does not depend on the reading"),
        ({"tare": 1, "date": "yesterday"}, "p_A", r"p_A\[0\]\.date"),
        ({"tare": 1, "nte": "x"}, "p_A", r"p_A\[0\]\.nte: unknown key. Did you mean note"),
    ],
)
def test_a_calibration_that_is_not_of_this_rig_is_refused(entry: dict[str, Any], channel: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        rig_with(entry, channel=channel)


def test_a_table_that_is_no_list_is_refused() -> None:
    sources = {"rig": {**RIG, "calibration": "cal.toml"}, "circuit": CIRCUIT, "calibration": {"p_A": {"tare": 1}}}
    with pytest.raises(ConfigurationError, match=r"p_A: is not a list of calibrations: write \[\[p_A\]\] above each"):
        assemble(sources, Path("bench.toml"), standard_library())


# --- the file --------------------------------------------------------------------------------------------------------


def test_entries_are_added_and_nothing_else_is_changed(tmp_path: Path) -> None:
    file = tmp_path / "cal.toml"
    first = Calibration(**ENTRY, polynomial=(0.1, 1e-7), points=((0.1, 2.0),), largest_residual=0.5)
    note = 'quote " backslash \\ °C µ 漢'
    add(file, "p_A", first)
    file.write_text(file.read_text() + "# a comment of the user\n")
    before = file.read_text()
    add(file, "x-1", Calibration(**ENTRY, tare=-0.25))
    add(file, "p_A", Calibration(**{**ENTRY, "note": note}, tare=3))
    assert file.read_text().startswith(before)
    tables = tomllib.loads(file.read_text())
    assert {name: len(entries) for name, entries in tables.items()} == {"p_A": 2, "x-1": 1}
    assert Calibration.model_validate(tables["p_A"][0]) == first
    assert Calibration.model_validate(tables["p_A"][1]).note == note
    assert [path.name for path in tmp_path.iterdir()] == ["cal.toml"]


def test_a_file_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(HilserverError, match=r"no/folder/cal\.toml: can't be written"):
        add(tmp_path / "no/folder/cal.toml", "p_A", Calibration(**ENTRY, tare=1))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("raw,value\n0.1,0\n9.9,250\n", [(0.1, 0.0), (9.9, 250.0)]),
        ("0,1;0\n\n9,9;250,5\n", [(0.1, 0.0), (9.9, 250.5)]),
        ("# gauge 4711\n0.1\t0\n1e1\t250\n", [(0.1, 0.0), (10.0, 250.0)]),
    ],
)
def test_points_from_a_file(tmp_path: Path, text: str, expected: list[tuple[float, float]]) -> None:
    (tmp_path / "points.csv").write_text(text.replace("\\n", "\n").replace("\\t", "\t"))
    assert read_points(tmp_path / "points.csv", "bar") == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0.1,0\n9.9\n", 'line 2: "9.9" is not a raw reading and a value in bar'),
        ("0.1,0\nx,y\n", "line 2"),
        ("0.1,nan\n1,2\n3,x", "line 3"),
        ("raw,value\n", "contains no points"),
    ],
)
def test_invalid_points_are_named(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "points.csv").write_text(text)
    with pytest.raises(HilserverError, match=reason):
        read_points(tmp_path / "points.csv", "bar")


# --- commands --------------------------------------------------------------------------------------------------------


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """The demo's rig with a calibration file to be made."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    file = tmp_path / "config/rigs/demo.toml"
    file.write_text(
        'calibration = "demo-calibration.toml"\n' + file.read_text().replace('"demo"', '"test_calibration"')
    )
    return file


@pytest.mark.slow
def test_points_of_a_file_become_the_scale(demo: Path, tmp_path: Path, hilserver: Command) -> None:
    (tmp_path / "points.csv").write_text("raw,value\n0.02,0\n5.0,124\n10.02,250\n")
    assert '"demo-calibration.toml" does not exist yet' in hilserver("check", demo).out
    arguments = ("calibrate", demo, "p_S", "--points", tmp_path / "points.csv", "--note", "tester 4711")
    refused = hilserver(*arguments, answers=io.StringIO("n\n"))
    assert (refused.code, "Nothing was stored" in refused.out) == (1, True)
    said = hilserver(*arguments, answers=io.StringIO("y\n"))
    assert said.code == 0
    assert "residual" in said.out
    rig = load_rig(demo)
    (entry,) = rig.calibrations["p_S"]
    assert (entry.note, entry.source, entry.unit) == ("tester 4711", "rig.p_S", "bar")
    assert entry.points == ((0.02, 0.0), (5.0, 124.0), (10.02, 250.0))
    slope, offset = np.polyfit([0.02, 5.0, 10.02], [0.0, 124.0, 250.0], 1)
    assert rig.settings.channels["p_S"].curve().value(4.0) / BAR == pytest.approx(slope * 4 + offset, rel=1e-9)
    table = hilserver("check", demo).out
    assert f"{entry.date[:10]} tester 4711" in table
    assert "·raw" in table


def test_a_log_holds_its_calibration_and_replays_without_the_file(
    demo: Path, tmp_path: Path, hilserver: Command
) -> None:
    (tmp_path / "points.csv").write_text("0,0.5\n10,250.5\n")
    assert hilserver("calibrate", demo, "p_S", "--points", tmp_path / "points.csv", "--yes").code == 0
    log = tmp_path / "run.arrow"
    with LockstepRun(load_rig(demo), log) as run:
        run.start()
        run.run(200)
    (demo.parent / "demo-calibration.toml").unlink()
    assert replay_log(log).ok
    table = LogReader(log).read_all()
    offset = table.columns["channel.p_S"][0] - table.columns["raw.p_S"][0] * 25 * BAR
    assert offset == pytest.approx(0.5 * BAR, rel=1e-6)


def test_without_a_calibration_file_it_states_what_to_write(hilserver: Command) -> None:
    said = hilserver("calibrate", ROOT / "config/rigs/demo.toml", "p_S", "--tare", "0")
    assert (said.code, said.out) == (2, "")
    assert 'Add at its top: calibration = "demo-calibration.toml"' in said.err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("p_s", "--tare", "0"), '"p_s" is not a channel. Did you mean p_S?'),
        (("p_S", "--tare", "0", "--unit", "mm"), "--unit mm: channel p_S is measured in Pa."),
        (("p_S", "--tare", "0", "--unit", "barr"), '--unit: "barr" is not a unit'),
        (("p_S", "--points", "no.csv"), "no.csv: can't be read"),
    ],
)
def test_channels_that_cannot_be_calibrated_are_reported(
    demo: Path, hilserver: Command, arguments: Any, reason: str
) -> None:
    said = hilserver("calibrate", demo, *arguments)
    assert said.code == 2
    assert reason in said.err


# --- live, on a device -----------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """A rig with a fast and a slow device."""

    rig: Path
    card: ProbeDevice
    io: ProbeDevice


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    for path in probe.install(tmp_path / "installed"):
        monkeypatch.syspath_prepend(path)
    card, io = ProbeDevice(tmp_path / "card"), ProbeDevice(tmp_path / "io")
    rig = merged(
        RIG,
        {
            "name": "test_calibration_live",
            "calibration": "cal.toml",
            "devices": {
                "card": None,
                "fast": {"driver": "fast_probe", "file": str(card.path)},
                "slow": {"driver": "slow_probe", "file": str(io.path)},
            },
            "channels": {
                "p_A": {"device": "fast", "source": "a"},
                "p_S": {"device": "fast", "source": "b", "valid": ["-5 bar", "150 bar"]},
                "Q_A": {"device": "slow", "source": "c", "valid_raw": [-9, 9]},
            },
            "valves": {"main": {"device": "fast", "output": "u"}},
            "limits": {"Q": {"channel": "Q_A", "max_age": "10 s", "action": "warn"}},
        },
    )
    file = tmp_path / "rig.toml"
    file.write_text("".join(f"{key} = {inline(value)}\n" for key, value in rig.items()))
    (tmp_path / "circuit.toml").write_text("".join(f"{key} = {inline(value)}\n" for key, value in CIRCUIT.items()))
    return Place(file, card, io)


def inline(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {inline(part)}" for key, part in value.items()) + " }"
    return json.dumps(value)


def test_a_walk_through_zero_and_span_writes_nothing_to_the_device(place: Place, hilserver: Command) -> None:
    """The device measures what is applied: raw = 0.1 + value/30 (bar), as soon as the value is typed."""

    class Operator(io.StringIO):
        def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
            line = super().readline(size)
            with_value = line.strip().replace("y", "")
            if with_value and with_value != "much":
                place.card.measure(a=0.1 + float(with_value) / 30.0)
            return line

    typed = Operator("much\n0\n90\n90\n45\n\ny\n")
    said = hilserver("calibrate", place.rig, "p_A", "--seconds", "0.05", "--note", "tester", answers=typed)
    assert said.code == 0, said
    assert "a number, in bar" in said.out
    assert "by no more than the noise: not used" in said.out
    rig = load_rig(place.rig)
    (entry,) = rig.calibrations["p_A"]
    assert entry.polynomial == pytest.approx((-3.0, 30.0), rel=1e-6)
    assert [value for _, value in entry.points] == [0.0, 90.0, 45.0]
    assert [line.split()[0] for line in place.card.journal()] == ["open", "close"]
    assert place.io.journal() == []


def test_a_tare_shows_what_is_applied(place: Place, hilserver: Command) -> None:
    place.card.measure(a=0.07)  # 0.7 bar
    for value, tare in (("0", 0.7), ("0.2", 0.5)):
        said = hilserver("calibrate", place.rig, "p_A", "--tare", value, "--seconds", "0.05", "-y")
        assert said.code == 0, said
        rig = load_rig(place.rig)
        assert rig.calibrations["p_A"][-1].tare == pytest.approx(tare)
        assert shown(rig, 0.07) == pytest.approx(float(value), abs=1e-9)


def test_a_reading_needs_valid_samples(place: Place, hilserver: Command) -> None:
    place.card.measure(b=9.0)
    said = hilserver("calibrate", place.rig, "p_S", "--tare", "0", "--seconds", "0.05", "-y")
    assert (said.code, said.err) == (
        2,
        "channel p_S has too few valid samples: 180 bar is outside its valid range, -5 bar … 150 bar.\n",
    )
    place.card.condition = probe.UNPLUGGED
    said = hilserver("calibrate", place.rig, "p_A", "--tare", "0", "--seconds", "0.05", "-y")
    assert said.err == "channel p_A has too few valid samples: device fast: it is unplugged.\n"


def test_channels_shows_live_values_and_writes_nothing(place: Place, hilserver: Command) -> None:
    place.card.measure(a=5.0, b=9.0)
    place.io.measure(c=9.5)
    said = hilserver("channels", place.rig, "--once")
    lines = {line.split("│")[1].strip(): line for line in said.out.splitlines() if line.startswith("│")}
    for text in ("fast.a", " 5 ", " V ", "50 ", "bar", "valid"):
        assert text in lines["p_A"]
    assert "180 bar is outside its valid range, -5 bar" in lines["p_S"]
    assert "raw 9.5 is outside -9 … 9" in lines["Q_A"]
    assert "nan" in lines["Q_A"]
    assert said.code == 0
    for device in (place.card, place.io):
        assert [line.split()[0] for line in device.journal()] == ["open", "close"]


def test_channels_shows_absolute_pressures_as_such(place: Place, hilserver: Command) -> None:
    """They were shown as gauge pressures, beside ranges in absolute ones."""
    text = place.rig.read_text().replace('"source" = "a"', '"source" = "a", "absolute" = true')
    place.rig.write_text(text)
    place.card.measure(a=5.0, b=1.0)
    place.io.measure(c=1.0)
    said = hilserver("channels", place.rig, "--once")
    lines = {line.split("│")[1].strip(): line for line in said.out.splitlines() if line.startswith("│")}
    assert "50 " in lines["p_A"]
    assert "bar absolute" in lines["p_A"]
    assert "absolute" not in lines["p_S"]


def test_channels_shows_the_other_devices_if_one_is_missing(place: Place, hilserver: Command) -> None:
    place.card.measure(a=5.0)
    place.io.condition = probe.UNPLUGGED
    said = hilserver("channels", place.rig, "--once")
    assert "the device has no sample" in said.out
    assert "valid" in said.out
    assert "device slow: it is unplugged." in said.out
    assert said.code == 1


# --- what is found ---------------------------------------------------------------------------------------------------


class Finding(Driver):
    """A driver that finds two devices."""

    @classmethod
    def discover(cls) -> list[FoundDevice]:
        ports = [ChannelInfo("ai0", "V"), ChannelInfo("ai1", "V"), ChannelInfo("ctr", "")]
        return [
            FoundDevice("dev1", "NI 6343", {"device": "Dev1", "range": [-10, 10], "on": True}, ports),
            FoundDevice("dev2", "a relay", outputs=[ChannelInfo("line0", "")]),
        ]


class Missing(Driver):
    """A driver whose library is not there."""

    @classmethod
    def discover(cls) -> list[FoundDevice]:
        raise DriverError("the library nidaqmx is missing: pip install hilserver[ni]")


def test_found_devices_are_described_as_they_stand_in_a_rig_file() -> None:
    drivers: Any = {"finding": Finding, "missing": Missing}
    assert list(described(drivers)) == [
        "driver finding: 2 found",
        "  dev1: NI 6343",
        "    [devices.dev1]",
        '    driver = "finding"',
        '    device = "Dev1"',
        "    range = [-10, 10]",
        "    on = true",
        "    inputs: ai0, ai1 (V), ctr (number)",
        "  dev2: a relay",
        "    [devices.dev2]",
        '    driver = "finding"',
        "    outputs: line0 (number)",
        "driver missing: the library nidaqmx is missing: pip install hilserver[ni]",
    ]


def test_channels_lists_the_installed_drivers(place: Place, hilserver: Command) -> None:
    said = hilserver("channels")
    assert said.code == 0
    for line in ("driver simulated: nothing found", "driver fast_probe: 1 found", "  probe: a device in a file"):
        assert line in said.out
