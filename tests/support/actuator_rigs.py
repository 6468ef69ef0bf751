"""Rigs with a position-controlled actuator at the node ``rig.table``, and what they should do, worked out by SciPy.

The simulated actuator is either the linear one of the library or made of hydraulics: pressure source, servo valve,
double-rod cylinder and a proportional position loop. The bridge is told five figures of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rig_bench import merged
from scipy.integrate import solve_ivp

from hilserver.circuit.library import standard_library
from hilserver.numerics.arrays import Floats
from hilserver.rig.build import assemble
from hilserver.rig.rig import Rig
from hilserver.simulation.lockstep import LockstepRun

Table = dict[str, Any]
TRAVEL = 0.05
"""m, of the actuator to both sides."""
FORCE = 1e5
"""N, range of the load cell."""
ENDS = [f"{-TRAVEL} m", f"{TRAVEL} m"]
FORCES = [f"{-FORCE} N", f"{FORCE} N"]
START = 3.0
"""s, when the excitation of a virtual circuit begins: RUNNING, and at the virtual position."""


def part(type_name: str, ports: Mapping[str, str], **values: Any) -> Table:
    """A component's table."""
    return {"type": type_name, "ports": dict(ports), **values}


@dataclass(frozen=True)
class Specimen:
    """Mass kg, damping N s/m, stiffness N/m."""

    mass: float = 30.0
    damping: float = 120.0
    stiffness: float = 1.2e6

    def machine(self, middle: float = 0.0, **others: Table) -> Table:
        """It on a foundation, without force at ``middle``, with further components."""
        base = {"rod": "table", "base": "ground"}
        found = {
            "real_mass": part("load_mass", {"rod": "table"}, mass=f"{self.mass} kg", gravity="0 m/s^2"),
            "ground": part("velocity_source", {"rod": "ground"}),
        }
        if self.stiffness > 0.0:
            found["real_spring"] = part("spring", base, stiffness=f"{self.stiffness} N/m", relaxed=f"{middle} m")
        if self.damping > 0.0:
            found["real_damper"] = part("damper", base, damping=f"{self.damping} N*s/m")
        return {"components": {**found, **others}, "nodes": {"table": {"position": f"{middle} m"}}}

    def described(self) -> Table:
        """As the rig file states it."""
        return {
            "mass": f"{self.mass} kg",
            "damping": f"{self.damping} N*s/m",
            "stiffness": f"{self.stiffness} N/m",
        }


@dataclass(frozen=True)
class Servo:
    """An actuator in the terms of the rig file, 1/s, Hz, 1, N/m, 1/s, 1."""

    velocity_gain: float = 50.0
    f90: float = 50.0
    damping: float = 0.7
    oil_stiffness: float = 4.2e6
    force_decay: float = 3.3
    position_gain: float = 1.0

    def described(self) -> Table:
        """As rig file and library state it."""
        return {
            "velocity_gain": f"{self.velocity_gain} 1/s",
            "f90": f"{self.f90} Hz",
            "damping": self.damping,
            "oil_stiffness": f"{self.oil_stiffness} N/m",
            "force_decay": f"{self.force_decay} 1/s",
            "position_gain": self.position_gain,
        }

    def drive(self) -> Table:
        """The linear actuator of the library."""
        own = part("position_actuator", {"rod": "table"}, command="command", travel=f"{TRAVEL} m", **self.described())
        return {"components": {"actuator": own}}


