"""Commands for a running server: nonsense, each with a word that its refusal has to name; random switches."""

from __future__ import annotations

import copy
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

Malformed = tuple[str, bytes, str]
"""Command, payload, word in the reason."""

LIFT = tomllib.loads((Path(__file__).parents[2] / "config" / "circuits" / "lift.toml").read_text())
BROKEN_TEXTS = {
    b"": "empty",
    b"   ": "empty",
    b"\x00\xff\xfe\x80": "UTF-8",
    b"{": "JSON",
    b"arm": "JSON",
    b"{'component': 'relief'}": "JSON",
    b"[1, 2]": "JSON object",
    b"null": "JSON object",
    b"17": "JSON object",
    b'"text"': "JSON object",
    b'{"id": "1", "id": "2"}': "id",
    b'{"foo": 1}': "foo",
    b'{"id": 7}': "id",
    b'{"id": ""}': "id",
    b'{"expires": "now"}': "expires",
    b'{"expires": NaN}': "expires",
    b'{"id": "x", "a": ' + b"[" * 100 + b"]" * 100 + b"}": "nested",
    b'{"a": "' + b"x" * 70_000 + b'"}': "KiB",
}
# datasheet values of the lift circuit and what they measure
QUANTITIES = {
    ("pump", "max_flow"): "l/min",
    ("pump", "set_pressure"): "bar",
    ("line", "volume"): "l",
    ("relief", "opening_pressure"): "bar",
    ("main_valve", "nominal_flow.flow"): "l/min",
    ("main_valve", "nominal_flow.drop"): "bar",
    ("main_valve", "f45"): "Hz",
    ("main_valve", "leakage.flow"): "l/min",
}
BAD_VALUES: list[Any] = [40, None, True, [], {}, "40", "40 kg", "-5 {unit}", "nan {unit}", "1e999 {unit}", "fast", ""]


def malformed() -> Iterator[Malformed]:
    """All of them."""
    for name in ("arm", "set_input", "switch"):
        for payload, word in BROKEN_TEXTS.items():
            yield name, payload, word
    for command, payload, word in [*_plain(), *_switches(), *_circuits()]:
        yield command, json.dumps(payload).encode(), word


def _plain() -> Iterator[tuple[str, Any, str]]:
    yield "fly", {}, "fly"
    yield "arm", {"expires": 1.0}, "expires"
    yield "arm", {"expires": 1e300}, "expires"
    yield "set_input", {}, "input"
    yield "set_input", {"input": "joystick"}, "value"
    yield "set_input", {"input": "joystik", "value": 0.1}, "joystick"
    yield "set_input", {"input": "joystick", "value": 1.5}, "value"
    yield "set_input", {"input": "joystick", "value": "0.5"}, "value"
    yield "set_input", {"input": "joystick", "value": float("nan")}, "value"
    yield "set_input", {"input": "joystick", "value": float("-inf")}, "value"
    yield "set_input", {"input": ["joystick"], "value": 0.0}, "input"
    yield "jog", {"valve": "main", "command": 2}, "command"
    yield "jog", {"valve": "man", "command": 0.0}, "main"
    yield "jog", {"valve": "main", "command": 0.05}, "manual"
    yield "strategy", {"valve": "main", "strategy": "magic"}, "strategy"
    yield "strategy", {"valve": "no", "strategy": "manual"}, "valve"
    yield "strategy", {"valve": "main"}, "strategy"
    yield "cycle", {"action": "faster"}, "action"
    yield "cycle", {}, "action"
    yield "arm", {}, "SAFE"
    yield "start", {}, "ARMED"
    yield "reset", {}, "FAULT"


def _switches() -> Iterator[tuple[str, Any, str]]:
    yield "switch", {}, "component"
    yield "switch", {"component": "relief"}, "set"
    yield "switch", {"component": "relief", "set": {}}, "set"
    yield "switch", {"component": "releif", "set": {"opening_pressure": "120 bar"}}, "relief"
    yield "switch", {"component": "relief", "set": {"opening_presure": "120 bar"}}, "opening_pressure"
    yield "switch", {"component": "relief", "set": {"override": [["5 bar", "20 l/min"]]}}, "override"
    yield (
        "switch",
        {"component": "relief", "set": {"override": [["15 bar", "20 l/min"], ["5 bar", "60 l/min"]]}},
        "override",
    )
    yield "switch", {"component": "relief", "set": {"ports.P": "nowhere"}}, "nowhere"
    yield "switch", {"component": "relief", "set": {"opening_pressure.value": "1 bar"}}, "opening_pressure"
    yield "switch", {"component": "relief", "set": {"": "1 bar"}}, "relief"
    yield "switch", {"component": "relief", "type": "orifice"}, "nominal_flow"
    yield "switch", {"component": "relief", "type": "warp_drive"}, "warp_drive"
    yield "switch", {"component": "pump", "type": "fixed_pump", "values": {"ports": "x"}}, "ports"
    yield "switch", {"component": "pump", "type": "fixed_pump", "values": {"ports": {"P": 3}}}, "ports"
    yield "switch", {"component": "line", "type": "tank"}, "ports"
    yield "switch", {"component": "main_valve", "set": {"command": "throttle"}}, "throttle"
    yield "switch", {"component": "main_valve", "set": {"command": []}}, "command"
    yield "set_parameter", {"component": "main_valve", "set": {"nominal_flow": "60 l/min"}}, "nominal_flow"
    for (component, key), unit in QUANTITIES.items():
        for bad in BAD_VALUES:
            value = bad.format(unit=unit) if isinstance(bad, str) else bad
            yield "set_parameter", {"component": component, "set": {key: value}}, key


