"""The direct simulation: the virtual circuit joined to a model of the machine, as if it were installed there.

It is the truth that a rig with a bridge is held against. The machine is a circuit file; where there is none, it is made
of the cylinders in the rig file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hilserver.circuit.library import Library
from hilserver.circuit.model import RIG, Circuit, read_circuit
from hilserver.circuit.pack import PackedCircuit, pack
from hilserver.circuit.program import Program
from hilserver.components.base import Fluid
from hilserver.errors import ConfigurationError, Problem
from hilserver.numerics.arrays import Floats
from hilserver.rig.settings import CylinderSettings, RigSettings
from hilserver.rig.simulated import joined
from hilserver.simulation.circuit_run import initial_values, run_packed
from hilserver.simulation.machine import from_cylinders, load_of


@dataclass(frozen=True)
class Machine:
    """What the real valves move: a circuit whose nodes of the ports' names are the rig's ports.

    ``loads``: signal -> cylinder of the rig file whose estimated outer force it carries, N; ``about``: where the
    machine comes from, for the reader.
    """

    source: Mapping[str, Any]
    about: str
    file: str = ""
    loads: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Direct:
    """Circuit and machine joined, packed. ``virtual`` and ``machine`` are its parts."""

    packed: PackedCircuit
    virtual: Circuit
    machine: Circuit

    def start(self, known: Mapping[str, float], *parts: tuple[PackedCircuit, Floats]) -> Floats:
        """Where its values begin: at their initial ones, those of the same name in ``parts``, and what is ``known``."""
        values = initial_values(self.packed)
        for part, now in parts:
            carried = self.packed.carried_from(part)
            values[carried >= 0] = now[carried[carried >= 0]]
        for name, value in known.items():
            if name in self.packed.values:
                values[self.packed.values.index(name)] = value
        return values

    def run(self, program: Program, dt: float, signals: Mapping[str, Floats], start: Floats) -> Floats:
        """All values (columns: ``packed.names``) at the end of every tick of ``dt`` s, from ``start`` on.

        ``signals``: operator inputs and loads in every tick.
        """
        given = np.column_stack(list(signals.values()))
        return run_packed(program, self.packed, dt, list(signals), given, start)


def directly(machine: Machine, virtual: Circuit, library: Library, file: str) -> Direct:
    """Join a virtual circuit (of ``file``) to a machine. Raises ConfigurationError where they don't fit."""
    shared = _nodes(machine.source) & {node for node in _nodes(virtual.source) if not node.startswith(RIG)}
    if shared:
        name = machine.file or "the machine made of the rig file's cylinders"
        text = f"{name} has a node of this name too. Joined directly they would be one: rename it."
        raise ConfigurationError([Problem(f'"{node}": {text}', "components", file) for node in sorted(shared)])
    missing = [port for port in virtual.rig_ports() if port not in _nodes(machine.source)]
    if missing:
        text = f"is a port that {machine.about} does not have."
        raise ConfigurationError([Problem(f'"{RIG}{port}" {text}', "components", file) for port in missing])
    source = joined(machine.source, virtual.source, file)
    return Direct(
        pack(read_circuit(source, library, file), library, file=file), virtual, read_circuit(machine.source, library)
    )


def flows_into(circuit: Circuit, port: str) -> tuple[str, ...]:
    """Names of the flows of a circuit's components into a port of the machine."""
    return tuple(
        f"{placed.name}.q_{name}"
        for placed in circuit.placed
        for name, node in placed.ports.items()
        if node.removeprefix(RIG) == port and name in placed.component.hydraulic
    )


def moved_by(circuit: Circuit, port: str) -> tuple[str, float] | None:
    """The signal that moves the virtual valve at a port of the machine, and its sign there; None without such a valve.

    The sign is that of the flow into the port: a positive command opens P-A, so port B gets the opposite.
    """
    for placed in circuit.placed:
        signals = [s for name in placed.component.inputs if isinstance(s := placed.signals[name], str)]
        for name, node in placed.ports.items():
            if node == f"{RIG}{port}" and signals and "P" in placed.ports:
                return signals[0], -1.0 if name == "B" else 1.0
    return None


def total(rows: Floats, circuit: PackedCircuit, names: tuple[str, ...]) -> Floats:
    """Sum of these values over the ticks (a component with several kernels may have several flows of one name)."""
    places = [place for place, name in enumerate(circuit.names) if name in names]
    summed: Floats = rows[:, places].sum(axis=1)
    return summed


def _nodes(source: Mapping[str, Any]) -> set[str]:
    return {node for table in source.get("components", {}).values() for node in table.get("ports", {}).values()}


# --- a machine made of the rig file's cylinders -----------------------------------------------------------------------


def machine_of_cylinders(
    settings: RigSettings, fluid: Mapping[str, Any], positions: Mapping[str, float]
) -> Machine | None:
    """Cylinders, masses, and the outer forces as signals; None where the rig file has no cylinders.

    Friction is in the outer forces, so the cylinders have none. ``fluid``: the circuit's, as given; ``positions``: of
    the cylinders at the start, m.
    """
    if not settings.cylinders:
        return None
    components = from_cylinders(settings.cylinders)
    oil = Fluid.model_validate(fluid)
    for name, cylinder in settings.cylinders.items():
        if cylinder.bulk_modulus is not None:
            at = positions.get(name, 0.5 * cylinder.stroke)
            components[f"cylinder_{name}"] |= _as_soft(cylinder, oil.bulk_modulus / cylinder.bulk_modulus, at)
    source = {"components": components, **({"fluid": dict(fluid)} if fluid else {})}
    text = (
        "the cylinders of the rig file, with the outer forces (load and friction) that were estimated in the same run"
    )
    return Machine(source, text, loads={load_of(name): name for name in settings.cylinders})


def position_nodes(settings: RigSettings, machine: Circuit) -> dict[str, str]:
    """Cylinder of the rig file -> the mechanical node of the machine's component at its port A."""
    found = {}
    for name, cylinder in settings.cylinders.items():
        for placed in machine.placed:
            rods = [placed.ports[port] for port in placed.component.mechanical]
            if cylinder.port_A in placed.ports.values() and rods:
                found[name] = rods[0]
    return found


def _as_soft(s: CylinderSettings, softer: float, x: float) -> dict[str, str]:
    """Dead volumes with which a cylinder is so many times as soft as of the circuit's oil alone, at position ``x``.

    Hoses that make a chamber softer become oil.
    """
    area_A, area_B = s.areas()
    sides = {"dead_volume_A": (s.dead_volume_A, area_A * x)}
    if s.port_B is not None:
        sides["dead_volume_B"] = (s.dead_volume_B, area_B * (s.stroke - x))
    return {key: f"{max(softer * (dead + swept) - swept, 1e-6)!r} m^3" for key, (dead, swept) in sides.items()}
