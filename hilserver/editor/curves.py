"""Characteristic curves of a component, as its own equations give them at rest: flow over pressure or over command.

The component is run between two pressures in a circuit of its own, with the program that runs every circuit: each point
of a curve is where it has come to rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from hilserver.circuit.model import read_circuit
from hilserver.circuit.pack import pack
from hilserver.compiler import compiled_program
from hilserver.components.base import Component
from hilserver.editor.parts import Parts, below
from hilserver.errors import ConfigurationError, HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.simulation.packed_run import run_packed
from hilserver.units import BAR, L_MIN, to_si

WAYS = (("P", "A"), ("P", "T"), ("A", "B"))
"""The ports between which the flow over the pressure is shown, the first pair that a component has."""
POINTS, TICK, HOLD, LONGEST = 61, 1e-3, 100, 1600
"""Points of a curve; s; ticks in which each point comes to rest, at first and at most."""
AT_REST = 2e-3
"""Change of the flow during the last quarter of a point's time, of the largest flow, below which it is at rest."""


@dataclass(frozen=True)
class CharacteristicCurves:
    """Curves by name over one axis, and the points that the datasheet gives; in the units of the labels."""

    across: str
    along: str
    x: Floats
    curves: Mapping[str, Floats]
    given: tuple[tuple[float, float], ...] = ()
    is_settled: bool = True


def characteristic(part: Mapping[str, Any], parts: Parts, fluid: Mapping[str, Any]) -> CharacteristicCurves | None:
    """The curves of a component's table; None if its type has none.

    Raises HilserverError if the values are not complete, or wrong.
    """
    kind = parts.type_of(part)
    if kind is None or kind.mechanical or kind.rotational:
        return None
    if {"P", "T", "A", "B"} <= set(kind.hydraulic) and "command" in kind.inputs:
        return _over_command(part, kind, parts, fluid)
    way = next((way for way in WAYS if set(way) <= set(kind.hydraulic)), None)
    return None if way is None else _over_pressure(part, kind, parts, fluid, way)


def _over_pressure(
    part: Mapping[str, Any], kind: type[Component], parts: Parts, fluid: Mapping[str, Any], way: tuple[str, str]
) -> CharacteristicCurves | None:
    first, second = way
    given = tuple(_given_points(part))
    highest = 1.2 * max(_pressures(part), default=100.0 * BAR)
    pump = kind.type_name.endswith("pump")  # which is told to deliver by the pressure at X
    nodes = {port: "high" if port == first or (pump and port == "X") else "low" for port in kind.hydraulic}
    inputs = {port: 1.0 for port in kind.inputs if port not in kind.input_defaults}
    sweep, curves, at_rest = np.linspace(0.0, 1.0, POINTS), dict[str, Floats](), True
    for command in (0.0, 1.0) if "command" in kind.inputs else (None,):
        inputs |= {} if command is None else {"command": command}
        flows, settled = _flows({**part, **inputs}, nodes, highest, "pressure", sweep, parts, fluid)
        out, name = -flows[first] / L_MIN, f"{first} → {second}"
        if out.sum() < 0:  # a pump: what it delivers
            out, name = -out, f"out of {first}"
        if out.any():
            curves[name if command is None else f"{name}, command {command:g}"] = out
        at_rest = at_rest and settled
    if not curves:  # what opens it is elsewhere
        return None
    return CharacteristicCurves("pressure [bar]", "flow [l/min]", sweep * highest / BAR, curves, given, at_rest)


