"""Units of the configuration: ``"40 l/min"`` becomes 6.667e-4 m^3/s.

Every dimensional configuration value is a text with a unit and becomes an SI float once, when the file is loaded.
Pressures are gauge pressures (0 bar is the atmosphere) unless a field is marked absolute.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from hilserver.errors import did_you_mean, shown
from hilserver.units.common import CommonUnits, turns
from hilserver.units.registries import COMMON_WORDS, WORD, common_registry, registry
from hilserver.units.spellings import ABSOLUTE, COMMON_UNITS, plain_unit

ATMOSPHERE = 101_325.0
"""Pa; absolute pressure = gauge pressure + ATMOSPHERE (standard atmosphere, ISO 2533)."""
BAR = 1e5
"""Pa."""
L_MIN = 1.0 / 6e4
"""A litre per minute, m^3/s."""
GAL_MIN = 3.785411784e-3 / 60.0
"""A US gallon per minute, m^3/s."""
PSI = 6894.757293168
"""A pound-force per square inch, Pa; exact to the digits given."""
RPM = 1.0 / 60.0
"""A revolution per minute, 1/s."""

_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?![\d.])\s*")
_FACTOR = r"\(?\s*(?:1|%|[^\W\d_][\w°]*)(?:\s*(?:\^|\*\*)\s*-?\d(?:\.\d{1,3})?(?![\d.]))?\s*\)?"
_UNIT = re.compile(rf"(?:{_FACTOR}(?:\s*[*/·]\s*|\s+|$))*+(?<![*/·])")
"""Possessive (``*+``): with backtracking, it would try exponentially many ways to match ``m / m / … / !``."""
_SEPARATED = re.compile(r"\s*[+-]?\d[\d.]*(?:[,']\d| \d{3}(?!\d))")
"""A number as in ``1,5``, ``1'000``, ``1.000,5`` and ``1 000``."""
_LONGEST = 80


def parse(text: str, *others: str) -> Any:
    """``"36 l/min"`` -> a quantity, of a registry that also has the units ``others``. ValueError with the reason.

    Only a number with a product of units is accepted: pint would evaluate any expression, even ``9**9**9**9``.
    """
    number = _NUMBER.match(text)
    if number is None or len(text) > _LONGEST:
        raise ValueError(f"{shown(text)} is not a number with a unit")
    unit = _product_of_units(text[number.end() :])
    value = float(number[1])
    if not math.isfinite(value):
        raise ValueError(f"{shown(text)} has no finite number")
    if unit is None and _SEPARATED.match(text):
        raise ValueError(f"{shown(text)}: write decimals with a point, and no thousands separator")
    if unit is None:
        raise ValueError(f"{shown(text)} has no unit that can be read")
    if unit in ABSOLUTE:
        gauge = unit[:3].lower()
        raise ValueError(f"{shown(text)} is an absolute pressure: write {gauge}, above that of the atmosphere")
    try:
        units = registry(unit, *others)
        return units.Quantity(value, units.parse_units(unit))
    except Exception as error:  # pint raises many kinds of exceptions, including tokenizer errors
        unknown = next(iter(getattr(error, "unit_names", ())), "")
        reason = f"{unknown} is unknown.{_meant(unknown, unit, *others)}".rstrip(".") if unknown else error
        raise ValueError(f"{shown(text)} has no unit that can be read ({reason})") from None


def _meant(word: str, unit: str, wanted: str = "") -> str:
    """The unit that may be meant by an unknown word in a unit, to be one of the quantity ``wanted``; or nothing."""
    units = common_registry()
    meant = {name: re.sub(rf"(?<![^\W_]){re.escape(word)}(?![^\W_])", name, unit) for name in COMMON_UNITS}
    choices = [name for name, said in meant.items() if not wanted or _compatible(units, said, wanted)]
    hint = did_you_mean(word, choices)
    return hint if wanted or not hint.startswith(" Allowed") else ""


def _compatible(units: CommonUnits, unit: str, wanted: str) -> bool:
    try:
        return units.Quantity(1.0, units.parse_units(unit)).is_compatible_with(wanted)
    except Exception:  # another word that is unknown, or not a common one
        return False


