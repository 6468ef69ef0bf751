"""Part of the tick: the bridge's demand, the command that the strategy of a valve wants."""

from __future__ import annotations

from math import exp, inf, isfinite, nan

from hilserver.numerics.arrays import Floats
from hilserver.numerics.compilable import compilable
from hilserver.numerics.shape import clip
from hilserver.tick.bridge.strategies import looks_ahead, prepare_strategy, strategy_command
from hilserver.tick.codes import Action, FaultCode, Mode
from hilserver.tick.modes import trip
from hilserver.tick.plan import Plan, ValveRecord
from hilserver.tick.row import ValveState, header, valve_state


@compilable
def demand(plan: Plan, row: Floats, work: Floats, i: int, elapsed: float, dt: float, action: int) -> None:
    """The bridge's demand. While it does not drive the command (not RUNNING, hold) it is ready to take over from it.

    A strategy that takes over fades to its own demand from the last one. The demand stays where it was unless it would
    differ by more than ``fade`` from that of the strategy. So it never goes beyond both: if the first demand is large
    and short, no valve opens the other way afterwards. At the start of RUNNING, with the valve at its safe value, a
    strategy with look-ahead does not fade: it counts what the valve has not passed yet as on its way, so that its
    demand has ended before a fade has. A command that is not finite causes a trip.
    """
    head = header(row)
    b, v = valve_state(plan, row, i), plan.valve[i]
    if head.mode != Mode.RUNNING or action == Action.HOLD:
        b.demand = b.command
        take_over(b, v)
        b.fade = b.fade if head.mode == Mode.RUNNING else inf
        return
    u = strategy_command(plan, row, work, i, elapsed, dt)
    if not isfinite(u):
        trip(row, FaultCode.BRIDGE)
        b.demand = b.spool = b.command
        take_over(b, v)
        return
    before = b.demand if isfinite(b.demand) else u
    if isfinite(b.fade):
        b.fade *= exp(-elapsed / v.fade_time) if v.fade_time > 0.0 else 0.0
    else:
        connects = b.fade == inf and b.command == v.safe_value and looks_ahead(b.strategy)
        b.fade = abs(before - u) if v.fade_time > 0.0 and not connects else 0.0
    b.demand = clip(clip(before, u - b.fade, u + b.fade), -1.0, 1.0)


@compilable
def take_over(b: ValveState, v: ValveRecord) -> None:
    """Restart the strategy from the present demand."""
    prepare_strategy(b.strategy, b.flow_virtual, b.demand, b, v)
    b.fade = nan
