"""The tick without a clock: many ticks per call, as fast as possible and deterministic."""

from __future__ import annotations

from typing import NamedTuple

from hilserver.circuit.engine import N_VALUES
from hilserver.circuit.integrators import advance
from hilserver.numerics.arrays import Floats, Indices, Integers, Matrix
from hilserver.tick.codes import ResultCode
from hilserver.tick.plan import plan_on
from hilserver.tick.plant import PlantArrays, drift, move, sample, watch_commands
from hilserver.tick.row import MESSAGE_CELLS, header
from hilserver.tick.tick import tick

ENDED = -1
"""In place of the next command that waits: the run ends before it."""
GOES_ON, IF_DONE, IF_REFUSED = 0, 1, 2
"""On which result of a command the run goes on: on any, or only if it is done, or refused."""
WAITING_CELLS = 3 + MESSAGE_CELLS
"""Number of cells of a command that waits: its tick, the mode in which it is given (-1: in any), on which result the
run goes on, and its record."""


class Attached(NamedTuple):
    """A simulated device in the loop.

    ``slots`` holds the raw slot of each sensor, ``outputs`` and ``confirmed`` the row columns of each actuator's raw
    command, and of the one that it has; ``raw`` are the readings and ``command`` the raw commands, which are held from
    one tick to the next. ``trace[k]`` receives the plant's true values at the end of tick k, for as many ticks as it
    has lines.
    """

    plant: PlantArrays
    slots: Integers
    outputs: Integers
    confirmed: Integers
    raw: Floats
    command: Floats
    trace: Matrix


def attached_at(devices: tuple[Attached, ...], number: int) -> Attached:
    """One of the devices. (In compiled code, `devices` are the addresses of their frames.)"""
    return devices[number]


def run_bridged(
    block: Floats, ix: Indices, val: Floats, row: Floats, work: Floats, command: Floats, inputs: Integers,
    given: Matrix, devices: tuple[Attached, ...], rows: Matrix, kept: Integers,
) -> None:  # fmt: skip
    """Run the tick against simulated devices for ``len(rows)`` ticks; each tick's row is stored in ``rows``.

    Of a row, only the columns ``kept`` are stored, unless there are none.
    ``given[k, j]`` goes into column ``inputs[j]`` of tick k (including the tick's number). ``command`` is taken in the
    first tick, and others that wait behind it later, see `next_command`. During a missed tick the devices continue with
    their last command, until their watchdogs act, and their sensors sample.
    """
    plan, head = plan_on(block), header(row)
    dt, first_raw, first_age = plan.loop[0].dt, plan.layout[0].raw, plan.layout[0].age
    waiting = MESSAGE_CELLS
    for k in range(rows.shape[0]):
        wanted = wanted_result(command, waiting, k)
        waiting = next_command(command, waiting, row, k)
        if waiting == ENDED:
            return
        take(row, inputs, given, k)
        for number in range(len(devices)):
            device = attached_at(devices, number)
            for late in range(head.missed):
                sample(device.plant, device.raw)  # the delay of a sensor goes on
                watch_commands(device.plant, device.command, late + 1)
                move(device.plant, device.command, dt)
            sample(device.plant, device.raw)
            for i in range(device.slots.shape[0]):
                row[first_raw + device.slots[i]] = device.raw[i]
                row[first_age + device.slots[i]] = 0.0
            for i in range(device.confirmed.shape[0]):
                row[device.confirmed[i]] = device.command[i]
        tick(block, ix, val, row, work, command)
        clear(command)
        for number in range(len(devices)):
            device = attached_at(devices, number)
            for i in range(device.outputs.shape[0]):
                device.command[i] = row[device.outputs[i]]
            move(device.plant, device.command, dt)
            if k < device.trace.shape[0]:
                keep(device.plant.values, device.trace, k)
        keep_some(row, kept, rows, k)
        if is_unwanted(row, wanted):
            return


