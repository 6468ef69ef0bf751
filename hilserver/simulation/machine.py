"""The machine of a rig as a circuit, and the operating points of its circuit: inputs, closed ports, real supply."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import isfinite, pi
from typing import Any

from hilserver.circuit.analysis import Analysis, NoEquilibrium
from hilserver.circuit.library import Library
from hilserver.circuit.model import RIG, Circuit, read_circuit, read_part
from hilserver.circuit.pack import PackedCircuit, pack
from hilserver.circuit.program import Program
from hilserver.components.base import Fluid
from hilserver.errors import ConfigurationError
from hilserver.mechanics.tables import tables
from hilserver.numerics.arrays import Floats
from hilserver.rig.cylinder_settings import CylinderSettings
from hilserver.rig.drift import circuits_at_end
from hilserver.rig.motor_settings import MotorSettings
from hilserver.rig.rig import Device, Rig
from hilserver.rig.settings import RigSettings, ValveSettings
from hilserver.rig.simulated import joined
from hilserver.simulation.lockstep import LockstepRun

PLUG = "0.1 l"
"""Volume that closes a port; the resulting pressure does not depend on it."""
WARM_UP = 100
"""Ticks until the delayed sensors of a simulated rig show its pressures."""
USUAL_PRESSURE = 50e5
"""Pa: of a port of which no other pressure is stated. Without any, oil with 0.5 % of air is 50 times as soft."""
THINNEST_ROD = 1e-6
"""m; a cylinder component has a rod."""
LEAST_VOLUME = 1e-6
"""m³, of a chamber beside its hoses."""
RATED_PRESSURE, RATED_SPEED = 2e7, 25.0
"""Pa and 1/s, at which a component of a motor is given its leakage."""
HOSE_DIAMETER = 0.016
"""m; only the volume of a hose counts."""
MANY = 3
"""With more inputs than this, each goes to the ends of its range alone, not in all combinations."""


Pause = Callable[[], None]
"""Called between two steps of a long calculation; it may sleep, or raise to end it."""


def no_pause() -> None:
    """Continue at once."""


@dataclass(frozen=True)
class Machine:
    """The machine driven by the real valves: a circuit in which the nodes named like the rig's ports are these ports.

    ``source``: the circuit as a table; ``origin``: where it comes from, for the reader; ``file``: its circuit file, if
    it has one. ``loads``: signals of forces against growing positions, N, or of torques against growing angles, N·m,
    each with its cylinder or motor of the rig file. ``last``: its source when it has drifted for ``over`` s;
    None if it does not drift.
    """

    source: Mapping[str, Any]
    circuit: Circuit
    origin: str
    file: str = ""
    loads: Mapping[str, str] = field(default_factory=dict)
    last: Mapping[str, Any] | None = None
    over: float = 0.0

    @classmethod
    def read(
        cls,
        source: Mapping[str, Any],
        library: Library,
        origin: str,
        file: str = "",
        loads: Mapping[str, str] | None = None,
    ) -> Machine:
        """The machine of a circuit table. Raises ConfigurationError with all its problems."""
        circuit = read_circuit(source, library, file)
        return cls(circuit.source, circuit, origin, file, loads or {})

    def ports(self, rig: Rig) -> tuple[str, ...]:
        """The ports of a rig that the machine has; the others count as closed."""
        nodes = self.circuit.hydraulic_nodes()
        return tuple(port for port in rig.settings.ports if port in nodes)

    def at_share(self, share: float) -> dict[str, float]:
        """The values that put every cylinder at this fraction of its stroke, with what hangs on it.

        A mechanism whose cylinders can't get there together stays at its initial position.
        """
        moved = {node: share * stroke for node, stroke in self.strokes().items()}
        values = {f"{node}.x": x for node, x in moved.items()}
        for placed in self.circuit.mechanisms:
            given = {actuator: moved[node] for actuator, node in placed.nodes.items() if node in moved}
            for actuator in given:
                del values[f"{placed.nodes[actuator]}.x"]
            with contextlib.suppress(ConfigurationError):
                values |= placed.values_at(tables(placed.mechanism.started_at(given)))
        hanging = self.hanging().items()
        return values | {
            f"{node}.x": values[f"{rod}.x"] + distance for node, (rod, distance) in hanging if f"{rod}.x" in values
        }

    def hanging(self) -> dict[str, tuple[str, float]]:
        """Nodes that hang on rods by springs, each with the rod and the distance from it at the start, m."""
        kinds = [(placed.component.type_name, placed.ports) for placed in self.circuit.placed]
        held = {ports["rod"] for kind, ports in kinds if kind in ("velocity_source", "position_source")}
        springs = [(ports["rod"], ports["base"]) for kind, ports in kinds if kind == "spring"]
        start = {f"{node}.x": s.position for node, s in self.circuit.starts.items()}
        for placed in self.circuit.mechanisms:
            start |= placed.values_at(tables(placed.mechanism))
        carriers = {rod: rod for rod in self.strokes()}
        for _ in springs:  # one may hang on another
            for one, other in [*springs, *((base, rod) for rod, base in springs)]:
                if one in carriers and other not in held:
                    carriers.setdefault(other, carriers[one])
        return {
            node: (rod, start.get(f"{node}.x", 0.0) - start.get(f"{rod}.x", 0.0))
            for node, rod in carriers.items()
            if node != rod
        }

    def strokes(self) -> dict[str, float]:
        """Stroke, m, by the node that moves with a cylinder's rod."""
        return {
            placed.ports["rod"]: placed.component.stroke
            for placed in self.circuit.placed
            if "rod" in placed.ports and hasattr(placed.component, "stroke")
        }

    def displacements(self) -> dict[str, float]:
        """Displacement, m³ per rad, by the node of a hydraulic motor's shaft; of several on one shaft the sum."""
        found: dict[str, float] = {}
        for placed in self.circuit.placed:
            if "shaft" in placed.ports and (volume := getattr(placed.component, "displacement", None)) is not None:
                found[placed.ports["shaft"]] = found.get(placed.ports["shaft"], 0.0) + volume / (2.0 * pi)
        return found


