r"""The bridge's model of the machine: a cylinder, the mass it moves, and a force that is not measured.

.. math::
   C_A \dot p_A = Q_A - A_A v - Q_l, \quad C_B \dot p_B = Q_B + A_B v + Q_l, \quad
   \dot x = v, \quad m \dot v = A_A p_A - A_B p_B - F - 2\sqrt{k m}\,v, \quad \dot F = k v

C is the capacitance of a chamber (volume divided by effective bulk modulus, and the walls of hoses, which stiffen with
pressure as in :mod:`hilserver.components.hose`), :math:`Q_l = c_l\,(p_A - p_B)` what leaks past the piston. F contains
load, gravity and friction; k is the stiffness of what the piston presses against, with the damping at which it does not
oscillate alone, and 0 if nothing holds it (:mod:`hilserver.tick.contact`). Q is the flow that the real valve should
pass plus a bias. F and bias are random walks that a Kalman filter estimates from the measured pressures, position and
flows. So a flow is estimated without a flow sensor, and the present pressures are
known although their sensors have delays.

Behind a restriction between a port, where the pressure is measured, and the piston, the pressure is
:math:`p_A - \Delta p(v)`, at B :math:`p_B + \Delta p(v)`, with the orifice law
(:func:`hilserver.numerics.flow.drop_of_root`): the speed of the piston stands for that of the oil. This pressure acts
on the piston and drives the leakage, and the oil behind the restriction (`behind_A`) is compressed by it.

An open valve with a small pressure drop settles the pressure of a small chamber within a tick: an error of the pressure
decays at the rate :math:`r = -(\partial Q / \partial p) / C`. The filter's gains are tables over the stroke and these
rates (:mod:`hilserver.rig.kalman`): with those of closed valves it would be unstable.

A hydraulic motor obeys the same equations by its revolutions: the displacement V stands for both areas,
:math:`4\pi^2 J` for the mass, the work per revolution for the force (:math:`V\,\Delta p = 2\pi\,T`). Its chambers do
not change, its stroke is 0, and its sensor shows the speed instead of the position. What leaks to its case,
:math:`c_e\,p`, leaves each chamber.

``k`` is the cylinder's block of the row, ``m`` its line of the plan.
"""

from __future__ import annotations

from math import ceil, exp, floor, isfinite, nan, sqrt

from hilserver.numerics.arrays import Floats, Matrix
from hilserver.numerics.compilable import compilable
from hilserver.numerics.flow import drop_of_root, slope_of_drop
from hilserver.numerics.fluid import capacitance
from hilserver.numerics.shape import clip
from hilserver.tick.codes import ABSURD
from hilserver.tick.plan import (
    GAINS,
    GRID,
    MEASUREMENTS,
    RATES,
    REMEMBERED,
    SENSED,
    STATES,
    SUBSTEPS_OF_MACHINE,
    CylinderRecord,
)
from hilserver.tick.records import cells_of
from hilserver.tick.row import CylinderState

MIN_PRESSURE = -1e5
"""Pa gauge; the estimate does not fall below a vacuum."""
LEAST_PRESSURE = 1e5
"""Pa gauge, below which the walls of hoses are as stiff as there."""
NEGLIGIBLE = 1e-3
"""Fraction of a pressure error that decays in a step, below which it counts as constant."""

FIRST_FLOW = CylinderState.names().index("flow_A")
MOTION, SPEED = (CylinderState.names().index(name) for name in "xv")


