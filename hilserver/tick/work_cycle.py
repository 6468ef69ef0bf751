"""The work cycle: the values of the inputs that it drives, over time."""

from __future__ import annotations

from math import isfinite, nan, pi, sin

from hilserver.numerics.compilable import compilable
from hilserver.numerics.shape import step
from hilserver.tick.codes import Shape
from hilserver.tick.plan import CyclePoint
from hilserver.tick.records import RecordTable


@compilable
def cycle_value(cycle: RecordTable[CyclePoint], number: int, t: float, otherwise: float) -> float:
    """Value of input ``number`` at cycle time ``t``; ``otherwise`` if the cycle does not drive it."""
    k = next_point(cycle, number, t)
    if k == 0 or cycle[k - 1].input != number:
        is_first = k < cycle.shape[0] and cycle[k].input == number
        return float(cycle[k].target) if is_first else float(otherwise)
    value, since = cycle[k - 1].target, cycle[k - 1].at
    if k == cycle.shape[0] or cycle[k].input != number or cycle[k].kind == Shape.JUMP:
        return float(value)
    point = cycle[k]
    if point.kind == Shape.SMOOTH:
        return step(t, since, value, point.at, point.target)
    if point.kind == Shape.SINE:
        return float(point.target + point.amplitude * sin(2.0 * pi * point.frequency * (t - since)))
    return float(value + (point.target - value) * (t - since) / (point.at - since))


@compilable
def next_point(cycle: RecordTable[CyclePoint], number: int, t: float) -> int:
    """The first point of input ``number`` after cycle time ``t``, or the one at which it would be (by bisection)."""
    low, high = 0, cycle.shape[0]
    while low < high:
        middle = (low + high) // 2
        if cycle[middle].input < number or (cycle[middle].input == number and cycle[middle].at <= t):
            low = middle + 1
        else:
            high = middle
    return low


@compilable
def is_driven(cycle: RecordTable[CyclePoint], number: int) -> bool:
    """Whether the cycle drives input ``number``."""
    return isfinite(cycle_value(cycle, number, 0.0, nan))
