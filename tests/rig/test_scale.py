"""From raw reading to quantity: points, tables, 4 … 20 mA, polynomials, tare; and what is no sample."""

from __future__ import annotations

import pickle
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from rig_bench import BAR, DT, Bench, bench_rig

from hilserver.errors import ConfigurationError, problems_of
from hilserver.rig.channels import ChannelSettings
from hilserver.rig.rig import Rig
from hilserver.rig.scale import Scale
from hilserver.rig.settings import OutputSettings
from hilserver.tick.channels import scaled_value

TABLE = {"raw": [0, 1, 2, 4], "value": ["0 l/min", "6 l/min", "18 l/min", "60 l/min"]}
LOOP = {"current": ["0 bar", "160 bar"]}


def channel(**values: Any) -> ChannelSettings:
    return ChannelSettings.model_validate({"device": "card", "source": "A", **values})


def bench(**values: Any) -> Bench:
    """The bench's rig with p_A like this, scaled in no other way."""
    scale = {"raw": None, "value": None, **values.pop("scale")}
    return Bench(bench_rig({"channels": {"p_A": {"scale": scale, **values}}}))


def read(machine: Bench, raw: float, ticks: int = 1) -> float:
    """The channel's value after so many ticks of this reading."""
    machine.raw["p_A"] = raw
    return float(machine.record("channel.p_A", ticks)[-1])


# --- curves ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("raw", "expected"), [(-1, -6), (0, 0), (0.5, 3), (1.5, 12), (2, 18), (3, 39), (5, 81)])
def test_a_table_is_interpolated_and_extrapolated_linearly(raw: float, expected: float) -> None:
    """By hand, in l/min: slopes 6, 12, 21."""
    curve = Scale.model_validate(TABLE).curve()
    assert curve.value(raw) == pytest.approx(expected / 60000, abs=1e-15)
    assert curve.raw(expected / 60000) == pytest.approx(raw, abs=1e-12)


def test_points_may_come_in_any_order_and_values_may_fall() -> None:
    curve = Scale.model_validate({"raw": [10, 0, 5], "value": ["0 mm", "100 mm", "80 mm"]}).curve()
    assert [curve.value(raw) for raw in (0.0, 2.5, 7.5)] == pytest.approx([0.1, 0.09, 0.04], rel=1e-12)
    assert curve.raw(0.04) == pytest.approx(7.5, rel=1e-12)


def test_4_to_20_milliamperes_in_amperes_or_over_a_shunt() -> None:
    """160 bar over 16 mA: 12 mA is 80 bar; over 250 ohm that is 3 V."""
    assert channel(scale=LOOP).curve().value(0.012) == pytest.approx(80 * BAR, rel=1e-12)
    over_shunt = channel(scale={**LOOP, "shunt": "250 ohm"})
    assert over_shunt.curve().value(3.0) == pytest.approx(80 * BAR, rel=1e-12)
    assert over_shunt.raw_limits() == pytest.approx((0.9, 5.25))


def test_a_polynomial_in_its_own_unit() -> None:
    """0.5 bar + 20 bar/V + 0.1 bar/V² at 3 V: 61.4 bar."""
    curve = Scale.model_validate({"polynomial": [0.5, 20, 0.1], "unit": "bar"}).curve()
    assert curve.value(3.0) == pytest.approx(61.4 * BAR, rel=1e-12)


def test_the_raw_reading_of_a_bent_polynomial_lies_in_the_range_of_the_sensor() -> None:
    """0 … 100 bar at 4 … 20 mA with 0.3 bar/mA²: 0 bar has a second reading, -0.83 mA, which is nearer to 0."""
    bent = channel(scale={"polynomial": [-1.0, -0.95, 0.3], "unit": "bar"}, valid_raw=[3.6, 21.0])
    curve = bent.curve()
    assert curve.nearest_raw(curve.value(4.0)) == pytest.approx(-5.0 / 6.0)
    for raw in (4.0, 4.1, 12.0, 20.0):
        assert curve.nearest_raw(curve.value(raw), bent.raw_limits()) == pytest.approx(raw, rel=1e-9)


def test_a_unit_with_another_zero() -> None:
    """A Pt100 transmitter: -50 … 150 °C. 2 K of tare are 2 K, however they are written."""
    linear = Scale.model_validate({"polynomial": [-50, 20], "unit": "degC"}).curve()
    points = Scale.model_validate({"raw": [0, 10], "value": ["-50 degC", "150 degC"]}).curve()
    for raw in (0.0, 3.3, 10.0):
        assert linear.value(raw) == pytest.approx(273.15 - 50 + 20 * raw, rel=1e-12)
        assert points.value(raw) == pytest.approx(linear.value(raw), rel=1e-12)
    for tare in ("2 degC", "2 K"):
        tared = channel(scale={"polynomial": [-50, 20], "unit": "degC"}, tare=tare)
        assert tared.curve().value(3.3) == pytest.approx(linear.value(3.3) - 2.0, rel=1e-12)