@compilable
def move_cylinder(q_A: float, q_B: float, k: CylinderState, m: CylinderRecord, h: float) -> None:
    """Advance pressures and motion by ``h`` seconds with the mean flows of the interval (midpoint rule).

    At the ends of the stroke the piston is at rest. (A motor has none.)
    """
    p_A, p_B, x, v = k.p_A, k.p_B, k.x, k.v
    damping = contact_damping(k, m)
    half, per_mass = 0.5 * h, h / m.mass
    force = net_force(p_A, p_B, v, k.F, damping, m)
    mid_A = p_A + (q_A - taken_A(p_A, p_B, x, v, force, m)) * (half / chamber_A(x, p_A, m))
    mid_B = p_B + (q_B - taken_B(p_A, p_B, x, v, force, m)) * (half / chamber_B(x, p_B, m))
    mid_v = v + 0.5 * per_mass * force
    mid_x = x + half * v
    mid_F = k.F + half * k.stiffness * v
    force = net_force(mid_A, mid_B, mid_v, mid_F, damping, m)
    C_A, C_B = chamber_A(mid_x, mid_A, m), chamber_B(mid_x, mid_B, m)
    more_A = (q_A - taken_A(mid_A, mid_B, mid_x, mid_v, force, m)) * (h / C_A)
    more_B = (q_B - taken_B(mid_A, mid_B, mid_x, mid_v, force, m)) * (h / C_B)
    k.p_A, k.void_A = filled(p_A, k.void_A, more_A, C_A, m)
    k.p_B, k.void_B = filled(p_B, k.void_B, more_B, C_B, m)
    k.v = v + per_mass * force
    k.x = x + h * mid_v
    k.F += h * k.stiffness * mid_v
    if m.stroke > 0.0 and ((k.x < 0.0 and k.v < 0.0) or (k.x > m.stroke and k.v > 0.0)):
        k.x, k.v = clip(k.x, 0.0, m.stroke), 0.0


@compilable
def filled(p: float, void: float, more: float, C: float, m: CylinderRecord) -> tuple[float, float]:
    """Pressure and void of a chamber whose pressure would rise by ``more``. (A motor passes its void on.)"""
    if p + more >= MIN_PRESSURE and void == 0.0:
        return p + more, 0.0
    missing = void - (p + more - MIN_PRESSURE) * C
    if missing > 0.0:
        return MIN_PRESSURE, missing if m.stroke > 0.0 else 0.0
    return MIN_PRESSURE - missing / C, 0.0


@compilable
def contact_damping(k: CylinderState, m: CylinderRecord) -> float:
    """Damping of a contact, N·s/m: the least at which it does not oscillate together with the mass."""
    return 0.0 if k.stiffness == 0.0 else 2.0 * sqrt(k.stiffness * m.mass)


@compilable
def mean_flow(q: float, slope: float, swept: float, C: float, h: float) -> float:
    """Mean flow into a chamber over ``h`` seconds: ``q`` at first, it changes with the pressure by ``slope``.

    Exact for a constant slope, so that it is stable for a chamber of any size. ``swept``: what the piston takes up.
    """
    a = -slope * h / C
    return q - a * share_of_rise(a) * (q - swept)


@compilable
def share_of_rise(a: float) -> float:
    """Mean rise of a pressure over a step, as a fraction of the rise at its initial rate; ``a``: step per time
    constant.

    >>> round(share_of_rise(1e-9), 6), round(share_of_rise(1.0), 6), round(100.0 * share_of_rise(100.0), 6)
    (0.5, 0.367879, 0.99)
    """
    if a < NEGLIGIBLE:
        return 0.5
    constant = 1.0 / a  # the time constant, in steps
    return float((1.0 - (1.0 - exp(-a)) * constant) * constant)


@compilable
def chamber_A(x: float, p: float, m: CylinderRecord) -> float:
    """Capacitance of chamber A, m³/Pa."""
    C_oil = capacitance(m.dead_A + m.area_A * clip(x, 0.0, m.stroke), p, m.B_o, m.alpha_0, m.kappa, m.p_0)
    return C_oil + walls(m.hose_A, p)


@compilable
def chamber_B(x: float, p: float, m: CylinderRecord) -> float:
    """Capacitance of chamber B, m³/Pa."""
    V_B = m.dead_B + m.area_B * (m.stroke - clip(x, 0.0, m.stroke))
    return capacitance(V_B, p, m.B_o, m.alpha_0, m.kappa, m.p_0) + walls(m.hose_B, p)


@compilable
def walls(hose: float, p: float) -> float:
    """Capacitance of the walls of hoses, m³/Pa."""
    return hose / sqrt(max(p, LEAST_PRESSURE)) if hose > 0.0 else 0.0


