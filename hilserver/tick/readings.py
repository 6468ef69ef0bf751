"""Part of the tick: implausible readings. The history of each channel that is needed to detect them.

The limits on it (by default, one of each kind that the rig file makes possible) are evaluated by `check_limits`.
"""

from __future__ import annotations

from math import isnan

from hilserver.numerics.arrays import Floats
from hilserver.numerics.compilable import compilable
from hilserver.tick.codes import Mode, Watched
from hilserver.tick.plan import ChannelRecord, Plan
from hilserver.tick.row import ReadingState, header, reading_state, valve_state

SAME_SAMPLES = 10
"""Number of equal samples after which a sensor may count as stuck, because a slow device has few samples."""
MEAN_TIME = 0.1
"""s: filter of the difference to the estimate."""
JUMP_TIME = 1.0
"""s: time constant with which a jump decays."""


@compilable
def note_readings(plan: Plan, row: Floats, elapsed: float) -> None:
    """Update the history of each channel's readings; the model is that of the last tick."""
    layout, mode = plan.layout[0], header(row).mode
    for i in range(plan.channel.shape[0]):
        channel = plan.channel[i]
        if channel.slot < 0:
            continue
        state = reading_state(plan, row, i)
        raw, value = row[layout.raw + channel.slot], row[layout.channel + i]
        if mode != Mode.RUNNING or (raw != state.reading and not isnan(raw)):  # a missing sample shows no change
            state.reading, state.same, state.moved, state.frozen = raw, 0, 0.0, 0.0
        elif row[layout.interval + i] > 0.0:  # a new sample; without one, its age shows this
            state.same += 1
            state.frozen += row[layout.interval + i] if state.end == 0 else 0.0
            if channel.moved_by >= 0:
                flow = abs(valve_state(plan, row, channel.moved_by).flow_expected) - channel.least_flow
                if flow > 0.0:
                    weight = channel.weight_at_end if state.beyond > 0 else 1.0
                    state.moved += weight * flow * row[layout.interval + i]
        if value > channel.supply_min or not (mode == Mode.ARMED or mode == Mode.RUNNING):
            state.missing = 0.0
        else:
            state.missing += elapsed


@compilable
def allow_run_up(plan: Plan, row: Floats) -> None:
    """RUNNING begins: supplies that are switched on by it may build up."""
    for i in range(plan.channel.shape[0]):
        state = reading_state(plan, row, i)
        if state.missing > 0.0:
            state.missing = -plan.channel[i].supply_run_up


@compilable
def note_jump(jumped: bool, elapsed: float, state: ReadingState) -> None:
    """Update the number of recent jumps."""
    state.jumps += (1.0 if jumped else 0.0) - state.jumps * elapsed / (JUMP_TIME + elapsed)


@compilable
def note_end(difference: float, unexplained: bool, channel: ChannelRecord, state: ReadingState) -> None:
    """Decide whether the true value may lie beyond the end of the range at which a sensor reads.

    Not where the reading arrived there far from the estimate (``difference``), as that of a sensor that fails, nor
    where the estimate follows it only with a flow that is ``unexplained``.
    """
    if state.end == 0:
        state.beyond = 0
    elif state.beyond == 0:
        state.beyond = 1 if abs(difference) <= channel.arrival else -1
    elif unexplained:
        state.beyond = -1


@compilable
def within_range(difference: float, state: ReadingState) -> float:
    """Measurement minus estimate; 0 where both agree that the true value lies beyond the end of the sensor's range."""
    return 0.0 if state.beyond > 0 and difference * state.end < 0.0 else difference


@compilable
def note_difference(difference: float, elapsed: float, state: ReadingState) -> None:
    """Update the mean difference between measurement and estimate."""
    state.difference += (difference - state.difference) * elapsed / (MEAN_TIME + elapsed)


@compilable
def watched_reading(watched: int, state: ReadingState) -> float:
    """The quantity of a channel's readings that a limit monitors."""
    if watched == Watched.JUMPS:
        return state.jumps
    if watched == Watched.STUCK:
        return state.moved if state.same >= SAME_SAMPLES else 0.0
    if watched == Watched.FROZEN:
        return state.frozen if state.same >= SAME_SAMPLES else 0.0
    if watched == Watched.ESTIMATE:
        return state.difference
    return state.missing
