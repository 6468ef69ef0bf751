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
rates (:mod:`hilserver.tick.correction`): with those of closed valves it would be unstable.

A hydraulic motor obeys the same equations by its revolutions: the displacement V stands for both areas,
:math:`4\pi^2 J` for the mass, the work per revolution for the force (:math:`V\,\Delta p = 2\pi\,T`). Its chambers do
not change, its stroke is 0, and its sensor shows the speed instead of the position. What leaks to its case,
:math:`c_e\,p`, leaves each chamber.

``k`` is the cylinder's block of the row, ``m`` its line of the plan.
"""

from __future__ import annotations

from math import exp, floor, isfinite, nan, sqrt

from hilserver.numerics.arrays import Floats
from hilserver.numerics.compilable import compilable
from hilserver.numerics.flow import drop_of_root, slope_of_drop
from hilserver.numerics.fluid import capacitance
from hilserver.numerics.shape import clip
from hilserver.tick.codes import ABSURD
from hilserver.tick.plan import REMEMBERED, SENSED, CylinderRecord
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
def sensed(s: int, m: CylinderRecord) -> int:
    """The state that a sensor of p_A, p_B or of the motion shows: of a motor the speed."""
    return SPEED if s == MOTION and m.stroke == 0.0 else s


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
