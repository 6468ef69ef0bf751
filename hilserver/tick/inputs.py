"""Part of the tick: the operator inputs, from the work cycle or as last set, and their motion."""

from __future__ import annotations

from hilserver.numerics.arrays import Floats
from hilserver.numerics.compilable import compilable
from hilserver.tick.codes import Mode
from hilserver.tick.delayed_inputs import move_to
from hilserver.tick.plan import Plan
from hilserver.tick.playout import play
from hilserver.tick.row import InputTrend, ahead_of_input, header, trend
from hilserver.tick.work_cycle import cycle_value, is_driven


@compilable
def set_inputs(plan: Plan, row: Floats, elapsed: float) -> None:
    """Operator inputs: at their initial values unless RUNNING; from the work cycle while it runs; otherwise as last
    set."""
    head = header(row)
    first, ends = plan.layout[0].input, False
    if head.mode != Mode.RUNNING:
        head.cycle_time = -1.0
        for i in range(plan.input.shape[0]):
            move_to(plan, row, i, plan.input[i].initial)
    elif head.cycle_time >= 0.0:
        t, length = head.cycle_time, plan.loop[0].cycle_length
        for i in range(plan.input.shape[0]):
            if is_driven(plan.cycle, i):
                move_to(plan, row, i, cycle_value(plan.cycle, i, t, row[first + i]))
        t += elapsed
        if t > length + 0.5 * elapsed:
            t = t - length if plan.loop[0].cycle_repeats > 0 else -1.0
        head.cycle_time, ends = t, t < 0.0
    play(plan, row)
    note_trends(plan, row, elapsed)
    if ends and plan.loop[0].cycle_foreseen > 0:  # from now on, they stay
        for i in range(plan.input.shape[0]):
            if is_driven(plan.cycle, i):
                rest(trend(plan, row, i))


@compilable
def note_trends(plan: Plan, row: Floats, elapsed: float) -> None:
    """The motion of the inputs per tick: the last changes of each, and slope and curvature for extrapolation.

    An input is extrapolated if it moves smoothly, that is, if its last changes or their differences are similar. A jump
    has no slope.
    """
    for i in range(plan.input.shape[0]):
        now, t = last_known(plan, row, i), trend(plan, row, i)
        step = (now - t.last) * plan.loop[0].dt / elapsed
        bend, bend_before = step - t.step, t.step - t.step_before
        smooth = alike(step, t.step) or alike(bend, bend_before)
        t.slope = step if smooth else 0.0
        t.bend = least(bend, bend_before) if smooth else 0.0
        t.last, t.step_before, t.step = now, t.step, step


@compilable
def last_known(plan: Plan, row: Floats, i: int) -> float:
    """The last value of input ``i`` that is known: that of now, or of a time in the future.

    A work cycle that stands for an operator is known as far ahead as what an operator sets.
    """
    known, delay, loop = trend(plan, row, i).known, plan.input[i].delay, plan.loop[0]
    if known > 0:
        return float(ahead_of_input(plan.layout[0], row, i)[known - 1])
    now, t = row[plan.layout[0].input + i], header(row).cycle_time
    if delay == 0 or t < 0.0 or not is_driven(plan.cycle, i):
        return float(now)
    t += (delay - 1) * loop.dt
    if t > loop.cycle_length + 0.5 * loop.dt:
        t = t - loop.cycle_length if loop.cycle_repeats > 0 else loop.cycle_length
    return cycle_value(plan.cycle, i, t, now)


@compilable
def rest(t: InputTrend) -> None:
    """An input stays where it is: nothing of its motion is extrapolated."""
    t.slope = t.bend = 0.0
    t.step_before = t.step  # so that its standstill is no curvature in the next tick


@compilable
def alike(a: float, b: float) -> bool:
    """Whether two numbers differ by no more than half of the larger."""
    return abs(a - b) <= 0.5 * max(abs(a), abs(b))


@compilable
def least(a: float, b: float) -> float:
    """The smaller of two numbers of the same sign, otherwise 0."""
    if a * b <= 0.0:
        return 0.0
    return a if abs(a) < abs(b) else b
