"""The samples that the server publishes: every n-th row, and what happened in the loop between them."""

from __future__ import annotations

import numpy as np

from hilserver.circuit.pack import PackedCircuit
from hilserver.numerics.arrays import Floats, Integers
from hilserver.protocol.published import Telemetry
from hilserver.realtime.timing import wake_up_delay, work_before
from hilserver.rig.rig import Rig
from hilserver.service.actuator_status import parameter_columns
from hilserver.tick.records import Field
from hilserver.tick.row import ActuatorState, ValveState, header, headers

_OF_A_VALVE = (
    *("flow_virtual", "flow_measured", "demand", "command", "saturation", "volume_error", "volume_lost"),
    *("gain_PA", "gain_AT", "delay", "null", "overlap", "learning"),
)
VALVE_CHANNELS = {name: ValveState.fields()[name] for name in _OF_A_VALVE}
"""The values of a valve's block of the row that are in the telemetry, with their units and descriptions."""
_OF_AN_ACTUATOR = (
    *("position", "estimate", "error", "demand", "command", "saturation"),
    *("force", "force_estimate", "disturbance"),
)
ACTUATOR_CHANNELS = {name: ActuatorState.fields()[name] for name in _OF_AN_ACTUATOR}
"""The same of the block of an actuator whose position is controlled."""
ACTUATOR_CHANNELS |= {
    "measured": Field("m", "measured displacement, the latest sample"),
    "force_measured": Field("N", "measured force with which it pushes the specimen, the latest sample"),
}
LOOP_CHANNELS = {
    "loop.wake_up": ("s", "from a tick's deadline to its start; maximum since the last sample"),
    "loop.work": ("s", "computing time of a tick; maximum since the last sample"),
    "loop.missed": ("", "ticks missed since the last sample"),
}
CIRCUITS_KEPT = 20
"""Versions of the circuit whose rows may still be unread."""
LONGEST_GAP = 100
"""Most samples that may be missing within one telemetry message; after a longer gap a new one begins."""


class TelemetrySamples:
    """Samples from the rows of a rig's loop, in the order of time. ``columns``: those of the row, by channel."""

    def __init__(self, rig: Rig) -> None:
        self._rig, self._period = rig, 1.0 / rig.clock_rate
        self.columns = channel_columns(rig)
        self._circuits: dict[int, PackedCircuit] = {1: rig.packed}
        self._left_over = np.zeros((1, len(LOOP_CHANNELS)))

    def expect(self, version: int, circuit: PackedCircuit) -> None:
        """Note the circuit of coming rows of this version."""
        self._circuits[version] = circuit
        for old in [number for number in self._circuits if number < version - CIRCUITS_KEPT]:
            del self._circuits[old]

    def batch(self, rows: Floats) -> Telemetry | None:
        """A batch of decimated samples, None if there is nothing new.

        Samples are those of every n-th tick; a missed one is null. The names are those of the newest row's circuit,
        with null where an older row's circuit has no value of that name.
        """
        rate = self._rig.clock_rate
        every = max(round(rate / self._rig.settings.mqtt.telemetry_rate), 1)
        sampled = np.flatnonzero(headers(rows)["tick"] % every == 0)
        loop, rows = self._loop_samples(rows, sampled), rows[sampled]
        gaps = np.flatnonzero(np.diff(headers(rows)["tick"]) > LONGEST_GAP * every)
        if len(gaps):
            loop, rows = loop[gaps[-1] + 1 :], rows[gaps[-1] + 1 :]
        if len(rows) == 0:
            return None
        ticks = headers(rows)["tick"]
        places = ((ticks - ticks[0]) / every).astype(np.int64)
        table = {name: self._rig.layout.values(rows, column) for name, column in self.columns.items()}
        table |= self._circuit_values(rows)
        table |= dict(zip(LOOP_CHANNELS, loop.T, strict=True))
        channels = {name: _on_grid(values, places) for name, values in table.items()}
        return Telemetry(t0=float(header(rows[0]).utc), dt=every / rate, channels=channels)

    def _loop_samples(self, rows: Floats, places: Integers) -> Floats:
        """Largest wake-up delay and work, and missed ticks, for the samples at ``places``: of all rows since the last.

        What comes after the last sample is left over for the next one.
        """
        table = np.stack([wake_up_delay(rows, self._period), work_before(rows), headers(rows)["missed"]], axis=1)
        samples = []
        for part in np.split(table, places + 1):
            part = np.concatenate([self._left_over, part])
            samples.append([part[:, 0].max(), part[:, 1].max(), part[:, 2].sum()])
            self._left_over = np.zeros((1, len(LOOP_CHANNELS)))
        self._left_over = np.array([samples.pop()])
        return np.array(samples).reshape(-1, len(LOOP_CHANNELS))

    def _circuit_values(self, rows: Floats) -> dict[str, Floats]:
        """The circuit's values in these rows by name, under the names of the newest row's circuit."""
        versions, start = headers(rows)["circuit_version"], len(self._rig.layout.names)
        newest = self._circuits.get(int(versions[-1]))
        found = {name: np.full(len(rows), np.nan) for name in (newest.names if newest is not None else ())}
        for version in set(versions.tolist()):
            circuit, here = self._circuits.get(int(version)), versions == version
            for place, name in enumerate(circuit.names if circuit is not None else ()):
                if name in found:
                    found[name][here] = rows[here, start + place]
        return {f"circuit.{name}": values for name, values in found.items()}


def channel_columns(rig: Rig) -> dict[str, str]:
    """The row's columns of the telemetry channels, by name, except those of circuit and loop."""
    columns = {name: f"channel.{name}" for name in rig.settings.channels}
    same = [f"input.{name}" for name in rig.layout.section("input")]
    same += [f"valve.{valve}.{word}" for valve in rig.layout.valves for word in VALVE_CHANNELS]
    same += [f"actuator.{actuator}.{word}" for actuator in rig.layout.actuators for word in ACTUATOR_CHANNELS]
    columns |= {name: name for name in same}
    for actuator, settings in rig.settings.actuators.items():  # with samples of slow devices between the new ones, too
        columns[f"actuator.{actuator}.measured"] = f"channel.{settings.position}"
        columns[f"actuator.{actuator}.force_measured"] = f"channel.{settings.force}"
    columns |= parameter_columns(rig)
    columns |= {f"device.{name}.errors": f"errors.{name}" for name in rig.layout.section("errors")}
    return {"tick": "tick", "mode": "mode", **columns}


def _on_grid(values: Floats, places: Integers) -> tuple[float | None, ...]:
    """The values at their places, None between them and for what is not finite."""
    samples: list[float | None] = [None] * (int(places[-1]) + 1)
    for place, value, finite in zip(places.tolist(), values.tolist(), np.isfinite(values).tolist(), strict=True):
        if finite:
            samples[place] = value
    return tuple(samples)
