"""Part of the tick: the measured channels in SI units, their validity, and the ends of their ranges."""

from __future__ import annotations

from math import isfinite, nan

from hilserver.numerics.arrays import Floats
from hilserver.numerics.compilable import compilable
from hilserver.tick.codes import Characteristic, Mode
from hilserver.tick.plan import ChannelRecord, Plan
from hilserver.tick.readings import note_jump
from hilserver.tick.row import header, reading_state


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
