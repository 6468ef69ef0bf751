r"""The strategies of the bridge, compiled into the tick.

Each takes the virtual flow ``q`` (m^3/s into the machine's port), the measured pressures at the real valve, its block
of the row ``b`` and its line of the plan ``v``, and returns the demanded command (-1 … 1 of full opening).
"""

from __future__ import annotations

from math import exp, isfinite, nan

from hilserver.numerics.arrays import Floats
from hilserver.numerics.flow import root_of_drop
from hilserver.numerics.shape import clip, step
from hilserver.numerics.valve import leakage_fade
from hilserver.tick.bridge.columns import (
    AWAY,
    C_AT,
    C_PA,
    CAPACITY,
    DROP,
    FLOW_FILTERED,
    FLOW_MEASURED,
    FLOW_SERVO,
    INTEGRAL,
    INVERSE_LAG_LEAKAGE,
    INVERSE_STATIC,
    JOG_LEFT,
    JOG_LIMIT,
    JOG_TARGET,
    JOG_TIME,
    K_P,
    LEAK_AT,
    LEAK_GONE,
    LEAK_PA,
    MANUAL,
    NO_DROP,
    NULL,
    OPENING,
    OPENING_FILTERED,
    P_TR,
    PINNED,
    POLARITY,
    RAW_GAIN,
    RAW_OFFSET,
    SATURATION,
    SPOOL,
    T_D,
    T_I,
    TAU,
    TAU_D,
    TAU_W,
    U_MAX,
    U_MIN,
    VOLUME_ERROR,
    WITHHELD,
)
from hilserver.tick.bridge.end_stop import gain_at_stop

LEAST_DROP = 0.25
"""Share of the transition pressure below which the command fades out."""
SLOW_RETURN = 0.2
"""Seconds in which it comes back where the drop is measured with noise."""


def strategy_command(
    number: int, q: float, p: float, p_S: float, p_T: float, b: Floats, v: Floats, elapsed: float, dt: float
) -> float:
    """The command that strategy ``number`` demands; p, p_S, p_T are the pressures at port, supply and tank.

    ``elapsed``: seconds since the last call; ``dt``: for how long the command will be held.
    """
    if number == MANUAL:
        return jog(b, v, elapsed)
    if number == FLOW_SERVO:
        return flow_servo(q, b, v, elapsed)
    leak = leakage(b[SPOOL], p, p_S, p_T, v) if number == INVERSE_LAG_LEAKAGE else 0.0
    w = inverse_orifice(q - leak, p, p_S, p_T, b, v) * authority(b, v, elapsed, SLOW_RETURN)
    if number == INVERSE_STATIC:
        return w
    if int(b[SATURATION]) & (CAPACITY | NO_DROP):  # nothing to lead: what is asked for can't be had anyhow
        b[OPENING_FILTERED] = w
        return w
    return lag_compensation(w, b, v, elapsed, dt)


def inverse_orifice(q: float, p: float, p_S: float, p_T: float, b: Floats, v: Floats) -> float:
    """Opening of the real valve's metering edge that passes ``q``: W = q/(C_v·g(dp)); the sign of q picks the edge.

    Source: theory §1.1; [Virtual hydraulics] eq. 5.1. Without a positive drop no opening passes q: null, reported.
    """
    drop = p_S - p if q >= 0.0 else p - p_T
    b[DROP] = drop
    if q == 0.0:
        return opening_of(0.0, b)
    slope = (v[C_PA] if q > 0.0 else v[C_AT]) * root_of_drop(drop, v[P_TR])
    if not slope > 0.0:
        b[SATURATION] = int(b[SATURATION]) | NO_DROP
        return opening_of(0.0, b)
    w = q / slope
    if abs(w) > 1.0:
        b[SATURATION] = int(b[SATURATION]) | CAPACITY
    return opening_of(clip(w, -1.0, 1.0), b)


def authority(b: Floats, v: Floats, elapsed: float, return_time: float) -> float:
    """Share of the opening that is commanded at the present drop: 1 with a drop to work with, 0 without one.

    Between no drop and a quarter of P_TR the inverse would swing between null and full opening with the sensors' noise.
    So the command fades to null there: at once where the drop goes, slowly back where it returns.
    """
    wanted = 1.0 - step(b[DROP], 0.0, 0.0, LEAST_DROP * v[P_TR], 1.0)
    slowly = b[WITHHELD] + (wanted - b[WITHHELD]) * elapsed / (return_time + elapsed)
    b[WITHHELD] = max(wanted, slowly)
    if b[WITHHELD] > 0.01:
        b[SATURATION] = int(b[SATURATION]) | NO_DROP
    return float(1.0 - b[WITHHELD]) * gain_at_stop(b)


