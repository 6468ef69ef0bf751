"""The compiled program of a run: engine, bridge, tick, plant and lockstep loops, linked to the component library."""

from __future__ import annotations

from typing import Any

import numpy as np

from hilserver.circuit.engine import N_RECORDED, N_VALUES, work_size
from hilserver.circuit.library import Library
from hilserver.circuit.pack import PackedCircuit
from hilserver.circuit.program import (
    COMPLETE,
    Program,
    build,
    mechanisms_folder,
    program_folder,
)
from hilserver.numerics.arrays import Floats, Indices
from hilserver.tick import circuit, lockstep, plant, tick
from hilserver.tick.look_ahead import look_ahead_size
from hilserver.tick.plan import Plan
from hilserver.tick.plant import PlantArrays
from hilserver.tick.row import MESSAGE_CELLS

LINKED = (circuit, tick, plant, lockstep)
"""Modules whose functions call the integrator. They access functions of other modules by ordinary imports."""
LEAST_WORK = 64
"""Number of scratch values for the bridges."""


def compiled_program(library: Library) -> Program:
    """The program for a library; a function that is not in the cache is compiled at its first call."""
    return build(library, LINKED)


def work_array(packed: PackedCircuit, plan: Plan) -> Floats:
    """Scratch space for the tick with this circuit and for a swap."""
    return np.zeros(work_needed(packed.index, plan))


def no_command() -> Floats:
    """An empty mailbox record."""
    return np.zeros(MESSAGE_CELLS)


def work_needed(index: Indices, plan: Plan) -> int:
    """Length of the scratch array that the tick needs with a circuit of this index."""
    return max(work_size(index), int(plan.layout[0].circuit_space), LEAST_WORK) + look_ahead_size(plan)


def warm_up(program: Program, plan: Plan, index: Indices, value: Floats, row: Floats) -> None:
    """Compile (or load) tick and swap by calling them with copies, so that nothing is compiled later in the loop."""
    _make(program, calls_in_the_loop(plan, index, value, row))


def warm_up_analysis(program: Program, index: Indices, value: Floats) -> None:
    """The same for the functions that check a circuit before it is switched in."""
    _make(program, calls_in_analysis(index, value))


def warm_up_plant(program: Program, arrays: PlantArrays, dt: float) -> None:
    """The same for a simulated device."""
    _make(program, calls_in_a_plant(arrays, dt))


Calls = list[tuple[str, tuple[Any, ...]]]
"""Functions of a program by name, with arguments for a call."""


def calls_in_the_loop(plan: Plan, index: Indices, value: Floats, row: Floats) -> Calls:
    """The functions that the loop calls: tick and swap, with copies."""
    trial, work, nothing = row.copy(), np.zeros(work_needed(index, plan)), np.full(len(row), -1, dtype=np.int64)
    return [
        ("tick", (plan.block, index, value, trial, work, no_command())),
        ("swap", (plan.block, trial, index, value, nothing, work)),
    ]


def calls_in_analysis(index: Indices, value: Floats) -> Calls:
    """The functions with which the supervisor checks a circuit before it is switched in."""
    z, work = np.zeros(int(index[N_VALUES])), np.zeros(work_size(index))
    y = np.zeros(int(index[N_RECORDED]))
    return [
        ("load", (index, value, z)),
        ("derivatives", (index, value, z, y, work)),
        ("advance", (index, value, z, y, work, 0, 1e-3)),
    ]


def calls_in_a_plant(arrays: PlantArrays, dt: float) -> Calls:
    """The function that a simulated device calls, with a copy."""
    trial = PlantArrays._make(array.copy() for array in arrays)
    return [
        ("sample", (trial, np.zeros(len(arrays.sensor)))),
        ("move", (trial, np.zeros(len(arrays.actuator)), dt)),
    ]


def _make(program: Program, calls: Calls) -> None:
    for name, arguments in calls:
        program.functions[name](*arguments)


def is_compiled(library: Library) -> bool:
    """Whether everything that a real-time run needs is in the cache; if not, it takes minutes to compile."""
    return all((folder / COMPLETE).exists() for folder in (program_folder(library, LINKED), mechanisms_folder()))