def is_position(name: str) -> bool:
    """Whether a state is a position or an angle, which changes while a machine moves steadily."""
    return name.endswith((".x", ".phi")) or (name.count(".") > 1 and name.endswith((".y", ".angle")))


def machine_of(rig: Rig) -> Machine | None:
    """The machine: from ``[cylinders]`` and ``[motors]``, otherwise that of the simulated device; None without both."""
    cylinders, motors = rig.settings.cylinders, rig.settings.motors
    if cylinders or motors:
        fluid = _oil_of(rig.settings.hydraulic_actuators(), rig.circuit.source.get("fluid", {}))
        components = {**from_cylinders(cylinders), **from_motors(motors)}
        source = {"components": components, "fluid": fluid, "nodes": starts_of_ports(rig)}
        described = " and ".join(f"[{name}]" for name in ("cylinders", "motors") if getattr(rig.settings, name))
        return Machine.read(source, rig.library, f"{described}, without friction", loads=_loads(cylinders))
    simulated = [tables["machine"] for tables in rig.sources.get("devices", {}).values() if "machine" in tables]
    return Machine.read(simulated[0], rig.library, "the simulated machine") if simulated else None


def _oil_of(actuators: Mapping[str, CylinderSettings | MotorSettings], circuit: Mapping[str, Any]) -> dict[str, Any]:
    """The oil of the actuators, the softest of all: that of the circuit where the rig file states no other."""
    moduli = [s.bulk_modulus for s in actuators.values() if s.bulk_modulus is not None]
    air = [s.air_fraction for s in actuators.values() if s.air_fraction is not None]
    oil = {"bulk_modulus": f"{min(moduli)} Pa"} if moduli else dict(circuit)
    return {**oil, **({"air_fraction": max(air)} if air else {})}


def starts_of_ports(rig: Rig) -> dict[str, Any]:
    """The starts of the ports: those of the virtual circuit, or pressures at which free air hardly counts.

    The pressures at the two sides of an actuator balance each other; at a single one, a pressure would need a load.
    """
    starts: dict[str, Any] = {}
    for s in rig.settings.hydraulic_actuators().values():
        if s.port_B is not None:
            area_A, area_B = s.areas()
            starts[s.port_A] = {"pressure": f"{USUAL_PRESSURE * area_B / area_A!r} Pa"}
            starts[s.port_B] = {"pressure": f"{USUAL_PRESSURE!r} Pa"}
    return starts | {node: rig.circuit.source["nodes"][RIG + node] for node in _stated(rig) & starts.keys()}


