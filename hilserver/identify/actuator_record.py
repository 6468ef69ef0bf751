"""What a recording shows of an actuator whose position is controlled: its command, displacement and force.

Samples keep the time at which they were taken: their tick minus their age and the ``delay`` of their channel. Only
ticks in which the rig is RUNNING count: in others, a real device may not pass on its command.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hilserver.errors import HilserverError, did_you_mean
from hilserver.identify.estimate import Estimate
from hilserver.identify.recorded import noise_of, samples_of
from hilserver.numerics.arrays import Floats
from hilserver.record.format import RecordError
from hilserver.record.reader import LogReader
from hilserver.rig.actuators import LEAST_NOISE
from hilserver.rig.rig import Rig
from hilserver.tick.codes import Mode, Saturation

SHORTEST = 0.5
"""s: shorter parts of a recording between two gaps are not evaluated."""
OLDEST = 0.2
"""s: the longest delay of a command; samples that soon after a part begins answer commands that it does not contain."""
LEAST = 2.0
"""s of a recording in which the rig is RUNNING, without which nothing is identified."""


@dataclass(frozen=True)
class SensorSamples:
    """Samples of a sensor in the order of time. ``time``: s, from tick 0 of the commands; ``value``: SI.

    ``noise``: its standard deviation, None if it can't be told; ``stated_noise``: that of the rig file.
    """

    channel: str
    time: Floats
    value: Floats
    noise: Estimate | None
    stated_noise: float

    def thinned(self, most: int) -> SensorSamples:
        """At most so many of them, evenly."""
        step = max(-(-len(self.time) // most), 1)
        return replace(self, time=self.time[::step], value=self.value[::step])

    @property
    def size(self) -> float:
        """The noise, or what the rig file states of it, with which its errors are compared."""
        return self.noise.value if self.noise is not None else self.stated_noise


@dataclass(frozen=True)
class RecordedActuator:
    """A recording of an actuator. ``command``: m, by tick, held until the next one; where no row tells it: the last.

    ``parts``: first and last tick of each part without gaps in which the rig is RUNNING. ``limited``: share of the
    ticks in which the command was limited by range and by slew rate.
    """

    rig: Rig
    name: str
    source: str
    dt: float
    command: Floats
    displacement: SensorSamples
    force: SensorSamples
    parts: tuple[tuple[int, int], ...]
    limited: tuple[float, float]

    @property
    def duration(self) -> float:
        """s that are evaluated."""
        return sum(end - begin for begin, end in self.parts) * self.dt

    def thinned(self, most: int) -> RecordedActuator:
        """The same with at most so many samples of each sensor."""
        return replace(self, displacement=self.displacement.thinned(most), force=self.force.thinned(most))

    @property
    def gaps(self) -> int:
        """Number of gaps between the parts."""
        return len(self.parts) - 1


def columns_of_actuator(rig: Rig, name: str) -> list[str]:
    """The columns of a log that are evaluated."""
    actuator = rig.settings.actuators[name]
    own = [f"actuator.{name}.{word}" for word in ("command", "saturation")]
    measured = [f"{word}.{channel}" for channel in (actuator.position, actuator.force) for word in ("raw", "age")]
    return ["tick", "missed", "mode", *own, *measured]


def columns_in_log(rig: Rig, names: list[str], path: Path) -> dict[str, Floats]:
    """The columns for these actuators. Raises RecordError if the log has them not, or was recorded at another rate."""
    reader = LogReader(path)
    rate = 1.0 / reader.header.period_s
    if abs(rate / rig.settings.loop.rate - 1.0) > 1e-6:
        rates = f"{rate:g} ticks per second; loop.rate of {rig.file} is {rig.settings.loop.rate:g}"
        raise RecordError(path, f"was recorded at {rates}.")
    wanted = list(dict.fromkeys(column for name in names for column in columns_of_actuator(rig, name)))
    reader.require(*wanted)
    for column in wanted:
        if column not in reader.header.columns:
            known = did_you_mean(column, [each for each in reader.header.columns if "." in each])
            raise RecordError(path, f"has no column {column}: it was recorded with another rig file.{known}")
    batches = [{column: batch.column(column) for column in wanted} for batch in reader.batches()]
    if not batches:
        raise RecordError(path, "contains no rows.")
    return {column: np.concatenate([batch[column] for batch in batches]) for column in wanted}


def record_of_columns(rig: Rig, name: str, columns: Mapping[str, Floats], source: str) -> RecordedActuator:
    """From the columns of a log or of a run; ``source`` says which. Raises HilserverError if the rig hardly ran."""
    actuator, dt = rig.settings.actuators[name], 1.0 / rig.settings.loop.rate
    ticks = columns["tick"] - columns["tick"][0]
    row = np.searchsorted(ticks, np.arange(ticks[-1] + 1.0), side="right") - 1
    parts = _parts(ticks, columns["missed"], columns["mode"] == Mode.RUNNING, dt)
    if sum(end - begin for begin, end in parts) * dt < LEAST:
        raise HilserverError(
            f"{source}: the rig is RUNNING for less than {LEAST:g} s without a gap: nothing can be said of actuator "
            f"{name}. Record it while it moves, 20 s or more."
        )
    least = dict(zip((actuator.position, actuator.force), LEAST_NOISE, strict=True))
    sensors = []
    for channel in (actuator.position, actuator.force):
        settings = rig.settings.channels[channel]
        taken = ticks * dt - columns[f"age.{channel}"] - settings.delay
        time, value = samples_of(rig, channel, taken, columns[f"raw.{channel}"], dt)
        sensors.append(SensorSamples(channel, time, value, noise_of(value), max(settings.deviation(), least[channel])))
    running = columns["mode"] == Mode.RUNNING
    flags = columns[f"actuator.{name}.saturation"][running].astype(np.int64)
    limited = tuple(float(np.mean((flags & int(bit)) != 0)) for bit in (Saturation.RANGE, Saturation.SLEW))
    command = columns[f"actuator.{name}.command"][row]
    return RecordedActuator(rig, name, source, dt, command, sensors[0], sensors[1], parts, (limited[0], limited[1]))


def _parts(ticks: Floats, missed: Floats, running: NDArray[np.bool_], dt: float) -> tuple[tuple[int, int], ...]:
    """Parts without gaps while RUNNING. In missed ticks the command was held; rows that are lost are a gap."""
    lost = np.diff(ticks, prepend=ticks[0] - 1.0) > 1.5 + missed
    starts = np.flatnonzero(running & (lost | ~np.concatenate([[False], running[:-1]])))
    ends = np.flatnonzero(running & np.concatenate([lost[1:] | ~running[1:], [True]]))
    pairs = ((int(ticks[a]), int(ticks[b])) for a, b in zip(starts, ends, strict=True))
    return tuple((a, b) for a, b in pairs if (b - a) * dt >= SHORTEST)
