"""Changes of a simulated device: each draws a value from its usual range and enters it into the device's tables.

A change has no effect on a rig that lacks what it concerns (a load, a cylinder, a servo valve).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import pi, sin
from typing import Any

from hilserver.components.base import Fluid
from hilserver.components.servo_valve import EdgeFlows, ServoValve
from hilserver.fidelity.draws import Draw
from hilserver.units import quantity, to_si

Table = dict[str, Any]

CYLINDERS = ("cylinder", "double_rod_cylinder", "single_acting_cylinder")
SEAL_PRESSURE = 160e5
"""Pa on the piston; the static friction is a fraction of its force at this pressure."""
HOSE_DIAMETER = 0.016
"""m."""
LINE_SHARE = 0.2
"""Fraction of a chamber's dead volume that lies between port and restriction."""
ROD_SPEED = 0.2
"""m/s at which a restriction has its drop."""
USUAL_VISCOSITY = Fluid.model_fields["viscosity"].default
USUAL_MODULUS = Fluid.model_fields["bulk_modulus"].default
USUAL_TRANSITION = ServoValve.model_fields["transition_pressure"].default
"""Of an oil, and of the edges of a servo valve, that do not state them."""
LEAKAGE_DROP = 70e5
"""Pa over an edge at which the datasheets of servo valves state the leakage."""


@dataclass(frozen=True)
class DeviceTables:
    """The tables of a simulated device, to be changed in place; ``settings``: its own; ``dt``: tick, s."""

    machine: Table
    drive: Table
    settings: Table
    sensors: Table
    actuators: Table
    dt: float

    @classmethod
    def of(cls, sources: Mapping[str, Any], name: str, dt: float) -> DeviceTables:
        """The simulated device of this name in a rig's sources."""
        circuits, device = sources["devices"][name], sources["rig"]["devices"][name]
        parts = device["sensors"], device.get("actuators", {})
        return cls(circuits["machine"], circuits["drive"], device, *parts, dt)

    def cylinders(self) -> Iterator[tuple[str, Table]]:
        """Cylinders of the machine, by name."""
        return of_type(self.machine, *CYLINDERS)

    def valves(self) -> Iterator[tuple[str, Table]]:
        """Servo valves of the drive, by name."""
        return of_type(self.drive, "servo_valve")

    def change_oil(self, key: str, value: object) -> None:
        """Machine and drive share their oil."""
        for circuit in (self.machine, self.drive):
            circuit["fluid"] = {**circuit.get("fluid", {}), key: value}

    def allow_stiff(self) -> None:
        """Integrate small volumes behind restrictions without small steps."""
        for circuit in (self.machine, self.drive):
            circuit["solver"] = {**circuit.get("solver", {}), "integrator": "rosenbrock"}


def of_type(circuit: Table, *types: str) -> Iterator[tuple[str, Table]]:
    """The components of these types in a circuit table, by name; others may be added in the meantime."""
    return iter([(name, table) for name, table in circuit.get("components", {}).items() if table["type"] in types])


def si(value: object, unit: str) -> float:
    """A value of a table in this SI unit; ``""``: a number or a percentage."""
    return to_si(value, unit) if isinstance(value, str) else float(str(value))


def scaled(table: Table, key: str, unit: str, factor: float) -> None:
    """Multiply a value of a table."""
    value = factor * si(table[key], unit)
    table[key] = f"{value!r} {unit}" if unit else value


def with_flow(point: Mapping[str, Any], flow: float) -> Table:
    """A point of a datasheet with another flow, m³/s."""
    return {**point, "flow": f"{flow!r} m^3/s"}


def _drawn(draw: Draw, low: float, high: float, unit: str, name: str = "") -> str:
    """A drawn value as a table has it."""
    return f"{draw.uniform(low, high, unit, name)!r} {unit}"


# --- machine ----------------------------------------------------------------------------------------------------------


