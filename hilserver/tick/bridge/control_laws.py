r"""Control laws of the bridge's strategies, compiled into the tick.

Each takes the virtual flow ``q`` (m^3/s into the machine's port), the measured pressures at the real valve, its block
of the row ``b`` and its line of the plan ``v``, and returns the demanded command (-1 … 1 of full opening).
"""

from __future__ import annotations

from math import exp, isfinite

from hilserver.numerics.compilable import compilable
from hilserver.numerics.flow import root_of_drop
from hilserver.numerics.shape import clip, step
from hilserver.numerics.valve import leakage_fade
from hilserver.tick.bridge.effects import Compensates, includes
from hilserver.tick.bridge.end_stop import gain_at_end_stop
from hilserver.tick.codes import Saturation
from hilserver.tick.flow_signal import linear_opening, spool_for
from hilserver.tick.plan import ValveRecord
from hilserver.tick.row import ValveState
from hilserver.tick.valve import UNAVAILABLE, note

MIN_DROP = 0.25
"""Fraction of the transition pressure below which the command is faded out."""
SLOW_RETURN = 0.2
"""s: time in which the command is restored, because the measured drop is noisy."""


@compilable
def inverse(
    effects: int, q: float, p: float, p_S: float, p_T: float, b: ValveState, v: ValveRecord, elapsed: float, dt: float
) -> float:
    """The inverse-orifice transform of this tick's flow, compensated for the ``effects``.

    p, p_S, p_T are the pressures at the port, supply and tank; ``elapsed``: time since the last call, s; ``dt``: time
    for which the command will be held, s.
    """
    leak = leakage(b.spool, p, p_S, p_T, v) if includes(effects, Compensates.LEAKAGE) else 0.0
    w = inverse_orifice(q - leak, p, p_S, p_T, b, v) * authority(b, v, elapsed, SLOW_RETURN) * gain_at_end_stop(b)
    if not includes(effects, Compensates.LAG):
        return w
    if b.saturation & UNAVAILABLE:  # no lead: the demand is not achievable in any case
        b.opening_filtered = w
        return w
    return lag_compensation(w, b, v, elapsed, dt)


@compilable
def inverse_orifice(q: float, p: float, p_S: float, p_T: float, b: ValveState, v: ValveRecord) -> float:
    """Spool position at which the metering edge passes ``q``: W = q/(C_v·g(dp)); the sign of q selects the edge.

    Source: theory §1.1; [Virtual hydraulics] eq. 5.1. Without a positive drop no opening passes q: the command is null,
    and this is reported.
    """
    drop = p_S - p if q >= 0.0 else p - p_T
    b.drop = drop
    if q == 0.0:
        return opening_of(0.0, b)
    slope = (v.C_PA if q > 0.0 else v.C_AT) * root_of_drop(drop, v.p_tr)
    if not slope > 0.0:
        note(b, Saturation.NO_DROP)
        return opening_of(0.0, b)
    w = q / slope
    if abs(w) > 1.0:
        note(b, Saturation.CAPACITY)
    return opening_of(spool_for(clip(w, -1.0, 1.0), v), b)


@compilable
def authority(b: ValveState, v: ValveRecord, elapsed: float, return_time: float) -> float:
    """Fraction of the opening that is commanded at the present drop: 1 with a sufficient drop, 0 without one.

    Between zero drop and a quarter of the transition pressure, the sensors' noise would make the inverse jump between
    null and full opening. So the command fades to null there: immediately when the drop vanishes, and back slowly when
    it returns.
    """
    wanted = 1.0 - step(b.drop, 0.0, 0.0, MIN_DROP * v.p_tr, 1.0)
    slowly = b.no_drop_share + (wanted - b.no_drop_share) * elapsed / (return_time + elapsed)
    b.no_drop_share = max(wanted, slowly)
    if b.no_drop_share > 0.01:
        note(b, Saturation.NO_DROP)
    return float(1.0 - b.no_drop_share)


@compilable
def opening_of(w: float, b: ValveState) -> float:
    """Store the static opening and return it."""
    b.opening = w
    return w


@compilable
def leakage(spool: float, p: float, p_S: float, p_T: float, v: ValveRecord) -> float:
    """Leakage of the real valve into its port at the estimated spool position: P->A minus A->T. Source: theory §1.1."""
    share = leakage_fade(abs(linear_opening(spool, v)), v.leak_gone)
    return share * float(v.leak_PA * root_of_drop(p_S - p, v.p_tr) - v.leak_AT * root_of_drop(p - p_T, v.p_tr))


@compilable
def lag_compensation(w: float, b: ValveState, v: ValveRecord, elapsed: float, dt: float) -> float:
    r"""Lead against the spool's first-order lag: U = W + tau·dW/dt, the derivative filtered over ``lead_filter``.

    The command is held for a tick, so tau is replaced by its discrete equivalent, which leaves no error on a ramp:

    .. math:: \tau_d = \frac{\Delta t}{1 - e^{-\Delta t/\tau}} \approx \tau + \Delta t/2

    The filter is implicit and so stable for any tick. Without a previous value of W (NaN) the lead starts at rest.
    Source: theory §1.1; [Virtual hydraulics] eqs. 5.2-5.4.
    """
    if not isfinite(b.opening_filtered):
        b.opening_filtered = w
    rate = (w - b.opening_filtered) / (v.tau_W + elapsed)
    b.opening_filtered += rate * elapsed
    lead = dt / (1.0 - exp(-dt / v.tau)) if v.tau > 0.0 else dt
    return clip(w + lead * rate, v.u_min, v.u_max)


@compilable
def flow_servo(q: float, b: ValveState, v: ValveRecord, elapsed: float) -> float:
    """PID control of the measured flow. The derivative acts on the filtered measured flow: a step of q causes no kick.

    Anti-windup: the integral is limited so that the command stays within its range. The valve's flow-signal curve is
    made good, so that the gain of the loop does not depend on the opening.
    Source: theory §1.2; [Virtual hydraulics] ch. 5.6.2.
    """
    rate = (b.flow_measured - b.flow_filtered) / (v.tau_d + elapsed)
    b.flow_filtered += rate * elapsed
    error = q - b.flow_measured
    rest = v.K_p * (error - v.T_d * rate)
    more = v.K_p * error * elapsed / v.T_i if v.T_i > 0.0 else 0.0
    u = rest + b.integral
    room = max(v.u_max - u, 0.0) if more > 0.0 else min(v.u_min - u, 0.0)
    b.integral += min(more, room) if more > 0.0 else max(more, room)
    u += more
    if u > v.u_max or u < v.u_min:
        note(b, Saturation.CAPACITY)
    return spool_for(clip(u, v.u_min, v.u_max), v)


@compilable
def jog(b: ValveState, v: ValveRecord, elapsed: float) -> float:
    """Manual command for commissioning, within the jog limit; it returns to null unless renewed (hold to run)."""
    b.jog_left = max(b.jog_left - elapsed, 0.0)
    if b.jog_left <= 0.0:
        b.jog = 0.0
    return clip(b.jog, -v.jog_limit, v.jog_limit)


@compilable
def set_jog(target: float, b: ValveState, v: ValveRecord) -> None:
    """Accept a new manual command; it holds for ``jog_time``."""
    b.jog = clip(target, -v.jog_limit, v.jog_limit)
    b.jog_left = v.jog_time
