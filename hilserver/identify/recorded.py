"""What `identify` looks at: commands and measured values over time, from a log or a run.

Raw readings are scaled as the rig file says now, and each is put at the time at which it was true: its tick less its
age and its channel's ``delay``. Low-pass filters of channels are left out: they would be taken for a lag of the valve.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hilserver.errors import HilserverError, did_you_mean
from hilserver.numerics.arrays import Floats
from hilserver.record.format import RecordError
from hilserver.record.reader import LogReader
from hilserver.rig.build import Rig
from hilserver.tick.codes import Mode

LONGEST_HOLE = 20
"""Ticks without a sample of a channel, or without a row, that are bridged."""
SETTLING = 0.1
"""s after a hole in the commands until the spool no longer shows what was in it."""


@dataclass(frozen=True)
class Recording:
    """Commands and measured values on a grid of ticks, SI.

    ``commands``: by valve, -1 … 1, positive opens P to the port, held from its tick to the next; ``channels``: by name,
    at the ticks; ``known``: where both are known.
    """

    source: str
    dt: float
    commands: Mapping[str, Floats]
    channels: Mapping[str, Floats]
    known: NDArray[np.bool_]

    @property
    def duration(self) -> float:
        """s."""
        return len(self.known) * self.dt


def columns_needed(rig: Rig) -> list[str]:
    """The columns of a log that are looked at."""
    names = ["tick", "mode", *(f"valve.{name}.output" for name in rig.settings.valves)]
    return names + [f"{word}.{name}" for name in _measured(rig) for word in ("raw", "age")]


def recording_of_log(rig: Rig, path: Path) -> Recording:
    """From a log of hilserver. Raises RecordError where it is none, or lacks what the rig file names."""
    reader = LogReader(path)
    rate = 1.0 / reader.header.period_s
    if abs(rate / rig.settings.loop.rate - 1.0) > 1e-6:
        rates = f"{rate:g} ticks per second; loop.rate of {rig.file} is {rig.settings.loop.rate:g}"
        raise RecordError(path, f"was recorded at {rates}.")
    names = columns_needed(rig)
    for name in names:
        if name not in reader.header.columns:
            known = did_you_mean(name, [column for column in reader.header.columns if "." in column])
            raise RecordError(path, f"has no column {name}: it was recorded with another rig file.{known}")
    batches = [{name: batch.column(name) for name in names} for batch in reader.batches()]
    if not batches:
        raise RecordError(path, "holds no rows.")
    return recording_of_columns(rig, {name: np.concatenate([b[name] for b in batches]) for name in names}, str(path))


def recording_of_columns(rig: Rig, columns: Mapping[str, Floats], source: str) -> Recording:
    """From the columns of a log or of a run, by name; ``source`` says which."""
    dt, ticks = 1.0 / rig.settings.loop.rate, columns["tick"]
    grid = np.arange(ticks[0], ticks[-1] + 1.0)
    row = np.searchsorted(ticks, grid, side="right") - 1
    lost, fault = grid > ticks[row], columns["mode"][row] == Mode.FAULT
    known = ~widened(lost | fault, 0, round(SETTLING / dt))
    channels = {}
    for name in _measured(rig):
        taken = ticks * dt - columns[f"age.{name}"] - rig.settings.channels[name].delay
        channels[name] = _on_grid(rig, name, taken, columns[f"raw.{name}"], grid * dt, known, dt)
    commands = {}
    for number, (name, valve) in enumerate(rig.settings.valves.items()):
        line = rig.plan.valve[number]
        share = (columns[f"valve.{name}.output"][row] - line.raw_offset) / line.raw_gain
        commands[name] = valve.polarity * (share - valve.null)
    return Recording(source, dt, commands, channels | _fixed(rig, len(grid)), known)


def _measured(rig: Rig) -> list[str]:
    return [name for name, channel in rig.settings.channels.items() if channel.device is not None]


def _fixed(rig: Rig, ticks: int) -> dict[str, Floats]:
    return {name: np.full(ticks, s.fixed()) for name, s in rig.settings.channels.items() if s.value is not None}


def _on_grid(
    rig: Rig, name: str, time: Floats, raw: Floats, grid: Floats, known: NDArray[np.bool_], dt: float
) -> Floats:
    """A channel's values at the times of the grid, straight between its samples; clears ``known`` where it has none.

    A sample that comes again with a greater age is taken once; one that is not valid is left out.
    """
    settings = rig.settings.channels[name]
    value = settings.curve().values(raw)
    (low, high), (least, most) = settings.raw_limits(), settings.value_limits()
    with np.errstate(invalid="ignore"):
        valid = np.isfinite(time) & (raw >= low) & (raw <= high) & (value >= least) & (value <= most)
    time, value = time[valid], value[valid]
    new = np.diff(time, prepend=-np.inf) > 0.01 * dt
    time, value = time[new], value[new]
    if len(time) < 2:
        raise HilserverError(f"{rig.file}: channel {name} has no samples in this recording.")
    known &= _near(time, grid, LONGEST_HOLE * dt)
    return np.interp(grid, time, value)


def _near(time: Floats, grid: Floats, longest: float) -> NDArray[np.bool_]:
    """Where the grid lies between two of these times that are no farther apart than that."""
    after = np.searchsorted(time, grid - 1e-9)
    gap = np.diff(time, prepend=-np.inf, append=np.inf)[after]
    near: NDArray[np.bool_] = (gap <= longest) | (np.abs(grid - time[np.minimum(after, len(time) - 1)]) < 1e-9)
    return near


def widened(where: NDArray[np.bool_], before: int, after: int) -> NDArray[np.bool_]:
    """True also so many places before and after.

    >>> widened(np.array([False, False, True, False, False]), 1, 0)
    array([False,  True,  True, False, False])
    """
    total, at, n = np.concatenate([[0], np.cumsum(where)]), np.arange(len(where)), len(where)
    wide: NDArray[np.bool_] = total[np.minimum(at + before + 1, n)] > total[np.maximum(at - after, 0)]
    return wide
