"""The machine between the ticks: spools and cylinders, followed from the commands given and corrected by the sensors.

Compiled into the tick. ``elapsed`` is the time since the last tick, in which the last command was held.
"""

from __future__ import annotations

from math import isfinite

from hilserver.numerics.arrays import Floats, overwrite
from hilserver.tick.bridge.columns import (
    ADAPTIVE,
    AGE_A,
    AGE_B,
    AGE_Q,
    AGE_QA,
    AGE_QB,
    AGE_SPOOL,
    AGE_X,
    BIAS_A,
    BIAS_B,
    BLOCK,
    CHANNEL_Q,
    CHANNEL_S,
    CHANNEL_SPOOL,
    CHANNEL_T,
    CYLINDER,
    CYLINDER_BLOCK,
    DEVIATION_A,
    DEVIATION_B,
    FLOW_DEVIATION,
    FLOW_ESTIMATED,
    FLOW_EXPECTED,
    FLOW_OTHER,
    GRID,
    MEASUREMENTS,
    OTHER_PORT,
    P_A,
    P_B,
    PORT,
    PREDICTION,
    REMEMBERED,
    SENSED,
    SENSOR_A,
    SENSOR_B,
    SENSOR_QA,
    SENSOR_QB,
    SENSOR_X,
    SIDE,
    SPOOL,
    SPOOL_ERROR,
    SPOOL_SPEED,
    STRATEGY_NOW,
    STROKE,
    SUBSTEPS_OF_MACHINE,
    SUPPLY,
    SUPPLY_TREND,
    TURN_A,
    TURN_B,
    VALVE_A,
    VALVE_B,
    VOLUME,
    VOLUME_A,
    VOLUME_B,
    X,
)
from hilserver.tick.bridge.end_stop import note_stop
from hilserver.tick.columns import (
    CYLINDER_PAST,
    CYLINDERS,
    CYLINDERS_PAST,
    DT,
    PORT_CHANNEL,
    PORT_CYLINDER,
    PORT_SIDE,
    PORTS_SEEN,
    VALVE,
    VALVE_PAST,
    VALVES_PAST,
)
from hilserver.tick.cylinder import (
    add_volumes,
    correct_cylinder,
    deviation_of,
    expected,
    is_known,
    move_cylinder,
    note_flows,
    remember,
    start_cylinder,
)
from hilserver.tick.plan import Plan
from hilserver.tick.valve import command_at, delay_of, mend_valve, move_spool, valve_flow

TREND_TIME = 5e-3
"""s, filter of the trends of supply and port pressures."""
SPOOL_TRUST = 0.3
"""Share of the difference between measured and followed spool that is corrected in a tick."""


SPOOL_ERROR_TIME = 0.02
"""s, filter of the difference that is watched for a spool that does not follow."""


def follow_machine(plan: Plan, row: Floats, work: Floats, elapsed: float) -> None:
    """Bring spools and cylinders to this tick, correct them by its samples, and show the circuit the port pressures."""
    dt = plan.loop[DT]
    ticks = max(int(elapsed / dt + 0.5), 1)
    h = dt / SUBSTEPS_OF_MACHINE
    for i in range(plan.valve.shape[0]):
        mend_valve(valve_block(plan, row, i), plan.valve[i])
    for tick in range(ticks):
        for sub in range(SUBSTEPS_OF_MACHINE):
            move_machine(plan, row, work, h, -(ticks - tick) * dt + (sub + 0.5) * h)
        for c in range(plan.cylinder.shape[0]):
            note_cylinder(plan, row, c)
    for c in range(plan.cylinder.shape[0]):
        correct(plan, row, work, c)
    for i in range(plan.port.shape[0]):
        see_pressure(plan, row, i, elapsed)
    for i in range(plan.valve.shape[0]):
        note_valve(plan, row, i, elapsed)


def valve_block(plan: Plan, row: Floats, i: int) -> Floats:
    """A valve's block of the row."""
    start = plan.layout[VALVE] + i * BLOCK
    return row[start : start + BLOCK]


def cylinder_block(plan: Plan, row: Floats, c: int) -> Floats:
    """A cylinder's block of the row."""
    start = plan.layout[CYLINDERS] + c * CYLINDER_BLOCK
    return row[start : start + CYLINDER_BLOCK]


def past_of_valve(plan: Plan, row: Floats, i: int) -> Floats:
    """A valve's commands of the last ticks, the newest first."""
    n = plan.layout[VALVE_PAST]
    return row[plan.layout[VALVES_PAST] + i * n : plan.layout[VALVES_PAST] + (i + 1) * n]


