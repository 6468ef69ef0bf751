"""Part of the tick: the inputs. Measured channels in SI units, their limits, operator inputs and the work cycle."""

from __future__ import annotations

from math import isfinite, nan, pi, sin

from hilserver.numerics.arrays import Floats
from hilserver.numerics.compilable import compilable
from hilserver.numerics.shape import step
from hilserver.tick.codes import Action, Characteristic, Mode, Shape, Watched
from hilserver.tick.delayed_inputs import move_to
from hilserver.tick.plan import ChannelRecord, CyclePoint, Plan
from hilserver.tick.playout import play
from hilserver.tick.readings import note_jump, watched_reading
from hilserver.tick.records import RecordTable
from hilserver.tick.row import InputTrend, ahead_of_input, header, reading_state, trend


@compilable
def scale_channels(plan: Plan, row: Floats, elapsed: float) -> None:
    """Convert raw readings to filtered SI values, with their rates of change and the times between samples.

    If a sample is missing (NaN, not valid, or without a finite value), the last value is kept and becomes stale. A slow
    device's sample is read several times, each time older by a tick: only the first time is it a new one.
    """
    layout = plan.layout[0]
    raw, age, value, stale, change = layout.raw, layout.age, layout.channel, layout.stale, layout.change
    interval = layout.interval
    for i in range(plan.channel.shape[0]):
        channel = plan.channel[i]
        slot = channel.slot
        if slot < 0:
            row[value + i], row[stale + i], row[interval + i] = channel.constant, 0.0, elapsed
            continue
        first, last, gap = not isfinite(row[stale + i]), row[value + i], row[stale + i] + elapsed - row[age + slot]
        new, rate = scaled_value(plan, channel, row[raw + slot]), 0.0
        end = end_of_range(channel, new)
        if not first:
            time = max(gap, elapsed)  # from the last sample to this one
            new = last + (new - last) * time / (time + channel.filter)
            rate = (new - last) / time
        row[change + i] = row[interval + i] = 0.0
        if isfinite(row[age + slot]) and not first and gap <= channel.least_interval:  # read before, or jitter
            row[stale + i] = max(row[stale + i] + elapsed, row[age + slot])
            continue
        if isfinite(new) and not first:
            jumped = header(row).mode == Mode.RUNNING and is_jump(plan, row, i, max(gap, elapsed))
            note_jump(jumped, max(gap, elapsed), reading_state(plan, row, i))
        if isfinite(new) and isfinite(row[age + slot]) and abs(rate) <= channel.valid_rate:
            row[value + i], row[stale + i], row[change + i] = new, row[age + slot], rate
            row[interval + i] = elapsed if first else gap
            reading_state(plan, row, i).end = end
        else:
            row[stale + i] += elapsed


@compilable
def scaled_value(plan: Plan, channel: ChannelRecord, raw: float) -> float:
    """The SI value of a raw reading by the channel's curve; NaN if reading or value is not valid."""
    if not channel.raw_low <= raw <= channel.raw_high:
        return nan
    first, last = channel.first, channel.last
    if channel.characteristic == Characteristic.TABLE:
        k = first + 1
        while k < last and raw >= plan.curve[k].x:
            k += 1
        r0, v0, r1, v1 = plan.curve[k - 1].x, plan.curve[k - 1].y, plan.curve[k].x, plan.curve[k].y
        value = v0 + (v1 - v0) * (raw - r0) / (r1 - r0)
    else:
        value = plan.curve[last].x
        for k in range(last - 1, first - 1, -1):
            value = value * raw + plan.curve[k].x
    return value if channel.valid_low <= value <= channel.valid_high else nan


@compilable
def end_of_range(channel: ChannelRecord, value: float) -> int:
    """The end of the sensor's range at which a value is, -1 or 1: the true one may lie beyond. 0 within the range."""
    if value <= channel.range_low:
        return -1
    return 1 if value >= channel.range_high else 0


@compilable
def is_jump(plan: Plan, row: Floats, i: int, time: float) -> bool:
    """Whether the new sample of channel ``i`` differs from the last one, ``time`` ago, by more than is possible.

    Both before the filter, which would make a jump smaller.
    """
    channel, before = plan.channel[i], reading_state(plan, row, i).reading
    raw = row[plan.layout[0].raw + channel.slot]
    if raw == before:
        return False
    change = scaled_value(plan, channel, raw) - scaled_value(plan, channel, before)
    return abs(change) > channel.jump + channel.jump_rate * time  # false where one of them is no sample


@compilable
def check_limits(plan: Plan, row: Floats) -> int:
    """Mark each limit in the row, 1 if violated; return the most severe action required.

    A channel without any sample so far violates all its limits, and an output without any confirmation its own.
    """
    head = header(row)
    layout, severest, active = plan.layout[0], 0, 0
    for i in range(plan.limit.shape[0]):
        limit = plan.limit[i]
        if limit.watched == Watched.CONFIRMATION:
            value = age = row[layout.confirmed_age + limit.channel]
        else:
            value, age = row[layout.channel + limit.channel], row[layout.stale + limit.channel]
        if limit.watched == Watched.AGE:
            value = age
        elif limit.watched == Watched.RATE:
            value = row[layout.change + limit.channel]
        elif limit.watched >= Watched.JUMPS:
            value, age = watched_reading(limit.watched, reading_state(plan, row, limit.channel)), 0.0
        violated = not (limit.lower <= value <= limit.upper and isfinite(age))
        row[layout.limit + i] = 1.0 if violated else 0.0
        if violated:
            active += 1
            in_time = limit.watched == Watched.SUPPLY and head.mode != Mode.RUNNING  # `start` is refused without it
            severest = max(severest, Action.WARN if in_time else limit.action)
    head.warnings = active
    return severest


