r"""Part of the tick: actuators whose position is controlled, and the force of what they move on the virtual circuit.

An actuator follows a mechanical node of the circuit, whose motion is foreseen (:mod:`hilserver.tick.node_ahead`), or
taken to have a constant acceleration if that has not been possible in the last tick. The measured force of the specimen
acts on the node in the tick that begins now; with `prediction` it is the one that the specimen has if it is at its node
(:mod:`hilserver.tick.hybrid.carried`). See :mod:`hilserver.tick.hybrid.displacement`.

This stage comes before that of the circuit, which needs the force: the motion of the node at the beginning of the tick
is known from the last one.
"""

from __future__ import annotations

from math import isfinite, nan

from hilserver.circuit.engine import FOLLOWED, N_VALUES
from hilserver.numerics.arrays import Floats, Indices, signed
from hilserver.numerics.compilable import compilable
from hilserver.numerics.shape import clip
from hilserver.tick.codes import Action, FaultCode, Mode, Saturation
from hilserver.tick.hybrid.carried import force_in_step
from hilserver.tick.hybrid.displacement import (
    AVAILABLE_IN_RIGS,
    DELAYS,
    FOLLOWING,
    LOAD_SCALE,
    DelayCompensation,
    DisplacementBridge,
    DisplacementMemory,
    DisplacementStrategy,
    Law,
    correct_actuator,
    displacement_command,
    lateness_of,
    predict_actuator,
    seen,
    seen_rate,
)
from hilserver.tick.hybrid.memory import (
    LOAD,
    STATES,
    bridge_of,
    keep_covariance,
    memory_of,
    mobility_at,
    scratch_cells,
    take_covariance,
)
from hilserver.tick.hybrid.passivity import examine_passivity, forget_passivity
from hilserver.tick.modes import supervisor_lost, trip
from hilserver.tick.oscillation import EXPLAINED, count_half_waves, forget_half_waves
from hilserver.tick.plan import ActuatorRecord, Plan
from hilserver.tick.row import ActuatorState, actuator_state, header

_AVAILABLE = tuple(each.name in AVAILABLE_IN_RIGS for each in DisplacementStrategy)
_FOLLOWS = tuple(each.name in FOLLOWING for each in DisplacementStrategy)
_FILTERS = tuple(each.law is Law.STATE_FEEDBACK for each in DisplacementStrategy)
_TRACKS = tuple(each.tracks for each in DisplacementStrategy)
_LEADS = tuple(each.compensation is DelayCompensation.LEAD for each in DisplacementStrategy)
_PREDICTS = tuple(each.compensation is DelayCompensation.PREDICTED for each in DisplacementStrategy)

UNTIL_RESET = 2
"""Of ``known``: there were samples, but after the fault the filter begins again."""
TAKE_UP = 0.05
"""s in which the actuator takes up the motion of the node at the start."""
LEAST_SWING = 1e-3
"""Smallest half-wave of the following error that counts as an oscillation, as a share of the range."""
USUAL_ERROR = 0.25
"""Following error, as a share of the distance that the node travels, that is inaccurate but no oscillation."""
STEEPEST = 2.0
"""Largest slope of the approach, 15/8 of its mean, with a reserve."""


@compilable
def drive_actuators(
    plan: Plan, ix: Indices, val: Floats, row: Floats, work: Floats, elapsed: float, action: int
) -> None:
    """For each actuator: measurements -> estimate -> command within range and slew -> force on the circuit."""
    dt = plan.loop[0].dt
    for i in range(plan.actuator.shape[0]):
        a, b = plan.actuator[i], actuator_state(plan, row, i)
        bridge, memory = bridge_of(plan, i), memory_of(plan, row, work, i)
        _begin(memory)
        take_covariance(plan, row, i, memory)
        if b.elapsed == 0.0 or elapsed > 1.5 * dt:
            b.foreseen = nan
        for _ in range(int(elapsed / dt + 0.5) - 1):  # in missed ticks, the last command was held
            predict_actuator(bridge, memory, b.command)
        _measure(a, b, row)
        _know(a, b, bridge, memory, header(row).mode == Mode.FAULT)
        correct_actuator(bridge, memory, b.measured, b.force_measured)
        _compare(a, b, bridge, memory, elapsed)
        _estimate(b, bridge, memory, elapsed)
        follows = header(row).mode == Mode.RUNNING and action != Action.HOLD and follows_node(b.strategy)
        there = isfinite(b.node_velocity)  # otherwise its position is still that of another circuit
        connected = _follow_node(plan, ix, row, i, elapsed - dt)
        node, velocity, acceleration = b.position, b.velocity, b.acceleration
        if connected:
            _approach(a, b, follows and there, elapsed)
        else:
            _stay(b, follows)
        known = there or not connected
        _note_error(b, header(row).mode == Mode.RUNNING and follows_node(b.strategy) and known)
        if follows and known:
            _demand(plan, row, work, i, node, velocity, acceleration)
        else:
            _move_by_hand(row, b, elapsed)
        b.foreseen = nan
        _limit(plan, row, a, b, action)
        _watch(a, b, follows and known and connected, elapsed)
        b.force_estimate = seen(bridge, memory.now, 1, b.late_command)
        _predict(a, b, bridge, memory, dt)
        b.disturbance = memory.estimate[STATES]
        _react(a, b, node, velocity, mobility_at(ix, val, i), elapsed)
        b.elapsed = elapsed
        keep_covariance(plan, row, i, memory)


