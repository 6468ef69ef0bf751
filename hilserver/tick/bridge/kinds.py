"""The kinds of strategies: what computes the command, and how a strategy of the kind takes over.

A new kind requires one function for each of these, and a `Kind` that holds them for the entry in the table
(`hilserver.tick.bridge.strategies`). The functions are compiled into the tick.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import nan

from hilserver.numerics.arrays import Floats
from hilserver.numerics.compilable import compilable
from hilserver.numerics.shape import clip
from hilserver.tick.bridge.compensation import compensated
from hilserver.tick.bridge.control_laws import flow_servo, inverse, jog
from hilserver.tick.bridge.effects import Compensates, includes
from hilserver.tick.flow_signal import linear_opening
from hilserver.tick.plan import Plan, ValveRecord, is_gap
from hilserver.tick.row import ValveState, valve_state
from hilserver.tick.stages import FARTHEST, Note, Stage, first_note

Command = Callable[[int, Plan, Floats, Floats, int, float, float], float]
"""(effects, plan, row, work, valve, elapsed, dt) -> command: ``effects`` are those that the strategy compensates for,
``elapsed`` is the time since the last tick, s, and ``dt`` the time for which the command will be held, s."""
Prepare = Callable[[float, float, ValveState, ValveRecord], None]
"""(virtual flow, command, state of the valve, its line of the plan): set the strategy's memory so that it takes over
from this command without a jump. (What remains of a jump is faded out.)"""


@dataclass(frozen=True, eq=False)
class Kind:
    """How the command of a strategy is computed."""

    name: str
    command: Command
    prepare: Prepare
    follows: bool = True
    """Whether it follows the virtual flow; otherwise it takes jog commands."""
    looks_ahead: bool = False
    """Whether the circuit is simulated over the next ticks for it."""
    integrates: bool = False
    """Whether it integrates an error, so that it must not wind up while the command is limited."""


@compilable
def manual_command(effects: int, plan: Plan, row: Floats, work: Floats, valve: int, elapsed: float, dt: float) -> float:
    """Jog commands."""
    return jog(valve_state(plan, row, valve), plan.valve[valve], elapsed)


@compilable
def prepare_manual(q: float, command: float, b: ValveState, v: ValveRecord) -> None:
    """Without a jog command."""
    b.jog, b.jog_left = 0.0, 0.0


@compilable
def inverse_command(
    effects: int, plan: Plan, row: Floats, work: Floats, valve: int, elapsed: float, dt: float
) -> float:
    """The inverse-orifice transform of this tick's virtual flow."""
    b, v = valve_state(plan, row, valve), plan.valve[valve]
    p, p_S, p_T = row[v.column_p], row[v.column_S], row[v.column_T]
    return inverse(effects, b.flow_virtual, p, p_S, p_T, b, v, elapsed, dt)


@compilable
def look_ahead_command(
    effects: int, plan: Plan, row: Floats, work: Floats, valve: int, elapsed: float, dt: float
) -> float:
    """The inverse-orifice transform over the next ticks' virtual flow."""
    b, v = valve_state(plan, row, valve), plan.valve[valve]
    view = Stage.PREDICTED if includes(effects, Compensates.DELAY) else Stage.HELD
    first = first_note(plan.port.shape[0], work.shape[0], view, v.port, Note.FLOW)
    q_ahead = work[first : first + FARTHEST]
    first = first_note(plan.port.shape[0], work.shape[0], view, v.port, Note.PRESSURE)
    p_ahead = work[first : first + FARTHEST]
    return compensated(effects, q_ahead, p_ahead, row[v.column_T], b, v, work, elapsed, dt)


@compilable
def prepare_inverse(q: float, command: float, b: ValveState, v: ValveRecord) -> None:
    """Without filtered values of the past."""
    b.opening_filtered = b.lead = nan
    b.no_drop_share = b.end_stop_share = b.flow_off_end_stop = 0.0


@compilable
def flow_servo_command(
    effects: int, plan: Plan, row: Floats, work: Floats, valve: int, elapsed: float, dt: float
) -> float:
    """PID control of the measured flow."""
    b = valve_state(plan, row, valve)
    time = plan.loop[0].dt if is_gap(plan, elapsed) else elapsed  # in a gap it has controlled nothing
    return flow_servo(b.flow_virtual, b, plan.valve[valve], time)


@compilable
def prepare_flow_servo(q: float, command: float, b: ValveState, v: ValveRecord) -> None:
    """With the integral that gives this command."""
    b.flow_filtered = b.flow_measured
    start = linear_opening(command, v) - v.K_p * (q - b.flow_measured) if v.T_i > 0.0 else 0.0
    b.integral = clip(start, v.u_min, v.u_max)


MANUAL = Kind("manual", manual_command, prepare_manual, follows=False)
INVERSE = Kind("inverse", inverse_command, prepare_inverse)
LOOK_AHEAD = Kind("look-ahead", look_ahead_command, prepare_inverse, looks_ahead=True)
FLOW_SERVO = Kind("flow servo", flow_servo_command, prepare_flow_servo, integrates=True)
