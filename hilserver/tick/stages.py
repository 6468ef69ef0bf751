"""Stages of a tick, and what the look-ahead stores for the strategies, in ``work``."""

from __future__ import annotations

from enum import IntEnum

from hilserver.numerics.arrays import Floats
from hilserver.numerics.compilable import gives_arrays
from hilserver.tick.plan import Plan


class Stage(IntEnum):
    """Stages of a tick."""

    CATCH_UP = 0
    """The circuit over missed ticks."""
    HELD = 1
    """The look-ahead with the port pressures held."""
    PREDICTED = 2
    """The look-ahead with the port pressures predicted."""
    THIS_TICK = 3
    """The circuit over this tick."""


class Note(IntEnum):
    """What the look-ahead stores per port and tick: the mean over the tick of this."""

    FLOW = 0
    PRESSURE = 1


FARTHEST = 32
"""Maximum look-ahead, in ticks."""
NOTES = 2
"""Number of values that the look-ahead stores per port and tick (`Note`)."""


@gives_arrays
def predicted(plan: Plan, work: Floats, view: int, port: int, what: int) -> Floats:
    """A `Note` of a port: means over the coming tick, the next, …"""
    ports = plan.port.shape[0]
    start = work.shape[0] + ((NOTES * (view - 1 - Stage.PREDICTED.value) + what) * ports + port) * FARTHEST
    return work[start : start + FARTHEST]
