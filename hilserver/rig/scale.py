"""Raw readings and the quantities that they represent: points, a 4 … 20 mA loop, or a polynomial; in both
directions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from math import inf

import numpy as np
from pydantic import Field, model_validator

from hilserver.components.base import Datasheet
from hilserver.errors import shown
from hilserver.numerics.arrays import Floats
from hilserver.units import AnyQuantity, Number, Resistance, quantity, usual_unit

LIVE_ZERO = (0.004, 0.020)
"""A: the current of a 4 … 20 mA transmitter at the ends of its range."""
LIVE = (0.0036, 0.021)
"""A: below or above a transmitter reports a failure, or the wire is broken or shorted. Source: NAMUR NE 43."""
HIGHEST_DEGREE = 5
_WRITTEN = re.compile(r"\s*[+-]?[\d.]+(?:[eE][+-]?\d+)?\s*(.*)")


@dataclass(frozen=True)
class Curve:
    """Raw reading -> SI value: a polynomial (``coefficients``, of rising powers), or straight lines through ``points``.

    ``points`` are (raw, value) of rising raw readings; beyond them the outer lines are extended.
    """

    coefficients: tuple[float, ...] = ()
    points: tuple[tuple[float, float], ...] = ()

    def value(self, raw: float) -> float:
        """The SI value of a raw reading.

        >>> Curve(points=((0.0, 0.0), (1.0, 10.0), (2.0, 40.0))).value(1.5)
        25.0
        >>> Curve((1.0, 2.0, 0.5)).value(2.0)
        7.0
        """
        if not self.points:
            return float(np.polynomial.polynomial.polyval(raw, self.coefficients))
        return _on_lines(self.points, raw)

    def values(self, raw: Floats) -> Floats:
        """The SI values of many raw readings.

        >>> Curve(points=((0.0, 0.0), (1.0, 10.0), (2.0, 40.0))).values(np.array([-1.0, 1.5, 3.0]))
        array([-10.,  25.,  70.])
        """
        if not self.points:
            return np.asarray(np.polynomial.polynomial.polyval(raw, self.coefficients), dtype=np.float64)
        x, y = np.array(self.points).T
        k = np.clip(np.searchsorted(x, raw, side="right") - 1, 0, len(x) - 2)
        return np.asarray(y[k] + (y[k + 1] - y[k]) * (raw - x[k]) / (x[k + 1] - x[k]), dtype=np.float64)

    def raw(self, value: float) -> float:
        """The raw reading of an SI value. ValueError for a polynomial that is not a straight line.

        >>> Curve(points=((0.0, 0.0), (1.0, 10.0), (2.0, 40.0))).raw(55.0)
        2.5
        """
        if self.points:
            back = [(v, r) for r, v in self.points]
            return _on_lines(tuple(sorted(back)), value)
        if len(self.coefficients) != 2:
            raise ValueError("a polynomial can't be inverted: give points")
        return (value - self.coefficients[0]) / self.coefficients[1]

    def nearest_raw(self, value: float, limits: tuple[float, float] = (-inf, inf)) -> float:
        """The raw reading of an SI value, also for a curved polynomial.

        Of several readings, the one within the limits of the raw readings, or nearest to them; of several within them,
        the one nearest to 0. Where the polynomial does not reach the value, the reading at its extremum.

        >>> round(Curve((0.0, 25.0, 0.1)).nearest_raw(135.0), 3)
        5.288
        """
        if self.points or len(self.coefficients) == 2:
            return self.raw(value)
        roots = np.polynomial.polynomial.polyroots((self.coefficients[0] - value, *self.coefficients[1:]))
        low, high = limits

        def unlikeliness(root: complex) -> tuple[bool, float, float]:
            outside = max(low - root.real, root.real - high, 0.0)
            return abs(root.imag) > 1e-6 * abs(root), outside, abs(root)

        return float(min(map(complex, roots), key=unlikeliness).real)

    def less(self, offset: float) -> Curve:
        """The curve with ``offset`` (SI) taken from all its values."""
        if self.points:
            return Curve(points=tuple((raw, value - offset) for raw, value in self.points))
        return Curve((self.coefficients[0] - offset, *self.coefficients[1:]))


def _on_lines(points: tuple[tuple[float, float], ...], x: float) -> float:
    (x0, y0), (x1, y1) = next((pair for pair in pairwise(points) if x < pair[1][0]), points[-2:])
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


class Scale(Datasheet):
    """The meaning of raw readings: ``raw`` and ``value`` (points), ``current`` (4 … 20 mA), or ``polynomial``.

    Two points give a straight line, more of them straight lines from point to point.
    """

    raw: tuple[Number, ...] | None = Field(
        default=None, examples=[[0, 10]], description="raw readings of two or more points"
    )
    value: tuple[AnyQuantity, ...] | None = Field(
        default=None, examples=[["0 bar", "250 bar"]], description="the values that they represent, with units"
    )
    current: tuple[AnyQuantity, AnyQuantity] | None = Field(
        default=None,
        examples=[["0 bar", "400 bar"]],
        description="4 … 20 mA: the values at 4 mA and at 20 mA, from raw readings in A (in V over a shunt); below "
        "3.6 mA (broken wire) and above 21 mA there is no sample",
    )
    shunt: Resistance | None = Field(default=None, gt=0, description="current: the resistor whose voltage is read")
    polynomial: tuple[Number, ...] | None = Field(
        default=None,
        examples=[[0.2, 25.03, -0.004]],
        min_length=2,
        max_length=HIGHEST_DEGREE + 1,
        description="value in `unit` = c0 + c1·raw + c2·raw² …: [c0, c1, …]",
    )
    unit: str | None = Field(default=None, description="polynomial: the unit of its values")
    range: tuple[AnyQuantity, AnyQuantity] | None = Field(
        default=None,
        examples=[["0 bar", "250 bar"]],
        description="range of the sensor; default: from the first point to the last, or at 4 mA "
        "and 20 mA. Not known without it: with a polynomial, and with the raw readings 0 and 1 (a factor)",
    )

    @model_validator(mode="after")
    def _one_way(self) -> Scale:
        points = self.raw is not None or self.value is not None
        if points + (self.current is not None) + (self.polynomial is not None) != 1:
            raise ValueError("scale: give raw and value (points), or current (4 … 20 mA), or polynomial and unit")
        if (self.polynomial is None) != (self.unit is None):
            raise ValueError("scale: give polynomial and unit together")
        if self.shunt is not None and self.current is None:
            raise ValueError("scale.shunt is for current only")
        if points:
            self._check_points()
        if self.current is not None:
            _check_values(self.current, "scale.current")
        if self.polynomial is not None and not any(self.polynomial[1:]):
            raise ValueError("scale.polynomial: the value does not depend on the reading")
        if self.unit is not None:
            in_si(self.unit)
        if self.range is not None:
            _check_values(self.range, "scale.range")
            if self.range[0].unit != self.si_unit:
                raise ValueError(f"scale.range must be in the unit of the values, {usual_unit(self.si_unit) or 'none'}")
        return self

    def _check_points(self) -> None:
        if self.raw is None or self.value is None or len(self.raw) != len(self.value) or len(self.raw) < 2:
            raise ValueError("scale: give as many raw readings as values, at least two")
        if len(set(self.raw)) < len(self.raw):
            raise ValueError("scale.raw: the readings must differ")
        _check_values([value for _, value in sorted(zip(self.raw, self.value, strict=True), key=lambda p: p[0])])

    @property
    def si_unit(self) -> str:
        """SI unit of the values."""
        if self.unit is not None:
            return in_si(self.unit)[0]
        values = self.value or self.current
        assert values is not None
        return values[0].unit

    def range_values(self) -> tuple[float, float] | None:
        """Values between which the sensor measures, SI, the lower first; None if that is not known.

        >>> Scale(raw=(0, 10), value=("0 m", "2 m")).range_values()
        (0.0, 2.0)
        """
        is_factor = self.raw is not None and set(self.raw) == {0.0, 1.0}
        values = self.range or self.current or (None if is_factor else self.value)
        found = sorted(value.value for value in values or ())
        return (found[0], found[-1]) if found else None

    def curve(self) -> Curve:
        """Raw reading -> SI value."""
        if self.polynomial is not None:
            assert self.unit is not None
            _, zero, factor = in_si(self.unit)
            first, *others = (factor * coefficient for coefficient in self.polynomial)
            return Curve((first + zero, *others))
        raw, values = self.raw, self.value
        if self.current is not None:
            raw, values = self._readings(LIVE_ZERO), self.current
        assert raw is not None
        assert values is not None
        points = tuple(sorted((r, v.value) for r, v in zip(raw, values, strict=True)))
        if len(points) > 2:
            return Curve(points=points)
        (r0, v0), (r1, v1) = points
        gain = (v1 - v0) / (r1 - r0)
        return Curve((v0 - gain * r0, gain))

    def live_range(self) -> tuple[float, float] | None:
        """Raw readings outside of which there is no sample; None if the scale does not define any."""
        return self._readings(LIVE) if self.current is not None else None

    def _readings(self, currents: tuple[float, float]) -> tuple[float, float]:
        ohm = self.shunt if self.shunt is not None else 1.0
        return currents[0] * ohm, currents[1] * ohm


def _check_values(values: list[AnyQuantity] | tuple[AnyQuantity, ...], key: str = "scale.value") -> None:
    """Raises ValueError unless the values are of one kind and strictly monotonic."""
    if len({value.unit for value in values}) > 1:
        raise ValueError(f"{key}: all values must be of the same kind of quantity")
    steps = [b.value - a.value for a, b in pairwise(values)]
    if not (all(step > 0 for step in steps) or all(step < 0 for step in steps)):
        raise ValueError(f"{key}: the values must be strictly monotonic over increasing readings")


def written_unit(raw: object) -> str:
    """The unit in which a value of a configuration is written; empty for a plain number.

    >>> written_unit("3000 rpm"), written_unit(0.5)
    ('rpm', '')
    """
    written = _WRITTEN.fullmatch(raw) if isinstance(raw, str) else None
    return written[1].strip() if written is not None else ""


def in_si(unit: str) -> tuple[str, float, float]:
    """(SI unit, value of 0, size of 1) of a unit: ("K", 273.15, 1.0) for degC. ValueError for none of a channel's."""
    try:
        zero, one = quantity(f"0 {unit}"), quantity(f"1 {unit}")
    except ValueError:
        raise ValueError(f"{shown(unit)} is not a unit in which channels are measured") from None
    return zero.unit, zero.value, one.value - zero.value
