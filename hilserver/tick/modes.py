"""Part of the tick: modes. What a command may change, and what changes the mode without one."""

from __future__ import annotations

from math import isfinite, nan

from hilserver.numerics.arrays import Floats
from hilserver.numerics.shape import clip
from hilserver.tick.bridge.columns import BLOCK, CHANNEL_Q, DEMAND, FADE, FLOW_SERVO, FLOW_VIRTUAL, MANUAL, STRATEGY_NOW
from hilserver.tick.bridge.strategies import prepare_strategy, set_jog
from hilserver.tick.columns import (
    ARM,
    ARMED,
    BAD_VALUE,
    CAUSE_PERSISTS,
    CHANNEL,
    CIRCUIT_VERSION,
    COMMAND,
    COMMAND_A,
    COMMAND_B,
    COMMAND_KIND,
    COMMAND_SEQUENCE,
    CYCLE,
    CYCLE_TIME,
    DEVICE_ERROR,
    DISARM,
    DONE,
    ENABLE_ACTION,
    ENABLE_CHANNEL,
    ENABLE_MAX_AGE,
    ESTOP,
    FAULT,
    FAULT_DEVICE,
    FAULT_ENABLE,
    FAULT_ESTOP,
    FAULT_LIMIT,
    FAULT_MISSED,
    FAULT_SUPERVISOR,
    FAULTED,
    HEARTBEAT_AGE,
    HEARTBEAT_TIMEOUT,
    INPUT,
    INPUT_HIGH,
    INPUT_LOW,
    JOG,
    LIMIT,
    LIMIT_ACTION,
    LIMIT_ACTIVE,
    MAX_MISSED,
    MISSED,
    MODE,
    NO_FAULT,
    NOT_ENABLED,
    NOT_MANUAL,
    NOTHING,
    RAMP,
    RESET,
    RESULT,
    RUNNING,
    SAFE,
    SET_INPUT,
    STALE,
    START,
    STARTUP,
    STOP,
    STRATEGY,
    SWAP,
    TRIP,
    UNKNOWN_COMMAND,
    VALVE,
    WRONG_MODE,
)
from hilserver.tick.plan import Plan


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


def take_over(b: Floats, v: Floats) -> None:
    """Let the strategy begin anew from the present demand."""
    prepare_strategy(int(b[STRATEGY_NOW]), b[FLOW_VIRTUAL], b[DEMAND], b, v)
    b[FADE] = nan


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
