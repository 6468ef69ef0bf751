"""A device as the processes of a run see it: what of the row belongs to it, and how its driver is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hilserver.driver import Driver, Pace, driver_named


@dataclass(frozen=True)
class DeviceSetup:
    """A device as the loop sees it: which raw slots it fills and which row columns it writes."""

    name: str
    driver: str
    settings: dict[str, Any]
    folder: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    first_slot: int
    output_columns: tuple[int, ...]
    error_column: int
    segment: str = ""
    """Shared memory of the device's own process, where it has one (simulated and slow devices)."""

    def configured(self) -> tuple[type[Driver], Any]:
        """The driver's class, and its settings validated. Raises ConfigurationError for a driver that is not there."""
        kind = driver_named(self.driver, f"devices.{self.name}.driver")
        return kind, kind.Config.model_validate(self.settings, context={"folder": self.folder})

    @property
    def slow(self) -> bool:
        """Whether it has an I/O worker process."""
        return driver_named(self.driver).pace is Pace.SLOW
