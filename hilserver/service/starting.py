"""Where the new parts of a circuit start at a switch: at measured pressures, or at rest around what is kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hilserver.circuit import engine as e
from hilserver.circuit.analysis import Analysis
from hilserver.circuit.model import RIG, Circuit
from hilserver.circuit.pack import PackedCircuit
from hilserver.circuit.program import Program
from hilserver.numerics.arrays import Floats, Integers
from hilserver.rig.load import Rig


def started(
    rig: Rig, program: Program, circuit: Circuit, packed: PackedCircuit, carried: Integers, row: Floats, steady: bool
) -> PackedCircuit:
    """The packed circuit with initial values for what is not carried over from the running one.

    ``row``: the newest row. Nodes with ``pressure_from`` start at that port's measured pressure; with ``steady``, the
    new states start where they come to rest while the kept ones are held. Raises NoEquilibrium where they don't.
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
        settled = Analysis(program, new, _present(rig, new, carried, row)).steady_state(held=kept)
        states = slice(0, packed.n_states)
        initial[states] = np.where(carried[states] >= 0, initial[states], settled[states])
    return new


def _present(rig: Rig, packed: PackedCircuit, carried: Integers, row: Floats) -> Floats:
    """The circuit's values as they will be right after the switch: carried over, bound to the rig, or initial."""
    first, n = int(packed.index[e.INITIAL]), len(packed.values)
    values = packed.value[first : first + n].copy()
    running = row[len(rig.layout.names) :]
    values[carried >= 0] = running[carried[carried >= 0]]
    start, count = int(packed.index[e.BOUND]), int(packed.index[e.N_BOUND])
    for place, column in packed.index[start : start + 2 * count].reshape(-1, 2).astype(np.int64):
        values[place] = row[column]
    return values
