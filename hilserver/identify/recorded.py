"""Recordings for identification: commands and measured values over time, from a log or a run.

Raw readings are scaled by the current rig file. Each is assigned to the time at which it was measured: its tick minus
its age and the ``delay`` of its channel. Low-pass filters of channels are not applied: they would appear as a lag of
the valve.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import comb, sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hilserver.errors import HilserverError, did_you_mean
from hilserver.identify.estimate import Estimate
from hilserver.numerics.arrays import Floats
from hilserver.record.format import RecordError
from hilserver.record.reader import LogReader
from hilserver.rig.rig import Rig
from hilserver.tick.codes import Mode

LONGEST_GAP = 20
"""Ticks without a sample of a channel, or without a row, over which values are interpolated."""
SETTLING = 0.1
"""s after a gap in the commands until they no longer affect the spool."""
PART = 200
"""Number of successive samples from which a value of the noise is calculated."""
DIFFERENCE = 8
"""Order of the difference of successive samples that is noise: of a pressure that oscillates with a fifth of the sample
rate, the fourth one contains 23 % (of the white noise with the same amplitude), the eighth one 3 %.
"""
MIN_NOISE = 2e-5
"""Fraction of the span of the samples below which they count as noiseless (16 bits: 1.5e-5)."""


@dataclass(frozen=True)
class Recording:
    """Commands and measured values on a grid of ticks, SI.

    ``commands``: by valve, -1 … 1, positive opens P to the port, held from its tick to the next; ``channels``: by name,
    at the ticks; ``known``: where both are known; ``noise``: of the channels, as far as it can be determined;
    ``zeros``: zero errors of sensors, which the channels no longer have; ``notes``: what else it shows of the sensors;
    ``delays_known``: the sensors, all together, are as late as the rig file states.
    """

    source: str
    dt: float
    commands: Mapping[str, Floats]
    channels: Mapping[str, Floats]
    known: NDArray[np.bool_]
    noise: Mapping[str, Estimate] = field(default_factory=dict)
    zeros: Mapping[str, Estimate] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    delays_known: bool = False

    def until(self, tick: int) -> Recording:
        """The part of it before this tick."""
        return self._part(slice(tick))

    def last(self, seconds: float) -> Recording:
        """The last part of it, of at most this duration."""
        return self._part(slice(max(len(self.known) - round(seconds / self.dt), 0), None))

    def _part(self, ticks: slice) -> Recording:
        commands = {name: command[ticks] for name, command in self.commands.items()}
        channels = {name: values[ticks] for name, values in self.channels.items()}
        return replace(self, commands=commands, channels=channels, known=self.known[ticks])

    @property
    def duration(self) -> float:
        """s."""
        return len(self.known) * self.dt


def columns_needed(rig: Rig) -> list[str]:
    """The columns of a log that are evaluated."""
    names = ["tick", "mode", *(f"valve.{name}.output" for name in rig.settings.valves)]
    return names + [f"{word}.{name}" for name in _measured(rig) for word in ("raw", "age")]


def recording_of_log(rig: Rig, path: Path) -> Recording:
    """From a log of hilserver. Raises RecordError if it is none, or has no column of a channel of the rig file."""
    reader = LogReader(path)
    rate = 1.0 / reader.header.period_s
    if abs(rate / rig.settings.loop.rate - 1.0) > 1e-6:
        rates = f"{rate:g} ticks per second; loop.rate of {rig.file} is {rig.settings.loop.rate:g}"
        raise RecordError(path, f"was recorded at {rates}.")
    names = columns_needed(rig)
    reader.require(*names)
    for name in names:
        if name not in reader.header.columns:
            known = did_you_mean(name, [column for column in reader.header.columns if "." in column])
            raise RecordError(path, f"has no column {name}: it was recorded with another rig file.{known}")
    batches = [{name: batch.column(name) for name in names} for batch in reader.batches()]
    if not batches:
        raise RecordError(path, "contains no rows.")
    return recording_of_columns(rig, {name: np.concatenate([b[name] for b in batches]) for name in names}, str(path))


def recording_of_columns(rig: Rig, columns: Mapping[str, Floats], source: str) -> Recording:
    """From the columns of a log or of a run, by name; ``source`` says which."""
    dt, ticks = 1.0 / rig.settings.loop.rate, columns["tick"]
    grid = np.arange(ticks[0], ticks[-1] + 1.0)
    row = np.searchsorted(ticks, grid, side="right") - 1
    lost, fault = grid > ticks[row], columns["mode"][row] == Mode.FAULT
    known = ~widened(lost | fault, 0, round(SETTLING / dt))
    channels, noise = {}, {}
    for name in _measured(rig):
        taken = ticks * dt - columns[f"age.{name}"] - rig.settings.channels[name].delay
        time, value = samples_of(rig, name, taken, columns[f"raw.{name}"], dt)
        known &= _near(time, grid * dt, LONGEST_GAP * dt)
        channels[name] = np.interp(grid * dt, time, value)
        if (found := noise_of(value)) is not None:
            noise[name] = found
    commands = {}
    for number, (name, valve) in enumerate(rig.settings.valves.items()):
        line = rig.plan.valve[number]
        share = (columns[f"valve.{name}.output"][row] - line.raw_offset) / line.raw_gain
        commands[name] = valve.polarity * (share - valve.null)
    return Recording(source, dt, commands, channels | _fixed(rig, len(grid)), known, noise)


def noise_of(samples: Floats) -> Estimate | None:
    """The standard deviation of a sensor's white noise, SI.

    From successive samples; None if they are too few, without noise, or repeat each other. Of a motion, a
    difference of high order is small beside that of noise; of many parts the median counts.
    """
    if len(samples) < 4 * PART or np.mean(np.diff(samples) == 0.0) > 0.5:
        return None
    rough = np.diff(samples, DIFFERENCE)[: (len(samples) - DIFFERENCE) // PART * PART]
    parts = np.sqrt(np.mean(rough.reshape(-1, PART) ** 2, axis=1) / comb(2 * DIFFERENCE, DIFFERENCE))
    value, span = float(np.median(parts)), float(np.ptp(samples))
    return Estimate(value, value / sqrt(2.0 * PART)) if value > MIN_NOISE * span else None


def _measured(rig: Rig) -> list[str]:
    return [name for name, channel in rig.settings.channels.items() if channel.is_measured]


def _fixed(rig: Rig, ticks: int) -> dict[str, Floats]:
    return {name: np.full(ticks, s.fixed()) for name, s in rig.settings.channels.items() if s.value is not None}


def samples_of(rig: Rig, name: str, time: Floats, raw: Floats, dt: float) -> tuple[Floats, Floats]:
    """Times and values of a channel's samples.

    A repeated sample with a greater age counts once; an invalid one is left out.
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
    return time, value


def _near(time: Floats, grid: Floats, longest: float) -> NDArray[np.bool_]:
    """Where the grid lies between two of these times that are at most ``longest`` s apart."""
    after = np.searchsorted(time, grid - 1e-9)
    gap = np.diff(time, prepend=-np.inf, append=np.inf)[after]
    near: NDArray[np.bool_] = (gap <= longest) | (np.abs(grid - time[np.minimum(after, len(time) - 1)]) < 1e-9)
    return near


def widened(where: NDArray[np.bool_], before: int, after: int) -> NDArray[np.bool_]:
    """Also true at this number of places before and after.

    >>> widened(np.array([False, False, True, False, False]), 1, 0)
    array([False,  True,  True, False, False])
    """
    total, at, n = np.concatenate([[0], np.cumsum(where)]), np.arange(len(where)), len(where)
    wide: NDArray[np.bool_] = total[np.minimum(at + before + 1, n)] > total[np.maximum(at - after, 0)]
    return wide