@compilable
def behind_A(x: float, p: float, m: CylinderRecord) -> float:
    """The part of chamber A's capacitance behind the restriction, m³/Pa."""
    V_A = m.dead_A - m.line_A + m.area_A * clip(x, 0.0, m.stroke)
    return capacitance(V_A, p, m.B_o, m.alpha_0, m.kappa, m.p_0)


@compilable
def behind_B(x: float, p: float, m: CylinderRecord) -> float:
    """The part of chamber B's capacitance behind the restriction, m³/Pa."""
    V_B = m.dead_B - m.line_B + m.area_B * (m.stroke - clip(x, 0.0, m.stroke))
    return capacitance(V_B, p, m.B_o, m.alpha_0, m.kappa, m.p_0)


@compilable
def drop_A(v: float, m: CylinderRecord) -> float:
    """Pressure drop from port A to the piston at this speed of the piston, Pa."""
    return drop_of_root(m.root_A * v, m.p_tr_A) if m.root_A > 0.0 else 0.0


@compilable
def drop_B(v: float, m: CylinderRecord) -> float:
    """The same from the piston to port B."""
    return drop_of_root(m.root_B * v, m.p_tr_B) if m.root_B > 0.0 else 0.0


@compilable
def net_force(p_A: float, p_B: float, v: float, F: float, damping: float, m: CylinderRecord) -> float:
    """Force that accelerates the mass, N, at these pressures at the ports."""
    return m.area_A * (p_A - drop_A(v, m)) - m.area_B * (p_B + drop_B(v, m)) - F - damping * v


@compilable
def net_force_now(k: CylinderState, m: CylinderRecord) -> float:
    """The same in the present state."""
    return net_force(k.p_A, k.p_B, k.v, k.F, contact_damping(k, m), m)


@compilable
def taken_A(p_A: float, p_B: float, x: float, v: float, force: float, m: CylinderRecord) -> float:
    """Flow that chamber A passes on at constant pressure at the port, m³/s.

    It goes to the moving piston, and past it. Behind a restriction, the accelerating piston lowers the pressure, and
    the oil there expands.
    """
    taken = m.area_A * v + leakage(p_A, p_B, v, m) + m.case_leakage * p_A
    if m.root_A > 0.0:
        taken -= behind_A(x, p_A, m) * m.root_A * slope_of_drop(m.root_A * v, m.p_tr_A) * force / m.mass
    return taken


@compilable
def taken_B(p_A: float, p_B: float, x: float, v: float, force: float, m: CylinderRecord) -> float:
    """The same of chamber B."""
    taken = -m.area_B * v - leakage(p_A, p_B, v, m) + m.case_leakage * p_B
    if m.root_B > 0.0:
        taken += behind_B(x, p_B, m) * m.root_B * slope_of_drop(m.root_B * v, m.p_tr_B) * force / m.mass
    return taken


@compilable
def taken_now(is_B: int, k: CylinderState, m: CylinderRecord) -> float:
    """The same of either in the present state."""
    force = net_force_now(k, m)
    if is_B:
        return taken_B(k.p_A, k.p_B, k.x, k.v, force, m)
    return taken_A(k.p_A, k.p_B, k.x, k.v, force, m)


@compilable
def leakage(p_A: float, p_B: float, v: float, m: CylinderRecord) -> float:
    """Flow past the piston from A to B at these pressures at the ports, m³/s."""
    return m.leakage * (p_A - p_B - (drop_A(v, m) + drop_B(v, m)))


@compilable
def volume_into(is_B: int, k: CylinderState, m: CylinderRecord) -> float:
    """Oil that has entered port A or B since the start, m³.

    Behind a restriction the chamber's pressure is not that of the port, by which `add_volumes` counts.
    """
    if is_B:
        return k.volume_B + behind_B(k.x, k.p_B, m) * drop_B(k.v, m)
    return k.volume_A - behind_A(k.x, k.p_A, m) * drop_A(k.v, m)


