"""Why a run has left the mode RUNNING: a trip, or a limit that ends it without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hilserver.numerics.arrays import Floats
from hilserver.rig.build import Rig
from hilserver.tick.codes import Action, Mode, fault_text

Column = Callable[[str], NDArray[Any]]
"""Gives a column of some rows by its name."""


def limits_with(rig: Rig, *actions: Action) -> list[str]:
    """The limits of a rig with one of these actions."""
    known = zip(rig.layout.limits, rig.plan.limit["action"].tolist(), strict=True)
    return [name for name, action in known if action in actions]


def ending_limits(rig: Rig) -> list[str]:
    """The limits of a rig that end RUNNING without a trip."""
    return limits_with(rig, Action.RAMP)


def ending_now(rig: Rig, row: Floats) -> list[str]:
    """The violated limits in a row that would end RUNNING, with a trip or without."""
    return [
        name for name in limits_with(rig, Action.RAMP, Action.TRIP) if row[rig.layout.column(f"limit.{name}")] > 0.0
    ]


def cause_of_end(rig: Rig, column: Column, row: int) -> str:
    """Why RUNNING has ended in this row; empty after a command."""
    if cause := fault_text(int(column("fault")[row]), rig.layout.limits):
        return cause
    return ", ".join(f"limit {name}" for name in ending_limits(rig) if column(f"limit.{name}")[row])


def ends_of_running(rig: Rig, column: Column, before: int) -> Iterator[tuple[int, str]]:
    """The rows in which RUNNING has ended, each with the mode that followed and the cause, if it was no command.

    ``before``: the mode before the first row.
    """
    modes = column("mode")
    was = np.concatenate([[before], modes[:-1]])
    for row in np.flatnonzero((was == Mode.RUNNING) & (modes != Mode.RUNNING)):
        if cause := cause_of_end(rig, column, int(row)):
            yield int(row), f"{Mode(int(modes[row])).name}: {cause}"
