r"""The Kalman filter's correction of a cylinder's estimate: gains from tables, applied to samples that may be late.

The gains are tables over the stroke and the rates at which the valves settle the pressures
(:mod:`hilserver.rig.kalman`). Which table holds depends on what ties the states together:

- As a rule the piston is free, and both chambers are full.
- At its end stop the piston is held: each pressure depends on the flow into its own chamber only, and neither force nor
  speed is seen in anything. With the gains of a free piston, force and biases would run away. The piston has left
  the stop when its sensor says so by more than its noise. (At an elastic stop, or with an offset, a sensor shows
  positions beyond the stroke: they count as its ends.)
- In a chamber with a void the pressure depends on nothing, and nothing shows the flow.

``k`` is the cylinder's block of the row, ``m`` its line of the plan. Compiled into the tick.
"""

from __future__ import annotations

from math import ceil, floor

from hilserver.numerics.arrays import Floats, Matrix
from hilserver.numerics.compilable import compilable
from hilserver.numerics.shape import clip
from hilserver.tick.cylinder import chamber_A, chamber_B, contact_damping, mean_flow, sensed
from hilserver.tick.gain_tables import (
    FIRST_LINES,
    GAINS,
    GRID,
    PLACES_ALONG,
    RATES,
    RATES_OF_A,
    RATES_OF_B,
    Restraint,
)
from hilserver.tick.plan import MEASUREMENTS, SENSED, STATES, SUBSTEPS_OF_MACHINE, CylinderRecord
from hilserver.tick.records import cells_of
from hilserver.tick.row import CylinderState

FIRST_BIAS = CylinderState.names().index("bias_A")
VOID_TIME = 0.01
"""s: time in which the bias of the flow into a void is forgotten."""


@compilable
def gains_for(
    table: Matrix, held: float, rates: tuple[float, float], k: CylinderState, m: CylinderRecord, gains: Floats
) -> None:
    """Write the gains for the present state, at these rates per tick, into ``gains``.

    ``table``: this cylinder's lines of plan.kalman; ``held``: degree to which the piston is held at its end stop.
    """
    gains[:] = 0.0
    if held > 0.0:
        add_gains(table, Restraint.HELD.value, held, k.x, rates, m, gains)
        for side in range(2):
            if (k.void_B if side else k.void_A) > 0.0:
                leave_chamber(side, gains)
    if held < 1.0:
        add_gains(table, voids_in(k), 1.0 - held, k.x, rates, m, gains)
    for side in range(2):
        if rates[side] > RATES[-1]:
            weaken(side, RATES[-1] / rates[side], gains)


@compilable
def within_stroke(difference: float, x: float, m: CylinderRecord) -> float:
    """``difference`` of the measured position ``x`` and the expected one, with ``x`` limited to the stroke.

    It is 0 where there is no new sample.
    """
    if difference == 0.0 or m.stroke == 0.0:
        return difference
    return difference - (x - clip(x, 0.0, m.stroke))


@compilable
def held_at_stop(difference: float, k: CylinderState, m: CylinderRecord) -> float:
    """Degree to which the piston counts as held at its end stop (0 … 1).

    It is held where the model is at rest at the stop, unless the measured position differs from the expected one.
    """
    if m.sensor_x < 0 or m.stroke == 0.0 or k.v != 0.0 or (0.0 < k.x < m.stroke):
        return 0.0
    away = difference if k.x <= 0.0 else -difference
    return 1.0 - clip(away / m.clearance - 1.0, 0.0, 1.0)


@compilable
def voids_in(k: CylinderState) -> int:
    """The table that holds for a piston that is free."""
    if k.void_A > 0.0:
        return Restraint.VOIDS.value if k.void_B > 0.0 else Restraint.VOID_A.value
    return Restraint.VOID_B.value if k.void_B > 0.0 else Restraint.NONE.value


@compilable
def add_gains(
    table: Matrix, block: int, part: float, x: float, rates: tuple[float, float], m: CylinderRecord, gains: Floats
) -> None:
    """Add ``part`` of a table's gains at position ``x`` and these rates per tick, linearly interpolated.

    A pressure that its valve settles faster than at the highest rate is corrected as at that one.
    """
    n_A, n_B, n_x = RATES_OF_A[block], RATES_OF_B[block], PLACES_ALONG[block]
    along = share_of_stroke(x, m) * (n_x - 1)
    rate_A = place_of_rate(rates[0]) if n_A > 1 else 0.0
    rate_B = place_of_rate(rates[1]) if n_B > 1 else 0.0
    i, j, k = lower(rate_A, n_A), lower(rate_B, n_B), lower(along, n_x)
    for corner in range(8):
        up_A, up_B, up = corner // 4, corner // 2 % 2, corner % 2
        share = part * weight(rate_A - i, up_A) * weight(rate_B - j, up_B) * weight(along - k, up)
        if share > 0.0:
            line = FIRST_LINES[block] + ((i + up_A) * n_B + j + up_B) * n_x + k + up
            for column in range(gains.shape[0]):
                gains[column] += share * table[line, column]


@compilable
def lower(place: float, n: int) -> int:
    """The lower neighbour of a place among ``n``."""
    return max(min(floor(place), n - 2), 0)


@compilable
def forget_biases(elapsed: float, k: CylinderState) -> None:
    """What flows into a void is not seen: it becomes that of the valve's model.

    The bias found last belongs to the pressure that broke down when the void opened.
    """
    keep = VOID_TIME / (VOID_TIME + elapsed)
    k.bias_A *= keep if k.void_A > 0.0 else 1.0
    k.bias_B *= keep if k.void_B > 0.0 else 1.0


@compilable
def leave_chamber(side: int, gains: Floats) -> None:
    """Take a chamber out of the correction: its pressure, present and past, and its flow."""
    weaken(side, 0.0, gains)
    for j in range(MEASUREMENTS):
        gains[GAINS + (FIRST_BIAS + side) * MEASUREMENTS + j] = 0.0


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
    each sample is older than its sensor's delay; ``gains``: as from `gains_for`, for these ``rates`` per tick;
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
