"""Telemetry as arrays: a recorder collects the messages, samples hold what it has collected.

NumPy is imported when the first array is created, so that a script that only sends a command starts faster.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hilserver.errors import did_you_mean
from hilserver.protocol.published import Telemetry
from hilserver.units import unit_of_value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Samples:
    """Recorded telemetry: ``time`` is Unix time in s; ``channels`` are SI values by name, NaN if not valid."""

    time: Floats
    channels: Mapping[str, Floats]
    units: Mapping[str, str]

    def __getitem__(self, channel: str) -> Floats:
        if channel not in self.channels:
            raise KeyError(f"{channel} is not among the samples.{did_you_mean(channel, self.channels)}")
        return self.channels[channel]

    def __len__(self) -> int:
        return len(self.time)

    def __repr__(self) -> str:
        length = f"{self.time[-1] - self.time[0]:.4g} s" if len(self) else "nothing"
        return f"<{len(self)} samples, {length}: {', '.join(self.channels)}>"


def circuit_units(names: Iterable[str]) -> dict[str, str]:
    """SI units of the virtual circuit's values, as far as they follow from the names.

    >>> circuit_units(["circuit.supply.p", "circuit.pump.q_P", "p_A"])
    {'circuit.supply.p': 'Pa', 'circuit.pump.q_P': 'm^3/s'}
    """
    units = {name: unit_of_value(name.removeprefix("circuit.")) for name in names if name.startswith("circuit.")}
    return {name: unit for name, unit in units.items() if unit}


class TelemetryRecorder:
    """Collects the telemetry of a server until `stop`; made by `Client.recorder`."""

    def __init__(self, channels: tuple[str, ...], units: Mapping[str, str]) -> None:
        self._wanted, self._units = channels, units
        self._batches: list[Telemetry] = []

    def take(self, batch: Telemetry) -> None:
        """Store one telemetry message."""
        self._batches.append(batch)

    def newest(self, channel: str) -> float:
        """The newest value of a channel; NaN if there is none yet."""
        for batch in reversed(self._batches):
            for value in reversed(batch.channels.get(channel, ())):
                if value is not None:
                    return value
        return math.nan

    def samples(self) -> Samples:
        """All samples collected so far."""
        import numpy as np

        batches = list(self._batches)
        names = self._wanted or tuple(dict.fromkeys(name for batch in batches for name in batch.channels))
        lengths = [max(map(len, batch.channels.values()), default=0) for batch in batches]
        sized = list(zip(batches, lengths, strict=True))
        times: list[Floats] = [batch.t0 + batch.dt * np.arange(float(n)) for batch, n in sized]
        channels = {name: _joined([_values(batch.channels.get(name), n) for batch, n in sized]) for name in names}
        units = {**circuit_units(names), **self._units}
        return Samples(_joined(times), channels, {name: units.get(name, "") for name in names})


def _values(values: tuple[float | None, ...] | None, length: int) -> Floats:
    import numpy as np

    return np.array(values if values is not None else [None] * length, dtype=np.float64)


def _joined(parts: list[Floats]) -> Floats:
    import numpy as np

    return np.concatenate(parts) if parts else np.empty(0)
