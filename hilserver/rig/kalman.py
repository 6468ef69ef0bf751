r"""Gains of the Kalman filter that follows a cylinder (:mod:`hilserver.tick.cylinder`), as tables over its stroke.

States in the filter's units: p_A, p_B in bar, x in mm, v in mm/s, F in A_A·bar, bias_A, bias_B in thousandths of the
nominal flow. Between ticks the linearised cylinder moves without flow but the biases; noise drives force and biases
(random walks: load, friction; what the valves' models miss) and a little of all else. The stationary gain follows from
the discrete Riccati equation. Source: Kalman, A new approach to linear filtering, J. Basic Eng. 82 (1960) 35.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from hilserver.numerics.arrays import Floats, Integers
from hilserver.tick import columns as c
from hilserver.tick.bridge import columns as b
from hilserver.tick.cylinder import chamber_A, chamber_B

if TYPE_CHECKING:
    from hilserver.rig.settings import RigSettings
    from hilserver.tick.plan import Plan

TYPICAL_PRESSURE = 5e6
"""Pa, for the chambers' capacitance."""
DRIFT_FORCE = 0.1
"""Share of A_A·100 bar by which load and friction may wander in 0.1 s (standard deviation)."""
DRIFT_FLOW = 0.02
"""Share of the nominal flow by which a flow may wander from what is expected of its valve in 0.1 s."""
DRIFT_UNKNOWN = 0.3
"""The same where no valve is known at the port."""
UNSURE_POSITION = 1e-7
"""m per sqrt(s): keeps the filter from trusting its integration of the speed for ever."""
LEAST_NOISE = 0.1
"""Least noise that is reckoned with, per tick of a sensor's delay and one more: bar, 0.1 mm, tenths of nominal flow.

A filter that trusts a late sensor more than that corrects too hastily what its model does not know.
"""
BAR = 1e5


def observer_table(settings: RigSettings, plan: Plan) -> Floats:
    """GRID lines per cylinder: gains (SI), and standard deviations of the flows estimated into A and B."""
    dt, first = float(plan.loop[c.DT]), int(plan.layout[c.CHANNEL])
    deviations = [channel.deviation() for channel in settings.channels.values()]
    length, tables = int(plan.layout[c.CYLINDER_PAST]), []
    for line in plan.cylinder:
        sensors = [int(line[s]) for s in (b.SENSOR_A, b.SENSOR_B, b.SENSOR_X, b.SENSOR_QA, b.SENSOR_QB)]
        noise = [deviations[s - first] if s >= 0 else None for s in sensors]
        valves = [plan.valve[int(line[i]), b.Q_NOMINAL] if line[i] >= 0 else None for i in (b.VALVE_A, b.VALVE_B)]
        for x in np.linspace(0.0, line[b.STROKE], b.GRID):
            tables.append(_gains(line, float(x), noise, valves, dt, length))
    return np.array(tables, dtype=np.float64).reshape(len(tables), -1 if tables else 0)


