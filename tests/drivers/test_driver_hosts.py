"""What a driver gets from the program that runs it follows from its class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from hilserver.driver import (
    ChannelInfo,
    Driver,
    DriverConfig,
    Floats,
    PlantDriver,
    SampleDriver,
    is_hardware,
)
from hilserver.errors import DriverError
from hilserver.realtime.devices import DeviceSetup
from hilserver.realtime.process import make_driver


class Unchanged(Driver):
    """A driver as others have written it: it knows nothing of hosts."""

    Config = DriverConfig

    @classmethod
    def channels(cls, config: Any) -> tuple[Sequence[ChannelInfo], Sequence[ChannelInfo]]:
        return [ChannelInfo("a", "V")], []

    def open(self) -> None: ...

    def read(self, values: Floats, ages: Floats) -> None: ...

    def write(self, values: Floats) -> None: ...

    def make_safe(self) -> None: ...

    def close(self) -> None: ...


class Own(Unchanged):
    """With a constructor of its own, of the four arguments that the documentation promises."""

    def __init__(self, name: str, config: Any, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        super().__init__(name, config, inputs, outputs)
        self.own = True


class OnPlant(PlantDriver, Unchanged):
    """A simulated device of another package."""


class OnSamples(SampleDriver, Unchanged):
    """A replayed device of another package."""


class Host:
    """Provides marks instead of plants and samples, and notes what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def plant(self, device: str, config: Any, outputs: Sequence[str]) -> Any:
        self.asked.append(("plant", device, tuple(outputs)))
        return "the plant"

    def samples(self, device: str) -> Any:
        self.asked.append(("samples", device))
        return "the samples"


def test_a_driver_of_hardware_asks_its_host_for_nothing() -> None:
    host = Host()
    driver = Own.create(host, "box", DriverConfig(), ("a",), ("u",))
    assert driver.own
    assert (driver.name, driver.inputs, driver.outputs, host.asked) == ("box", ("a",), ("u",), [])
    assert is_hardware(Own)


def test_a_simulated_device_gets_the_plant_of_its_name() -> None:
    host = Host()
    driver: Any = OnPlant.create(host, "rig", DriverConfig(), ("a",), ("u",))
    assert driver.plant == "the plant"
    assert host.asked == [("plant", "rig", ("u",))]
    assert not is_hardware(OnPlant)


def test_a_replayed_device_gets_the_samples_of_its_name() -> None:
    host = Host()
    driver: Any = OnSamples.create(host, "log", DriverConfig(), ("a",), ())
    assert driver.samples == "the samples"
    assert host.asked == [("samples", "log")]
    assert not is_hardware(OnSamples)


def test_the_real_time_loop_has_no_samples() -> None:
    settings = {"file": "log.csv", "columns": ["p"], "sample_rate": "1 kHz"}
    setup = DeviceSetup("log", "replay", settings, "", ("p",), (), 0, (), 0, 0)
    with pytest.raises(DriverError, match="device log: driver replay is for hilserver replay, not for a real-time run"):
        make_driver(setup)
