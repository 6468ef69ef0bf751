"""The settings of an NI-DAQmx device in the rig file: its terminals, what is connected to them, clock and watchdog."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hilserver.driver import DriverConfig
from hilserver.errors import did_you_mean
from hilserver.units import Frequency, Number, Time

Signal = Literal["voltage", "current", "digital", "encoder", "edges"]

UNITS = {"voltage": "V", "current": "A", "digital": "", "encoder": "count", "edges": "count"}
RANGES = {"voltage": (-10.0, 10.0), "current": (0.0, 0.02), "digital": (0.0, 1.0)}
SIGNALS: Mapping[str, tuple[Signal, ...]] = {
    "ai": ("voltage", "current"),
    "ao": ("voltage", "current"),
    "port": ("digital",),
    "ctr": ("encoder", "edges"),
}
"""The signals of each kind of terminal; the first is the default, except for counters, which must state it."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)


class NiChannel(_Part):
    """A terminal of the device and what is connected to it."""

    terminals_allowed: ClassVar[tuple[str, ...]] = ()
    belongs: ClassVar[Mapping[str, tuple[Signal, ...]]] = {}

    channel: str = Field(
        description='NI\'s name of the terminal: "ai0", "port0/line3", "ctr0"; in a chassis "cDAQ1Mod2/ai0"'
    )
    signal: Signal | None = Field(
        default=None, description="voltage (default) or current; digital; encoder or edges (a counter must state which)"
    )
    range: tuple[Number, Number] | None = Field(
        default=None, description="lowest and highest value in V or A; default: -10 to 10 V, 0 to 0.02 A"
    )

    @model_validator(mode="after")
    def _fits(self) -> NiChannel:
        if self.terminal not in self.terminals_allowed:
            names = " or ".join({"port": "port0/line0"}.get(t, f"{t}0") for t in self.terminals_allowed)
            raise ValueError(f'channel: "{self.channel}" is not one of the terminals {names}')
        if self.terminal == "ctr" and self.signal is None:
            raise ValueError(f"signal: missing for {self.channel}: give encoder (two tracks) or edges (counted pulses)")
        if self.kind not in SIGNALS[self.terminal]:
            allowed = " or ".join(SIGNALS[self.terminal])
            raise ValueError(f"signal: {self.channel} can be {allowed}, not {self.kind}")
        for key, kinds in self.belongs.items():
            if key in self.model_fields_set and self.kind not in kinds:
                raise ValueError(f"{key}: is for {' or '.join(kinds)}, and {self.channel} is {self.kind}")
        if self.span[0] >= self.span[1]:
            raise ValueError("range: the first value must be below the second")
        return self

    @property
    def terminal(self) -> str:
        """``ai``, ``ao``, ``port``, ``ctr``; empty if the name is not one of NI's."""
        found = re.fullmatch(r"(?:[^/\s]+/)?(?:(ai|ao|ctr)\d+|(port)\d+/line\d+)", self.channel, re.IGNORECASE)
        return (found[1] or found[2]).lower() if found else ""

    @property
    def kind(self) -> Signal:
        """The signal at the terminal."""
        return self.signal or SIGNALS[self.terminal][0]

    @property
    def span(self) -> tuple[float, float]:
        """Lowest and highest raw value."""
        return self.range or RANGES.get(self.kind, (-math.inf, math.inf))

    def physical(self, device: str) -> str:
        """NI's full name: ``Dev1/ai0``."""
        first = self.channel.split("/")[0].lower()
        own = re.fullmatch(r"(ai|ao|ctr|port)\d+", first) is not None
        return f"{device}/{self.channel}" if own else self.channel


class NiInput(NiChannel):
    """An input: raw value in V, A, counts, or 0 and 1."""

    terminals_allowed = ("ai", "port", "ctr")
    belongs = {
        "range": ("voltage", "current"),
        "wiring": ("voltage", "current"),
        "shunt": ("current",),
        "decoding": ("encoder",),
        "index": ("encoder",),
        "edge": ("edges",),
    }

    wiring: Literal["default", "differential", "rse", "nrse", "pseudo_differential"] = Field(
        default="default", description="how the sensor is connected; rse, nrse: single-ended, referenced or not"
    )
    shunt: Number | None = Field(
        default=None, gt=0, description="resistance of your own shunt in ohms; default: the device's"
    )
    decoding: Literal["x1", "x2", "x4"] = Field(default="x4", description="counts per period of an encoder's tracks")
    index: bool = Field(default=False, description="the encoder's index pulse (Z) sets the count to 0")
    edge: Literal["rising", "falling"] = Field(default="rising", description="which edges are counted")


class NiOutput(NiChannel):
    """An output: raw value in V, A, or 0 and 1."""

    terminals_allowed = ("ao", "port")
    belongs = {"range": ("voltage", "current")}

    safe: Number = Field(default=0.0, description="raw value in the safe state")

    @model_validator(mode="after")
    def _safe_is_possible(self) -> NiOutput:
        least, greatest = self.span
        if not least <= self.safe <= greatest or (self.kind == "digital" and self.safe not in (0.0, 1.0)):
            what = "0 or 1" if self.kind == "digital" else f"within {least:g} to {greatest:g} {UNITS[self.kind]}"
            raise ValueError(f"safe: {self.safe:g} is not possible, it must be {what}")
        return self


class NiWatchdog(_Part):
    """The device's own watchdog: without a write for this time it sets outputs to their safe values."""

    timeout: Time = Field(gt=0, le=100, description="at least several ticks of the loop")
    outputs: tuple[str, ...] = Field(min_length=1, description="monitored outputs; on many devices only digital ones")


class NiConfig(DriverConfig):
    """Settings of an NI-DAQmx device."""

    device: str = Field(min_length=1, description='name in NI MAX or of "nidaqmxconfig --export": "Dev1", "cDAQ1"')
    inputs: dict[str, NiInput] = Field(default_factory=dict)
    outputs: dict[str, NiOutput] = Field(default_factory=dict)
    sample_clock: Frequency | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="the device samples analog inputs by its own clock; give the loop's rate",
    )
    timeout: Time = Field(default="10 ms", gt=0, le=10, description="maximum wait for a sample")
    watchdog: NiWatchdog | None = None
    store_safe: bool = Field(
        default=False, description="store the safe values in the device as the power-up states of its outputs"
    )

    @model_validator(mode="after")
    def _consistent(self) -> NiConfig:
        used: dict[str, str] = {}
        for table, channels in (("inputs", self.inputs), ("outputs", self.outputs)):
            for name, channel in channels.items():
                physical = channel.physical(self.device)
                if (other := used.setdefault(physical.lower(), f"{table}.{name}")) != f"{table}.{name}":
                    raise ValueError(f"{table}.{name}: {physical} is already {other}")
        for name in self.watchdog.outputs if self.watchdog is not None else ():
            if name not in self.outputs:
                raise ValueError(f'watchdog.outputs: there is no output "{name}".{did_you_mean(name, self.outputs)}')
        if self.sample_clock is not None and self.timeout < 2.0 / self.sample_clock:
            raise ValueError(f"timeout: {self.timeout:g} s is less than two periods of sample_clock")
        return self