@compilable
def start_cylinder(p_A: float, p_B: float, motion: float, k: CylinderState, m: CylinderRecord) -> None:
    """Start in equilibrium with the measured pressures, at rest or, a motor, with its measured speed.

    ``motion``: position, of a motor speed. After a gap, the volumes go on.
    """
    volume_A, volume_B = (k.volume_A, k.volume_B) if is_waiting(k) else (0.0, 0.0)
    cells_of(k)[:] = 0.0
    k.volume_A, k.volume_B = volume_A, volume_B
    k.p_A, k.p_B, k.x = p_A, p_B, clip(motion, 0.0, m.stroke)
    if m.stroke == 0.0:
        k.v = motion
    k.F = m.area_A * p_A - m.area_B * p_B
    k.slow_x, k.slow_F, k.slow_pressed, k.free_F = k.x, k.F, k.F, k.F


@compilable
def wait_for_samples(age: float, k: CylinderState) -> None:
    """After a gap: the state is unknown until samples are younger than ``age`` s, which the caller lets grow with time.

    Volumes stay as they are.
    """
    k.v, k.waits = nan, age


@compilable
def is_waiting(k: CylinderState) -> bool:
    """Whether the estimate waits for samples after a gap."""
    return bool(isfinite(k.waits) and k.waits != 0.0)


@compilable
def is_known(k: CylinderState) -> bool:
    """Whether the cylinder's estimate has started, and is neither absurd nor infinite."""
    known, cells = 0, cells_of(k)
    for i in range(cells.shape[0]):
        known += abs(cells[i]) < ABSURD
    return bool(known == cells.shape[0])


@compilable
def interpolate_gains(table: Matrix, x: float, rates: tuple[float, float], m: CylinderRecord, gains: Floats) -> None:
    """Write the line of gains at position ``x`` and these rates per tick into ``gains``.

    ``table``: this cylinder's lines of plan.kalman. A pressure that its valve settles faster than at the highest rate
    of the table is corrected by as much less.
    """
    along, rate_A, rate_B = share_of_stroke(x, m) * (GRID - 1), place_of_rate(rates[0]), place_of_rate(rates[1])
    i, j = min(floor(rate_A), len(RATES) - 2), min(floor(rate_B), len(RATES) - 2)
    k = min(floor(along), GRID - 2)
    gains[:] = 0.0
    for corner in range(8):
        up_A, up_B, up = corner // 4, corner // 2 % 2, corner % 2
        share = weight(rate_A - i, up_A) * weight(rate_B - j, up_B) * weight(along - k, up)
        if share > 0.0:
            line = ((i + up_A) * len(RATES) + j + up_B) * GRID + k + up
            for column in range(gains.shape[0]):
                gains[column] += share * table[line, column]
    for side in range(2):
        if rates[side] > RATES[-1]:
            weaken(side, RATES[-1] / rates[side], gains)


@compilable
def share_of_stroke(x: float, m: CylinderRecord) -> float:
    """Position as a fraction of the stroke; 0 for a motor, whose chambers do not change."""
    return clip(x / m.stroke, 0.0, 1.0) if m.stroke > 0.0 else 0.0


@compilable
def weaken(side: int, share: float, gains: Floats) -> None:
    """Reduce the gains for a pressure, present and past, to this share."""
    s = side
    while GAINS + s * MEASUREMENTS < gains.shape[0]:
        for j in range(MEASUREMENTS):
            gains[GAINS + s * MEASUREMENTS + j] *= share
        s += STATES if s == side else SENSED


@compilable
def weight(past: float, up: int) -> float:
    """Weight of the upper or lower neighbour of a value that lies ``past`` the lower one."""
    return past if up == 1 else 1.0 - past


@compilable
def place_of_rate(rate: float) -> float:
    """Place of a rate among RATES, linear in r / (1 + r) between two of them."""
    place, share = len(RATES) - 1.0, rate / (1.0 + rate)
    for i in range(len(RATES) - 1, 0, -1):
        low, high = RATES[i - 1] / (1.0 + RATES[i - 1]), RATES[i] / (1.0 + RATES[i])
        if share < high:
            place = i - 1 + max(share - low, 0.0) / (high - low)
    return place


