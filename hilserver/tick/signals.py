"""Part of the tick: what comes in. Measured channels in SI units, their limits, operator inputs and the work cycle."""

from __future__ import annotations

from math import isfinite, nan, pi, sin

from hilserver.numerics.arrays import Floats
from hilserver.numerics.shape import step
from hilserver.tick.columns import AGE as AGE_SECTION
from hilserver.tick.columns import (
    BEND,
    BY_AGE,
    BY_RATE,
    CHANGE,
    CHANNEL,
    CONSTANT,
    CURVE_FIRST,
    CURVE_KIND,
    CURVE_LAST,
    CYCLE_AMPLITUDE,
    CYCLE_AT,
    CYCLE_FREQUENCY,
    CYCLE_INPUT,
    CYCLE_LENGTH,
    CYCLE_REPEATS,
    CYCLE_SHAPE,
    CYCLE_TIME,
    CYCLE_VALUE,
    DT,
    FILTER,
    INPUT,
    INPUT_INITIAL,
    JUMP,
    LAST,
    LIMIT,
    LIMIT_ACTION,
    LIMIT_CHANNEL,
    LIMIT_KIND,
    LIMIT_LOWER,
    LIMIT_UPPER,
    MODE,
    RAW,
    RAW_HIGH,
    RAW_LOW,
    RAW_SLOT,
    RUNNING,
    SINE,
    SLOPE,
    SMOOTH,
    STALE,
    STEP_1,
    STEP_2,
    TABLE,
    TREND,
    TRENDS,
    VALID_HIGH,
    VALID_LOW,
    VALID_RATE,
    WARNINGS,
)
from hilserver.tick.plan import Plan


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
