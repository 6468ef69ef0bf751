"""Tolerances beside values in files: ``"40 l/min ± 5 %"``, ``{ value = "30 Hz", from = "25 Hz", to = "40 Hz" }``.

A value with a tolerance is the value itself, a text or a number, to all who read it. Studies and fits find the
tolerance at it, and identification that of a delay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hilserver.errors import Problem, as_sentence, did_you_mean, shown
from hilserver.units import round_trip, shown_value, si_value, value_and_unit

MARK = "±"
DISTRIBUTIONS = ("uniform", "normal", "triangular")
"""Of a range. All end at its ends: uniform; normal about the value, its standard deviation a quarter of the range;
triangular with the tip at the value."""
STEPS = "steps"
"""The distribution of a list of values, all equally probable."""
_KEYS = ("from", "to", "distribution", STEPS)


@dataclass(frozen=True)
class Tolerance:
    """The values that a quantity may have, in the SI ``unit``: ``lower`` to ``upper``, or ``steps``."""

    value: float
    lower: float
    upper: float
    unit: str = ""
    distribution: str = DISTRIBUTIONS[0]
    steps: tuple[float, ...] = ()


class TolerancedText(str):
    """A value with a unit, as written in a file, with its tolerance."""

    tolerance: Tolerance


class TolerancedNumber(float):
    """A plain number with its tolerance."""

    tolerance: Tolerance


Toleranced = TolerancedText | TolerancedNumber


def with_tolerances(table: Mapping[str, Any], file: str, problems: list[Problem], key: str = "") -> dict[str, Any]:
    """The table of a file in which every value with a tolerance is a `Toleranced`; descriptions stay as they are.

    What can't be read as a tolerance is added to ``problems``.
    """
    return {
        name: entry if name == "description" else _read(entry, f"{key}.{name}" if key else name, file, problems)
        for name, entry in table.items()
    }


def _read(entry: Any, key: str, file: str, problems: list[Problem]) -> Any:
    try:
        if isinstance(entry, Mapping):
            if is_toleranced_table(entry):
                return toleranced(entry)
            return with_tolerances(entry, file, problems, key)
        if isinstance(entry, str):
            return toleranced(entry) if has_mark(entry) else entry
    except ValueError as error:
        problems.append(Problem(as_sentence(error), key, file))
        return entry
    if isinstance(entry, list):
        found = [_read(each, f"{key}[{place}]", file, problems) for place, each in enumerate(entry)]
        for place, each in enumerate(found):
            if isinstance(each, Toleranced):
                text = "a value in a list has no tolerance: give it a name in [parameters], with its tolerance there."
                problems.append(Problem(text, f"{key}[{place}]", file))
        return found
    return entry


def has_mark(text: str) -> bool:
    """Whether a text is a value with ±: words may contain that sign, too."""
    before, mark, _ = text.partition(MARK)
    return bool(mark) and before.strip()[:1] in {*"+-.0123456789"} - {""}


def is_toleranced_table(table: Mapping[str, Any]) -> bool:
    """Whether a table is a value with a tolerance: such keys occur nowhere else beside ``value``."""
    return "value" in table and any(name in table for name in _KEYS)


def toleranced(given: str | Mapping[str, Any], default: str | float | None = None) -> Toleranced:
    """A value with its tolerance. ``default``: the value, if only the tolerance is given. Raises ValueError.

    >>> toleranced("40 l/min ± 5 %"), toleranced("40 l/min ± 5 %").tolerance.upper * 6e4
    ('40 l/min', 42.0)
    >>> toleranced({"value": 0.85, "from": 0.8, "to": 0.9, "distribution": "normal"})
    0.85
    """
    if isinstance(given, str):
        value, tolerance = _of_text(given, default)
    else:
        value, tolerance = _of_table(given, default)
    if isinstance(value, str):
        text = TolerancedText(value)
        text.tolerance = tolerance
        return text
    number = TolerancedNumber(value)
    number.tolerance = tolerance
    return number


def _of_text(text: str, default: str | float | None) -> tuple[str | float, Tolerance]:
    before, mark, after = (part.strip() for part in text.partition(MARK))
    if not mark or not after:
        raise ValueError(f'{shown(text)} has no tolerance; write it like "40 l/min ± 5 %"')
    if "%" in after and not after.endswith("%"):
        unit = after.rpartition("%")[2].strip()
        raise ValueError(f'{shown(text)}: a tolerance in % has no other unit; write it like "40 {unit} ± 5 %"')
    written = before if before else default
    if written is None:
        raise ValueError(f'{shown(text)} has no value; write it like "40 l/min ± 5 %"')
    width, width_unit = si_value(after)
    if isinstance(written, str) and _is_number(written):
        written = f"{written} {after.partition(' ')[2]}" if width_unit else float(written)  # "40 ± 2 l/min"
    value, unit = value_and_unit(written)
    in_percent = isinstance(written, str) and written.endswith("%")
    if after.endswith("%") and not in_percent:
        width, width_unit = abs(value) * width, unit
    if width_unit != unit:
        units = f"the tolerance is measured in {width_unit or 'no unit'}, the value in {unit or 'no unit'}"
        raise ValueError(f"{shown(text)}: {units}")
    if not width > 0.0:
        raise ValueError(f"{shown(text)}: a tolerance is greater than 0, and one in % needs a value other than 0")
    return written, _ranged(value, value - width, value + width, unit)


def _of_table(table: Mapping[str, Any], default: str | float | None) -> tuple[str | float, Tolerance]:
    for name in table:
        if name not in ("value", *_KEYS):
            known = did_you_mean(name, ("value", *_KEYS))
            raise ValueError(f"{name} is not a key of a tolerance.{known}")
    written = table.get("value", default)
    if written is None:
        raise ValueError("value is missing: give the value that a run has")
    if isinstance(written, str) and has_mark(written):
        inner = toleranced(written)
        written, of_mark = (str(inner) if isinstance(inner, str) else float(inner)), inner.tolerance
        if {"from", "to", STEPS} & table.keys():
            raise ValueError("give the tolerance once: ±, or from and to, or steps")
        return written, _ranged(
            of_mark.value, of_mark.lower, of_mark.upper, of_mark.unit, table.get("distribution", DISTRIBUTIONS[0])
        )
    value, unit = value_and_unit(written)
    if STEPS in table:
        return written, _stepped(table, round_trip(value), unit)
    if not {"from", "to"} <= table.keys():
        raise ValueError('give from and to, or steps, or a value with a tolerance such as "40 l/min ± 5 %"')
    lower, upper = (_like(table[name], unit, name) for name in ("from", "to"))
    return written, _ranged(round_trip(value), lower, upper, unit, table.get("distribution", DISTRIBUTIONS[0]))


def _stepped(table: Mapping[str, Any], value: float, unit: str) -> Tolerance:
    if {"from", "to"} & table.keys() or table.get("distribution", STEPS) != STEPS:
        raise ValueError("steps are equally probable: they go without from, to and distribution")
    given = table[STEPS]
    steps = tuple(sorted({_like(each, unit, STEPS) for each in given})) if isinstance(given, list | tuple) else ()
    if len(steps) < 2:
        raise ValueError(f'steps: {shown(given)} is not a list of two or more values such as ["25 Hz", "30 Hz"]')
    return Tolerance(value, steps[0], steps[-1], unit, STEPS, steps)


def _ranged(value: float, lower: float, upper: float, unit: str, distribution: object = DISTRIBUTIONS[0]) -> Tolerance:
    if distribution not in DISTRIBUTIONS:
        known = did_you_mean(str(distribution), DISTRIBUTIONS)
        raise ValueError(f"distribution: {shown(distribution)} is not known.{known}")
    lower, upper = round_trip(lower), round_trip(upper)
    if not lower < upper:
        ends = f"from {shown_value(lower, unit)} to {shown_value(upper, unit)}"
        raise ValueError(f"{ends} is not a range: from must be less than to")
    if not lower <= value <= upper:
        x, low, high = (shown_value(each, unit) for each in (value, lower, upper))
        raise ValueError(f"the value {x} is outside its tolerance, {low} … {high}")
    return Tolerance(value, lower, upper, unit, str(distribution))


def _like(given: object, unit: str, name: str) -> float:
    value, own = value_and_unit(given)
    if own != unit:
        raise ValueError(f"{name}: {shown(given)} is measured in {own or 'no unit'}, the value in {unit or 'no unit'}")
    return round_trip(value)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
