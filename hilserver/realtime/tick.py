"""The tick: scale and check the inputs, step the virtual circuit, bridge, limit, note everything in the row.

One compiled function, the same under the real-time clock and in lockstep. It is a pure function of the row (its memory
and its new inputs), the plan and the packed circuit: the same inputs give the same outputs, bit for bit.
"""

from __future__ import annotations

from math import exp, floor, isfinite, nan, pi, sin

from hilserver.bridge.columns import (
    ADAPTIVE,
    BLOCK,
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
from hilserver.bridge.compensation import add_volume_error, compensated, learn
from hilserver.bridge.strategies import prepare_strategy, raw_output, set_jog, strategy_command
from hilserver.bridge.swing import forget_swing, watch_swing
from hilserver.circuit.engine import (
    N_VALUES,
    PORTS,
    carry,
    load,
)
from hilserver.numerics.arrays import Floats, Indices, Integers
from hilserver.numerics.shape import clip, step
from hilserver.realtime.ahead import FLOW, FORESEEN, HELD, PRESSURE, foreseen, run_circuit, stiffness
from hilserver.realtime.machine import follow_machine, past_of_valve, valve_block
from hilserver.rig.columns import AGE as AGE_SECTION
from hilserver.rig.columns import (
    ARM,
    ARMED,
    BAD_VALUE,
    BEND,
    BY_AGE,
    BY_RATE,
    CAUSE_PERSISTS,
    CHANGE,
    CHANNEL,
    CIRCUIT,
    CIRCUIT_SPACE,
    CIRCUIT_VERSION,
    COMMAND,
    COMMAND_A,
    COMMAND_B,
    COMMAND_KIND,
    COMMAND_SEQUENCE,
    CONSTANT,
    CURVE_FIRST,
    CURVE_KIND,
    CURVE_LAST,
    CYCLE,
    CYCLE_AMPLITUDE,
    CYCLE_AT,
    CYCLE_FREQUENCY,
    CYCLE_INPUT,
    CYCLE_LENGTH,
    CYCLE_REPEATS,
    CYCLE_SHAPE,
    CYCLE_TIME,
    CYCLE_VALUE,
    DEVICE_ERROR,
    DISARM,
    DONE,
    DT,
    ENABLE_ACTION,
    ENABLE_CHANNEL,
    ENABLE_MAX_AGE,
    END_CHANNEL,
    END_DISTANCE,
    END_LOWER,
    END_SIGN,
    END_UPPER,
    END_VALVE,
    ESTOP,
    FAULT,
    FAULT_BRIDGE,
    FAULT_DEVICE,
    FAULT_DIVERGED,
    FAULT_ENABLE,
    FAULT_ESTOP,
    FAULT_LIMIT,
    FAULT_MISSED,
    FAULT_SUPERVISOR,
    FAULTED,
    FILTER,
    HEARTBEAT,
    HEARTBEAT_AGE,
    HEARTBEAT_TIMEOUT,
    HOLD,
    INPUT,
    INPUT_HIGH,
    INPUT_INITIAL,
    INPUT_LOW,
    JOG,
    JUMP,
    LAST,
    LIMIT,
    LIMIT_ACTION,
    LIMIT_ACTIVE,
    LIMIT_CHANNEL,
    LIMIT_KIND,
    LIMIT_LOWER,
    LIMIT_UPPER,
    MAX_MISSED,
    MISSED,
    MODE,
    NO_FAULT,
    NOT_ENABLED,
    NOT_MANUAL,
    NOTHING,
    OUTPUT_OFF,
    OUTPUT_ON,
    OUTPUT_WHEN,
    OUTPUTS,
    RAMP,
    RAW,
    RAW_HIGH,
    RAW_LOW,
    RAW_SLOT,
    RESET,
    RESULT,
    RUNNING,
    SAFE,
    SET_INPUT,
    SINE,
    SLOPE,
    SMOOTH,
    STALE,
    START,
    STARTUP,
    STEP_1,
    STEP_2,
    STOP,
    STRATEGY,
    SWAP,
    TABLE,
    TICK,
    TIME,
    TOGGLE_TICKS,
    TREND,
    TRENDS,
    TRIP,
    UNKNOWN_COMMAND,
    VALID_HIGH,
    VALID_LOW,
    VALID_RATE,
    VALVE,
    WARNINGS,
    WHEN_ARMED,
    WHEN_RUNNING,
    WRONG_MODE,
)
from hilserver.rig.plan import Plan

SPOOL_TOLERANCE = 0.05
"""Share of full stroke by which the measured spool may differ from the followed one, before it is reported."""


def tick(plan: Plan, ix: Indices, val: Floats, row: Floats, work: Floats, command: Floats) -> None:
    """One tick: ``row`` comes in as the last tick left it, with the new inputs set; it goes out complete.

    ``work`` is scratch space (PackedCircuit.work_size); ``command`` the mailbox record to take, all zero for none.
    """
    dt = plan.loop[DT]
    row[TIME] = row[TICK] * dt
    elapsed = (clip(row[MISSED], 0.0, plan.loop[MAX_MISSED]) + 1.0) * dt
    scale_channels(plan, row, elapsed)
    action = check_limits(plan, row, elapsed)
    take_command(plan, row, command, action)
    watch(plan, row, action)
    set_inputs(plan, row, elapsed)
    follow_machine(plan, row, work, elapsed)
    run_circuit(plan, ix, val, row, work, elapsed)
    watch_circuit(plan, ix, val, row)
    drive_valves(plan, ix, row, work, elapsed, dt, action)
    set_outputs(plan, row)


def scale_channels(plan: Plan, row: Floats, elapsed: float) -> None:
    """Raw readings to SI values, filtered, and their rate of change.

    A missing sample (NaN, not valid, or one that gives no finite value) keeps the last value and lets it grow stale.
    """
    raw, age = plan.layout[RAW], plan.layout[AGE_SECTION]
    value, stale, change = plan.layout[CHANNEL], plan.layout[STALE], plan.layout[CHANGE]
    for i in range(plan.channel.shape[0]):
        slot = int(plan.channel[i, RAW_SLOT])
        if slot < 0:
            row[value + i], row[stale + i] = plan.channel[i, CONSTANT], 0.0
            continue
        first, last, gap = not isfinite(row[stale + i]), row[value + i], row[stale + i] + elapsed - row[age + slot]
        new, rate = scaled_value(plan, i, row[raw + slot]), 0.0
        if not first:
            new = last + (new - last) * elapsed / (elapsed + plan.channel[i, FILTER])
            rate = (new - last) / max(gap, elapsed)  # gap: from the last sample to this one
        row[change + i] = 0.0
        if isfinite(new) and isfinite(row[age + slot]) and abs(rate) <= plan.channel[i, VALID_RATE]:
            row[value + i], row[stale + i], row[change + i] = new, row[age + slot], rate
        else:
            row[stale + i] += elapsed


def scaled_value(plan: Plan, channel: int, raw: float) -> float:
    """The SI value of a raw reading by the channel's curve; NaN where reading or value is not valid."""
    if not plan.channel[channel, RAW_LOW] <= raw <= plan.channel[channel, RAW_HIGH]:
        return nan
    first, last = int(plan.channel[channel, CURVE_FIRST]), int(plan.channel[channel, CURVE_LAST])
    if plan.channel[channel, CURVE_KIND] == TABLE:
        k = first + 1
        while k < last and raw >= plan.curve[k, 0]:
            k += 1
        r0, v0, r1, v1 = plan.curve[k - 1, 0], plan.curve[k - 1, 1], plan.curve[k, 0], plan.curve[k, 1]
        value = v0 + (v1 - v0) * (raw - r0) / (r1 - r0)
    else:
        value = plan.curve[last, 0]
        for k in range(last - 1, first - 1, -1):
            value = value * raw + plan.curve[k, 0]
    return value if plan.channel[channel, VALID_LOW] <= value <= plan.channel[channel, VALID_HIGH] else nan


def check_limits(plan: Plan, row: Floats, elapsed: float) -> int:
    """Mark each limit in the row, 1 where violated; return the severest action asked for.

    A channel that never had a sample violates all its limits.
    """
    severest, active = 0, 0
    for i in range(plan.limit.shape[0]):
        channel = int(plan.limit[i, LIMIT_CHANNEL])
        value, stale = row[plan.layout[CHANNEL] + channel], row[plan.layout[STALE] + channel]
        if plan.limit[i, LIMIT_KIND] == BY_AGE:
            value = stale
        elif plan.limit[i, LIMIT_KIND] == BY_RATE:
            value = row[plan.layout[CHANGE] + channel]
        violated = not (plan.limit[i, LIMIT_LOWER] <= value <= plan.limit[i, LIMIT_UPPER] and isfinite(stale))
        row[plan.layout[LIMIT] + i] = 1.0 if violated else 0.0
        if violated:
            active += 1
            severest = max(severest, int(plan.limit[i, LIMIT_ACTION]))
    row[WARNINGS] = active
    return severest


def take_command(plan: Plan, row: Floats, command: Floats, action: int) -> None:
    """Carry out the mailbox record of this tick, if any, and note its sequence number and result."""
    kind = int(command[COMMAND_KIND])
    if kind == NOTHING:
        return
    row[COMMAND] = command[COMMAND_SEQUENCE]
    row[RESULT] = carry_out(plan, row, kind, command[COMMAND_A], command[COMMAND_B], action)


def carry_out(plan: Plan, row: Floats, kind: int, a: float, b: float, action: int) -> int:
    """One command; returns its result. What names, ranges and types go the supervisor has checked."""
    mode = int(row[MODE])
    if kind == ARM:
        return change_mode(row, mode == SAFE, ARMED, refusal(plan, row, action, TRIP))
    if kind == START:
        return change_mode(row, mode == ARMED, RUNNING, refusal(plan, row, action, RAMP))
    if kind == STOP:
        return change_mode(row, mode == RUNNING, ARMED, DONE)
    if kind == DISARM:
        return change_mode(row, mode in (ARMED, RUNNING), SAFE, DONE)
    if kind == RESET:
        return reset(plan, row, action)
    if kind == ESTOP:
        trip(row, FAULT_ESTOP)
        return DONE
    if kind == SET_INPUT:
        return set_input(plan, row, a, b)
    if kind == CYCLE:
        return run_cycle(plan, row, a)
    if kind == STRATEGY:
        return change_strategy(plan, row, a, b)
    if kind == JOG:
        return start_jog(plan, row, a, b)
    if kind == SWAP:  # the circuit itself was swapped just before this tick
        row[CIRCUIT_VERSION] = a
        return DONE
    return UNKNOWN_COMMAND


def change_mode(row: Floats, allowed: bool, mode: int, refused: int) -> int:
    """Change the mode where it is allowed and nothing else forbids it; ``refused``: the result then, else DONE."""
    if not allowed:
        return WRONG_MODE
    if refused == DONE:
        row[MODE] = mode
    return refused


def refusal(plan: Plan, row: Floats, action: int, ending: int) -> int:
    """What forbids to arm or to start: the local enable, or a limit whose action is ``ending`` or severer."""
    if not is_enabled(plan, row):
        return NOT_ENABLED
    return LIMIT_ACTIVE if action >= ending else DONE


def is_enabled(plan: Plan, row: Floats) -> bool:
    """Whether the local enable is on, by a fresh sample; always, where the rig has none."""
    channel = int(plan.loop[ENABLE_CHANNEL])
    if channel < 0:
        return True
    fresh = row[plan.layout[STALE] + channel] <= plan.loop[ENABLE_MAX_AGE]
    return bool(fresh and row[plan.layout[CHANNEL] + channel] >= 0.5)


def reset(plan: Plan, row: Floats, action: int) -> int:
    """Out of FAULT, when nothing would trip again: to SAFE, through STARTUP where samples are still missing."""
    if row[MODE] != FAULTED:
        return WRONG_MODE
    if action == TRIP:
        return LIMIT_ACTIVE
    if row[DEVICE_ERROR] != 0.0 or supervisor_lost(plan, row) or too_many_missed(plan, row):
        return CAUSE_PERSISTS
    row[MODE], row[FAULT] = STARTUP, NO_FAULT
    return DONE


def set_input(plan: Plan, row: Floats, number: float, value: float) -> int:
    """A new value for operator input ``number``, held within its range."""
    if row[MODE] != RUNNING:
        return WRONG_MODE
    if not (0.0 <= number < plan.input.shape[0] and isfinite(value)):
        return BAD_VALUE
    i = int(number)
    row[plan.layout[INPUT] + i] = clip(value, plan.input[i, INPUT_LOW], plan.input[i, INPUT_HIGH])
    return DONE


def run_cycle(plan: Plan, row: Floats, start: float) -> int:
    """Start the work cycle (again), or end it: the inputs stay as they are."""
    if row[MODE] != RUNNING:
        return WRONG_MODE
    if plan.cycle.shape[0] == 0:
        return BAD_VALUE
    row[CYCLE_TIME] = 0.0 if start > 0.0 else -1.0
    return DONE


def change_strategy(plan: Plan, row: Floats, valve: float, wanted: float) -> int:
    """Another strategy for a valve, taken over without a jump."""
    if not (0.0 <= valve < plan.valve.shape[0] and MANUAL <= wanted <= FLOW_SERVO):
        return BAD_VALUE
    b, v = row[plan.layout[VALVE] + int(valve) * BLOCK :], plan.valve[int(valve)]
    if wanted == FLOW_SERVO and v[CHANNEL_Q] < 0.0:
        return BAD_VALUE
    b[STRATEGY_NOW] = int(wanted)
    take_over(b, v)
    return DONE


def start_jog(plan: Plan, row: Floats, valve: float, wanted: float) -> int:
    """A new manual command for a valve."""
    if row[MODE] != RUNNING:
        return WRONG_MODE
    if not (0.0 <= valve < plan.valve.shape[0] and isfinite(wanted)):
        return BAD_VALUE
    b = row[plan.layout[VALVE] + int(valve) * BLOCK :]
    if b[STRATEGY_NOW] != MANUAL:
        return NOT_MANUAL
    set_jog(wanted, b, plan.valve[int(valve)])
    return DONE


def trip(row: Floats, fault: int) -> None:
    """Latch a fault; the first one stays."""
    if row[MODE] != FAULTED:
        row[MODE], row[FAULT] = FAULTED, fault


def watch(plan: Plan, row: Floats, action: int) -> None:
    """What changes the mode without a command: first samples, limits, local enable, missed ticks, what was lost."""
    if row[MODE] == STARTUP and all_sampled(plan, row):
        row[MODE] = SAFE
    if row[DEVICE_ERROR] != 0.0:
        trip(row, FAULT_DEVICE)
    if row[MODE] != ARMED and row[MODE] != RUNNING:
        return
    if supervisor_lost(plan, row):
        trip(row, FAULT_SUPERVISOR)
    elif too_many_missed(plan, row):
        trip(row, FAULT_MISSED)
    elif action == TRIP:
        for i in range(plan.limit.shape[0]):
            if row[plan.layout[LIMIT] + i] > 0.0 and plan.limit[i, LIMIT_ACTION] == TRIP:
                trip(row, FAULT_LIMIT + i)
    elif plan.loop[ENABLE_ACTION] >= RAMP and not is_enabled(plan, row):
        if plan.loop[ENABLE_ACTION] == TRIP:
            trip(row, FAULT_ENABLE)
        else:
            row[MODE] = SAFE
    elif action == RAMP and row[MODE] == RUNNING:
        row[MODE] = ARMED


def supervisor_lost(plan: Plan, row: Floats) -> bool:
    """Whether the supervisor's heartbeat is too old (or no number)."""
    return not row[HEARTBEAT_AGE] <= plan.loop[HEARTBEAT_TIMEOUT]


def too_many_missed(plan: Plan, row: Floats) -> bool:
    """Whether more ticks were missed than are made good."""
    return not row[MISSED] <= plan.loop[MAX_MISSED]


def all_sampled(plan: Plan, row: Floats) -> bool:
    """Whether every channel has had a sample."""
    missing = 0
    for i in range(plan.channel.shape[0]):
        missing += not isfinite(row[plan.layout[STALE] + i])
    return missing == 0


def set_inputs(plan: Plan, row: Floats, elapsed: float) -> None:
    """Operator inputs: at their initial values unless RUNNING; from the work cycle while it runs; else as last set."""
    first = plan.layout[INPUT]
    if row[MODE] != RUNNING:
        row[CYCLE_TIME] = -1.0
        for i in range(plan.input.shape[0]):
            row[first + i] = plan.input[i, INPUT_INITIAL]
    elif row[CYCLE_TIME] >= 0.0:
        t, length = row[CYCLE_TIME], plan.loop[CYCLE_LENGTH]
        for i in range(plan.input.shape[0]):
            row[first + i] = cycle_value(plan.cycle, i, t, row[first + i])
        t += elapsed
        if t > length + 0.5 * elapsed:
            t = t - length if plan.loop[CYCLE_REPEATS] > 0.0 else -1.0
        row[CYCLE_TIME] = t
    note_trends(plan, row, elapsed)


def note_trends(plan: Plan, row: Floats, elapsed: float) -> None:
    """How the inputs move, per tick: the last steps of each, and what may be carried on: a slope and a bend.

    They are carried on where the input moves smoothly: where the last steps, or their differences, are alike. A jump
    has no slope.
    """
    for i in range(plan.input.shape[0]):
        now, t = (
            row[plan.layout[INPUT] + i],
            row[plan.layout[TREND] + TRENDS * i : plan.layout[TREND] + TRENDS * (i + 1)],
        )
        step = (now - t[LAST]) * plan.loop[DT] / elapsed
        bend, bend_before = step - t[STEP_1], t[STEP_1] - t[STEP_2]
        smooth = alike(step, t[STEP_1]) or alike(bend, bend_before)
        t[SLOPE] = step if smooth else 0.0
        t[BEND] = least(bend, bend_before) if smooth else 0.0
        t[LAST], t[STEP_2], t[STEP_1] = now, t[STEP_1], step


def alike(a: float, b: float) -> bool:
    """Whether two numbers differ by no more than half of the larger."""
    return abs(a - b) <= 0.5 * max(abs(a), abs(b))


def least(a: float, b: float) -> float:
    """The smaller of two numbers of one sign, else nothing."""
    if a * b <= 0.0:
        return 0.0
    return a if abs(a) < abs(b) else b


def cycle_value(cycle: Floats, number: int, t: float, otherwise: float) -> float:
    """Value of input ``number`` at cycle time ``t``; ``otherwise`` where the cycle does not drive it."""
    value, since, known = float(otherwise), 0.0, False
    for k in range(cycle.shape[0]):
        if cycle[k, CYCLE_INPUT] != number:
            continue
        at, target = float(cycle[k, CYCLE_AT]), float(cycle[k, CYCLE_VALUE])
        if at > t:
            if not known:
                return target
            if cycle[k, CYCLE_SHAPE] == JUMP:
                return value
            if cycle[k, CYCLE_SHAPE] == SMOOTH:
                return step(t, since, value, at, target)
            if cycle[k, CYCLE_SHAPE] == SINE:
                return target + float(cycle[k, CYCLE_AMPLITUDE]) * sin(
                    2.0 * pi * cycle[k, CYCLE_FREQUENCY] * (t - since)
                )
            return value + (target - value) * (t - since) / (at - since)
        value, since, known = target, at, True
    return value


def watch_circuit(plan: Plan, ix: Indices, val: Floats, row: Floats) -> None:
    """A circuit whose values are no longer finite is set back to its initial values and trips."""
    start, n = plan.layout[CIRCUIT], int(ix[N_VALUES])
    z = row[start : start + n]
    total = 0.0
    for i in range(n):
        total += z[i]
    if not isfinite(total):
        load(ix, val, z)
        for i in range(start + n, start + plan.layout[CIRCUIT_SPACE]):
            row[i] = 0.0
        trip(row, FAULT_DIVERGED)


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


def take_over(b: Floats, v: Floats) -> None:
    """Let the strategy begin anew from the present demand."""
    prepare_strategy(int(b[STRATEGY_NOW]), b[FLOW_VIRTUAL], b[DEMAND], b, v)
    b[FADE] = nan


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


def swap(plan: Plan, row: Floats, ix: Indices, val: Floats, source: Integers, work: Floats) -> None:
    """Put another circuit into the row; values of the same name are carried over (``source``: carried_from)."""
    start = plan.layout[CIRCUIT]
    n = plan.layout[CIRCUIT_SPACE]
    space = row[start : start + n]
    old = work[:n]
    for i in range(n):
        old[i] = space[i]
        space[i] = 0.0
    carry(ix, val, source, old, space)
