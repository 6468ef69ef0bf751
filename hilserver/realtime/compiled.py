"""The compiled program of a run: engine, bridge, tick, plant and lockstep loops, linked to the component library.

``python -m hilserver.realtime.compiled SETUP`` and ``... mechanisms`` compile all that a real-time run needs, before
its processes start: else each of them would compile the same at the same time. They are two, for two processors.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numba
import numpy as np

from hilserver.bridge import compensation, cylinder, stop, strategies, swing, valve
from hilserver.circuit.engine import N_RECORDED, N_STATES, N_SUMS, N_VALUES, work_size
from hilserver.circuit.library import Library, library_of
from hilserver.circuit.pack import PackedCircuit
from hilserver.circuit.program import (
    COMPLETE,
    Program,
    build,
    compile_mechanisms,
    mechanisms_folder,
    program_folder,
)
from hilserver.numerics.arrays import Floats, Indices
from hilserver.realtime import ahead, lockstep, machine, modes, outputs, signals, tick
from hilserver.realtime.setup import read_setup, work_needed
from hilserver.realtime.talk import say
from hilserver.rig import columns as c
from hilserver.rig import plant
from hilserver.rig.plan import Plan
from hilserver.rig.plant import PlantArrays

BRIDGE = (strategies, stop, valve, cylinder, compensation, swing)
TICK = (machine, ahead, signals, modes, outputs, tick)
LINKED = (*BRIDGE, *TICK, plant, lockstep)
MECHANISMS = "mechanisms"


def compiled_program(library: Library) -> Program:
    """The program for a library; what is not in the cache is compiled at the first call of each function."""
    return build(library, LINKED)


def work_array(packed: PackedCircuit, plan: Plan) -> Floats:
    """Scratch space for the tick with this circuit, and for a swap."""
    return np.zeros(work_needed(packed.index, plan))


def no_command() -> Floats:
    """An empty mailbox record."""
    return np.zeros(c.COMMAND_WIDTH)


def warm_up(program: Program, plan: Plan, index: Indices, value: Floats, row: Floats) -> None:
    """Compile (or load) the tick and the swap on copies, so that nothing is compiled later in the loop."""
    _make(program, _in_the_loop(plan, index, value, row))


def warm_up_analysis(program: Program, index: Indices, value: Floats) -> None:
    """The same for what examines a circuit before it is switched in."""
    _make(program, _in_analysis(index, value))


def warm_up_plant(program: Program, arrays: PlantArrays, dt: float) -> None:
    """The same for a simulated device."""
    _make(program, _in_a_plant(arrays, dt))


Calls = list[tuple[str, tuple[Any, ...]]]
"""Functions of a program by name, with arguments."""


def _in_the_loop(plan: Plan, index: Indices, value: Floats, row: Floats) -> Calls:
    trial, work, nothing = row.copy(), np.zeros(work_needed(index, plan)), np.full(len(row), -1, dtype=np.int64)
    return [
        ("tick", (plan, index, value, trial, work, no_command())),
        ("swap", (plan, trial, index, value, nothing, work)),
    ]


def _in_analysis(index: Indices, value: Floats) -> Calls:
    z, work = np.zeros(int(index[N_VALUES])), np.zeros(work_size(int(index[N_STATES]), int(index[N_SUMS])))
    y = np.zeros(int(index[N_RECORDED]))
    return [
        ("load", (index, value, z)),
        ("derivatives", (index, value, z, y, work)),
        ("advance", (index, value, z, y, work, 0, 1e-3)),
    ]


def _in_a_plant(arrays: PlantArrays, dt: float) -> Calls:
    trial = PlantArrays._make(array.copy() for array in arrays)
    return [
        ("sample", (trial, np.zeros(len(arrays.sensor)))),
        ("move", (trial, np.zeros(len(arrays.actuator)), dt)),
    ]


def _make(program: Program, calls: Calls) -> None:
    for name, arguments in calls:
        program.functions[name](*arguments)


def is_compiled(library: Library) -> bool:
    """Whether all that a real-time run needs is in the cache; else it takes a minute or two to compile."""
    return all((folder / COMPLETE).exists() for folder in (program_folder(library, LINKED), mechanisms_folder()))


def fill_cache(setup_file: Path) -> None:
    """Compile all that a real-time run needs, but for the mechanisms' machine code; nothing is called."""
    setup = read_setup(setup_file)
    program = build(library_of(setup.own), LINKED, to_call=False)
    calls = _in_the_loop(setup.plan, setup.index, setup.value, setup.row) + _in_analysis(setup.index, setup.value)
    for arrays in setup.plants.values():
        calls += _in_a_plant(arrays, float(setup.plan.loop[c.DT]))
    for name, arguments in calls:
        program.functions[name].compile(tuple(map(numba.typeof, arguments)))
    (program.folder / COMPLETE).touch()


if __name__ == "__main__":
    if sys.argv[1] == MECHANISMS:
        compile_mechanisms()
    else:
        fill_cache(Path(sys.argv[1]))
    say(ready=True)
