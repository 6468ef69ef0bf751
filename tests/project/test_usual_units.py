"""The units in which messages, tables and forms state a quantity."""

from __future__ import annotations

import pytest

from hilserver.cli.status import display
from hilserver.protocol.published import DatasheetValue
from hilserver.units import shown_value
from hilserver.web.datasheet import DatasheetField


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (293.15, "K", "20 °C"),
        (104.719755, "rad/s", "1000 rpm"),
        (0.5235987756, "rad", "30 deg"),
        (49876.0, "N", "49.88 kN"),
        (-2e3, "N", "-2 kN"),
        (300.0, "N", "300 N"),
    ],
)
def test_a_message_states_the_usual_unit(value: float, unit: str, text: str) -> None:
    """Not the SI unit, in which hilserver calculates."""
    assert shown_value(value, unit) == text


def test_the_state_shows_temperatures_in_degrees_celsius() -> None:
    assert display(293.15, "K") == ("20.0", "°C")


@pytest.mark.parametrize(
    ("unit", "ends", "text"),
    [("N", (500.0, 2e4), "500 N … 20 kN"), ("N", (0.0, 2e4), "0 … 20 kN"), ("Pa", (1e5, 4e8), "1 … 4000 bar")],
)
def test_a_range_states_each_unit_once(unit: str, ends: tuple[float, float], text: str) -> None:
    value = DatasheetValue(description="", required=True, unit=unit, minimum=ends[0], maximum=ends[1])
    assert DatasheetField("F", "", value).range == text
