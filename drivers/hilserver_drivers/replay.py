"""A recorded log as a device: its samples are read tick by tick, its outputs are only logged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from hilserver.driver import ChannelInfo, DriverConfig, Floats, SampleDriver
from hilserver.units import Frequency


class ReplayConfig(DriverConfig):
    """A text log of another system (CSV or tab-separated, one header line); hilserver's own logs need no settings."""

    file: str = Field(description="the log, relative to the rig file or to the working folder")
    columns: tuple[str, ...] = Field(min_length=1, description="columns to read; channels name them as source")
    sample_rate: Frequency | None = Field(
        default=None, gt=0, description="rows per second, unless time_column gives it"
    )
    time_column: str | None = Field(default=None, description="column of the time stamps in seconds")
    delimiter: Literal[",", ";", "\t", " "] | None = Field(
        default=None, description="delimiter of the columns; default: determined from the header"
    )
    decimal_comma: bool = Field(default=False, description="numbers have a decimal comma, as in 1,5")
    outputs: tuple[str, ...] = Field(
        default=("command",), description="names of the outputs, whose values are only logged"
    )


class Replay(SampleDriver):
    """Recorded samples as sensors."""

    Config = ReplayConfig

    @classmethod
    def channels(cls, config: ReplayConfig) -> tuple[Sequence[ChannelInfo], Sequence[ChannelInfo]]:
        """One input per column."""
        inputs = [ChannelInfo(name, "", "recorded column") for name in config.columns]
        return inputs, [ChannelInfo(name, "", "logged only") for name in config.outputs]

    def open(self) -> None:
        """Nothing to connect."""

    def read(self, values: Floats, ages: Floats) -> None:
        """The next line of the log; NaN after its end."""
        if not self.samples.next(values, ages):
            values[:] = float("nan")

    def write(self, values: Floats) -> None:
        """Outputs of a replay have no effect; they are in the log of the run."""

    def make_safe(self) -> None:
        """There is nothing to make safe."""

    def close(self) -> None:
        """Nothing to release."""