@compilable
def _begin(memory: DisplacementMemory) -> None:
    """The scratch space as the filter expects it: parameters and disturbance stay as they are."""
    F = memory.transition
    for i in range(F.shape[0]):
        for j in range(F.shape[0]):
            F[i, j] = 1.0 if i == j else 0.0


@compilable
def _measure(a: ActuatorRecord, b: ActuatorState, row: Floats) -> None:
    """New samples only: a filter that gets the same one twice believes it too much."""
    b.measured = row[a.column_x] if row[a.interval_x] > 0.0 else nan
    b.force_measured = row[a.column_F] if row[a.interval_F] > 0.0 else nan


@compilable
def _know(
    a: ActuatorRecord, b: ActuatorState, bridge: DisplacementBridge, memory: DisplacementMemory, fault: bool
) -> None:
    """Begin with the filter at the first samples, at rest; and anew if it is no longer finite, and after a fault.

    That may have been the fault of a sensor, by which all that is tracked is wrong.

    A strategy that does not track parameters holds them at their nominal values.
    """
    h, P = memory.estimate, memory.covariance
    total = 0.0
    for k in range(h.shape[0]):
        total += h[k] + P[k, k]
    if fault:
        b.known = UNTIL_RESET
        forget_passivity(b)
    if not isfinite(total) or (b.known == UNTIL_RESET and not fault):
        b.known = 0
    if b.known == 0 and isfinite(b.measured) and isfinite(b.force_measured):
        b.known = 1
        _rest(a, b, bridge, memory)
    tracks = a.learns > 0 and _tracks(b.strategy)
    for k in range(STATES + 1, h.shape[0]):
        believed = tracks and _may_vary(a, b, k, h.shape[0], fault)
        if believed and P[k, k] <= bridge.drift[k]:  # it has been held until now
            P[k, k] = 1.0
        elif not believed:
            h[k] = 0.0
            for other in range(h.shape[0]):
                P[k, other] = P[other, k] = 0.0


@compilable
def _may_vary(a: ActuatorRecord, b: ActuatorState, k: int, size: int, fault: bool) -> bool:
    """Whether this value of the filter is tracked: a damping and a delay of the force look the same, so one of them.

    In a fault, which may be that of a sensor, no delay is.
    """
    if k >= size - DELAYS:
        return bool(not fault and (k < size - 1 or b.force_is_late > 0))
    return bool(a.damping_place < 0 or k != STATES + 1 + a.damping_place or b.force_is_late == 0)


@compilable
def _rest(a: ActuatorRecord, b: ActuatorState, bridge: DisplacementBridge, memory: DisplacementMemory) -> None:
    """The filter at rest, at the measured displacement and force, with the command as the cause."""
    h, P = memory.estimate, memory.covariance
    for k in range(h.shape[0]):
        h[k] = 0.0
        for other in range(h.shape[0]):
            P[k, other] = 0.0
    h[0], h[2] = b.measured / bridge.seen[0, 0], b.force_measured / bridge.seen[1, 2]
    h[LOAD] = (b.force_measured - a.stiffness * b.measured) / LOAD_SCALE
    P[LOAD, LOAD] = h[LOAD] * h[LOAD]
    h[STATES] = b.measured - b.command
    P[STATES, STATES] = a.disturbance_start * a.disturbance_start + h[STATES] * h[STATES]
    for k in range(memory.commands.shape[0]):
        memory.commands[k] = b.command
    for k in range(memory.displacements.shape[0]):
        memory.displacements[k] = b.measured
    for k in range(memory.forces.shape[0]):
        memory.forces[k] = b.force_measured
    for k in range(STATES):
        memory.now[k] = h[k]