@functools.lru_cache(maxsize=1024)
def _product_of_units(text: str) -> str | None:
    """A product of units as pint reads it: ``"cm3/min"`` -> ``"cm^3/min"``; None if it is something else."""
    unit = plain_unit(text)
    return unit if len(unit) <= _LONGEST and _UNIT.fullmatch(unit) else None


@functools.lru_cache(maxsize=8192)  # a study or a test reads the same values again and again
def to_si(text: str, unit: str) -> float:
    """Convert ``"35 bar"`` to a float in the SI ``unit``; raises ValueError with the problem and its remedy.

    The unit may be any text, such as the unit of a signal in a log of another program.

    >>> to_si("36 l/min", "m^3/s")
    0.0006
    """
    number = _NUMBER.match(text)
    factors = _factors(text[number.end() :], unit) if number is not None and len(text) <= _LONGEST else None
    if number and factors and abs(value := float(number[1]) * factors[0] * factors[1]) <= LARGEST:
        return round_trip(value)
    return _converted(text, unit)


@functools.lru_cache(maxsize=1024)
def _factors(unit: str, si: str) -> tuple[float, float] | None:
    """By what a number in a common unit is multiplied: to convert it, and for revolutions. None: it must be parsed."""
    source, target = _product_of_units(unit), _product_of_units(si)
    if source is None or target is None or not {*WORD.findall(source), *WORD.findall(target)} <= COMMON_WORDS:
        return None
    try:
        one = common_registry().Quantity(1.0, source)
        return float(one.to(target or "dimensionless").magnitude), turns(one, si)
    except (ValueError, KeyError, OverflowError):
        return None


def _converted(text: str, unit: str) -> float:
    """The same for any unit, and with any problem."""
    si = _product_of_units(unit)
    if si is None:
        raise ValueError(f"{shown(unit)} is not a unit that can be converted to")
    amount = parse(text, si)
    try:
        if amount.is_compatible_with(si or "dimensionless"):
            return _magnitude(amount, si, text)
    except ValueError:
        raise
    except Exception as error:  # as above, here about the SI unit
        raise ValueError(f"{shown(unit)} is not a unit that can be converted to ({error})") from None
    has = "no unit" if amount.unitless and not text.strip().endswith("%") else "the wrong unit"
    raise ValueError(f"{shown(text)} has {has}: this value is measured in {unit or 'no unit'}")


def difference_to_si(text: str, unit: str) -> float:
    """Like `to_si`, for a difference of two values.

    >>> difference_to_si("2 degC", "K"), difference_to_si("5 bar", "Pa")
    (2.0, 500000.0)
    """
    amount, number = to_si(text, unit), _NUMBER.match(text)
    assert number is not None  # or it would have been refused
    return round_trip(amount - to_si(f"0 {text[number.end() :]}", unit))


LARGEST = 1e20
"""Upper limit of all values, in SI units: larger ones could overflow in calculations and do not occur in hydraulics."""


def _magnitude(amount: Any, unit: str, text: object) -> float:
    """The value in SI units, without the rounding error of the conversion; raises ValueError if it is too large."""
    return round_trip(_exact(amount, unit, text))


def _exact(amount: Any, unit: str, text: object) -> float:
    """The value in SI units as converted; raises ValueError if it is too large."""
    try:
        value = float(amount.to(unit or "dimensionless").magnitude) * turns(amount, unit)
    except OverflowError:
        value = math.inf
    except ValueError as error:
        raise ValueError(f"{shown(text)}: {error}") from None
    if not abs(value) <= LARGEST:
        raise ValueError(f"{shown(text)} is too large: at most {LARGEST:g} {unit}".rstrip())
    return value


Dimension = Mapping[str, float]
"""A kind of quantity: the power of each SI base unit (``{"m": 1, "s": -1}``); empty: no unit."""
_BASE = {"[length]": "m", "[mass]": "kg", "[time]": "s", "[current]": "A", "[temperature]": "K"}
_NAMED = ("Pa", "m^3/s", "m/s", "m/s^2", "N", "N*m", "N/m", "W", "Hz", "m^3/(s*Pa)", "Pa^0.5")
"""Units written by their usual name, where the base units are those of one of them."""