def load(rig: DeviceTables, draw: Draw) -> None:
    """Change inertias, and load masses with the pressures that hold them at the start."""
    for _, part in of_type(rig.machine, "inertia"):
        scaled(part, "inertia", "kg*m^2", draw.uniform(0.5, 1.5))
    for _, part in of_type(rig.machine, "load_mass"):
        stated = _weight(part)
        scaled(part, "mass", "kg", draw.uniform(0.5, 1.5))
        _carry(rig, part["ports"]["rod"], _weight(part) - stated)


def _weight(part: Table) -> float:
    """Force of a load mass against increasing position, N."""
    direction, gravity = si(part.get("direction", "90 deg"), "rad"), si(part.get("gravity", "9.81 m/s^2"), "m/s^2")
    return si(part["mass"], "kg") * gravity * sin(direction)


def _carry(rig: DeviceTables, rod: str, force: float) -> None:
    """Start the cylinder on this rod in balance with an additional force against it, N."""
    for _, cylinder in rig.cylinders():
        node = cylinder["ports"]["A"]
        start = rig.machine.get("nodes", {}).get(node)
        if cylinder["ports"]["rod"] == rod and start is not None and "pressure" in start:
            pressure = si(start["pressure"], "Pa") + force / _piston_area(cylinder)
            start["pressure"] = f"{max(pressure, 0.0)!r} Pa"


def _piston_area(cylinder: Table) -> float:
    """Area of the bore, m²."""
    return 0.25 * pi * si(cylinder["bore"], "m") ** 2


def elastic_frame(rig: DeviceTables, draw: Draw) -> None:
    """Put a damped spring, loaded by the weight at the start, between rod and load."""
    for name, part in of_type(rig.machine, "load_mass"):
        rod, moved, mass = part["ports"]["rod"], f"{name} behind its spring", si(part["mass"], "kg")
        omega = 2.0 * pi * draw.uniform(15.0, 40.0, "1/s", "frequency")
        stiffness, damping = mass * omega**2, 2.0 * draw.uniform(0.02, 0.05, name="damping") * mass * omega
        ports = {"rod": rod, "base": moved}
        part["ports"] = {"rod": moved}
        rig.machine["components"] |= {
            f"{name}_spring": {
                "type": "spring",
                "ports": ports,
                "stiffness": f"{stiffness!r} N/m",
                "relaxed": f"{-_weight(part) / stiffness!r} m",
            },
            f"{name}_damper": {"type": "damper", "ports": ports, "damping": f"{damping!r} N*s/m"},
        }
        if rod in (nodes := rig.machine.setdefault("nodes", {})):
            nodes[moved] = dict(nodes[rod])


def friction(rig: DeviceTables, draw: Draw) -> None:
    """Replace the friction of the cylinders by the LuGre law."""
    for _, cylinder in rig.cylinders():
        static = draw.uniform(0.01, 0.08) * SEAL_PRESSURE * _piston_area(cylinder)
        cylinder["friction"] = {"law": "lugre", "static": f"{static!r} N"}


def viscosity(rig: DeviceTables, draw: Draw) -> None:
    """Change the oil's viscosity, and with it the leakage of pistons, and where the flow over edges is laminar."""
    stated = _viscosity(rig)
    ratio = draw.uniform(15.0, 120.0, "mm^2/s") * 1e-6 / stated
    rig.change_oil("viscosity", f"{ratio * stated!r} m^2/s")
    for part, changes in zip((rig.machine, rig.drive), _with_viscosity(rig, ratio), strict=True):
        for name, values in changes.items():
            part["components"][name] |= values


def _viscosity(rig: DeviceTables) -> float:
    """The viscosity of the oil, m²/s."""
    return si(rig.machine.get("fluid", {}).get("viscosity", USUAL_VISCOSITY), "m^2/s")


