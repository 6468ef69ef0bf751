"""Switching the virtual circuit while it runs: from the command to the circuit that the loop takes over.

The server and the test sequences prepare every switch with `prepare_switch`, so that both refuse the same circuits and
start the accepted ones from the same state.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.circuit import engine as e
from hilserver.circuit.analysis import Analysis
from hilserver.circuit.change import component_table, with_component, with_values
from hilserver.circuit.model import RIG, Circuit
from hilserver.circuit.pack import PackedCircuit
from hilserver.circuit.program import Program
from hilserver.circuit.regimes import unsuitable
from hilserver.errors import ConfigurationError, Problem, did_you_mean, with_lines
from hilserver.numerics.arrays import Floats, Integers
from hilserver.protocol.commands import CircuitCommand, SetParameter, Switch, SwitchCircuit
from hilserver.realtime.setup import swap_payload
from hilserver.record.run import packed_record
from hilserver.rig.rig import Rig
from hilserver.service.refusals import invalid
from hilserver.toml import read_toml
from hilserver.units import shown_value

SETTLED = 0.2
"""Seconds after a step of the inputs at which the integrator is checked again."""
STEPS = 100
"""Integration steps in this time."""


@dataclass(frozen=True)
class CircuitChange:
    """The circuit that a command asks for, not validated yet.

    ``source``: its table; ``steady``: new states start at their equilibrium; ``whole``: the command replaces the whole
    circuit, by the one in ``file`` where that is given.
    """

    source: dict[str, Any]
    steady: bool = False
    whole: bool = False
    file: str | None = None


@dataclass(frozen=True)
class PreparedSwitch:
    """A circuit ready for the loop. ``carried``: for each value its index in the running circuit, -1: it is new."""

    change: CircuitChange
    circuit: Circuit
    packed: PackedCircuit
    carried: Integers

    def payload(self) -> bytes:
        """What the loop's mailbox takes: the arrays, and for the log the names and the circuit's table."""
        record = packed_record(self.packed, self.circuit.source)
        about = {key: value for key, value in record.items() if key not in ("index", "value")}
        return swap_payload(self.packed, self.carried, json.dumps(about).encode())


def prepare_switch(
    rig: Rig, program: Program, running: Circuit, packed: PackedCircuit, row: Floats, command: CircuitCommand
) -> PreparedSwitch:
    """Read, check and pack the circuit that a command asks for, with the states it takes over and starts from.

    ``running``, ``packed``: the circuit that the loop runs; ``row``: the newest row. Raises ConfigurationError if
    the circuit is invalid, has no room for the oil or an unsuitable integrator, NoEquilibrium where its new states
    have none to start at.
    """
    change = circuit_change(rig, running, command)
    file = change.file or ""
    try:
        circuit = rig.read_circuit(change.source, file, running)
        new = rig.pack(circuit, file, packed)
    except ConfigurationError as error:
        raise ConfigurationError(with_lines(error.problems, rig.circuit_folder)) from None
    carried = new.carried_from(packed)
    new = with_start_values(rig, program, circuit, new, carried, row, change.steady)
    present = present_values(rig, new, carried, row)
    if problems := oil_without_room(new, carried, present):
        raise ConfigurationError(problems)
    if reason := instability(rig, program, circuit, new, present):
        raise invalid("solver", reason)
    return PreparedSwitch(change, circuit, new, carried)


def circuit_change(rig: Rig, running: Circuit, command: CircuitCommand) -> CircuitChange:
    """The circuit that a command asks for while ``running`` runs. Raises ConfigurationError."""
    match command:
        case SetParameter():
            return CircuitChange(with_values(running.written, command.component, command.set))
        case Switch():
            return CircuitChange(_switched(rig, running, command), command.start == "steady")
        case SwitchCircuit():
            source = _whole_circuit(rig, command)
            return CircuitChange(source, command.start == "steady", whole=True, file=command.file)


def _switched(rig: Rig, running: Circuit, command: Switch) -> dict[str, Any]:
    """The table of the running circuit with other values of a component, or another component in its place."""
    if command.set is not None:
        return with_values(running.written, command.component, command.set)
    kind = str(command.type)
    source = with_component(running.written, command.component, kind, command.values or {})
    new = rig.library.types.get(kind)
    old = next((placed for placed in running.placed if placed.name == command.component), None)
    if new is not None and old is not None:  # signals of the same name stay connected
        table, before = component_table(source, command.component), component_table(running.written, command.component)
        for port in (*new.inputs, *new.outputs):
            if port in old.signals:
                table.setdefault(port, before.get(port, old.signals[port]))
    return source


def _whole_circuit(rig: Rig, command: SwitchCircuit) -> dict[str, Any]:
    """The table in the command, or that of a file in the folder of the rig's circuit."""
    if command.circuit is not None:
        return dict(command.circuit)
    folder = rig.circuit_folder
    name = str(command.file)
    if Path(name).name != name:
        raise invalid("file", f'"{name}" is not a plain file name; circuit files are in {folder}.')
    if not (folder / name).is_file():
        known = sorted(path.name for path in folder.glob("*.toml"))
        raise invalid("file", f'there is no "{name}" in {folder}.' + did_you_mean(name, known))
    return read_toml(folder / name, name)