@compilable
def correct_cylinder(
    innovation: Floats,
    late: Floats,
    gains: Floats,
    rates: tuple[float, float],
    past: Floats,
    k: CylinderState,
    change: CylinderState,
    m: CylinderRecord,
    dt: float,
) -> None:
    """Correct the estimate by the differences between measured and expected values.

    ``innovation``: of p_A, p_B, x, Q_A, Q_B (0 if there is no sensor); ``late``: how many ticks of ``dt`` seconds
    each sample is older than its sensor's delay; ``gains``: as from `interpolate_gains`, for these ``rates`` per tick;
    ``past``: p_A, p_B and x of this and the last ticks; ``change``: scratch. The past values are corrected together
    with the present ones, so that an error that is measured with a delay is not corrected twice.
    """
    for j in range(MEASUREMENTS):
        if innovation[j] != 0.0:
            correct_past(j, innovation[j], late[j], gains, past, m)
            correct_present(j, innovation[j], late[j], gains, rates, past, k, change, m, dt)


@compilable
def correct_past(j: int, innovation: float, late: float, gains: Floats, past: Floats, m: CylinderRecord) -> None:
    """Correct p_A, p_B and x (of a motor v) up to the time of sample ``j``, ``late`` ticks ago."""
    ticks = past.shape[1]
    for lag in range(max(ceil(late), 1), ticks):
        back = min(floor(lag - late), ticks - 2)
        share = lag - late - back
        for s in range(SENSED):
            newer = gain_of(sensed(s, m) if back == 0 else STATES + SENSED * (back - 1) + s, j, gains)
            older = gain_of(STATES + SENSED * back + s, j, gains)
            past[s, lag] += (newer + share * (older - newer)) * innovation


@compilable
def correct_present(
    j: int,
    innovation: float,
    late: float,
    gains: Floats,
    rates: tuple[float, float],
    past: Floats,
    k: CylinderState,
    change: CylinderState,
    m: CylinderRecord,
    dt: float,
) -> None:
    """Correct the present state by sample ``j``, and what has passed since the sample was taken.

    The gains hold at that time. From there the correction moves on until now as the cylinder itself does: added
    unchanged, it would excite the oscillation that it is to follow.
    """
    cells, changes = cells_of(k), cells_of(change)
    for s in range(STATES):
        changes[s] = gain_of(s, j, gains) * innovation
    while late > 0.0:
        lag = ceil(late) - 1
        move_change(change, k, m, (late - lag) * dt, (rates[0] / dt, rates[1] / dt))
        for s in range(SENSED):
            past[s, lag] += changes[sensed(s, m)]
        late = lag
    for s in range(STATES):
        cells[s] += changes[s]
    for s in range(SENSED):
        past[s, 0] = cells[sensed(s, m)]


@compilable
def sensed(s: int, m: CylinderRecord) -> int:
    """The state that a sensor of p_A, p_B or of the motion shows: of a motor the speed."""
    return SPEED if s == MOTION and m.stroke == 0.0 else s


@compilable
def gain_of(s: int, j: int, gains: Floats) -> float:
    """Gain of measurement ``j`` for state ``s``."""
    return float(gains[GAINS + s * MEASUREMENTS + j])


