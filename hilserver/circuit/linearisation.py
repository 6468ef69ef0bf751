"""The compiled core: the states of a circuit with the chambers that it fills, their rates, and the Jacobian.

The layout of ``work`` in a step of the L-stable method, for n states: behind the sums of flow and capacitance the
states at the start, their rates, four vectors, the Jacobian and the matrix of the step by columns, the flows with their
slopes, the factors of the matrix.
"""

from __future__ import annotations

import numpy as np

from hilserver.circuit.engine import (
    FLOWS,
    GROUPED,
    LOWER,
    N_FLOWS,
    N_GROUPED,
    N_STATES,
    N_SUMS,
    ONE,
    SCALE,
    THREE,
    TWO,
    UPPER,
    flow,
    rates_within_step,
)
from hilserver.numerics.arrays import Floats, Indices

RATE, VOLUME, SLOPES = 0, 1, 2  # of a flow, see flow_of_step
PRESSURE_AT, SUM_AT, CAPACITANCE, SWEPT, PORT = 0, 1, 2, 3, 4
"""Of a chamber: places of its pressure in z and of its port's sum in d; m³/Pa; m³/s that its piston takes up; number of
its port."""
CHAMBER_CELLS = 5
CHAMBER_SCALE = 1e4
"""Pa: typical size of a chamber's pressure; an error in it becomes a volume that is demanded of the real valve."""


