"""Where the new parts of a circuit start at a switch: at measured pressures, or at rest around what is kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hilserver.circuit import engine as e
from hilserver.circuit.analysis import Analysis, too_long
from hilserver.circuit.model import RIG, Circuit
from hilserver.circuit.pack import PackedCircuit
from hilserver.circuit.program import Program
from hilserver.numerics.arrays import Floats, Integers
from hilserver.rig.build import Rig

LOOK_AHEAD = 0.2
"""Seconds after which a circuit is looked at again with its inputs at their ends."""
LOOKS = 100
"""Steps until then."""


def started(
    rig: Rig, program: Program, circuit: Circuit, packed: PackedCircuit, carried: Integers, row: Floats, steady: bool
) -> PackedCircuit:
    """The packed circuit with initial values for what is not carried over from the running one.

    ``row``: the newest row. Nodes with ``pressure_from`` start at the pressure that the circuit sees at that port;
    with ``steady``, the new states start where they come to rest while the kept ones are held. Raises NoEquilibrium
    where they don't.
    """
    first = int(packed.index[e.INITIAL])
    value = packed.value.copy()
    initial = value[first : first + len(packed.values)]
    for node, start in circuit.starts.items():
        if start.pressure_from is not None:
            seen = row[rig.layout.bindings[RIG + start.pressure_from]]
            for name in (f"{node}.content", f"{node}.p"):
                if name in packed.values:
                    initial[packed.values.index(name)] = seen
    new = replace(packed, value=value)
    if steady:
        kept = np.flatnonzero(carried[: packed.n_states] >= 0)
        settled = Analysis(program, new, _present(rig, new, carried, row)).steady_state(held=kept)
        states = slice(0, packed.n_states)
        initial[states] = np.where(carried[states] >= 0, initial[states], settled[states])
    return new


def unstable(
    rig: Rig, program: Program, circuit: Circuit, packed: PackedCircuit, carried: Integers, row: Floats
) -> str | None:
    """Why the circuit's integrator can't follow it; None where it can.

    Looked at in the present state, and where the circuit is a fifth of a second after each input went to its ends.
    """
    tick, solver = 1.0 / rig.settings.loop.rate, circuit.solver
    present = _present(rig, packed, carried, row)
    recorded, work = np.zeros(len(packed.recorded)), np.zeros(packed.work_size)
    index = packed.index.copy()
    index[e.INTEGRATOR] = e.ROSENBROCK  # gets there whatever the circuit's own integrator would make of it
    index[e.SOLUTION_STEPS] = 0  # a mechanism's solution isn't shared by steps of another length
    states = [present]
    for end in (0, 1):
        values = present.copy()
        for name, settings in rig.settings.inputs.items():
            if name in packed.values:
                values[packed.values.index(name)] = settings.range[end]
        program.advance(index, packed.value, values, recorded, work, LOOKS, LOOK_AHEAD / LOOKS)
        if np.isfinite(values).all():
            states.append(values)
    texts = (
        too_long(Analysis(program, packed, values).stiffness(), solver.integrator, tick, solver.substeps)
        for values in states
    )
    return next((text for text in texts if text), None)


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
