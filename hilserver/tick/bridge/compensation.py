r"""The upper levels of the ladder: the command from the virtual flow predicted over the next ticks.

``q`` and ``p`` are the virtual flow into the port and its pressure, means over the coming tick, the next, …, as
:mod:`hilserver.tick.look_ahead` predicts them; ``b`` is the valve's block of the row, ``v`` its line of the plan.

The present command is held for one tick and moves the spool after the valve's delay. In the middle of that interval the
spool has to be at W, the opening that passes the mean flow over the interval. For a second-order spool this is achieved
exactly by

.. math:: U = W + \frac{2d}{\omega}\dot W + \frac{\ddot W}{\omega^2}

The derivatives are those of a cubic through four predicted openings, so that no noisy signal is differentiated.
"""

from __future__ import annotations

from numba.extending import register_jitable

from hilserver.numerics.arrays import Floats
from hilserver.numerics.shape import clip
from hilserver.tick.bridge.ladder import Compensates, compensates
from hilserver.tick.bridge.strategies import authority
from hilserver.tick.codes import Saturation
from hilserver.tick.plan import ValveRecord
from hilserver.tick.row import ValveState
from hilserver.tick.valve import UNAVAILABLE, delay_of, opening_for

POINTS = 4
"""Ticks whose flows determine a command."""
QUICK_RETURN = 3e-3
"""s: time in which the command is restored after an interval without a pressure drop; see `authority`."""
EXCITED = 0.1
"""Fraction of the nominal flow below which the gain of an edge is not adapted."""
LEARNING_TIME = 1.0
"""s: time in which an adaptive bridge corrects 63 % of an error of the flow gain."""
GAIN_RANGE = 0.2
"""Limits of the tracked flow gain relative to the datasheet's."""
EXCITED_RATE = 2.0
"""1/s: rate of change of flow, relative to nominal flow, below which the delay is not adapted."""
DELAY_RANGE = 2e-3
"""s: largest deviation of the tracked delay from the configured one."""
RATE_TIME = 0.01
"""s: filter of the flow's rate of change, about equal to the lag of the estimated flow."""


@register_jitable
def compensated(
    number: int,
    q: Floats,
    p: Floats,
    p_T: float,
    b: ValveState,
    v: ValveRecord,
    work: Floats,
    elapsed: float,
    dt: float,
) -> float:
    """The command of a strategy with look-ahead."""
    delay = delay_of(b, v) / dt if compensates(number, Compensates.DELAY) else 0.0
    first = first_of(delay, q.shape[0])
    more = b.volume_error / v.feedback_time if compensates(number, Compensates.VOLUME_ERROR) else 0.0
    overlap = v.overlap if compensates(number, Compensates.OVERLAP) else 0.0
    follows_supply = compensates(number, Compensates.SUPPLY_DROOP)
    openings = work[:POINTS]
    for i in range(POINTS):
        p_S = b.supply + (b.supply_trend * (first + i + 0.5) * dt if follows_supply else 0.0)
        openings[i] = opening_for(q[first + i] + more, p[first + i], p_S, p_T, overlap, b, v)
    wanted = q[first + 1] + more
    b.drop = b.supply - p[first + 1] if wanted >= 0.0 else p[first + 1] - p_T
    share = authority(b, v, elapsed, QUICK_RETURN)
    s = delay - first
    b.opening = clip(cubic(openings, s), -1.0, 1.0)
    U = b.opening
    if int(b.saturation) & UNAVAILABLE:  # no lead: the demand is not achievable in any case
        U = openings[1]
    elif v.omega > 0.0:
        U += 2.0 * v.damping / v.omega * cubic_slope(openings, s) / dt
        U += cubic_bend(openings, s) / (v.omega * dt) ** 2
    else:
        U += v.tau * cubic_slope(openings, s) / dt
    U += b.end_stop_share * (openings[1] - U)
    return clip(share * U, v.u_min, v.u_max)


@register_jitable
def first_of(delay: float, length: int) -> int:
    """The first of the ticks (of ``length``) that determine a command which takes effect after ``delay`` ticks."""
    return min(max(int(delay) - 1, 0), length - POINTS)


@register_jitable
def learn(b: ValveState, v: ValveRecord, elapsed: float) -> None:
    """Track the open edge's flow gain and the delay, for adaptive bridges: gradient steps on the flow error.

    An error of the gain causes a flow error proportional to the flow, an error of the delay one proportional to its
    rate of change. Tracking pauses where both are small and where the valve is fully open; its results are always
    bounded.
    """
    q, off = b.flow_expected, b.flow_estimated - b.flow_expected
    rate = (q - b.expected_before) / elapsed
    b.expected_before = q
    b.expected_rate += (rate - b.expected_rate) * elapsed / (RATE_TIME + elapsed)
    if int(b.saturation) & Saturation.CAPACITY.value:
        return
    step = min(elapsed / LEARNING_TIME, 0.1)
    if abs(q) > EXCITED * v.Q_nominal:
        gain = b.gain_PA if q > 0.0 else b.gain_AT
        gain *= 1.0 + step * off * q / (q * q + v.Q_nominal**2 * 0.1)
        gain = clip(gain, 1.0 - GAIN_RANGE, 1.0 + GAIN_RANGE)
        if q > 0.0:
            b.gain_PA = gain
        else:
            b.gain_AT = gain
    rate, least = b.expected_rate, EXCITED_RATE * v.Q_nominal
    if abs(rate) > least:
        late = b.delay - step * off * rate / (rate * rate + least * least)
        b.delay = clip(late, -min(v.delay, DELAY_RANGE), DELAY_RANGE)


@register_jitable
def cubic(w: Floats, s: float) -> float:
    """Value at ``s`` of the cubic through w[0] … w[3] at 0 … 3 (Lagrange)."""
    a, c, d = _differences(w)
    return float(w[0] + s * (a + (s - 1.0) * (c + (s - 2.0) * d)))


@register_jitable
def cubic_slope(w: Floats, s: float) -> float:
    """Its derivative."""
    a, c, d = _differences(w)
    return float(a + c * (2.0 * s - 1.0) + d * (3.0 * s * s - 6.0 * s + 2.0))


@register_jitable
def cubic_bend(w: Floats, s: float) -> float:
    """Second derivative of this cubic."""
    _, c, d = _differences(w)
    return float(2.0 * c + d * (6.0 * s - 6.0))


@register_jitable
def _differences(w: Floats) -> tuple[float, float, float]:
    """Newton's divided differences."""
    a = w[1] - w[0]
    c = 0.5 * (w[2] - 2.0 * w[1] + w[0])
    return a, c, (w[3] - 3.0 * w[2] + 3.0 * w[1] - w[0]) / 6.0