def with_start_values(
    rig: Rig, program: Program, circuit: Circuit, packed: PackedCircuit, carried: Integers, row: Floats, steady: bool
) -> PackedCircuit:
    """The packed circuit with initial values for all states that are not carried over from the running circuit.

    ``row``: the newest row. Nodes with ``pressure_from`` start at the pressure that the circuit reads at that port;
    with ``steady``, the new states start at their equilibrium while the carried ones are held. Raises NoEquilibrium
    where there is none.
    """
    first = int(packed.index[e.INITIAL])
    value = packed.value.copy()
    initial = value[first : first + len(packed.values)]
    for node, start in circuit.starts.items():
        if start.pressure_from is not None:
            measured = row[rig.layout.bindings[RIG + start.pressure_from]]
            for name in (f"{node}.content", f"{node}.p"):
                if name in packed.values:
                    initial[packed.values.index(name)] = measured
    new = replace(packed, value=value)
    if steady:
        kept = np.flatnonzero(carried[: packed.n_states] >= 0)
        settled = Analysis(program, new, present_values(rig, new, carried, row)).steady_state(held=kept)
        states = slice(0, packed.n_states)
        initial[states] = np.where(carried[states] >= 0, initial[states], settled[states])
    return new


def oil_without_room(packed: PackedCircuit, carried: Integers, present: Floats) -> list[Problem]:
    """The oil volumes that are carried over and exceed what the new circuit holds: their excess would be lost.

    A smaller accumulator is such a case, where the present one is filled beyond the capacity of the new one.
    ``present``: the values of the circuit right after the switch.
    """
    index, value, n = packed.index, packed.value, packed.n_states
    lower, upper = (value[int(start) : int(start) + n] for start in (index[e.LOWER], index[e.UPPER]))
    excess = np.maximum(lower - present[:n], present[:n] - upper)
    problems = []
    for state in np.flatnonzero((carried[:n] >= 0) & (excess > 0.0)):
        name, unit = packed.values[state], packed.kinds[state]
        if unit == "m^3":
            component = name.rpartition(".")[0]
            volumes = [shown_value(volume, unit) for volume in (present[state], upper[state])]
            text = "it contains {} of oil, but the new one holds only {}: the rest would be lost.".format(*volumes)
            problems.append(Problem(f"{text} Empty it first, or make the new one larger.", f"components.{component}"))
    return problems


def instability(rig: Rig, program: Program, circuit: Circuit, packed: PackedCircuit, present: Floats) -> str | None:
    """Why the circuit's integrator is unstable or too coarse for it, in a sentence; None if it is suitable.

    Checked in the present state, with the values right after the switch, and 0.2 s after a step of all inputs to each
    end of their ranges.
    """
    tick = 1.0 / rig.settings.loop.rate
    recorded, work = np.zeros(len(packed.recorded)), np.zeros(packed.work_size)
    index = packed.index.copy()
    index[e.INTEGRATOR] = e.Integrator.ROSENBROCK  # stable whatever the circuit's own integrator is
    index[e.SOLUTION_STEPS] = 0  # a mechanism's solution isn't shared by steps of another length
    states = [present]
    for end in (0, 1):
        values = present.copy()
        for name, settings in rig.settings.inputs.items():
            if name in packed.values:
                values[packed.values.index(name)] = settings.range[end]
        program.advance(index, packed.value, values, recorded, work, STEPS, SETTLED / STEPS)
        if np.isfinite(values).all():
            states.append(values)
    return unsuitable(program, circuit, packed, tick, states)


def present_values(rig: Rig, packed: PackedCircuit, carried: Integers, row: Floats) -> Floats:
    """The circuit's values right after the switch: carried over, read from the rig, or initial."""
    first, n = int(packed.index[e.INITIAL]), len(packed.values)
    values = packed.value[first : first + n].copy()
    running = row[len(rig.layout.names) :]
    values[carried >= 0] = running[carried[carried >= 0]]
    start, count = int(packed.index[e.BOUND]), int(packed.index[e.N_BOUND])
    for place, column in packed.index[start : start + 2 * count].reshape(-1, 2).astype(np.int64):
        values[place] = row[column]
    return values