@compilable
def set_inputs(plan: Plan, row: Floats, elapsed: float) -> None:
    """Operator inputs: at their initial values unless RUNNING; from the work cycle while it runs; otherwise as last
    set."""
    head = header(row)
    first, ends = plan.layout[0].input, False
    if head.mode != Mode.RUNNING:
        head.cycle_time = -1.0
        for i in range(plan.input.shape[0]):
            move_to(plan, row, i, plan.input[i].initial)
    elif head.cycle_time >= 0.0:
        t, length = head.cycle_time, plan.loop[0].cycle_length
        for i in range(plan.input.shape[0]):
            if is_driven(plan.cycle, i):
                move_to(plan, row, i, cycle_value(plan.cycle, i, t, row[first + i]))
        t += elapsed
        if t > length + 0.5 * elapsed:
            t = t - length if plan.loop[0].cycle_repeats > 0 else -1.0
        head.cycle_time, ends = t, t < 0.0
    play(plan, row)
    note_trends(plan, row, elapsed)
    if ends and plan.loop[0].cycle_foreseen > 0:  # from now on, they stay
        for i in range(plan.input.shape[0]):
            if is_driven(plan.cycle, i):
                rest(trend(plan, row, i))


@compilable
def note_trends(plan: Plan, row: Floats, elapsed: float) -> None:
    """The motion of the inputs per tick: the last changes of each, and slope and curvature for extrapolation.

    An input is extrapolated if it moves smoothly, that is, if its last changes or their differences are similar. A jump
    has no slope.
    """
    for i in range(plan.input.shape[0]):
        now, t = last_known(plan, row, i), trend(plan, row, i)
        step = (now - t.last) * plan.loop[0].dt / elapsed
        bend, bend_before = step - t.step, t.step - t.step_before
        smooth = alike(step, t.step) or alike(bend, bend_before)
        t.slope = step if smooth else 0.0
        t.bend = least(bend, bend_before) if smooth else 0.0
        t.last, t.step_before, t.step = now, t.step, step


@compilable
def last_known(plan: Plan, row: Floats, i: int) -> float:
    """The last value of input ``i`` that is known: that of now, or of a time in the future.

    A work cycle that stands for an operator is known as far ahead as what an operator sets.
    """
    known, delay, loop = trend(plan, row, i).known, plan.input[i].delay, plan.loop[0]
    if known > 0:
        return float(ahead_of_input(plan.layout[0], row, i)[known - 1])
    now, t = row[plan.layout[0].input + i], header(row).cycle_time
    if delay == 0 or t < 0.0 or not is_driven(plan.cycle, i):
        return float(now)
    t += (delay - 1) * loop.dt
    if t > loop.cycle_length + 0.5 * loop.dt:
        t = t - loop.cycle_length if loop.cycle_repeats > 0 else loop.cycle_length
    return cycle_value(plan.cycle, i, t, now)


@compilable
def rest(t: InputTrend) -> None:
    """An input stays where it is: nothing of its motion is extrapolated."""
    t.slope = t.bend = 0.0
    t.step_before = t.step  # so that its standstill is no curvature in the next tick


@compilable
def alike(a: float, b: float) -> bool:
    """Whether two numbers differ by no more than half of the larger."""
    return abs(a - b) <= 0.5 * max(abs(a), abs(b))


@compilable
def least(a: float, b: float) -> float:
    """The smaller of two numbers of the same sign, otherwise 0."""
    if a * b <= 0.0:
        return 0.0
    return a if abs(a) < abs(b) else b


@compilable
def cycle_value(cycle: RecordTable[CyclePoint], number: int, t: float, otherwise: float) -> float:
    """Value of input ``number`` at cycle time ``t``; ``otherwise`` if the cycle does not drive it."""
    k = next_point(cycle, number, t)
    if k == 0 or cycle[k - 1].input != number:
        is_first = k < cycle.shape[0] and cycle[k].input == number
        return float(cycle[k].target) if is_first else float(otherwise)
    value, since = cycle[k - 1].target, cycle[k - 1].at
    if k == cycle.shape[0] or cycle[k].input != number or cycle[k].kind == Shape.JUMP:
        return float(value)
    point = cycle[k]
    if point.kind == Shape.SMOOTH:
        return step(t, since, value, point.at, point.target)
    if point.kind == Shape.SINE:
        return float(point.target + point.amplitude * sin(2.0 * pi * point.frequency * (t - since)))
    return float(value + (point.target - value) * (t - since) / (point.at - since))


@compilable
def next_point(cycle: RecordTable[CyclePoint], number: int, t: float) -> int:
    """The first point of input ``number`` after cycle time ``t``, or the one at which it would be (by bisection)."""
    low, high = 0, cycle.shape[0]
    while low < high:
        middle = (low + high) // 2
        if cycle[middle].input < number or (cycle[middle].input == number and cycle[middle].at <= t):
            low = middle + 1
        else:
            high = middle
    return low


@compilable
def is_driven(cycle: RecordTable[CyclePoint], number: int) -> bool:
    """Whether the cycle drives input ``number``."""
    return isfinite(cycle_value(cycle, number, 0.0, nan))