@compilable
def _compare(
    a: ActuatorRecord, b: ActuatorState, bridge: DisplacementBridge, memory: DisplacementMemory, elapsed: float
) -> None:
    """What the measured force has beyond the estimated one at the same time, and how late both are."""
    then = memory.forces[memory.forces.shape[0] - 1]
    late = lateness_of(bridge, memory, 1)
    b.late_command = lateness_of(bridge, memory, 0)
    b.late_force = late - b.late_command
    if isfinite(then):
        b.force_beyond = then - seen(bridge, memory.estimate, 1, late)
    examine_passivity(a, b, bridge, memory, then, elapsed)


@compilable
def _estimate(b: ActuatorState, bridge: DisplacementBridge, memory: DisplacementMemory, elapsed: float) -> None:
    """Displacement and velocity now."""
    now = seen(bridge, memory.now, 0, b.late_command)
    b.estimate_velocity = (now - b.estimate) / elapsed if b.known > 0 else 0.0
    b.estimate = now


@compilable
def _note_error(b: ActuatorState, running: bool) -> None:
    """The distance from the position that is followed: of the estimate, or of the measurement if that is farther."""
    b.error = 0.0
    if running:
        b.error = b.estimate - b.position
        if isfinite(b.measured) and abs(b.measured - b.position) > abs(b.error):
            b.error = b.measured - b.position


@compilable
def _follow_node(plan: Plan, ix: Indices, row: Floats, i: int, late: float) -> bool:
    """Position, velocity and acceleration of the node now; the circuit has not moved on over missed ticks (``late``).

    The acceleration is extrapolated from the changes of the velocity in the last two ticks. False if the circuit has no
    such node.
    """
    a, b = plan.actuator[i], actuator_state(plan, row, i)
    first, place = plan.layout[0].circuit, signed(ix, FOLLOWED) + 2 * i
    x_at, v_at, count = signed(ix, place), signed(ix, place + 1), signed(ix, N_VALUES)
    if x_at >= count or v_at >= count:
        b.node_velocity = b.node_change = nan
        b.other_change = 0.0
        return False
    v = row[first + v_at]
    change = (v - b.node_velocity) / b.elapsed if b.elapsed > 0.0 else nan
    acceleration, b.other_change = change + 0.5 * (change - b.node_change), change - b.expected_change
    if not isfinite(acceleration):
        acceleration, b.other_change = change if isfinite(change) else 0.0, 0.0
    b.node_velocity, b.node_change = v, change
    b.acceleration = acceleration
    b.velocity = v + late * acceleration
    b.position = row[first + x_at] + a.offset + late * (v + 0.5 * late * acceleration)
    return True


@compilable
def _stay(b: ActuatorState, follows: bool) -> None:
    """Without a node in the circuit, the actuator stays where it is when RUNNING begins."""
    b.velocity = b.acceleration = 0.0
    if not (follows and isfinite(b.approach)):
        b.position = b.estimate
    b.approach = 0.0 if follows else nan


@compilable
def _approach(a: ActuatorRecord, b: ActuatorState, follows: bool, elapsed: float) -> None:
    """At the start, move smoothly from the present motion to that of the node, no faster than the slew limit permits.

    By polynomials of fifth degree: the differences of position, velocity and acceleration fade to none. The actuator is
    taken not to accelerate at the beginning.
    """
    if not follows:
        b.approach = nan
        return
    if not isfinite(b.approach):
        b.approach, b.away = 0.0, b.position - b.estimate
        b.away_velocity, b.away_acceleration = b.velocity - b.estimate_velocity, b.acceleration
        b.approach_time = max(a.approach, STEEPEST * abs(b.away) / a.slew_rate)
    if b.approach >= b.approach_time:
        return
    T = b.approach_time
    s = b.approach / T
    b.position -= b.away * (1.0 - s * s * s * (10.0 - s * (15.0 - 6.0 * s)))
    b.velocity += b.away * 30.0 * s * s * (1.0 - s) * (1.0 - s) / T
    b.acceleration += b.away * 60.0 * s * (1.0 - s) * (1.0 - 2.0 * s) / (T * T)
    _take_up_motion(b, b.approach, min(T, TAKE_UP))
    b.approach += elapsed