@dataclass(frozen=True)
class Hydraulic:
    """An actuator made of hydraulics, m, Pa and 1/s, with what describes it to the bridge."""

    bore: float = 0.063
    rod: float = 0.045
    stroke: float = 0.11
    pressure: float = 210e5
    bulk: float = 1.4e9
    loop_gain: float = 50.0
    f90: float = 80.0
    leak: float = 3.3
    dead: float = 0.02e-3

    @property
    def area(self) -> float:
        """Of the piston, m²."""
        return float(0.25 * np.pi * (self.bore**2 - self.rod**2))

    @property
    def chamber(self) -> float:
        """Oil on one side in the middle, m³."""
        return 0.5 * self.area * self.stroke + self.dead

    def known(self) -> Servo:
        """4 B A²/V with the oil V of both sides; leakage: 2 B C/V_chamber."""
        return Servo(self.loop_gain, self.f90, 0.7, 2.0 * self.bulk * self.area**2 / self.chamber, self.leak)

    def drive(self, full_speed: float = 0.5) -> Table:
        """``full_speed``: m/s without load, with the valve open."""
        flow = {"flow": f"{full_speed * self.area} m^3/s", "drop": f"{0.5 * self.pressure} Pa", "per": "edge"}
        leak = self.leak * self.chamber / (2.0 * self.bulk)  # m³/(s Pa) from chamber to chamber
        components = {
            "supply": part("pressure_source", {"P": "S"}, pressure=f"{self.pressure} Pa"),
            "tank": part("tank", {"T": "T"}, pressure="0 bar"),
            "valve": part(
                "servo_valve",
                {"P": "S", "T": "T", "A": "A", "B": "B"},
                command="opening",
                nominal_flow=flow,
                f90=f"{self.f90} Hz",
                damping=0.7,
            ),
            "cylinder": self._cylinder(),
        }
        components |= self._loop(full_speed) | self._cell()
        if leak > 0.0:
            components["leak"] = part(
                "laminar_restrictor",
                {"A": "A", "B": "B"},
                nominal_flow={"flow": f"{leak * 1e5} m^3/s", "drop": "1 bar"},
            )
        nodes = {port: {"pressure": f"{0.5 * self.pressure} Pa"} for port in "AB"}
        fluid = {"bulk_modulus": f"{self.bulk} Pa", "air_fraction": 0.0}
        solver = {"integrator": "rosenbrock", "substeps": 10}
        return {"components": components, "nodes": nodes, "fluid": fluid, "solver": solver}

    def _cylinder(self) -> Table:
        return part(
            "double_rod_cylinder",
            {"A": "A", "B": "B", "rod": "table"},
            bore=f"{self.bore} m",
            rod_diameter=f"{self.rod} m",
            stroke=f"{self.stroke} m",
            moving_mass="0.001 kg",
            dead_volume_A=f"{self.dead} m^3",
            dead_volume_B=f"{self.dead} m^3",
            friction={"efficiency": 1},
        )

    def _loop(self, full_speed: float) -> Table:
        """Position error times gain over full speed opens the valve."""
        to_opening = self.loop_gain / full_speed
        shift = to_opening * 0.5 * self.stroke
        return {
            "sensor": part(
                "position_sensor",
                {"rod": "table"},
                signal="place",
                time_constant="0.1 ms",
                initial=f"{0.5 * self.stroke} m",
            ),
            "error": {
                "type": "sum",
                "a": "command",
                "b": "place",
                "signal": "away",
                "weight_a": TRAVEL,
                "weight_b": -1,
            },
            "loop": {"type": "gain", "input": "away", "signal": "wanted", "gain": to_opening, "offset": shift},
            "bounds": {"type": "limiter", "input": "wanted", "signal": "opening"},
        }

    def _cell(self) -> Table:
        """Load cell: the pressure difference times the area, signal ``pull``."""
        cells = {
            f"cell_{port}": part(
                "pressure_sensor",
                {"P": port},
                signal=f"p_{port}",
                time_constant="0.05 ms",
                initial=f"{0.5 * self.pressure} Pa",
            )
            for port in "AB"
        }
        weights = {"weight_a": self.area, "weight_b": -self.area}
        return {**cells, "cell": {"type": "sum", "a": "p_A", "b": "p_B", "signal": "pull", **weights}}