def _circuits() -> Iterator[tuple[str, Any, str]]:
    yield "switch_circuit", {}, "circuit"
    yield "switch_circuit", {"file": "no.toml"}, "no.toml"
    yield "switch_circuit", {"file": "../rigs/demo.toml"}, "file"
    yield "switch_circuit", {"file": "/etc/passwd"}, "file"
    yield "switch_circuit", {"circuit": {"components": {}}}, "components"
    yield "switch_circuit", {"circuit": {"components": {"a": 1}}}, "components.a"
    yield "switch_circuit", {"circuit": {"components": {"a": {"type": ["tank"]}}}}, "components.a.type"
    yield "switch_circuit", {"circuit": {"foo": {}, **LIFT}}, "foo"
    yield "switch_circuit", _lift(("solver", "integrator"), "magic"), "solver.integrator"
    yield "switch_circuit", _lift(("solver", "substeps"), 0), "solver.substeps"
    yield "switch_circuit", _lift(("solver", "substeps"), 10**9), "solver.substeps"
    too_slow = {"components": _chain(60), "solver": {"substeps": 1000}}
    yield "switch_circuit", {"circuit": too_slow}, "solver.substeps"
    yield "switch_circuit", _lift(("fluid",), {"density": "-1 kg/m^3"}), "fluid.density"
    yield "switch_circuit", _lift(("nodes", "supply", "pressure"), "140"), "nodes.supply.pressure"
    yield "switch_circuit", _lift(("nodes", "nowhere"), {"pressure": "1 bar"}), "nodes.nowhere"
    yield "switch_circuit", _lift(("components", "line"), None), "line"
    yield "switch_circuit", _lift(("components", "pump", "ports"), {"P": "supply"}), "components.pump.ports.T"
    yield "switch_circuit", _lift(("components", "main_valve", "ports", "A"), "rig.C"), "rig.C"
    yield "switch_circuit", _lift(("components", "a.b"), {"type": "tank", "ports": {"T": "tank"}}), "a.b"
    without = copy.deepcopy(LIFT)
    del without["components"]["line"]
    yield "switch_circuit", {"circuit": without}, "supply"  # a node without a volume
    unstable = _lift(("solver",), {"integrator": "euler", "substeps": 1})
    unstable["circuit"]["components"]["line"]["volume"] = "1e-12 l"
    yield "switch_circuit", unstable, "solver"  # diverges
    yield "switch_circuit", {"circuit": {"components": _two_writers()}}, "components.two.signal"
    yield "switch_circuit", {"circuit": {"components": _chain(150)}}, "values"  # too large


def _lift(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The lift circuit with one value set."""
    circuit = copy.deepcopy(LIFT)
    table = circuit
    for key in path[:-1]:
        table = table.setdefault(key, {})
    table[path[-1]] = value
    return {"circuit": circuit}


def _two_writers() -> dict[str, Any]:
    sensor = {"type": "pressure_sensor", "ports": {"P": "n0"}, "signal": "x"}
    return {"one": sensor, "two": sensor, **_chain(1)}


def _chain(length: int) -> dict[str, Any]:
    volumes = {f"v{i}": {"type": "volume", "ports": {"P": f"n{i}"}, "volume": "1 l"} for i in range(length)}
    ports = {f"o{i}": {"A": f"n{i}", "B": f"n{i + 1}"} for i in range(length - 1)}
    orifice = {"type": "orifice", "nominal_flow": {"flow": "10 l/min", "drop": "5 bar"}}
    return {**volumes, **{name: {**orifice, "ports": nodes} for name, nodes in ports.items()}}


def random_switch(random: np.random.Generator) -> tuple[str, dict[str, Any]]:
    """One of many ways to change the lift circuit."""

    def some(low: float, high: float, unit: str) -> str:
        return f"{random.uniform(low, high):.1f} {unit}"

    values: list[tuple[str, dict[str, Any]]] = [
        ("relief", {"opening_pressure": some(80, 160, "bar")}),
        ("relief", {"settling_time": some(5, 50, "ms")}),
        ("main_valve", {"nominal_flow.flow": some(20, 80, "l/min"), "f45": some(10, 80, "Hz")}),
        ("main_valve", {"leakage.flow": some(0.1, 1, "l/min")}),
        ("line", {"volume": some(1, 5, "l")}),
    ]
    types: list[tuple[str, str, dict[str, Any]]] = [
        ("pump", "fixed_pump", {"displacement": some(20, 50, "cm^3/rev"), "speed": "1450 rpm"}),
        (
            "pump",
            "pressure_compensated_pump",
            {"max_flow": some(30, 70, "l/min"), "set_pressure": some(90, 150, "bar")},
        ),
        ("line", "volume", {"volume": some(1, 5, "l")}),
        ("line", "pipe", {"inner_diameter": "30 mm", "length": some(2, 6, "m"), "wall_thickness": "3 mm"}),
    ]
    kind = random.integers(0, 10)
    if kind == 0:
        return "switch_circuit", {"file": "lift.toml"}
    if kind == 1:
        return "switch_circuit", {"circuit": LIFT}
    if kind <= 4:
        component, type_name, given = types[random.integers(len(types))]
        return "switch", {"component": component, "type": type_name, "values": given}
    component, given = values[random.integers(len(values))]
    if "volume" in given or kind == 5:
        return "switch", {"component": "relief", "set": values[0][1]}
    return "set_parameter", {"component": component, "set": given}