def run_recorded(
    block: Floats,
    ix: Indices,
    val: Floats,
    row: Floats,
    work: Floats,
    command: Floats,
    inputs: Integers,
    given: Matrix,
    rows: Matrix,
) -> None:
    """Run the tick on recorded inputs: ``given[k, j]`` goes into column ``inputs[j]`` of tick k; rows go into ``rows``.

    ``command`` is taken in the first tick, and others that wait behind it later, see `next_command`.
    """
    waiting = MESSAGE_CELLS
    for k in range(rows.shape[0]):
        wanted = wanted_result(command, waiting, k)
        waiting = next_command(command, waiting, row, k)
        if waiting == ENDED:
            return
        take(row, inputs, given, k)
        tick(block, ix, val, row, work, command)
        clear(command)
        keep(row, rows, k)
        if is_unwanted(row, wanted):
            return


def run_free(
    ix: Indices,
    val: Floats,
    values: Floats,
    work: Floats,
    driven: Integers,
    given: Matrix,
    steps: int,
    h: float,
    rows: Matrix,
) -> None:
    """Run a circuit alone: per tick ``given[k, j]`` into value ``driven[j]``, then ``steps`` steps of ``h``.

    All values at the end of tick k go into ``rows[k]``.
    """
    n = int(ix[N_VALUES])
    for k in range(rows.shape[0]):
        take(values, driven, given, k)
        advance(ix, val, values[:n], values[n:], work, steps, h)
        keep(values, rows, k)


def run_drifting(
    ix: Indices,
    val: Floats,
    first: Floats,
    last: Floats,
    share: float,
    step_of_share: float,
    values: Floats,
    work: Floats,
    driven: Integers,
    given: Matrix,
    steps: int,
    h: float,
    rows: Matrix,
) -> None:
    """`run_free` of a circuit that drifts: from ``share`` of its drift on, by ``step_of_share`` in each tick."""
    for k in range(rows.shape[0]):
        drift(val, first, last, share + k * step_of_share)
        run_free(ix, val, values, work, driven, given[k : k + 1], steps, h, rows[k : k + 1])


def next_command(command: Floats, waiting: int, row: Floats, k: int) -> int:
    """Put the command that waits for tick ``k``, if one does, into the mailbox at the beginning of ``command``.

    ``waiting``: place of the next one there, see `WAITING_CELLS`. Returns that of the one after it, or `ENDED` where
    the rig is in another mode: then nothing happens in this tick.
    """
    if waiting >= command.shape[0] or command[waiting] != k:
        return waiting
    mode = command[waiting + 1]
    if mode >= 0.0 and mode != header(row).mode:
        return ENDED
    for i in range(MESSAGE_CELLS):
        command[i] = command[waiting + WAITING_CELLS - MESSAGE_CELLS + i]
    return waiting + WAITING_CELLS


def wanted_result(command: Floats, waiting: int, k: int) -> int:
    """On which result of the command that waits for tick ``k`` the run goes on."""
    return int(command[waiting + 2]) if waiting < command.shape[0] and command[waiting] == k else GOES_ON


def is_unwanted(row: Floats, wanted: int) -> bool:
    """Whether the run ends with this row, because its command has another result than the wanted one."""
    is_done = header(row).result == ResultCode.DONE
    return bool((wanted == IF_DONE and not is_done) or (wanted == IF_REFUSED and is_done))


def take(row: Floats, columns: Integers, given: Matrix, k: int) -> None:
    """Copy line ``k`` of ``given`` into these columns of the row."""
    for j in range(columns.shape[0]):
        row[columns[j]] = given[k, j]


def keep(row: Floats, rows: Matrix, k: int) -> None:
    """Copy the row into line ``k`` of ``rows``, as many columns as that has."""
    for j in range(rows.shape[1]):
        rows[k, j] = row[j]


def keep_some(row: Floats, columns: Integers, rows: Matrix, k: int) -> None:
    """The same with these columns only, unless there are none."""
    if columns.shape[0] == 0:
        keep(row, rows, k)
    for j in range(columns.shape[0]):
        rows[k, j] = row[columns[j]]


def clear(command: Floats) -> None:
    """Clear the command, which is taken only once."""
    for i in range(MESSAGE_CELLS):
        command[i] = 0.0
