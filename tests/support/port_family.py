"""Bridged rigs for everything that can stand at a port: the circuits of `port_circuits`, and the ready ones.

One real servo valve drives both ports (as a 4/3 valve, on a supply like the virtual one), or two drive one each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longer_steps import SUBSTEPS
from port_circuits import KINDS
from port_parts import LINE, B, part, signals, two_way
from port_sizes import BACK, CYCLES, FLUID, LOAD, LOADS, RETURN, SIZES, START, SUPPLY, Size, Table
from rig_bench import merged

from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.rig.build import assemble
from hilserver.rig.rig import Rig
from hilserver.toml import read_toml

CONFIG = Path(__file__).parents[2] / "config"
STEPS = {"substeps": SUBSTEPS}
SOLVER = {"integrator": "rosenbrock", **STEPS}
"""0.25 ms a step, for virtual circuits and simulated rigs: with 0.1 ms, figures differ by 2 % (orifice)."""


@dataclass(frozen=True)
class Case:
    """A circuit on a rig: what stands at the port, names of `SIZES` and `LOADS`, one servo valve or two."""

    kind: str
    size: str = "middle"
    load: str = "light"
    valves: int = 2

    def __str__(self) -> str:
        return f"{self.kind}-{self.size}-{self.load}-{self.valves}"

    def circuit(self) -> Table:
        """The virtual circuit."""
        plain = KINDS[self.kind](SIZES[self.size])
        nodes = {"supply": {"pressure": f"{SUPPLY - 2.0:g} bar"}} if "supply" in plain.components else {}
        nodes |= {node: _start(node, value) for node, value in plain.nodes.items() if node != B}
        return {"fluid": FLUID, "solver": SOLVER, "components": plain.components, "nodes": nodes}

    def sources(self) -> Table:
        """Rig, circuit, cycle and simulated device."""
        size = SIZES[self.size]
        points = [[f"{t:g} s", u] for t, u in CYCLES[self.load]]
        cycle = {"inputs": {"joystick": {"shape": "step", "points": points}}}
        cylinder = _cylinder(size)
        mass = size.mass(LOADS[self.load])
        gravity = LOAD * size.areas[0] / (0.99 * mass)
        back = KINDS[self.kind](size).nodes.get(B, BACK)
        start = {
            "A": {"pressure": f"{LOAD / 1e5 + back * size.areas[1] / size.areas[0]:.6g} bar"},
            "B": {"pressure": f"{back:g} bar"},
            "rod": {"position": f"{START * size.stroke:g} mm"},
        }
        load = part("load_mass", {"rod": "rod"}, mass=f"{0.99 * mass:.6g} kg", gravity=f"{gravity:.6g} m/s^2")
        moving = {
            "ports": {"A": "A", "B": "B", "rod": "rod"},
            "moving_mass": f"{0.01 * mass:.6g} kg",
            "friction": {"efficiency": 0.95, "factor": "constant"},
        }
        machine = {
            "fluid": FLUID,
            "components": {"cylinder": {"type": "cylinder", **cylinder, **moving}, "load": load},
            "nodes": start,
        }
        known = {**cylinder, "mass": f"{mass:.6g} kg", "port_A": "A", "port_B": "B", "position": "x"}
        valve = Valve(3.0 * size.full, size.f90, size.delay)
        names = {"A": ("A", "B")} if self.valves == 1 else {"A": ("A", None), "B": ("B", None)}
        bench = Stand(valve, SUPPLY if self.valves == 1 else 210.0, size.sensors, names)
        rig = bench.rig("family", {"cylinder": known}, {"x": ("rod.x", f"{size.stroke:g} mm")}, ("joystick",))
        return {"rig": rig, "circuit": self.circuit(), "cycle": cycle, "devices": {"rig": bench.device(machine)}}

    def rig(self, changes: Mapping[str, Any] | None = None) -> Rig:
        """The rig, with changes of its source tables."""
        return assemble(merged(self.sources(), changes or {}), Path(f"{self}.toml"), standard_library())


def _start(node: str, value: float) -> Table:
    """Start of a node: bar, or the share of 200 mm of a rod."""
    return {"position": f"{200 * value:g} mm"} if node.endswith("rod") else {"pressure": f"{value:g} bar"}


def closed(case: Case) -> tuple[Rig, float]:
    """A rig whose line A is filled by a source of flow with the signal ``up`` only, and the volume of that line, m³.

    What the source has delivered is in the line or has passed the component into port A: nothing else is connected.
    """
    size, sources = SIZES[case.size], case.sources()
    components = sources["circuit"]["components"]
    filled = part("flow_source", {"P": LINE, "T": "tank"}, flow=size.flow(SOURCE), command="up")
    own = {"main": filled, "leave_B": two_way(size, B, "tank", "up")}
    leak = part("orifice", {"A": "supply", "B": "tank"}, nominal_flow=size.at(0.1, 100))
    kept = {name: value for name, value in components.items() if name != "lower"}
    sources["circuit"]["components"] = {**kept, **signals(), **own, "leak": leak}
    line = float(components["line"]["volume"].removesuffix(" l")) * 1e-3
    return assemble(sources, Path(f"{case}.toml"), standard_library()), line


SOURCE = 0.8
"""Share of the full virtual flow that the source of `closed` passes at command 1."""
CLOSED = (
    "directional_valve_3_2",
    "check_valve",
    "check_valve, small line",
    "pilot_operated_check_valve",
    "counterbalance_valve",
    "pressure_compensator, behind",
    "orifice",
    "throttle_check_valve",
    "volume, small",
    "flow_control_valve_2_way",
    "sequence_valve",
)
"""Kinds with one component between line A and port A, without a drain."""


def _cylinder(s: Size) -> Table:
    return {
        "bore": f"{s.bore:g} mm",
        "rod_diameter": f"{s.rod:g} mm",
        "stroke": f"{s.stroke:g} mm",
        "dead_volume_A": f"{s.dead:g} l",
        "dead_volume_B": f"{s.dead:g} l",
    }


@dataclass(frozen=True)
class Valve:
    """A real servo valve: l/min over an edge at 35 bar, Hz at -90°, ms."""

    flow: float
    f90: float
    delay: float

    def datasheet(self) -> Table:
        nominal = {"flow": f"{self.flow:.6g} l/min", "drop": "35 bar", "per": "edge"}
        return {"nominal_flow": nominal, "f90": f"{self.f90:g} Hz", "damping": 0.7}


@dataclass(frozen=True)
class Stand:
    """The real side: servo valves, a supply (bar) and sensors (delay in ms).

    ``ports``: of each servo valve, by its name: its own, and that at its other edges.
    """

    valve: Valve
    supply: float
    sensors: float
    ports: Mapping[str, tuple[str, str | None]]

    def _pressures(self) -> list[str]:
        return [p for pair in self.ports.values() for p in pair if p is not None]

    def _channel(self, source: str, high: str, noise: str) -> Table:
        scale = {"raw": [0, 10], "value": [f"0 {high.split()[1]}", high]}
        return {"device": "rig", "source": source, "scale": scale, "delay": f"{self.sensors:g} ms", "noise": noise}

    def _sensor(self, of: str, high: str, noise: float) -> Table:
        value = [f"0 {high.split()[1]}", high]
        return {"of": of, "value": value, "noise": noise, "bits": 16, "delay": f"{self.sensors:g} ms"}

    def rig(
        self,
        name: str,
        cylinders: Table,
        positions: Mapping[str, tuple[str, str]],
        inputs: tuple[str, ...],
    ) -> Table:
        """The rig file: pressure sensors of 400 bar with 0.08 bar of noise, position sensors of the stroke, 16 bits."""
        pressures = {f"p_{p}": p for p in (*self._pressures(), "S", "T")}
        sensors = {c: self._sensor(p, "400 bar", 2e-4) for c, p in pressures.items()}
        sensors |= {c: self._sensor(of, high, 1e-5) for c, (of, high) in positions.items()}
        channels = {c: self._channel(c, "400 bar", "0.08 bar") for c in pressures}
        for c, (_, high) in positions.items():
            channels[c] = self._channel(c, high, f"{max(1e-5 * float(high.split()[0]), 0.001):g} mm")
        valves = {}
        for v, (port, other) in self.ports.items():
            valves[v] = {
                **self.valve.datasheet(),
                "delay": f"{self.valve.delay:g} ms",
                "port": port,
                "supply": "p_S",
                "tank": "p_T",
                "device": "rig",
                "output": f"u_{v}",
                "raw": [-10, 10],
                "slew": "400 1/s",
                "bridge": {"strategy": "feedback"},
                **({"other_port": other} if other else {}),
            }
        actuators = {
            f"u_{v}": {"to": f"u_{v}", "raw": [-10, 10], "delay": f"{self.valve.delay:g} ms"} for v in self.ports
        }
        return {
            "name": name,
            "circuit": "circuit.toml",
            "cycle": "cycle.toml",
            "loop": {"rate": "1 kHz", "max_missed": 1000, "max_age": "1 s"},
            "devices": {
                "rig": {
                    "driver": "simulated",
                    "machine": "machine.toml",
                    "drive": "drive.toml",
                    "sensors": sensors,
                    "actuators": actuators,
                }
            },
            "channels": channels,
            "ports": {p: f"p_{p}" for p in self._pressures()},
            "inputs": {i: {"range": [-1, 1]} for i in inputs},
            "limits": {
                f"{p}_high": {"channel": f"p_{p}", "max": "380 bar", "action": "trip"} for p in self._pressures()
            },
            "cylinders": cylinders,
            "valves": valves,
            "mqtt": {"embedded": True, "port": 0},
        }

    def device(self, machine: Table) -> Table:
        """Machine and drive of the simulated device."""
        components: Table = {
            "real_supply": part("pressure_source", {"P": "S"}, pressure=f"{self.supply:g} bar"),
            "real_tank": part("tank", {"T": "T"}, pressure="0.5 bar"),
        }
        for v, (port, other) in self.ports.items():
            ports = {"P": "S", "T": "T", "A": port, "B": other or f"plug_{v}"}
            components[f"real_{v}"] = part("servo_valve", ports, command=f"u_{v}", **self.valve.datasheet())
            if other is None:
                components[f"plug_{v}"] = part("volume", {"P": f"plug_{v}"}, volume="0.05 l")
        drive = {
            "fluid": machine["fluid"],
            "solver": SOLVER,
            "components": components,
        }
        solver = {**machine.get("solver", {}), **STEPS}
        return {"machine": {**machine, "solver": solver}, "drive": drive}


# --- the ready circuits -----------------------------------------------------------------------------------------------

WITHOUT_CYLINDER = {
    "accumulator": "its consumer is an orifice: no line of it ends at a machine",
    "actuator": "for replay of a recorded actuator; its 4/3 valve at both ports is that of lift",
}
"""Ready circuits that are not lifted onto a rig, with the reason. (`boom` is bridged with `boom_valve`'s valve.)"""
REDUCED_MASS = {"boom": {"rod": 505 / 0.604**2}, "excavator": {"boom_rod": 25e3, "arm_rod": 4.8e3, "bucket_rod": 340.0}}
"""kg at the rods of mechanisms: inertia about the pivot at the start over the squared lever arm, roughly."""
REAL_SIDE = {  # real supplies, bar, of two valves and of one (as the virtual one); nominal flow of a valve, l/min
    "verification": (210.0, 140.0, 80.0),
    "lowering": (210.0, 170.0, 40.0),
    "regenerative": (210.0, 150.0, 250.0),
    "crane": (300.0, 250.0, 150.0),
    "boom": (210.0, 150.0, 40.0),
    "excavator": (280.0, 210.0, 150.0),
}
SPEEDS = {"fast": (100.0, 1.0), "usual": (80.0, 2.0), "slow": (60.0, 3.0)}
"""Servo valves: -90° frequency, Hz, and delay, ms."""
AT_THE_MACHINE = ("cylinder", "load_mass", "end_stop")


def _undotted(table: Any, inside: tuple[str, ...] = ()) -> Any:
    """A circuit's table with names of parts of sub-circuits as a rig file can use them: ``boom_A`` for ``boom.A``."""
    inside = inside or tuple({name.partition(".")[0] + "." for name in table["components"] if "." in name} or {"\0"})
    if isinstance(table, str):
        return table.replace(".", "_", 1) if table.startswith(inside) else table
    if isinstance(table, Mapping):
        return {_undotted(key, inside): _undotted(value, inside) for key, value in table.items()}
    return [_undotted(value, inside) for value in table] if isinstance(table, list) else table


@dataclass(frozen=True)
class Ready:
    """A ready circuit whose cylinders, loads and mechanisms are the machine.

    ``valve``: a name of `SPEEDS`. ``share``: of the load's mass.
    """

    name: str
    valve: str = "usual"
    share: float = 1.0
    valves: int = 2

    def __str__(self) -> str:
        return f"{self.name}-{self.valve}-{self.share:g}-{self.valves}"

    def sources(self) -> Table:
        """Rig, circuit, cycle and simulated device."""
        file = CONFIG / "circuits" / f"{self.name}.toml"
        whole = _undotted(dict(read_circuit(read_toml(file), standard_library(), str(file)).source))
        parts = whole["components"]
        machine = {n: c for n, c in parts.items() if c["type"] in AT_THE_MACHINE}
        cylinders = {n: c for n, c in machine.items() if c["type"] == "cylinder"}
        ports = {c["ports"][side] for c in cylinders.values() for side in "AB"}
        rods = {c["ports"]["rod"] for c in cylinders.values()}
        kept = {n: self._kept(c, ports) for n, c in parts.items() if n not in machine}
        nodes = whole.get("nodes", {})
        circuit = {
            **{key: whole[key] for key in ("fluid", "solver")},
            "components": kept,
            "nodes": {n: v for n, v in nodes.items() if n not in ports | rods},
        }
        loads = {n: self._lighter(c) for n, c in machine.items()}
        plant = {
            "fluid": whole["fluid"],
            "components": loads,
            "nodes": {n: v for n, v in nodes.items() if n in ports | rods},
        }
        if "mechanisms" in whole:
            plant |= self._mechanisms(whole)
        cycle = read_toml(CONFIG / "cycles" / f"{self.name}.toml")
        known = {n: self._known(c, loads) for n, c in cylinders.items()}
        sides = [(c["ports"]["A"], c["ports"]["B"]) for c in cylinders.values()]
        driven = [pair for a, b in sides for pair in ([(a, b)] if self.valves == 1 else [(a, None), (b, None)])]
        two, one, flow = REAL_SIDE[self.name]
        supply = one if self.valves == 1 else two
        stand = Stand(Valve(flow, *SPEEDS[self.valve]), supply, 1.0, {port: (port, other) for port, other in driven})
        positions = {f"x_{n}": (f"{c['ports']['rod']}.x", c["stroke"]) for n, c in cylinders.items()}
        rig = stand.rig(self.name, known, positions, tuple(cycle["inputs"]))
        return {"rig": rig, "circuit": circuit, "cycle": cycle, "devices": {"rig": stand.device(plant)}}

    def rig(self, changes: Mapping[str, Any] | None = None) -> Rig:
        """The rig, with changes of its source tables."""
        return assemble(merged(self.sources(), changes or {}), Path(f"{self}.toml"), standard_library())

    def _kept(self, component: Table, ports: set[str]) -> Table:
        nodes = {p: f"rig.{n}" if n in ports else n for p, n in component.get("ports", {}).items()}
        kept = {**component, **({"ports": nodes} if nodes else {})}
        return {**kept, "pressure": RETURN} if component["type"] == "tank" else kept

    def _lighter(self, component: Table) -> Table:
        if component["type"] != "load_mass":
            return component
        mass = float(component["mass"].removesuffix(" kg"))
        gravity = float(component.get("gravity", "9.81 m/s^2").removesuffix(" m/s^2"))
        weight = {"mass": f"{self.share * mass:g} kg", "gravity": f"{gravity / self.share:g} m/s^2"}
        return {**component, **weight}

    def _mechanisms(self, whole: Table) -> Table:
        return {"mechanisms": whole["mechanisms"], "solver": {"mechanics_substeps": 2}}

    def _known(self, cylinder: Table, machine: Table) -> Table:
        rod = cylinder["ports"]["rod"]
        masses = [c["mass"] for c in machine.values() if c["type"] == "load_mass" and c["ports"]["rod"] == rod]
        mass = float(cylinder["moving_mass"].removesuffix(" kg")) + sum(float(m.removesuffix(" kg")) for m in masses)
        mass += REDUCED_MASS.get(self.name, {}).get(rod, 0.0)
        name = next(n for n, c in machine.items() if c is cylinder)
        keys = ("bore", "rod_diameter", "stroke", "dead_volume_A", "dead_volume_B")
        ends = {"port_A": cylinder["ports"]["A"], "port_B": cylinder["ports"]["B"], "position": f"x_{name}"}
        return {**{key: cylinder[key] for key in keys}, **ends, "mass": f"{mass:g} kg"}