@compilable
def _take_up_motion(b: ActuatorState, time: float, T: float) -> None:
    """Part of the approach: the differences of velocity and acceleration fade within ``T`` s.

    This is short, since a node that oscillates is soon elsewhere than its motion at the beginning makes expect.
    """
    if time >= T:
        return
    s, v, a = time / T, b.away_velocity, b.away_acceleration
    moving = s * (1.0 - s * s * (6.0 - s * (8.0 - 3.0 * s)))
    bent = 0.5 * s * s * (1.0 - s) * (1.0 - s) * (1.0 - s)
    b.position -= T * (v * moving + T * a * bent)
    moving = 1.0 - s * s * (18.0 - s * (32.0 - 15.0 * s))
    bent = s * (1.0 - s * (4.5 - s * (6.0 - 2.5 * s)))
    b.velocity -= v * moving + T * a * bent
    moving = -s * (36.0 - s * (96.0 - 60.0 * s))
    bent = 1.0 - s * (9.0 - s * (18.0 - 10.0 * s))
    b.acceleration -= v * moving / T + a * bent


@compilable
def _demand(plan: Plan, row: Floats, work: Floats, i: int, node: float, velocity: float, acceleration: float) -> None:
    """The command that the strategy demands; a command that is not finite causes a trip.

    Of the motion of the node (``node``, ``velocity``, ``acceleration``), the command may contain already what is
    foreseen.
    """
    a, b = plan.actuator[i], actuator_state(plan, row, i)
    bridge, memory = bridge_of(plan, i), memory_of(plan, row, work, i)
    lead, first = leads_by(a, b), scratch_cells(a.tracked)
    demand = b.position
    if regulates(b.strategy):
        x, v, change, ahead = b.position, b.velocity, b.acceleration, 0.0
        if isfinite(b.foreseen):
            x, v, change, ahead = x - node, v - velocity, change - acceleration, b.foreseen
        followed = work[first : first + 2]
        followed[0], followed[1] = x + lead * (v + 0.5 * lead * change), v + lead * change
        demand = displacement_command(bridge, memory, followed, change, 0.0) + ahead
    if isfinite(demand):
        b.demand = demand
    else:
        b.demand = b.command
        trip(row, FaultCode.BRIDGE)


@compilable
def _move_by_hand(row: Floats, b: ActuatorState, elapsed: float) -> None:
    """The command stays where it is, but for a jog, which ends if it is not renewed."""
    b.demand = b.command
    if header(row).mode != Mode.RUNNING or follows_node(b.strategy):
        b.jog_left = 0.0
    elif b.jog_left > 0.0:
        b.demand += b.jog * elapsed
        b.jog_left = max(b.jog_left - elapsed, 0.0)


@compilable
def _limit(plan: Plan, row: Floats, a: ActuatorRecord, b: ActuatorState, action: int) -> None:
    """The command within range and slew; unless RUNNING it moves to the safe displacement.

    After a trip it may have to stay, until the supervisor, which could reset the fault, is gone.
    """
    head, dt = header(row), plan.loop[0].dt
    last, target, rate = b.command, a.safe_value, a.return_rate
    b.saturation = 0
    if head.mode == Mode.RUNNING:
        target, rate = b.demand, a.slew_rate
        if action == Action.HOLD:
            target = last
    elif head.mode == Mode.FAULT and a.holds_at_trip > 0 and not supervisor_lost(plan, row):
        target = last
    inside = clip(target, a.lowest, a.highest)
    b.command = clip(inside, last - rate * dt, last + rate * dt)
    if head.mode == Mode.RUNNING:
        if inside != target:
            b.saturation = b.saturation | Saturation.RANGE.value
        if b.command != inside:
            b.saturation = b.saturation | Saturation.SLEW.value
    b.output = a.raw_offset + a.raw_gain * b.command


@compilable
def _watch(a: ActuatorRecord, b: ActuatorState, follows: bool, elapsed: float) -> None:
    """Report a following error that oscillates by more than the motion of the node explains."""
    error = b.estimate - b.position
    if not (follows and regulates(b.strategy) and b.approach >= b.approach_time and isfinite(b.oscillation_mean)):
        forget_half_waves(b, error if isfinite(error) else 0.0)
        return
    explained = EXPLAINED * USUAL_ERROR * abs(b.velocity) * elapsed
    if count_half_waves(b, error, LEAST_SWING * (a.highest - a.lowest), explained, elapsed):
        b.saturation = b.saturation | Saturation.OSCILLATION.value