def _stated(rig: Rig) -> set[str]:
    """The ports of which the virtual circuit states a start."""
    return {node.removeprefix(RIG) for node in rig.circuit.source.get("nodes", {}) if node.startswith(RIG)}


def machine_of_device(rig: Rig, device: Device) -> Machine:
    """The machine of a simulated device."""
    sources, drift = rig.sources["devices"][device.name], device.drift
    machine = Machine.read(sources["machine"], rig.library, "the simulated machine", device.config.machine)
    if drift is None:
        return machine
    return replace(machine, last=circuits_at_end(sources, drift, rig.library)["machine"], over=drift.over)


def machine_of_actuators(
    settings: RigSettings, library: Library, fluid: Mapping[str, Any], positions: Mapping[str, float]
) -> Machine | None:
    """The machine of the rig file's cylinders and motors, loaded by measured forces and torques; None without either.

    These contain the friction, so the machine has none. ``fluid``: that of the circuit, as given; ``positions``: of the
    cylinders at the start, m, where a cylinder's own bulk modulus is matched.
    """
    if not settings.hydraulic_actuators():
        return None
    motors, oil = settings.motors, Fluid.model_validate(fluid)
    components = {**from_cylinders(settings.cylinders), **from_motors(motors), **_torques(motors)}
    for name, cylinder in settings.cylinders.items():
        if cylinder.bulk_modulus is not None:
            at = positions.get(name, 0.5 * cylinder.stroke)
            components[f"cylinder_{name}"] |= _dead_volumes(cylinder, oil.bulk_modulus / cylinder.bulk_modulus, at)
    for name, motor in motors.items():
        ratio = oil.bulk_modulus / motor.bulk_modulus if motor.bulk_modulus is not None else 1.0
        for port, volume in ((motor.port_A, motor.volume_A), (motor.port_B, motor.volume_B)):
            components[f"oil_{name}_{port}"]["volume"] = f"{ratio * volume!r} m^3"
    source = {"components": components, **({"fluid": dict(fluid)} if fluid else {})}
    kinds = [name for name in ("cylinders", "motors") if getattr(settings, name)]
    origin = (
        f"the {' and '.join(kinds)} of the rig file, with the external {'forces' if settings.cylinders else 'torques'} "
        "(load and friction) estimated in the same run"
    )
    return Machine.read(source, library, origin, loads=_loads(settings.hydraulic_actuators()))


def _loads(actuators: Iterable[str]) -> dict[str, str]:
    return {load_of(name): name for name in actuators}


def _torques(motors: Iterable[str]) -> dict[str, Any]:
    """Components that load the motors by a signal (`load_of`), N·m against growing angles."""
    return {
        load_of(name): {
            "type": "torque_source",
            "ports": {"shaft": shaft_of(name)},
            "torque": "-1 N*m",
            "command": load_of(name),
        }
        for name in motors
    }


def _dead_volumes(s: CylinderSettings, ratio: float, x: float) -> dict[str, str]:
    """Dead volumes that give each chamber ``ratio`` times the capacitance at position ``x``.

    Hoses that make a chamber softer become oil, beside those that are stated.
    """
    area_A, area_B = s.areas()
    sides = {"A": area_A * x}
    if s.port_B is not None:
        sides["B"] = area_B * (s.stroke - x)
    return {
        f"dead_volume_{side}": _beside_hoses(s, side, ratio * (getattr(s, f"dead_volume_{side}") + swept) - swept)
        for side, swept in sides.items()
    }


def _beside_hoses(s: CylinderSettings, side: str, dead: float) -> str:
    """The part of a dead volume (m³) that is not in hoses."""
    return f"{max(dead - getattr(s, f'hose_volume_{side}'), LEAST_VOLUME)!r} m^3"


