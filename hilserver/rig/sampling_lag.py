"""Lag of slow devices: the loop has their samples, and they have its commands, only once per period of the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class SamplingLag:
    """Lag of a value that is passed on once per period and held in between, s: its mean, and the largest."""

    mean: float = 0.0
    largest: float = 0.0

    def at(self, off: float) -> float:
        """The mean lag; the largest one where parameters are assumed to be ``off``."""
        return self.mean if off == 0.0 else self.largest


@dataclass(frozen=True)
class SlowDevices:
    """The devices with a process of their own, which reads and writes them at its own rate."""

    rates: Mapping[str, float]
    """How often, 1/s, by name; the loop itself reads and writes all others."""
    loop_rate: float

    def lag(self, device: str | None) -> SamplingLag:
        """Lag by which a device holds samples and commands longer than the loop, which does so for one tick.

        Samples taken every k ticks have the ages 0, 1, … k - 1 ticks when the loop reads them, and a command is in
        effect for k ticks instead of one; transfer times are those of the configured delays.
        """
        if device is None or device not in self.rates:
            return SamplingLag()
        longer = max(1.0 / self.rates[device] - 1.0 / self.loop_rate, 0.0)
        return SamplingLag(0.5 * longer, longer)

    def ticks(self, device: str | None) -> int:
        """Ticks from one sample of a device to the next; 1 where the loop reads it itself."""
        return max(round(self.loop_rate / self.rates[device]), 1) if device is not None and device in self.rates else 1
