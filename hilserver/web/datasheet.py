"""The datasheet values of a component: as given, with their ranges, and what is wrong with an entry."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hilserver.parameters import MARK
from hilserver.protocol.published import DatasheetPart, DatasheetValue, TypeInfo
from hilserver.units import shown_value, to_si, usual_unit, value_and_unit

_UNKNOWN = DatasheetValue(description="", required=False)
_SKIPPED = ("type", "ports", "description")


@dataclass(frozen=True)
class DatasheetField:
    """A datasheet value: dotted key, text as given ("" if not given), and what is known about it."""

    key: str
    given: str
    info: DatasheetPart = _UNKNOWN
    is_text: bool = False
    """Whether an entry is a text, whatever it looks like."""

    @property
    def title(self) -> str:
        """The name as a person reads it, with an asterisk where the value is required."""
        return self.key.replace("_", " ").replace(".", " · ") + (" *" if self.info.required else "")

    @property
    def default(self) -> str:
        """The default as text; empty if there is none."""
        return "" if self.info.default is None else as_text(self.info.default)

    @property
    def range(self) -> str:
        """The range in words, in the unit in which such values are shown; empty if it is not limited.

        >>> pressure = DatasheetValue(description="", required=True, unit="Pa", minimum=0.0, maximum=4e8)
        >>> DatasheetField("p", "", pressure).range
        '0 … 4000 bar'
        """
        info = self.info
        if info.minimum is None and info.maximum is None:
            return f"in {usual_unit(info.unit)}" if info.unit else ""
        if info.minimum is None or info.maximum is None:
            bound = info.maximum if info.minimum is None else info.minimum
            return f"at {'most' if info.minimum is None else 'least'} {_shown(float(bound or 0.0), info.unit)}"
        (low, of_low), (high, of_high) = (
            _shown(end, info.unit).partition(" ")[::2] for end in (info.minimum, info.maximum)
        )
        same = of_low == of_high or low == "0"  # not so with 500 N … 20 kN
        return f"{low if same else f'{low} {of_low}'} … {high} {of_high}".rstrip()

    def problem(self, entry: str) -> str:
        """What is wrong with an entry as far as unit and range tell; empty if nothing is. The server checks the rest.

        >>> time = DatasheetValue(description="", required=True, unit="s", example="20 ms", minimum=0.0)
        >>> DatasheetField("t", "", time).problem("2 bar")
        '"2 bar" has the wrong unit: this value is measured in s; write it like "20 ms"'
        >>> DatasheetField("t", "", time).problem("-1 ms")
        '"-1 ms" is out of range: at least 0 s'
        """
        info, value = self.info, self.value(entry)
        if not entry or (isinstance(value, str) and value.startswith(MARK)):
            return ""
        if info.choices:
            return "" if value in info.choices else f'"{entry}" is not one of: {", ".join(info.choices)}'
        try:
            number = self._number(entry, value)
        except ValueError as error:
            return f'{error}; write it like "{info.example}"'
        if number is None:
            return ""
        low, high = info.minimum, info.maximum
        beyond = (low is not None and number < low) or (high is not None and number > high)
        return f'"{entry}" is out of range: {self.range}' if beyond else ""

    def value(self, entry: str) -> Any:
        """The value that an entry means."""
        return entry if self.is_text else as_value(entry)

    def _number(self, entry: str, value: Any) -> float | None:
        """The entry in the SI unit; None if it is not known to be a number. Raises ValueError."""
        if not self.info.unit:
            return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
        if isinstance(value, str):
            return to_si(value, self.info.unit)
        raise ValueError(f"{entry} has no unit")


def _shown(bound: float, unit: str) -> str:
    """A bound with all its digits: 65535, not 6.554e+04."""
    return shown_value(bound, unit, digits=7)


def fields_of(kind: TypeInfo | None, table: Mapping[str, Any]) -> list[DatasheetField]:
    """The datasheet values of a component of this type, as given in its table.

    For a type that the server does not describe, only the given ones.
    """
    if kind is None:
        return [field for key, value in table.items() if key not in _SKIPPED for field in _given(key, value, _UNKNOWN)]
    found: list[DatasheetField] = []
    for key, info in kind.values.items():
        if isinstance(value := table.get(key), Mapping):
            found.extend(_given(key, value, info))
        else:
            found.append(DatasheetField(key, "" if value is None else as_text(value), info))
    signal = DatasheetValue(description="signal or number", required=False)
    return found + [DatasheetField(port, as_text(table[port]), signal) for port in kind.inputs if port in table]


def _given(key: str, value: object, info: DatasheetPart) -> Iterator[DatasheetField]:
    """The values of a table, those that are not given included; or one value."""
    if isinstance(value, Mapping):
        parts = info.parts if isinstance(info, DatasheetValue) else {}
        for inner in {**value, **parts}:
            part = parts.get(inner, DatasheetPart(description=info.description, required=False))
            yield from _given(f"{key}.{inner}", value.get(inner), part)
    else:
        yield DatasheetField(key, "" if value is None else as_text(value), info)


def as_text(value: object) -> str:
    """A value as it is entered: texts unchanged, tables of values in rows, everything else as JSON.

    >>> as_text([["5 bar", "20 l/min"], ["15 bar", "60 l/min"]]), as_text(["0 bar", "5 bar"])
    ('5 bar, 20 l/min; 15 bar, 60 l/min', '["0 bar", "5 bar"]')
    """
    if isinstance(value, str):
        return value
    if value and isinstance(value, list | tuple) and all(isinstance(row, list | tuple) for row in value):
        text = "; ".join(", ".join(map(as_text, row)) for row in value)
        if _table(text) == [[*row] for row in value]:  # or it would not be read as the same again
            return text
    return json.dumps(value, ensure_ascii=False)


def as_value(text: str) -> Any:
    """The value of an entry: JSON if possible (numbers, lists), a table in rows, or a text such as ``120 bar``.

    >>> as_value("120 bar"), as_value("0.8"), as_value('[["5 bar", "20 l/min"]]')
    ('120 bar', 0.8, [['5 bar', '20 l/min']])
    >>> as_value("5 bar at 20 l/min; 15 bar, 60 l/min")
    [['5 bar', '20 l/min'], ['15 bar', '60 l/min']]
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _table(text) or text.strip()