def _hoses(name: str, s: CylinderSettings) -> Iterator[tuple[str, dict[str, Any]]]:
    """The hoses of a cylinder as components: volumes, hence of any diameter."""
    for side, port in (("A", s.port_A), ("B", s.port_B)):
        volume = getattr(s, f"hose_volume_{side}")
        if port is not None and volume > 0.0:
            size = {"inner_diameter": f"{HOSE_DIAMETER} m", "length": f"{volume / (0.25 * pi * HOSE_DIAMETER**2)!r} m"}
            wall = f"{s.hose_modulus!r} Pa^0.5"
            yield f"hose_{name}_{side}", {"type": "hose", "ports": {"P": port}, **size, "wall_coefficient": wall}


def from_cylinders(cylinders: Mapping[str, CylinderSettings]) -> dict[str, Any]:
    """Components of the rig file's cylinders: without friction, each loaded by a signal (`load_of`), N."""
    components: dict[str, Any] = {}
    for name, s in cylinders.items():
        rod, load = rod_of(name), load_of(name)
        components[f"cylinder_{name}"] = _cylinder(s, rod)
        components |= dict(_hoses(name, s))
        components[load] = {"type": "force_source", "ports": {"rod": rod}, "force": "-1 N", "command": load}
    return components


def from_motors(motors: Mapping[str, MotorSettings]) -> dict[str, Any]:
    """Components of the rig file's motors: without friction, each with the oil at its ports."""
    components: dict[str, Any] = {}
    for name, s in motors.items():
        case, leakage = f"case of {name}", s.leakage + s.case_leakage
        lost = leakage * RATED_PRESSURE
        components[f"motor_{name}"] = {
            "type": "hydraulic_motor",
            "ports": {"A": s.port_A, "B": s.port_B, "L": case, "shaft": shaft_of(name)},
            "displacement": f"{s.displacement!r} m^3",
            "rated_pressure": f"{RATED_PRESSURE!r} Pa",
            "rated_speed": f"{RATED_SPEED!r} rps",
            "volumetric_efficiency": 1.0 / (1.0 + lost / (s.displacement * RATED_SPEED)),
            "hydromechanical_efficiency": 1.0,
            "case_share": s.case_leakage / leakage if leakage > 0.0 else 0.0,
            "inertia": f"{s.inertia!r} kg*m^2",
        }
        components[f"case_{name}"] = {"type": "tank", "ports": {"T": case}}
        for port, volume in ((s.port_A, s.volume_A), (s.port_B, s.volume_B)):
            components[f"oil_{name}_{port}"] = {"type": "volume", "ports": {"P": port}, "volume": f"{volume!r} m^3"}
    return components


def shaft_of(motor: str) -> str:
    """Node that turns with a motor."""
    return f"shaft of {motor}"


def load_of(actuator: str) -> str:
    """Name of the signal of the force against a cylinder's increasing position, or of the torque against a motor."""
    return f"load_of_{actuator}"


def rod_of(cylinder: str) -> str:
    """Node that moves with a cylinder's rod."""
    return f"rod of {cylinder}"


def _cylinder(s: CylinderSettings, rod: str) -> dict[str, Any]:
    """A cylinder of the rig file as a component."""
    table: dict[str, Any] = {
        "type": "single_acting_cylinder",
        "ports": {"A": s.port_A, "rod": rod},
        "bore": f"{s.bore} m",
        "stroke": f"{s.stroke} m",
        "moving_mass": f"{s.mass} kg",
        "dead_volume_A": _beside_hoses(s, "A", s.dead_volume_A),
        "friction": {"efficiency": 1.0},
    }
    if s.port_B is not None:
        table |= {"type": "cylinder", "ports": {**table["ports"], "B": s.port_B}}
        table |= {"rod_diameter": f"{max(s.rod_diameter, THINNEST_ROD)} m"}
        table |= {"dead_volume_B": _beside_hoses(s, "B", s.dead_volume_B)}
        table["leakage"] = f"{s.leakage} m^3/(s*Pa)"
    return table


