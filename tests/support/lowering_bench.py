"""A rig that runs config/circuits/lowering.toml: its lines end at the ports of a small, stiff cylinder.

Cylinder and load of the circuit are the machine; the circuit keeps what is in front of them, the counterbalance valve
and its check valve included. Two servo valves of 40 l/min and 60 Hz drive the ports.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from rig_bench import merged

from hilserver.circuit.library import standard_library
from hilserver.rig.build import assemble
from hilserver.rig.rig import Rig
from hilserver.toml import read_toml

CONFIG = Path(__file__).parents[2] / "config"
FILE = CONFIG / "rigs" / "lift.toml"
SENSORS = ("p_A", "p_B", "p_S", "p_T")
NOMINAL = {"flow": "40 l/min", "drop": "35 bar", "per": "edge"}
VALVE = {"nominal_flow": NOMINAL, "f90": "60 Hz", "damping": 0.7}
STEPS = {"substeps": 5}
"""Of the simulated rig: 0.2 ms."""
RETURN = {"pressure": "3 bar"}
"""Of the virtual return line: the real valve needs 2 bar for the flow from the rod side."""
CYLINDER = {
    "bore": "63 mm",
    "rod_diameter": "36 mm",
    "stroke": "800 mm",
    "dead_volume_A": "0.1 l",
    "dead_volume_B": "0.7 l",
}


@functools.cache
def _sources() -> dict[str, Any]:
    whole, lift = read_toml(CONFIG / "circuits" / "lowering.toml"), read_toml(FILE)
    parts, ports = whole["components"], {"load_side": "A", "rod_side": "B"}
    machine = {"cylinder": _at(parts.pop("cylinder"), ports), "load": parts.pop("load")}
    bound = {node: f"rig.{port}" for node, port in ports.items()}
    components = {name: _at(part, bound) for name, part in parts.items()} | {"tank": {**parts["tank"], **RETURN}}
    solver = {**whole["solver"], "substeps": 10}  # of 0.1 ms: the figures of the file's 20 differ by 1 %
    circuit = {**whole, "nodes": {}, "components": components, "solver": solver}
    device = {
        "machine": {
            "fluid": whole["fluid"],
            "components": machine,
            "nodes": {"A": whole["nodes"]["load_side"], "rod": whole["nodes"]["rod"]},
            "solver": STEPS,
        },
        "drive": merged(
            read_toml(CONFIG / "circuits" / "two_valves.toml"),
            {"fluid": whole["fluid"], "components": {"valve_A": VALVE, "valve_B": VALVE}, "solver": STEPS},
        ),
    }
    wide = {"raw": [0, 10], "value": ["0 bar", "400 bar"]}
    rig = merged(
        lift,
        {
            "name": "lowering",
            "devices": {"rig": {"sensors": {name: {"value": ["0 bar", "400 bar"]} for name in SENSORS}}},
            "channels": {name: {"scale": wide} for name in SENSORS},
            "limits": {name: {"max": "350 bar"} for name in ("p_A_high", "p_B_high")},
            "cylinders": {"lift": {**CYLINDER, "mass": "2912 kg"}},
            "valves": {"A": VALVE, "B": VALVE},
        },
    )
    cycle = read_toml(CONFIG / "cycles" / "lowering.toml")
    return {"rig": rig, "circuit": circuit, "cycle": cycle, "devices": {"rig": device}}


def _at(component: dict[str, Any], nodes: dict[str, str]) -> dict[str, Any]:
    """A component with other names of its nodes."""
    ports = {port: nodes.get(node, node) for port, node in component["ports"].items()}
    return {**component, "ports": ports}


def late(milliseconds: float) -> dict[str, Any]:
    """Valves with a further delay that the bridge does not know."""
    actuators = {name: {"delay": f"{1.0 + milliseconds} ms"} for name in ("valve_A", "valve_B")}
    return {"rig": {"devices": {"rig": {"actuators": actuators}}}}


def lowering(changes: dict[str, Any] | None = None) -> Rig:
    """The rig with changes of its source tables: rig, circuit, cycle, devices."""
    return assemble(merged(_sources(), changes or {}), FILE, standard_library())
