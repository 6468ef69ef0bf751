"""The driver protocol: a device as named input and output channels.

A driver lives in a package of its own, found through the entry points ``hilserver.drivers``. It sees only this module,
:mod:`hilserver.units` and :mod:`hilserver.errors`. Constructing one touches no hardware; ``open`` does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import entry_points
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from hilserver.errors import ConfigurationError, Problem, did_you_mean

Floats = NDArray[np.float64]


class DriverConfig(BaseModel):
    """Base of a driver's own settings in ``[devices.<name>]``: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)


class Pace(Enum):
    """Whether the loop itself may call read and write (fast), or an I/O worker process must (slow)."""

    FAST = "fast"
    SLOW = "slow"


@dataclass(frozen=True)
class ChannelInfo:
    """One channel that a device offers; ``unit`` is that of its raw value ("V", "count")."""

    name: str
    unit: str
    description: str = ""


class Driver(ABC):
    """A device. The loop calls ``read`` and ``write`` once a tick, with the channels in the order of construction."""

    Config: ClassVar[type[DriverConfig]]
    pace: ClassVar[Pace] = Pace.FAST
    handed: ClassVar[str] = ""
    """What is handed to the constructor besides: "plant" (a simulated rig), "samples" (recorded ones), or nothing."""

    def __init__(self, name: str, config: Any, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self.name = name
        self.config = config
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)

    @classmethod
    @abstractmethod
    def channels(cls, config: Any) -> tuple[Sequence[ChannelInfo], Sequence[ChannelInfo]]:
        """Input and output channels that a device so configured offers, without touching it."""

    @abstractmethod
    def open(self) -> None:
        """Connect to the device. Raises DriverError naming device and channel."""

    @abstractmethod
    def read(self, values: Floats, ages: Floats) -> None:
        """Fill raw values and their ages in seconds, one per input; NaN where there is no valid sample."""

    @abstractmethod
    def write(self, values: Floats) -> None:
        """Write raw values, one per output."""

    @abstractmethod
    def make_safe(self) -> None:
        """Write every output's safe raw value; called on every way out, also after an error."""

    @abstractmethod
    def close(self) -> None:
        """Release the device. May be called more than once."""


class Plant(Protocol):
    """What the simulated driver needs: a simulated rig that others build (a circuit behind sensors and actuators)."""

    def read(self, values: Floats, ages: Floats) -> None:
        """Raw values of the chosen sensors now."""

    def write(self, values: Floats) -> None:
        """Raw commands of the chosen actuators from now on."""

    def make_safe(self) -> None:
        """All actuators to their safe values."""

    def close(self) -> None:
        """Let go of it."""


class SampleSource(Protocol):
    """What the replay driver needs: recorded raw samples, one line per tick."""

    def next(self, values: Floats, ages: Floats) -> bool:
        """Fill the next tick's raw values and ages; False at the end."""


def installed_drivers() -> dict[str, type[Driver]]:
    """All installed drivers by name (entry points ``hilserver.drivers``); loads no hardware library."""
    return {entry.name: entry.load() for entry in sorted(entry_points(group="hilserver.drivers"), key=lambda e: e.name)}


def driver_named(name: str, key: str = "driver", file: str = "") -> type[Driver]:
    """One installed driver. Raises ConfigurationError naming the drivers there are."""
    entries = {entry.name: entry for entry in entry_points(group="hilserver.drivers")}
    if name not in entries:
        text = f'"{name}" is not an installed driver.' + did_you_mean(name, entries)
        raise ConfigurationError([Problem(text, key, file)])
    driver: type[Driver] = entries[name].load()
    return driver
