"""The work cycle: the rig's inputs over time, as points or as sweeps of sines."""

from __future__ import annotations

from itertools import pairwise
from math import ceil
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, StrictBool, model_validator

from hilserver.components.base import Datasheet
from hilserver.rig.references import InputName
from hilserver.units import Frequency, Number, Time

DEFAULT_FREQUENCIES: Any = ("2 Hz", "3 Hz", "5 Hz", "7 Hz", "10 Hz", "14 Hz", "20 Hz")
ROUNDING = 1e-9
"""A number of periods that is short of a whole one by no more than this counts as whole."""


class Sine(NamedTuple):
    """A sine of a sweep: Hz; when it begins, from when it counts, when it ends, s."""

    frequency: float
    begins: float
    counts: float
    ends: float


class Sweep(Datasheet):
    """Sines one after the other about a mean, each in whole periods, with a rest before the first."""

    frequencies: tuple[Annotated[Frequency, Field(gt=0)], ...] = Field(
        default=DEFAULT_FREQUENCIES, min_length=1, max_length=100, description="of the sines"
    )
    amplitude: Number = Field(default=0.3, gt=0, description="of the sines")
    mean: Number = Field(default=0.0, description="mean value of the sines")
    rest: Time = Field(default="1 s", gt=0, description="at the mean, before the first sine")
    settle: Time = Field(
        default="0.3 s",
        ge=0,
        description="minimum time at the start of each sine that is not evaluated; at least one period",
    )
    measure: Time = Field(
        default="1 s", ge=0, description="minimum time of each sine that is evaluated; at least three periods"
    )
    pause: Time = Field(default="0.2 s", gt=0, description="at the mean, after each sine")

    def sines(self, start: float) -> list[Sine]:
        """The sines of a sweep that begins (with its rest) at ``start``, s."""
        found, t = [], start + self.rest
        for f in self.frequencies:
            settled = max(ceil(self.settle * f - ROUNDING), 1) / f
            counted = max(ceil(self.measure * f - ROUNDING), 3) / f
            found.append(Sine(f, t, t + settled, t + settled + counted))
            t = found[-1].ends + self.pause
        return found

    def duration(self) -> float:
        """Length, s."""
        return self.sines(0.0)[-1].ends + self.pause


class CycleInput(Datasheet):
    """One input over time: points, or a sweep; a sweep beside points follows them."""

    shape: Literal["linear", "step", "hold"] = Field(
        default="linear", description="between points: straight, cubic STEP, or hold"
    )
    points: tuple[tuple[Time, Number], ...] | None = Field(
        default=None, min_length=1, description="[time, value], increasing times"
    )
    sweep: Sweep | None = Field(default=None, description="sines one after the other, after the points")

    @model_validator(mode="after")
    def _times_rise(self) -> CycleInput:
        times = [t for t, _ in self.points or ()]
        if not times and self.sweep is None:
            raise ValueError("give points ([time, value], …), or a sweep")
        if any(b <= a for a, b in pairwise(times)) or (times and times[0] < 0):
            raise ValueError("points: times must increase and not be negative")
        return self

    @property
    def sweep_begins(self) -> float:
        """When the points end and the sweep begins, s."""
        return self.points[-1][0] if self.points is not None else 0.0

    @property
    def sines(self) -> list[Sine]:
        """The sines, in s from the begin of the cycle."""
        return self.sweep.sines(self.sweep_begins) if self.sweep else []

    @property
    def duration(self) -> float:
        """Length, s."""
        return self.sweep_begins + (self.sweep.duration() if self.sweep else 0.0)


class CycleSettings(Datasheet):
    """A work cycle: inputs over time."""

    description: str = Field(default="", description="free text")
    repeat: StrictBool = Field(default=False, description="repeat the cycle")
    foreseen: StrictBool = Field(
        default=True, description="the bridge knows the inputs in advance; false: as if an operator moved them"
    )
    length: Time | None = Field(default=None, gt=0, examples=["8 s"], description="default: the last point's time")
    inputs: dict[InputName, CycleInput] = Field(min_length=1)

    @property
    def duration(self) -> float:
        """Length in seconds."""
        return self.length if self.length is not None else max(entry.duration for entry in self.inputs.values())