@dataclass(frozen=True)
class Stand:
    """A rig with one actuator. Delays in s, noise in m and N as standard deviations of the sensors.

    ``late``: true delays of displacement and force; ``stated``: those in the rig file. ``drive``: tables of the
    actuator, by default the linear one as described. ``changes``: of the source tables.
    """

    circuit: Table
    rate: float = 1000.0
    specimen: Specimen = Specimen()
    known: Specimen | None = None
    servo: Servo = Servo()
    drive: Table | None = None
    machine: Table | None = None
    late: tuple[float, float] = (0.0, 0.0)
    stated: tuple[float, float] = (0.0, 0.0)
    command: tuple[float, float] = (0.0, 0.0)
    noise: tuple[float, float] = (2e-6, 2.0)
    strategy: str = "prediction"
    of: tuple[str, str] = ("table.x", "actuator.F")
    middle: float = 0.0
    changes: Mapping[str, Any] = field(default_factory=dict)

    def sources(self) -> Table:
        """Rig, circuit and simulated device."""
        rig = {
            "name": "stand",
            "circuit": "circuit.toml",
            "loop": {"rate": f"{self.rate} Hz", "max_missed": 100, "max_age": "1 s"},
            "devices": {"lab": self._device()},
            "channels": self._channels(),
            "actuators": {"table": self._actuator()},
            "mqtt": {"embedded": True, "port": 0},
        }
        plant = {"machine": self.machine or self.specimen.machine(), "drive": self.drive or self.servo.drive()}
        return merged({"rig": rig, "circuit": self.circuit, "devices": {"lab": plant}}, self.changes)

    def _device(self) -> Table:
        places = [f"{self.middle - TRAVEL} m", f"{self.middle + TRAVEL} m"]
        late, noise = self.late, (self.noise[0] / (2.0 * TRAVEL), self.noise[1] / (2.0 * FORCE))
        sensors = {
            "x": {"of": self.of[0], "value": places, "noise": noise[0], "delay": f"{late[0]} s"},
            "F": {"of": self.of[1], "value": FORCES, "noise": noise[1], "delay": f"{late[1]} s"},
        }
        actuators = {"command": {"to": "command", "raw": [-10, 10], "delay": f"{self.command[0]} s"}}
        files = {"machine": "machine.toml", "drive": "drive.toml"}
        return {"driver": "simulated", **files, "sensors": sensors, "actuators": actuators}

    def _channels(self) -> Table:
        return {
            name: {
                "device": "lab",
                "source": name,
                "scale": {"raw": [0, 10], "value": values},
                "noise": noise,
                "delay": f"{stated} s",
            }
            for name, values, noise, stated in (
                ("x", ENDS, f"{max(self.noise[0], 1e-7)} m", self.stated[0]),
                ("F", FORCES, f"{max(self.noise[1], 0.1)} N", self.stated[1]),
            )
        }

    def _actuator(self) -> Table:
        return {
            "position": "x",
            "force": "F",
            "device": "lab",
            "output": "command",
            "delay": f"{self.command[1]} s",
            "raw": [-10, 10],
            "range": ENDS,
            "slew": "5 m/s",
            "max_error": "50 mm",
            "servo": self.servo.described(),
            "specimen": (self.known or self.specimen).described(),
            "bridge": {"strategy": self.strategy, "approach": "1 s"},
        }

    def rig(self) -> Rig:
        """The rig."""
        return assemble(self.sources(), Path("stand.toml"), standard_library())


def add_actuator(sources: Table) -> None:
    """Another actuator like the first one, with a device of its own, at the node ``rig.two``."""
    rig, devices = sources["rig"], sources["devices"]
    rig["devices"]["lab2"] = {**rig["devices"]["lab"], "machine": "machine2.toml", "drive": "drive2.toml"}
    devices["lab2"] = deepcopy(devices["lab"])
    for name in ("x", "F"):
        rig["channels"][f"{name}2"] = {**rig["channels"][name], "device": "lab2"}
    rig["actuators"]["two"] = {**rig["actuators"]["table"], "position": "x2", "force": "F2", "device": "lab2"}


@dataclass(frozen=True)
class Motion:
    """A run: time at the end of each tick, displacement of the specimen, position of the node, command, rows."""

    time: Floats
    real: Floats
    virtual: Floats
    command: Floats
    rows: Floats
    rig: Rig
    true: Floats

    def column(self, name: str) -> Floats:
        """A column of the rows."""
        found: Floats = self.rows[:, self.rig.layout.column(name)]
        return found


def moved(rig: Rig, seconds: float, told: Callable[[LockstepRun], None] | None = None, middle: float = 0.0) -> Motion:
    """Run a rig for so many s after the start of RUNNING."""
    with LockstepRun(rig, trace=True) as run:
        first = run.arm_and_start()
        if told is not None:
            told(run)
        rows = np.concatenate([first, run.run(round(seconds / run.dt))])
        true = run.true_values("lab")
    return recorded(rig, rows, true, middle)


