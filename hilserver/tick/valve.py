r"""The bridge's model of the real valve: spool position, flow at this position, and position for a required flow.

``b`` is the valve's block of the row, ``v`` its line of the plan. The flow into the port at spool position U is

.. math::
   Q = (C_{PA}\langle w(L)\rangle + C_l\,s(|L|))\,g(p_S - p)
     - (C_{AT}\langle -w(L)\rangle + C_l\,s(|L|))\,g(p - p_T), \qquad L = L(U)

with L the opening of a linear valve that passes the same flow (:mod:`hilserver.tick.flow_signal`), usually U, w the
opening past the overlap, s the fading factor of the leakage, g the orifice law: one characteristic for null region and
metering range, as in Eryilmaz & Wilson, Unified modeling and analysis of a proportional valve, J. Franklin Inst. 343
(2006) 48.
"""

from __future__ import annotations

from math import floor, isfinite

from hilserver.numerics.arrays import Floats
from hilserver.numerics.compilable import compilable
from hilserver.numerics.flow import orifice_flow, root_of_drop
from hilserver.numerics.shape import clip
from hilserver.numerics.valve import opening_past_overlap
from hilserver.tick.codes import Saturation
from hilserver.tick.flow_signal import linear_opening, spool_for, steepness
from hilserver.tick.plan import ValveRecord
from hilserver.tick.row import ValveState

DIP = 1e4
"""Pa: pressure difference for the slope of a flow."""
CLOSE = 5e-10
"""Of the travel: error to which the inverse is iterated."""
UNAVAILABLE = int(Saturation.CAPACITY | Saturation.NO_DROP)
"""The virtual flow is not achievable."""


@compilable
def valve_flow(U: float, p: float, p_S: float, p_T: float, b: ValveState, v: ValveRecord) -> float:
    """Flow into the port with the spool at ``U``, m³/s."""
    L = linear_opening(U, v)
    return characteristic(opening_past_overlap(L, overlap_of(b, v)), abs(L), p_S - p, p - p_T, b, v)


@compilable
def slopes_of_edges(U: float, p: float, p_S: float, p_T: float, b: ValveState, v: ValveRecord) -> tuple[float, float]:
    """Change of the flow into the port with null and overlap, m³/s per full stroke; 0 within the overlap."""
    overlap, L = overlap_of(b, v), linear_opening(U, v)
    opening, span = opening_past_overlap(L, overlap), 1.0 - overlap
    if opening > 0.0:
        slope = v.C_PA * b.gain_PA * root_of_drop(p_S - p, v.p_tr) / span
        return slope * steepness(U, v), -slope * (1.0 - L) / span
    if opening < 0.0:
        slope = v.C_AT * b.gain_AT * root_of_drop(p - p_T, v.p_tr) / span
        return slope * steepness(U, v), slope * (1.0 + L) / span
    return 0.0, 0.0


@compilable
def characteristic(w: float, travel: float, drop_PA: float, drop_AT: float, b: ValveState, v: ValveRecord) -> float:
    """Flow into the port at opening ``w``, with the leakage at this ``travel`` of the spool from its centre.

    ``drop_PA``, ``drop_AT``: the pressure drops from the supply to the port, and from there to the tank.
    """
    share = remaining(travel * (1.0 / v.leak_gone))
    to_port = orifice_flow(v.C_PA * b.gain_PA * max(w, 0.0) + v.leak_PA * share, drop_PA, v.p_tr)
    to_tank = orifice_flow(v.C_AT * b.gain_AT * max(-w, 0.0) + v.leak_AT * share, drop_AT, v.p_tr)
    return float(to_port - to_tank)


@compilable
def remaining(travel: float) -> float:
    """Fraction of the leakage that remains at a ``travel`` in units of that at which it is gone (`leakage_fade`)."""
    s = min(travel, 1.0)
    return 1.0 - s * s * (3.0 - 2.0 * s)


@compilable
def opening_for(q: float, p: float, p_S: float, p_T: float, overlap: float, b: ValveState, v: ValveRecord) -> float:
    """Spool position at which the valve passes ``q``; full travel and CAPACITY if it can't, null if no position can."""
    return spool_for(linear_opening_for(q, p, p_S, p_T, overlap, b, v), v)


@compilable
def linear_opening_for(
    q: float, p: float, p_S: float, p_T: float, overlap: float, b: ValveState, v: ValveRecord
) -> float:
    """The same as an opening of the linear valve.

    The flow is linear in this opening where there is neither leakage nor easing, and the inverse exact; below it
    is iterated. There, the flow is not always monotonic: leakage that fades may change it by more than the edge does.
    """
    root_PA, root_AT = root_of_drop(p_S - p, v.p_tr), root_of_drop(p - p_T, v.p_tr)
    leak = v.leak_PA * root_PA - v.leak_AT * root_AT
    more = leak < q
    if (p >= p_S) if more else (p <= p_T):
        note(b, Saturation.NO_DROP)
        return 0.0
    side, full = (1.0, v.C_PA * b.gain_PA * root_PA) if more else (-1.0, -v.C_AT * b.gain_AT * root_AT)
    end = min(max(overlap + v.null_band, v.leak_gone if leak != 0.0 else 0.0), 1.0)
    travel = overlap + (1.0 - overlap) * (q / full)
    if travel < end:
        return side * travel_below(end, travel, q, full, leak, overlap, v)
    if travel > 1.0:
        note(b, Saturation.CAPACITY)
        return side
    return side * travel


