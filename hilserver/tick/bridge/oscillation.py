r"""Whether the loop of circuit, valve and machine oscillates, as seen in the opening that the bridge demands.

A loop with too much delay oscillates at its own frequency and does not stop. So *half-waves* of the demanded opening,
from one turning point to the next, are counted if they

- are large enough (`MIN_AMPLITUDE`), slower than noise and faster than an operator (`SHORTEST`, `LONGEST`),
- are not caused by the operator, whose inputs have not moved by a large fraction of it in the meantime (`EXPLAINED`),
- do not decay: they are not much smaller than those before (`PERSISTENCE`, `DECAY_TIME`); a damped rig rings after a
  step.

After `HALF_WAVES` of them the loop counts as oscillating, until an operator input moves or none occurs for `LONGEST`.

``b`` is the valve's block of the row, ``v`` its line of the plan. Compiled into the tick.
"""

from __future__ import annotations

from math import exp, isfinite

from hilserver.numerics.compilable import compilable
from hilserver.numerics.valve import opening_past_overlap
from hilserver.tick.codes import Saturation
from hilserver.tick.flow_signal import linear_opening
from hilserver.tick.plan import ValveRecord
from hilserver.tick.row import ValveState
from hilserver.tick.valve import note, overlap_of

SMOOTHED = 1e-3
"""s: low-pass filter of the opening, against the noise of single ticks."""
MIN_AMPLITUDE, MIN_SHARE = 0.01, 0.05
"""Smallest oscillation that counts, peak to peak: fraction of full opening, plus a fraction of the opening."""
SHORTEST, LONGEST = 2.5e-3, 0.25
"""s between turning points: 200 Hz to 2 Hz."""
EXPLAINED = 0.25
"""Fraction of an oscillation by which the inputs must move (of half their ranges) to count as its cause."""
PERSISTENCE, DECAY_TIME = 0.7, 0.5
"""Fraction of the largest oscillation that the next ones must reach, and time constant in s with which it decays."""
TURNING_SHARE = 0.25
"""Fraction of the largest oscillation by which the opening must return for a turning point."""
HALF_WAVES = 10
"""Number of half-waves that count as an oscillation: five periods."""


@compilable
def watch_oscillation(b: ValveState, v: ValveRecord, travel: float, elapsed: float) -> None:
    """Evaluate the demand of this tick; ``travel``: change of the inputs, as a fraction of half their ranges."""
    if not isfinite(b.oscillation_mean):
        forget_oscillation(b, v)
    opening = opening_demanded(b, v)
    b.oscillation_mean += (opening - b.oscillation_mean) * elapsed / (SMOOTHED + elapsed)
    b.oscillation *= exp(-elapsed / DECAY_TIME)
    b.oscillation_time += elapsed
    b.oscillation_travel += travel
    y, rises = b.oscillation_mean, b.oscillation_to >= b.oscillation_from
    if y >= b.oscillation_to if rises else y <= b.oscillation_to:
        b.oscillation_to = y
    elif abs(y - b.oscillation_to) > max(0.5 * least_half_wave(b), TURNING_SHARE * b.oscillation):
        count_half_wave(abs(b.oscillation_to - b.oscillation_from), b)
        b.oscillation_from, b.oscillation_to = b.oscillation_to, y
    if b.oscillation_time > LONGEST:
        b.oscillation_count, b.oscillation = 0, 0.0
    if b.oscillation_count >= HALF_WAVES:
        note(b, Saturation.OSCILLATION)


@compilable
def opening_demanded(b: ValveState, v: ValveRecord) -> float:
    """The opening past the overlap at which the spool would be with this demand."""
    return opening_past_overlap(linear_opening(b.demand + b.null, v), overlap_of(b, v))


@compilable
def count_half_wave(size: float, b: ValveState) -> None:
    """The opening has turned after a half-wave of ``size``."""
    if b.oscillation_travel > EXPLAINED * size:
        b.oscillation_count, b.oscillation, b.oscillation_time = 0, 0.0, 0.0
    elif b.oscillation_time > SHORTEST and size > max(least_half_wave(b), PERSISTENCE * b.oscillation):
        b.oscillation_count += 1
        b.oscillation, b.oscillation_time = max(size, b.oscillation), 0.0
    b.oscillation_travel = 0.0


@compilable
def least_half_wave(b: ValveState) -> float:
    """The smallest oscillation that counts at the present opening."""
    return float(MIN_AMPLITUDE + MIN_SHARE * abs(0.5 * (b.oscillation_from + b.oscillation_to)))


@compilable
def forget_oscillation(b: ValveState, v: ValveRecord) -> None:
    """Restart at the present demand."""
    b.oscillation_mean = opening_demanded(b, v) if isfinite(b.demand) else 0.0
    b.oscillation_from = b.oscillation_to = b.oscillation_mean
    b.oscillation = b.oscillation_time = b.oscillation_travel = 0.0
    b.oscillation_count = 0