def test_tare_and_atmosphere_are_taken_from_every_kind_of_curve() -> None:
    points = {"raw": [0, 5, 10], "value": ["0 bar", "50 bar", "100 bar"]}
    for scale in (points, {"raw": [0, 10], "value": ["0 bar", "100 bar"]}, {"polynomial": [0, 10], "unit": "bar"}):
        curve = channel(scale=scale, tare="2 bar", absolute=True).curve()
        assert curve.value(4.0) == pytest.approx(38 * BAR - 101_325.0, rel=1e-12)


CURVES: list[dict[str, Any]] = [
    TABLE,
    LOOP,
    {"raw": [0, 10], "value": ["0 bar", "100 bar"]},
    {"polynomial": [1, -2, 0.5, 0.25], "unit": "bar"},
]


def rig_with(*scales: dict[str, Any]) -> Rig:
    """The bench's rig with more channels: _0, _1, …"""
    more = {f"_{n}": {"device": "card", "source": "A", "scale": scale} for n, scale in enumerate(scales)}
    return bench_rig({"channels": more})


CURVED = rig_with(*CURVES)


@given(raw=st.floats(-20, 20), number=st.integers(0, len(CURVES) - 1))
def test_the_compiled_curve_is_the_same(raw: float, number: int) -> None:
    settings = CURVED.settings.channels[f"_{number}"]
    compiled = scaled_value(CURVED.plan, CURVED.plan.channel[list(CURVED.settings.channels).index(f"_{number}")], raw)
    expected = nan if settings.why_invalid(raw) else settings.curve().value(raw)
    assert compiled == pytest.approx(expected, rel=1e-12, abs=1e-9, nan_ok=True)


@pytest.mark.parametrize(
    ("scale", "reason"),
    [
        ({}, "give raw and value"),
        ({**LOOP, "raw": [0, 1]}, "give raw and value"),
        ({"raw": [0, 1]}, "as many raw readings as values"),
        ({"raw": [0, 1, 2], "value": ["0 bar", "1 bar"]}, "as many raw readings as values"),
        ({"raw": [1], "value": ["0 bar"]}, "at least two"),
        ({"raw": [0, 1, 1], "value": ["0 bar", "1 bar", "2 bar"]}, "the readings must differ"),
        ({"raw": [0, 1, 2], "value": ["0 bar", "2 bar", "1 bar"]}, "must be strictly monotonic"),
        ({"raw": [0, 1, 2], "value": ["0 bar", "1 bar", "1 bar"]}, "must be strictly monotonic"),
        ({"raw": [0, 1], "value": ["0 bar", "1 mm"]}, "same kind of quantity"),
        ({"current": ["5 bar", "5 bar"]}, "must be strictly monotonic"),
        ({"raw": [0, 1], "value": ["0 bar", "1 bar"], "shunt": "250 ohm"}, "shunt is for current"),
        ({"polynomial": [0, 1]}, "give polynomial and unit together"),
        ({"polynomial": [0, 1], "unit": "parsec/h^7"}, "not a unit in which channels are measured"),
        ({"polynomial": [0, 0], "unit": "bar"}, "does not depend on the reading"),
        ({"polynomial": [0], "unit": "bar"}, "polynomial"),
    ],
)
def test_an_invalid_scale_is_refused(scale: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        rig_with(scale)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"valid": ["2 bar", "1 bar"]}, "valid: the first value must be below the second"),
        ({"valid": ["1 mm", "2 mm"]}, "valid is in mm, but the scale is in bar"),
        ({"valid_raw": [5, 5]}, "valid_raw: the first reading must be below the second"),
        ({"valid_rate": "0 bar/s"}, "valid_rate must be above 0"),
        ({"tare": "1 mm"}, "tare is in mm, but the scale is in bar"),
    ],
)
def test_an_invalid_validity_is_refused(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        bench_rig({"channels": {"p_A": values}})


def test_a_fixed_channel_has_no_validity() -> None:
    with pytest.raises(ConfigurationError, match="has a fixed value and tare"):
        bench_rig({"channels": {"p_T": {"tare": "1 bar"}}})


# --- what is no sample -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("current", "valid"),
    [(0.0, False), (0.00359, False), (0.0036, True), (0.021, True), (0.02101, False), (inf, False)],
)
def test_a_broken_wire_gives_no_samples_and_the_age_limit_acts(current: float, valid: bool) -> None:
    """Thresholds of NAMUR NE 43: 3.6 mA and 21 mA. The last value is kept and grows old."""
    machine = bench(scale=LOOP, watch={"range": False})  # 3.6 mA is a pressure of -4 bar
    machine.raw["p_S"] = 5.0
    before = read(machine, 0.012)
    value = read(machine, current, ticks=19)
    assert (machine["stale.p_A"] == 0.0) == valid
    assert (value == before) == (not valid)
    assert machine["limit.p_A.age"] == 0.0
    read(machine, current, ticks=2)
    assert machine["limit.p_A.age"] == float(not valid)
    assert read(machine, 0.012) == before
    assert machine["stale.p_A"] == 0.0


