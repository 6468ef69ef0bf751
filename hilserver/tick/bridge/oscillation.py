"""Whether the loop of circuit, valve and machine oscillates, as seen in the opening that the bridge demands.

What moves otherwise, and explains an oscillation, are the operator inputs: see :mod:`hilserver.tick.oscillation`.
``b`` is the valve's block of the row, ``v`` its line of the plan. Compiled into the tick.
"""

from __future__ import annotations

from math import isfinite

from hilserver.numerics.compilable import compilable
from hilserver.numerics.valve import opening_past_overlap
from hilserver.tick.codes import Saturation
from hilserver.tick.flow_signal import linear_opening
from hilserver.tick.oscillation import count_half_waves, forget_half_waves
from hilserver.tick.plan import ValveRecord
from hilserver.tick.row import ValveState
from hilserver.tick.valve import note, overlap_of

MIN_AMPLITUDE, MIN_SHARE = 0.01, 0.05
"""Smallest oscillation that counts, peak to peak: fraction of full opening, plus a fraction of the opening."""


@compilable
def watch_oscillation(b: ValveState, v: ValveRecord, travel: float, elapsed: float) -> None:
    """Evaluate the demand of this tick; ``travel``: change of the inputs, as a fraction of half their ranges."""
    if not isfinite(b.oscillation_mean):
        forget_oscillation(b, v)
    if count_half_waves(b, opening_demanded(b, v), least_half_wave(b), travel, elapsed):
        note(b, Saturation.OSCILLATION)


@compilable
def opening_demanded(b: ValveState, v: ValveRecord) -> float:
    """The opening past the overlap at which the spool would be with this demand."""
    return opening_past_overlap(linear_opening(b.demand + b.null, v), overlap_of(b, v))


@compilable
def least_half_wave(b: ValveState) -> float:
    """The smallest oscillation that counts at the present opening."""
    return float(MIN_AMPLITUDE + MIN_SHARE * abs(0.5 * (b.oscillation_from + b.oscillation_to)))


@compilable
def forget_oscillation(b: ValveState, v: ValveRecord) -> None:
    """Restart at the present demand."""
    forget_half_waves(b, opening_demanded(b, v) if isfinite(b.demand) else 0.0)
