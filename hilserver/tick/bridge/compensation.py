r"""The upper rungs of the ladder: the command from the virtual flow of the next moments.

``q`` and ``p`` are the virtual flow into the port and its pressure at this tick, the next, …, as
:mod:`hilserver.tick.look_ahead` foresees them; ``b`` is the valve's block of the row, ``v`` its line of the plan.

The command that is given now is held for a tick and moves the spool after the valve's delay. In the middle of that
time the spool has to be at W, the opening that passes the flow then. A spool of second order follows

.. math:: U = W + \frac{2d}{\omega}\dot W + \frac{\ddot W}{\omega^2}

exactly; the derivatives are those of a cubic through four foreseen openings, so nothing noisy is differentiated.
"""

from __future__ import annotations

from math import floor, isfinite

from hilserver.numerics.arrays import Floats
from hilserver.numerics.shape import clip
from hilserver.tick.bridge.columns import (
    CAPACITY,
    DAMPING,
    DELAY,
    DELAY_NOW,
    DROP,
    EXPECTED_BEFORE,
    EXPECTED_RATE,
    FEEDBACK,
    FLOW_BEFORE,
    FLOW_ESTIMATED,
    FLOW_EXPECTED,
    FLOW_VIRTUAL,
    GAIN_AT,
    GAIN_PA,
    NO_DROP,
    NULL_REGION,
    OMEGA,
    OPENING,
    OVERLAP,
    PINNED,
    PREDICTION,
    Q_NOMINAL,
    SATURATION,
    SUPPLY,
    SUPPLY_DROOP,
    SUPPLY_TREND,
    T_FEEDBACK,
    TAU,
    U_MAX,
    U_MIN,
    VOLUME,
    VOLUME_BEFORE,
    VOLUME_ERROR,
    WITHHELD,
)
from hilserver.tick.bridge.strategies import authority
from hilserver.tick.valve import delay_of, opening_for

POINTS = 4
QUICK_RETURN = 3e-3
"""Seconds in which the command comes back after a moment without a pressure drop; see `authority`."""
LARGEST_ERROR = 0.03
"""s of nominal flow: the volume error that the feedback makes good at most."""
SOFT_TIME = 0.01
"""s: a port whose pressure the virtual circuit holds within that time gets half of the feedback."""
EXCITED = 0.1
"""Share of the nominal flow below which nothing is learnt of an edge."""
LEARNING_TIME = 1.0
"""s in which an adaptive bridge makes good 63 % of a wrong flow gain."""
GAIN_RANGE = 0.2
"""How far the tracked flow gain may leave the datasheet's."""
EXCITED_RATE = 2.0
"""1/s: change of flow by nominal flow below which nothing is learnt of the delay."""
DELAY_RANGE = 2e-3
"""s: how far the tracked delay may leave the configured one."""
RATE_TIME = 0.01
"""s: filter of the flow's rate of change; about what the estimate of the flow lags by."""


def compensated(
    number: int,
    q: Floats,
    p: Floats,
    p_T: float,
    stiffness: float,
    b: Floats,
    v: Floats,
    work: Floats,
    elapsed: float,
    dt: float,
) -> float:
    """The command of a rung from SECOND_ORDER to ADAPTIVE.

    ``stiffness``: rate at which the virtual circuit holds the port's pressure, 1/s: slope of its flow by the chamber's
    capacitance.
    """
    middle = (delay_of(b, v) / dt if number >= PREDICTION else 0.0) + 0.5
    first = min(max(floor(middle) - 1, 0), q.shape[0] - POINTS)
    more = correction(stiffness, b, v) if number >= FEEDBACK else 0.0
    overlap = v[OVERLAP] if number >= NULL_REGION else 0.0
    openings = work[:POINTS]
    for i in range(POINTS):
        p_S = b[SUPPLY] + (b[SUPPLY_TREND] * (first + i) * dt if number >= SUPPLY_DROOP else 0.0)
        openings[i] = opening_for(q[first + i] + more, p[first + i], p_S, p_T, overlap, b, v)
    wanted = q[first + 1] + more
    b[DROP] = b[SUPPLY] - p[first + 1] if wanted >= 0.0 else p[first + 1] - p_T
    share = authority(b, v, elapsed, QUICK_RETURN)
    s = middle - first
    b[OPENING] = clip(cubic(openings, s), -1.0, 1.0)
    U = b[OPENING]
    if int(b[SATURATION]) & (CAPACITY | NO_DROP):  # nothing to lead: what is asked for can't be had anyhow
        U = openings[1]
    elif v[OMEGA] > 0.0:
        U += 2.0 * v[DAMPING] / v[OMEGA] * cubic_slope(openings, s) / dt
        U += cubic_bend(openings, s) / (v[OMEGA] * dt) ** 2
    else:
        U += v[TAU] * cubic_slope(openings, s) / dt
    U += b[PINNED] * (openings[1] - U)
    return clip(share * U, v[U_MIN], v[U_MAX])


