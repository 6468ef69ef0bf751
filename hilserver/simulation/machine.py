"""What feasibility and stability are reckoned with: the rig's machine as a circuit, its real supply, its inputs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import isfinite
from typing import Any

from hilserver.circuit.analysis import Analysis, NoEquilibrium
from hilserver.circuit.mechanisms import PlacedMechanism
from hilserver.circuit.model import Circuit, read_circuit
from hilserver.circuit.pack import PackedCircuit, pack
from hilserver.circuit.program import Program
from hilserver.errors import ConfigurationError
from hilserver.mechanics.tables import tables
from hilserver.numerics.arrays import Floats
from hilserver.rig.build import Rig
from hilserver.rig.settings import CylinderSettings, ValveSettings
from hilserver.rig.simulated import joined
from hilserver.simulation.lockstep import LockstepRun

PLUG = "0.1 l"
"""Closes a port; the pressure that it comes to does not depend on its volume."""
WARM_UP = 100
"""Ticks until the delayed sensors of a simulated rig show its pressures."""
THINNEST_ROD = 1e-6
"""m; a cylinder component has a rod."""
MANY = 3
"""More inputs than that are brought to their ends one by one, not all together."""


Pause = Callable[[], None]
"""Called between two steps of a long examination; it may sleep, or raise to end it."""


def no_pause() -> None:
    """Go on at once."""


@dataclass(frozen=True)
class Machine:
    """A machine as a circuit's table, with the rig's ports as nodes, and where it comes from, in words.

    ``ports``: those that it moves with; others that the virtual circuit connects to count as closed.

    ``loads``: signals of forces against growing positions, each with the area of the piston that it loads, m².
    ``strokes``: of the cylinder at a node that moves, m. ``mechanisms``: those that it consists of.
    """

    table: Mapping[str, Any]
    origin: str
    ports: tuple[str, ...]
    loads: Mapping[str, float]
    strokes: Mapping[str, float]
    mechanisms: tuple[PlacedMechanism, ...] = ()

    def at_share(self, share: float) -> dict[str, float]:
        """The values that put every cylinder at this share of its stroke.

        A mechanism whose cylinders can't get there together stays where it starts.
        """
        moved = {node: share * stroke for node, stroke in self.strokes.items()}
        values = {f"{node}.x": x for node, x in moved.items()}
        for placed in self.mechanisms:
            given = {actuator: moved[node] for actuator, node in placed.nodes.items() if node in moved}
            for actuator in given:
                del values[f"{placed.nodes[actuator]}.x"]
            with contextlib.suppress(ConfigurationError):
                found = tables(placed.mechanism.started_at(given))
                values |= {f"{placed.name}.{name}": x for name, _, x in found.states}
        return values


def is_position(name: str) -> bool:
    """Whether a state is a place or an angle: what a machine in steady motion does not keep."""
    return name.endswith((".x", ".phi")) or (name.count(".") > 1 and name.endswith((".y", ".angle")))


def machine_of(rig: Rig) -> Machine | None:
    """The machine: from ``[cylinders]``, else that of the simulated device; None where neither is given."""
    loads: dict[str, float] = {}
    if rig.settings.cylinders:
        moduli = [s.bulk_modulus for s in rig.settings.cylinders.values() if s.bulk_modulus is not None]
        fluid = {"bulk_modulus": f"{min(moduli)} Pa"} if moduli else rig.circuit.source.get("fluid", {})
        table = {"components": from_cylinders(rig.settings.cylinders), "fluid": fluid}
        loads = {load_of(name): s.areas()[0] for name, s in rig.settings.cylinders.items()}
        origin = "[cylinders], without friction"
    else:
        simulated = [tables["machine"] for tables in rig.sources.get("devices", {}).values() if "machine" in tables]
        if not simulated:
            return None
        table, origin = simulated[0], "the simulated machine"
    circuit = read_circuit(table, rig.library)
    nodes = circuit.hydraulic_nodes()
    closed = _plugs([port for port in rig.circuit.rig_ports() if port not in nodes])
    whole = {**table, "components": {**table["components"], **closed}}
    ports = tuple(port for port in rig.settings.ports if port in nodes)
    return Machine(whole, origin, ports, loads, _strokes(circuit), circuit.mechanisms)


def _plugs(ports: Sequence[str]) -> dict[str, Any]:
    """Components that close ports."""
    return {f"plug_of_{port}": {"type": "volume", "ports": {"P": port}, "volume": PLUG} for port in ports}


def from_cylinders(cylinders: Mapping[str, CylinderSettings]) -> dict[str, Any]:
    """Components of the rig file's cylinders: without friction, each loaded by a signal (`load_of`), N."""
    components: dict[str, Any] = {}
    for name, s in cylinders.items():
        rod, load = rod_of(name), load_of(name)
        components[f"cylinder_{name}"] = _cylinder(s, rod)
        components[load] = {"type": "force_source", "ports": {"rod": rod}, "force": "-1 N", "command": load}
    return components


