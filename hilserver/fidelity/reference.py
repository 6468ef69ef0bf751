"""The reference simulation: the virtual circuit connected directly to a model of the machine, as if installed there.

A rig with a bridge is compared with it. The machine is a circuit file; without one it is built from the cylinders in
the rig file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hilserver.circuit.library import Library
from hilserver.circuit.model import RIG, Circuit, read_circuit
from hilserver.circuit.pack import PackedCircuit, pack
from hilserver.circuit.program import Program
from hilserver.errors import ConfigurationError, Problem
from hilserver.fidelity.step import IntegrationStep
from hilserver.numerics.arrays import Floats
from hilserver.rig.drift import drifting
from hilserver.rig.settings import RigSettings
from hilserver.rig.simulated import joined
from hilserver.simulation.machine import Machine
from hilserver.simulation.packed_run import initial_values, run_packed


@dataclass(frozen=True)
class ReferenceSimulation:
    """Virtual circuit and machine as one circuit, packed with its accounts.

    ``latest``: rows of the latest run by what it was given. All strategies of a rig are compared with the same one.
    """

    circuit: Circuit
    library: Library
    packed: PackedCircuit
    machine: Machine
    latest: dict[tuple[object, ...], Floats] = field(default_factory=dict, compare=False, repr=False)

    def at(self, step: IntegrationStep) -> ReferenceSimulation:
        """The same with another step."""
        return replace(self, packed=step.of(self.packed), latest={})

    def start(self, known: Mapping[str, float], *parts: tuple[PackedCircuit, Floats]) -> Floats:
        """Start values: the initial ones, replaced by those of the same name in ``parts``, then by ``known``."""
        values = initial_values(self.packed)
        for part, now in parts:
            carried = self.packed.carried_from(part)
            values[carried >= 0] = now[carried[carried >= 0]]
        for name, value in known.items():
            if name in self.packed.values:
                values[self.packed.values.index(name)] = value
        return values

    def run(
        self, program: Program, dt: float, signals: Mapping[str, Floats], start: Floats, drifted: float = 0.0
    ) -> Floats:
        """All values (columns: ``packed.names``) at the end of every tick of ``dt`` s, from ``start`` on.

        ``signals``: operator inputs and loads in every tick; ``drifted``: time for which the machine has drifted, s.
        The rows are read-only.
        """
        given = (program, dt, *signals, *(values.tobytes() for values in signals.values()), start.tobytes(), drifted)
        if given not in self.latest:
            self.latest.clear()
            rows = run_signals(program, self.packed, dt, signals, start, drifted)
            rows.flags.writeable = False
            self.latest[given] = rows
        return self.latest[given]


def run_signals(
    program: Program,
    packed: PackedCircuit,
    dt: float,
    signals: Mapping[str, Floats],
    start: Floats,
    drifted: float = 0.0,
) -> Floats:
    """All values of a circuit (columns: ``packed.names``) at the end of every tick, with these signals in each."""
    given = np.column_stack(list(signals.values()))
    return run_packed(program, packed, dt, list(signals), given, start, drifted=drifted)


def reference_simulation(machine: Machine, virtual: Circuit, library: Library, file: str) -> ReferenceSimulation:
    """Couple a virtual circuit (of ``file``) to a machine. Raises ConfigurationError if they don't fit."""
    shared = _nodes(machine.source) & {node for node in _nodes(virtual.source) if not node.startswith(RIG)}
    if shared:
        name = machine.file or "the machine built from the cylinders of the rig file"
        text = f"{name} has a node of this name too. Connected directly, they would be one node: rename it."
        raise ConfigurationError([Problem(f'"{node}": {text}', "components", file) for node in sorted(shared)])
    missing = [port for port in virtual.rig_ports() if port not in _nodes(machine.source)]
    if missing:
        text = f"is a port that {machine.origin} does not have."
        raise ConfigurationError([Problem(f'"{RIG}{port}" {text}', "components", file) for port in missing])
    circuit = read_circuit(joined(machine.source, virtual.source, file), library, file)
    packed = pack(circuit, library, file=file, accounts=True)
    if machine.last is not None:
        last = read_circuit(joined(machine.last, virtual.source, file), library, file)
        packed = drifting(packed, pack(last, library, file=file, accounts=True), machine.over)
    return ReferenceSimulation(circuit, library, packed, machine)


def flows_into(circuit: Circuit, port: str) -> tuple[str, ...]:
    """Names of the flows from a circuit's components into a port of the machine."""
    return tuple(
        f"{placed.name}.q_{name}"
        for placed in circuit.placed
        for name, node in placed.ports.items()
        if node.removeprefix(RIG) == port and name in placed.component.hydraulic
    )


def commanded_by(circuit: Circuit, port: str) -> tuple[str, float] | None:
    """The signal that commands the virtual valve at a port of the machine, and its sign there; None without a valve.

    The sign is that of the flow into the port: a positive command opens P-A, so port B gets the opposite.
    """
    for placed in circuit.placed:
        signals = [s for name in placed.component.inputs if isinstance(s := placed.signals[name], str)]
        for name, node in placed.ports.items():
            if node == f"{RIG}{port}" and signals and "P" in placed.ports:
                return signals[0], -1.0 if name == "B" else 1.0
    return None


def total(rows: Floats, circuit: PackedCircuit, names: tuple[str, ...]) -> Floats:
    """Sum of these values in every tick (a component with several kernels may have several flows of one name)."""
    places = [place for place, name in enumerate(circuit.names) if name in names]
    summed: Floats = rows[:, places].sum(axis=1)
    return summed


def position_nodes(settings: RigSettings, machine: Circuit) -> dict[str, str]:
    """Cylinder of the rig file -> the mechanical node of the machine's component at its port A."""
    return _moved(machine, {name: s.port_A for name, s in settings.cylinders.items()}, "mechanical")


def shaft_nodes(settings: RigSettings, machine: Circuit) -> dict[str, str]:
    """Motor of the rig file -> the shaft of the machine's component at its port A."""
    return _moved(machine, {name: s.port_A for name, s in settings.motors.items()}, "rotational")


def _moved(machine: Circuit, ports: Mapping[str, str], kind: str) -> dict[str, str]:
    """By name, the first node of this kind of the last component at the port."""
    found = {}
    for name, port in ports.items():
        for placed in machine.placed:
            moved = [placed.ports[each] for each in getattr(placed.component, kind)]
            if port in placed.ports.values() and moved:
                found[name] = moved[0]
    return found


def _nodes(source: Mapping[str, Any]) -> set[str]:
    return {node for table in source.get("components", {}).values() for node in table.get("ports", {}).values()}
