"""Changes to a circuit's table: new values of a component or of parameters, or a component of another type.

The result shares with the table all that is unchanged, which is known to be the same therefore (`read_variant`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hilserver.circuit.datasheet import Path, with_value
from hilserver.circuit.subcircuits import is_subcircuit
from hilserver.errors import ConfigurationError, Problem, did_you_mean

PARAMETERS = "parameters"
"""Stands for the circuit's own parameters where a component is named."""
LISTED = 4
"""Changed values that a text lists at most."""


def with_values(source: Mapping[str, Any], component: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The circuit's table with values of one component set; keys may be dotted (``nominal_flow.flow``).

    ``component`` may also be a sub-circuit or a mechanism, whose values are its parameters, a component of a
    sub-circuit (``front.cylinder``), or ``parameters``: those of the circuit.
    """
    changed = dict(source)
    place, defaults = _place_of_values(source, component)
    for key, value in values.items():
        first, _, rest = key.partition(".")
        table = _table_at(changed, place)
        if defaults is not None and first not in defaults:
            text = f"there is no such parameter.{did_you_mean(first, defaults)}"
            raise ConfigurationError([Problem(text, f"{component}.{key}")])
        if rest and defaults is not None and first not in table:
            text = (
                f"give the whole parameter {first}: the circuit itself sets no value for it, so a part of it "
                f"cannot be changed."
            )
            raise ConfigurationError([Problem(text, f"{component}.{key}")])
        path = key.split(".")
        _require_tables(table, path[:-1], f"components.{component}.{key}")
        changed = with_value(changed, (*place, *path), value)
    return changed


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The values that differ between two circuits' tables: dotted key, old and new text, "–" where there is none."""
    old, new = dict(as_lines(before)), dict(as_lines(after))
    return [(key, old.get(key, "–"), new.get(key, "–")) for key in {**old, **new} if old.get(key) != new.get(key)]


def as_lines(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """The values of a table by dotted key, as they are written in a file, texts without quotation marks."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from as_lines(value, f"{prefix}{key}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
            yield f"{prefix}{key}", text


def change_text(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """What a switch changes, in a line: ``relief.opening_pressure: 150 bar → 120 bar``; the first ones of many.

    >>> circuit = {"components": {"relief": {"type": "relief_valve", "opening_pressure": "150 bar"}}}
    >>> change_text(circuit, with_values(circuit, "relief", {"opening_pressure": "120 bar"}))
    'relief.opening_pressure: 150 bar → 120 bar'
    """
    found = [f"{key.removeprefix('components.')}: {old} → {new}" for key, old, new in differences(before, after)]
    more = [f"{len(found) - LISTED} more values"] if len(found) > LISTED else []
    return "; ".join([*found[:LISTED], *more]) or "no value was changed"


def _table_at(table: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """The table at a path; empty where there is none."""
    for name in path:
        table = table.get(name, {})
    return table


def _require_tables(table: Any, names: Sequence[str], key: str) -> None:
    """Raise ConfigurationError if one of the tables in a table, one in the other, is a value."""
    for name in names:
        table = table.get(name, {})
        if not isinstance(table, dict):
            raise ConfigurationError([Problem(f"{name} has no keys to set.", key)])


def with_component(source: Mapping[str, Any], component: str, kind: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The circuit's table in which a component has another type; connections of the same name are kept."""
    place, name = _place(source, component)
    level = _table_at(source, place)
    if name not in level.get("components", {}):
        text = "is not a component: only a component can be replaced by one of another type."
        raise ConfigurationError([Problem(f'"{component}" {text}', "component")])
    old = level["components"][name]
    new = {"type": kind, **values}
    ports = values.get("ports", {})
    if "ports" in old and isinstance(ports, Mapping):
        new["ports"] = {**old["ports"], **ports}
    return with_value(source, (*place, "components", name), new)


def component_table(source: Mapping[str, Any], component: str) -> dict[str, Any]:
    """The table of a component as written, in the circuit or in one of its sub-circuits. Raises ConfigurationError."""
    place, name = _place(source, component)
    table: dict[str, Any] = _table_at(source, place)["components"][name]
    return table


def _place_of_values(source: Mapping[str, Any], name: str) -> tuple[Path, Mapping[str, Any] | None]:
    """Where the values are that a change of this name sets; for parameters, all of them with their defaults."""
    place, last = _place(source, name)
    level = _table_at(source, place)
    component = level.get("components", {}).get(last)
    if component is not None and not is_subcircuit(component):
        return (*place, "components", last), None
    kind, part = "components", component
    if part is None:
        kind, part = "mechanisms", level.get("mechanisms", {}).get(last)
    if part is not None:
        return (*place, kind, last, PARAMETERS), part["definition"].get("parameters", {})
    return (PARAMETERS,), level["parameters"]


def _place(source: Mapping[str, Any], name: str) -> tuple[Path, str]:
    """The path to the circuit or sub-circuit that a part belongs to, and its name there."""
    path: Path = ()
    level, rest = source, name
    while True:
        if any(rest in level.get(kind, {}) for kind in ("components", "mechanisms")):
            return path, rest
        if rest == PARAMETERS and level is source and level.get("parameters"):
            return path, rest
        first, dot, inner = rest.partition(".")
        part = level.get("components", {}).get(first)
        if not dot or not is_subcircuit(part):
            break
        path, level, rest = (*path, "components", first, "definition"), part["definition"], inner
    text = f'the circuit has no component "{name}".' + did_you_mean(name, _names(source))
    raise ConfigurationError([Problem(text, "component")])


def _names(level: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The names of all components."""
    for name, part in level.get("components", {}).items():
        yield prefix + name
        if is_subcircuit(part):
            yield from _names(part["definition"], f"{prefix}{name}.")
