"""Stages of a tick, and what the look-ahead stores for the strategies, in ``work``."""

from __future__ import annotations

from enum import IntEnum

from hilserver.numerics.compilable import compilable


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
    NODES = 4
    """The look-ahead for the nodes that actuators follow."""


class Note(IntEnum):
    """What the look-ahead stores per port and tick: the mean over the tick of this."""

    FLOW = 0
    PRESSURE = 1


STAGES = len(Stage)
FARTHEST = 32
"""Maximum look-ahead for the flows of valves, in ticks."""
POINTS = 5
"""Ticks whose flows determine a command."""
NOTES = 2
"""Number of values that the look-ahead stores per port and tick (`Note`)."""


@compilable
def first_note(ports: int, cells: int, stage: int, port: int, what: int) -> int:
    """Place in ``work``, of so many cells, of a `Note` of a port: FARTHEST means, over the coming tick, the next, …"""
    return cells + ((NOTES * (stage - 1 - Stage.PREDICTED.value) + what) * ports + port) * FARTHEST


@compilable
def first_of(delay: float, length: int) -> int:
    """The first of the ticks (of ``length``) that determine a command which takes effect after ``delay`` ticks."""
    return min(max(int(delay) - 1, 0), length - POINTS)