def dimensional(text: str) -> tuple[float, Dimension]:
    """A text with a unit as its value in SI base units, and the power of each. Raises ValueError.

    >>> dimensional("25 cm^2")
    (0.0025, {'m': 2.0})
    """
    amount = parse(text)
    powers = {str(base): float(power) for base, power in amount.dimensionality.items()}
    if not powers.keys() <= _BASE.keys():
        raise ValueError(f"{shown(text)} is in a unit that is not used in hydraulics")
    dimension = {_BASE[base]: power for base, power in powers.items()}
    return _exact(amount, _product(dimension), text), dimension


def si_value(text: str) -> tuple[float, str]:
    """A text with a unit as its value and its SI unit; an angle is in rad. Raises ValueError.

    >>> si_value("35 bar"), si_value("5 %"), si_value("0 deg")
    ((3500000.0, 'Pa'), (0.05, ''), (0.0, 'rad'))
    """
    value, dimension = dimensional(text)
    angle = not dimension and any(word in text for word in ("deg", "rad"))
    return round_trip(value), "rad" if angle else unit_of(dimension)


def value_and_unit(given: object) -> tuple[float, str]:
    """A plain number, or a text with a unit, as its value and its SI unit. Raises ValueError.

    >>> value_and_unit(0.05), value_and_unit("35 bar")
    ((0.05, ''), (3500000.0, 'Pa'))
    """
    if isinstance(given, str):
        return si_value(given)
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise ValueError(f"{shown(given)} is neither a number nor a text with a unit")
    return finite(given), ""


def unit_of(dimension: Dimension) -> str:
    """The SI unit of a kind of quantity; empty for none.

    >>> unit_of({"kg": 1, "m": -1, "s": -2}), unit_of({"m": 2}), unit_of({})
    ('Pa', 'm^2', '')
    """
    return _common_names().get(frozenset(dimension.items()), _product(dimension))


def with_unit(value: float, dimension: Dimension) -> float | str:
    """A value in SI units as in a configuration file: a plain number, or a text with a unit."""
    value = round_trip(value)
    return f"{value!r} {unit_of(dimension)}" if dimension else value


def _product(dimension: Dimension) -> str:
    return "*".join(base if power == 1 else f"{base}^{power:.3g}" for base, power in sorted(dimension.items()))


@functools.cache
def _common_names() -> dict[frozenset[tuple[str, float]], str]:
    return {frozenset(dimensional(f"1 {name}")[1].items()): name for name in _NAMED}


def round_trip(value: float) -> float:
    """Remove the rounding error of a unit conversion in the last digit (6.0000000000000006e-4 becomes 6e-4)."""
    return float(f"{value:.15g}")


def from_si(value: float, unit: str, shown: str) -> float:
    """Convert an SI value for display, e.g. ``from_si(1e5, "Pa", "bar")`` = 1.0."""
    return float(registry(unit, shown).Quantity(value, unit).to(shown).magnitude)


_SHOWN = {"Pa": ("bar", 1e-5), "m^3/s": ("l/min", 6e4), "m^3": ("l", 1e3), "m": ("mm", 1e3)}
_SHOWN["m^3/(s*Pa)"] = ("l/min/bar", 6e9)
PLAIN = 1e6
"""Numbers below it are shown without an exponent."""


def shown_unit(unit: str) -> tuple[str, float]:
    """The unit in which tables and diagrams show a quantity, and the factor from SI to it.

    >>> shown_unit("Pa"), shown_unit("N")
    (('bar', 1e-05), ('N', 1.0))
    """
    return _SHOWN.get(unit, (unit, 1.0))


ZERO_CELSIUS = 273.15
"""K."""
_IN_TEXTS = {"rad": ("deg", 180.0 / math.pi), "rad/s": ("rpm", 30.0 / math.pi)}


def usual_unit(unit: str) -> str:
    """The unit in which a message names a kind of quantity.

    >>> usual_unit("K"), usual_unit("Pa"), usual_unit("s")
    ('°C', 'bar', 's')
    """
    return in_usual_unit(0.0, unit)[1]


