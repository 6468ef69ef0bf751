"""The machine between ticks: spools and cylinders, simulated from the commands and corrected by the sensors.

Compiled into the tick. ``elapsed`` is the time since the last tick, in which the last command was held. After a gap
(`is_gap`) the estimate starts again from the samples.
"""

from __future__ import annotations

from math import inf, isfinite

from hilserver.numerics.arrays import Floats
from hilserver.numerics.compilable import compilable
from hilserver.numerics.shape import clip
from hilserver.tick.bridge.effects import Compensates
from hilserver.tick.bridge.end_stop import note_end_stop
from hilserver.tick.bridge.learning import forget_volumes, note_volume, reset_nonfinite_learning
from hilserver.tick.bridge.strategies import compensates
from hilserver.tick.codes import Unseen
from hilserver.tick.contact import note_stiffness
from hilserver.tick.correction import (
    correct_cylinder,
    deviation_of,
    forget_biases,
    gains_for,
    held_at_stop,
    within_stroke,
)
from hilserver.tick.cylinder import (
    add_volumes,
    chamber_A,
    chamber_B,
    expected,
    is_known,
    is_waiting,
    mean_flow,
    move_cylinder,
    note_flows,
    remember,
    start_cylinder,
    taken_now,
    volume_into,
    wait_for_samples,
)
from hilserver.tick.gain_tables import DEVIATION_A, DEVIATION_B, LINES
from hilserver.tick.plan import (
    MEASUREMENTS,
    SENSED,
    SUBSTEPS_OF_MACHINE,
    CylinderRecord,
    Plan,
    ValveRecord,
    is_gap,
)
from hilserver.tick.readings import note_difference, note_end, within_range
from hilserver.tick.row import (
    CYLINDER_CELLS,
    CylinderState,
    ValveState,
    cylinder_copy,
    cylinder_state,
    learning_state,
    past_of_cylinder,
    past_of_valve,
    port_state,
    reading_state,
    valve_state,
)
from hilserver.tick.valve import (
    DIP,
    UNAVAILABLE,
    command_at,
    delay_of,
    move_spool,
    note_command,
    reset_nonfinite,
    slopes_of_edges,
    valve_flow,
)
from hilserver.tick.volumes import balance_volumes, shift_pressure

TREND_TIME = 5e-3
"""s: filter of the trend of a port's pressure."""
SUPPLY_TIME = 8e-3
"""s: filter of the supply pressure and its trend. The pulsation of a pump is faster, and later in the samples than a
valve could follow: extrapolated, it would be added once more. Most droops are slower; one within 20 ms is seen late."""
JUMP = 0.25
"""Fraction of the supply pressure by which it jumps when it is switched on or fails, but not otherwise."""
UNEXPLAINED = 0.25
"""Flow into a chamber that no valve passes, as a fraction of the nominal flow, that no error of the model explains."""
SOFT = 5e5
"""Pa, at a port: below it, the oil in the chamber may be softer by half a per cent of free air, whose amount nobody
knows well, than by itself.
"""
VOID = -5e4
"""Pa: below this pressure, a cylinder's chamber is taken for one with a void. Sensors at tank pressure read more."""
SPOOL_TRUST = 0.3
"""Fraction of the difference between measured and simulated spool position that is corrected per sample."""
SPOOL_ERROR_TIME = 0.02
"""s: filter of the difference that shows a spool that does not follow its command."""


@compilable
def follow_machine(plan: Plan, row: Floats, work: Floats, elapsed: float) -> None:
    """Advance spools and cylinders to this tick, correct them by its samples, pass port pressures to the circuit."""
    dt = plan.loop[0].dt
    for i in range(plan.valve.shape[0]):
        reset_nonfinite(valve_state(plan, row, i), plan.valve[i])
        reset_nonfinite_learning(valve_state(plan, row, i), learning_state(plan, row, i))
    if is_gap(plan, elapsed):
        start_again(plan, row)
    else:
        move_on(plan, row, work, max(int(elapsed / dt + 0.5), 1))
    for c in range(plan.cylinder.shape[0]):
        correct(plan, row, work, c, elapsed)
        note_stiffness(cylinder_state(plan, row, c), plan.cylinder[c], elapsed, dt)
    for i in range(plan.port.shape[0]):
        see_pressure(plan, row, i, elapsed)
    for i in range(plan.valve.shape[0]):
        note_valve(plan, row, i, elapsed)
        balance_volumes(plan, row, i, elapsed)
    for i in range(plan.valve.shape[0]):
        shift_pressure(plan, row, i)


