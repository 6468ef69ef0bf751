"""The linearisation of a packed circuit, as compiled code."""

from __future__ import annotations

from hilserver.circuit.engine import LOWER, N_STATES, SCALE, UPPER, derivatives
from hilserver.numerics.arrays import Floats, Indices, Matrix

RELATIVE = 1e-7
"""Of a state or of its typical size, whichever is larger: the difference over which a slope is taken."""


def jacobian(ix: Indices, val: Floats, z: Floats, y: Floats, d: Floats, rates: Floats, columns: Matrix) -> None:
    """Write the derivatives of the rates by the states at ``z`` into ``columns[state, rate]``; ``rates``: those at z.

    One-sided differences away from hard limits. A state that is held at a hard limit does not move: its derivatives are
    zero. Afterwards the signals in ``z``, and ``y`` and ``d``, are those at ``z``.
    """
    n = ix[N_STATES]
    derivatives(ix, val, z, y, d)
    for i in range(n):
        rates[i] = d[i]
    for j in range(n):
        for i in range(n):
            columns[j, i] = 0.0
        if is_held(ix, val, z, rates, j):
            continue
        at = z[j]
        step = RELATIVE * max(abs(at), val[ix[SCALE] + j])
        z[j] = at - step if at + step > val[ix[UPPER] + j] else at + step
        derivatives(ix, val, z, y, d)
        change = z[j] - at
        z[j] = at
        for i in range(n):
            if not is_held(ix, val, z, rates, i):
                columns[j, i] = (d[i] - rates[i]) / change
    derivatives(ix, val, z, y, d)


def is_held(ix: Indices, val: Floats, z: Floats, rates: Floats, i: int) -> bool:
    """Whether a state is held at a hard limit."""
    return bool(rates[i] == 0.0 and (z[i] <= val[ix[LOWER] + i] or z[i] >= val[ix[UPPER] + i]))