def _over_command(
    part: Mapping[str, Any], kind: type[Component], parts: Parts, fluid: Mapping[str, Any]
) -> CharacteristicCurves:
    nominal = below(part, "nominal_flow")
    drop = 35.0 * BAR
    with suppress(ValueError):
        drop = to_si(str(nominal.get("drop", "")), "Pa")
    nodes = {port: "high" if port == "P" else "low" for port in kind.hydraulic}
    inputs = {port: 1.0 for port in kind.inputs if port not in (*kind.input_defaults, "command")}
    sweep = np.linspace(-1.0, 1.0, POINTS)
    flows, settled = _flows({**part, **inputs}, nodes, drop, "command", sweep, parts, fluid)
    curves = {f"P → {port}": flows[port] / L_MIN for port in ("A", "B")}
    across = f"command, with {drop / BAR:g} bar from P to A and B"
    return CharacteristicCurves(across, "flow [l/min]", sweep, curves, is_settled=settled)


def _flows(
    part: Mapping[str, Any],
    nodes: Mapping[str, str],
    pressure: float,
    swept: str,
    sweep: Floats,
    parts: Parts,
    fluid: Mapping[str, Any],
) -> tuple[dict[str, Floats], bool]:
    """The flow into the node at each port, m³/s, for each value of the sweep; and whether all are at rest."""
    of_part = {**part, "ports": dict(nodes)} | ({"command": "sweep"} if swept == "command" else {})
    source: dict[str, Any] = {"type": "pressure_source", "ports": {"P": "high"}, "pressure": f"{pressure!r} Pa"}
    source |= {"command": "sweep"} if swept == "pressure" else {}
    table: dict[str, Any] = {
        "components": {
            "part": of_part,
            "source": source,
            "tank": {"type": "tank", "ports": {"T": "low"}},
        },
        "solver": {"integrator": "rosenbrock", "substeps": 5},
    }
    table |= {"fluid": dict(fluid)} if fluid else {}
    try:
        circuit = read_circuit(table, parts.library, "", parts.folder)
        packed = pack(circuit, parts.library)
    except ConfigurationError as error:
        raise HilserverError("\n".join(each.message for each in error.problems)) from None
    program, hold = compiled_program(parts.library), HOLD
    while True:
        given = np.repeat(sweep, hold)[:, None]
        rows = run_packed(program, packed, TICK, ["sweep"], given)
        columns = {port: packed.names.index(name) for port in nodes if (name := f"part.q_{port}") in packed.names}
        found = {port: rows[:, column].reshape(len(sweep), hold) for port, column in columns.items()}
        largest = max(float(np.abs(flow).max()) for flow in found.values())
        if not np.isfinite(largest):
            raise HilserverError("with these values the flow is not finite.")
        moves = max(float(np.abs(flow[:, -1] - flow[:, 3 * hold // 4]).max()) for flow in found.values())
        settled = moves <= AT_REST * largest
        if settled or hold >= LONGEST:
            return {port: flow[:, -1] for port, flow in found.items()}, settled
        hold *= 4


def _pressures(part: Mapping[str, Any]) -> Iterator[float]:
    """The pressures that a datasheet gives at its first level, Pa, and the highest ones of its curves."""
    base = 0.0
    for key, value in part.items():
        if isinstance(value, str) and key not in ("max_pressure",):
            with suppress(ValueError):
                base = max(base, to_si(value, "Pa"))
    yield from (base,) if base > 0.0 else ()
    for pressure, _ in _given_points(part):
        yield pressure * BAR


def _given_points(part: Mapping[str, Any]) -> Iterator[tuple[float, float]]:
    """Points of flow over pressure that a datasheet gives, bar and l/min."""
    with suppress(ValueError, TypeError):
        opening = to_si(str(part.get("opening_pressure", "0 bar")), "Pa")
        for above, flow in part.get("override", ()):
            yield (opening + to_si(str(above), "Pa")) / BAR, to_si(str(flow), "m^3/s") / L_MIN
    nominal = below(part, "nominal_flow")
    if nominal and "opening_pressure" not in part and "set_pressure" not in part:
        with suppress(ValueError):
            drop, flow = to_si(str(nominal.get("drop")), "Pa"), to_si(str(nominal.get("flow")), "m^3/s")
            yield drop / BAR, flow / L_MIN