@compilable
def move_on(plan: Plan, row: Floats, work: Floats, ticks: int) -> None:
    """Simulate the machine over these ticks; in all but the first, which were missed, the last command was held."""
    dt = plan.loop[0].dt
    h = dt / SUBSTEPS_OF_MACHINE
    for i in range(plan.valve.shape[0]):
        past = past_of_valve(plan.layout[0], row, i)
        for _ in range(min(ticks - 1, past.shape[0])):
            note_command(past[0], past)
    for tick in range(ticks):
        for sub in range(SUBSTEPS_OF_MACHINE):
            move_machine(plan, row, work, h, -(ticks - tick) * dt + (sub + 0.5) * h)
        for c in range(plan.cylinder.shape[0]):
            note_cylinder(plan, row, c)


@compilable
def start_again(plan: Plan, row: Floats) -> None:
    """After a gap: the valves are in their safe positions, and the cylinders wait for samples taken since."""
    for i in range(plan.valve.shape[0]):
        b, v, past = valve_state(plan, row, i), plan.valve[i], past_of_valve(plan.layout[0], row, i)
        b.spool, b.spool_speed = clip(v.safe_value + b.null, -1.0, 1.0), 0.0
        for _ in range(past.shape[0]):
            note_command(v.safe_value, past)
        forget_volumes(learning_state(plan, row, i))
    for c in range(plan.cylinder.shape[0]):
        k = cylinder_state(plan, row, c)
        if is_known(k) or is_waiting(k):
            wait_for_samples(-plan.loop[0].longest_gap, k)


@compilable
def move_machine(plan: Plan, row: Floats, work: Floats, h: float, at: float) -> None:
    """One sub-step of ``h`` seconds with its midpoint at ``at`` (negative: before now), with the mean flows over it.

    ``work`` holds the spools at the midpoint.
    """
    n = plan.valve.shape[0]
    spools = work[:n]
    for i in range(n):
        b, v = valve_state(plan, row, i), plan.valve[i]
        before = b.spool
        move_spool(command_at(past_of_valve(plan.layout[0], row, i), delay_of(b, v), at, plan.loop[0].dt), b, v)
        spools[i] = 0.5 * (before + b.spool)
    for c in range(plan.cylinder.shape[0]):
        k, m = cylinder_state(plan, row, c), plan.cylinder[c]
        if not is_known(k):
            continue
        q_A, q_B = flows_into(plan, row, spools, k, m)
        slope_A, slope_B = slopes_into(plan, row, spools, k, m, q_A, q_B)
        C_A, C_B = chamber_A(k.x, k.p_A, m), chamber_B(k.x, k.p_B, m)
        q_A = mean_flow(q_A + k.bias_A, slope_A, taken_now(0, k, m), C_A, h)
        q_B = mean_flow(q_B + k.bias_B, slope_B, taken_now(1, k, m), C_B, h)
        move_cylinder(q_A, q_B, k, m, h)


@compilable
def flows_into(plan: Plan, row: Floats, spools: Floats, k: CylinderState, m: CylinderRecord) -> tuple[float, float]:
    """Flows that the valves should pass into a cylinder's ports at these spool positions."""
    return (
        flow_over(plan, row, spools, m.valve_A, m.turn_A, k.p_A),
        flow_over(plan, row, spools, m.valve_B, m.turn_B, k.p_B),
    )


@compilable
def slopes_into(
    plan: Plan, row: Floats, spools: Floats, k: CylinderState, m: CylinderRecord, q_A: float, q_B: float
) -> tuple[float, float]:
    """Change of these flows, ``q_A`` and ``q_B``, with the pressure, m³/(s·Pa); not positive."""
    return (
        (flow_over(plan, row, spools, m.valve_A, m.turn_A, k.p_A + DIP) - q_A) / DIP,
        (flow_over(plan, row, spools, m.valve_B, m.turn_B, k.p_B + DIP) - q_B) / DIP,
    )


@compilable
def flow_over(plan: Plan, row: Floats, spools: Floats, i: int, turn: float, p: float) -> float:
    """Flow that a valve should pass into a port at pressure ``p``; valve -1 stands for none.

    ``turn`` is -1 for the port at the valve's other pair of edges.
    """
    if i < 0:
        return 0.0
    b, v = valve_state(plan, row, i), plan.valve[i]
    return valve_flow(turn * spools[i], p, row[v.column_S], row[v.column_T], b, v)


