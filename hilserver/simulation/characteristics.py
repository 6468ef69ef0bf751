"""The characteristic of a component at rest, as its datasheet says: flow over pressure or command, force over speed.

It is computed by the component's own equations: a slow ramp, there and back, through a circuit that consists of the
component and of sources at its ports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hilserver.circuit.library import standard_library
from hilserver.components.base import Component
from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.simulation.simulated import simulate

DURATION = 20.0
"""Seconds of the ramp, and of the way back: many times as long as valves take to settle."""
SETTLING = 2.0
"""Seconds before it, at its beginning."""
POINTS = 400
"""Points of a curve."""
KINDS = {("Pa", "m^3/s"): "drop", ("", "m^3/s"): "command", ("m/s", "N"): "speed"}
"""The kind of curve by the SI units of its axes."""
_SWEEP = "sweep"


@dataclass(frozen=True)
class ComponentCurve:
    """A characteristic in SI units. ``conditions``: what was kept, in words."""

    x: Floats
    y: Floats
    conditions: str


def component_curve(
    circuit: Mapping[str, Any], name: str, units: tuple[str, str], low: float, high: float, value: str = ""
) -> ComponentCurve:
    """The characteristic of a component of a circuit's table, for axes in these SI units, from ``low`` to ``high``.

    ``value``: the value of the component that is asked for, such as ``q_T``; default: the flow from its first port
    (of a spool valve to A), or the force, in the direction in which it is positive.

    Raises HilserverError where there is no such component or curve.
    """
    table = circuit.get("components", {}).get(name)
    if table is None:
        raise HilserverError(f"the circuit has no component {name}.")
    kind = standard_library().types.get(str(table.get("type")))
    if kind is None:
        raise HilserverError(f"{name} is a component of your own: its curve is not known here.")
    if (sweep := KINDS.get(units)) is None:
        raise HilserverError(f"{name} has no curve over these units: plot a flow over a pressure or a command.")
    make = {"drop": _over_drop, "command": _over_command, "speed": _over_speed}[sweep]
    part, sources, conditions, preferred = make(name, kind, table)
    source = {"components": {"part": part, **sources}}
    source |= {key: circuit[key] for key in ("fluid",) if key in circuit}
    turn = SETTLING + DURATION
    ramp = [(0.0, low), (SETTLING, low), (turn, high), (turn + DURATION, low)]
    found = simulate(source, {_SWEEP: ramp}, turn + DURATION)
    chosen = f"part.{value}" if value and f"part.{value}" in found.values else preferred
    if chosen not in found.values:
        missing = chosen.removeprefix("part.")
        raise HilserverError(f"{name} can't be plotted over these units: it has no value {missing}.")
    x = np.linspace(low, high, POINTS)
    along, values = DURATION * np.linspace(0.0, 1.0, POINTS), found[chosen]
    up, down = np.interp(SETTLING + along, found.time, values), np.interp(turn + along, found.time, values)
    y = 0.5 * (up + down[::-1])  # on the way back, it lags to the other side
    if not value and np.nansum(y * np.sign(x)) < 0.0:
        y = -y
    return ComponentCurve(x, y, conditions)


def components_with_curves(circuit: Mapping[str, Any]) -> list[str]:
    """The components of a circuit's table that may have a characteristic."""
    types, found = standard_library().types, []
    for name, table in circuit.get("components", {}).items():
        kind = types.get(str(table.get("type")))
        if kind is not None and (len(kind.hydraulic) > 1 or type_has_force(kind)):
            found.append(name)
    return found


def type_has_force(kind: type[Component]) -> bool:
    """Whether it opposes motion with a force that depends on speed."""
    return kind.type_name in ("friction", "damper")


_Made = tuple[dict[str, Any], dict[str, Any], str, str]
"""The component, the sources at its ports, the conditions in words, the value to take."""


def _part(table: Mapping[str, Any], kind: type[Component], command: object) -> dict[str, Any]:
    """The component with its datasheet values, at nodes named like its ports."""
    others = {*kind.inputs, *kind.outputs, "ports"}
    part = {key: value for key, value in table.items() if key not in others}
    part["ports"] = {port: f"at_{port}" for port in (*kind.hydraulic, *kind.mechanical)}
    part |= {port: command if port == "command" else kind.input_defaults.get(port, 1.0) for port in kind.inputs}
    return part | {port: f"out_{port}" for port in kind.outputs}


def _pressure(port: str, command: object) -> dict[str, Any]:
    return {"type": "pressure_source", "ports": {"P": f"at_{port}"}, "pressure": "1 Pa", "command": command}


def _over_drop(name: str, kind: type[Component], table: Mapping[str, Any]) -> _Made:
    if len(kind.hydraulic) < 2:
        raise HilserverError(f"{name} has no curve of flow over pressure: it has fewer than two ports.")
    first, *others = kind.hydraulic
    sources = {"source": _pressure(first, _SWEEP), **{f"{port}_at_0": _pressure(port, 0.0) for port in others}}
    held = f"pressure at {first}, 0 bar at {' and '.join(others)}"
    held += ", command 1" if "command" in kind.inputs else ""
    return _part(table, kind, 1.0), sources, held, f"part.q_{first}"


def _over_command(name: str, kind: type[Component], table: Mapping[str, Any]) -> _Made:
    if "command" not in kind.inputs or len(kind.hydraulic) < 2:
        raise HilserverError(f"{name} has no curve of flow over a command.")
    own = {key: value for key, value in table.items() if key in kind.model_fields}
    point = getattr(kind.model_validate(own), "nominal_flow", None)
    if point is None:
        raise HilserverError(f"{name} has no nominal flow, at whose pressure drop its flow could be shown.")
    drop = float(point.edge_drop() if hasattr(point, "edge_drop") else point.drop)
    pressures = dict.fromkeys(kind.hydraulic, 0.0)
    if {"P", "A", "T"} <= pressures.keys():  # each edge has the datasheet's drop
        pressures |= {"P": 2.0 * drop, "A": drop} | ({"B": drop} if "B" in pressures else {})
        taken = "part.q_A"
    else:
        pressures[kind.hydraulic[0]] = drop
        taken = f"part.q_{kind.hydraulic[-1]}"
    sources = {f"at_{port}": _pressure(port, pressure) for port, pressure in pressures.items()}
    return _part(table, kind, _SWEEP), sources, f"{drop / 1e5:.4g} bar over each edge", taken


def _over_speed(name: str, kind: type[Component], table: Mapping[str, Any]) -> _Made:
    if kind.mechanical != ("rod",):
        raise HilserverError(f"{name} has no curve of force over speed.")
    source = {"type": "velocity_source", "ports": {"rod": "at_rod"}, "command": _SWEEP}
    return _part(table, kind, 0.0), {"source": source}, "constant speed", "part.F_rod"
