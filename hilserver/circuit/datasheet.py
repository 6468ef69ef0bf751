"""The datasheet values of a circuit, in SI units, and the circuit with other values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel

from hilserver.circuit.model import Circuit, NodeStart, Placed
from hilserver.components.base import Fluid
from hilserver.units import PlainNumber, Unit, value_and_unit

Path = tuple[str, ...]
"""Of a value in the table of a circuit, such as ``("components", "relief", "opening_pressure")``."""


@dataclass(frozen=True)
class DatasheetParameter:
    """A value of the circuit file in SI units."""

    path: Path
    value: float
    unit: str
    description: str

    @property
    def key(self) -> str:
        """Its key in the file."""
        return ".".join(self.path)

    def changed(self, circuit: Circuit, x: float) -> Circuit:
        """The circuit with another value; raises ValueError if its part can't have it."""
        source = with_value(circuit.source, self.path, f"{x!r} {self.unit}" if self.unit else x)
        part, name = self.path[:2]
        if part == "fluid":
            return replace(circuit, source=source, fluid=Fluid.model_validate(source["fluid"]))
        if part == "nodes":
            start = NodeStart.model_validate(source["nodes"][name])
            return replace(circuit, source=source, starts={**circuit.starts, name: start})
        placed = tuple(_rebuilt(each, source) if each.name == name else each for each in circuit.placed)
        return replace(circuit, source=source, placed=placed)


def datasheet_values(circuit: Circuit) -> Iterator[DatasheetParameter]:
    """The named values of oil, components and nodes, with defaults; neither curves nor mechanisms."""
    for path, value, unit, text in _leaves(circuit.source.get("fluid", {}), circuit.fluid):
        yield DatasheetParameter(("fluid", *path), value, unit, text)
    for placed in circuit.placed:
        who = f"{placed.name} ({type(placed.component).type_name})"
        for path, value, unit, text in _leaves(_own_values(placed, circuit.source), placed.component):
            about = f"{text}, of {who}" if text else f"value of {who}"
            yield DatasheetParameter(("components", placed.name, *path), value, unit, about)
    for node, start in circuit.starts.items():
        table = circuit.source["nodes"][node]
        for path, value, unit, text in _leaves(table, start, with_defaults=False):
            yield DatasheetParameter(("nodes", node, *path), value, unit, f"{text}: {node}")


def _leaves(
    table: Mapping[str, Any], model: BaseModel, with_defaults: bool = True
) -> Iterator[tuple[Path, float, str, str]]:
    """Path, SI value, unit and description of each named quantity; the defaults of a model's own fields, too."""
    fields = type(model).model_fields
    for path, value, unit in _quantities(table):
        text = fields[path[0]].description if path[0] in fields else None
        yield path, value, unit, text or ""
    for name, info in fields.items():
        kind = next((each for each in info.metadata if isinstance(each, Unit | PlainNumber)), None)
        value = getattr(model, name)
        if with_defaults and name not in table and kind is not None and isinstance(value, float):
            yield (name,), value, kind.si if isinstance(kind, Unit) else "", info.description or ""


def _quantities(table: Mapping[str, Any], path: Path = ()) -> Iterator[tuple[Path, float, str]]:
    for name, given in table.items():
        if isinstance(given, Mapping):
            yield from _quantities(given, (*path, name))
            continue
        with suppress(ValueError):  # a word, a list, a truth value
            yield (*path, name), *value_and_unit(given)


def _own_values(placed: Placed, source: Mapping[str, Any]) -> dict[str, Any]:
    """The datasheet values in a component's table."""
    kind = type(placed.component)
    others = ("type", "ports", "fluid", *kind.inputs, *kind.outputs)
    return {k: v for k, v in source["components"][placed.name].items() if k not in others}


def _rebuilt(placed: Placed, source: Mapping[str, Any]) -> Placed:
    """A component with the values in this table of a circuit."""
    return replace(placed, component=type(placed.component).model_validate(_own_values(placed, source)))


def with_value(table: Mapping[str, Any], path: Path, value: object) -> dict[str, Any]:
    """A table with another value."""
    name, *rest = path
    return {**table, name: with_value(table.get(name, {}), tuple(rest), value) if rest else value}