@compilable
def note_cylinder(plan: Plan, row: Floats, c: int) -> None:
    """Update the volumes that entered during a tick, and the past states."""
    k, m, past = cylinder_state(plan, row, c), plan.cylinder[c], past_of_cylinder(plan.layout[0], row, c)
    if is_known(k):
        add_volumes(past[0, 0], past[1, 0], past[2, 0], k, m, plan.loop[0].dt)
        remember(past, k, m)


@compilable
def correct(plan: Plan, row: Floats, work: Floats, c: int, elapsed: float) -> None:
    """Correct a cylinder's estimate by the samples of this tick; the first ones start it, also after a gap."""
    k, m, past = cylinder_state(plan, row, c), plan.cylinder[c], past_of_cylinder(plan.layout[0], row, c)
    n = plan.valve.shape[0]
    spools, innovation = work[:n], work[n : n + MEASUREMENTS]
    late, change = work[n + MEASUREMENTS : n + 2 * MEASUREMENTS], cylinder_copy(work[n + 2 * MEASUREMENTS :], 0)
    for i in range(n):
        spools[i] = valve_state(plan, row, i).spool
    p_A, p_B = sample_of(row, m.sensor_A, 0.0), sample_of(row, m.sensor_B, 0.0)
    x = sample_of(row, m.sensor_x, k.x if is_waiting(k) and m.stroke > 0.0 else 0.5 * m.stroke)
    old_A, old_B = age_of(plan, row, m.sensor_A, m.age_A), age_of(plan, row, m.sensor_B, m.age_B)
    old_x = age_of(plan, row, m.sensor_x, m.age_x)
    if not is_known(k):
        if is_waiting(k):
            k.waits += elapsed
        if not isfinite(p_A + p_B + x + old_A + old_B + old_x):  # no sample yet
            return
        if is_waiting(k) and max(old_A, old_B, old_x) * plan.loop[0].dt >= k.waits:
            return
        start_cylinder(p_A, p_B, x, k, m)
        for _ in range(past.shape[1]):
            remember(past, k, m)
    q_A, q_B = flows_into(plan, row, spools, k, m)
    past[SENSED, 0], past[SENSED + 1, 0] = q_A + k.bias_A, q_B + k.bias_B
    innovation[0] = p_A - expected(past, 0, old_A)
    innovation[1] = p_B - expected(past, 1, old_B)
    innovation[2] = x - expected(past, 2, old_x) if m.sensor_x >= 0 else 0.0
    note_innovations(plan, row, past, innovation, late, k, m)
    innovation[2] = within_stroke(innovation[2], x, m)
    k.void_A = k.void_A if may_be_void(plan, row, m.sensor_A) else 0.0
    k.void_B = k.void_B if may_be_void(plan, row, m.sensor_B) else 0.0
    before_A, before_B, before_x = k.p_A, k.p_B, k.x
    gains = work[n + 2 * MEASUREMENTS + CYLINDER_CELLS :][: plan.kalman.shape[1]]
    slope_A, slope_B = slopes_into(plan, row, spools, k, m, q_A, q_B)
    dt, C_A, C_B = plan.loop[0].dt, chamber_A(k.x, k.p_A, m), chamber_B(k.x, k.p_B, m)
    rates = (-slope_A * dt / C_A, -slope_B * dt / C_B)
    gains_for(plan.kalman[c * LINES : (c + 1) * LINES], held_at_stop(innovation[2], k, m), rates, k, m, gains)
    correct_cylinder(innovation, late, gains, rates, past, k, change, m, dt)
    forget_biases(elapsed, k)
    add_volumes(before_A, before_B, before_x, k, m, 0.0)
    q_A, q_B = flows_into(plan, row, spools, k, m)
    note_flows(q_A, q_B, k)


@compilable
def note_innovations(
    plan: Plan, row: Floats, past: Floats, innovation: Floats, late: Floats, k: CylinderState, m: CylinderRecord
) -> None:
    """Complete the innovations by those of the flows, and note the histories of the readings.

    Those without a new sample, and those of readings at the end of their range, become 0. ``late``: how many ticks
    each sample is older than its sensor's delay.
    """
    for side in range(2):
        sensor, delay = (m.sensor_QB, m.age_QB) if side else (m.sensor_QA, m.age_QA)
        q = expected(past, SENSED + side, age_of(plan, row, sensor, delay))
        innovation[SENSED + side] = row[sensor] - q if sensor >= 0 else 0.0
    sensors = (m.sensor_A, m.sensor_B, m.sensor_x, m.sensor_QA, m.sensor_QB)
    layout, unexplained = plan.layout[0], is_unexplained(plan, k, m)
    for i in range(MEASUREMENTS):
        if is_new(plan, row, sensors[i]) and isfinite(innovation[i]):
            number = sensors[i] - layout.channel
            state = reading_state(plan, row, number)
            note_end(innovation[i], unexplained, plan.channel[number], state)
            innovation[i] = within_range(innovation[i], state)
            note_difference(innovation[i], row[layout.interval + number], state)
        else:
            innovation[i] = 0.0
        late[i] = age_of(plan, row, sensors[i], 0.0)


