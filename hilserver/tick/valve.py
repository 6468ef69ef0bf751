r"""The real valve as the bridge knows it: where its spool is, what it passes there, and where it passes a wanted flow.

``b`` is the valve's block of the row, ``v`` its line of the plan. The flow into the port at spool position U is

.. math::
   Q = (C_{PA}\langle w(U)\rangle + C_l\,s(|U|))\,g(p_S - p)
     - (C_{AT}\langle -w(U)\rangle + C_l\,s(|U|))\,g(p - p_T)

with w the opening past the overlap, s the fade of the leakage, g the orifice law: one characteristic through null
region and metering range, as in Eryilmaz & Wilson, Unified modeling and analysis of a proportional valve, J. Franklin
Inst. 343 (2006) 48.
"""

from __future__ import annotations

from math import floor, isfinite

from hilserver.numerics.arrays import Floats
from hilserver.numerics.flow import root_of_drop
from hilserver.numerics.shape import clip
from hilserver.numerics.valve import leakage_fade, opening_past_overlap
from hilserver.tick.bridge.columns import (
    C_AT,
    C_PA,
    CAPACITY,
    DELAY,
    DELAY_NOW,
    EXPECTED_BEFORE,
    EXPECTED_RATE,
    GAIN_AT,
    GAIN_PA,
    LEAK_AT,
    LEAK_GONE,
    LEAK_PA,
    NO_DROP,
    NULL_BAND,
    OVERLAP,
    P_TR,
    SAFE_VALUE,
    SATURATION,
    SPOOL,
    SPOOL_11,
    SPOOL_12,
    SPOOL_21,
    SPOOL_22,
    SPOOL_ERROR,
    SPOOL_SPEED,
    SUPPLY,
    SUPPLY_TREND,
    VOLUME,
    VOLUME_BEFORE,
    VOLUME_ERROR,
)

CLOSE = 1e-7
"""Opening to which the inverse of the characteristic is solved."""


def valve_flow(U: float, p: float, p_S: float, p_T: float, b: Floats, v: Floats) -> float:
    """Flow into the port with the spool at ``U``, m³/s."""
    return characteristic(opening_past_overlap(U, v[OVERLAP]), abs(U), p, p_S, p_T, b, v)


def characteristic(w: float, travel: float, p: float, p_S: float, p_T: float, b: Floats, v: Floats) -> float:
    """Flow into the port at opening ``w``, with the leakage left at this ``travel`` of the spool from its centre."""
    share = leakage_fade(travel, v[LEAK_GONE])
    to_port = (v[C_PA] * b[GAIN_PA] * max(w, 0.0) + v[LEAK_PA] * share) * root_of_drop(p_S - p, v[P_TR])
    to_tank = (v[C_AT] * b[GAIN_AT] * max(-w, 0.0) + v[LEAK_AT] * share) * root_of_drop(p - p_T, v[P_TR])
    return float(to_port - to_tank)


def eased_opening(U: float, overlap: float, band: float) -> float:
    """Opening past the overlap, with a gentle slope in its place: the inverse passes it without a jump.

    A jump across the overlap would come with every grain of noise. Within overlap + ``band`` the opening grows evenly
    to that of the true edge there; beyond it is the true one.
    """
    knee = overlap + band
    if abs(U) < knee:
        return U / knee * opening_past_overlap(knee, overlap)
    return opening_past_overlap(U, overlap)


def opening_for(q: float, p: float, p_S: float, p_T: float, overlap: float, b: Floats, v: Floats) -> float:
    """Spool position at which the valve passes ``q``; full travel and CAPACITY where it can't, null where nothing can.

    On either side of the centre the flow changes evenly with the spool, away from what flows at null: solved there by
    regula falsi (Illinois).
    """
    more = excess(0.0, q, p, p_S, p_T, overlap, b, v) < 0.0
    if (p >= p_S) if more else (p <= p_T):
        b[SATURATION] = int(b[SATURATION]) | NO_DROP
        return 0.0
    end = 1.0 if more else -1.0
    near, far = 0.0, end
    f_near, f_far = excess(near, q, p, p_S, p_T, overlap, b, v), excess(far, q, p, p_S, p_T, overlap, b, v)
    if f_near * f_far > 0.0:
        b[SATURATION] = int(b[SATURATION]) | CAPACITY
        return end
    U, last = near, 0
    for _ in range(50):
        before, U = U, (near * f_far - far * f_near) / (f_far - f_near)
        f = excess(U, q, p, p_S, p_T, overlap, b, v)
        if f == 0.0 or abs(U - before) < CLOSE:
            break
        if f * f_near > 0.0:
            near, f_near = U, f
            f_far *= 0.5 if last == 1 else 1.0
            last = 1
        else:
            far, f_far = U, f
            f_near *= 0.5 if last == -1 else 1.0
            last = -1
    return U


def excess(U: float, q: float, p: float, p_S: float, p_T: float, overlap: float, b: Floats, v: Floats) -> float:
    """What flows more than ``q`` with the spool at U, the overlap eased."""
    return characteristic(eased_opening(U, overlap, v[NULL_BAND]), abs(U), p, p_S, p_T, b, v) - q


def command_at(past: Floats, delay: float, ahead: float, dt: float) -> float:
    """The command that moves the spool ``ahead`` seconds from now (before the new one is given; negative: then).

    ``past``: the commands of the last ticks, the newest first, each held for ``dt``; ``delay``: s until it is felt.
    """
    place = floor((delay - ahead) / dt)
    return float(past[min(max(place, 0), past.shape[0] - 1)])


def move_spool(command: float, b: Floats, v: Floats) -> None:
    """Follow the spool for one sub-step, exactly for a held command: second order, or first where f45 is given."""
    target = clip(command, -1.0, 1.0)
    away, speed = b[SPOOL] - target, b[SPOOL_SPEED]
    b[SPOOL] = target + v[SPOOL_11] * away + v[SPOOL_12] * speed
    b[SPOOL_SPEED] = v[SPOOL_21] * away + v[SPOOL_22] * speed


def mend_valve(b: Floats, v: Floats) -> None:
    """Forget what is no number any more: the spool is taken to be at its safe position, the model as configured."""
    if not (isfinite(b[SPOOL]) and isfinite(b[SPOOL_SPEED])):
        b[SPOOL], b[SPOOL_SPEED] = v[SAFE_VALUE], 0.0
    if not (isfinite(b[GAIN_PA]) and isfinite(b[GAIN_AT]) and isfinite(b[DELAY_NOW])):
        b[GAIN_PA], b[GAIN_AT], b[DELAY_NOW] = 1.0, 1.0, 0.0
    if not (isfinite(b[SUPPLY]) and isfinite(b[SUPPLY_TREND])):
        b[SUPPLY], b[SUPPLY_TREND] = 0.0, 0.0
    if not (isfinite(b[VOLUME]) and isfinite(b[VOLUME_BEFORE]) and isfinite(b[VOLUME_ERROR])):
        b[VOLUME], b[VOLUME_BEFORE], b[VOLUME_ERROR] = 0.0, 0.0, 0.0
    if not (isfinite(b[EXPECTED_BEFORE]) and isfinite(b[EXPECTED_RATE]) and isfinite(b[SPOOL_ERROR])):
        b[EXPECTED_BEFORE], b[EXPECTED_RATE], b[SPOOL_ERROR] = 0.0, 0.0, 0.0


def delay_of(b: Floats, v: Floats) -> float:
    """Seconds from the command to the spool's start, as known and as tracked."""
    return float(v[DELAY] + b[DELAY_NOW])
