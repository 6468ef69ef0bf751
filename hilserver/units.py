"""Units at the edge: ``"40 l/min"`` in the configuration is 6.667e-4 m^3/s inside.

Every dimensional configuration value is a text with a unit and becomes an SI float once, when the file is loaded.
Pressures are gauge pressures (0 bar is the atmosphere) unless a field says absolute.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Annotated, Any

import pint
from pydantic import BaseModel, BeforeValidator, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

ATMOSPHERE = 101_325.0
"""Pa; absolute pressure = gauge pressure + ATMOSPHERE (standard atmosphere, ISO 2533)."""


@functools.cache
def registry() -> pint.UnitRegistry[Any]:
    """The unit registry: pint's own units; a revolution counts as 1, so ``1500 rpm`` is 25 1/s and ``28 cm^3/rev`` a volume."""
    units: pint.UnitRegistry[Any] = pint.UnitRegistry(cache_folder=":auto:", on_redefinition="ignore")
    units.define("rev = 1 = revolution")
    units.define("rpm = rev / minute")
    units.define("percent = 0.01 = %")
    return units


def to_si(text: str, unit: str) -> float:
    """Convert ``"35 bar"`` to a float in the SI ``unit``; ValueError says what is wrong and what would be right.

    >>> to_si("36 l/min", "m^3/s")
    0.0006
    """
    try:
        amount = registry().Quantity(text)
    except Exception as error:  # pint raises many kinds, tokenizer errors among them
        raise ValueError(f'"{text}" can\'t be read as a number with a unit ({error})') from None
    if not isinstance(amount.magnitude, int | float) or not math.isfinite(amount.magnitude):
        raise ValueError(f'"{text}" has no finite number')
    try:
        return round_trip(float(amount.to(unit or "dimensionless").magnitude))
    except pint.DimensionalityError:
        raise ValueError(f'"{text}" has the wrong unit: this value is measured in {unit or "no unit"}') from None


def round_trip(value: float) -> float:
    """Drop the last digit's noise of a unit conversion (6.0000000000000006e-4 is meant to be 6e-4)."""
    return float(f"{value:.15g}")


def from_si(value: float, unit: str, shown: str) -> float:
    """Convert an SI value for display, e.g. ``from_si(1e5, "Pa", "bar")`` = 1.0."""
    return float(registry().Quantity(value, unit).to(shown).magnitude)


@dataclass(frozen=True)
class Unit:
    """Pydantic annotation: a text with a unit in the configuration, an SI float in the model."""

    si: str
    example: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._parse, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "examples": [self.example], "x-si-unit": self.si}

    def _parse(self, value: object) -> float:
        if isinstance(value, str):
            try:
                return to_si(value, self.si)
            except ValueError as error:
                raise ValueError(f'{error}; write it like "{self.example}"') from None
        raise ValueError(f'{value!r} has no unit; write it like "{self.example}"')


@dataclass(frozen=True)
class PlainNumber:
    """Pydantic annotation: a number without a unit; ``"5 %"`` is understood too."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._parse, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": ["number", "string"], "examples": [0.9, "90 %"]}

    def _parse(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError(f"{value!r} is not a number")
        number = to_si(value, "") if isinstance(value, str) else float(value)
        if not math.isfinite(number):
            raise ValueError(f"{value!r} is not a finite number")
        return number


Number = Annotated[float, PlainNumber()]
Pressure = Annotated[float, Unit("Pa", "35 bar")]
Flow = Annotated[float, Unit("m^3/s", "40 l/min")]
Volume = Annotated[float, Unit("m^3", "2 l")]
Displacement = Annotated[float, Unit("m^3", "28 cm^3/rev")]
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
Power = Annotated[float, Unit("W", "11 kW")]
Rate = Annotated[float, Unit("1/s", "20 1/s")]
Stiffness = Annotated[float, Unit("N/m", "1e8 N/m")]
Damping = Annotated[float, Unit("N*s/m", "2e5 N*s/m")]
LeakageCoefficient = Annotated[float, Unit("m^3/(s*Pa)", "0.1 l/min/bar")]
HoseModulus = Annotated[float, Unit("Pa^0.5", "2e5 Pa^0.5")]
Angle = Annotated[float, Unit("rad", "90 deg")]
Inertia = Annotated[float, Unit("kg*m^2", "12 kg*m^2")]


SI_UNITS = ("Pa", "m^3/s", "m", "m/s", "m/s^2", "N", "1/s", "s", "kg", "m^3", "K", "")
"""The units in which channels are kept inside."""


class Quantity(BaseModel):
    """A value of any kind of quantity: SI value and SI unit."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    value: float
    unit: str


def quantity(raw: object) -> Quantity:
    """``"250 bar"`` -> Quantity(value=2.5e7, unit="Pa"); a plain number has no unit. ValueError says what would be right."""
    if isinstance(raw, Quantity):
        return raw
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        raise ValueError(f'{raw!r} is not a value; write it like "250 bar", or a plain number where there is no unit')
    try:
        amount = registry().Quantity(raw)
        for unit in SI_UNITS:
            if amount.is_compatible_with(unit or "dimensionless"):
                return Quantity(value=round_trip(float(amount.to(unit or "dimensionless").magnitude)), unit=unit)
    except Exception as error:  # pint raises many kinds
        raise ValueError(f"{raw!r} can't be read as a value with a unit ({error}); write it like \"250 bar\"") from None
    raise ValueError(f"{raw!r}: no channel is measured in this unit; known are {', '.join(u for u in SI_UNITS if u)}")


AnyQuantity = Annotated[Quantity, BeforeValidator(quantity)]
