"""A component of a circuit replaced by others: its connections stay, and the datasheet values that they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hilserver.circuit.library import Library
from hilserver.circuit.model import Circuit
from hilserver.components.base import Component
from hilserver.components.synonyms import meant_type
from hilserver.errors import did_you_mean, shown

CONNECTIONS = ("ports", "fluid", "description")
"""Keys that any component has."""


@dataclass(frozen=True)
class ComponentChoice:
    """What a component is chosen from: the name of each, its whole table, and the keys of the file that it lacks.

    ``own``: the name of that in the file; empty if it is not among them.
    """

    names: tuple[str, ...]
    tables: tuple[Mapping[str, Any], ...]
    left_out: tuple[tuple[str, ...], ...]
    own: str

    @property
    def notes(self) -> tuple[str, ...]:
        """What the reader should know, for each that lacks a value."""
        pairs = zip(self.names, self.left_out, strict=True)
        return tuple(f"{name} has no {', '.join(keys)}, which the file gives" for name, keys in pairs if keys)


def component_choice(circuit: Circuit, library: Library, name: str, entries: Sequence[Any]) -> ComponentChoice:
    """Read a list of types, or of tables with a type and datasheet values. Raises ValueError.

    Connections and values that are not given are those of the component in the circuit file.
    """
    written = circuit.written.get("components", {})
    if name not in written:
        raise ValueError(f"{name} is not a component of the circuit.{did_you_mean(name, written)}")
    names, tables, left_out, own = list[str](), list[Mapping[str, Any]](), list[tuple[str, ...]](), ""
    for entry in entries:
        given = {"type": entry} if isinstance(entry, str) else entry
        if not isinstance(given, Mapping) or not isinstance(given.get("type"), str):
            raise ValueError(f'{shown(entry)} is neither a type nor a table such as {{ type = "relief_valve" }}')
        kind = library.types.get(given["type"])
        if kind is None:
            raise ValueError(f"{given['type']} is not a component type.{meant_type(given['type'], library.types)}")
        table, lacking = _table(written[name], given, kind)
        title = given["type"]
        title += f" {1 + sum(each.partition(' ')[0] == title for each in names)}" if title in names else ""
        names.append(title)
        tables.append(table)
        left_out.append(lacking)
        if table == written[name]:
            own = title
    return ComponentChoice(tuple(names), tuple(tables), tuple(left_out), own)


def _table(
    written: Mapping[str, Any], given: Mapping[str, Any], kind: type[Component]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The table of the component as another one, and the keys of its own datasheet that this does not have."""
    known = {"type", *CONNECTIONS, *kind.model_fields, *kind.inputs, *kind.outputs}
    lacking = tuple(key for key in written if key not in known)
    kept = {key: value for key, value in written.items() if key in known}
    return {**kept, **given}, lacking


def has_value(table: Mapping[str, Any], path: Sequence[str], library: Library) -> bool:
    """Whether the value at a path of a circuit's table exists: a component of another type may not have it."""
    if path[0] != "components" or path[1] not in table.get("components", {}):
        return True
    kind = library.types.get(table["components"][path[1]]["type"])
    return kind is None or path[2] in kind.model_fields or path[2] in CONNECTIONS


def with_components(circuit: Circuit, chosen: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The circuit as written with other tables of components, by name."""
    components = {**circuit.written.get("components", {}), **chosen}
    return {**circuit.written, "components": components}


def read_entries(entries: object) -> Sequence[Any]:
    """The list of a choice. Raises ValueError if it is none."""
    if not isinstance(entries, list | tuple) or len(entries) < 2:
        raise ValueError(f"{shown(entries)} is not a list of two or more to choose from")
    return entries
