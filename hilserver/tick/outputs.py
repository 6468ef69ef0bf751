"""Part of the tick: the outputs. Each real valve's command within range and slew, and outputs other than valves."""

from __future__ import annotations

from math import floor, nan, pi, sin

from hilserver.circuit.engine import N_VALUES
from hilserver.numerics.arrays import Floats, Indices
from hilserver.numerics.compilable import compilable
from hilserver.numerics.shape import clip
from hilserver.tick.bridge.catch_up import catching_up, forget_withheld, note_withheld
from hilserver.tick.bridge.effects import Compensates
from hilserver.tick.bridge.learning import learn
from hilserver.tick.bridge.oscillation import forget_oscillation, watch_oscillation
from hilserver.tick.bridge.strategies import compensates, follows, looks_ahead, stop_winding_up
from hilserver.tick.codes import Action, FaultCode, Learning, Mode, Saturation, When
from hilserver.tick.demand import demand
from hilserver.tick.modes import supervisor_lost, too_many_missed
from hilserver.tick.plan import Plan, ValveRecord
from hilserver.tick.row import ValveState, header, learning_state, past_of_valve, trend, valve_state
from hilserver.tick.valve import note_command
from hilserver.tick.volumes import flow_of

SPOOL_TOLERANCE = 0.05
"""Fraction of full stroke by which measured and simulated spool position may differ before this is reported."""
TURNED, TURN_TIME = 0.15, 5e-3
"""Fraction of the hysteresis by which a command must come back to have turned; s that the output takes to follow."""


@compilable
def drive_valves(plan: Plan, ix: Indices, row: Floats, work: Floats, elapsed: float, dt: float, action: int) -> None:
    """For each real valve: virtual flow -> demand (bridge) -> command within range and slew -> raw output.

    ``elapsed`` is the time since the last tick; the command never moves by more than one tick's slew.
    """
    head = header(row)
    travel = travel_of_inputs(plan, row, elapsed)
    circuit = row[plan.layout[0].circuit : plan.layout[0].circuit + int(ix[N_VALUES])]
    for i in range(plan.valve.shape[0]):
        b, v = valve_state(plan, row, i), plan.valve[i]
        b.flow_virtual = flow_of(ix, circuit, v.port)
        b.flow_measured = row[v.column_Q] if v.column_Q >= 0 else nan
        b.learning = Learning.OFF.value
        if compensates(b.strategy, Compensates.PARAMETERS) and head.mode == Mode.RUNNING:
            learn(b, learning_state(plan, row, i), v, work, elapsed)
        b.saturation = Saturation.SPOOL_FAULT.value if abs(b.spool_error) > SPOOL_TOLERANCE else 0
        demand(plan, row, work, i, elapsed, dt, action)
        if elapsed > 1.5 * dt:
            forget_withheld(b)  # missed ticks: the last command was held for longer
        low, high = free_range(plan, row, i)
        limit_command(row, b, v, low, high, dt, action)
        if head.mode == Mode.RUNNING and follows(b.strategy):
            watch_oscillation(b, v, travel, elapsed)
        else:
            forget_oscillation(b, v)
        note_command(b.command, past_of_valve(plan.layout[0], row, i))


@compilable
def travel_of_inputs(plan: Plan, row: Floats, elapsed: float) -> float:
    """Sum of the changes of the operator inputs since the last tick, as fractions of half their ranges."""
    total = 0.0
    for i in range(plan.input.shape[0]):
        step = trend(plan, row, i).step
        total += abs(step) / (0.5 * (plan.input[i].high - plan.input[i].low))
    return float(total * elapsed / plan.loop[0].dt)


@compilable
def free_range(plan: Plan, row: Floats, valve: int) -> tuple[float, float]:
    """Permitted commands at the present position: none towards an end at or beyond it, reduced ones near it."""
    v = plan.valve[valve]
    low, high = v.u_min, v.u_max
    for k in range(plan.end.shape[0]):
        end = plan.end[k]
        if end.valve != valve:
            continue
        x = row[plan.layout[0].channel + end.channel]
        rising = share_of(end.upper - x, end.distance)
        falling = share_of(x - end.lower, end.distance)
        if end.sign < 0:
            rising, falling = falling, rising
        low, high = max(low, falling * v.u_min), min(high, rising * v.u_max)
    return low, high


@compilable
def share_of(way: float, distance: float) -> float:
    """Permitted fraction of the full command at this distance from the end; 0 at the end and beyond it."""
    if way <= 0.0:
        return 0.0
    return 1.0 if way >= distance else float(way / distance)


