r"""Whether a loop oscillates, as seen in a signal that should not: by counting its half-waves.

A loop with too much delay oscillates at its own frequency and does not stop. So *half-waves* of the signal, from one
turning point to the next, are counted if they

- are large enough, slower than noise and faster than an operator (`SHORTEST`, `LONGEST`),
- are not caused by what moves otherwise, which has not travelled by a large fraction of it in the meantime
  (`EXPLAINED`),
- do not decay: they are not much smaller than those before (`PERSISTENCE`, `DECAY_TIME`); a damped rig rings after a
  step.

After `HALF_WAVES` of them the loop counts as oscillating, until something moves otherwise or none occurs for `LONGEST`.

``b`` is a block of the row with the fields of `Oscillating`. Compiled into the tick.
"""

from __future__ import annotations

from math import exp
from typing import Protocol

from hilserver.numerics.compilable import compilable

SMOOTHED = 1e-3
"""s: low-pass filter of the signal, against the noise of single ticks."""
SHORTEST, LONGEST = 2.5e-3, 0.25
"""s between turning points: 200 Hz to 2 Hz."""
EXPLAINED = 0.25
"""Fraction of an oscillation by which something else must have moved to count as its cause."""
PERSISTENCE, DECAY_TIME = 0.7, 0.5
"""Fraction of the largest oscillation that the next ones must reach, and time constant in s with which it decays."""
TURNING_SHARE = 0.25
"""Fraction of the largest oscillation by which the signal must return for a turning point."""
HALF_WAVES = 10
"""Number of half-waves that count as an oscillation: five periods."""


class Oscillating(Protocol):
    """What is remembered of a signal: see :class:`hilserver.tick.row.ValveState`."""

    oscillation: float
    oscillation_mean: float
    oscillation_from: float
    oscillation_to: float
    oscillation_time: float
    oscillation_travel: float
    oscillation_count: int


@compilable
def count_half_waves(b: Oscillating, signal: float, least: float, travel: float, elapsed: float) -> bool:
    """Whether it oscillates. ``least``: smallest half-wave that counts; ``travel``: of something else, in its unit."""
    b.oscillation_mean += (signal - b.oscillation_mean) * elapsed / (SMOOTHED + elapsed)
    b.oscillation *= exp(-elapsed / DECAY_TIME)
    b.oscillation_time += elapsed
    b.oscillation_travel += travel
    y, rises = b.oscillation_mean, b.oscillation_to >= b.oscillation_from
    if y >= b.oscillation_to if rises else y <= b.oscillation_to:
        b.oscillation_to = y
    elif abs(y - b.oscillation_to) > max(0.5 * least, TURNING_SHARE * b.oscillation):
        count_half_wave(b, abs(b.oscillation_to - b.oscillation_from), least)
        b.oscillation_from, b.oscillation_to = b.oscillation_to, y
    if b.oscillation_time > LONGEST:
        b.oscillation_count, b.oscillation = 0, 0.0
    return b.oscillation_count >= HALF_WAVES


@compilable
def count_half_wave(b: Oscillating, size: float, least: float) -> None:
    """The signal has turned after a half-wave of ``size``."""
    if b.oscillation_travel > EXPLAINED * size:
        b.oscillation_count, b.oscillation, b.oscillation_time = 0, 0.0, 0.0
    elif b.oscillation_time > SHORTEST and size > max(least, PERSISTENCE * b.oscillation):
        b.oscillation_count += 1
        b.oscillation, b.oscillation_time = max(size, b.oscillation), 0.0
    b.oscillation_travel = 0.0


@compilable
def forget_half_waves(b: Oscillating, signal: float) -> None:
    """Restart at this value."""
    b.oscillation_mean = b.oscillation_from = b.oscillation_to = signal
    b.oscillation = b.oscillation_time = b.oscillation_travel = 0.0
    b.oscillation_count = 0