def _table(text: str) -> list[list[Any]]:
    """The rows of values that a text is: separated by semicolons or lines, in each by commas or "at"; else none.

    One row alone has "at" or a semicolon, since values with commas might be a list.
    """
    if not re.search(r"[;\n]|\sat\s", text):
        return []
    rows = [re.split(r"\s*,\s+|\s+at\s+", row.strip()) for row in re.split(r"[;\n]", text) if row.strip()]
    if not rows or len(rows[0]) < 2 or len({len(row) for row in rows}) > 1:
        return []
    try:
        return [[_cell(text) for text in row] for row in rows]
    except ValueError:
        return []


def _cell(text: str) -> Any:
    """A plain number, or a text with a unit. Raises ValueError."""
    value: Any = text
    with suppress(ValueError):
        value = json.loads(text)
    value_and_unit(value)
    return value


def parameter_tables(written: Mapping[str, Any], name: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Parameters that a circuit lets one set, by the component that a `switch` names.

    ``parameters`` are those of the circuit itself; each sub-circuit and each mechanism may have its own.
    """
    if not name and written.get("parameters"):
        yield "parameters", written["parameters"]
    for kind in ("components", "mechanisms"):
        for own, part in written.get(kind, {}).items():
            if kind == "components" and part.get("type") != "subcircuit":
                continue
            called, definition = f"{name}{own}", part.get("definition", {})
            if values := {**definition.get("parameters", {}), **part.get("parameters", {})}:
                yield called, values
            if kind == "components":
                yield from parameter_tables(definition, f"{called}.")


def fitting_types(types: Mapping[str, TypeInfo], table: Mapping[str, Any]) -> list[str]:
    """The types that can replace a component: those with ports of the same names."""
    return [name for name, kind in types.items() if {*kind.ports} == {*table.get("ports", {})}]
