"""The common units without pint, which takes a process 0.1 s to load: products of words and their conversion.

Amounts have those methods of pint's quantities that `hilserver.units` calls, and give the same numbers: the factors of
a conversion are multiplied in pint's order. (What is left to the rounding of the last digit, `round_trip` removes.)
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from hilserver.units.spellings import COMMON_UNITS

Powers = Mapping[str, float]
"""The power of each word in a product of units."""
_TOKEN = re.compile(r"\*\*|[*/·^()]|%|-?\d[\d.]*(?:e-?\d+)?|[^\W\d_][\w°]*")
_SAME = {"%": "percent", "dimensionless": "1"}


class _Definition(NamedTuple):
    """A unit is ``scale`` times a product of others; a base unit is none (None)."""

    scale: float
    product: Powers | None


@functools.cache
def _definition(word: str) -> _Definition:
    text = COMMON_UNITS[word].partition(";")[0].partition(" = ")[0]
    return _Definition(1.0, None) if text.startswith("[") else _Definition(*_read(_TOKEN.findall(text)[::-1]))


def _read(tokens: list[str], closing: str = "") -> tuple[float, dict[str, float]]:
    """Number and powers of a product, from left to right; the next token is the last one of the list.

    ``closing``: the token at its end. Raises ValueError where it is missing.
    """
    scale, powers, sign = 1.0, dict[str, float](), 1
    while (token := tokens.pop() if tokens else "") != closing:
        if not token or token == ")":
            raise ValueError("unbalanced parentheses")
        if token in "*·/":
            sign = -1 if token == "/" else 1
            continue
        number, factors = _factor(token, tokens)
        scale = scale * number if sign > 0 else scale / number
        for word, power in factors.items():
            powers[word] = powers.get(word, 0) + sign * power
            if powers[word] == 0:
                del powers[word]
        sign = 1
    return scale, powers


def _factor(token: str, tokens: list[str]) -> tuple[float, dict[str, float]]:
    """A number, a word or a product in parentheses, with its exponent."""
    token = _SAME.get(token, token)
    if token == "(":
        number, factors = _read(tokens, ")")
    else:
        number, factors = (float(token), dict[str, float]()) if token[0].isdigit() else (1.0, {token: 1.0})
    if tokens and tokens[-1] in ("^", "**"):
        tokens.pop()
        exponent = float(tokens.pop())
        number, factors = number**exponent, {word: exponent * power for word, power in factors.items()}
    return number, factors


@functools.lru_cache(maxsize=4096)
def powers_of(unit: str) -> Powers:
    """The powers of the words in a unit. KeyError for a word that is not among the common units."""
    powers = _read(_TOKEN.findall(unit)[::-1])[1]
    for word in powers:
        _definition(word)
    return powers


def _root(powers: Powers) -> tuple[float, dict[str, float]]:
    """Factor to base units, and the powers of these."""
    above, below, base = dict[float, float](), dict[float, float](), dict[str, float]()
    _resolve(powers, 1, above, below, base)
    for scale in above.keys() & below.keys():
        common = min(above[scale], below[scale])
        above[scale] -= common
        below[scale] -= common
    factor = 1.0
    for scale, power in above.items():
        factor *= scale**power
    for scale, power in below.items():
        factor *= scale**-power
    return factor, {word: power for word, power in base.items() if power}


def _resolve(
    powers: Powers, outer: float, above: dict[float, float], below: dict[float, float], base: dict[str, float]
) -> None:
    """Note the scales of all units in a product, by the sign of their powers, and the base units."""
    for word, power in powers.items():
        scale, product = _definition(word)
        power *= outer
        if product is None:
            base[word] = base.get(word, 0) + power
            continue
        side = above if power > 0 else below
        side[scale] = side.get(scale, 0) + abs(power)
        _resolve(product, power, above, below, base)


@functools.lru_cache(maxsize=4096)
def _conversion(unit: str, to: str) -> float:
    source, target = powers_of(unit), powers_of(to)
    quotient = dict(source)
    for word, power in target.items():
        quotient[word] = quotient.get(word, 0) - power
    return _root({word: power for word, power in quotient.items() if power})[0]


@functools.lru_cache(maxsize=4096)
def dimension_of(unit: str) -> Powers:
    """The power of each kind of quantity (``[length]``) in a unit; angles have none."""
    base = _root(powers_of(unit))[1]
    kinds = {COMMON_UNITS[word].partition(";")[0]: power for word, power in base.items()}
    return {kind: power for kind, power in kinds.items() if kind != "[]"}


@dataclass(frozen=True)
class CommonAmount:
    """A number with a unit."""

    magnitude: float
    unit: str = ""

    @property
    def dimensionality(self) -> Powers:
        """The power of each kind of quantity."""
        return dimension_of(self.unit)

    @property
    def unitless(self) -> bool:
        """Whether it has no unit; an angle has one."""
        return not self.to_root_units().unit_items()

    def is_compatible_with(self, unit: str) -> bool:
        """Whether it can be converted to this unit."""
        return self.dimensionality == dimension_of(unit)

    def to(self, unit: str) -> CommonAmount:
        """The same in another unit. Raises ValueError if it `is_compatible_with` this one not."""
        if not self.is_compatible_with(unit):
            raise ValueError(f"{self.unit or 'a number'} can't be converted to {unit}")
        if powers_of(self.unit) == powers_of(unit):
            return CommonAmount(self.magnitude, unit)
        return CommonAmount(self.magnitude * _conversion(self.unit, unit), unit)

    def to_root_units(self) -> CommonAmount:
        """The same in base units."""
        factor, powers = _root(powers_of(self.unit))
        return CommonAmount(self.magnitude * factor, "*".join(f"{word}^{power}" for word, power in powers.items()))

    def unit_items(self) -> list[tuple[str, float]]:
        """The words of the unit and their powers."""
        return list(powers_of(self.unit).items())

    def __mul__(self, other: CommonAmount) -> CommonAmount:
        return CommonAmount(self.magnitude * other.magnitude, f"({self.unit or '1'})*({other.unit or '1'})")


class CommonUnits:
    """In the place of pint's registry."""

    Quantity = CommonAmount

    @staticmethod
    def parse_units(unit: str) -> str:
        """The unit; KeyError for a word that is not among the common units."""
        powers_of(unit)
        return unit


_IN_TURNS, _IN_RADIANS = ("1/s", "Hz", "s^-1", "m^3"), ("rad", "rad/s", "N*m*s")
"""SI units of values that count revolutions (speeds, frequencies, displacements) and of those that count radians."""
_ANGLES, _TURNS = {"rad", "radian"}, {"rev", "revolution", "rpm", "rps"}


def turns(amount: Any, unit: str) -> float:
    """Factor between radians and revolutions, as pint counts both as 1: ``10 rad/s`` are 1.59 1/s.

    Unlike that, ``1 rev`` as an angle is 6.28 rad. 1 where the value is written in what it counts. Raises ValueError
    for an angular speed that may count either: ``1500 min⁻¹``.
    """
    if unit in _IN_TURNS:
        return float((2.0 * math.pi) ** -_power(amount.to_root_units(), _ANGLES))
    turns = _power(amount, _TURNS)
    if unit == "rad/s" and not turns and not _power(amount.to_root_units(), _ANGLES):
        raise ValueError("revolutions or radians? Write rpm or rad/s")
    return float((2.0 * math.pi) ** turns) if unit in _IN_RADIANS else 1.0


def _power(amount: Any, words: set[str]) -> float:
    return sum(float(power) for word, power in amount.unit_items() if word in words)
