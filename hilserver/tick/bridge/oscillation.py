r"""Whether the loop of circuit, valve and machine oscillates, seen on what the bridge demands of its valve.

A loop that is too late swings by itself, at a frequency of its own, and does not stop. So *swings* of the demanded
opening are counted, from one turning point to the next, that

- are large enough (`LEAST`), and neither as quick as noise nor as slow as an operator (`QUICKEST`, `SLOWEST`),
- come without the operator's doing: his inputs have not moved by a good part of it meanwhile (`EXPLAINED`),
- don't die out: they are not much smaller than those before (`KEEPS`, `FORGOTTEN`). A step makes a damped rig ring.

`HALF_WAVES` of them, and the loop oscillates: until the operator moves, or none of them comes for a time of `SLOWEST`.

``b`` is the valve's block of the row, ``v`` its line of the plan. Compiled into the tick.
"""

from __future__ import annotations

from math import exp, isfinite

from numba.extending import register_jitable

from hilserver.numerics.valve import opening_past_overlap
from hilserver.tick.codes import Saturation
from hilserver.tick.plan import ValveRecord
from hilserver.tick.row import ValveState
from hilserver.tick.valve import note

SMOOTHED = 1e-3
"""s, low-pass of the opening, against single noisy ticks."""
LEAST, LEAST_SHARE = 0.01, 0.05
"""Smallest oscillation that counts, peak to peak: of full opening, plus a share of the opening."""
QUICKEST, SLOWEST = 2.5e-3, 0.25
"""s from turn to turn: 200 Hz to 2 Hz."""
EXPLAINED = 0.25
"""Share of an oscillation by which the inputs must have moved (of half their ranges) for it to be the operator's."""
KEEPS, FORGOTTEN = 0.7, 0.5
"""Share of the largest oscillation that the next ones must have, and s in which that is forgotten."""
WIGGLE = 0.25
"""Share of the largest oscillation by which the opening must come back to have turned."""
HALF_WAVES = 10
"""Swings that make an oscillation: five periods."""


@register_jitable
def watch_oscillation(b: ValveState, v: ValveRecord, travel: float, elapsed: float) -> None:
    """Follow the demand of this tick; ``travel``: by how much the inputs have moved, of half their ranges."""
    if not isfinite(b.oscillation_mean):
        forget_oscillation(b, v)
    opening = opening_past_overlap(b.demand, v.overlap)
    b.oscillation_mean += (opening - b.oscillation_mean) * elapsed / (SMOOTHED + elapsed)
    b.oscillation *= exp(-elapsed / FORGOTTEN)
    b.oscillation_time += elapsed
    b.oscillation_travel += travel
    y, rises = b.oscillation_mean, b.oscillation_to >= b.oscillation_from
    if y >= b.oscillation_to if rises else y <= b.oscillation_to:
        b.oscillation_to = y
    elif abs(y - b.oscillation_to) > max(0.5 * least_half_wave(b), WIGGLE * b.oscillation):
        count_half_wave(abs(b.oscillation_to - b.oscillation_from), b)
        b.oscillation_from, b.oscillation_to = b.oscillation_to, y
    if b.oscillation_time > SLOWEST:
        b.oscillation_count, b.oscillation = 0.0, 0.0
    if b.oscillation_count >= HALF_WAVES:
        note(b, Saturation.OSCILLATION)


@register_jitable
def count_half_wave(size: float, b: ValveState) -> None:
    """The opening has turned, after a way of ``size``."""
    if b.oscillation_travel > EXPLAINED * size:
        b.oscillation_count, b.oscillation, b.oscillation_time = 0.0, 0.0, 0.0
    elif b.oscillation_time > QUICKEST and size > max(least_half_wave(b), KEEPS * b.oscillation):
        b.oscillation_count, b.oscillation, b.oscillation_time = (
            b.oscillation_count + 1.0,
            max(size, b.oscillation),
            0.0,
        )
    b.oscillation_travel = 0.0


@register_jitable
def least_half_wave(b: ValveState) -> float:
    """The smallest oscillation that counts around the present opening."""
    return float(LEAST + LEAST_SHARE * abs(0.5 * (b.oscillation_from + b.oscillation_to)))


@register_jitable
def forget_oscillation(b: ValveState, v: ValveRecord) -> None:
    """Begin anew at the present demand."""
    b.oscillation_mean = opening_past_overlap(b.demand, v.overlap) if isfinite(b.demand) else 0.0
    b.oscillation_from = b.oscillation_to = b.oscillation_mean
    b.oscillation = b.oscillation_count = b.oscillation_time = b.oscillation_travel = 0.0
