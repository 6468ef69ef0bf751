r"""Gains of the Kalman filter that follows a cylinder (:mod:`hilserver.tick.cylinder`), as tables over its stroke and
the rates at which its valves settle the pressures.

States in the filter's units: p_A, p_B in bar, x in mm, v in mm/s, F in A_A·bar, bias_A, bias_B in thousandths of the
nominal flow. Between ticks the linearised cylinder moves with the biases as flows, and with the change of the valves'
flows with the pressures; noise drives force and biases (random walks: load, friction; effects that the valves' models
do not contain) and, slightly, all other states. The stationary gain follows from the discrete Riccati equation
(:mod:`hilserver.numerics.riccati`). Source: Kalman, A new approach to linear filtering, J. Basic Eng. 82 (1960) 35.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, replace
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from hilserver.compiler import standard_program
from hilserver.numerics.arrays import Floats, Integers
from hilserver.numerics.riccati import spare_cells
from hilserver.rig.sampling_lag import SlowDevices
from hilserver.tick.cylinder import chamber_A, chamber_B, sensed
from hilserver.tick.gain_tables import GAINS, PLACES_ALONG, RATES, RATES_OF_A, RATES_OF_B, Restraint
from hilserver.tick.plan import MEASUREMENTS, SENSED, STATES, CylinderRecord
from hilserver.tick.records import dtype_of, plain
from hilserver.tick.row import CylinderState
from hilserver.units import BAR

if TYPE_CHECKING:
    from hilserver.rig.settings import RigSettings
    from hilserver.tick.plan import Plan

TYPICAL_PRESSURE = 5e6
"""Pa, for the chambers' capacitance."""
DRIFT_FORCE = 0.1
"""Fraction of A_A·100 bar by which load and friction may wander in 0.1 s (standard deviation)."""
DRIFT_TORQUE = 1.0
"""The same of a motor, whose load mostly depends on its speed: friction, fans, screws. With less, the speed during an
acceleration would be explained by flows."""
DRIFT_UNKNOWN = 0.3
"""Fraction of the nominal flow by which a flow may wander in 0.1 s where no valve is known at the port.

Of a known valve it is ``flow_drift`` of the rig file.
"""
POSITION_NOISE = 1e-7
"""m per sqrt(s): keeps the filter from trusting its integration of the speed indefinitely."""
MIN_NOISE = 0.1
"""Minimum noise that is assumed, per tick of a sensor's delay and one more: bar, 0.1 mm, tenths of nominal flow.

A filter that gives a delayed sensor more weight than that corrects the errors of its model too fast.
"""
Values = tuple[float | None, ...]
"""One number per sensor; None if the cylinder has none."""
Valves = tuple[tuple[float, float] | None, ...]
"""Nominal flow, m³/s, and ``flow_drift`` of the valves at port A and B; None if there is none."""
P_A, P_B, X, V, FORCE, BIAS_A, BIAS_B = map(CylinderState.names().index, CylinderState.names()[:STATES])
"""The filter's states by number."""
FIXED: dict[Restraint, tuple[int, ...]] = {
    Restraint.NONE: (),
    Restraint.HELD: (X, V, FORCE),
    Restraint.VOID_A: (P_A, BIAS_A),
    Restraint.VOID_B: (P_B, BIAS_B),
    Restraint.VOIDS: (P_A, P_B, BIAS_A, BIAS_B),
}
"""The states that a restraint holds: a void its pressure, whatever flows, and a stop the piston, whatever the force."""


def kalman_table(settings: RigSettings, plan: Plan, slow: SlowDevices) -> Floats:
    """LINES lines per cylinder: gains (SI), and standard deviations of the flows estimated into A and B.

    Each sample of a slow device corrects the estimate once.
    """
    dt, first = plan.loop[0].dt, plan.layout[0].channel
    ticks = [slow.ticks(channel.device) for channel in settings.channels.values()]
    deviations = [channel.deviation() for channel in settings.channels.values()]
    drifts = [valve.flow_drift for valve in settings.valves.values()]
    length, lines = plan.layout[0].cylinder_past_ticks, []
    for m in plan.cylinder:
        sensors = (m.sensor_A, m.sensor_B, m.sensor_x, m.sensor_QA, m.sensor_QB)
        noise = tuple(deviations[s - first] if s >= 0 else None for s in sensors)
        periods = tuple(ticks[s - first] if s >= 0 else 1 for s in sensors)
        valves = tuple((plan.valve[i].Q_nominal, drifts[i]) if i >= 0 else None for i in (m.valve_A, m.valve_B))
        lines.append(_lines(np.array(m).tobytes(), noise, periods, valves, dt, length))
    return np.concatenate(lines) if lines else np.zeros((0, 0))