def machine_alone(rig: Rig, machine: Machine) -> PackedCircuit:
    """The machine with a signal ``flow_into_<port>``, m³/s, for each of its ports."""
    components = _with_plugs(rig, machine.source)
    components["outside_tank"] = {"type": "tank", "ports": {"T": "outside"}}
    for port in machine.ports(rig):
        components[f"source_{port}"] = {
            "type": "flow_source",
            "ports": {"P": port, "T": "outside"},
            "flow": "1 m^3/s",
            "command": f"flow_into_{port}",
        }
    starts = {port: {"pressure": f"{USUAL_PRESSURE!r} Pa"} for port in machine.ports(rig)}
    nodes = {**starts, **machine.source.get("nodes", {})}
    return pack(read_circuit({**machine.source, "components": components, "nodes": nodes}, rig.library), rig.library)


def circuit_on(rig: Rig, machine: Machine | None) -> PackedCircuit:
    """The rig's virtual circuit connected directly to a machine, each with its fluid; None: all ports closed.

    Raises ConfigurationError.
    """
    source = machine.source if machine is not None else {"fluid": rig.circuit.source.get("fluid", {})}
    table = {**source, "components": _with_plugs(rig, source)}
    return pack(read_circuit(joined(table, rig.circuit.source), rig.library), rig.library)


def _with_plugs(rig: Rig, source: Mapping[str, Any]) -> dict[str, Any]:
    """The components of a machine, and plugs at the ports of the virtual circuit that it does not have."""
    components = source.get("components", {})
    nodes = read_part(source, rig.library).hydraulic_nodes() if components else ()
    closed = [port for port in rig.circuit.rig_ports() if port not in nodes]
    plugs = {f"plug_of_{port}": {"type": "volume", "ports": {"P": port}, "volume": PLUG} for port in closed}
    return {**components, **plugs}


def input_levels(rig: Rig, shares: Sequence[float]) -> Iterator[dict[str, float]]:
    """Values of the circuit's inputs: all initial; then each moved by these fractions towards the ends of its range."""
    initial = {name: s.initial for name, s in rig.settings.inputs.items() if name in rig.packed.values}
    yield initial
    for name in initial:
        start = initial[name]
        for end in rig.settings.inputs[name].range:
            if end != start:
                yield from ({**initial, name: start + share * (end - start)} for share in shares)


def input_ends(rig: Rig) -> Iterator[dict[str, float]]:
    """Values of the circuit's inputs at the ends of their ranges: in all combinations, or each alone (`MANY`)."""
    ranges = {name: s.range for name, s in rig.settings.inputs.items() if name in rig.packed.values}
    if len(ranges) > MANY:
        yield from input_levels(rig, (1.0,))
    else:
        yield from (dict(zip(ranges, ends, strict=True)) for ends in product(*ranges.values()))


def closed_ports(rig: Rig, program: Program) -> Iterator[tuple[dict[str, float], dict[str, float]]]:
    """Inputs at the ends of their ranges, and the pressures, Pa, of the closed ports with them."""
    ports = rig.circuit.rig_ports()
    if not ports:
        return
    packed = circuit_on(rig, None)
    for inputs in input_ends(rig):
        analysis = Analysis(program, packed)
        for name, value in inputs.items():
            analysis.values[packed.values.index(name)] = value
        with contextlib.suppress(NoEquilibrium):
            analysis.steady_state()
            yield inputs, {port: float(analysis.values[packed.values.index(f"{port}.p")]) for port in ports}


def real_pressures(rig: Rig, row: Floats | None = None) -> dict[str, tuple[float, float] | None]:
    """Supply and tank pressure of each real valve, Pa; None if they are not known.

    Known are those of ``row``, fixed ones, and those of a simulated rig.
    """
    if row is None and rig.devices and all(device.name in rig.first_plants for device in rig.devices):
        with LockstepRun(rig) as run:
            run.run(WARM_UP)
            row = run.row
    return {name: _pair(rig, valve, row) for name, valve in rig.settings.valves.items()}


def _pair(rig: Rig, valve: ValveSettings, row: Floats | None) -> tuple[float, float] | None:
    found = []
    for channel in (valve.supply, valve.tank):
        settings, number = rig.settings.channels[channel], list(rig.settings.channels).index(channel)
        if settings.value is not None:
            found.append(settings.fixed())
        elif row is not None and isfinite(row[int(rig.plan.layout[0].stale) + number]):
            found.append(float(row[int(rig.plan.layout[0].channel) + number]))
    return (found[0], found[1]) if len(found) == 2 else None