@pytest.mark.parametrize(("raw", "valid"), [(-0.11, False), (-0.1, True), (10.2, True), (10.3, False)])
def test_a_value_outside_its_valid_range_is_rejected(raw: float, valid: bool) -> None:
    scale = {"raw": [0, 10], "value": ["0 bar", "100 bar"]}
    machine = bench(scale=scale, valid=["-1 bar", "102 bar"])
    before = read(machine, 5.0)
    assert (read(machine, raw) != before) == valid
    assert (machine["stale.p_A"] == 0.0) == valid


def test_error_codes_of_a_device_are_rejected() -> None:
    """A temperature module that says 32767 for a broken sensor."""
    machine = bench(scale={"raw": [0, 1000], "value": ["0 bar", "100 bar"]}, valid_raw=[-500, 5000])
    before = read(machine, 500.0)
    assert read(machine, 32767.0) == before


@pytest.mark.parametrize("filter_ms", [0, 10])
def test_a_spike_is_rejected_but_a_new_level_is_accepted_in_time(filter_ms: int) -> None:
    """100 bar in 1 ms with 20 000 bar/s allowed: not believed; the level that stays is, once it may have been reached.

    Without filter that is after 5 ms (5 ticks), with one earlier, as it comes slower.
    """
    scale = {"raw": [0, 10], "value": ["0 bar", "100 bar"]}
    machine = bench(scale=scale, valid_rate="20000 bar/s", filter=f"{filter_ms} ms")
    before = read(machine, 0.0, ticks=5)
    if filter_ms == 0:
        assert read(machine, 10.0) == before
        assert machine["stale.p_A"] == pytest.approx(DT)
        assert read(machine, 0.0) == before
        assert machine["stale.p_A"] == 0.0
        values = [read(machine, 10.0) for _ in range(6)]
        assert values[:4] == [before] * 4
        assert values[-1] == pytest.approx(100 * BAR)
    else:
        assert read(machine, 10.0) > before  # 100 bar in 10 ms are 10 000 bar/s at first
    assert machine["change.p_A"] <= 20_000 * BAR


def test_a_sample_of_a_slow_device_counts_once() -> None:
    """Read every 4 ms, first seen with an age of 0.4 or 1.3 ticks: the time since the sample before, then nothing."""
    machine, intervals = bench(scale={"raw": [0, 10], "value": ["0 bar", "100 bar"]}, valid_raw=[0, 11]), []
    machine.ages["p_A"] = 0.0
    read(machine, 5.0)
    for latency in (0.4e-3, 1.3e-3, 0.4e-3):
        for tick in range(4):
            machine.ages["p_A"] = latency + tick * DT
            read(machine, 5.0)
            intervals.append(machine["interval.p_A"])
    assert intervals[4:] == pytest.approx([3.1e-3, 0.0, 0.0, 0.0, 4.9e-3, 0.0, 0.0, 0.0], abs=1e-12)
    machine.ages["p_A"] = 0.0
    assert read(machine, 12.0) != 120 * BAR  # not valid: no sample
    assert machine["interval.p_A"] == 0.0


def test_a_ramp_within_the_valid_rate_is_accepted_filtered_or_not() -> None:
    for time_constant in ("0 s", "10 ms"):
        machine = bench(
            scale={"raw": [0, 10], "value": ["0 bar", "100 bar"]}, valid_rate="1010 bar/s", filter=time_constant
        )
        for k in range(101):
            read(machine, 0.1 * k)
            assert machine["stale.p_A"] == 0.0


