"""Part of the tick: the effects of commands."""

from __future__ import annotations

from math import isfinite, nan

from hilserver.numerics.arrays import Floats
from hilserver.numerics.compilable import compilable
from hilserver.numerics.shape import clip
from hilserver.tick.actuator import (
    follows_node,
    forget_approach,
    forget_motion,
    has_same_law,
    is_available,
    set_jog_speed,
)
from hilserver.tick.bridge.control_laws import set_jog
from hilserver.tick.bridge.strategies import STRATEGY_NAMES, follows, needs_flow_sensor
from hilserver.tick.codes import CommandKind, FaultCode, Mode, ResultCode
from hilserver.tick.delayed_inputs import set_by_operator
from hilserver.tick.demand import take_over
from hilserver.tick.modes import arm, change_mode, reset, start, trip
from hilserver.tick.plan import Plan
from hilserver.tick.playout import end_playouts, forget_responses
from hilserver.tick.reactions import command_reaction, end_ramps, forget_circuit
from hilserver.tick.row import CommandRecord, actuator_state, command_in, header, valve_state


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
    forget_motion(plan, row)
    if not stays > 0.0:
        forget_circuit(plan, row)
        forget_responses(plan, row)
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
    """Select another strategy for a valve, with a transition without a jump; for an actuator, numbered behind them."""
    if valve >= plan.valve.shape[0]:
        return change_law(plan, row, valve - plan.valve.shape[0], wanted)
    if not (0.0 <= valve < plan.valve.shape[0] and 0.0 <= wanted <= len(STRATEGY_NAMES) - 1):
        return ResultCode.BAD_VALUE
    b, v = valve_state(plan, row, int(valve)), plan.valve[int(valve)]
    if needs_flow_sensor(int(wanted)) and v.column_Q < 0:
        return ResultCode.BAD_VALUE
    b.strategy = int(wanted)
    take_over(b, v)
    return ResultCode.DONE


@compilable
def change_law(plan: Plan, row: Floats, actuator: float, wanted: float) -> ResultCode:
    """Select another strategy for an actuator."""
    if not (actuator < plan.actuator.shape[0] and is_available(wanted)):
        return ResultCode.BAD_VALUE
    b = actuator_state(plan, row, int(actuator))
    if not has_same_law(b.strategy, int(wanted)):
        forget_approach(b)
    b.strategy = int(wanted)
    return ResultCode.DONE


@compilable
def start_jog(plan: Plan, row: Floats, valve: float, wanted: float) -> ResultCode:
    """Set a new manual command for a valve; for an actuator, numbered behind them, a velocity."""
    head = header(row)
    if head.mode != Mode.RUNNING:
        return ResultCode.WRONG_MODE
    if valve >= plan.valve.shape[0]:
        return jog_actuator(plan, row, valve - plan.valve.shape[0], wanted)
    if not (0.0 <= valve < plan.valve.shape[0] and isfinite(wanted)):
        return ResultCode.BAD_VALUE
    b = valve_state(plan, row, int(valve))
    if follows(b.strategy):
        return ResultCode.NOT_MANUAL
    set_jog(wanted, b, plan.valve[int(valve)])
    return ResultCode.DONE


@compilable
def jog_actuator(plan: Plan, row: Floats, actuator: float, wanted: float) -> ResultCode:
    """Move an actuator by hand at this fraction of its jog speed."""
    if not (actuator < plan.actuator.shape[0] and isfinite(wanted)):
        return ResultCode.BAD_VALUE
    b = actuator_state(plan, row, int(actuator))
    if follows_node(b.strategy):
        return ResultCode.NOT_MANUAL
    set_jog_speed(wanted, plan.actuator[int(actuator)], b)
    return ResultCode.DONE
