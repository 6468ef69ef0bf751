r"""The machine as the bridge knows it: a cylinder, the mass it moves, and a force that nobody measures.

.. math::
   C_A \dot p_A = Q_A - A_A v, \quad C_B \dot p_B = Q_B + A_B v, \quad
   \dot x = v, \quad m \dot v = A_A p_A - A_B p_B - F

C is the capacitance of a chamber (volume by effective bulk modulus). F holds load, gravity and friction, Q what the
real valve should pass and a bias: both are random walks that a Kalman filter follows from the measured pressures,
position and flows. So the estimate of a flow needs no flow sensor, and the pressures are known at this moment although
their sensors are late. The filter's gains are tables over the stroke (:mod:`hilserver.rig.kalman`).

``k`` is the cylinder's block of the row, ``m`` its line of the plan.
"""

from __future__ import annotations

from math import floor, isfinite

from hilserver.numerics.arrays import Floats
from hilserver.numerics.fluid import capacitance
from hilserver.numerics.shape import clip
from hilserver.tick.bridge.columns import (
    ALPHA_0,
    AREA_A,
    AREA_B,
    B_O,
    BIAS_A,
    BIAS_B,
    DEAD_A,
    DEAD_B,
    FLOW_A,
    FLOW_B,
    FORCE,
    GAINS,
    GRID,
    KAPPA,
    MASS,
    MEASUREMENTS,
    P_0,
    P_A,
    P_B,
    REMEMBERED,
    SENSED,
    STATES,
    STROKE,
    VOLUME_A,
    VOLUME_B,
    V,
    X,
)

LEAST_PRESSURE = -1e5
"""Pa gauge; the estimate does not go below a vacuum."""


def move_cylinder(q_A: float, q_B: float, slope_A: float, slope_B: float, k: Floats, m: Floats, h: float) -> None:
    """Follow pressures and motion for ``h`` seconds under flows that are those of the interval's middle: midpoint rule.

    ``slope``: by which a flow changes with its pressure meanwhile, m³/(s·Pa), 0 or negative. It counts as in the
    implicit midpoint rule, where it is a capacitance more: a stiff supply holds a small chamber within less than h.
    At the ends of the stroke the piston rests.
    """
    p_A, p_B, x, v = k[P_A], k[P_B], k[X], k[V]
    half = 0.5 * h
    mid_A = p_A + half * (q_A - m[AREA_A] * v) / (chamber_A(x, p_A, m) - half * slope_A)
    mid_B = p_B + half * (q_B + m[AREA_B] * v) / (chamber_B(x, p_B, m) - half * slope_B)
    mid_v = v + half * (m[AREA_A] * p_A - m[AREA_B] * p_B - k[FORCE]) / m[MASS]
    mid_x = x + half * v
    more_A = h * (q_A - m[AREA_A] * mid_v) / (chamber_A(mid_x, mid_A, m) - half * slope_A)
    more_B = h * (q_B + m[AREA_B] * mid_v) / (chamber_B(mid_x, mid_B, m) - half * slope_B)
    k[P_A], k[P_B] = max(p_A + more_A, LEAST_PRESSURE), max(p_B + more_B, LEAST_PRESSURE)
    k[V] = v + h * (m[AREA_A] * mid_A - m[AREA_B] * mid_B - k[FORCE]) / m[MASS]
    k[X] = x + h * mid_v
    if (k[X] < 0.0 and k[V] < 0.0) or (k[X] > m[STROKE] and k[V] > 0.0):
        k[X], k[V] = clip(k[X], 0.0, m[STROKE]), 0.0


def chamber_A(x: float, p: float, m: Floats) -> float:
    """Capacitance of chamber A, m³/Pa."""
    return capacitance(m[DEAD_A] + m[AREA_A] * clip(x, 0.0, m[STROKE]), p, m[B_O], m[ALPHA_0], m[KAPPA], m[P_0])


def chamber_B(x: float, p: float, m: Floats) -> float:
    """Capacitance of chamber B, m³/Pa."""
    V_B = m[DEAD_B] + m[AREA_B] * (m[STROKE] - clip(x, 0.0, m[STROKE]))
    return capacitance(V_B, p, m[B_O], m[ALPHA_0], m[KAPPA], m[P_0])


