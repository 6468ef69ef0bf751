"""What is watched of the readings of a channel, as derived from the rig file, and as it can be set."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from rich.console import Console

from hilserver.cli.rig_tables import watch_table
from hilserver.rig.build import load_rig
from hilserver.rig.calibration import Calibration, _calibrated
from hilserver.rig.channels import ChannelSettings
from hilserver.rig.rig import Rig
from hilserver.rig.scale import Scale
from hilserver.rig.watches import watches
from hilserver.units import ATMOSPHERE

RIGS = Path(__file__).parents[2] / "config" / "rigs"
BAR = 1e5
MEASURED = {"device": "rig", "source": "p"}


def channel(scale: dict[str, Any], **more: Any) -> ChannelSettings:
    return ChannelSettings.model_validate({**MEASURED, "scale": scale, **more})


def bars(settings: ChannelSettings) -> tuple[float, float]:
    low, high = settings.value_limits()
    return low / BAR, high / BAR


FOUR_TO_TWENTY = {"current": ["0 bar", "400 bar"]}
POINTS = {"raw": [0, 10], "value": ["0 bar", "400 bar"]}
VACUUM = -ATMOSPHERE / BAR


@pytest.mark.parametrize(
    ("scale", "low", "high"),
    [
        (FOUR_TO_TWENTY, VACUUM - 4.0, 440.0),
        (POINTS, VACUUM - 4.0, 440.0),
        ({"raw": [0, 10], "value": ["20 bar", "120 bar"]}, 10.0, 130.0),
        ({"raw": [0, 1], "value": ["0 bar", "0.1 bar"]}, VACUUM - 1.0, 1e4),
        ({"raw": [0, 1], "value": ["0 bar", "0.1 bar"], "range": ["0 bar", "100 bar"]}, VACUUM - 1.0, 110.0),
        ({"polynomial": [0, 25], "unit": "bar"}, VACUUM - 1.0, 1e4),
    ],
)
def test_the_valid_range_follows_from_the_scale(scale: dict[str, Any], low: float, high: float) -> None:
    assert bars(channel(scale)) == pytest.approx((low, high))


def test_an_absolute_pressure_is_not_below_vacuum_either() -> None:
    low, high = bars(channel(POINTS, absolute=True))
    assert (low, high) == pytest.approx((VACUUM - 4.0, 440.0 + VACUUM))


def test_a_range_in_the_rig_file_takes_precedence() -> None:
    assert bars(channel(POINTS, valid=["-5 bar", "500 bar"])) == pytest.approx((-5.0, 500.0))
    assert bars(channel(POINTS, watch={"range": False})) == (-float("inf"), float("inf"))


def test_points_of_a_calibration_do_not_narrow_the_range() -> None:
    entry = Calibration(date="2026-11-21T10:15:00+01:00", source="rig.p", unit="bar", polynomial=(0.5, 40.0))
    before = channel(POINTS)
    after = _calibrated(before, entry)
    low, high = bars(before)
    assert bars(after) == pytest.approx((low, high + 0.5))  # 0.5 bar at 0 V; the lowest is vacuum
    assert after.jump() == pytest.approx(before.jump())


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"watch": {"stuk": "off"}}, "stuk"),
        ({"watch": {"stuck": "hold"}}, "stuck"),
        ({"watch": {"estimate_limit": "3 mm"}}, "watch.estimate_limit must be in the channel's unit, bar"),
        ({"watch": {"supply_min": "3 l/min"}}, "watch.supply_min must be in the channel's unit, bar"),
    ],
)
def test_wrong_settings_are_named(more: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        channel(POINTS, **more)


def test_a_fixed_value_is_not_watched() -> None:
    with pytest.raises(ValidationError, match="has a fixed value and watch"):
        ChannelSettings.model_validate({"value": "0 bar", "watch": {"stuck": "off"}})


def test_a_range_must_be_in_the_unit_of_the_values() -> None:
    with pytest.raises(ValidationError, match=r"scale\.range must be in the unit of the values, bar"):
        Scale.model_validate({**POINTS, "range": ["0 mm", "3 mm"]})


@pytest.fixture(scope="module")
def demo() -> Rig:
    return load_rig(RIGS / "demo.toml")


def test_watches_of_the_demo_rig(demo: Rig) -> None:
    found = watches(demo.settings)
    cylinder = {f"{name}.{kind}" for name in ("p_A", "p_B", "Q_A", "x") for kind in ("jumps", "stuck", "estimate")}
    assert found.keys() == cylinder | {"p_S.jumps", "p_S.supply", "p_T.jumps"}
    assert {watch.action for name, watch in found.items() if name.endswith(".stuck")} == {"trip"}
    assert found["p_S.supply"].action == "ramp"
    piston = 3.141592653589793 / 4 * 0.063**2 * 1.0
    assert found["x.stuck"].upper == pytest.approx(0.05 * piston)
    assert found["p_A.stuck"].upper == pytest.approx(0.2 * piston)


def test_each_watch_is_set_or_switched_off_by_name(demo: Rig, tmp_path: Path) -> None:
    text = (RIGS / "demo.toml").read_text().replace('"../', f'"{RIGS.parent}/')
    line = 'x = { device = "rig", source = "x", scale = { raw = [0, 10], value = ["0 mm", "1000 mm"] }'
    assert line in text
    file = tmp_path / "demo.toml"
    watch = 'watch = { jumps = "off", stuck = "warn", estimate_limit = "7 mm" }'
    file.write_text(text.replace(line, f"{line}, {watch}"))
    rig = load_rig(file)
    before, now = watches(demo.settings), watches(rig.settings)
    assert before.keys() - now.keys() == {"x.jumps"}
    assert (now["x.stuck"].action, now["x.estimate"].upper) == ("warn", 0.007)
    assert "limit.x.jumps" not in rig.layout.names
    out = StringIO()
    Console(file=out, width=200).print(watch_table(rig))
    shown = {line.split("│")[1].strip(): line for line in out.getvalue().splitlines() if "│" in line}
    assert "switched off: jumps" in shown["x"]
    assert "± 7 mm: warn" in shown["x"]
    assert "below 5 bar for 0.2 s: ramp" in shown["p_S"]
    assert "by 150 bar in 1 ms: warn" in shown["p_A"]
    assert "stuck: no model of what moves it" in shown["p_T"]
