"""The compiled program of a run: engine, bridge, tick, plant and lockstep loops, linked to the component library."""

from __future__ import annotations

import numpy as np

from hilserver.bridge import strategies
from hilserver.circuit.library import Library
from hilserver.circuit.pack import PackedCircuit
from hilserver.circuit.program import Program, build
from hilserver.numerics.arrays import Floats
from hilserver.realtime import lockstep, tick
from hilserver.rig import columns as c
from hilserver.rig import plant
from hilserver.rig.plan import Plan


def compiled_program(library: Library) -> Program:
    """The program for a library; what is not in the cache is compiled at the first call of each function."""
    return build(library, [strategies, tick, plant, lockstep])


def work_array(packed: PackedCircuit, circuit_space: int) -> Floats:
    """Scratch space for the tick with this circuit, and for a swap."""
    return np.zeros(max(packed.work_size, circuit_space))


def no_command() -> Floats:
    """An empty mailbox record."""
    return np.zeros(c.COMMAND_WIDTH)


def warm_up(program: Program, plan: Plan, packed: PackedCircuit, row: Floats) -> None:
    """Compile (or load) the tick and the swap on copies, so that nothing is compiled later in the loop."""
    trial, work = row.copy(), work_array(packed, int(plan.layout[c.CIRCUIT_SPACE]))
    program.tick(plan, packed.index, packed.value, trial, work, no_command())
    program.swap(plan, trial, packed.index, packed.value, packed.carried_from(packed), work)