@compilable
def may_be_void(plan: Plan, row: Floats, column: int) -> bool:
    """Whether there may be a void at this sensor of a pressure: it is more certain than a calculated void.

    It may where the range of the sensor ends above the pressure of a void, and the reading is at that end.
    """
    if column < 0:
        return False
    return bool(row[column] < VOID or (is_beyond(plan, row, column) and end_of(plan, row, column) < 0))


@compilable
def is_unexplained(plan: Plan, k: CylinderState, m: CylinderRecord) -> bool:
    """Whether the estimate of a cylinder needs flows that its valves hardly pass."""
    flow_A = UNEXPLAINED * plan.valve[m.valve_A].Q_nominal if m.valve_A >= 0 else inf
    flow_B = UNEXPLAINED * plan.valve[m.valve_B].Q_nominal if m.valve_B >= 0 else inf
    return bool(abs(k.bias_A) > flow_A or abs(k.bias_B) > flow_B)


@compilable
def sample_of(row: Floats, column: int, otherwise: float) -> float:
    """A channel's value; ``otherwise`` if there is no such channel."""
    return row[column] if column >= 0 else otherwise


@compilable
def age_of(plan: Plan, row: Floats, column: int, delay: float) -> float:
    """Age of a channel's value in ticks: the delay of a new sample, and the age of this one. Without a channel: 0."""
    layout = plan.layout[0]
    return delay + row[layout.stale + column - layout.channel] / plan.loop[0].dt if column >= 0 else 0.0


@compilable
def is_new(plan: Plan, row: Floats, column: int) -> bool:
    """Whether a channel has received a sample since the last tick."""
    layout = plan.layout[0]
    return bool(column >= 0 and row[layout.interval + column - layout.channel] > 0.0)


@compilable
def see_pressure(plan: Plan, row: Floats, i: int, elapsed: float) -> None:
    """The pressure at a port and its trend: as measured, or as estimated if a strategy predicts."""
    seen, line = port_state(plan, row, i), plan.port[i]
    p, c = row[line.column], line.cylinder
    if c >= 0 and predicts(plan, row):
        k = cylinder_state(plan, row, c)
        if is_known(k):
            p = k.p_B if line.is_B else k.p_A
    trend = (p - (seen.port - seen.port_shift)) / elapsed
    seen.port_trend += (trend - seen.port_trend) * elapsed / (TREND_TIME + elapsed)
    seen.port, seen.port_shift = p, 0.0


@compilable
def predicts(plan: Plan, row: Floats) -> bool:
    """Whether a valve's strategy looks ahead with the machine's model."""
    some = 0
    for i in range(plan.valve.shape[0]):
        some += compensates(valve_state(plan, row, i).strategy, Compensates.DELAY)
    return some > 0


@compilable
def follow_supply(p_S: float, b: ValveState, elapsed: float) -> None:
    """Filter the supply pressure and its trend, without a lag behind a steady trend; start again after a jump.

    Least squares of a line through all samples, older ones counting less (fading-memory filter of first degree):
    Morrison, Introduction to sequential smoothing and prediction (1969), ch. 13.
    """
    keep, now = SUPPLY_TIME / (SUPPLY_TIME + elapsed), b.supply + b.supply_trend * elapsed
    if not abs(p_S - now) < JUMP * abs(p_S):  # also where nothing is known yet
        b.supply, b.supply_trend = p_S, 0.0
        return
    b.supply = now + (1.0 - keep * keep) * (p_S - now)
    b.supply_trend += (1.0 - keep) ** 2 * (p_S - now) / elapsed


@compilable
def correct_spool(plan: Plan, row: Floats, b: ValveState, v: ValveRecord) -> None:
    """The estimated spool moves towards a new sample of its sensor, which shows where it was when the sample was taken.

    Its error is filtered over the time since the sample before.
    """
    place = v.column_spool - plan.layout[0].channel
    age, since = v.age_spool + row[plan.layout[0].stale + place], row[plan.layout[0].interval + place]
    off = row[v.column_spool] + b.null - (b.spool - age * b.spool_speed)
    b.spool += SPOOL_TRUST * off
    b.spool_error += (off - b.spool_error) * since / (SPOOL_ERROR_TIME + since)


