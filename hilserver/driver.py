"""The driver protocol: a device as named input and output channels.

A driver lives in a separate package, found through the entry points ``hilserver.drivers``. It sees only this module,
:mod:`hilserver.units` and :mod:`hilserver.errors`. Constructing one touches no hardware; ``open`` does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from hilserver.errors import ConfigurationError, Problem, did_you_mean
from hilserver.installed import installed
from hilserver.units import Frequency, Time

INSTALLED = "hilserver.drivers"
"""Group of the entry points of drivers."""
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class DriverConfig(BaseModel):
    """Base of a driver's own settings in ``[devices.<name>]``: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False, defer_build=True)


class SlowDriverConfig(DriverConfig):
    """Base of a slow driver's settings (``pace = Pace.SLOW``): settings of its I/O process."""

    rate: Frequency = Field(default="100 Hz", ge=1, le=10_000, description="how often the device is read and written")
    watchdog: Time = Field(
        default="100 ms",
        gt=0,
        le=60,
        description="time without a command from the loop after which the outputs are set to their safe values",
    )
    hang_time: Time = Field(
        default="2 s",
        gt=0,
        le=600,
        description="a read or write that takes longer counts as hanging: its process is killed and restarted",
    )


class Pace(Enum):
    """Whether the loop itself may call read and write (fast), or an I/O worker process must (slow).

    A device is fast if its read and write take microseconds and can't hang. A slow driver's settings derive from
    SlowDriverConfig.
    """

    FAST = "fast"
    SLOW = "slow"


@dataclass(frozen=True)
class ChannelInfo:
    """One channel that a device offers; ``unit`` is that of its raw value ("V", "count")."""

    name: str
    unit: str
    description: str = ""


@dataclass(frozen=True)
class FoundDevice:
    """A device that ``discover`` found; ``settings`` is the contents of a table ``[devices.<name>]`` for it."""

    name: str
    description: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    inputs: Sequence[ChannelInfo] = ()
    outputs: Sequence[ChannelInfo] = ()