def in_usual_unit(value: float, unit: str) -> tuple[float, str]:
    """An SI value as an engineer states it, and the unit of that.

    >>> in_usual_unit(293.15, "K"), in_usual_unit(12e3, "N"), in_usual_unit(500.0, "N")
    ((20.0, '°C'), (12.0, 'kN'), (500.0, 'N'))
    """
    return (value - ZERO_CELSIUS, "°C") if unit == "K" else _difference(value, unit)


def _difference(value: float, unit: str) -> tuple[float, str]:
    if unit == "N" and abs(value) >= 1e3:
        return 1e-3 * value, "kN"
    shown, factor = _IN_TEXTS.get(unit) or shown_unit(unit)
    return value * factor, shown


def shown_value(value: float, unit: str, digits: int = 4) -> str:
    """An SI value in a message.

    >>> shown_value(3.5e6, "Pa"), shown_value(1e-3, "m^3/s"), shown_value(0.5, ""), shown_value(3142.0, "Hz", 2)
    ('35 bar', '60 l/min', '0.5', '3100 Hz')
    """
    return with_digits(*in_usual_unit(value, unit), digits)


def shown_difference(value: float, unit: str, digits: int = 4) -> str:
    """A difference of two SI values, or their noise, in a message.

    >>> shown_difference(5.0, "K"), shown_value(278.15, "K"), shown_difference(5e5, "Pa")
    ('5 K', '5 °C', '5 bar')
    """
    return with_digits(*_difference(value, unit), digits)


def with_digits(number: float, unit: str, digits: int) -> str:
    """A number with its unit, without an exponent as far as possible."""
    text = f"{number:.{digits}g}"
    if "e+0" in text and abs(float(text)) < PLAIN:
        text = f"{float(text):.0f}"
    return f"{text} {unit}".rstrip()


_BY_LETTER = {
    "p": "Pa",
    "q": "m^3/s",
    "Q": "m^3/s",
    "x": "m",
    "v": "m/s",
    "F": "N",
    "phi": "rad",
    "w": "rad/s",
    "T": "N*m",
}


CIRCUIT = "circuit."
"""Beginning of the names of the virtual circuit's values where they stand beside channels and valves."""


def unit_of_value(name: str) -> str:
    """SI unit of a virtual circuit's value by the letter in the last part of its name; empty if it implies none.

    >>> unit_of_value("supply.p"), unit_of_value("pump.q_P"), unit_of_value("joystick")
    ('Pa', 'm^3/s', '')
    """
    _, dot, last = name.rpartition(".")
    return _BY_LETTER.get(last.split("_")[0], "") if dot else ""


@dataclass(frozen=True)
class Unit:
    """Pydantic annotation: a text with a unit in the configuration, an SI float in the model.

    ``most``: what no hydraulic system exceeds; a larger value is a mistake in writing, and refused.
    """

    si: str
    example: str
    most: str = ""

    @property
    def largest(self) -> float:
        """The largest value accepted, in the SI unit."""
        return to_si(self.most, self.si) if self.most else LARGEST

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._parse, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "examples": [self.example], "x-si-unit": self.si}

    def _parse(self, value: object) -> float:
        if isinstance(value, str):
            try:
                amount = to_si(value, self.si)
            except ValueError as error:
                raise ValueError(f'{error}; write it like "{self.example}"') from None
            if abs(amount) > self.largest:
                raise ValueError(f"{shown(value)} is out of range: at most {self.most}")
            return amount
        raise ValueError(f'{shown(value)} has no unit; write it like "{self.example}"')


@dataclass(frozen=True)
class PlainNumber:
    """Pydantic annotation: a number without a unit; ``"5 %"`` is accepted too."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._parse, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": ["number", "string"], "examples": [0.9, "90 %"]}

    def _parse(self, value: object) -> float:
        if isinstance(value, str):
            return to_si(value, "")
        return finite(value)


def finite(value: object) -> float:
    """A plain number as a float; ValueError for anything else, NaN, infinity and numbers too large for a float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{shown(value)} is not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{shown(value)} is not a finite number")
    return number


