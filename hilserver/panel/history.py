"""The latest samples of every channel, as received by telemetry."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hilserver.protocol.published import Telemetry

Floats = NDArray[np.float64]
CAPACITY = 30_000
"""Samples kept of each channel."""
CHANNELS_KEPT = 500
"""Beyond this number, channels of earlier circuits are dropped."""


class History:
    """The latest samples; ``count`` is the number received in total. Missing values are NaN."""

    def __init__(self) -> None:
        self.count = 0
        self._time = np.full(CAPACITY, np.nan)
        self._values: dict[str, Floats] = {}

    def add(self, telemetry: Telemetry) -> None:
        """Append the samples of one message."""
        length = max(map(len, telemetry.channels.values()), default=0)
        places = np.arange(self.count, self.count + length) % len(self._time)
        self._time[places] = telemetry.t0 + telemetry.dt * np.arange(length)
        for name in telemetry.channels:
            if name not in self._values:
                self._values[name] = np.full(len(self._time), np.nan)
        for name, values in self._values.items():
            values[places] = np.nan
            if name in telemetry.channels:
                values[places] = np.array(telemetry.channels[name], dtype=np.float64)
        self.count += length
        for name in [name for name in self._values if name not in telemetry.channels][: -CHANNELS_KEPT or None]:
            del self._values[name]

    def channels(self) -> list[str]:
        """Every channel that has a sample, in the order of first appearance."""
        return list(self._values)

    def between(self, start: int, end: int, channels: list[str]) -> tuple[Floats, list[Floats]]:
        """Times (Unix time, s) and values of the samples from ``start`` up to, but without, ``end``, as far as kept."""
        places = np.arange(max(start, self.count - len(self._time), 0), end) % len(self._time)
        empty = np.full(len(places), np.nan)
        return self._time[places], [self._values[c][places] if c in self._values else empty for c in channels]

    def latest(self) -> dict[str, float | None]:
        """The latest sample of each channel, None if it has no value."""
        if self.count == 0:
            return {}
        place = (self.count - 1) % len(self._time)
        return {name: float(v[place]) if np.isfinite(v[place]) else None for name, v in self._values.items()}
