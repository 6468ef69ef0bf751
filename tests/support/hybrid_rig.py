"""A small rig with an actuator: a virtual oscillator whose spring is partly real, at 1 kHz."""

from __future__ import annotations

from collections.abc import Mapping
from math import pi
from pathlib import Path
from typing import Any

import numpy as np
from rig_bench import merged

from hilserver.circuit.library import standard_library
from hilserver.numerics.arrays import Floats
from hilserver.rig.build import assemble
from hilserver.rig.rig import Rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.toml import copied

MASS, DAMPING, STIFFNESS = 480.0, 1200.0, 2.0e5
"""Of the virtual part: kg, N s/m, N/m."""
REAL_MASS, REAL_DAMPING, REAL_STIFFNESS = 20.0, 100.0, 3.0e5
"""Of the specimen."""
RATE = 1000.0

_LEVEL = {"gravity": "0 m/s^2"}
_SERVO = {
    "velocity_gain": "40 1/s",
    "f90": "80 Hz",
    "damping": 0.7,
    "oil_stiffness": "2e7 N/m",
    "force_decay": "5 1/s",
}


def _part(kind: str, ports: Mapping[str, str], **values: Any) -> dict[str, Any]:
    return {"type": kind, "ports": dict(ports), **values}


CIRCUIT: dict[str, Any] = {
    "solver": {"substeps": 4},
    "components": {
        "mass": _part("load_mass", {"rod": "rig.table"}, mass=f"{MASS} kg", **_LEVEL),
        "spring": _part("spring", {"rod": "rig.table", "base": "wall"}, stiffness=f"{STIFFNESS} N/m"),
        "damper": _part("damper", {"rod": "rig.table", "base": "wall"}, damping=f"{DAMPING} N*s/m"),
        "wall": _part("velocity_source", {"rod": "wall"}),
        "push": _part("force_source", {"rod": "rig.table"}, force="1 kN", command="push"),
    },
}
SPECIMEN: dict[str, Any] = {
    "solver": {"substeps": 8},
    "components": {
        "real_mass": _part("load_mass", {"rod": "table"}, mass=f"{REAL_MASS} kg", **_LEVEL),
        "real_spring": _part("spring", {"rod": "table", "base": "floor"}, stiffness=f"{REAL_STIFFNESS} N/m"),
        "real_damper": _part("damper", {"rod": "table", "base": "floor"}, damping=f"{REAL_DAMPING} N*s/m"),
        "floor": _part("velocity_source", {"rod": "floor"}),
    },
}
DRIVE: dict[str, Any] = {
    "components": {
        "actuator": _part("position_actuator", {"rod": "table"}, command="command", travel="50 mm", **_SERVO),
    },
}
ACTUATOR: dict[str, Any] = {
    "position": "x",
    "force": "F",
    "device": "lab",
    "output": "command",
    "raw": [-10, 10],
    "range": ["-50 mm", "50 mm"],
    "slew": "1 m/s",
    "servo": dict(_SERVO),
    "specimen": {
        "mass": f"{REAL_MASS} kg",
        "damping": f"{REAL_DAMPING} N*s/m",
        "stiffness": f"{REAL_STIFFNESS} N/m",
    },
    "uncertainty": {"specimen_stiffness": 0.05},
    "bridge": {"approach": "0.5 s"},
}
RIG: dict[str, Any] = {
    "name": "oscillator",
    "circuit": "circuit.toml",
    "loop": {"rate": f"{RATE} Hz", "max_missed": 50},
    "devices": {
        "lab": {
            "driver": "simulated",
            "machine": "specimen.toml",
            "drive": "actuator.toml",
            "sensors": {
                "x": {"of": "table.x", "value": ["-50 mm", "50 mm"], "noise": 1e-5},
                "F": {"of": "actuator.F", "value": ["-20 kN", "20 kN"], "noise": 1e-5},
            },
            "actuators": {"command": {"to": "command", "raw": [-10, 10]}},
        }
    },
    "channels": {
        "x": {"device": "lab", "source": "x", "scale": {"raw": [0, 10], "value": ["-50 mm", "50 mm"]}},
        "F": {"device": "lab", "source": "F", "scale": {"raw": [0, 10], "value": ["-20 kN", "20 kN"]}},
    },
    "inputs": {"push": {"range": [-5, 5]}},
    "actuators": {"table": ACTUATOR},
    "mqtt": {"embedded": True, "port": 0},
}


def sources() -> dict[str, Any]:
    """The tables of the rig."""
    devices = {"lab": {"machine": SPECIMEN, "drive": DRIVE}}
    found: dict[str, Any] = copied({"rig": RIG, "circuit": CIRCUIT, "devices": devices})
    return found


def hybrid_rig(changes: Mapping[str, Any] | None = None) -> Rig:
    """The rig, with changes of its tables."""
    return assemble(merged(sources(), changes or {}), Path("oscillator.toml"), standard_library())


def with_strategy(name: str, **actuator: Any) -> dict[str, Any]:
    """Changes: this strategy, and other settings of the actuator."""
    return {"rig": {"actuators": {"table": {"bridge": {"strategy": name}, **actuator}}}}


def column(rig: Rig, rows: Floats, field: str) -> Floats:
    """A field of the actuator in some rows."""
    found: Floats = rig.layout.values(rows, f"actuator.table.{field}")
    return found


def true_position(rig: Rig, run: LockstepRun) -> Floats:
    """Displacement of the specimen at the end of every tick."""
    return run.true_values("lab")[:, rig.plant_circuits["lab"].packed.names.index("table.x")]


def driven(rig: Rig, run: LockstepRun, frequency: float, seconds: float, amplitude: float = 1.0) -> Floats:
    """Rows with a sine of this amplitude (kN) as the input, beginning now."""
    rows = []
    for k in range(round(seconds * RATE)):
        run.set_input("push", amplitude * float(np.sin(2.0 * pi * frequency * k / RATE)))
        rows.append(run.run(1))
    return np.concatenate(rows)