def start_cylinder(p_A: float, p_B: float, x: float, k: Floats, m: Floats) -> None:
    """Begin at rest and in equilibrium with the measured pressures."""
    k[:] = 0.0
    k[P_A], k[P_B], k[X] = p_A, p_B, clip(x, 0.0, m[STROKE])
    k[FORCE] = m[AREA_A] * p_A - m[AREA_B] * p_B


def is_known(k: Floats) -> bool:
    """Whether the cylinder's estimate has begun, and is still made of numbers."""
    known = 0
    for i in range(k.shape[0]):
        known += isfinite(k[i])
    return bool(known == k.shape[0])


def correct_cylinder(innovation: Floats, gains: Floats, past: Floats, k: Floats, m: Floats) -> None:
    """Take what the sensors said against what was expected of them into the estimate.

    ``innovation``: of p_A, p_B, x, Q_A, Q_B (0 where there is no sensor); ``gains``: this cylinder's lines of
    plan.observer; ``past``: p_A, p_B and x of this and the last ticks. What was is corrected with what is, so that an
    error that is seen late is not corrected twice.
    """
    place = clip(k[X] / m[STROKE], 0.0, 1.0) * (GRID - 1)
    i = min(floor(place), GRID - 2)
    share = place - i
    for s in range(STATES + SENSED * (past.shape[1] - 1)):
        total = 0.0
        for j in range(MEASUREMENTS):
            column = GAINS + s * MEASUREMENTS + j
            total += (gains[i, column] + share * (gains[i + 1, column] - gains[i, column])) * innovation[j]
        if s < STATES:
            k[s] += total
        else:
            past[(s - STATES) % SENSED, 1 + (s - STATES) // SENSED] += total
    for s in range(SENSED):
        past[s, 0] = k[s]


def deviation_of(column: int, gains: Floats, k: Floats, m: Floats) -> float:
    """Standard deviation of an estimated flow at the present position, m³/s (columns DEVIATION_A, DEVIATION_B)."""
    place = clip(k[X] / m[STROKE], 0.0, 1.0) * (GRID - 1)
    i = min(floor(place), GRID - 2)
    return float(gains[i, column] + (place - i) * (gains[i + 1, column] - gains[i, column]))


def remember(past: Floats, k: Floats) -> None:
    """Keep p_A, p_B, x and the flows of this tick, the newest first."""
    for s in range(REMEMBERED):
        for j in range(past.shape[1] - 1, 0, -1):
            past[s, j] = past[s, j - 1]
        past[s, 0] = k[s] if s < SENSED else k[FLOW_A + s - SENSED]


def expected(past: Floats, s: int, age: float) -> float:
    """What was estimated ``age`` ticks ago, between the ticks on a straight line."""
    i = min(floor(age), past.shape[1] - 2)
    return float(past[s, i] + (age - i) * (past[s, i + 1] - past[s, i]))


def add_volumes(p_A: float, p_B: float, x: float, k: Floats, m: Floats) -> None:
    """Add up the oil that went into the chambers since ``p_A``, ``p_B``, ``x``: swept volume and compression, m³.

    It is the integral of the flow into the port, and bound to the measured position and pressures: it does not drift.
    """
    mid_x = 0.5 * (x + k[X])
    k[VOLUME_A] += m[AREA_A] * (k[X] - x) + chamber_A(mid_x, 0.5 * (p_A + k[P_A]), m) * (k[P_A] - p_A)
    k[VOLUME_B] += -m[AREA_B] * (k[X] - x) + chamber_B(mid_x, 0.5 * (p_B + k[P_B]), m) * (k[P_B] - p_B)


def note_flows(q_A: float, q_B: float, k: Floats) -> None:
    """The flows into the ports: those expected of the valves, corrected by what the sensors say of them."""
    k[FLOW_A], k[FLOW_B] = q_A + k[BIAS_A], q_B + k[BIAS_B]
