"""The entry points of the compiled program, and the scratch space that they need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hilserver.circuit import differences, engine, equilibrium, integrators
from hilserver.circuit.integrators import work_size
from hilserver.circuit.pack import PackedCircuit
from hilserver.mechanics import chain_halves, chain_steps, recursion
from hilserver.numerics import record_filter, riccati, valve_record
from hilserver.numerics.arrays import Floats, Indices
from hilserver.tick import circuit, lockstep, plant, tick, timed
from hilserver.tick.hybrid import step
from hilserver.tick.hybrid.memory import scratch_cells
from hilserver.tick.lockstep import WAITING_CELLS
from hilserver.tick.look_ahead import look_ahead_size
from hilserver.tick.plan import Plan
from hilserver.tick.row import MESSAGE_CELLS, CommandRecord, as_whole

ENTRY_POINTS: tuple[Callable[..., Any], ...] = (
    tick.tick,
    circuit.swap,
    engine.load,
    engine.derivatives,
    integrators.advance,
    engine.evaluate,
    engine.evaluate_sampled,
    equilibrium.find_rest,
    differences.jacobian,
    plant.sample,
    plant.move,
    lockstep.run_bridged,
    lockstep.run_recorded,
    lockstep.run_free,
    lockstep.run_drifting,
    step.run_hybrid,
    timed.timed_run,
    timed.time_nothing,
    timed.read_counter,
    riccati.discretise,
    riccati.stationary,
    valve_record.through_play,
    valve_record.spool_way,
    valve_record.shares_of,
    valve_record.mean_openings_of,
    record_filter.filter_record,
    recursion.load_chain,
    recursion.chain_rates,
    chain_steps.advance_chain,
    chain_steps.measure_all_gaps,
    chain_halves.advance_half,
)
"""The functions that can be called from Python, in compiled form, as functions of the program with the same name."""
OWN_KERNEL, OWN_TABLE = "hilserver_own_kernel", "hilserver_own_kernels"
"""Symbols of the function that calls a kernel of the user by its address, and of the table with these addresses."""
KIND = CommandRecord.names().index("kind")
"""Cell of a command's kind in its record."""
MIN_WORK = 96
"""Number of scratch values for the bridges."""


def work_array(packed: PackedCircuit, plan: Plan) -> Floats:
    """Scratch space for the tick with this circuit and for a swap."""
    return np.zeros(work_needed(packed.index, plan))


def no_command() -> Floats:
    """An empty mailbox record."""
    return np.zeros(MESSAGE_CELLS)


def commands_at(waiting: Sequence[tuple[int, int, int, Floats]]) -> Floats:
    """An empty mailbox with commands that wait behind it for later ticks of a run.

    Of each the tick, the mode in which it is given (-1: in any), on which result the run goes on
    (`hilserver.tick.lockstep`), and the record; in the order of the ticks.
    """
    cells = np.zeros(MESSAGE_CELLS + WAITING_CELLS * len(waiting))
    for line, (k, mode, wanted, record) in zip(cells[MESSAGE_CELLS:].reshape(-1, WAITING_CELLS), waiting, strict=True):
        line[0], line[1], line[2], line[3:] = k, mode, wanted, record
    return cells


def command_record(kind: int, *arguments: float) -> Floats:
    """A mailbox record with a command of this kind (`hilserver.tick.codes`) and up to six arguments."""
    record = no_command()
    as_whole(record)[KIND] = kind
    record[1 : 1 + len(arguments)] = arguments
    return record


def work_needed(index: Indices, plan: Plan) -> int:
    """Length of the scratch array that the tick needs with a circuit of this index."""
    own = MIN_WORK + int(plan.kalman.shape[1])
    own = max([own, *(scratch_cells(int(a.tracked)) for a in plan.actuator)])
    return max(work_size(index), int(plan.layout[0].circuit_space), own) + look_ahead_size(plan)
