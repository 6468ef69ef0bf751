"""Part of the tick: modes. The effects of commands, and mode changes without a command."""

from __future__ import annotations

from math import isfinite, nan

from hilserver.numerics.arrays import Floats
from hilserver.numerics.compilable import compilable
from hilserver.numerics.shape import clip
from hilserver.tick.bridge.control_laws import set_jog
from hilserver.tick.bridge.strategies import STRATEGY_NAMES, follows, needs_flow_sensor, prepare_strategy
from hilserver.tick.codes import FIRST_LIMIT_FAULT, Action, CommandKind, FaultCode, Mode, ResultCode, Watched
from hilserver.tick.delayed_inputs import set_by_operator
from hilserver.tick.plan import Plan, ValveRecord
from hilserver.tick.playout import end_playouts, forget_responses
from hilserver.tick.reactions import command_reaction, end_ramps, forget_circuit, has_ended
from hilserver.tick.readings import allow_run_up
from hilserver.tick.row import CommandRecord, ValveState, command_in, header, reading_state, valve_state


@compilable
def take_command(plan: Plan, row: Floats, command: Floats, action: int) -> None:
    """Carry out the mailbox record of this tick, if any, and store its sequence number and result."""
    head = header(row)
    taken = command_in(command)
    kind = taken.kind
    if kind == CommandKind.NOTHING:
        return
    head.command = taken.sequence
    # With CODE, the circuit is integrated by other code from this tick on, with the same results.
    head.result = ResultCode.DONE if kind == CommandKind.CODE else carry_out(plan, row, taken, action)


@compilable
def carry_out(plan: Plan, row: Floats, taken: CommandRecord, action: int) -> ResultCode:
    """Carry out one command; returns its result. The supervisor has already checked names, ranges and types."""
    head = header(row)
    kind, a, b = taken.kind, taken.a, taken.b
    mode = head.mode
    if kind == CommandKind.ARM:
        return arm(plan, row, action)
    if kind == CommandKind.START:
        return start(plan, row, action)
    if kind == CommandKind.STOP:
        return change_mode(row, mode == Mode.RUNNING, Mode.ARMED, ResultCode.DONE)
    if kind == CommandKind.DISARM:
        return change_mode(row, mode in (Mode.ARMED, Mode.RUNNING), Mode.SAFE, ResultCode.DONE)
    if kind == CommandKind.RESET:
        return reset(plan, row, action)
    if kind == CommandKind.TRIP:
        trip(row, FaultCode.OPERATOR)
        return ResultCode.DONE
    if kind == CommandKind.SET_INPUT:
        return set_input(plan, row, a, b)
    if kind == CommandKind.CYCLE:
        return run_cycle(plan, row, a)
    if kind == CommandKind.STRATEGY:
        return change_strategy(plan, row, a, b)
    if kind == CommandKind.JOG:
        return start_jog(plan, row, a, b)
    if kind == CommandKind.SWAP:
        return note_switch(plan, row, a, b)
    return command_reaction(plan, row, taken)


@compilable
def note_switch(plan: Plan, row: Floats, version: float, stays: float) -> ResultCode:
    """The circuit itself was replaced just before this tick; ``stays``: 1 if its values are in the same columns."""
    header(row).circuit_version = int(version)
    for i in range(plan.valve.shape[0]):
        valve_state(plan, row, i).lead = nan  # predicted with the old circuit
    if not stays > 0.0:
        forget_circuit(plan, row)
        forget_responses(plan, row)
    return ResultCode.DONE


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
def change_mode(row: Floats, allowed: bool, mode: int, refused: ResultCode) -> ResultCode:
    """Change the mode if it is allowed and nothing else prevents it; ``refused``: the result if not, otherwise DONE."""
    head = header(row)
    if not allowed:
        return ResultCode.WRONG_MODE
    if refused == ResultCode.DONE:
        head.mode = mode
    return refused


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
def set_input(plan: Plan, row: Floats, number: float, value: float) -> ResultCode:
    """Set a new value of operator input ``number``, limited to its range."""
    head = header(row)
    if head.mode != Mode.RUNNING:
        return ResultCode.WRONG_MODE
    if not (0.0 <= number < plan.input.shape[0] and isfinite(value)):
        return ResultCode.BAD_VALUE
    i = int(number)
    set_by_operator(plan, row, i, clip(value, plan.input[i].low, plan.input[i].high))
    end_ramps(plan, row, i)
    end_playouts(plan, row, i)
    return ResultCode.DONE


@compilable
def run_cycle(plan: Plan, row: Floats, start: float) -> ResultCode:
    """Start or restart the work cycle, or end it, in which case the inputs keep their values.

    Nothing else moves the inputs of a cycle that starts.
    """
    head = header(row)
    if head.mode != Mode.RUNNING:
        return ResultCode.WRONG_MODE
    if plan.cycle.shape[0] == 0:
        return ResultCode.BAD_VALUE
    head.cycle_time = 0.0 if start > 0.0 else -1.0
    if start > 0.0:
        for k in range(plan.cycle.shape[0]):
            end_ramps(plan, row, plan.cycle[k].input)
            end_playouts(plan, row, plan.cycle[k].input)
    return ResultCode.DONE


@compilable
def change_strategy(plan: Plan, row: Floats, valve: float, wanted: float) -> ResultCode:
    """Select another strategy for a valve, with a transition without a jump."""
    if not (0.0 <= valve < plan.valve.shape[0] and 0.0 <= wanted <= len(STRATEGY_NAMES) - 1):
        return ResultCode.BAD_VALUE
    b, v = valve_state(plan, row, int(valve)), plan.valve[int(valve)]
    if needs_flow_sensor(int(wanted)) and v.column_Q < 0:
        return ResultCode.BAD_VALUE
    b.strategy = int(wanted)
    take_over(b, v)
    return ResultCode.DONE


@compilable
def start_jog(plan: Plan, row: Floats, valve: float, wanted: float) -> ResultCode:
    """Set a new manual command for a valve."""
    head = header(row)
    if head.mode != Mode.RUNNING:
        return ResultCode.WRONG_MODE
    if not (0.0 <= valve < plan.valve.shape[0] and isfinite(wanted)):
        return ResultCode.BAD_VALUE
    b = valve_state(plan, row, int(valve))
    if follows(b.strategy):
        return ResultCode.NOT_MANUAL
    set_jog(wanted, b, plan.valve[int(valve)])
    return ResultCode.DONE


@compilable
def take_over(b: ValveState, v: ValveRecord) -> None:
    """Restart the strategy from the present demand."""
    prepare_strategy(b.strategy, b.flow_virtual, b.demand, b, v)
    b.fade = nan


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
