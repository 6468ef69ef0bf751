r"""The strategies of the bridge, compiled into the tick.

Each takes the virtual flow ``q`` (m^3/s into the machine's port), the measured pressures at the real valve, its block of the
row ``b`` and its line of the plan ``v``, and returns the demanded command (-1 … 1 of full opening).
"""

from __future__ import annotations

from math import exp

from hilserver.bridge.columns import (
    C_AT,
    C_PA,
    CAPACITY,
    DROP,
    FLOW_FILTERED,
    FLOW_MEASURED,
    FLOW_SERVO,
    INTEGRAL,
    INVERSE_LAG,
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
    OPENING,
    OPENING_FILTERED,
    P_TR,
    SATURATION,
    SPOOL,
    T_D,
    T_I,
    TAU,
    TAU_D,
    TAU_W,
    U_MAX,
    U_MIN,
)
from hilserver.numerics.arrays import Floats
from hilserver.numerics.flow import root_of_drop
from hilserver.numerics.shape import clip
from hilserver.numerics.valve import leakage_fade


def strategy_command(number: int, q: float, p: float, p_S: float, p_T: float, b: Floats, v: Floats, dt: float) -> float:
    """The command that strategy ``number`` demands; p, p_S, p_T are the pressures at port, supply and tank of the real valve."""
    if number == MANUAL:
        return jog(b, v, dt)
    if number == FLOW_SERVO:
        return flow_servo(q, b, v, dt)
    leak = leakage(b[SPOOL], p, p_S, p_T, v) if number == INVERSE_LAG_LEAKAGE else 0.0
    w = inverse_orifice(q - leak, p, p_S, p_T, b, v)
    return w if number == INVERSE_STATIC else lag_compensation(w, b, v, dt)


def inverse_orifice(q: float, p: float, p_S: float, p_T: float, b: Floats, v: Floats) -> float:
    """Opening of the real valve's metering edge that passes ``q``: W = q/(C_v·g(dp)); the sign of q picks the edge.

    Source: THEORY §1.1; seeds/001 eq. 5.1. Where the drop is not positive, no opening can pass q: null, reported.
    """
    drop = p_S - p if q >= 0.0 else p - p_T
    b[DROP] = drop
    if q == 0.0:
        return opening_of(0.0, b)
    if drop <= 0.0:
        b[SATURATION] = int(b[SATURATION]) | NO_DROP
        return opening_of(0.0, b)
    w = q / ((v[C_PA] if q > 0.0 else v[C_AT]) * root_of_drop(drop, v[P_TR]))
    if abs(w) > 1.0:
        b[SATURATION] = int(b[SATURATION]) | CAPACITY
    return opening_of(clip(w, -1.0, 1.0), b)


def opening_of(w: float, b: Floats) -> float:
    """Note the static opening and return it."""
    b[OPENING] = w
    return w


def leakage(spool: float, p: float, p_S: float, p_T: float, v: Floats) -> float:
    """Leakage of the real valve into its port at the estimated spool position: P->A less A->T. Source: THEORY §1.1."""
    share = leakage_fade(abs(spool), v[LEAK_GONE])
    return share * (v[LEAK_PA] * root_of_drop(p_S - p, v[P_TR]) - v[LEAK_AT] * root_of_drop(p - p_T, v[P_TR]))


def lag_compensation(w: float, b: Floats, v: Floats, dt: float) -> float:
    """Lead against the spool's first-order lag: U = W + tau·dW/dt, the derivative filtered with TAU_W.

    Source: THEORY §1.1; seeds/001 eqs. 5.2-5.4. The filter is the exact discrete one, so any tick is stable.
    """
    share = dt / (v[TAU_W] + dt)
    rate = (w - b[OPENING_FILTERED]) * share / dt
    b[OPENING_FILTERED] += rate * dt
    return clip(w + v[TAU] * rate, v[U_MIN], v[U_MAX])


def flow_servo(q: float, b: Floats, v: Floats, dt: float) -> float:
    """PID on the measured flow. The derivative acts on the measured flow, filtered; the integral stops at the command's range.

    Source: THEORY §1.2; seeds/001 ch. 5.6.2. Anti-windup: the integral takes only what keeps the command within its range.
    """
    rate = (b[FLOW_MEASURED] - b[FLOW_FILTERED]) / (v[TAU_D] + dt)
    b[FLOW_FILTERED] += rate * dt
    error = q - b[FLOW_MEASURED]
    rest = v[K_P] * (error - v[T_D] * rate)
    if v[T_I] > 0.0:
        step = v[K_P] * error * dt / v[T_I]
        u = rest + b[INTEGRAL] + step
        if (u <= v[U_MAX] or step < 0.0) and (u >= v[U_MIN] or step > 0.0):
            b[INTEGRAL] += step
    u = rest + b[INTEGRAL]
    if u > v[U_MAX] or u < v[U_MIN]:
        b[SATURATION] = int(b[SATURATION]) | CAPACITY
    return clip(u, v[U_MIN], v[U_MAX])


def jog(b: Floats, v: Floats, dt: float) -> float:
    """Manual command for commissioning, within the jog limit; it falls back to null when not renewed (hold to run)."""
    b[JOG_LEFT] = max(b[JOG_LEFT] - dt, 0.0)
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
        b[INTEGRAL] = clip(command - v[K_P] * (q - b[FLOW_MEASURED]), v[U_MIN], v[U_MAX])
    elif number != MANUAL:
        b[OPENING_FILTERED] = b[OPENING]
    else:
        b[JOG_TARGET], b[JOG_LEFT] = 0.0, 0.0


def follow_spool(command: float, b: Floats, v: Floats, dt: float) -> None:
    """Estimate the real spool from the command it gets: first-order lag, exact for a command held over the tick."""
    share = 1.0 - exp(-dt / v[TAU]) if v[TAU] > 0.0 else 1.0
    b[SPOOL] += (clip(command, -1.0, 1.0) - b[SPOOL]) * share
