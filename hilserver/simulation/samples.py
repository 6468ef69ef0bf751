"""The samples of a third-party log, resampled to the grid of the ticks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hilserver.driver import Plant, SampleSource
from hilserver.errors import ConfigurationError, HilserverError, Problem
from hilserver.numerics.arrays import Floats
from hilserver.rig.rig import Device

if TYPE_CHECKING:
    from hilserver.record.tables import SampleTable


@dataclass(frozen=True)
class Recordings:
    """A `hilserver.driver.DriverHost` with the recorded samples of each replayed device, and without plants."""

    samples_of: Mapping[str, TickSamples]

    def plant(self, device: str, config: Any, outputs: Sequence[str]) -> Plant:
        """There is none: raises HilserverError."""
        raise HilserverError(f"device {device} is simulated: a recording has no plant for it.")

    def samples(self, device: str) -> SampleSource:
        """The samples of a device."""
        return self.samples_of[device]


@dataclass
class TickSamples:
    """A `hilserver.driver.SampleSource`: in each tick the last sample taken at or before it, and its age.

    A slower log is held from sample to sample; for a faster one, only the last sample before each tick is used. The
    first tick is at the time of the first sample, the last one at or just before the last sample.
    """

    table: SampleTable
    values: Floats
    ages: Floats
    tick: int = 0

    @classmethod
    def on_grid(cls, table: SampleTable, inputs: tuple[str, ...], dt: float) -> TickSamples:
        """The samples of the columns ``inputs`` at ticks ``dt`` seconds apart."""
        time = table.time - table.time[0]
        ticks = np.arange(int(time[-1] / dt + 1e-6) + 1) * dt
        newest = np.searchsorted(time, ticks + 1e-6 * dt, side="right") - 1
        columns = [table.columns.index(name) for name in inputs]
        return cls(table, table.values[newest][:, columns], np.maximum(ticks - time[newest], 0.0))

    def __len__(self) -> int:
        return len(self.values)

    def next(self, values: Floats, ages: Floats) -> bool:
        """Fill the next tick's raw values and ages; False at the end."""
        if self.tick >= len(self):
            return False
        values[:], ages[:] = self.values[self.tick], self.ages[self.tick]
        self.tick += 1
        return True

    def described(self, dt: float) -> str:
        """The log's samples and how they were resampled, in one sentence."""
        count, duration = len(self.table.time), float(self.table.time[-1] - self.table.time[0])
        spacing = duration / max(count - 1, 1)
        text = (
            f"{count} samples, {spacing * 1e3:g} ms apart on average, over {duration:g} s; ticks {dt * 1e3:g} ms apart"
        )
        if spacing > 1.001 * dt:
            return text + ": each sample is held until the next one."
        return text + (": of several samples within a tick, the last one is used." if spacing < 0.999 * dt else ".")


def read_samples(device: Device, rig_file: Path, dt: float) -> TickSamples:
    """The log of a replay device. Raises ConfigurationError, or RecordError if the log can't be used."""
    from hilserver.record.tables import read_table  # imported with it, pyarrow.compute would slow every server's start

    config: Any = device.config
    path = Path(config.file)
    candidates = [path] if path.is_absolute() else [rig_file.parent / path, path]
    found = next((candidate for candidate in candidates if candidate.is_file()), None)
    if found is None:
        text = f'no such file: "{config.file}", neither in the folder of the rig file nor in the working folder.'
        raise ConfigurationError([Problem(text, f"devices.{device.name}.file", str(rig_file))])
    if (config.sample_rate is None) == (config.time_column is None):
        text = "give either sample_rate or time_column, to define the time of each sample."
        raise ConfigurationError([Problem(text, f"devices.{device.name}.sample_rate", str(rig_file))])
    table = read_table(
        found,
        config.columns,
        sample_rate_hz=config.sample_rate,
        time_column=config.time_column,
        delimiter=config.delimiter,
        decimal="," if config.decimal_comma else ".",
    )
    return TickSamples.on_grid(table, device.inputs, dt)
