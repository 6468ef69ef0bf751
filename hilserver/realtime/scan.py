"""A scan: a tick of the loop with its inputs and outputs, on one row."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from hilserver.driver import Driver
from hilserver.errors import DriverError
from hilserver.numerics.arrays import Floats
from hilserver.realtime.clock import GridClock
from hilserver.realtime.devices import DeviceSetup
from hilserver.tick.plan import Layout
from hilserver.tick.row import COLUMN, INPUTS, as_whole

TICK, UTC, MISSED, HEARTBEAT_AGE, WAKE_ERROR, READ_TIME, COMPUTE_TIME, WRITE_TIME, PUBLISH_TIME, DEVICE_ERROR = (
    COLUMN[name] for name in INPUTS
)


class LoopDevice:
    """A driver and its place in the row: it reads directly into the raw section and writes the outputs' columns."""

    def __init__(self, setup: DeviceSetup, driver: Driver, row: Floats, layout: Layout, speed: float) -> None:
        first, last = setup.first_slot, setup.first_slot + len(setup.inputs)
        self.driver = driver
        self._raw = row[layout.raw + first : layout.raw + last]
        self._ages = row[layout.age + first : layout.age + last]
        self._failures = setup.error_column
        self._columns = np.array(setup.output_columns, dtype=np.int64)
        self._out = np.zeros(len(setup.output_columns))
        first, last = setup.first_output, setup.first_output + len(self._out)
        self._confirmed = row[layout.confirmed + first : layout.confirmed + last]
        self._confirmed_ages = row[layout.confirmed_age + first : layout.confirmed_age + last]
        self._confirmed_at, self._commanded_at = np.zeros(len(self._out)), time.monotonic()
        self._row, self._speed = row, speed

    def read(self) -> bool:
        """Fill raw values, ages, failures, confirmed outputs; False, without samples, if the device must not continue.

        A confirmation is as old as its command was when the latest one was given: a pause of the loop does not age it.
        """
        try:
            self.driver.read(self._raw, self._ages)
        except DriverError as error:
            self._raw[:], self._ages[:], self._confirmed_ages[:] = np.nan, np.inf, np.inf
            return self._gave_up(error)
        self._row[self._failures] = self.driver.errors.total()
        self.driver.confirmed(self._confirmed, self._confirmed_at)
        np.subtract(self._commanded_at, self._confirmed_at, out=self._confirmed_ages)
        if self._speed != 1.0:
            self._confirmed_ages *= self._speed
        return True

    def write(self) -> bool:
        """Write the raw outputs; False if the device must not continue."""
        self._row.take(self._columns, out=self._out, mode="clip")  # with other modes, via a buffer
        self._commanded_at = time.monotonic()
        try:
            self.driver.command(self._out, self._commanded_at)
        except DriverError as error:
            return self._gave_up(error)
        return True

    def _gave_up(self, error: DriverError) -> bool:
        self.driver.failed("gave up", str(error))
        return False


class Scan:
    """What the loop does in a tick: read the inputs, tick, write the outputs, publish the row."""

    def __init__(
        self,
        row: Floats,
        devices: Sequence[LoopDevice],
        silence: Callable[[], float],
        tick: Callable[[], None],
        publish: Callable[[], None],
    ) -> None:
        """``silence``: age of the supervisor's heartbeat; ``tick``: the tick on this row; ``publish``: pass it on."""
        self.row, self.devices = row, devices
        self._whole = as_whole(row)
        self._silence, self._tick, self._publish = silence, tick, publish
        self._failed = False
        self._read_at = self._computed_at = self._written_at = self._began_at = 0

    def run(self, clock: GridClock) -> None:
        """The scan at the clock's present tick."""
        row, whole, ns = self.row, self._whole, time.monotonic_ns
        self._began_at = ns()
        whole[TICK], whole[MISSED], row[WAKE_ERROR] = clock.tick, clock.missed, clock.wake_error
        row[UTC], row[HEARTBEAT_AGE] = time.time(), self._silence()
        failed = self._failed
        for device in self.devices:
            failed |= not device.read()
        whole[DEVICE_ERROR] = failed
        self._read_at = ns()
        self._tick()
        self._computed_at = ns()
        failed = False
        for device in self.devices:
            failed |= not device.write()
        self._failed = failed
        self._written_at = ns()
        self._publish()

    def note_times(self) -> None:
        """Note the durations of the parts of this scan, which the row of the next one contains."""
        row, ended = self.row, time.monotonic_ns()
        row[READ_TIME] = (self._read_at - self._began_at) * 1e-9
        row[COMPUTE_TIME] = (self._computed_at - self._read_at) * 1e-9
        row[WRITE_TIME] = (self._written_at - self._computed_at) * 1e-9
        row[PUBLISH_TIME] = (ended - self._written_at) * 1e-9
