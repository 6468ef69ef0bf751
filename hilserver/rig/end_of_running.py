"""Why RUNNING or ARMED has ended: a trip, or a limit or the local enable, which can end it without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hilserver.numerics.arrays import Floats
from hilserver.rig.rig import Rig
from hilserver.tick.codes import Action, FaultCode, Mode, fault_text
from hilserver.tick.modes import is_enabled

Column = Callable[[str], NDArray[Any]]
"""Gives a column of some rows by its name."""


def columns_of(rig: Rig, rows: Floats) -> Column:
    """The columns of whole rows of a rig."""
    return lambda name: rig.layout.values(rows, name)


def limits_with(rig: Rig, *actions: Action) -> list[str]:
    """The limits of a rig with one of these actions."""
    known = zip(rig.layout.limits, rig.plan.limit["action"].tolist(), strict=True)
    return [name for name, action in known if action in actions]


def columns_of_end(rig: Rig) -> list[str]:
    """The columns of a row, besides its mode, that tell why RUNNING has ended or is refused."""
    return ["fault", *(f"limit.{name}" for name in limits_with(rig, Action.RAMP, Action.TRIP)), *_enable_columns(rig)]


def _enable_columns(rig: Rig) -> list[str]:
    """The columns of a row that tell whether the local enable is on."""
    enable = rig.settings.enable
    return [f"channel.{enable.channel}", f"stale.{enable.channel}"] if enable is not None else []


def ending_now(rig: Rig, column: Column, row: int) -> list[str]:
    """The violated limits in a row that would end RUNNING, with a trip or without."""
    return [name for name in limits_with(rig, Action.RAMP, Action.TRIP) if column(f"limit.{name}")[row] > 0.0]


def cause_of_end(rig: Rig, column: Column, row: int) -> str:
    """Why RUNNING or ARMED has ended in this row; empty after a command."""
    if cause := fault_text(int(column("fault")[row]), rig.layout.limits):
        return cause
    ends = rig.plan.loop[0].enable_action == Action.RAMP
    if ends and int(column("mode")[row]) == Mode.SAFE and not _is_enabled(rig, column, row):
        return FaultCode.ENABLE.text
    return ", ".join(f"limit {name}" for name in limits_with(rig, Action.RAMP) if column(f"limit.{name}")[row])


def _is_enabled(rig: Rig, column: Column, row: int) -> bool:
    """Whether the local enable is on, as the tick decides it; only its columns are needed."""
    cells = np.zeros(rig.layout.width)
    for name in _enable_columns(rig):
        cells[rig.layout.column(name)] = column(name)[row]
    return is_enabled(rig.plan, cells)


def has_ended(before: Any, now: Any) -> Any:
    """Whether RUNNING has ended, or ARMED without a start; of modes or arrays of modes."""
    return (now != before) & ((before == Mode.RUNNING) | ((before == Mode.ARMED) & (now != Mode.RUNNING)))


def ends_of_running(rig: Rig, column: Column, before: int) -> Iterator[tuple[int, str]]:
    """The rows in which RUNNING or ARMED has ended other than by a command, with the mode that followed and the cause.

    ``before``: the mode before the first row.
    """
    modes = column("mode")
    was = np.concatenate([[before], modes[:-1]])
    for row in np.flatnonzero(has_ended(was, modes)):
        if cause := cause_of_end(rig, column, int(row)):
            yield int(row), f"{Mode(int(modes[row])).name}: {cause}"