def correction(stiffness: float, b: Floats, v: Floats) -> float:
    """Flow that makes good what did not flow: the volume error over the feedback's time.

    Less of it where the virtual circuit holds the pressure stiffly: a flow that is off moves the pressure there until
    the virtual flow is the real one, and an integral around that loop, late as it is, would only make it swing.
    """
    return float(b[VOLUME_ERROR] / (v[T_FEEDBACK] * (1.0 + SOFT_TIME * stiffness)))


def add_volume_error(b: Floats, v: Floats, elapsed: float) -> None:
    """Add up what the virtual valve passed until now and the real one did not, m³.

    Nothing winds up: it is bounded, and forgotten where the command could not make it good.
    """
    passed = b[VOLUME] - b[VOLUME_BEFORE]
    b[VOLUME_BEFORE] = b[VOLUME]
    wanted = 0.5 * (b[FLOW_BEFORE] + b[FLOW_VIRTUAL]) * elapsed
    bound = LARGEST_ERROR * v[Q_NOMINAL]
    if isfinite(passed):
        b[VOLUME_ERROR] = clip(b[VOLUME_ERROR] + wanted - passed, -bound, bound)
    b[VOLUME_ERROR] *= 1.0 - max(b[PINNED], b[WITHHELD])


def learn(b: Floats, v: Floats, elapsed: float) -> None:
    """Track the open edge's flow gain and the delay, for adaptive bridges: gradient steps on what flows otherwise.

    A wrong gain shows as a flow that is off in proportion to the flow, a wrong delay as one in proportion to its rate
    of change. Frozen where there is little of either, and where the valve is full open; bounded in any case.
    """
    q, off = b[FLOW_EXPECTED], b[FLOW_ESTIMATED] - b[FLOW_EXPECTED]
    rate = (q - b[EXPECTED_BEFORE]) / elapsed
    b[EXPECTED_BEFORE] = q
    b[EXPECTED_RATE] += (rate - b[EXPECTED_RATE]) * elapsed / (RATE_TIME + elapsed)
    if int(b[SATURATION]) & CAPACITY:
        return
    step = min(elapsed / LEARNING_TIME, 0.1)
    if abs(q) > EXCITED * v[Q_NOMINAL]:
        column = GAIN_PA if q > 0.0 else GAIN_AT
        more = b[column] * (1.0 + step * off * q / (q * q + v[Q_NOMINAL] ** 2 * 0.1))
        b[column] = clip(more, 1.0 - GAIN_RANGE, 1.0 + GAIN_RANGE)
    rate, least = b[EXPECTED_RATE], EXCITED_RATE * v[Q_NOMINAL]
    if abs(rate) > least:
        late = b[DELAY_NOW] - step * off * rate / (rate * rate + least * least)
        b[DELAY_NOW] = clip(late, -min(v[DELAY], DELAY_RANGE), DELAY_RANGE)


def cubic(w: Floats, s: float) -> float:
    """Value at ``s`` of the cubic through w[0] … w[3] at 0 … 3 (Lagrange)."""
    a, c, d = _differences(w)
    return float(w[0] + s * (a + (s - 1.0) * (c + (s - 2.0) * d)))


def cubic_slope(w: Floats, s: float) -> float:
    """Its derivative."""
    a, c, d = _differences(w)
    return float(a + c * (2.0 * s - 1.0) + d * (3.0 * s * s - 6.0 * s + 2.0))


def cubic_bend(w: Floats, s: float) -> float:
    """Its second derivative."""
    _, c, d = _differences(w)
    return float(2.0 * c + d * (6.0 * s - 6.0))


def _differences(w: Floats) -> tuple[float, float, float]:
    """Newton's divided differences."""
    a = w[1] - w[0]
    c = 0.5 * (w[2] - 2.0 * w[1] + w[0])
    return a, c, (w[3] - 3.0 * w[2] + 3.0 * w[1] - w[0]) / 6.0
