"""A device in the processes of a run: its part of the row, and how its driver is created."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from hilserver.driver import Driver, Pace, driver_named

ADVICE = "Switch the hydraulic supply off at the machine, then check device and cable."
"""What a person must do if a device does not confirm its safe values."""


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class DeviceSetup:
    """A device in the loop: the raw slots that it fills, the columns of the row that it writes, and its first output.

    The outputs of all devices are numbered, as the raw slots are.
    """

    name: str
    driver: str
    settings: dict[str, Any]
    folder: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    first_slot: int
    output_columns: tuple[int, ...]
    first_output: int
    error_column: int
    segment: str = ""
    """Shared memory of the device's own process, if it has one (simulated and slow devices)."""

    def configured(self) -> tuple[type[Driver], Any]:
        """The driver's class and its validated settings. Raises ConfigurationError if the driver is not installed."""
        kind = driver_named(self.driver, f"devices.{self.name}.driver")
        return kind, kind.Config.model_validate(self.settings, context={"folder": self.folder})

    @property
    def slow(self) -> bool:
        """Whether it has an I/O process."""
        return driver_named(self.driver).pace is Pace.SLOW