def test_reason_why_a_reading_is_rejected() -> None:
    loop = channel(scale=LOOP, valid=["-1 bar", "150 bar"])
    assert loop.why_invalid(0.012) == ""
    assert loop.why_invalid(0.001) == "raw 0.001 is outside 0.0036 … 0.021: broken wire or failed sensor"
    assert loop.why_invalid(0.0195) == "155 bar is outside its valid range, -1 bar … 150 bar"
    assert loop.why_invalid(nan) == "the device has no sample"
    assert channel(scale=TABLE, valid_raw=[0, 5]).why_invalid(7) == "raw 7 is outside 0 … 5"


# --- outputs ---------------------------------------------------------------------------------------------------------


def output(**values: Any) -> OutputSettings:
    return OutputSettings.model_validate({"device": "card", "output": "v", "on": "armed", **values})


def test_an_output_in_engineering_units() -> None:
    """A pump's set pressure: 0 … 10 V for 0 … 250 bar; a current for a proportional relief valve."""
    scale = {"raw": [0, 10], "value": ["0 bar", "250 bar"]}
    assert output(scale=scale, value=["20 bar", "140 bar"]).levels() == pytest.approx((0.8, 5.6))
    assert output(scale=LOOP, value=["0 bar", "80 bar"]).levels() == pytest.approx((0.004, 0.012))
    assert output(raw=[1, 0]).levels() == (1.0, 0.0)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({}, "give raw, or value and scale"),
        ({"raw": [0, 1], "value": ["0 bar", "1 bar"]}, "give raw, or value and scale"),
        ({"value": ["0 bar", "1 bar"]}, "give raw, or value and scale"),
        ({"value": ["0 mm", "1 mm"], "scale": LOOP}, "same kind of quantity"),
        ({"value": ["1 bar", "1 bar"], "scale": LOOP}, "must differ"),
        ({"value": ["0 bar", "1 bar"], "scale": {"polynomial": [0, 1, 1], "unit": "bar"}}, "can't be inverted"),
    ],
)
def test_an_output_without_two_levels_is_refused(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError) as caught:
        output(**values)
    assert reason in str(problems_of(caught.value, values))


# --- as a person reads it ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "raw", "text"),
    [
        ({"scale": {"raw": [0, 10], "value": ["-50 degC", "150 degC"]}, "valid": ["-40 degC", "90 degC"]}, 7.5,
         "100 °C is outside its valid range, -40 °C … 90 °C"),
        ({"scale": {"raw": [0, 10], "value": ["0 kN", "20 kN"]}, "valid": ["0 kN", "15 kN"]}, 8.0,
         "16 kN is outside its valid range, 0 N … 15 kN"),
        ({"scale": {"raw": [0, 10], "value": ["0 rpm", "3000 rpm"]}, "valid": ["0 rpm", "1800 rpm"]}, 7.0,
         "2100 rpm is outside its valid range, 0 rpm … 1800 rpm"),
        ({"scale": {"raw": [0, 10], "value": ["0 Hz", "100 Hz"]}, "valid": ["0 Hz", "50 Hz"]}, 7.0,
         "70 Hz is outside its valid range, 0 Hz … 50 Hz"),
        ({"scale": {"raw": [0, 10], "value": ["-90 deg", "90 deg"]}, "valid": ["-45 deg", "45 deg"]}, 10.0,
         "90 deg is outside its valid range, -45 deg … 45 deg"),
        ({"scale": {"polynomial": [0, 18], "unit": "deg"}, "valid": ["0 deg", "90 deg"]}, 10.0,
         "180 deg is outside its valid range, 0 deg … 90 deg"),
        ({"scale": {"raw": [0, 10], "value": ["0 bar", "100 bar"]}, "absolute": True, "valid": ["1 bar", "50 bar"]},
         8.0, "80 bar absolute is outside its valid range, 1 bar … 50 bar absolute"),
    ],
)  # fmt: skip
def test_a_message_states_the_units_of_the_rig_file(settings: dict[str, Any], raw: float, text: str) -> None:
    """They were K, N, 1/s, radians without a unit, and absolute pressures that did not say so."""
    assert channel(**settings).why_invalid(raw) == text


def test_a_difference_of_temperatures_is_in_kelvin() -> None:
    temperature = channel(scale={"raw": [0, 10], "value": ["-50 degC", "150 degC"]})
    assert temperature.shown(293.15) == "20 °C"
    assert temperature.shown_difference(2.5) == "2.5 K"


def test_the_unit_of_a_channel_does_not_make_it_another() -> None:
    speeds = [channel(scale={"raw": [0, 10], "value": ["0 rpm", "3000 rpm"]}) for _ in range(2)]
    assert speeds[0] == speeds[1]
    assert pickle.loads(pickle.dumps(speeds[0])).shown(25.0) == "1500 rpm"
    assert speeds[0].model_copy(update={"delay": 0.01}).shown(25.0) == "1500 rpm"