Number = Annotated[float, PlainNumber()]
Pressure = Annotated[float, Unit("Pa", "35 bar", most="4000 bar")]
Modulus = Annotated[float, Unit("Pa", "1.4 GPa")]
Flow = Annotated[float, Unit("m^3/s", "40 l/min", most="100000 l/min")]
Volume = Annotated[float, Unit("m^3", "2 l")]
Displacement = Annotated[float, Unit("m^3", "28 cm^3/rev", most="100 l/rev")]
Frequency = Annotated[float, Unit("1/s", "30 Hz")]
Speed = Annotated[float, Unit("1/s", "1500 rpm")]
Time = Annotated[float, Unit("s", "20 ms")]
Length = Annotated[float, Unit("m", "50 mm")]
Velocity = Annotated[float, Unit("m/s", "0.1 m/s")]
Acceleration = Annotated[float, Unit("m/s^2", "9.81 m/s^2")]
Area = Annotated[float, Unit("m^2", "12.5 cm^2")]
Mass = Annotated[float, Unit("kg", "500 kg")]
Density = Annotated[float, Unit("kg/m^3", "870 kg/m^3")]
Force = Annotated[float, Unit("N", "20 kN")]
KinematicViscosity = Annotated[float, Unit("m^2/s", "46 mm^2/s")]
Power = Annotated[float, Unit("W", "11 kW")]
Rate = Annotated[float, Unit("1/s", "20 1/s")]
Stiffness = Annotated[float, Unit("N/m", "1e8 N/m")]
Damping = Annotated[float, Unit("N*s/m", "2e5 N*s/m")]
LeakageCoefficient = Annotated[float, Unit("m^3/(s*Pa)", "0.1 l/min/bar")]
HoseModulus = Annotated[float, Unit("Pa^0.5", "2e5 Pa^0.5")]
Angle = Annotated[float, Unit("rad", "90 deg")]
Inertia = Annotated[float, Unit("kg*m^2", "12 kg*m^2")]
Torque = Annotated[float, Unit("N*m", "200 N*m")]
Resistance = Annotated[float, Unit("ohm", "500 ohm")]
RotaryDamping = Annotated[float, Unit("N*m*s", "0.5 N*m*s")]


SI_UNITS = ("Pa", "m^3/s", "m", "m/s", "m/s^2", "N", "1/s", "s", "kg", "m^3", "K", "")
"""The internal units of channels."""


class Quantity(BaseModel):
    """A value of any kind of quantity: SI value and SI unit."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    value: float
    unit: str


def quantity(raw: object) -> Quantity:
    """``"250 bar"`` -> Quantity(value=2.5e7, unit="Pa"); a plain number has no unit. Raises ValueError."""
    return _any_quantity(raw, "dimensionless", "250 bar")


def quantity_per_second(raw: object) -> Quantity:
    """``"250 bar/s"`` -> Quantity(value=2.5e7, unit="Pa"): a rate of change, with the unit of what changes."""
    return _any_quantity(raw, "s", "250 bar/s")


def difference(raw: object) -> Quantity:
    """``"5 bar"`` -> Quantity(value=5e5, unit="Pa"): a difference of two values, so 2 degC are 2 K."""
    amount = quantity(raw)
    if isinstance(raw, str) and amount.unit == "K":
        return Quantity(value=difference_to_si(raw, amount.unit), unit=amount.unit)
    return amount


def _any_quantity(raw: object, per: str, example: str) -> Quantity:
    if isinstance(raw, Quantity):
        return raw
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        raise ValueError(f'{shown(raw)} is not a value; write it like "{example}"')
    amount = parse(raw) if isinstance(raw, str) else registry().Quantity(finite(raw))
    if per != "dimensionless":
        amount = amount * type(amount)(1.0, per)
    for unit in SI_UNITS:
        if amount.is_compatible_with(unit or "dimensionless"):
            return Quantity(value=_magnitude(amount, unit, raw), unit=unit)
    known = ", ".join(u for u in SI_UNITS if u)
    raise ValueError(f'{shown(raw)}: no channel is measured in this unit (known: {known}); write it like "{example}"')


AnyQuantity = Annotated[Quantity, BeforeValidator(quantity)]
AnyDifference = Annotated[Quantity, BeforeValidator(difference)]
AnyRate = Annotated[Quantity, BeforeValidator(quantity_per_second)]
"""A rate of change; its unit is that of the quantity that changes."""