def states_with(ix: Indices, chambers: Floats) -> int:
    """Number of states, with the pressures of these chambers behind the circuit's own."""
    return int(np.int64(ix[N_STATES]) + chambers.shape[0] // CHAMBER_CELLS)


def keep_rates(ix: Indices, d: Floats, chambers: Floats, f: Floats) -> None:
    """Write the rates of all states into ``f``; the circuit's own are in ``d``."""
    n = np.int64(ix[N_STATES])
    for i in range(ix[N_STATES]):
        f[i] = d[i]
    for c in range(chambers.shape[0] // CHAMBER_CELLS):
        row = CHAMBER_CELLS * c
        total = int(chambers[row + SUM_AT])
        f[n + c] = (d[total] - chambers[row + SWEPT]) / (d[total + 1] + chambers[row + CAPACITANCE])


def place_of_state(ix: Indices, chambers: Floats, i: int) -> int:
    """Place of a state in z."""
    n = np.int64(ix[N_STATES])
    return i if i < n else int(chambers[CHAMBER_CELLS * (i - int(n)) + PRESSURE_AT])


def set_states(ix: Indices, z: Floats, chambers: Floats, states: Floats) -> None:
    """Write all states into z."""
    n = np.int64(ix[N_STATES])
    for i in range(ix[N_STATES]):
        z[i] = states[i]
    for c in range(chambers.shape[0] // CHAMBER_CELLS):
        z[int(chambers[CHAMBER_CELLS * c + PRESSURE_AT])] = states[n + c]


def linearise(ix: Indices, val: Floats, z: Floats, y: Floats, work: Floats, chambers: Floats) -> None:
    """Return to the start and keep the Jacobian there in ``work``, by columns; states at a hard limit don't move.

    States whose columns have no row in common are changed together (`hilserver.circuit.coupling`).
    """
    own, n = np.int64(ix[N_STATES]), states_with(ix, chambers)
    m = own + np.int64(ix[N_SUMS])
    d, start, jacobian = work, work[m:], work[m + 6 * n :]
    set_states(ix, z, chambers, start)
    for i in range(n * n):
        jacobian[i] = 0.0
    for k in range(ix[N_FLOWS]):
        first = flow_of_step(ix, n, k) + SLOPES
        for j in range(n):
            work[first + j] = 0.0
    row, end = ix[GROUPED], ix[GROUPED] + ix[N_GROUPED]
    while row < end:
        if change_group(ix, val, z, work, chambers, row):
            rates_within_step(ix, val, z, y, d, True)
        row = keep_columns(ix, z, work, chambers, row)
    for c in range(chambers.shape[0] // CHAMBER_CELLS):
        linearise_chamber(ix, val, z, y, work, chambers, c)


def change_group(ix: Indices, val: Floats, z: Floats, work: Floats, chambers: Floats, row: np.uint64) -> bool:
    """Change each state of a group of the table GROUPED by its difference; whether there is any that can change.

    A state at a hard limit, where its rate is 0, keeps its value: its difference is 0.
    """
    n, m = states_with(ix, chambers), np.int64(ix[N_STATES]) + np.int64(ix[N_SUMS])
    start, f, differences = work[m:], work[m + n :], work[m + 3 * n :]
    found, at = False, row + ONE
    for _ in range(ix[row]):
        j = ix[at]
        lower, upper = val[ix[LOWER] + j], val[ix[UPPER] + j]
        step = difference_from(start[j], val[ix[SCALE] + j])
        if start[j] + step > upper:
            step = -step
        if f[j] == 0.0 and (start[j] <= lower or start[j] >= upper):
            step = 0.0
        else:
            found = True
            z[j] = start[j] + step
        differences[j] = step
        at = behind_column(ix, at)
    return found


def difference_from(start: float, scale: float) -> float:
    """The change of a value with which a slope is found, as it is represented in the sum."""
    return (start + 1e-7 * max(abs(start), scale)) - start


def behind_column(ix: Indices, row: np.uint64) -> np.uint64:
    """The place behind a column of the table GROUPED: its number, its length, three lists, each after its length."""
    return np.uint64(row + ix[row + ONE])


def keep_columns(ix: Indices, z: Floats, work: Floats, chambers: Floats, row: np.uint64) -> np.uint64:
    """Write the columns of a group from the rates in ``work``, and return to the start; returns the place behind it."""
    own, n = np.int64(ix[N_STATES]), states_with(ix, chambers)
    m = own + np.int64(ix[N_SUMS])
    start, differences = work[m:], work[m + 3 * n :]
    keep_rates(ix, work, chambers, work[m + 2 * n :])
    column = row + ONE
    for _ in range(ix[row]):
        j = ix[column]
        if differences[j] != 0.0:
            keep_column(ix, z, work, chambers, column, differences[j])
        column = behind_column(ix, column)
    column = row + ONE
    for _ in range(ix[row]):
        z[ix[column]] = start[ix[column]]
        column = behind_column(ix, column)
    return column


def keep_column(ix: Indices, z: Floats, work: Floats, chambers: Floats, at: np.uint64, step: float) -> None:
    """Write the column of a state that has been changed by ``step``: the rates of states, chambers and flows."""
    own, n = np.int64(ix[N_STATES]), states_with(ix, chambers)
    m, j = own + np.int64(ix[N_SUMS]), np.int64(ix[at])
    f, rates, jacobian = work[m + n :], work[m + 2 * n :], work[m + 6 * n + j * n :]
    row = at + TWO
    for k in range(ix[row]):
        i = ix[row + ONE + k]
        jacobian[i] = (rates[i] - f[i]) / step
    row += ix[row] + ONE
    for k in range(ix[row]):
        for c in range(chambers.shape[0] // CHAMBER_CELLS):
            if chambers[CHAMBER_CELLS * c + PORT] == ix[row + ONE + k]:
                jacobian[own + c] = (rates[own + c] - f[own + c]) / step
    row += ix[row] + ONE
    for k in range(ix[row]):
        keep_slope(ix, z, work, n, ix[row + ONE + k], int(j), step)


def keep_slope(ix: Indices, z: Floats, work: Floats, n: int, k: int, j: int, step: float) -> None:
    """Write the slope of flow ``k`` over state ``j``, which has been changed by ``step``."""
    one = flow_of_step(ix, n, k)
    work[one + SLOPES + j] = (flow(ix, z, work, ix[FLOWS] + THREE * k) - work[one + RATE]) / step


def linearise_chamber(ix: Indices, val: Floats, z: Floats, y: Floats, work: Floats, chambers: Floats, c: int) -> None:
    """Write the column of a chamber's pressure."""
    n, m = states_with(ix, chambers), np.int64(ix[N_STATES]) + np.int64(ix[N_SUMS])
    start, f, rates, j = work[m:], work[m + n :], work[m + 2 * n :], np.int64(ix[N_STATES]) + np.int64(c)
    column, place = work[m + 6 * n + j * n :], place_of_state(ix, chambers, int(j))
    step = difference_from(start[j], CHAMBER_SCALE)
    z[place] = start[j] + step
    rates_within_step(ix, val, z, y, work, True)
    for k in range(ix[N_FLOWS]):
        keep_slope(ix, z, work, n, k, int(j), step)
    z[place] = start[j]
    keep_rates(ix, work, chambers, rates)
    for i in range(n):
        column[i] = (rates[i] - f[i]) / step


def flow_of_step(ix: Indices, n: int, k: int) -> int:
    """Place in ``work`` of flow ``k`` in a step of n states: its rate at the start, its volume, its slopes over them.

    The volume is integrated like one more state, so that it and the circuit's content add up exactly.
    """
    first = np.int64(ix[N_STATES]) + np.int64(ix[N_SUMS]) + 6 * n + 2 * n * n
    return int(first + np.int64(k) * (n + SLOPES))