def _with_viscosity(rig: DeviceTables, ratio: float) -> tuple[Table, Table]:
    """Values of components of machine and drive that follow from ``ratio`` times the viscosity.

    At a given Reynolds number, the flow is proportional to the viscosity, and the pressure drop to its square.
    """
    machine, drive = Table(), Table()
    for name, cylinder in rig.cylinders():
        if "leakage" in cylinder:
            machine[name] = {"leakage": f"{si(cylinder['leakage'], 'm^3/(s*Pa)') / ratio!r} m^3/(s*Pa)"}
    for name, valve in rig.valves():
        laminar = ratio**2 * si(valve.get("transition_pressure", USUAL_TRANSITION), "Pa")
        highest = 0.5 * si(valve["nominal_flow"]["drop"], "Pa")  # the nominal flow is turbulent
        drive[name] = {"transition_pressure": f"{min(laminar, highest)!r} Pa"}
    return machine, drive


def motor_losses(rig: DeviceTables, draw: Draw) -> None:
    """Change the efficiencies of hydraulic motors."""
    for _, motor in of_type(rig.machine, "hydraulic_motor"):
        motor["volumetric_efficiency"] = draw.uniform(0.88, 0.97, name="volumetric")
        motor["hydromechanical_efficiency"] = draw.uniform(0.85, 0.95, name="hydromechanical")


def piston_leakage(rig: DeviceTables, draw: Draw) -> None:
    """Add leakage past the pistons."""
    for _, cylinder in rig.cylinders():
        if cylinder["type"] != "single_acting_cylinder":
            cylinder["leakage"] = _drawn(draw, 0.001, 0.02, "l/min/bar")


def bulk_modulus(rig: DeviceTables, draw: Draw) -> None:
    """Change the bulk modulus of machine and drive."""
    rig.change_oil("bulk_modulus", _drawn(draw, 1.1e9, 1.8e9, "Pa"))


def air(rig: DeviceTables, draw: Draw) -> None:
    """Change the free air of machine and drive."""
    rig.change_oil("air_fraction", draw.uniform(0.002, 0.02))


def changing_oil(rig: DeviceTables, draw: Draw) -> None:
    """Let the oil become warmer and its free air change while the rig runs, unless the device states a drift itself."""
    if "drift" in rig.settings:
        return
    ratio, stiffness = draw.uniform(0.3, 1.0, name="viscosity"), draw.uniform(0.85, 1.0, name="bulk_modulus")
    modulus = stiffness * si(rig.machine.get("fluid", {}).get("bulk_modulus", USUAL_MODULUS), "Pa")
    oil = {
        "viscosity": f"{ratio * _viscosity(rig)!r} m^2/s",
        "bulk_modulus": f"{modulus!r} Pa",
        "air_fraction": draw.uniform(0.002, 0.02, name="air"),
    }
    machine, drive = ({"fluid": oil, "components": changes} for changes in _with_viscosity(rig, ratio))
    rig.settings["drift"] = {"over": _drawn(draw, 20.0, 200.0, "s", "time"), "machine": machine, "drive": drive}


def dead_volume(rig: DeviceTables, draw: Draw) -> None:
    """Change the dead volume at each port of a cylinder."""
    for _, cylinder, port in _ports(rig):
        scaled(cylinder, f"dead_volume_{port}", "m^3", draw.uniform(0.75, 1.25))


def hose(rig: DeviceTables, draw: Draw) -> None:
    """Put a part of the dead volume at each port into a hose."""
    for name, cylinder, port in _ports(rig):
        oil = _taken(cylinder, port, draw.uniform(0.2, 0.8, name="share"))
        rig.machine["components"][f"{name}_hose_{port}"] = {
            "type": "hose",
            "ports": {"P": cylinder["ports"][port]},
            "inner_diameter": f"{HOSE_DIAMETER!r} m",
            "length": f"{oil / (0.25 * pi * HOSE_DIAMETER**2)!r} m",
            "wall_coefficient": _drawn(draw, 1.5e5, 3e5, "Pa^0.5", "wall_coefficient"),
        }


