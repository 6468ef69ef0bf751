"""Part of the tick: what goes out. Each real valve's command within range and slew, and outputs that are no valves."""

from __future__ import annotations

from math import exp, floor, isfinite, nan, pi, sin

from hilserver.circuit.engine import N_VALUES, PORTS
from hilserver.numerics.arrays import Floats, Indices
from hilserver.numerics.shape import clip
from hilserver.tick.bridge.columns import (
    ADAPTIVE,
    CHANNEL_P,
    CHANNEL_Q,
    CHANNEL_S,
    CHANNEL_T,
    COMMAND_OUT,
    DEMAND,
    DITHER,
    DITHER_FREQUENCY,
    FADE,
    FADE_TIME,
    FLOW_BEFORE,
    FLOW_MEASURED,
    FLOW_SERVO,
    FLOW_VIRTUAL,
    MANUAL,
    NEAR_END,
    OUTPUT,
    PORT,
    PREDICTION,
    RANGE,
    SAFE_VALUE,
    SATURATION,
    SECOND_ORDER,
    SLEW,
    SLEW_RATE,
    SPOOL,
    SPOOL_ERROR,
    SPOOL_FAULT,
    STOP_RATE,
    STRATEGY_NOW,
    U_MAX,
    U_MIN,
)
from hilserver.tick.bridge.compensation import add_volume_error, compensated, learn
from hilserver.tick.bridge.oscillation import forget_swing, watch_swing
from hilserver.tick.bridge.strategies import prepare_strategy, raw_output, strategy_command
from hilserver.tick.columns import (
    ARMED,
    CHANNEL,
    CIRCUIT,
    DEVICE_ERROR,
    DT,
    END_CHANNEL,
    END_DISTANCE,
    END_LOWER,
    END_SIGN,
    END_UPPER,
    END_VALVE,
    FAULT,
    FAULT_BRIDGE,
    FAULT_SUPERVISOR,
    FAULTED,
    HEARTBEAT,
    HOLD,
    INPUT_HIGH,
    INPUT_LOW,
    MISSED,
    MODE,
    OUTPUT_OFF,
    OUTPUT_ON,
    OUTPUT_WHEN,
    OUTPUTS,
    RUNNING,
    STARTUP,
    STEP_1,
    TICK,
    TIME,
    TOGGLE_TICKS,
    TREND,
    TRENDS,
    TRIP,
    WHEN_ARMED,
    WHEN_RUNNING,
)
from hilserver.tick.estimator import past_of_valve, valve_block
from hilserver.tick.look_ahead import FLOW, FORESEEN, HELD, PRESSURE, foreseen, stiffness
from hilserver.tick.modes import supervisor_lost, take_over, too_many_missed, trip
from hilserver.tick.plan import Plan

SPOOL_TOLERANCE = 0.05
"""Share of full stroke by which the measured spool may differ from the followed one, before it is reported."""


def drive_valves(plan: Plan, ix: Indices, row: Floats, work: Floats, elapsed: float, dt: float, action: int) -> None:
    """For each real valve: virtual flow -> demand (bridge) -> command within range and slew -> raw output.

    The time since the last tick is ``elapsed``; the command moves by no more than one tick's slew all the same.
    """
    travel = travel_of_inputs(plan, row, elapsed)
    for i in range(plan.valve.shape[0]):
        b, v = valve_block(plan, row, i), plan.valve[i]
        place = int(ix[int(ix[PORTS]) + int(v[PORT])])
        add_volume_error(b, v, elapsed)
        b[FLOW_BEFORE] = b[FLOW_VIRTUAL]
        b[FLOW_VIRTUAL] = row[plan.layout[CIRCUIT] + place] if place < int(ix[N_VALUES]) else 0.0
        b[FLOW_MEASURED] = row[int(v[CHANNEL_Q])] if v[CHANNEL_Q] >= 0.0 else nan
        if b[STRATEGY_NOW] == ADAPTIVE and row[MODE] == RUNNING:
            learn(b, v, elapsed)
        b[SATURATION] = SPOOL_FAULT if abs(b[SPOOL_ERROR]) > SPOOL_TOLERANCE else 0.0
        demand(plan, row, work, i, elapsed, dt, action)
        low, high = free_range(plan, row, i)
        limit_command(row, b, v, low, high, dt, action)
        if row[MODE] == RUNNING and b[STRATEGY_NOW] != MANUAL:
            watch_swing(b, v, travel, elapsed)
        else:
            forget_swing(b, v)
        past = past_of_valve(plan, row, i)
        for _ in range(int(row[MISSED]) + 1):
            for j in range(past.shape[0] - 1, 0, -1):
                past[j] = past[j - 1]
            past[0] = b[COMMAND_OUT]


def travel_of_inputs(plan: Plan, row: Floats, elapsed: float) -> float:
    """By how much the operator's inputs have moved since the last tick, of half their ranges, all together."""
    total = 0.0
    for i in range(plan.input.shape[0]):
        step = row[plan.layout[TREND] + TRENDS * i + STEP_1]
        total += abs(step) / (0.5 * (plan.input[i, INPUT_HIGH] - plan.input[i, INPUT_LOW]))
    return float(total * elapsed / plan.loop[DT])


