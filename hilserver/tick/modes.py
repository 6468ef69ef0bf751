"""Part of the tick: modes, and what changes them: commands, limits, the local enable, lost devices."""

from __future__ import annotations

from math import isfinite

from hilserver.numerics.arrays import Floats
from hilserver.numerics.compilable import compilable
from hilserver.tick.codes import FIRST_LIMIT_FAULT, Action, FaultCode, Mode, ResultCode, Watched
from hilserver.tick.plan import Plan
from hilserver.tick.reactions import has_ended
from hilserver.tick.readings import allow_run_up
from hilserver.tick.row import header, reading_state


@compilable
def change_mode(row: Floats, allowed: bool, mode: int, refused: ResultCode) -> ResultCode:
    """Change the mode if it is allowed and nothing else prevents it; ``refused``: the result if not, otherwise DONE."""
    head = header(row)
    if not allowed:
        return ResultCode.WRONG_MODE
    if refused == ResultCode.DONE:
        head.mode = mode
    return refused


@compilable
def arm(plan: Plan, row: Floats, action: int) -> ResultCode:
    """Change from SAFE to ARMED if nothing prevents it; SAFE must be confirmed by the devices."""
    mode = header(row).mode
    if mode == Mode.SAFE_NOT_CONFIRMED:
        return ResultCode.NOT_CONFIRMED
    return change_mode(row, mode == Mode.SAFE, Mode.ARMED, refusal(plan, row, action, Action.TRIP))


@compilable
def start(plan: Plan, row: Floats, action: int) -> ResultCode:
    """Change from ARMED to RUNNING if nothing prevents it; the supplies must be there, or be switched on by RUNNING."""
    refused = refusal(plan, row, action, Action.RAMP)
    if refused == ResultCode.DONE and supply_missing(plan, row):
        refused = ResultCode.NO_SUPPLY
    result = change_mode(row, header(row).mode == Mode.ARMED, Mode.RUNNING, refused)
    if result == ResultCode.DONE:
        allow_run_up(plan, row)
    return result


@compilable
def supply_missing(plan: Plan, row: Floats) -> bool:
    """Whether a supply is missing whose loss would end RUNNING, and that RUNNING does not switch on."""
    for i in range(plan.limit.shape[0]):
        limit = plan.limit[i]
        if limit.watched == Watched.SUPPLY and limit.action >= Action.RAMP:
            is_missing = reading_state(plan, row, limit.channel).missing > 0.0
            if is_missing and not plan.channel[limit.channel].supply_run_up > 0.0:
                return True
    return False


@compilable
def refusal(plan: Plan, row: Floats, action: int, ending: int) -> ResultCode:
    """Reason not to arm or start: a reaction, the local enable, a limit whose action is ``ending`` or more severe."""
    if has_ended(plan, row):
        return ResultCode.REACTION_ENDED
    if not is_enabled(plan, row):
        return ResultCode.NOT_ENABLED
    return ResultCode.LIMIT_ACTIVE if action >= ending else ResultCode.DONE


@compilable
def is_enabled(plan: Plan, row: Floats) -> bool:
    """Whether the local enable is on according to a fresh sample; always true if the rig has none."""
    channel = plan.loop[0].enable_channel
    if channel < 0:
        return True
    fresh = row[plan.layout[0].stale + channel] <= plan.loop[0].enable_max_age
    return bool(fresh and row[plan.layout[0].channel + channel] >= 0.5)


@compilable
def reset(plan: Plan, row: Floats, action: int) -> ResultCode:
    """Leave FAULT if nothing would trip again: to SAFE, or to STARTUP while samples are missing."""
    head = header(row)
    if head.mode != Mode.FAULT:
        return ResultCode.WRONG_MODE
    if action == Action.TRIP:
        return ResultCode.LIMIT_ACTIVE
    if head.device_error != 0 or supervisor_lost(plan, row) or too_many_missed(plan, row):
        return ResultCode.CAUSE_PERSISTS
    head.mode, head.fault = Mode.STARTUP, FaultCode.NONE
    return ResultCode.DONE


@compilable
def trip(row: Floats, fault: int) -> None:
    """Latch a fault; the first one is kept."""
    head = header(row)
    if head.mode != Mode.FAULT:
        head.mode, head.fault = Mode.FAULT, fault


@compilable
def watch(plan: Plan, row: Floats, action: int) -> None:
    """Mode changes without a command: lost device or heartbeat, missed ticks, limits, local enable, confirmations."""
    head = header(row)
    if head.device_error != 0:
        trip(row, FaultCode.DEVICE)
    if head.mode == Mode.ARMED or head.mode == Mode.RUNNING:
        watch_armed(plan, row, action)
    watch_confirmations(plan, row)  # last: whatever has led to SAFE, it must be confirmed


@compilable
def watch_armed(plan: Plan, row: Floats, action: int) -> None:
    """What ends ARMED and RUNNING."""
    head = header(row)
    if supervisor_lost(plan, row):
        trip(row, FaultCode.SUPERVISOR)
    elif too_many_missed(plan, row):
        trip(row, FaultCode.MISSED)
    elif action == Action.TRIP:
        for i in range(plan.limit.shape[0]):
            if row[plan.layout[0].limit + i] > 0.0 and plan.limit[i].action == Action.TRIP:
                trip(row, FIRST_LIMIT_FAULT + i)
    elif plan.loop[0].enable_action >= Action.RAMP and not is_enabled(plan, row):
        if plan.loop[0].enable_action == Action.TRIP:
            trip(row, FaultCode.ENABLE)
        else:
            head.mode = Mode.SAFE
    elif action == Action.RAMP and head.mode == Mode.RUNNING:
        head.mode = Mode.ARMED


@compilable
def supervisor_lost(plan: Plan, row: Floats) -> bool:
    """Whether the supervisor's heartbeat is too old (or NaN)."""
    head = header(row)
    return not head.heartbeat_age <= plan.loop[0].heartbeat_timeout


@compilable
def too_many_missed(plan: Plan, row: Floats) -> bool:
    """Whether more ticks were missed than can be compensated."""
    head = header(row)
    return not head.missed <= plan.loop[0].max_missed


@compilable
def watch_confirmations(plan: Plan, row: Floats) -> None:
    """SAFE only while the devices confirm it; from STARTUP to SAFE once there are also samples of all channels."""
    head = header(row)
    if not all_confirmed(plan, row):
        if head.mode == Mode.SAFE:
            head.mode = Mode.SAFE_NOT_CONFIRMED
    elif head.mode == Mode.SAFE_NOT_CONFIRMED or (head.mode == Mode.STARTUP and all_sampled(plan, row)):
        head.mode = Mode.SAFE


@compilable
def all_confirmed(plan: Plan, row: Floats) -> bool:
    """Whether the devices have confirmed the commands of all monitored outputs in time."""
    for i in range(plan.limit.shape[0]):
        if plan.limit[i].watched == Watched.CONFIRMATION and row[plan.layout[0].limit + i] > 0.0:
            return False
    return True


@compilable
def all_sampled(plan: Plan, row: Floats) -> bool:
    """Whether every channel has had a sample."""
    missing = 0
    for i in range(plan.channel.shape[0]):
        missing += not isfinite(row[plan.layout[0].stale + i])
    return missing == 0
