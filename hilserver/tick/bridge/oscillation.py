r"""Whether the loop of circuit, valve and machine oscillates, seen on what the bridge demands of its valve.

A loop that is too late swings by itself, at a frequency of its own, and does not stop. So *swings* of the demanded
opening are counted, from one turning point to the next, that

- are large enough (`LEAST`), and neither as quick as noise nor as slow as an operator (`QUICKEST`, `SLOWEST`),
- come without the operator's doing: his inputs have not moved by a good part of it meanwhile (`EXPLAINED`),
- don't die out: they are not much smaller than those before (`KEEPS`, `FORGOTTEN`). A step makes a damped rig ring.

`SWINGS` of them, and the loop oscillates: until the operator moves, or none of them comes for a time of `SLOWEST`.

``b`` is the valve's block of the row, ``v`` its line of the plan. Compiled into the tick.
"""

from __future__ import annotations

from math import exp, isfinite

from hilserver.numerics.arrays import Floats
from hilserver.numerics.valve import opening_past_overlap
from hilserver.tick.bridge.columns import (
    DEMAND,
    OSCILLATION,
    OVERLAP,
    SATURATION,
    SWING,
    SWING_COUNT,
    SWING_FROM,
    SWING_MEAN,
    SWING_TIME,
    SWING_TO,
    SWING_TRAVEL,
)

SMOOTHED = 1e-3
"""s, low-pass of the opening, against single noisy ticks."""
LEAST, LEAST_SHARE = 0.01, 0.05
"""Smallest swing that counts, from turn to turn: of full opening, and of the opening more."""
QUICKEST, SLOWEST = 2.5e-3, 0.25
"""s from turn to turn: 200 Hz to 2 Hz."""
EXPLAINED = 0.25
"""Share of a swing by which the inputs must have moved (of half their ranges) for it to be the operator's."""
KEEPS, FORGOTTEN = 0.7, 0.5
"""Share of the largest swing that the next ones must have, and s in which that is forgotten."""
WIGGLE = 0.25
"""Share of the largest swing by which the opening must come back to have turned."""
SWINGS = 10
"""Swings that make an oscillation: five periods."""


def watch_swing(b: Floats, v: Floats, travel: float, elapsed: float) -> None:
    """Follow the demand of this tick; ``travel``: by how much the inputs have moved, of half their ranges."""
    if not isfinite(b[SWING_MEAN]):
        forget_swing(b, v)
    opening = opening_past_overlap(b[DEMAND], v[OVERLAP])
    b[SWING_MEAN] += (opening - b[SWING_MEAN]) * elapsed / (SMOOTHED + elapsed)
    b[SWING] *= exp(-elapsed / FORGOTTEN)
    b[SWING_TIME] += elapsed
    b[SWING_TRAVEL] += travel
    y, rises = b[SWING_MEAN], b[SWING_TO] >= b[SWING_FROM]
    if y >= b[SWING_TO] if rises else y <= b[SWING_TO]:
        b[SWING_TO] = y
    elif abs(y - b[SWING_TO]) > max(0.5 * least_swing(b), WIGGLE * b[SWING]):
        count_swing(abs(b[SWING_TO] - b[SWING_FROM]), b)
        b[SWING_FROM], b[SWING_TO] = b[SWING_TO], y
    if b[SWING_TIME] > SLOWEST:
        b[SWING_COUNT], b[SWING] = 0.0, 0.0
    if b[SWING_COUNT] >= SWINGS:
        b[SATURATION] = int(b[SATURATION]) | OSCILLATION


def count_swing(size: float, b: Floats) -> None:
    """The opening has turned, after a way of ``size``."""
    if b[SWING_TRAVEL] > EXPLAINED * size:
        b[SWING_COUNT], b[SWING], b[SWING_TIME] = 0.0, 0.0, 0.0
    elif b[SWING_TIME] > QUICKEST and size > max(least_swing(b), KEEPS * b[SWING]):
        b[SWING_COUNT], b[SWING], b[SWING_TIME] = b[SWING_COUNT] + 1.0, max(size, b[SWING]), 0.0
    b[SWING_TRAVEL] = 0.0


def least_swing(b: Floats) -> float:
    """The smallest swing that counts around the present opening."""
    return float(LEAST + LEAST_SHARE * abs(0.5 * (b[SWING_FROM] + b[SWING_TO])))


def forget_swing(b: Floats, v: Floats) -> None:
    """Begin anew at the present demand."""
    b[SWING_MEAN] = opening_past_overlap(b[DEMAND], v[OVERLAP]) if isfinite(b[DEMAND]) else 0.0
    b[SWING_FROM] = b[SWING_TO] = b[SWING_MEAN]
    b[SWING] = b[SWING_COUNT] = b[SWING_TIME] = b[SWING_TRAVEL] = 0.0
