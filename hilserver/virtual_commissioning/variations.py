"""What differs from the stated rig in a case: the load of its machine, and the flow of its valves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hilserver.rig.rig import Rig

SCALED = {"load_mass": "mass", "force_source": "force"}
"""Components that load a machine, with the value that is scaled."""
OF_BODIES = ("mass", "inertia")
_NUMBER = re.compile(r"\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*(.*)")


def can_vary(machine: Mapping[str, Any]) -> bool:
    """Whether a machine has a load that can be varied."""
    return scaled(machine, 2.0) != machine


def scaled(machine: Mapping[str, Any], multiple: float) -> dict[str, Any]:
    """The circuit table of a machine with a multiple of its load: of load masses, forces, and a mechanism's bodies."""
    components = {name: _component(table, multiple) for name, table in machine.get("components", {}).items()}
    mechanisms = {name: _mechanism(table, multiple) for name, table in machine.get("mechanisms", {}).items()}
    return {**machine, "components": components, **({"mechanisms": mechanisms} if mechanisms else {})}


def _component(table: Mapping[str, Any], multiple: float) -> dict[str, Any]:
    key = SCALED.get(table.get("type", ""), "")
    return {**table, key: times(table[key], multiple)} if key in table else dict(table)


def _mechanism(table: Mapping[str, Any], multiple: float) -> dict[str, Any]:
    """A mechanism whose definition is in the table, as in the sources of a rig."""
    definition = table.get("definition")
    if not isinstance(definition, Mapping):
        return dict(table)
    bodies = {
        name: {key: times(value, multiple) if key in OF_BODIES else value for key, value in body.items()}
        for name, body in definition.get("bodies", {}).items()
    }
    return {**table, "definition": {**definition, "bodies": bodies}}


def with_valve_flow(rig: Rig, multiple: float) -> dict[str, Any]:
    """The source of the rig file with a multiple of the nominal flows of the valves."""
    valves = {name: dict(table) for name, table in rig.sources["rig"]["valves"].items()}
    for name, valve in rig.settings.valves.items():
        for key in ("nominal_flow", "nominal_flow_to_tank"):
            if key in valves[name]:
                flow = multiple * getattr(valve, key).flow
                valves[name][key] = {**valves[name][key], "flow": f"{flow!r} m^3/s"}
    return {**rig.sources["rig"], "valves": valves}


def times(value: Any, multiple: float) -> str:
    """A multiple of a quantity, in its unit.

    >>> times("2 t", 1.5)
    '3.0 t'
    """
    found = _NUMBER.fullmatch(str(value))
    return f"{multiple * float(found[1])!r} {found[2]}".strip() if found else value