@compilable
def why_unseen(plan: Plan, row: Floats, v: ValveRecord, p: float) -> int:
    """Why the volume that a valve has passed is not known (`hilserver.tick.codes.Unseen`); ``p``: at its port, Pa."""
    if v.cylinder < 0:
        return Unseen.END_OF_RANGE.value if is_beyond(plan, row, v.column_Q) else Unseen.NOT.value
    m = plan.cylinder[v.cylinder]
    if moves_without_oil(row, cylinder_state(plan, row, v.cylinder), m, v.is_B):
        return Unseen.VOID.value
    if is_beyond(plan, row, m.sensor_A) or is_beyond(plan, row, m.sensor_B):
        return Unseen.END_OF_RANGE.value
    return Unseen.SOFT_OIL.value if p < SOFT else Unseen.NOT.value


@compilable
def moves_without_oil(row: Floats, k: CylinderState, m: CylinderRecord, is_B: int) -> bool:
    """Whether the motion does not show the flow at a port, because there is a void.

    A cylinder's chamber opens it, or closes it again. A motor is not filled where it draws from a port with a pressure
    below that of the atmosphere, and passes less on.
    """
    if m.stroke == 0.0:
        return bool(sample_of(row, m.sensor_A if k.v > 0.0 else m.sensor_B, 0.0) < 0.0)
    return bool(sample_of(row, m.sensor_B if is_B else m.sensor_A, 0.0) < VOID)


@compilable
def is_beyond(plan: Plan, row: Floats, column: int) -> bool:
    """Whether the true value of a channel may lie beyond the end of its sensor's range; not without a channel."""
    return bool(column >= 0 and reading_state(plan, row, column - plan.layout[0].channel).beyond > 0)


@compilable
def end_of(plan: Plan, row: Floats, column: int) -> int:
    """The end of its sensor's range at which a channel reads (-1: the lower, 1: the upper); else 0."""
    return reading_state(plan, row, column - plan.layout[0].channel).end


@compilable
def note_valve(plan: Plan, row: Floats, i: int, elapsed: float) -> None:
    """A valve's expected flow, its estimated flow with standard deviation, and its supply."""
    b, v = valve_state(plan, row, i), plan.valve[i]
    p_S, p_T = row[v.column_S], row[v.column_T]
    if is_new(plan, row, v.column_spool) and isfinite(row[v.column_spool]):
        correct_spool(plan, row, b, v)
    follow_supply(p_S, b, elapsed)
    p, expected_before, volume_before = port_state(plan, row, v.port).port, b.flow_expected, b.volume
    b.flow_expected = valve_flow(b.spool, p, p_S, p_T, b, v)
    flow_before = b.flow_estimated
    b.flow_estimated, b.flow_deviation = b.flow_expected, 0.0
    c = v.cylinder
    if c >= 0:
        k, m = cylinder_state(plan, row, c), plan.cylinder[c]
        b.flow_estimated += k.bias_B if v.is_B else k.bias_A
        table = plan.kalman[c * LINES : (c + 1) * LINES]
        b.flow_deviation = deviation_of(DEVIATION_B if v.is_B else DEVIATION_A, table, k, m)
        if is_known(k):
            b.volume = volume_into(v.is_B, k, m)
        note_end_stop(b, v, k, m, elapsed)
    elif v.column_Q >= 0:
        b.flow_estimated = row[v.column_Q]
        mean = 0.5 * (b.flow_estimated + flow_before)
        b.volume += mean * elapsed + v.age_Q * (b.flow_estimated - flow_before)  # until now
    else:
        b.volume += 0.5 * (b.flow_expected + expected_before) * elapsed
    slopes = slopes_of_edges(b.spool, p, p_S, p_T, b, v)
    b.unseen = why_unseen(plan, row, v, p)
    if b.unseen != Unseen.NOT or b.saturation & UNAVAILABLE:
        forget_volumes(learning_state(plan, row, i))
    elif not is_gap(plan, elapsed):
        note_volume(expected_before, volume_before, slopes, b, learning_state(plan, row, i), elapsed)
    if v.other_port >= 0:
        p_other = port_state(plan, row, v.other_port).port
        b.flow_other = valve_flow(-b.spool, p_other, p_S, p_T, b, v)
