"""The search for the equilibrium of a packed circuit, as compiled code: some hundred steps, each checked."""

from __future__ import annotations

from math import inf, isfinite

from hilserver.circuit.engine import N_STATES, SCALE
from hilserver.circuit.integrators import advance
from hilserver.numerics.arrays import Floats, Indices

SETTLED = 1e-6
"""Scaled rate, in typical sizes per second, below which a state counts as at rest."""
MAX_STEPS = 10_000
FIRST_STEP, SHORTEST_STEP, LONGEST_STEP = 1e-4, 1e-6, 1e5
LONGEST_TIME = 1e7
"""Seconds that are simulated at most: a circuit that still moves after months does so forever; such is one with a void
chamber that loses oil."""
TOLERANCE = 1e-3
"""Of a step: the largest difference from two half steps, as a part of typical size and value."""


def find_rest(
    ix: Indices, val: Floats, z: Floats, y: Floats, work: Floats, whole: Floats, halves: Floats, rates: Floats
) -> None:
    """Integrate the values ``z`` with the L-stable method until all states are at rest, or can't come to rest.

    Each step is checked against two half steps. ``rates`` (a cell per state) becomes the rates of the last good step
    in typical sizes per second: the circuit is at rest if all are below `SETTLED`. ``whole`` and ``halves`` are
    scratch space of the size of ``z``.
    """
    n = ix[N_STATES]
    for i in range(n):
        rates[i] = inf
    h, time = FIRST_STEP, 0.0
    for _ in range(MAX_STEPS):
        for i in range(len(z)):
            whole[i] = halves[i] = z[i]
        advance(ix, val, whole, y, work, 1, h)
        advance(ix, val, halves, y, work, 2, 0.5 * h)
        error = error_of_step(ix, val, whole, halves)
        if error > 1.0 and h > SHORTEST_STEP:
            h = max(0.4 * h, SHORTEST_STEP)
            continue
        if error == inf:
            return
        fastest, time = 0.0, time + h
        for i in range(len(z)):
            z[i] = halves[i]
        for i in range(n):
            rates[i] = work[i] / val[ix[SCALE] + i]
            fastest = max(fastest, abs(rates[i]))
        if fastest < SETTLED or time > LONGEST_TIME:
            return
        h = min(h * min(4.0, 0.9 / max(error, 1e-6) ** (1.0 / 3.0)), LONGEST_STEP)


def error_of_step(ix: Indices, val: Floats, whole: Floats, halves: Floats) -> float:
    """Largest difference of a step from two half steps, in tolerances; infinite if a value is no longer finite."""
    for value in halves:
        if not isfinite(value):
            return inf
    worst = 0.0
    for i in range(ix[N_STATES]):
        difference = abs(whole[i] - halves[i]) / (TOLERANCE * (val[ix[SCALE] + i] + abs(halves[i])))
        if not difference <= worst:  # also true for NaN
            worst = difference if isfinite(difference) else inf
    return worst
