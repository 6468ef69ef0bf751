"""A rig with two cylinders that are coupled by an elastic beam, each with a servo valve for each port.

Twice the lift rig, the second with twice the load; the virtual circuit has a valve for each on one pump and joystick.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from hilserver.circuit.library import standard_library
from hilserver.rig.build import assemble, load_rig
from hilserver.rig.rig import Rig

LIFT = Path(__file__).parents[2] / "config/rigs/lift.toml"
Table = dict[str, Any]


def gantry() -> Rig:
    """Both cylinders, with a beam between their loads of which the bridge is not told."""
    sources = copy.deepcopy(dict(load_rig(LIFT).sources))
    rig, device = sources["rig"], sources["rig"]["devices"]["rig"]
    circuits = sources["devices"]["rig"]
    rig["name"] = "gantry"
    for table in (rig["channels"], rig["ports"], rig["cylinders"], rig["valves"], rig["limits"], device["sensors"]):
        table |= {f"{name}_2": second(value) for name, value in table.items() if name not in ("p_S", "p_T")}
    device["actuators"] |= {f"{name}_2": second(value) for name, value in device["actuators"].items()}
    for circuit in (circuits["machine"], circuits["drive"], sources["circuit"]):
        twice(circuit)
    ports = {"rod": "rod", "base": "rod_2"}
    circuits["machine"]["components"] |= {
        "beam": {"type": "spring", "ports": ports, "stiffness": "2e5 N/m", "relaxed": "0 m"},
        "joints": {"type": "damper", "ports": ports, "damping": "2000 N*s/m"},
    }
    circuits["machine"]["components"]["load_2"]["mass"] = "780 kg"
    circuits["machine"]["nodes"]["A_2"]["pressure"] = "49.3 bar"
    rig["cylinders"]["lift_2"]["mass"] = "790 kg"
    return assemble(sources, LIFT, standard_library())


SHARED = ("supply", "tank", "pump", "line", "relief")
"""Components that serve both."""
NODES = ("A", "B", "rod", "plug_A", "plug_B", "rig.A", "rig.B")
SIGNALS = ("u_A", "u_B", "p_A", "p_B", "x", "rod.x", "valve_A", "valve_B")
"""Names that belong to the first cylinder."""


def second(value: Any) -> Any:
    """The same of the second cylinder: what names a part of the first one names that of the second."""
    if isinstance(value, dict):
        return {key: second(entry) for key, entry in value.items()}
    if isinstance(value, str) and value in (*NODES, *SIGNALS):
        return value.replace("rod", "rod_2") if value == "rod.x" else f"{value}_2"
    return copy.deepcopy(value)


def twice(circuit: Table) -> None:
    """A circuit with a second one of all that is not shared."""
    components, nodes = circuit["components"], circuit.get("nodes", {})
    components |= {f"{name}_2": second(table) for name, table in components.items() if name not in SHARED}
    circuit["nodes"] = nodes | {f"{name}_2": second(value) for name, value in nodes.items() if name not in SHARED}
