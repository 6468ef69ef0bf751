"""Operator inputs with a delay: what is set acts later, so that the look-ahead knows it in advance.

The next values of such an input are stored in the row. An operator, or a command in the place of one, sets the last of
them. What moves an input without delay (work cycle, playout, reaction, the end of RUNNING) replaces them all.
"""

from __future__ import annotations

from hilserver.numerics.arrays import Floats
from hilserver.numerics.compilable import compilable
from hilserver.tick.plan import Plan
from hilserver.tick.row import ahead_of_input, trend


@compilable
def set_by_operator(plan: Plan, row: Floats, i: int, value: float) -> None:
    """Input ``i`` takes this value a delay from now."""
    if plan.input[i].delay > 0:
        ahead_of_input(plan.layout[0], row, i)[plan.input[i].delay] = value
    else:
        row[plan.layout[0].input + i] = value


@compilable
def take_delayed(plan: Plan, row: Floats, i: int, ticks: int) -> None:
    """Input ``i`` takes the value that was set a delay ago; ``ticks``: since the last time."""
    delay = plan.input[i].delay
    if delay > 0:
        ahead, t = ahead_of_input(plan.layout[0], row, i), trend(plan, row, i)
        row[plan.layout[0].input + i] = ahead[min(ticks - 1, delay)]
        for k in range(delay + 1):
            ahead[k] = ahead[min(k + ticks, delay)]
        t.known = min(t.known + ticks, delay)


@compilable
def move_to(plan: Plan, row: Floats, i: int, value: float) -> None:
    """Input ``i`` takes this value now; what an operator has set before does not act any more."""
    row[plan.layout[0].input + i] = value
    if plan.input[i].delay > 0:
        ahead_of_input(plan.layout[0], row, i)[:] = value
        trend(plan, row, i).known = 0


@compilable
def last_known(plan: Plan, row: Floats, i: int) -> float:
    """The last value of input ``i`` that is known: that of now, or of a time in the future."""
    known = trend(plan, row, i).known
    return float(ahead_of_input(plan.layout[0], row, i)[known - 1] if known > 0 else row[plan.layout[0].input + i])
