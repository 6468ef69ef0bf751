"""Radians and revolutions: a speed in rad/s, a displacement per radian, an angle in revolutions mean what they say."""

from __future__ import annotations

from math import pi

import pytest
from component_bench import Bench

from hilserver.units import dimensional, quantity, to_si


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("1500 rpm", "1/s", 25.0),
        ("25 rev/s", "1/s", 25.0),
        ("25 Hz", "1/s", 25.0),
        ("10 rad/s", "1/s", 10 / (2 * pi)),
        ("10 radian/s", "1/s", 10 / (2 * pi)),
        ("360 deg/s", "1/s", 1.0),
        ("28 cm^3/rev", "m^3", 28e-6),
        ("28 cm^3", "m^3", 28e-6),
        ("4 cm^3/rad", "m^3", 8e-6 * pi),
        ("0.5 rev", "rad", pi),
        ("90 deg", "rad", pi / 2),
        ("0.5 N*m*s/rad", "N*m*s", 0.5),
        ("0.5 N*m*s/rev", "N*m*s", 0.5 / (2 * pi)),
        ("1 N*m/rpm", "N*m*s", 30 / pi),
    ],
)
def test_radians_and_revolutions_are_not_the_same(text: str, unit: str, expected: float) -> None:
    assert to_si(text, unit) == pytest.approx(expected, rel=1e-14)


def test_expressions_and_channels_do_the_same() -> None:
    value, dimension = dimensional("10 rad/s")
    assert value == pytest.approx(10 / (2 * pi))
    assert dict(dimension) == {"s": -1.0}
    assert quantity("10 rad/s").value == pytest.approx(10 / (2 * pi))
    assert quantity("1500 rpm").value == 25.0


@pytest.mark.parametrize("speed", ["10 rad/s", f"{10 / (2 * pi)!r} rev/s", f"{300 / pi!r} rpm", f"{1800 / pi!r} deg/s"])
def test_a_shaft_turns_at_the_speed_that_is_written(speed: str) -> None:
    inertia = {"type": "inertia", "ports": {"shaft": "shaft"}, "inertia": "1 kg*m^2"}
    bench = Bench({"components": {"inertia": inertia}, "nodes": {"shaft": {"speed": speed}}})
    bench.run(0.1, 1e-3)
    assert bench["shaft.w"] == pytest.approx(10.0, rel=1e-12)
    assert bench["shaft.phi"] == pytest.approx(1.0, rel=1e-9)