def recorded(rig: Rig, rows: Floats, true: Floats, middle: float = 0.0) -> Motion:
    """What a run has recorded."""
    plant, start = rig.plant_circuits["lab"].packed.names, len(rig.layout.names)
    names = list(rig.packed.names)
    circuit = rows[:, start : start + len(names)]
    virtual = circuit[:, names.index("rig.table.x")] if "rig.table.x" in names else np.full(len(rows), np.nan)
    return Motion(
        circuit[:, names.index("t")],
        true[:, plant.index("table.x")] - middle,
        virtual,
        rows[:, rig.layout.column("actuator.table.command")],
        rows,
        rig,
        true,
    )


# --- virtual circuits -------------------------------------------------------------------------------------------------

SINES = ((0.7, 0.0), (1.0, 1.0), (1.3, 2.0))
"""Excitation: frequencies as shares of the oscillator's, and phases."""


@dataclass(frozen=True)
class Oscillator:
    """A virtual mass on a spring, kg, Hz and damping ratio of the whole with the specimen, pushed by ``force`` N."""

    mass: float = 1000.0
    frequency: float = 3.0
    ratio: float = 0.05
    force: float = 1000.0
    specimen: Specimen = Specimen()

    def whole(self) -> tuple[float, float, float]:
        """Mass, damping and stiffness of the whole."""
        mass = self.mass + self.specimen.mass
        omega = 2.0 * np.pi * self.frequency
        return mass, 2.0 * self.ratio * omega * mass, omega**2 * mass

    def circuit(self) -> Table:
        """The whole minus the specimen, which may leave a negative spring."""
        _, damping, stiffness = self.whole()
        base = {"rod": "rig.table", "base": "earth"}
        c, k = damping - self.specimen.damping, stiffness - self.specimen.stiffness
        components = {
            "mass": part("load_mass", {"rod": "rig.table"}, mass=f"{self.mass} kg", gravity="0 m/s^2"),
            "earth": part("velocity_source", {"rod": "earth"}),
            "spring": part("elastic_coupling", base, stiffness=f"{k} N/m", damping=f"{c} N*s/m"),
            "mix": {"type": "sum", "a": "s0", "b": "s1", "c": "s2", "signal": "push"},
            "force": part("force_source", {"rod": "rig.table"}, command="push", force=f"{self.force} N"),
        }
        for number, (part_of, phase) in enumerate(SINES):
            components[f"s{number}"] = {
                "type": "sine_signal",
                "signal": f"s{number}",
                "frequency": f"{part_of * self.frequency} Hz",
                "phase": f"{phase} rad",
                "start": f"{START} s",
            }
        return {"solver": {"integrator": "rk4", "substeps": 4}, "components": components}

    def pushed(self, t: float) -> float:
        """The force on it, N."""
        if t < START:
            return 0.0
        turns = ((2.0 * np.pi * each * self.frequency * (t - START), phase) for each, phase in SINES)
        return self.force * float(sum(np.sin(angle + phase) for angle, phase in turns))

    def right(self, time: Floats) -> Floats:
        """Position of the whole at these times: exact, as the sum of its steady and free motion."""
        m, c, k = self.whole()
        found, s = np.zeros(len(time)), 1j * 2.0 * np.pi * self.frequency
        since = time - START
        x0, v0 = 0.0, 0.0
        for part_of, phase in SINES:
            at = part_of * s
            steady = self.force * np.exp(1j * phase) / (m * at**2 + c * at + k)
            found += (steady * np.exp(at * since)).imag
            x0 -= float(steady.imag)
            v0 -= float((at * steady).imag)
        pole = -c / (2.0 * m) + 1j * np.sqrt(k / m - (c / (2.0 * m)) ** 2)
        a = x0 + 1j * (pole.real * x0 - v0) / pole.imag
        found += (a * np.exp(pole * since)).real
        return np.where(since > 0.0, found, 0.0)


def share(found: Floats, right: Floats) -> float:
    """RMS of the difference relative to that of what is right."""
    return float(np.sqrt(np.mean((found - right) ** 2)) / np.sqrt(np.mean(right**2)))


def solved(motion: Callable[[float, Floats], Sequence[float]], start: Sequence[float], time: Floats) -> Floats:
    """An independent simulation: states at these times by an implicit method with error control."""
    found = solve_ivp(motion, (0.0, float(time[-1])), start, "LSODA", time, rtol=1e-8, atol=1e-10, max_step=5e-3)
    states: Floats = found.y.T
    return states