def restriction(rig: DeviceTables, draw: Draw) -> None:
    """Put an orifice, with some of the dead volume before it, between each port and its chamber."""
    for name, cylinder, port in _ports(rig):
        node, chamber = cylinder["ports"][port], f"{name} behind its restriction {port}"
        flow, line = ROD_SPEED * _piston_area(cylinder), _taken(cylinder, port, LINE_SHARE)
        cylinder["ports"] = {**cylinder["ports"], port: chamber}
        drop = draw.uniform(1e5, 8e5, "Pa")
        rig.machine["components"] |= {
            f"{name}_line_{port}": {"type": "volume", "ports": {"P": node}, "volume": f"{line!r} m^3"},
            f"{name}_restriction_{port}": {
                "type": "orifice",
                "ports": {"A": node, "B": chamber},
                "nominal_flow": {"flow": f"{flow!r} m^3/s", "drop": f"{drop!r} Pa"},
            },
        }
        if node in (nodes := rig.machine.get("nodes", {})):
            nodes[chamber] = dict(nodes[node])
        rig.allow_stiff()


def _taken(cylinder: Table, port: str, share: float) -> float:
    """Take a fraction of a chamber's dead volume for a separate component, m³."""
    key = f"dead_volume_{port}"
    volume = share * si(cylinder[key], "m^3")
    scaled(cylinder, key, "m^3", 1.0 - share)
    return volume


def _ports(rig: DeviceTables) -> Iterator[tuple[str, Table, str]]:
    """Each cylinder with each of its hydraulic ports."""
    for name, cylinder in rig.cylinders():
        yield from ((name, cylinder, port) for port in ("A", "B") if port in cylinder["ports"])


# --- valve and supply -------------------------------------------------------------------------------------------------


def nominal_flow(rig: DeviceTables, draw: Draw) -> None:
    """Change the nominal flow of the servo valves."""
    for _, valve in rig.valves():
        point = valve["nominal_flow"]
        valve["nominal_flow"] = with_flow(point, draw.uniform(0.9, 1.1) * si(point["flow"], "m^3/s"))


def frequency(rig: DeviceTables, draw: Draw) -> None:
    """Change the frequency of the servo valves."""
    for _, valve in rig.valves():
        scaled(valve, "f90", "1/s", draw.uniform(0.7, 1.3))


def damping(rig: DeviceTables, draw: Draw) -> None:
    """Change the damping ratio of the servo valves."""
    for _, valve in rig.valves():
        valve["damping"] = draw.uniform(0.7, 1.3) * si(valve.get("damping", 0.8), "")


def overlap(rig: DeviceTables, draw: Draw) -> None:
    """Add overlap to the servo valves."""
    for _, valve in rig.valves():
        valve["overlap"] = si(valve.get("overlap", 0.0), "") + draw.uniform(0.003, 0.03)


def hysteresis(rig: DeviceTables, draw: Draw) -> None:
    """Give the servo valves a hysteresis."""
    for _, valve in rig.valves():
        valve["hysteresis"] = draw.uniform(0.001, 0.005)


def unequal_edges(rig: DeviceTables, draw: Draw) -> None:
    """Change the flow of each edge of the servo valves."""
    for _, valve in rig.valves():
        valve["edges"] = {edge: draw.uniform(0.95, 1.05, name=edge) for edge in EdgeFlows.model_fields}


def null_offset(rig: DeviceTables, draw: Draw) -> None:
    """Shift the null of the servo valves."""
    for _, valve in rig.valves():
        valve["null_offset"] = si(valve.get("null_offset", 0.0), "") + draw.uniform(-0.02, 0.02)


def worn_edges(rig: DeviceTables, draw: Draw) -> None:
    """Replace the leakage of the servo valves."""
    for _, valve in rig.valves():
        flow = draw.uniform(0.01, 0.05) * si(valve["nominal_flow"]["flow"], "m^3/s")
        valve["leakage"] = with_flow({"drop": f"{LEAKAGE_DROP!r} Pa", "per": "edge"}, flow)