def demand(plan: Plan, row: Floats, work: Floats, i: int, elapsed: float, dt: float, action: int) -> None:
    """What the bridge asks for. While it doesn't drive the command (not RUNNING, hold) it waits to take over from it.

    A strategy that takes over starts from the last demand and fades to its own. A command that is not finite trips.
    """
    b, v, number = valve_block(plan, row, i), plan.valve[i], int(valve_block(plan, row, i)[STRATEGY_NOW])
    if row[MODE] != RUNNING or action == HOLD:
        b[DEMAND] = b[COMMAND_OUT]
        take_over(b, v)
        return
    p, p_S, p_T = row[int(v[CHANNEL_P])], row[int(v[CHANNEL_S])], row[int(v[CHANNEL_T])]
    if SECOND_ORDER <= number <= ADAPTIVE:
        view, port = FORESEEN if number >= PREDICTION else HELD, int(v[PORT])
        q_ahead, p_ahead = foreseen(plan, work, view, port, FLOW), foreseen(plan, work, view, port, PRESSURE)
        u = compensated(number, q_ahead, p_ahead, p_T, stiffness(plan, row, work, i), b, v, work, elapsed, dt)
    else:
        u = strategy_command(number, b[FLOW_VIRTUAL], p, p_S, p_T, b, v, elapsed, dt)
    if not isfinite(u):
        trip(row, FAULT_BRIDGE)
        b[DEMAND] = b[SPOOL] = b[COMMAND_OUT]
        take_over(b, v)
        return
    if isfinite(b[FADE]):
        b[FADE] *= exp(-elapsed / v[FADE_TIME]) if v[FADE_TIME] > 0.0 else 0.0
    else:
        b[FADE] = b[DEMAND] - u if v[FADE_TIME] > 0.0 else 0.0
    b[DEMAND] = clip(u + b[FADE], -1.0, 1.0)


def free_range(plan: Plan, row: Floats, valve: int) -> tuple[float, float]:
    """The commands that a valve may have where it is: towards an end of the stroke none beyond it, less before it."""
    low, high = plan.valve[valve, U_MIN], plan.valve[valve, U_MAX]
    for k in range(plan.end.shape[0]):
        if int(plan.end[k, END_VALVE]) != valve:
            continue
        x = row[plan.layout[CHANNEL] + int(plan.end[k, END_CHANNEL])]
        rising = share_of(plan.end[k, END_UPPER] - x, plan.end[k, END_DISTANCE])
        falling = share_of(x - plan.end[k, END_LOWER], plan.end[k, END_DISTANCE])
        if plan.end[k, END_SIGN] < 0.0:
            rising, falling = falling, rising
        low, high = max(low, falling * plan.valve[valve, U_MIN]), min(high, rising * plan.valve[valve, U_MAX])
    return low, high


def share_of(way: float, distance: float) -> float:
    """Share of the full command with so far to go; 0 at the end and beyond it."""
    if way <= 0.0:
        return 0.0
    return 1.0 if way >= distance else float(way / distance)


def limit_command(row: Floats, b: Floats, v: Floats, low: float, high: float, dt: float, action: int) -> None:
    """The last word, whatever bridge and circuit want: hold, dither, range, slew; then polarity, null and raw output.

    While RUNNING it keeps between ``low`` and ``high`` too (ends of the stroke). Outside of RUNNING the command goes to
    its safe value: at the slew limit after a trip, else at the slower stop ramp.
    """
    last, target, rate = b[COMMAND_OUT], v[SAFE_VALUE], v[STOP_RATE]
    if row[MODE] == RUNNING:
        target = b[DEMAND] + v[DITHER] * sin(2.0 * pi * v[DITHER_FREQUENCY] * row[TIME])
        rate = v[SLEW_RATE]
        if action == HOLD:
            target = last
    elif row[MODE] == FAULTED and (row[FAULT] != FAULT_SUPERVISOR or action == TRIP):
        rate = v[SLEW_RATE]
    inside = clip(target, v[U_MIN], v[U_MAX])
    in_range = inside == target
    stopped = row[MODE] == RUNNING and not low <= inside <= high
    if stopped:
        inside = clip(inside, low, high)
        if b[STRATEGY_NOW] == FLOW_SERVO:  # no wind-up
            prepare_strategy(FLOW_SERVO, b[FLOW_VIRTUAL], inside, b, v)
    b[COMMAND_OUT] = clip(inside, last - rate * dt, last + rate * dt)
    b[OUTPUT] = raw_output(b[COMMAND_OUT], v)
    if row[MODE] == RUNNING:
        flags = int(b[SATURATION])
        if not in_range:
            flags |= RANGE
        if stopped:
            flags |= NEAR_END
        if b[COMMAND_OUT] != inside:
            flags |= SLEW
        b[SATURATION] = flags


def set_outputs(plan: Plan, row: Floats) -> None:
    """The outputs that are no valves: off, but for the modes in which they are on. A heartbeat stops with its cause."""
    mode, ticks = row[MODE], row[MISSED] + 1.0
    for i in range(plan.output.shape[0]):
        when, off, on = int(plan.output[i, OUTPUT_WHEN]), plan.output[i, OUTPUT_OFF], plan.output[i, OUTPUT_ON]
        is_on = is_healthy(plan, row)
        if when == WHEN_ARMED:
            is_on = mode in (ARMED, RUNNING)
        elif when == WHEN_RUNNING:
            is_on = mode == RUNNING
        elif when == HEARTBEAT and is_on:
            was_on, every = row[plan.layout[OUTPUTS] + i] == on, plan.output[i, TOGGLE_TICKS]
            changes = floor(row[TICK] / every) != floor((row[TICK] - ticks) / every)
            is_on = was_on != changes
        row[plan.layout[OUTPUTS] + i] = on if is_on else off


def is_healthy(plan: Plan, row: Floats) -> bool:
    """Whether there is no fault, nor anything that would be one if the rig were armed."""
    is_up = row[MODE] != STARTUP and row[MODE] != FAULTED and row[DEVICE_ERROR] == 0.0
    return is_up and not supervisor_lost(plan, row) and not too_many_missed(plan, row)