@compilable
def travel_below(
    end: float, unleaky: float, q: float, full: float, leak: float, overlap: float, v: ValveRecord
) -> float:
    """Travel between 0 and ``end`` at which the valve passes ``q``, with the overlap eased.

    Within overlap + ``null_band`` the opening increases linearly to that of the true edge at this point; beyond, it is
    the true one. With the true one throughout, even small noise would cause jumps across the overlap.

    By Newton's method in one of these two parts, in bounds that become narrower. Where it leaves them, or converges
    slowly, they are bisected: Press et al., Numerical Recipes, 3rd ed. 2007, 9.4 (rtsafe). The error after a step is
    its square times half of bend over slope of the flow; ``bend`` is the largest one. ``unleaky``: travel without
    easing and leakage; ``full``: flow at full opening, ``leak``: leakage at null, m³/s. The first estimate is that with
    all of the leakage in the eased part, and with none of it beyond.
    """
    knee, per_gone = overlap + v.null_band, 1.0 / v.leak_gone  # a division takes as long as ten multiplications
    steepness = full * (1.0 / (1.0 - overlap))
    at_knee = steepness * v.null_band + leak * remaining(knee * per_gone)
    if (at_knee < q) == (full > 0.0):
        near, far, closed, travel = knee, end, overlap, max(unleaky, knee)
    else:
        near, far, closed = 0.0, knee, 0.0
        steepness *= v.null_band / knee
        travel = min((q - leak) / steepness, knee)
    step, fading = 2.0 * end, 6.0 * leak * per_gone
    bend = abs(fading) * per_gone
    for _ in range(50):
        s = min(travel * per_gone, 1.0)
        excess = steepness * (travel - closed) + leak * remaining(s) - q
        slope = steepness - fading * s * (1.0 - s)
        if (excess < 0.0) == (full > 0.0):
            near = travel
        else:
            far = travel
        last, step = step, -excess / slope
        close = bend * step * step < CLOSE * abs(slope)
        if not close and (abs(step) > 0.5 * abs(last) or not near < travel + step < far):
            step = 0.5 * (near + far) - travel
        travel += step
        if close:
            break
    return travel


@compilable
def command_at(past: Floats, delay: float, ahead: float, dt: float) -> float:
    """The command that moves the spool ``ahead`` seconds from now (before the new one is given; negative: in the past).

    ``past``: the commands of the last ticks, the newest first, each held for ``dt``; ``delay``: time until a command
    has an effect, s.
    """
    place = floor((delay - ahead) / dt)
    return float(past[min(max(place, 0), past.shape[0] - 1)])


@compilable
def note_command(command: float, past: Floats) -> None:
    """Note the command that is held from now on, the newest first."""
    for k in range(past.shape[0] - 1, 0, -1):
        past[k] = past[k - 1]
    past[0] = command


@compilable
def move_spool(command: float, b: ValveState, v: ValveRecord) -> None:
    """Advance the spool by one sub-step, exactly for a held command: second order, or first order if f45 is given."""
    target = clip(command + b.null, -1.0, 1.0)
    away, speed = b.spool - target, b.spool_speed
    b.spool = target + v.spool_11 * away + v.spool_12 * speed
    b.spool_speed = v.spool_21 * away + v.spool_22 * speed


@compilable
def overlap_of(b: ValveState, v: ValveRecord) -> float:
    """Overlap, configured plus tracked."""
    return float(v.overlap + b.overlap)


@compilable
def reset_nonfinite(b: ValveState, v: ValveRecord) -> None:
    """Reset values that are no longer finite: the spool is assumed at its safe position."""
    if not (isfinite(b.spool) and isfinite(b.spool_speed)):
        b.spool, b.spool_speed = v.safe_value, 0.0
    if not (isfinite(b.behind) and isfinite(b.behind_speed)):
        b.behind = b.behind_speed = 0.0
    real, virtual = b.volume + b.volume_before, b.volume_virtual + b.volume_virtual_before
    if not isfinite(real + virtual + b.volume_error + b.volume_lost + b.volume_ahead):
        reset_volumes(b)
    if not isfinite(b.spool_error):
        b.spool_error = 0.0


@compilable
def reset_volumes(b: ValveState) -> None:
    """Begin anew with the account of the volumes."""
    b.volume = b.volume_before = b.volume_virtual = b.volume_virtual_before = 0.0
    b.volume_error = b.volume_ahead = b.volume_lost = 0.0


@compilable
def note(b: ValveState, flag: Saturation) -> None:
    """Report that the command differs from that required by the virtual flow, and why."""
    b.saturation = b.saturation | flag.value


@compilable
def delay_of(b: ValveState, v: ValveRecord) -> float:
    """Time from the command to the start of the spool's motion, configured plus tracked, s."""
    return float(v.delay + b.delay)