@compilable
def limit_command(row: Floats, b: ValveState, v: ValveRecord, low: float, high: float, dt: float, action: int) -> None:
    """The final limits on the demand of bridge and circuit: hold, dither, range, slew; then polarity, null, raw output.

    While RUNNING the command also stays between ``low`` and ``high`` (ends of the stroke). In all other modes it goes
    to its safe value: at the slew limit after a trip, otherwise at the slower stop ramp.
    """
    head = header(row)
    last, target, rate = b.command, v.safe_value, v.stop_rate
    if head.mode == Mode.RUNNING:
        target = b.demand + v.dither * sin(2.0 * pi * v.dither_frequency * head.time)
        rate = v.slew_rate
        if action == Action.HOLD:
            target = last
    elif head.mode == Mode.FAULT and (head.fault != FaultCode.SUPERVISOR or action == Action.TRIP):
        rate = v.slew_rate
    inside = clip(target, v.u_min, v.u_max)
    in_range = inside == target
    stopped = head.mode == Mode.RUNNING and not low <= inside <= high
    if stopped:
        inside = clip(inside, low, high)
        stop_winding_up(inside, b, v)
    wanted, most = inside, rate * dt
    catches_up = head.mode == Mode.RUNNING and action != Action.HOLD and looks_ahead(b.strategy)
    if catches_up:
        wanted = clip(inside + catching_up(b, v, dt), max(low, v.u_min), min(high, v.u_max))
    b.command = clip(wanted, last - most, last + most)
    if catches_up:
        note_withheld(inside - b.command, b, v)
    else:
        forget_withheld(b)
    take_up_play(b, v, dt, max(most - abs(b.command - last), 0.0), head.mode == Mode.RUNNING and follows(b.strategy))
    low, high = min(b.command, max(low, v.u_min)), max(b.command, min(high, v.u_max))
    b.output = raw_output(clip(b.command + b.play, low, high), v)
    if head.mode == Mode.RUNNING:
        flags = b.saturation
        if not in_range:
            flags |= Saturation.RANGE.value
        if stopped:
            flags |= Saturation.NEAR_END.value
        if b.command != wanted:
            flags |= Saturation.SLEW.value
        b.saturation = flags


@compilable
def take_up_play(b: ValveState, v: ValveRecord, dt: float, most: float, compensates: bool) -> None:
    """Follow the direction of the command with half of the valve's hysteresis: the inverse of a play.

    The command has turned when it has come back from its farthest point by a part of the hysteresis, so that its noise
    does not move the output to and fro; until then, the spool stands still. ``most``: by which the output may change.
    """
    if v.hysteresis == 0.0:
        return
    turned = max(TURNED * v.hysteresis, 2.0 * v.dither)
    most = min(most, v.hysteresis * dt / TURN_TIME)
    if not compensates:
        b.direction, b.farthest = 0.0, b.command
    elif b.direction * (b.command - b.farthest) > 0.0:
        b.farthest = b.command
    elif abs(b.command - b.farthest) > turned:
        b.direction, b.farthest = (1.0 if b.command > b.farthest else -1.0), b.command
    b.play = clip(0.5 * v.hysteresis * b.direction, b.play - most, b.play + most)


@compilable
def set_outputs(plan: Plan, row: Floats) -> None:
    """The outputs other than valves: on in their modes, and ``off_delay`` longer.

    A heartbeat stops as soon as its condition is false.
    """
    head = header(row)
    mode, ticks = head.mode, head.missed + 1.0
    for i in range(plan.output.shape[0]):
        output, ended = plan.output[i], plan.layout[0].output_off + i
        when, off, on = output.when, output.off, output.on
        is_on = is_healthy(plan, row)
        if when == When.ARMED or when == When.RUNNING:
            is_on = mode == Mode.RUNNING or (when == When.ARMED and mode == Mode.ARMED)
            row[ended] = 0.0 if is_on else row[ended] + ticks * plan.loop[0].dt
            is_on = row[ended] < output.off_delay + 0.5 * plan.loop[0].dt
        elif when == When.HEARTBEAT and is_on:
            was_on, every = row[plan.layout[0].output + i] == on, output.toggle_ticks
            changes = floor(head.tick / every) != floor((head.tick - ticks) / every)
            is_on = was_on != changes
        row[plan.layout[0].output + i] = on if is_on else off


@compilable
def is_healthy(plan: Plan, row: Floats) -> bool:
    """Whether there is neither a fault nor a condition that would be a fault if the rig were armed."""
    head = header(row)
    is_up = head.mode in (Mode.SAFE, Mode.ARMED, Mode.RUNNING) and head.device_error == 0
    return is_up and not supervisor_lost(plan, row) and not too_many_missed(plan, row)


@compilable
def raw_output(command: float, v: ValveRecord) -> float:
    """The device's raw value for a command: polarity, null offset, scale."""
    return float(v.raw_offset + v.raw_gain * clip(v.polarity * command + v.null, -1.0, 1.0))
