"""Part of the tick: the limits of channels, readings and confirmations."""

from __future__ import annotations

from math import isfinite

from hilserver.numerics.arrays import Floats
from hilserver.numerics.compilable import compilable
from hilserver.tick.codes import Action, Mode, Watched
from hilserver.tick.plan import Plan
from hilserver.tick.readings import watched_reading
from hilserver.tick.row import actuator_state, header, reading_state


@compilable
def check_limits(plan: Plan, row: Floats) -> int:
    """Mark each limit in the row, 1 if violated; return the most severe action required.

    A channel without any sample so far violates all its limits, and an output without any confirmation its own.
    """
    head = header(row)
    layout, severest, active = plan.layout[0], 0, 0
    for i in range(plan.limit.shape[0]):
        limit = plan.limit[i]
        if limit.watched == Watched.CONFIRMATION:
            value = age = row[layout.confirmed_age + limit.channel]
        elif limit.watched == Watched.FOLLOWING:
            value = age = actuator_state(plan, row, limit.channel).error
        else:
            value, age = row[layout.channel + limit.channel], row[layout.stale + limit.channel]
        if limit.watched == Watched.AGE:
            value = age
        elif limit.watched == Watched.RATE:
            value = row[layout.change + limit.channel]
        elif Watched.JUMPS <= limit.watched <= Watched.SUPPLY:
            value, age = watched_reading(limit.watched, reading_state(plan, row, limit.channel)), 0.0
        violated = not (limit.lower <= value <= limit.upper and isfinite(age))
        row[layout.limit + i] = 1.0 if violated else 0.0
        if violated:
            active += 1
            in_time = limit.watched == Watched.SUPPLY and head.mode != Mode.RUNNING  # `start` is refused without it
            severest = max(severest, Action.WARN if in_time else limit.action)
    head.warnings = active
    return severest
