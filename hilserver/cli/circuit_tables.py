"""Tables of a virtual circuit for the terminal: components, nodes, solver."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hilserver.circuit import engine as e
from hilserver.circuit.analysis import Stiffness
from hilserver.circuit.model import RIG, Circuit
from hilserver.cli.rig_tables import new_table
from hilserver.cli.tables import TerminalTable
from hilserver.compiler import compiled_program
from hilserver.margins.capacity import CONTENT
from hilserver.margins.solver import stiffest
from hilserver.numerics.fluid import capacitance
from hilserver.rig.rig import Rig
from hilserver.simulation.balance import node_sums
from hilserver.simulation.packed_run import initial_values
from hilserver.units import shown_value


def component_table(circuit: Circuit) -> TerminalTable:
    """The circuit: components as on the drawing, with the values of their datasheets."""
    table = new_table("Virtual circuit", "component", "type", "connections", "datasheet")
    for placed in circuit.placed:
        given = circuit.source["components"][placed.name]
        hidden = {"type", "ports", "description", *placed.signals}
        values = [f"{key} {written(value)}" for key, value in given.items() if key not in hidden]
        connections = [f"{port}: {node}" for port, node in (*placed.ports.items(), *placed.signals.items())]
        table.add_row(placed.name, placed.component.type_name, "\n".join(connections), "\n".join(values))
    table.caption = circuit.description
    return table


def node_table(rig: Rig) -> TerminalTable:
    """The nodes of the circuit at rest: pressure, and capacitance as a volume of oil; motion and mass; states."""
    table = new_table("Nodes and states at rest", "node or state", "kind", "start", "volume or mass")
    packed = rig.packed
    totals = node_sums(compiled_program(rig.library), packed, initial_values(packed))
    oil = rig.circuit.fluid.parameters()
    first = int(packed.index[e.INITIAL])
    for place, (name, unit) in enumerate(zip(packed.values, packed.kinds, strict=True)):
        start = packed.value[first + place]
        if name in totals and name.endswith(CONTENT):
            liters = 1e3 * totals[name] / capacitance(1.0, start, **oil)
            table.add_row(name.removesuffix(CONTENT), "hydraulic", shown_value(start, "Pa"), f"{liters:.4g} l")
        elif name in totals:
            inertia = f"{totals[name]:.4g} {'kg' if unit == 'm' else 'kg·m²'}"
            table.add_row(name.rpartition(".")[0], "mechanical", shown_value(start, unit), inertia)
        elif place < packed.n_states:
            table.add_row(name, "state", shown_value(start, "" if unit == "1" else unit), "")
        elif name.startswith(RIG) and name.endswith(".p"):
            table.add_row(name.removesuffix(".p"), "measured", "", "")
    return table


def solver_table(rig: Rig) -> TerminalTable:
    """Whether the integrator's step is short enough for the fastest motion in the circuit."""
    table = new_table("Solver", "integrator", "step", "fastest time constant", "of", "longest stable step")
    found = stiffest(rig, compiled_program(rig.library))
    step = 1.0 / rig.settings.loop.rate / rig.circuit.solver.substeps
    longest = found.longest_step(rig.circuit.solver.integrator)
    table.add_row(
        f"{rig.circuit.solver.integrator} × {rig.circuit.solver.substeps}",
        f"{step * 1e6:.0f} µs",
        f"{found.time_constant * 1e3:.3g} ms",
        _owner(rig, found),
        "any (L-stable)" if np.isinf(longest) else f"{longest * 1e6:.0f} µs",
    )
    return table


def _owner(rig: Rig, found: Stiffness) -> str:
    """The component or node that a state belongs to, in words."""
    owner = found.state.rpartition(".")[0]
    if not owner:
        return found.state
    at = [placed.name for placed in rig.circuit.placed if owner in placed.ports.values()]
    return f'node "{owner}" ({", ".join(at)})' if at else f"component {owner}"


def written(value: object) -> str:
    """A value of a circuit file on one line.

    >>> written({"flow": "40 l/min", "per": "edge"}), written([["5 bar", "20 l/min"], ["15 bar", "60 l/min"]])
    ('flow 40 l/min, per edge', '5 bar, 20 l/min; 15 bar, 60 l/min')
    """
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {written(entry)}" for key, entry in value.items())
    if isinstance(value, list):
        return ("; " if any(isinstance(entry, list) for entry in value) else ", ").join(map(written, value))
    return str(value)
