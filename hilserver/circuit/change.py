"""Changes to a circuit's source table: new values of a component, or its replacement by another type."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from hilserver.errors import ConfigurationError, Problem, did_you_mean


def with_values(source: Mapping[str, Any], component: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the circuit's table with values of one component set; keys may be dotted (``nominal_flow.flow``)."""
    changed = copy.deepcopy(dict(source))
    table = _component(changed, component)
    for path, value in values.items():
        *parents, last = path.split(".")
        target = table
        for parent in parents:
            inner = target.setdefault(parent, {})
            if not isinstance(inner, dict):
                raise ConfigurationError([Problem(f"{parent} has no keys to set.", f"components.{component}.{path}")])
            target = inner
        target[last] = value
    return changed


def with_component(source: Mapping[str, Any], component: str, kind: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the circuit's table in which a component has another type; connections of the same name are kept."""
    changed = copy.deepcopy(dict(source))
    old = _component(changed, component)
    new = {"type": kind, **values}
    ports = values.get("ports", {})
    if "ports" in old and isinstance(ports, Mapping):
        new["ports"] = {**old["ports"], **ports}
    changed["components"][component] = new
    return changed


def _component(source: dict[str, Any], name: str) -> dict[str, Any]:
    components = source.get("components", {})
    if name not in components:
        raise ConfigurationError(
            [Problem(f'the circuit has no component "{name}".' + did_you_mean(name, components), "component")]
        )
    table: dict[str, Any] = components[name]
    return table