class Driver(ABC):
    """A device. The loop calls ``read`` and ``write`` once a tick, with the channels in the order of construction.

    ``open`` raises DriverError for problems with which a run can't start. A running device raises it only if it must
    not continue. Failures that may be temporary (timeout, bad frame, unplugged) raise nothing: the samples are NaN,
    and the driver counts the failure (``failed``), retries automatically, and never blocks longer than its stated
    timeout.

    Outputs are monitored like inputs: ``confirmed`` gives the values that the device is known to have, and the times of
    the commands with which they came.
    """

    Config: ClassVar[type[DriverConfig]]
    pace: ClassVar[Pace] = Pace.FAST

    def __init__(self, name: str, config: Any, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self.name = name
        self.config = config
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.errors: Counter[str] = Counter()
        """Failures since the start by short constant names ("timeout", "crc")."""
        self.last_error = ""
        """The latest failure in one sentence for the user: device, channel, cause."""
        self._confirmed = np.full(len(self.outputs), np.nan)
        self._confirmed_at = np.full(len(self.outputs), -np.inf)

    @classmethod
    def create(cls, host: DriverHost, name: str, config: Any, inputs: Sequence[str], outputs: Sequence[str]) -> Self:
        """A driver, not opened yet; ``host`` provides the plant or samples of a simulated or replayed device."""
        return cls(name, config, inputs, outputs)

    def failed(self, error: str, text: str) -> None:
        """Count a failure under its short name and keep the sentence for the user."""
        self.errors[error] += 1
        self.last_error = text

    def prepare(self) -> None:  # noqa: B027 - most drivers have nothing to prepare
        """Import what ``open`` needs, without touching the device; a process that stands by does this."""

    @classmethod
    def discover(cls) -> Sequence[FoundDevice]:
        """Devices of this kind attached to this computer, found without writing to them; by default none."""
        return ()

    @classmethod
    @abstractmethod
    def channels(cls, config: Any) -> tuple[Sequence[ChannelInfo], Sequence[ChannelInfo]]:
        """Input and output channels that a device so configured offers, without touching it."""

    @abstractmethod
    def open(self) -> None:
        """Connect to the device. Raises DriverError naming device and channel."""

    @abstractmethod
    def read(self, values: Floats, ages: Floats) -> None:
        """Fill raw values and the seconds since each was sampled, one per input; NaN where there is no valid sample."""

    @abstractmethod
    def write(self, values: Floats) -> None:
        """Write raw values, one per output."""

    @classmethod
    def acknowledges(cls, config: Any) -> bool:
        """Whether a device so configured confirms its outputs; if not, they count as confirmed once they are sent."""
        return True

    @classmethod
    def safe_after(cls, config: Any, output: str) -> float:
        """Time without a command after which a device so configured sets an output to its safe value, s.

        By default that of the worker of a slow driver, and infinity for others: they have no watchdog.
        """
        return float(config.watchdog) if isinstance(config, SlowDriverConfig) else inf

    def holds(self, values: Floats) -> Bools | None:
        """Per output, whether the device has confirmed that it has this raw value; asked right after ``write``.

        None, the default, where that can't be said per output: then all count as confirmed by a write that has neither
        raised nor counted a failure.
        """
        return None

    def command(self, values: Floats, at: float) -> None:
        """Write raw values that were commanded at ``at`` (s, ``time.monotonic``), and note those that are confirmed."""
        failures = self.errors.total()
        self.write(values)
        held = self.holds(values)
        if held is not None:
            np.copyto(self._confirmed, values, where=held)
            np.copyto(self._confirmed_at, at, where=held)
        elif self.errors.total() == failures:
            self._confirmed[:], self._confirmed_at[:] = values, at

    def confirmed(self, values: Floats, at: Floats) -> None:
        """Fill, per output, the raw value last confirmed and the time of its command; NaN and -infinity if none."""
        values[:], at[:] = self._confirmed, self._confirmed_at

    def forget_confirmed(self) -> None:
        """No output has a known value any more: values other than the commanded ones were written."""
        self._confirmed[:], self._confirmed_at[:] = np.nan, -np.inf

    def stand_in(self) -> Driver:
        """A driver for the rehearsal of a tick, shortly before its deadline: it touches no device.

        What it calls is in the processor's caches when the tick calls the same; by default little is.
        """
        return StandInDriver(self)

    @abstractmethod
    def make_safe(self) -> None:
        """Write every output's safe raw value; called after ``open`` and before every exit, also after an error.

        Raises DriverError if they can't be written.
        """

    @abstractmethod
    def close(self) -> None:
        """Release the device. May be called more than once."""


class StandInDriver(Driver):
    """Stands in for any driver during the rehearsal of a tick.

    Its samples are those of the last tick, with which the tick takes the usual paths; what is written goes nowhere.
    """

    def __init__(self, driver: Driver) -> None:
        super().__init__(driver.name, driver.config, driver.inputs, driver.outputs)

    @classmethod
    def channels(cls, config: Any) -> tuple[Sequence[ChannelInfo], Sequence[ChannelInfo]]:
        """None of its own."""
        return (), ()

    def open(self) -> None:
        """Nothing to open."""

    def read(self, values: Floats, ages: Floats) -> None:
        """Leave the samples of the last tick as they are."""

    def write(self, values: Floats) -> None:
        """Nowhere."""

    def make_safe(self) -> None:
        """Nothing to make safe."""

    def close(self) -> None:
        """Nothing to close."""


class Plant(Protocol):
    """A simulated rig: a circuit behind sensors and actuators, in the order of the driver's inputs and outputs."""

    def read(self, values: Floats, ages: Floats) -> None:
        """Raw values of the sensors now, and their ages."""

    def write(self, values: Floats) -> None:
        """Raw commands of the actuators from now on."""

    def make_safe(self) -> None:
        """All actuators to their safe values."""

    def stand_in(self) -> Plant:
        """A plant for the rehearsal of a tick: what is written to it goes nowhere."""

    def close(self) -> None:
        """Release it."""


class SampleSource(Protocol):
    """Recorded raw samples, one line per tick."""

    def next(self, values: Floats, ages: Floats) -> bool:
        """Fill the next tick's raw values and ages; False at the end."""


class DriverHost(Protocol):
    """Interface of a program that runs drivers: plants for simulated devices, samples for replayed ones."""

    def plant(self, device: str, config: Any, outputs: Sequence[str]) -> Plant:
        """The plant of a simulated device. Raises HilserverError if there is none."""

    def samples(self, device: str) -> SampleSource:
        """The samples of a replayed device. Raises HilserverError if there are none."""


class PlantDriver(Driver):
    """A driver of a simulated device: its host provides the plant, which the driver reads and writes."""

    def __init__(self, name: str, config: Any, inputs: Sequence[str], outputs: Sequence[str], plant: Plant) -> None:
        super().__init__(name, config, inputs, outputs)
        self.plant = plant

    @classmethod
    def create(cls, host: DriverHost, name: str, config: Any, inputs: Sequence[str], outputs: Sequence[str]) -> Self:
        """A driver with the host's plant of this name."""
        return cls(name, config, inputs, outputs, host.plant(name, config, outputs))

    def stand_in(self) -> Driver:
        """The same driver, with the stand-in of its plant."""
        return type(self)(self.name, self.config, self.inputs, self.outputs, self.plant.stand_in())


class SampleDriver(Driver):
    """A driver of a replayed device: its host provides the recorded samples."""

    def __init__(
        self, name: str, config: Any, inputs: Sequence[str], outputs: Sequence[str], samples: SampleSource
    ) -> None:
        super().__init__(name, config, inputs, outputs)
        self.samples = samples

    @classmethod
    def create(cls, host: DriverHost, name: str, config: Any, inputs: Sequence[str], outputs: Sequence[str]) -> Self:
        """A driver with the host's samples of this name."""
        return cls(name, config, inputs, outputs, host.samples(name))


def is_hardware(driver: type[Driver]) -> bool:
    """Whether a driver's devices exist outside of this program: neither simulated nor replayed."""
    return not issubclass(driver, PlantDriver | SampleDriver)


def installed_drivers() -> dict[str, type[Driver]]:
    """All installed drivers by name (entry points ``hilserver.drivers``); loads no hardware library."""
    return {entry.name: entry.load() for entry in installed(INSTALLED)}


def driver_named(name: str, key: str = "driver", file: str = "") -> type[Driver]:
    """One installed driver. Raises ConfigurationError naming the available drivers."""
    entries = {entry.name: entry for entry in installed(INSTALLED)}
    if name not in entries:
        text = f'"{name}" is not an installed driver.' + did_you_mean(name, entries)
        raise ConfigurationError([Problem(text, key, file)])
    driver: type[Driver] = entries[name].load()
    return driver
