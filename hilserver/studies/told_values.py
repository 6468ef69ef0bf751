"""What a rig file tells the bridge about the real valves, cylinders, motors and sensors, as quantities of a study.

The simulated device stays as it is: the bridge is told something wrong about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from hilserver.circuit.datasheet import Path, with_value
from hilserver.rig.rig import Rig
from hilserver.units import PlainNumber, Unit, value_and_unit

TOLD = "told"
"""Beginning of the keys; the rest is the key in the rig file."""
PARTS = ("valves", "cylinders", "motors", "channels")
"""Tables of the rig file that describe the real machine to the bridge."""


@dataclass(frozen=True)
class ToldValue:
    """A value of the rig file, SI, and its path there."""

    path: Path
    value: float
    unit: str

    @property
    def key(self) -> str:
        """Its key in a study."""
        return ".".join((TOLD, *self.path))


def told_values(rig: Rig) -> Iterator[ToldValue]:
    """The values of valves, cylinders, motors and channels, with defaults; no lists, such as scales."""
    for part in PARTS:
        models = getattr(rig.settings, part)
        for name, table in rig.sources["rig"].get(part, {}).items():
            for path, value, unit in _values(table, models[name]):
                yield ToldValue((part, name, *path), value, unit)


def _values(table: Mapping[str, Any], model: BaseModel | None) -> Iterator[tuple[Path, float, str]]:
    fields = type(model).model_fields if model is not None else {}
    for name, given in table.items():
        if isinstance(given, Mapping):
            inner = getattr(model, name, None)
            below = _values(given, inner if isinstance(inner, BaseModel) else None)
            yield from (((name, *path), value, unit) for path, value, unit in below)
        elif not isinstance(given, bool):
            with suppress(ValueError):  # a word or a list
                yield (name,), *value_and_unit(given)
    for name, info in fields.items():
        kind = next((each for each in info.metadata if isinstance(each, Unit | PlainNumber)), None)
        value = getattr(model, name)
        if name not in table and kind is not None and isinstance(value, float):
            yield (name,), value, kind.si if isinstance(kind, Unit) else ""


def with_told(rig_file: Mapping[str, Any], values: Sequence[tuple[ToldValue, float]]) -> dict[str, Any]:
    """The table of a rig file with other values, SI."""
    table = dict(rig_file)
    for each, x in values:
        table = with_value(table, each.path, f"{x!r} {each.unit}" if each.unit else x)
    return table
