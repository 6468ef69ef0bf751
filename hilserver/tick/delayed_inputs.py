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
def take_delayed(plan: Plan, row: Floats, elapsed: float) -> None:
    """The inputs take the values that were set a delay ago; ``elapsed``: time since the last tick, s."""
    ticks = max(int(elapsed / plan.loop[0].dt + 0.5), 1)
    for i in range(plan.input.shape[0]):
        delay = plan.input[i].delay
        if delay > 0:
            ahead = ahead_of_input(plan.layout[0], row, i)
            row[plan.layout[0].input + i] = ahead[min(ticks, delay) - 1]
            for k in range(delay):
                ahead[k] = ahead[min(k + ticks, delay - 1)]
            trend(plan, row, i).known = delay


@compilable
def set_by_operator(plan: Plan, row: Floats, i: int, value: float) -> None:
    """Input ``i`` takes this value a delay from now."""
    if plan.input[i].delay > 0:
        ahead_of_input(plan.layout[0], row, i)[plan.input[i].delay - 1] = value
    else:
        row[plan.layout[0].input + i] = value


@compilable
def move_to(plan: Plan, row: Floats, i: int, value: float) -> None:
    """Input ``i`` takes this value now; what an operator has set before does not act any more."""
    row[plan.layout[0].input + i] = value
    if plan.input[i].delay > 0:
        ahead_of_input(plan.layout[0], row, i)[:] = value
        trend(plan, row, i).known = 0