@compilable
def move_change(
    change: CylinderState, k: CylinderState, m: CylinderRecord, time: float, rates: tuple[float, float]
) -> None:
    """Advance a small change of the state ``k`` by ``time`` seconds: `move_cylinder`, linearised.

    ``rates``: those at which the valves settle the pressures, 1/s. Restrictions, which hardly damp a small change, are
    left out.
    """
    d, h = change, time / SUBSTEPS_OF_MACHINE
    C_A, C_B = chamber_A(k.x, k.p_A, m), chamber_B(k.x, k.p_B, m)
    slope_A, slope_B = -rates[0] * C_A, -rates[1] * C_B
    damping = contact_damping(k, m)
    for _ in range(SUBSTEPS_OF_MACHINE):
        q_A = mean_flow(d.bias_A + slope_A * d.p_A, slope_A, m.area_A * d.v, C_A, h)
        q_B = mean_flow(d.bias_B + slope_B * d.p_B, slope_B, -m.area_B * d.v, C_B, h)
        past = m.leakage * (d.p_A - d.p_B)
        q_A, q_B = q_A - m.case_leakage * d.p_A, q_B - m.case_leakage * d.p_B
        mid_A = d.p_A + 0.5 * h * (q_A - m.area_A * d.v - past) / C_A
        mid_B = d.p_B + 0.5 * h * (q_B + m.area_B * d.v + past) / C_B
        mid_v = d.v + 0.5 * h * (m.area_A * d.p_A - m.area_B * d.p_B - d.F - damping * d.v) / m.mass
        d.p_A += h * (q_A - m.area_A * mid_v - past) / C_A
        d.p_B += h * (q_B + m.area_B * mid_v + past) / C_B
        mid_F = d.F + 0.5 * h * k.stiffness * d.v
        d.v += h * (m.area_A * mid_A - m.area_B * mid_B - mid_F - damping * mid_v) / m.mass
        d.F += h * k.stiffness * mid_v
        d.x += h * mid_v


@compilable
def deviation_of(column: int, table: Matrix, k: CylinderState, m: CylinderRecord) -> float:
    """Standard deviation of an estimated flow at the present position, m³/s (columns DEVIATION_A, DEVIATION_B).

    It is that with closed valves, from the first lines of ``table``: open ones make pressures more certain, not flows.
    """
    place = share_of_stroke(k.x, m) * (GRID - 1)
    i = min(floor(place), GRID - 2)
    return float(table[i, column] + (place - i) * (table[i + 1, column] - table[i, column]))


@compilable
def remember(past: Floats, k: CylinderState, m: CylinderRecord) -> None:
    """Store p_A, p_B, x (of a motor v) and the flows of this tick, the newest first."""
    cells = cells_of(k)
    for s in range(REMEMBERED):
        for j in range(past.shape[1] - 1, 0, -1):
            past[s, j] = past[s, j - 1]
        past[s, 0] = cells[sensed(s, m)] if s < SENSED else cells[FIRST_FLOW + s - SENSED]


@compilable
def expected(past: Floats, s: int, age: float) -> float:
    """The estimate ``age`` ticks ago, linearly interpolated between ticks; NaN if that is not remembered."""
    if not 0.0 <= age <= past.shape[1] - 1:
        return nan
    i = min(floor(age), past.shape[1] - 2)
    return float(past[s, i] + (age - i) * (past[s, i + 1] - past[s, i]))


@compilable
def add_volumes(p_A: float, p_B: float, motion: float, k: CylinderState, m: CylinderRecord, time: float) -> None:
    """Add the oil that has entered the chambers since ``p_A``, ``p_B`` and ``motion`` (x, of a motor v), m³.

    It is the swept volume, the compression, and what has leaked. The sum is the integral of the flow into the port; of
    a cylinder, all but the leakage is tied to the measured position and pressures, and does not drift. ``time``: s.
    """
    x, swept = motion, k.x - motion
    if m.stroke == 0.0:
        x, swept = k.x, 0.5 * time * (motion + k.v)
    mid_x, mid_A, mid_B = 0.5 * (x + k.x), 0.5 * (p_A + k.p_A), 0.5 * (p_B + k.p_B)
    past, out = time * leakage(mid_A, mid_B, k.v, m), time * m.case_leakage
    k.volume_A += m.area_A * swept + chamber_A(mid_x, mid_A, m) * (k.p_A - p_A) + past + out * mid_A
    k.volume_B += -m.area_B * swept + chamber_B(mid_x, mid_B, m) * (k.p_B - p_B) - past + out * mid_B


@compilable
def note_flows(q_A: float, q_B: float, k: CylinderState) -> None:
    """The flows into the ports: those expected of the valves, corrected by the sensors."""
    k.flow_A, k.flow_B = q_A + k.bias_A, q_B + k.bias_B