@functools.lru_cache(maxsize=64)
def _lines(cylinder: bytes, noise: Values, periods: tuple[int, ...], valves: Valves, dt: float, length: int) -> Floats:
    """The lines of one cylinder. They are kept: a process that loads variants of a rig would solve the same again."""
    m = plain(np.frombuffer(cylinder, dtype_of(CylinderRecord))[0])
    followed = _Followed.of(m, noise, periods, valves, length)
    lines = []
    for restraint in Restraint:
        restrained = followed.with_fixed(FIXED[restraint], m)
        for rate_A, rate_B in itertools.product(RATES[: RATES_OF_A[restraint]], RATES[: RATES_OF_B[restraint]]):
            for x in np.linspace(0.0, m.stroke, PLACES_ALONG[restraint]):
                lines.append(restrained.gains(m, float(x), (rate_A / dt, rate_B / dt), dt))
    return np.array(lines)


@dataclass(frozen=True)
class _Followed:
    """What is the same in all lines of a cylinder.

    ``scale``: the filter's units of all states, SI; ``drive``: noise of the first STATES, per s; ``known``, ``rows``:
    places of the states that can be determined, and of the sensors; ``seen``: what the sensors see of these states,
    with this ``variance`` and once in this number of ticks (``periods``); ``unit``: from the filter's gains to SI;
    ``fixed``: states that nothing moves.
    """

    scale: Floats
    drive: Floats
    known: Integers
    rows: Integers
    seen: Floats
    variance: Floats
    periods: Integers
    unit: Floats
    fixed: tuple[int, ...] = ()

    @classmethod
    def of(cls, m: CylinderRecord, noise: Values, periods: tuple[int, ...], valves: Valves, length: int) -> _Followed:
        """A cylinder; ``length``: ticks of the past that are states."""
        usual = max((valve[0] for valve in valves if valve is not None), default=1e-3)
        first = np.array([BAR, BAR, 1e-3, 1e-3, m.area_A * BAR, 1e-3 * usual, 1e-3 * usual])
        wander = np.zeros(STATES)
        wander[FORCE] = (DRIFT_TORQUE if m.stroke == 0.0 else DRIFT_FORCE) * m.area_A * 1e7 / sqrt(0.1)
        for state, valve in ((BIAS_A, valves[0]), (BIAS_B, valves[1])):
            wander[state] = (valve[1] * valve[0] if valve is not None else DRIFT_UNKNOWN * usual) / sqrt(0.1)
        wander[X] = POSITION_NOISE
        shown = sensed_states(m)
        scale = np.concatenate([first, np.tile(first[shown], length - 1)])
        look, unit = _look(m, length, scale, 0.1 * usual)
        known: Integers = np.array([s for s in range(len(scale)) if not _unseen(s, noise, shown)])
        rows: Integers = np.array([i for i, sigma in enumerate(noise) if sigma is not None])
        late = [1.0 + m.age_A, 1.0 + m.age_B, 1.0 + m.age_x, 1.0, 1.0]
        sigma = np.array([max(noise[i] or 0.0, MIN_NOISE * late[i] * unit[i]) / unit[i] for i in rows])
        drive, seen = np.diag((wander / first) ** 2), look[np.ix_(rows, known)]
        return cls(scale, drive, known, rows, seen, sigma**2, np.array(periods)[rows], unit[rows])

    def with_fixed(self, fixed: tuple[int, ...], m: CylinderRecord) -> _Followed:
        """The same where these states, now and in the past, are neither corrected nor seen."""
        shown = sensed_states(m)
        states = [s if s < STATES else shown[(s - STATES) % SENSED] for s in self.known]
        kept = np.array([state not in fixed for state in states], dtype=bool)
        known, look = self.known[kept], self.seen[:, kept]
        used = np.abs(look).sum(axis=1) > 0.0
        return replace(
            self,
            known=known,
            rows=self.rows[used],
            seen=look[used],
            variance=self.variance[used],
            periods=self.periods[used],
            unit=self.unit[used],
            fixed=fixed,
        )

    def gains(self, m: CylinderRecord, x: float, rates: tuple[float, float], dt: float) -> Floats:
        """One line of the table: at position x, where the valves settle p_A and p_B at these rates, 1/s."""
        scale, known = self.scale, self.known
        if not len(self.rows):  # nothing is seen
            return np.zeros(GAINS + len(scale) * MEASUREMENTS)
        motion, drive = _motion(m, x, rates, scale[:STATES]), self.drive.copy()
        motion[list(self.fixed)] = drive[list(self.fixed)] = 0.0
        discrete = _discrete(motion, drive, dt)
        step, spread = _with_past(*discrete, len(scale), sensed_states(m))
        if len(known) < len(scale):
            step, spread = step[np.ix_(known, known)], spread[np.ix_(known, known)]
        gain, after = stationary(step, spread, self.seen, self.variance, self.periods)
        full = np.zeros((len(scale), MEASUREMENTS))
        full[known[:, None], self.rows] = gain * scale[known][:, None] / self.unit[None, :]
        spreads = np.zeros(len(scale))
        spreads[known] = np.sqrt(np.maximum(after.diagonal(), 0.0)) * scale[known]
        return np.concatenate([spreads[[BIAS_A, BIAS_B]], full.ravel()])


