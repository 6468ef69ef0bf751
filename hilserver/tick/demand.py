"""Part of the tick: the bridge's demand, the command that the strategy of a valve wants: one branch per kind."""

from __future__ import annotations

from math import exp, isfinite

from hilserver.numerics.arrays import Floats
from hilserver.numerics.compilable import compilable
from hilserver.numerics.shape import clip
from hilserver.tick.bridge.compensation import compensated
from hilserver.tick.bridge.ladder import Compensates, Kind, compensates, kind_of
from hilserver.tick.bridge.strategies import flow_servo, inverse, jog
from hilserver.tick.codes import Action, FaultCode, Mode
from hilserver.tick.look_ahead import FARTHEST, Note, Stage, first_note
from hilserver.tick.modes import take_over, trip
from hilserver.tick.plan import Plan
from hilserver.tick.row import header, valve_state


@compilable
def demand(plan: Plan, row: Floats, work: Floats, i: int, elapsed: float, dt: float, action: int) -> None:
    """The bridge's demand. While it does not drive the command (not RUNNING, hold) it is ready to take over from it.

    A strategy that takes over starts from the last demand and fades to its own. A command that is not finite causes a
    trip.
    """
    head = header(row)
    b, v = valve_state(plan, row, i), plan.valve[i]
    if head.mode != Mode.RUNNING or action == Action.HOLD:
        b.demand = b.command
        take_over(b, v)
        return
    u = strategy_command(plan, row, work, i, elapsed, dt)
    if not isfinite(u):
        trip(row, FaultCode.BRIDGE)
        b.demand = b.spool = b.command
        take_over(b, v)
        return
    if isfinite(b.fade):
        b.fade *= exp(-elapsed / v.fade_time) if v.fade_time > 0.0 else 0.0
    else:
        b.fade = b.demand - u if v.fade_time > 0.0 else 0.0
    b.demand = clip(u + b.fade, -1.0, 1.0)


@compilable
def strategy_command(plan: Plan, row: Floats, work: Floats, valve: int, elapsed: float, dt: float) -> float:
    """The command that the strategy of a valve demands in this tick.

    ``elapsed``: time since the last tick, s; ``dt``: time for which the command will be held, s.
    """
    b, v = valve_state(plan, row, valve), plan.valve[valve]
    number = b.strategy
    kind = kind_of(number)
    if kind == Kind.MANUAL:
        return jog(b, v, elapsed)
    if kind == Kind.FLOW_SERVO:
        return flow_servo(b.flow_virtual, b, v, elapsed)
    p, p_S, p_T = row[v.column_p], row[v.column_S], row[v.column_T]
    if kind == Kind.LOOK_AHEAD:
        view = Stage.PREDICTED if compensates(number, Compensates.DELAY) else Stage.HELD
        first = first_note(plan.port.shape[0], work.shape[0], view, v.port, Note.FLOW)
        q_ahead = work[first : first + FARTHEST]
        first = first_note(plan.port.shape[0], work.shape[0], view, v.port, Note.PRESSURE)
        p_ahead = work[first : first + FARTHEST]
        return compensated(number, q_ahead, p_ahead, p_T, b, v, work, elapsed, dt)
    return inverse(number, b.flow_virtual, p, p_S, p_T, b, v, elapsed, dt)