def past_of_cylinder(plan: Plan, row: Floats, c: int) -> Floats:
    """A cylinder's p_A, p_B, x and flows of the last ticks, the newest first: a line of each."""
    n = plan.layout[CYLINDER_PAST]
    start = plan.layout[CYLINDERS_PAST] + REMEMBERED * n * c
    return row[start : start + REMEMBERED * n].reshape(REMEMBERED, n)


def move_machine(plan: Plan, row: Floats, work: Floats, h: float, at: float) -> None:
    """One sub-step of ``h`` seconds, whose middle is ``at`` (before now: negative): the midpoint rule.

    ``work`` takes the spools in the middle, and a cylinder's state at the beginning.
    """
    n = plan.valve.shape[0]
    spools, start = work[:n], work[n : n + CYLINDER_BLOCK]
    for i in range(n):
        b, v = valve_block(plan, row, i), plan.valve[i]
        before = b[SPOOL]
        move_spool(command_at(past_of_valve(plan, row, i), delay_of(b, v), at, plan.loop[DT]), b, v)
        spools[i] = 0.5 * (before + b[SPOOL])
    for c in range(plan.cylinder.shape[0]):
        k, m = cylinder_block(plan, row, c), plan.cylinder[c]
        if not is_known(k):
            continue
        overwrite(start, k)
        q_A, q_B = flows_into(plan, row, spools, k, m)
        move_cylinder(q_A + k[BIAS_A], q_B + k[BIAS_B], 0.0, 0.0, k, m, 0.5 * h)
        q_A, q_B = flows_into(plan, row, spools, k, m)
        overwrite(k, start)
        move_cylinder(q_A + k[BIAS_A], q_B + k[BIAS_B], 0.0, 0.0, k, m, h)


def flows_into(plan: Plan, row: Floats, spools: Floats, k: Floats, m: Floats) -> tuple[float, float]:
    """Flows that the valves should pass into a cylinder's ports, with these spools."""
    return (
        flow_over(plan, row, spools, m[VALVE_A], m[TURN_A], k[P_A]),
        flow_over(plan, row, spools, m[VALVE_B], m[TURN_B], k[P_B]),
    )


def flow_over(plan: Plan, row: Floats, spools: Floats, number: float, turn: float, p: float) -> float:
    """Flow that a valve should pass into a port at pressure ``p``; -1 is no valve.

    ``turn`` is -1 for the port at the valve's other edges.
    """
    if number < 0.0:
        return 0.0
    i = int(number)
    b, v = valve_block(plan, row, i), plan.valve[i]
    return valve_flow(turn * spools[i], p, row[int(v[CHANNEL_S])], row[int(v[CHANNEL_T])], b, v)


def note_cylinder(plan: Plan, row: Floats, c: int) -> None:
    """The oil that went in during a tick, and the past."""
    k, m, past = cylinder_block(plan, row, c), plan.cylinder[c], past_of_cylinder(plan, row, c)
    if is_known(k):
        add_volumes(past[0, 0], past[1, 0], past[2, 0], k, m)
        remember(past, k)


def correct(plan: Plan, row: Floats, work: Floats, c: int) -> None:
    """Correct a cylinder's estimate by the samples of this tick; the first ones start it."""
    k, m, past = cylinder_block(plan, row, c), plan.cylinder[c], past_of_cylinder(plan, row, c)
    n = plan.valve.shape[0]
    spools, innovation = work[:n], work[n : n + MEASUREMENTS]
    for i in range(n):
        spools[i] = valve_block(plan, row, i)[SPOOL]
    p_A, p_B = sample_of(row, m[SENSOR_A], 0.0), sample_of(row, m[SENSOR_B], 0.0)
    x = sample_of(row, m[SENSOR_X], 0.5 * m[STROKE])
    if not is_known(k):
        if not (isfinite(p_A) and isfinite(p_B) and isfinite(x)):
            return
        start_cylinder(p_A, p_B, x, k, m)
        for _ in range(past.shape[1]):
            remember(past, k)
    q_A, q_B = flows_into(plan, row, spools, k, m)
    innovation[0] = p_A - expected(past, 0, m[AGE_A])
    innovation[1] = p_B - expected(past, 1, m[AGE_B])
    innovation[2] = x - expected(past, 2, m[AGE_X]) if m[SENSOR_X] >= 0.0 else 0.0
    past[SENSED, 0], past[SENSED + 1, 0] = q_A + k[BIAS_A], q_B + k[BIAS_B]
    innovation[3] = row[int(m[SENSOR_QA])] - expected(past, SENSED, m[AGE_QA]) if m[SENSOR_QA] >= 0.0 else 0.0
    innovation[4] = row[int(m[SENSOR_QB])] - expected(past, SENSED + 1, m[AGE_QB]) if m[SENSOR_QB] >= 0.0 else 0.0
    for i in range(MEASUREMENTS):
        if not isfinite(innovation[i]):
            innovation[i] = 0.0
    before_A, before_B, before_x = k[P_A], k[P_B], k[X]
    correct_cylinder(innovation, plan.observer[c * GRID : (c + 1) * GRID], past, k, m)
    add_volumes(before_A, before_B, before_x, k, m)
    q_A, q_B = flows_into(plan, row, spools, k, m)
    note_flows(q_A, q_B, k)


