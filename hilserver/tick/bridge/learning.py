r"""Adaptive bridges: the flow gain of each edge and the delay of the valve, from the volume that it has passed.

A real flow that is later than expected by τ, and larger by a share g, leaves a volume unexplained,

.. math:: D = \int Q_{expected}\,dt - V_{real} = \tau\,Q_{expected} - g\int Q_{expected}\,dt

The volume follows from measured position and pressures (or flow). All terms pass the same high-pass filter, so that a
leak or an old error does not count. Delay and gains minimise the squares of the unexplained volume, older ticks
counting less; see e.g. Ljung, System identification (1999) ch. 11.2. Where the valve is at rest, nothing is learned.
Compiled into the tick.
"""

from __future__ import annotations

from hilserver.numerics.compilable import compilable
from hilserver.numerics.shape import clip
from hilserver.tick.plan import ValveRecord
from hilserver.tick.row import ValveState
from hilserver.tick.valve import UNAVAILABLE

MEMORY = 0.2
"""s: time constant of the high-pass filter."""
FORGET_TIME = 10.0
"""s: time in which an observation loses 63 % of its weight."""
LEARNING_TIME = 0.3
"""s: time in which 63 % of an error that has been found is corrected."""
DELAY_DEVIATION = 1e-3
"""s: standard deviation of the delay before the first observation."""
GAIN_DEVIATION = 0.05
"""Standard deviation of a gain, likewise."""
NOISE = 5e-10
"""s^3: square of a volume error by the sensors, 0.1 ms of nominal flow, times its duration of 50 ms."""
EXCITED = 0.05
"""Fraction of the nominal flow: the volume left unexplained by smaller flows and changes is leakage and noise."""
GAIN_RANGE = 0.2
"""Limits of the tracked flow gain relative to the datasheet's."""
DELAY_RANGE = 4e-3
"""s: largest deviation of the tracked delay from the configured one."""


@compilable
def note_volume(expected_before: float, volume_before: float, b: ValveState, elapsed: float) -> None:
    """Add what was expected of the valve in the last tick, and what it has passed, to the filtered terms."""
    share, expected = MEMORY / (MEMORY + elapsed), 0.5 * elapsed * (b.flow_expected + expected_before)
    b.unexplained = share * (b.unexplained + expected - (b.volume - volume_before))
    b.flow_change = share * (b.flow_change + b.flow_expected - expected_before)
    b.passed_PA = share * (b.passed_PA + max(expected, 0.0))
    b.passed_AT = share * (b.passed_AT + min(expected, 0.0))


@compilable
def learn(b: ValveState, v: ValveRecord, elapsed: float) -> None:
    """Correct gains and delay, within their ranges."""
    if b.saturation & UNAVAILABLE or not is_excited(b, v):
        return
    keep = FORGET_TIME / (FORGET_TIME + elapsed)
    late, to_port = DELAY_DEVIATION / v.Q_nominal * b.flow_change, -GAIN_DEVIATION / v.Q_nominal * b.passed_PA
    to_tank, off = -GAIN_DEVIATION / v.Q_nominal * b.passed_AT, b.unexplained / v.Q_nominal
    b.seen_11 = keep * (b.seen_11 + elapsed * late * late)
    b.seen_12 = keep * (b.seen_12 + elapsed * late * to_port)
    b.seen_13 = keep * (b.seen_13 + elapsed * late * to_tank)
    b.seen_22 = keep * (b.seen_22 + elapsed * to_port * to_port)
    b.seen_23 = keep * (b.seen_23 + elapsed * to_port * to_tank)
    b.seen_33 = keep * (b.seen_33 + elapsed * to_tank * to_tank)
    b.seen_1 = keep * (b.seen_1 + elapsed * late * off)
    b.seen_2 = keep * (b.seen_2 + elapsed * to_port * off)
    b.seen_3 = keep * (b.seen_3 + elapsed * to_tank * off)
    correct(b, v, min(elapsed / LEARNING_TIME, 0.1))


@compilable
def is_excited(b: ValveState, v: ValveRecord) -> bool:
    """Whether the valve has passed enough, or its flow has changed enough, to learn from."""
    least = EXCITED * v.Q_nominal
    return abs(b.flow_change) > least or b.passed_PA - b.passed_AT > MEMORY * least


@compilable
def correct(b: ValveState, v: ValveRecord, share: float) -> None:
    """Move part of the way to the least-squares solution; the observations then leave less unexplained."""
    late, to_port, to_tank = least_squares(b)
    delay_before, PA_before, AT_before = b.delay, b.gain_PA, b.gain_AT
    b.delay = clip(b.delay + share * DELAY_DEVIATION * late, -min(v.delay, DELAY_RANGE), DELAY_RANGE)
    b.gain_PA = clip(b.gain_PA + share * GAIN_DEVIATION * to_port, 1.0 - GAIN_RANGE, 1.0 + GAIN_RANGE)
    b.gain_AT = clip(b.gain_AT + share * GAIN_DEVIATION * to_tank, 1.0 - GAIN_RANGE, 1.0 + GAIN_RANGE)
    late, to_port, to_tank = b.delay - delay_before, b.gain_PA - PA_before, b.gain_AT - AT_before
    b.unexplained -= b.flow_change * late - b.passed_PA * to_port - b.passed_AT * to_tank
    late, to_port, to_tank = late / DELAY_DEVIATION, to_port / GAIN_DEVIATION, to_tank / GAIN_DEVIATION
    b.seen_1 -= b.seen_11 * late + b.seen_12 * to_port + b.seen_13 * to_tank
    b.seen_2 -= b.seen_12 * late + b.seen_22 * to_port + b.seen_23 * to_tank
    b.seen_3 -= b.seen_13 * late + b.seen_23 * to_port + b.seen_33 * to_tank


@compilable
def least_squares(b: ValveState) -> tuple[float, float, float]:
    """Errors of delay and gains (of P->A, A->T) that explain the observations best, by Cholesky's L·D·L'."""
    d1 = b.seen_11 + NOISE
    l2, l3 = b.seen_12 / d1, b.seen_13 / d1
    d2 = b.seen_22 + NOISE - l2 * b.seen_12
    m3 = (b.seen_23 - l3 * b.seen_12) / d2
    d3 = b.seen_33 + NOISE - l3 * b.seen_13 - m3 * m3 * d2
    y1 = b.seen_1
    y2 = b.seen_2 - l2 * y1
    y3 = b.seen_3 - l3 * y1 - m3 * y2
    x3 = y3 / d3
    x2 = y2 / d2 - m3 * x3
    return y1 / d1 - l2 * x2 - l3 * x3, x2, x3
