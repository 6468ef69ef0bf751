"""Part of the tick: reactions. A condition on one value of the row, and what is done in the tick in which it is met.

Reactions are armed by commands and stored in the row, so that a log contains them and a replay repeats them. They act
only in RUNNING, after the limits: no reaction can prevent what a limit, a fault or a command has decided.
"""

from __future__ import annotations

from math import isfinite

from hilserver.numerics.arrays import Floats
from hilserver.numerics.compilable import compilable
from hilserver.numerics.shape import clip
from hilserver.tick.codes import Action, CommandKind, FaultCode, Mode, Reacting, ReactionState, ResultCode
from hilserver.tick.delayed_inputs import move_to
from hilserver.tick.plan import Plan
from hilserver.tick.playout import command_playout, end_playouts
from hilserver.tick.row import CommandRecord, ReactionMemory, header, playout_memory, reaction_memory

# --- commands --------------------------------------------------------------------------------------------------------


@compilable
def command_reaction(plan: Plan, row: Floats, given: CommandRecord) -> ResultCode:
    """Carry out one of the commands of reactions and playouts; returns its result."""
    if given.kind == CommandKind.REACT_WHEN:
        return set_condition(plan, row, given)
    if given.kind == CommandKind.REACT_THEN:
        return arm_reaction(plan, row, given)
    if given.kind == CommandKind.RELEASE:
        return release_reaction(plan, row, given.a)
    if CommandKind.PLAY_TARGET <= given.kind <= CommandKind.PLAY_END:
        result = command_playout(plan, row, given)
        if given.kind == CommandKind.PLAY and result == ResultCode.DONE:
            end_ramps(plan, row, playout_memory(plan, row, int(given.a)).input)
        return result
    return ResultCode.UNKNOWN_COMMAND


@compilable
def set_condition(plan: Plan, row: Floats, given: CommandRecord) -> ResultCode:
    """The first of two commands that arm a reaction: number, column, direction, level, hysteresis, hold time."""
    refused = refused_reaction(plan, row, given.a)
    if refused != ResultCode.DONE:
        return refused
    place = plan.layout[0]
    is_column = 0.0 <= given.b < place.circuit + place.circuit_space
    if not (is_column and isfinite(given.c) and isfinite(given.d) and given.e >= 0.0 and given.f >= 0.0):
        return ResultCode.BAD_VALUE
    r = reaction_memory(plan, row, int(given.a))
    r.state = ReactionState.FREE.value
    r.column, r.direction = int(given.b), 1 if given.c > 0.0 else -1
    r.level, r.hysteresis, r.hold = given.d, given.e, given.f
    return ResultCode.DONE


@compilable
def arm_reaction(plan: Plan, row: Floats, given: CommandRecord) -> ResultCode:
    """The second one: number, action, input, value, duration of the ramp, options. From now on, it is armed."""
    refused = refused_reaction(plan, row, given.a)
    if refused != ResultCode.DONE:
        return refused
    is_input = 0.0 <= given.c < plan.input.shape[0] and isfinite(given.d) and given.e >= 0.0
    is_action = Reacting.SET <= given.b <= Reacting.TRIP and (is_input or given.b != Reacting.SET)
    if not (is_action and 0.0 <= given.f < 4.0):
        return ResultCode.BAD_VALUE
    r = reaction_memory(plan, row, int(given.a))
    r.action, r.input = int(given.b), int(given.c) if is_input else 0
    r.target, r.ramp, r.rate = given.d, given.e, 0.0
    options = int(given.f)
    r.primed, r.repeats = 1 - options % 2, options // 2 % 2
    r.held, r.state = -1.0, ReactionState.ARMED.value
    return ResultCode.DONE


@compilable
def refused_reaction(plan: Plan, row: Floats, number: float) -> ResultCode:
    """Reason not to arm reaction ``number``."""
    mode = header(row).mode
    if not (mode == Mode.ARMED or mode == Mode.RUNNING):
        return ResultCode.WRONG_MODE
    if not 0.0 <= number < plan.loop[0].reactions:
        return ResultCode.BAD_VALUE
    is_ended = reaction_memory(plan, row, int(number)).state == ReactionState.ENDED
    return ResultCode.REACTION_ENDED if is_ended else ResultCode.DONE


@compilable
def release_reaction(plan: Plan, row: Floats, number: float) -> ResultCode:
    """Disarm reaction ``number``; one that has ended the run no longer prevents the next one."""
    if not 0.0 <= number < plan.loop[0].reactions:
        return ResultCode.BAD_VALUE
    reaction_memory(plan, row, int(number)).state = ReactionState.FREE.value
    return ResultCode.DONE


@compilable
def has_ended(plan: Plan, row: Floats) -> bool:
    """Whether a reaction has ended the run, and nobody has released it since."""
    ended = 0
    for i in range(plan.loop[0].reactions):
        ended += reaction_memory(plan, row, i).state == ReactionState.ENDED
    return ended > 0