def load_of(cylinder: str) -> str:
    """Name of the signal of the force against a cylinder's growing position."""
    return f"load_of_{cylinder}"


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
        "dead_volume_A": f"{s.dead_volume_A} m^3",
        "friction": {"efficiency": 1.0},
    }
    if s.port_B is not None:
        table |= {"type": "cylinder", "ports": {**table["ports"], "B": s.port_B}}
        table |= {"rod_diameter": f"{max(s.rod_diameter, THINNEST_ROD)} m", "dead_volume_B": f"{s.dead_volume_B} m^3"}
    return table


def _strokes(circuit: Circuit) -> dict[str, float]:
    return {
        placed.ports["rod"]: placed.component.stroke
        for placed in circuit.placed
        if "rod" in placed.ports and hasattr(placed.component, "stroke")
    }


def machine_alone(rig: Rig, machine: Machine) -> PackedCircuit:
    """The machine with a signal ``flow_into_<port>``, m³/s, for each of its ports."""
    components = dict(machine.table["components"])
    components["outside_tank"] = {"type": "tank", "ports": {"T": "outside"}}
    for port in machine.ports:
        components[f"source_{port}"] = {
            "type": "flow_source",
            "ports": {"P": port, "T": "outside"},
            "flow": "1 m^3/s",
            "command": f"flow_into_{port}",
        }
    return pack(read_circuit({**machine.table, "components": components}, rig.library), rig.library)


def circuit_on(rig: Rig, machine: Mapping[str, Any]) -> PackedCircuit:
    """The rig's virtual circuit joined directly to a machine; with the circuit's oil. Raises ConfigurationError."""
    table = {**machine, "fluid": rig.circuit.source.get("fluid", {})}
    return pack(read_circuit(joined(table, rig.circuit.source), rig.library), rig.library)


def input_levels(rig: Rig, shares: Sequence[float]) -> Iterator[dict[str, float]]:
    """Values of the circuit's inputs: all at their initial ones; each of them so far towards either of its ends."""
    initial = {name: s.initial for name, s in rig.settings.inputs.items() if name in rig.packed.values}
    yield initial
    for name in initial:
        start = initial[name]
        for end in rig.settings.inputs[name].range:
            if end != start:
                yield from ({**initial, name: start + share * (end - start)} for share in shares)


def input_ends(rig: Rig) -> Iterator[dict[str, float]]:
    """Values of the circuit's inputs at their ends, in all combinations; each by itself where there are many inputs."""
    ranges = {name: s.range for name, s in rig.settings.inputs.items() if name in rig.packed.values}
    if len(ranges) > MANY:
        yield from input_levels(rig, (1.0,))
    else:
        yield from (dict(zip(ranges, ends, strict=True)) for ends in product(*ranges.values()))


def closed_ports(rig: Rig, program: Program) -> Iterator[tuple[dict[str, float], dict[str, float]]]:
    """Inputs at their ends, and the pressures, Pa, that the circuit brings to its ports when nothing leaves them."""
    ports = rig.circuit.rig_ports()
    if not ports:
        return
    packed = circuit_on(rig, {"components": _plugs(ports)})
    for inputs in input_ends(rig):
        analysis = Analysis(program, packed)
        for name, value in inputs.items():
            analysis.values[packed.values.index(name)] = value
        with contextlib.suppress(NoEquilibrium):
            analysis.steady_state()
            yield inputs, {port: float(analysis.values[packed.values.index(f"{port}.p")]) for port in ports}


def real_pressures(rig: Rig, row: Floats | None = None) -> dict[str, tuple[float, float] | None]:
    """Supply and tank pressure of each real valve, Pa; None where they are not known.

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