def valve_delay(rig: DeviceTables, draw: Draw) -> None:
    """Delay each actuator more."""
    _later(rig.actuators, rig.dt, draw)


def droop(rig: DeviceTables, draw: Draw) -> None:
    """Put an orifice between each pressure source and the valves, with a volume behind it."""
    flows = [si(valve["nominal_flow"]["flow"], "m^3/s") for _, valve in rig.valves()]
    for name, supply in of_type(rig.drive, "pressure_source") if flows else ():
        node, pump, pressure = supply["ports"]["P"], f"{name} before its line", si(supply["pressure"], "Pa")
        supply["ports"] = {"P": pump}
        drop = f"{draw.uniform(0.05, 0.2, name='drop') * pressure!r} Pa"
        oil = _drawn(draw, 0.2, 2.0, "l", "volume")
        rig.drive["components"] |= {
            f"{name}_line": {
                "type": "orifice",
                "ports": {"A": pump, "B": node},
                "nominal_flow": {"flow": f"{max(flows)!r} m^3/s", "drop": drop},
            },
            f"{name}_oil": {"type": "volume", "ports": {"P": node}, "volume": oil},
        }
        rig.drive["nodes"] = {**rig.drive.get("nodes", {}), node: {"pressure": supply["pressure"]}}
        rig.allow_stiff()


def pulsation(rig: DeviceTables, draw: Draw) -> None:
    """Add a sine to each pressure source."""
    for name, supply in of_type(rig.drive, "pressure_source"):
        level = supply.get("command", 1.0)
        if isinstance(level, str):
            continue
        supply["command"] = f"{name}_pulsation"
        rig.drive["components"][f"{name}_pulses"] = {
            "type": "sine_signal",
            "signal": supply["command"],
            "frequency": _drawn(draw, 50.0, 300.0, "Hz", "frequency"),
            "amplitude": draw.uniform(0.005, 0.02, name="amplitude") * level,
            "offset": float(level),
        }


# --- sensors ----------------------------------------------------------------------------------------------------------


def sensor_delay(rig: DeviceTables, draw: Draw) -> None:
    """Delay each sensor more."""
    _later(rig.sensors, rig.dt, draw)


def _later(parts: Table, dt: float, draw: Draw) -> None:
    """Delay each of these sensors or actuators by up to two ticks more."""
    for part in parts.values():
        part["delay"] = f"{si(part.get('delay', '0 s'), 's') + draw.uniform(0.0, 2.0 * dt, 's')!r} s"


def sensor_noise(rig: DeviceTables, draw: Draw) -> None:
    """Add noise to each sensor."""
    for sensor in rig.sensors.values():
        sensor["noise"] = si(sensor.get("noise", 0.0), "") + draw.uniform(2e-4, 1e-3)


def sensor_offset(rig: DeviceTables, draw: Draw) -> None:
    """Give each sensor an offset."""
    for sensor in rig.sensors.values():
        show(sensor, offset=draw.uniform(-0.0025, 0.0025))


def sensor_gain(rig: DeviceTables, draw: Draw) -> None:
    """Give each sensor an error of its gain."""
    for sensor in rig.sensors.values():
        show(sensor, gain=1.0 + draw.uniform(-0.0025, 0.0025))


def show(sensor: Table, offset: float = 0.0, gain: float = 1.0) -> None:
    """Show ``offset`` (a fraction of the range) more, ``gain`` times the distance from the lower end of the range.

    The values at the ends of the raw range move the other way; the channel still has the stated ones.
    """
    low, high = (quantity(value) for value in sensor["value"])
    span = high.value - low.value
    first = low.value - offset * span
    ends = (first, first + span / gain)
    sensor["value"] = [f"{end!r} {low.unit}" if low.unit else end for end in ends]
