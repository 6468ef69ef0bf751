"""Reports of the devices' drivers: failures by kind, the latest as a sentence, restarts of I/O processes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from hilserver.protocol.published import DeviceStatus

REPORT_INTERVAL = 10.0
"""Seconds without a failure after which the next one is reported as an event."""


class _Device:
    """The counts of one device. ``before``: those of I/O processes that have ended."""

    def __init__(self) -> None:
        self.before: Counter[str] = Counter()
        self.now: Counter[str] = Counter()
        self.last_error = ""
        self.failed_at = -REPORT_INTERVAL
        self.restarts = 0


class DeviceReports:
    """Collects the reports of a run's processes on their devices."""

    def __init__(self, names: Iterable[str]) -> None:
        self._devices = {name: _Device() for name in names}
        self._news: list[str] = []

    def heard(self, message: dict[str, Any]) -> None:
        """A report of a process: ``device``, ``errors`` (counts by name) and ``last_error``."""
        device, now = self._devices[message["device"]], time.monotonic()
        device.now = Counter(message["errors"])
        device.last_error = str(message["last_error"])
        if now - device.failed_at >= REPORT_INTERVAL:
            self._news.append(device.last_error)
        device.failed_at = now

    def restarted(self, name: str) -> None:
        """Note that the I/O process of this device was replaced: its counts start at zero."""
        device = self._devices[name]
        device.restarts += 1
        device.before += device.now
        device.now = Counter()

    def news(self) -> list[str]:
        """Failures after a quiet time, as sentences; each is returned once."""
        found, self._news = self._news, []
        return found

    def status(self) -> dict[str, DeviceStatus]:
        """The status of every device."""
        return {
            name: DeviceStatus(
                errors=dict(device.before + device.now),
                last_error=device.last_error or None,
                restarts=device.restarts,
            )
            for name, device in self._devices.items()
        }