def opening_of(w: float, b: Floats) -> float:
    """Note the static opening and return it."""
    b[OPENING] = w
    return w


def leakage(spool: float, p: float, p_S: float, p_T: float, v: Floats) -> float:
    """Leakage of the real valve into its port at the estimated spool position: P->A less A->T. Source: theory §1.1."""
    share = leakage_fade(abs(spool), v[LEAK_GONE])
    return share * float(v[LEAK_PA] * root_of_drop(p_S - p, v[P_TR]) - v[LEAK_AT] * root_of_drop(p - p_T, v[P_TR]))


def lag_compensation(w: float, b: Floats, v: Floats, elapsed: float, dt: float) -> float:
    r"""Lead against the spool's first-order lag: U = W + tau·dW/dt, the derivative filtered with TAU_W.

    The command is held for a tick, so tau is replaced by its discrete equal, which leaves no error on a ramp:

    .. math:: \tau_d = \frac{\Delta t}{1 - e^{-\Delta t/\tau}} \approx \tau + \Delta t/2

    The filter is the implicit one: stable for any tick. Without a memory of W (NaN) the lead begins at rest.
    Source: theory §1.1; [Virtual hydraulics] eqs. 5.2-5.4.
    """
    if not isfinite(b[OPENING_FILTERED]):
        b[OPENING_FILTERED] = w
    rate = (w - b[OPENING_FILTERED]) / (v[TAU_W] + elapsed)
    b[OPENING_FILTERED] += rate * elapsed
    lead = dt / (1.0 - exp(-dt / v[TAU])) if v[TAU] > 0.0 else dt
    return clip(w + lead * rate, v[U_MIN], v[U_MAX])


def flow_servo(q: float, b: Floats, v: Floats, elapsed: float) -> float:
    """PID on the measured flow. The derivative acts on the measured flow, filtered, so a jump of q gives no kick.

    Anti-windup: the integral takes only what keeps the command within its range.
    Source: theory §1.2; [Virtual hydraulics] ch. 5.6.2.
    """
    rate = (b[FLOW_MEASURED] - b[FLOW_FILTERED]) / (v[TAU_D] + elapsed)
    b[FLOW_FILTERED] += rate * elapsed
    error = q - b[FLOW_MEASURED]
    rest = v[K_P] * (error - v[T_D] * rate)
    more = v[K_P] * error * elapsed / v[T_I] if v[T_I] > 0.0 else 0.0
    u = rest + b[INTEGRAL]
    room = max(v[U_MAX] - u, 0.0) if more > 0.0 else min(v[U_MIN] - u, 0.0)
    b[INTEGRAL] += min(more, room) if more > 0.0 else max(more, room)
    u += more
    if u > v[U_MAX] or u < v[U_MIN]:
        b[SATURATION] = int(b[SATURATION]) | CAPACITY
    return clip(u, v[U_MIN], v[U_MAX])


def jog(b: Floats, v: Floats, elapsed: float) -> float:
    """Manual command for commissioning, within the jog limit; it falls back to null when not renewed (hold to run)."""
    b[JOG_LEFT] = max(b[JOG_LEFT] - elapsed, 0.0)
    if b[JOG_LEFT] <= 0.0:
        b[JOG_TARGET] = 0.0
    return clip(b[JOG_TARGET], -v[JOG_LIMIT], v[JOG_LIMIT])


def set_jog(target: float, b: Floats, v: Floats) -> None:
    """Take a new manual command; it holds for JOG_TIME seconds."""
    b[JOG_TARGET] = clip(target, -v[JOG_LIMIT], v[JOG_LIMIT])
    b[JOG_LEFT] = v[JOG_TIME]


def prepare_strategy(number: int, q: float, command: float, b: Floats, v: Floats) -> None:
    """Set a strategy's memory so that it takes over from ``command`` without a jump (the rest is faded out)."""
    if number == FLOW_SERVO:
        b[FLOW_FILTERED] = b[FLOW_MEASURED]
        start = command - v[K_P] * (q - b[FLOW_MEASURED]) if v[T_I] > 0.0 else 0.0
        b[INTEGRAL] = clip(start, v[U_MIN], v[U_MAX])
    elif number != MANUAL:
        b[OPENING_FILTERED] = nan
        b[WITHHELD] = b[PINNED] = b[AWAY] = b[VOLUME_ERROR] = 0.0
    else:
        b[JOG_TARGET], b[JOG_LEFT] = 0.0, 0.0


def raw_output(command: float, v: Floats) -> float:
    """The device's raw value for a command: polarity, null offset, scale."""
    return float(v[RAW_OFFSET] + v[RAW_GAIN] * clip(v[POLARITY] * command + v[NULL], -1.0, 1.0))
