"""Part of the look-ahead: the operator inputs over the next ticks.

Inputs that the work cycle or a playout moves are known in advance, because the loop itself will move them. So are
inputs with a ``delay``, for as long. Beyond that they are extrapolated smoothly: nobody knows what an operator will do.
A work cycle that stands for an operator (``foreseen = false``) is known as far as what an operator sets.
"""

from __future__ import annotations

from math import cos, pi, sin

from hilserver.numerics.arrays import Floats
from hilserver.numerics.compilable import compilable
from hilserver.numerics.shape import clip
from hilserver.tick.codes import PlayoutState
from hilserver.tick.plan import Plan
from hilserver.tick.playout import between, is_playing
from hilserver.tick.row import PlayoutMemory, ahead_of_input, header, playout_memory, trend
from hilserver.tick.work_cycle import cycle_value, is_driven


@compilable
def foresee_inputs(plan: Plan, row: Floats, ticks: int, ahead: Floats) -> None:
    """Write the inputs over so many ticks, from the present one on, into ``ahead``: (inputs, longest look-ahead)."""
    each = ahead.shape[0] // max(plan.input.shape[0], 1)
    for i in range(plan.input.shape[0]):
        known = foresee_delayed(plan, row, i, ticks, ahead[i * each :])
        if header(row).cycle_time >= 0.0 and is_driven(plan.cycle, i):
            known = ticks if plan.loop[0].cycle_foreseen > 0 else min(plan.input[i].delay + 1, ticks)
            foresee_cycle(plan, row, i, known, ahead[i * each :])
        extrapolate(plan, row, i, known, ticks, ahead[i * each :])
        for k in range(plan.loop[0].playouts):
            p = playout_memory(plan, row, k)
            if p.input == i and is_playing(p) and p.state != PlayoutState.WAITING:
                foresee_playout(plan, row, p, ticks, ahead[i * each :])


@compilable
def foresee_delayed(plan: Plan, row: Floats, i: int, ticks: int, ahead: Floats) -> int:
    """Input ``i`` now and in the ticks in which it is known because it is delayed; returns for how many it is."""
    known = min(trend(plan, row, i).known + 1, ticks)
    ahead[0] = row[plan.layout[0].input + i]
    for tick in range(1, known):
        ahead[tick] = ahead_of_input(plan.layout[0], row, i)[tick - 1]
    return known


@compilable
def extrapolate(plan: Plan, row: Floats, i: int, known: int, ticks: int, ahead: Floats) -> None:
    """Input ``i`` beyond the first ticks, in which it is known, as it has moved."""
    t = trend(plan, row, i)
    for tick in range(known, ticks):
        on = tick - known + 1
        value = ahead[known - 1] + on * t.slope + 0.5 * on * (on + 1) * t.bend
        ahead[tick] = clip(value, plan.input[i].low, plan.input[i].high)


@compilable
def foresee_cycle(plan: Plan, row: Floats, i: int, ticks: int, ahead: Floats) -> None:
    """Input ``i`` as the work cycle will move it; once the cycle has ended, it stays where it is."""
    loop, t = plan.loop[0], header(row).cycle_time
    for tick in range(1, ticks):
        if t > loop.cycle_length + 0.5 * loop.dt:
            if loop.cycle_repeats == 0:
                ahead[tick] = ahead[tick - 1]
                continue
            t -= loop.cycle_length
        ahead[tick] = cycle_value(plan.cycle, i, t, 0.0)
        t += loop.dt


@compilable
def foresee_playout(plan: Plan, row: Floats, p: PlayoutMemory, ticks: int, ahead: Floats) -> None:
    """The input of a playout as this will move it, with its present drive."""
    entry = plan.input[p.input]
    for tick in range(1, ticks):
        share, phase = share_ahead(row, p, tick), 2.0 * pi * ((int(header(row).tick) + tick) % p.ticks) / p.ticks
        d_sin, d_cos = between(p.from_sin, p.drive_sin, share), between(p.from_cos, p.drive_cos, share)
        value = between(p.from_mean, p.drive_mean, share) + d_sin * sin(phase) + d_cos * cos(phase)
        ahead[tick] = clip(value, entry.low, entry.high)


@compilable
def share_ahead(row: Floats, p: PlayoutMemory, tick: int) -> float:
    """How far a playout will be on the way to its present drive, 0 ... 1, so many ticks from now."""
    if p.state == PlayoutState.FADING:
        return min((p.faded + tick) / p.ticks, 1.0)
    if p.place > 0:
        return 1.0
    return min((int(header(row).tick) % p.ticks + tick + 1.0) / p.ticks, 1.0)
