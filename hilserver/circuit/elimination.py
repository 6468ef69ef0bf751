"""The compiled core: a step's linear equations (I - g·h·J)·k = b, solved along the structure of the circuit.

Which entries of the matrix can differ from zero follows from the circuit. When it is packed, its states are brought
into an order in which the elimination makes few more of them (`hilserver.circuit.coupling.Coupling.elimination`); the
table ELIMINATION lists, for each state in this order, those whose entries in its column and in its row are left. All
other operations would be ones with zeros. Of each state the table has its number, the lengths of the two lists, the
lists, and the length of all this.

The pivots are the diagonal, whatever the units of the states: the entries of different states can't be compared, the
loss of digits in a pivot can (`is_sound`). A matrix with a pivot that is not sound is factorised as a whole, with
pivoting (`hilserver.numerics.linear`). So is that of a circuit without the table: one with an explicit method, which
is integrated with this method only on its way to an equilibrium, or one whose matrix is nearly full.
"""

from __future__ import annotations

import numpy as np

from hilserver.circuit.engine import ELIMINATION, N_ELIMINATION, N_STATES, ONE, THREE, TWO
from hilserver.numerics.arrays import Floats, Indices

LARGEST_LOSS = 1e10
"""A pivot may be smaller than the numbers of which it is the sum by this factor: it has six digits then. The
differences of which the Jacobian consists have no more."""


def lists(ix: Indices, row: np.uint64) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """Of a row of ELIMINATION: the number of its state, the places of its two lists, and of the next row."""
    below = row + THREE
    right = below + ix[row + ONE]
    return ix[row], below, right, right + ix[row + TWO] + ONE


def factorise_structure(ix: Indices, jacobian: Floats, factors: Floats, scale: float) -> None:
    """Factorise I + scale·J, both stored by columns; only entries of the structure are read and written.

    Instead of the pivots their reciprocal values are stored. In the code that is compiled for a circuit, these are
    single operations one after the other (`hilserver.compiler.straight_elimination`).
    """
    n = ix[N_STATES]
    row, end = ix[ELIMINATION], ix[ELIMINATION] + ix[N_ELIMINATION]
    while row < end:
        p, below, right, row = lists(ix, row)
        factors[p * n + p] = 1.0 + scale * jacobian[p * n + p]
        for k in range(below, right):
            factors[p * n + ix[k]] = scale * jacobian[p * n + ix[k]]
        for k in range(right, row - ONE):
            factors[ix[k] * n + p] = scale * jacobian[ix[k] * n + p]
    row = ix[ELIMINATION]
    while row < end:
        p, below, right, row = lists(ix, row)
        reciprocal = 1.0 / factors[p * n + p]
        factors[p * n + p] = reciprocal
        for k in range(below, right):
            factors[p * n + ix[k]] *= reciprocal
        for j in range(right, row - ONE):
            column = ix[j] * n
            factor = factors[column + p]
            for k in range(below, right):
                factors[column + ix[k]] -= factors[p * n + ix[k]] * factor


def solve_structure(ix: Indices, factors: Floats, b: Floats) -> None:
    """b <- (I + scale·J)^-1 b, from what ``factorise_structure`` has written."""
    n = ix[N_STATES]
    row, end = ix[ELIMINATION], ix[ELIMINATION] + ix[N_ELIMINATION]
    while row < end:
        p, below, right, row = lists(ix, row)
        for k in range(below, right):
            b[ix[k]] -= factors[p * n + ix[k]] * b[p]
    while row > ix[ELIMINATION]:
        row -= ix[row - ONE]
        p, _, right, behind = lists(ix, row)
        x = b[p]
        for k in range(right, behind - ONE):
            x -= factors[ix[k] * n + p] * b[ix[k]]
        b[p] = x * factors[p * n + p]


def is_sound(ix: Indices, jacobian: Floats, factors: Floats, scale: float) -> bool:
    """Whether no pivot has lost more than LARGEST_LOSS; false for infinite ones and NaN, too."""
    n = ix[N_STATES]
    sound = 0
    for i in range(n):
        at = i * n + i
        sound += abs(factors[at]) * (1.0 + abs(scale * jacobian[at])) <= LARGEST_LOSS
    return bool(sound == np.int64(n))