@compilable
def _predict(
    a: ActuatorRecord, b: ActuatorState, bridge: DisplacementBridge, memory: DisplacementMemory, dt: float
) -> None:
    """Move the estimate on; the load is what the description of the specimen leaves of the estimated force."""
    now, late = memory.now, b.late_command
    force, x, v = seen(bridge, now, 1, late), seen(bridge, now, 0, late), seen_rate(bridge, now, 0, late)
    predict_actuator(bridge, memory, b.command)
    next_x, next_v = seen(bridge, now, 0, late), seen_rate(bridge, now, 0, late)
    b.load = 0.5 * (force + seen(bridge, now, 1, late)) - a.mass * (next_v - v) / dt
    b.load -= 0.5 * (a.stiffness * (x + next_x) + a.damping * (v + next_v))


@compilable
def _react(a: ActuatorRecord, b: ActuatorState, node: float, velocity: float, mobility: float, elapsed: float) -> None:
    """The force of the specimen on the circuit in the tick that begins now: as measured, or where its node is.

    It always contains what the description of the specimen does not. Where the actuator does not follow or is on its
    way, the measured force, too, becomes that at the node, by stiffness and damping.
    """
    force, last = b.force_measured, b.force
    change = b.node_change if isfinite(b.node_change) else 0.0
    if not isfinite(force):
        force = b.force_estimate + b.force_beyond
    if not b.approach >= b.approach_time:
        force += a.stiffness * (node - b.estimate) + a.damping * (velocity - b.estimate_velocity)
    force = -force
    if _predicts(b.strategy):
        load, unchanged = b.load + b.force_beyond, change + b.other_change
        force = force_in_step(a, load, node, velocity, unchanged, last, mobility, elapsed)
    b.force = force if isfinite(force) else 0.0
    b.expected_change = change + mobility * (b.force - last)


@compilable
def forget_motion(plan: Plan, row: Floats) -> None:
    """Another circuit runs from now on: its nodes may be elsewhere, to which the actuators move smoothly."""
    for i in range(plan.actuator.shape[0]):
        b = actuator_state(plan, row, i)
        b.node_velocity = b.node_change = b.approach = b.foreseen = nan


@compilable
def forget_approach(b: ActuatorState) -> None:
    """Another law drives it from now on: it takes over smoothly."""
    b.approach = nan


@compilable
def is_available(strategy: float) -> bool:
    """Whether this is the number of a strategy that an actuator of a rig can have."""
    return 0.0 <= strategy < len(_AVAILABLE) and _AVAILABLE[int(strategy)]


@compilable
def set_jog_speed(wanted: float, a: ActuatorRecord, b: ActuatorState) -> None:
    """Begin a jog at this fraction of the jog speed, or renew it."""
    b.jog = clip(wanted, -1.0, 1.0) * a.jog_speed
    b.jog_left = a.jog_time


@compilable
def follows_node(strategy: int) -> bool:
    """Whether an actuator with this strategy follows the circuit."""
    return 0 <= strategy < len(_FOLLOWS) and _FOLLOWS[strategy]


@compilable
def has_same_law(strategy: int, other: int) -> bool:
    """Whether two strategies compute the command by the same law."""
    return regulates(strategy) == regulates(other) and follows_node(strategy) == follows_node(other)


@compilable
def regulates(strategy: int) -> bool:
    """Whether it has a regulator."""
    return 0 <= strategy < len(_FILTERS) and _FILTERS[strategy]


@compilable
def _tracks(strategy: int) -> bool:
    return 0 <= strategy < len(_TRACKS) and _TRACKS[strategy]


@compilable
def leads_by(a: ActuatorRecord, b: ActuatorState) -> float:
    """Time, s, by which the command is to be ahead of the node, apart from the lag that is stated."""
    leads = 0 <= b.strategy < len(_LEADS) and _LEADS[b.strategy]
    return float(b.late_command + (a.force_lag + b.late_force if leads else 0.0))


@compilable
def _predicts(strategy: int) -> bool:
    return 0 <= strategy < len(_PREDICTS) and _PREDICTS[strategy]