def _gains(
    m: Floats, x: float, noise: list[float | None], nominal: list[float | None], dt: float, length: int
) -> Floats:
    """One line of the table: at position x."""
    from scipy.linalg import solve_discrete_are  # here: processes that only read plans start without it

    usual = max((q for q in nominal if q is not None), default=1e-3)
    scale = np.array([BAR, BAR, 1e-3, 1e-3, m[b.AREA_A] * BAR, 1e-3 * usual, 1e-3 * usual])
    C_A, C_B = chamber_A(x, TYPICAL_PRESSURE, m), chamber_B(x, TYPICAL_PRESSURE, m)
    motion = np.zeros((b.STATES, b.STATES))
    motion[b.P_A, [b.V, b.BIAS_A]] = -m[b.AREA_A] / C_A, 1.0 / C_A
    motion[b.P_B, [b.V, b.BIAS_B]] = m[b.AREA_B] / C_B, 1.0 / C_B
    motion[b.X, b.V] = 1.0
    motion[b.V, [b.P_A, b.P_B, b.FORCE]] = m[b.AREA_A] / m[b.MASS], -m[b.AREA_B] / m[b.MASS], -1.0 / m[b.MASS]
    motion = motion * scale[None, :] / scale[:, None]
    wander = np.zeros(b.STATES)
    wander[b.FORCE] = DRIFT_FORCE * m[b.AREA_A] * 1e7 / sqrt(0.1)
    for state, q in ((b.BIAS_A, nominal[0]), (b.BIAS_B, nominal[1])):
        wander[state] = (DRIFT_FLOW * q if q is not None else DRIFT_UNKNOWN * usual) / sqrt(0.1)
    wander[b.X] = UNSURE_POSITION
    step, spread = _discrete(motion, np.diag((wander / scale) ** 2), dt)
    step, spread, scale = _with_past(step, spread, scale, length)
    look, unit = _look(m, length, scale, 0.1 * usual)
    known: Integers = np.array([s for s in range(len(scale)) if not _unseen(s, noise)])
    rows: Integers = np.array([i for i, sigma in enumerate(noise) if sigma is not None])
    late = [1.0 + m[b.AGE_A], 1.0 + m[b.AGE_B], 1.0 + m[b.AGE_X], 1.0, 1.0]
    sigma = np.array([max(noise[i] or 0.0, LEAST_NOISE * late[i] * unit[i]) / unit[i] for i in rows])
    seen, square = look[np.ix_(rows, known)], np.diag(sigma**2)
    P = solve_discrete_are(step[np.ix_(known, known)].T, seen.T, spread[np.ix_(known, known)], square)
    gain = P @ seen.T @ np.linalg.inv(seen @ P @ seen.T + square)
    after = (np.eye(len(known)) - gain @ seen) @ P
    full = np.zeros((len(scale), b.MEASUREMENTS))
    full[np.ix_(known, rows)] = gain * scale[known][:, None] / unit[rows][None, :]
    spreads = np.zeros(len(scale))
    spreads[known] = np.sqrt(np.maximum(np.diag(after), 0.0)) * scale[known]
    return np.concatenate([spreads[[b.BIAS_A, b.BIAS_B]], full.ravel()])


def _with_past(step: Floats, spread: Floats, scale: Floats, length: int) -> tuple[Floats, Floats, Floats]:
    """The same with p_A, p_B and x of the last ``length - 1`` ticks as states: each tick they move on by one place."""
    n = b.STATES + b.SENSED * (length - 1)
    longer, noisier = np.zeros((n, n)), np.zeros((n, n))
    longer[: b.STATES, : b.STATES], noisier[: b.STATES, : b.STATES] = step, spread
    for s in range(b.STATES, n):
        longer[s, s - b.STATES if s < b.STATES + b.SENSED else s - b.SENSED] = 1.0
    return longer, noisier, np.concatenate([scale, np.tile(scale[: b.SENSED], length - 1)])


def _look(m: Floats, length: int, scale: Floats, q: float) -> tuple[Floats, Floats]:
    """What the sensors see of the states, in their own units (bar, 0.1 mm, ``q``), and these units, SI."""
    unit = np.array([BAR, BAR, 1e-4, q, q])
    look = np.zeros((b.MEASUREMENTS, len(scale)))
    for i, age in enumerate((m[b.AGE_A], m[b.AGE_B], m[b.AGE_X])):
        ticks = min(int(age), length - 2)
        for back, share in ((ticks, 1.0 - (age - ticks)), (ticks + 1, age - ticks)):
            place = i if back == 0 else b.STATES + b.SENSED * (back - 1) + i
            look[i, place] += share * scale[i] / unit[i]
    look[3, b.BIAS_A], look[4, b.BIAS_B] = scale[b.BIAS_A] / q, scale[b.BIAS_B] / q
    return look, unit


def _unseen(state: int, noise: list[float | None]) -> bool:
    """Whether a state can't be told from the sensors there are: position and biases need a position or flow sensor.

    Port B needs its pressure.
    """
    p_B, x, q_A, q_B = noise[1], noise[2], noise[3], noise[4]
    if state >= b.STATES:
        state = (state - b.STATES) % b.SENSED
    if state == b.X:
        return x is None
    if state == b.BIAS_A:
        return x is None and q_A is None
    if state == b.BIAS_B:
        return p_B is None or (x is None and q_A is None and q_B is None)
    return state == b.P_B and p_B is None


def _discrete(motion: Floats, drive: Floats, dt: float) -> tuple[Floats, Floats]:
    """Transition over a tick and the noise that comes in during it. Source: Van Loan, IEEE TAC 23 (1978) 395."""
    from scipy.linalg import expm

    n = len(motion)
    block = np.zeros((2 * n, 2 * n))
    block[:n, :n], block[:n, n:], block[n:, n:] = -motion, drive, motion.T
    power = expm(block * dt)
    step: Floats = power[n:, n:].T
    return step, step @ power[:n, n:]
