"""The real valve's flow-signal curve: between its spool, and a linear valve that passes the same flow.

All flows of the bridge's model are those of the linear valve at its opening L; commands, lag and hysteresis are those
of the spool at U. L(U) consists of straight lines through the points of the plan, the same in both directions. A valve
whose flow is proportional to its opening has none: L = U, in every bit.
"""

from __future__ import annotations

from math import copysign

from hilserver.numerics.compilable import compilable
from hilserver.tick.plan import ValveRecord

BENDS = 4
"""Number of points between 0 and 1 in the plan; unused ones are at 1."""


@compilable
def linear_opening(U: float, v: ValveRecord) -> float:
    """The opening of the linear valve with the spool at ``U``."""
    return on_curve(U, v)[0]


@compilable
def steepness(U: float, v: ValveRecord) -> float:
    """dL/dU with the spool at ``U``."""
    return on_curve(U, v)[1]


@compilable
def on_curve(U: float, v: ValveRecord) -> tuple[float, float]:
    """L and dL/dU with the spool at ``U``."""
    if v.bend_1 >= 1.0:
        return U, 1.0
    opening, slope = through(
        abs(U), v.bend_1, v.opening_1, v.bend_2, v.opening_2, v.bend_3, v.opening_3, v.bend_4, v.opening_4
    )
    return copysign(opening, U), slope


@compilable
def spool_for(opening: float, v: ValveRecord) -> float:
    """The spool's position at an opening of the linear valve."""
    if v.bend_1 >= 1.0:
        return opening
    height, _ = through(
        abs(opening), v.opening_1, v.bend_1, v.opening_2, v.bend_2, v.opening_3, v.bend_3, v.opening_4, v.bend_4
    )
    return copysign(height, opening)


@compilable
def through(
    x: float, x_1: float, y_1: float, x_2: float, y_2: float, x_3: float, y_3: float, x_4: float, y_4: float
) -> tuple[float, float]:
    """Height and slope at ``x`` of straight lines through (0, 0), these points and (1, 1), the last one continued.

    >>> through(0.2, 0.4, 0.2, 0.7, 0.4, 1.0, 1.0, 1.0, 1.0), through(0.85, 0.4, 0.2, 0.7, 0.4, 1.0, 1.0, 1.0, 1.0)[0]
    ((0.1, 0.5), 0.7)
    """
    if x < x_1:
        x_0, y_0, x_e, y_e = 0.0, 0.0, x_1, y_1
    elif x < x_2 or x_2 >= 1.0:
        x_0, y_0, x_e, y_e = x_1, y_1, x_2, y_2
    elif x < x_3 or x_3 >= 1.0:
        x_0, y_0, x_e, y_e = x_2, y_2, x_3, y_3
    elif x < x_4 or x_4 >= 1.0:
        x_0, y_0, x_e, y_e = x_3, y_3, x_4, y_4
    else:
        x_0, y_0, x_e, y_e = x_4, y_4, 1.0, 1.0
    slope = (y_e - y_0) / (x_e - x_0)
    return y_0 + (x - x_0) * slope, slope
