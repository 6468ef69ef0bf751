r"""The upper levels of the ladder: the command from the virtual flow predicted over the next ticks.

``q`` and ``p`` are the virtual flow into the port and its pressure, means over the coming tick, the next, …, as
:mod:`hilserver.tick.look_ahead` predicts them; ``b`` is the valve's block of the row, ``v`` its line of the plan.

The present command is held for one tick and moves the spool after the valve's delay. In the middle of that interval the
spool has to be at W, the opening that passes the mean flow over the interval. For a second-order spool this is achieved
exactly by

.. math:: U = W + \frac{2d}{\omega}\dot W + \frac{\ddot W}{\omega^2}

The derivatives are those of a cubic through four predicted openings, so that no noisy signal is differentiated. The
prediction changes with every sample, most of all for the next few ticks, and the lead amplifies this many times. The
lead of a tick is therefore the one that was predicted for it a tick ago: the newest samples change the opening at once,
and the lead from the next tick on. At loop rates above `LEAD_RATE`, and with held pressures, it passes a low-pass
filter, and is taken from a later part of the prediction by as much as the filter delays it.

The flow predicted for a tick is a mean over the tick, and the command is held for a tick. Each reduces the amplitude of
a sine by :math:`(\omega\,dt)^2/24`, which the second derivative makes good.
"""

from __future__ import annotations

from math import isfinite, nan

from hilserver.numerics.arrays import Floats
from hilserver.numerics.compilable import compilable
from hilserver.numerics.shape import clip
from hilserver.tick.bridge.control_laws import authority
from hilserver.tick.bridge.effects import Compensates, includes
from hilserver.tick.bridge.end_stop import gain_at_end_stop
from hilserver.tick.plan import ValveRecord
from hilserver.tick.row import ValveState
from hilserver.tick.stages import POINTS, first_of
from hilserver.tick.valve import UNAVAILABLE, delay_of, opening_for, overlap_of

LEAD_RATE = 1e3
"""1/s: loop rate above which the lead is filtered."""
MEAN_AND_HOLD = 2.0 / 24.0
"""Share of the second difference by which a mean over a tick and a command held for a tick reduce a signal."""
QUICK_RETURN = 3e-3
"""s: time in which the command is restored after an interval without a pressure drop; see `authority`."""


@compilable
def compensated(
    effects: int,
    q: Floats,
    p: Floats,
    p_T: float,
    b: ValveState,
    v: ValveRecord,
    work: Floats,
    elapsed: float,
    dt: float,
) -> float:
    """The command of a strategy with look-ahead that compensates for the ``effects``."""
    delay = delay_of(b, v) / dt if includes(effects, Compensates.DELAY) else 0.0
    first = first_of(delay, q.shape[0])
    more = b.volume_error / v.feedback_time if includes(effects, Compensates.VOLUME_ERROR) else 0.0
    overlap = overlap_of(b, v) if includes(effects, Compensates.OVERLAP) else 0.0
    follows_supply = includes(effects, Compensates.SUPPLY_DROOP)
    openings, gain = work[:POINTS], gain_at_end_stop(b)
    for i in range(POINTS):
        p_S = b.supply + (b.supply_trend * (first + i + 0.5) * dt if follows_supply else 0.0)
        openings[i] = opening_for(gain * (q[first + i] + more), p[first + i], p_S, p_T, overlap, b, v)
    wanted = q[first + 1] + more
    b.drop = b.supply - p[first + 1] if wanted >= 0.0 else p[first + 1] - p_T
    share = authority(b, v, elapsed, QUICK_RETURN)
    s = min(delay - first, POINTS - 3.0)  # no extrapolation where the look-ahead is as long as it can be
    b.opening = clip(cubic(openings, s), -1.0, 1.0)
    if elapsed > 1.5 * dt:
        b.lead = nan  # it was predicted for a tick that was missed
    U = b.opening + lead_now(effects, openings, s, b, v, dt)
    if b.saturation & UNAVAILABLE:  # no lead: the demand is not achievable in any case
        U, b.lead = openings[1], 0.0
    U += b.end_stop_share * (openings[1] - U)
    return clip(share * U - b.null, v.u_min, v.u_max)


@compilable
def lead_now(effects: int, openings: Floats, s: float, b: ValveState, v: ValveRecord, dt: float) -> float:
    """The lead of this tick, ``s`` ticks from the first opening, as it was predicted a tick ago; notes the next one.

    With held pressures, what was predicted a tick ago is no better: there the present prediction counts, filtered.
    """
    lead = b.lead if isfinite(b.lead) else lead_of(openings, s, v, dt)
    if not includes(effects, Compensates.DELAY):
        b.lead = low_pass(lead, lead_of(openings[1:], s, v, dt), 1.0)
        return b.lead
    lag = filter_lag(dt)
    b.lead = low_pass(lead, lead_of(openings[1:], s + lag, v, dt), lag)
    return lead


@compilable
def low_pass(last: float, new: float, lag: float) -> float:
    """First-order filter that delays by ``lag`` ticks."""
    return last + (new - last) / (1.0 + lag)


@compilable
def lead_of(openings: Floats, s: float, v: ValveRecord, dt: float) -> float:
    """Lead at ``s`` ticks from the first of four openings: what the spool's lag takes away there."""
    if v.omega > 0.0:
        slow = 2.0 * v.damping / v.omega * cubic_slope(openings, s) / dt
        return float(slow + cubic_bend(openings, s) * (1.0 / (v.omega * dt) ** 2 - MEAN_AND_HOLD))
    return float(v.tau * cubic_slope(openings, s) / dt - cubic_bend(openings, s) * MEAN_AND_HOLD)


@compilable
def filter_lag(dt: float) -> float:
    """Ticks by which the filter of the lead delays it: none up to `LEAD_RATE`, one at four times it and above."""
    return float(clip((1.0 / (LEAD_RATE * dt) - 1.0) / 3.0, 0.0, 1.0))


@compilable
def cubic(w: Floats, s: float) -> float:
    """Value at ``s`` of the cubic through w[0] … w[3] at 0 … 3 (Lagrange)."""
    a, c, d = _differences(w)
    return float(w[0] + s * (a + (s - 1.0) * (c + (s - 2.0) * d)))


@compilable
def cubic_slope(w: Floats, s: float) -> float:
    """Its derivative."""
    a, c, d = _differences(w)
    return float(a + c * (2.0 * s - 1.0) + d * (3.0 * s * s - 6.0 * s + 2.0))


@compilable
def cubic_bend(w: Floats, s: float) -> float:
    """Second derivative of this cubic."""
    _, c, d = _differences(w)
    return float(2.0 * c + d * (6.0 * s - 6.0))


@compilable
def _differences(w: Floats) -> tuple[float, float, float]:
    """Newton's divided differences."""
    a = w[1] - w[0]
    c = 0.5 * (w[2] - 2.0 * w[1] + w[0])
    return a, c, (w[3] - 3.0 * w[2] + 3.0 * w[1] - w[0]) / 6.0