@compilable
def end_ramps(plan: Plan, row: Floats, number: int) -> None:
    """Something else sets input ``number`` now: no reaction moves it any further."""
    for i in range(plan.loop[0].reactions):
        r = reaction_memory(plan, row, i)
        if r.state == ReactionState.RAMPING and r.input == number:
            r.state = after_firing(r)


@compilable
def forget_circuit(plan: Plan, row: Floats) -> None:
    """The circuit's values are in other columns now: disarm the reactions to them.

    One that has fired completes its ramp: the input must not remain halfway.
    """
    for i in range(plan.loop[0].reactions):
        r = reaction_memory(plan, row, i)
        if r.column < plan.layout[0].circuit or r.state == ReactionState.ENDED:
            continue
        if r.state == ReactionState.RAMPING:
            r.repeats = 0
        else:
            r.state = ReactionState.FREE.value


# --- in every tick ---------------------------------------------------------------------------------------------------


@compilable
def react(plan: Plan, row: Floats, elapsed: float, action: int) -> int:
    """Evaluate all reactions; returns the action of the limits, or hold if a reaction demands it and it is more severe.

    A condition sees the channels of this tick, and of all that the tick computes later the values of the last one.
    All that are met in a tick act, whatever their order: a trip is no less one because another reaction has stopped the
    run, and of two that set the same input the last one does. Reactions end with the run.
    """
    head = header(row)
    running = head.mode == Mode.RUNNING
    for i in range(plan.loop[0].reactions):
        r = reaction_memory(plan, row, i)
        if r.state == ReactionState.FREE or r.state == ReactionState.ENDED:
            continue
        if not running:
            if r.state != ReactionState.ARMED or head.mode != Mode.ARMED:
                r.state = ReactionState.FREE.value
            continue
        if r.state == ReactionState.ARMED:
            r.state = ReactionState.WATCHING.value
        watch_condition(row, r, elapsed)
        if r.state == ReactionState.WATCHING and r.primed > 0 and r.held >= r.hold - 0.5 * plan.loop[0].dt:
            if r.action == Reacting.SET:
                end_ramps(plan, row, r.input)
                end_playouts(plan, row, r.input)
            fire(row, r, row[plan.layout[0].input + r.input])
        if r.state == ReactionState.RAMPING:
            move_input(plan, row, r, elapsed)
        elif r.state == ReactionState.HOLDING:
            if r.held < 0.0:
                r.state = after_firing(r)
            else:
                action = max(action, Action.HOLD.value)
    return action


@compilable
def watch_condition(row: Floats, r: ReactionMemory, elapsed: float) -> None:
    """``held``: time for which the condition holds, -1 if it does not; it ends below the level by the hysteresis.

    A value that is not finite meets no condition, but says as little about its end: no reaction fires again after it.
    """
    beyond = r.direction * (row[r.column] - r.level)
    if not isfinite(beyond):
        r.held = -1.0
        return
    if r.held >= 0.0:
        r.held = r.held + elapsed if beyond > -r.hysteresis else -1.0
    elif beyond > 0.0:
        r.held = 0.0
    if r.held < 0.0:
        r.primed = 1


@compilable
def fire(row: Floats, r: ReactionMemory, now: float) -> None:
    """Act; ``now``: present value of its input."""
    head = header(row)
    r.count += 1
    r.primed = 0
    if r.action == Reacting.SET:
        head.cycle_time = -1.0  # otherwise the work cycle would move the input again
        r.rate = abs(r.target - now) / r.ramp if r.ramp > 0.0 else 0.0
        r.state = ReactionState.RAMPING.value
    elif r.action == Reacting.HOLD:
        r.state = ReactionState.HOLDING.value
    elif r.action == Reacting.STOP:
        if head.mode == Mode.RUNNING:  # not after a trip in the same tick
            head.mode = Mode.ARMED
        r.state = ReactionState.ENDED.value
    else:
        head.mode, head.fault = Mode.FAULT, FaultCode.REACTION
        r.state = ReactionState.DONE.value  # the fault itself must be reset


@compilable
def move_input(plan: Plan, row: Floats, r: ReactionMemory, elapsed: float) -> None:
    """Move the input to the reaction's value, within its range."""
    place, entry = plan.layout[0].input + r.input, plan.input[r.input]
    target = clip(r.target, entry.low, entry.high)
    way = target - row[place]
    move_to(plan, row, r.input, row[place] + clip(way, -r.rate * elapsed, r.rate * elapsed) if r.rate > 0.0 else target)
    if row[place] == target:
        r.state = after_firing(r)


@compilable
def after_firing(r: ReactionMemory) -> int:
    """The state of a reaction that has acted."""
    return ReactionState.WATCHING.value if r.repeats > 0 else ReactionState.DONE.value