def _motion(m: CylinderRecord, x: float, rates: tuple[float, float], scale: Floats) -> Floats:
    """The linearised cylinder at position x: d/dt of the states by the states, in the filter's units per s."""
    C_A, C_B = chamber_A(x, TYPICAL_PRESSURE, m), chamber_B(x, TYPICAL_PRESSURE, m)
    motion = np.zeros((STATES, STATES))
    motion[P_A, [P_A, V, BIAS_A]] = -rates[0], -m.area_A / C_A, 1.0 / C_A
    motion[P_B, [P_B, V, BIAS_B]] = -rates[1], m.area_B / C_B, 1.0 / C_B
    motion[X, V] = 1.0
    motion[V, [P_A, P_B, FORCE]] = m.area_A / m.mass, -m.area_B / m.mass, -1.0 / m.mass
    return motion * scale[None, :] / scale[:, None]


def stationary(
    step: Floats, spread: Floats, seen: Floats, variance: Floats, periods: Integers
) -> tuple[Floats, Floats]:
    """Gain of each sensor and the covariance after all samples, see `hilserver.numerics.riccati.stationary`."""
    n, sensors = len(step), len(seen)
    gain, after = np.zeros((n, sensors)), np.zeros((n, n))
    given = [np.ascontiguousarray(array) for array in (step, spread, seen, variance)]
    periods = np.ascontiguousarray(periods, dtype=np.int64)
    standard_program().stationary(*given, periods, gain, after, np.zeros(spare_cells(n)))
    return gain, after


def sensed_states(m: CylinderRecord) -> list[int]:
    """The states that sensors show: p_A, p_B and x, of a motor v."""
    return [sensed(s, m) for s in range(SENSED)]


def _with_past(step: Floats, spread: Floats, n: int, shown: list[int]) -> tuple[Floats, Floats]:
    """The same with n states: those ``shown`` of the ticks before. Each tick they move on by one place."""
    longer, noisier = np.zeros((n, n)), np.zeros((n, n))
    longer[:STATES, :STATES], noisier[:STATES, :STATES] = step, spread
    for s in range(STATES, n):
        longer[s, shown[s - STATES] if s < STATES + SENSED else s - SENSED] = 1.0
    return longer, noisier


def _look(m: CylinderRecord, length: int, scale: Floats, q: float) -> tuple[Floats, Floats]:
    """What the sensors see of the states, in their own units (bar, 0.1 mm, ``q``), and these units, SI.

    The speed of a motor counts as the flow with which it turns.
    """
    shown = sensed_states(m)
    unit = np.array([BAR, BAR, 1e-4 if shown[2] == X else q / m.area_A, q, q])
    look = np.zeros((MEASUREMENTS, len(scale)))
    for i, age in enumerate((m.age_A, m.age_B, m.age_x)):
        ticks = min(int(age), length - 2)
        for back, share in ((ticks, 1.0 - (age - ticks)), (ticks + 1, age - ticks)):
            place = shown[i] if back == 0 else STATES + SENSED * (back - 1) + i
            look[i, place] += share * scale[shown[i]] / unit[i]
    look[3, BIAS_A], look[4, BIAS_B] = scale[BIAS_A] / q, scale[BIAS_B] / q
    return look, unit


def _unseen(state: int, noise: Values, shown: list[int]) -> bool:
    """Whether the sensors cannot determine a state: position and biases need a sensor of the motion or a flow.

    Port B needs its pressure. Nothing depends on the angle of a motor.
    """
    p_B, x, q_A, q_B = noise[1], noise[2], noise[3], noise[4]
    if state >= STATES:
        state = shown[(state - STATES) % SENSED]
    if state == X:
        return x is None or X not in shown
    if state == BIAS_A:
        return x is None and q_A is None
    if state == BIAS_B:
        return p_B is None or (x is None and q_A is None and q_B is None)
    return state == P_B and p_B is None


def _discrete(motion: Floats, drive: Floats, dt: float) -> tuple[Floats, Floats]:
    """Transition over a tick and the noise that comes in during it."""
    n = len(motion)
    step, spread = np.zeros((n, n)), np.zeros((n, n))
    standard_program().discretise(motion, drive, dt, step, spread, np.zeros(spare_cells(n)))
    return step, spread
