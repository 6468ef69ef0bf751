"""A cylinder at two servo valves on a simulated rig whose sensors show what real ones do at the end of the stroke.

The position sensor's range ends beyond the stroke, so that it shows how far the piston presses the elastic stop; the
pressure sensors show a vacuum. The rig file states the truth: what goes wrong is the bridge.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hilserver.circuit.library import standard_library
from hilserver.compiler import standard_program
from hilserver.fidelity.cycle_run import CycleRun, run_cycle_on
from hilserver.rig.build import assemble

SOLVER = {"integrator": "rosenbrock", "substeps": 10}
PRESSURES = ["-1 bar", "315 bar"]
Points = list[tuple[float, float]]


def short(**changes: Any) -> dict[str, Any]:
    """A short cylinder with small chambers on a slide without friction."""
    geometry = {
        "bore": "50 mm",
        "rod_diameter": "36 mm",
        "stroke": "250 mm",
        "dead_volume_A": "0.1 l",
        "dead_volume_B": "0.1 l",
    }
    return {
        "geometry": geometry,
        "beyond": 10.0,
        "mass": 400.0,
        "direction": "0 deg",
        "start": ("75 mm", "28.9 bar", "60 bar"),
        "rate": 1000.0,
        "sensor_delay": "1 ms",
        **changes,
    }


def proportional_circuit() -> dict[str, Any]:
    """A proportional valve at a supply that holds its pressure."""
    return {
        "solver": SOLVER,
        "components": {
            "tank": {"type": "tank", "ports": {"T": "tank"}},
            "source": {"type": "pressure_source", "ports": {"P": "supply"}, "pressure": "180 bar", "command": 1},
            "valve": {
                "type": "proportional_valve_4_3",
                "ports": {"P": "supply", "T": "tank", "A": "rig.A", "B": "rig.B"},
                "command": "joystick",
                "nominal_flow": {"flow": "30 l/min", "drop": "35 bar", "per": "edge"},
                "f45": "30 Hz",
            },
        },
    }


def run(strategy: str, circuit: dict[str, Any], points: Points, shape: str, cylinder: dict[str, Any]) -> CycleRun:
    """The bridged run of a work cycle, and the reference."""
    sources = {
        "rig": _rig(strategy, cylinder),
        "circuit": circuit,
        "cycle": {"inputs": {"joystick": {"shape": shape, "points": [[f"{t} s", u] for t, u in points]}}},
        "devices": {"rig": {"machine": _machine(cylinder), "drive": _drive()}},
    }
    rig = assemble(sources, Path("two_valves.toml"), standard_library())
    return run_cycle_on(rig, "rig", strategy, standard_program())


def _rig(strategy: str, cylinder: dict[str, Any]) -> dict[str, Any]:
    stroke, delay = float(cylinder["geometry"]["stroke"].split()[0]), cylinder["sensor_delay"]
    positions = [f"{-cylinder['beyond']} mm", f"{stroke + cylinder['beyond']} mm"]
    ends = {**dict.fromkeys(("p_A", "p_B", "p_S", "p_T"), PRESSURES), "x": positions}
    true = {"noise": 2e-4, "bits": 16, "delay": delay}
    of = {"p_A": "A", "p_B": "B", "p_S": "S", "p_T": "T"}
    sensors = {name: {"of": node, "value": PRESSURES, **true} for name, node in of.items()}
    sensors["x"] = {"of": "rod.x", "value": positions, "noise": 1e-5, "bits": 18, "delay": delay}
    channels = {
        name: {"device": "rig", "source": name, "scale": {"raw": [0, 10], "value": range_}, "delay": delay}
        for name, range_ in ends.items()
    }
    for name in of:
        channels[name]["noise"] = "0.0632 bar"
    return {
        "name": "two_valves",
        "circuit": "circuit.toml",
        "cycle": "cycle.toml",
        "loop": {"rate": f"{cylinder['rate']} Hz"},
        "devices": {
            "rig": {
                "driver": "simulated",
                "machine": "machine.toml",
                "drive": "drive.toml",
                "sensors": sensors,
                "actuators": {f"valve_{p}": {"to": f"u_{p}", "raw": [-10, 10], "delay": "1 ms"} for p in "AB"},
            }
        },
        "channels": channels,
        "ports": {"A": "p_A", "B": "p_B"},
        "inputs": {"joystick": {"range": [-1, 1]}},
        "limits": {
            f"{channel}_high": {"channel": channel, "max": "308.7 bar", "action": "trip"} for channel in ("p_A", "p_B")
        },
        "cylinders": {
            "c": {
                "port_A": "A",
                "port_B": "B",
                "position": "x",
                "mass": f"{cylinder['mass']} kg",
                **cylinder["geometry"],
            }
        },
        "valves": {
            port: {
                "port": port,
                "supply": "p_S",
                "tank": "p_T",
                **_servo_valve(),
                "delay": "1 ms",
                "device": "rig",
                "output": f"valve_{port}",
                "raw": [-10, 10],
                "slew": "400 1/s",
                "bridge": {"strategy": strategy},
            }
            for port in "AB"
        },
        "operator": {"require": "none"},
        "mqtt": {"embedded": True, "port": 0},
    }


def _servo_valve() -> dict[str, Any]:
    return {
        "nominal_flow": {"flow": "60 l/min", "drop": "35 bar", "per": "edge"},
        "f90": "80 Hz",
        "damping": 0.7,
    }


def _machine(cylinder: dict[str, Any]) -> dict[str, Any]:
    mass, (x, p_A, p_B) = cylinder["mass"], cylinder["start"]
    own = 0.03 * mass
    return {
        "solver": SOLVER,
        "components": {
            "cylinder": {
                "type": "cylinder",
                "ports": {"A": "A", "B": "B", "rod": "rod"},
                "moving_mass": f"{own} kg",
                "direction": cylinder["direction"],
                **cylinder["geometry"],
            },
            "load": {
                "type": "load_mass",
                "ports": {"rod": "rod"},
                "mass": f"{mass - own} kg",
                "direction": cylinder["direction"],
            },
        },
        "nodes": {"A": {"pressure": p_A}, "B": {"pressure": p_B}, "rod": {"position": x}},
    }


def _drive() -> dict[str, Any]:
    components: dict[str, Any] = {
        "supply": {"type": "pressure_source", "ports": {"P": "S"}, "pressure": "210 bar", "command": 1},
        "tank": {"type": "tank", "ports": {"T": "T"}, "pressure": "0.5 bar"},
    }
    for port in "AB":
        plug = f"plug_{port}"
        components[f"valve_{port}"] = {
            "type": "servo_valve",
            "ports": {"P": "S", "T": "T", "A": port, "B": plug},
            "command": f"u_{port}",
            **_servo_valve(),
        }
        components[plug] = {"type": "volume", "ports": {"P": plug}, "volume": "0.05 l"}
    return {"solver": SOLVER, "components": components}