def sample_of(row: Floats, column: float, otherwise: float) -> float:
    """A channel's value; ``otherwise`` where there is no such channel."""
    return row[int(column)] if column >= 0.0 else otherwise


def see_pressure(plan: Plan, row: Floats, i: int, elapsed: float) -> None:
    """The pressure at a port, and its trend: as measured, or as estimated where a strategy predicts."""
    seen, line = plan.layout[PORTS_SEEN] + 2 * i, plan.port[i]
    p, c = row[int(line[PORT_CHANNEL])], int(line[PORT_CYLINDER])
    if c >= 0 and predicts(plan, row):
        k = cylinder_block(plan, row, c)
        if is_known(k):
            p = k[P_B] if line[PORT_SIDE] > 0.0 else k[P_A]
    trend = (p - row[seen]) / elapsed
    row[seen + 1] += (trend - row[seen + 1]) * elapsed / (TREND_TIME + elapsed)
    row[seen] = p


def predicts(plan: Plan, row: Floats) -> bool:
    """Whether a valve's strategy looks ahead with the machine's model."""
    some = 0
    for i in range(plan.valve.shape[0]):
        some += PREDICTION <= valve_block(plan, row, i)[STRATEGY_NOW] <= ADAPTIVE
    return some > 0


def note_valve(plan: Plan, row: Floats, i: int, elapsed: float) -> None:
    """What a valve should pass now, what it is estimated to pass, how sure that is, and its supply."""
    b, v = valve_block(plan, row, i), plan.valve[i]
    p_S, p_T = row[int(v[CHANNEL_S])], row[int(v[CHANNEL_T])]
    if v[CHANNEL_SPOOL] >= 0.0 and isfinite(row[int(v[CHANNEL_SPOOL])]):
        off = row[int(v[CHANNEL_SPOOL])] - (b[SPOOL] - v[AGE_SPOOL] * b[SPOOL_SPEED])
        b[SPOOL] += SPOOL_TRUST * off
        b[SPOOL_ERROR] += (off - b[SPOOL_ERROR]) * elapsed / (SPOOL_ERROR_TIME + elapsed)
    trend = (p_S - b[SUPPLY]) / elapsed
    b[SUPPLY_TREND] += (trend - b[SUPPLY_TREND]) * elapsed / (TREND_TIME + elapsed)
    b[SUPPLY] = p_S
    p = row[plan.layout[PORTS_SEEN] + 2 * int(v[PORT])]
    b[FLOW_EXPECTED] = valve_flow(b[SPOOL], p, p_S, p_T, b, v)
    flow_before = b[FLOW_ESTIMATED]
    b[FLOW_ESTIMATED], b[FLOW_DEVIATION] = b[FLOW_EXPECTED], 0.0
    c = int(v[CYLINDER])
    if c >= 0:
        k, m = cylinder_block(plan, row, c), plan.cylinder[c]
        side_B = v[SIDE] > 0.0
        b[FLOW_ESTIMATED] += k[BIAS_B] if side_B else k[BIAS_A]
        gains = plan.observer[c * GRID : (c + 1) * GRID]
        b[FLOW_DEVIATION] = deviation_of(DEVIATION_B if side_B else DEVIATION_A, gains, k, m)
        b[VOLUME] = k[VOLUME_B] if side_B else k[VOLUME_A]
        note_stop(b, v, k, m, elapsed)
    elif v[CHANNEL_Q] >= 0.0:
        b[FLOW_ESTIMATED] = row[int(v[CHANNEL_Q])]
        b[VOLUME] += b[FLOW_ESTIMATED] * elapsed + v[AGE_Q] * (b[FLOW_ESTIMATED] - flow_before)  # until now
    else:
        b[VOLUME] += b[FLOW_EXPECTED] * elapsed
    if v[OTHER_PORT] >= 0.0:
        p_other = row[plan.layout[PORTS_SEEN] + 2 * int(v[OTHER_PORT])]
        b[FLOW_OTHER] = valve_flow(-b[SPOOL], p_other, p_S, p_T, b, v)
