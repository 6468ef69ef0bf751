"""Live values of a rig's channels without arming anything: from its running server, or from the devices themselves.

Devices that are opened here are opened without outputs: nothing is written to them.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hilserver.compiler import compiled_program
from hilserver.driver import Driver, Plant, SampleSource
from hilserver.errors import DriverError, HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.realtime.segment import SharedMemoryError
from hilserver.realtime.segment_folder import find_segment
from hilserver.realtime.shared import ALIVE, LoopMemory
from hilserver.rig.plan import first_row
from hilserver.rig.rig import Device, Rig
from hilserver.simulation.samples import read_samples
from hilserver.tick.channels import scale_channels
from hilserver.tick.codes import Watched
from hilserver.tick.limits import check_limits
from hilserver.tick.plant_records import actuators_on

SETTLING = 1.0
"""Seconds within which every device should have delivered a sample."""
LONGEST_STEP = 1.0
"""Maximum simulated time between two readings of a simulated rig, s."""


@dataclass(frozen=True)
class Reading:
    """The present state of a channel: raw reading, value (SI, gauge), age of the sample, s, and why it is not valid."""

    channel: str
    raw: float
    value: float
    age: float
    trouble: str


class Source(Protocol):
    """The source of the rows, in words."""

    described: str
    failures: dict[str, str]
    """Problems of devices, by name."""

    def row(self) -> Floats:
        """The row now, with its channels scaled."""


class RunningServer:
    """The rows of a server that runs this rig on this computer."""

    def __init__(self, memory: LoopMemory) -> None:
        self.described = "from the running server"
        self.failures: dict[str, str] = {}
        self._memory = memory
        self._row = np.empty(memory.ring.width)

    def row(self) -> Floats:
        """The latest row. Raises HilserverError if the server has ended."""
        if self._memory.ring.latest(self._row) < 0 or self._memory.loop_heartbeat.age() > ALIVE:
            raise HilserverError("the server has ended.")
        return self._row


class OpenDevices:
    """The rig's devices, opened for reading alone. One that can't be opened has no samples, and its failure is kept."""

    def __init__(self, rig: Rig, stack: contextlib.ExitStack, only: str = "") -> None:
        self.described = "from the devices"
        self.failures: dict[str, str] = {}
        self._rig = rig
        self._row = first_row(rig.layout, rig.plan, rig.packed)
        self._opened: list[tuple[Driver, slice, slice]] = []
        self._read_at = time.monotonic()
        slot = 0
        for device in rig.devices:
            place = slice(slot, slot := slot + len(device.inputs))
            if only in ("", device.name) and device.inputs:
                self._open(device, place, stack)

    def _open(self, device: Device, place: slice, stack: contextlib.ExitStack) -> None:
        raw, age = self._rig.plan.layout[0].raw, self._rig.plan.layout[0].age
        try:
            driver = _reader(self._rig, device)
            stack.callback(driver.close)
            driver.open()
            driver.make_safe()
        except DriverError as error:
            self.failures[device.name] = str(error)
            return
        slots = slice(raw + place.start, raw + place.stop), slice(age + place.start, age + place.stop)
        self._opened.append((driver, *slots))

    def row(self) -> Floats:
        """Read all devices."""
        for driver, raw, ages in self._opened:
            counted = driver.errors.total()
            self.failures.pop(driver.name, None)
            try:
                driver.read(self._row[raw], self._row[ages])
            except DriverError as error:
                self._row[raw], self.failures[driver.name] = math.nan, str(error)
            if driver.errors.total() > counted:
                self.failures[driver.name] = driver.last_error
        now = time.monotonic()
        elapsed, self._read_at = max(now - self._read_at, 1e-6), now
        with np.errstate(invalid="ignore", over="ignore"):  # a value that is not a number is no sample
            scale_channels(self._rig.plan, self._row, elapsed)
            check_limits(self._rig.plan, self._row)
        return self._row


class _StillPlant:
    """A simulated rig whose actuators are at their safe values, advanced as time passes."""

    def __init__(self, rig: Rig, name: str) -> None:
        self._program, self._arrays = compiled_program(rig.library), rig.plants()[name]
        self._dt, self._done = float(rig.plan.loop[0].dt), time.monotonic()
        self._command = actuators_on(self._arrays.actuator)["safe"].copy()

    def read(self, values: Floats, ages: Floats) -> None:
        """Sensor readings now."""
        steps = min(int((time.monotonic() - self._done) / self._dt), round(LONGEST_STEP / self._dt))
        for _ in range(steps):
            self._program.move(self._arrays, self._command, self._dt)
        self._done = time.monotonic()
        self._program.sample(self._arrays, values)
        ages[:] = 0.0

    def write(self, values: Floats) -> None:
        """Without effect: the machine is not moved."""

    def make_safe(self) -> None:
        """Without effect: it is at its safe values."""

    def stand_in(self) -> Plant:
        """Itself: nothing is rehearsed where no loop runs."""
        return self

    def close(self) -> None:
        """Nothing to release."""


@dataclass(frozen=True)
class _ReadingHost:
    """Readings of simulated and replayed devices without a server: those of a plant at rest, the first samples."""

    rig: Rig

    def plant(self, device: str, config: Any, outputs: Sequence[str]) -> Plant:
        """The plant, whose actuators keep their safe values."""
        return _StillPlant(self.rig, device)

    def samples(self, device: str) -> SampleSource:
        """The recorded samples."""
        (replayed,) = (d for d in self.rig.devices if d.name == device)
        return read_samples(replayed, self.rig.file, float(self.rig.plan.loop[0].dt))


def _reader(rig: Rig, device: Device) -> Driver:
    """The driver of a device with its inputs alone."""
    return device.driver.create(_ReadingHost(rig), device.name, device.config, device.inputs, ())


@contextlib.contextmanager
def live(rig: Rig, only: str = "") -> Iterator[Source]:
    """The rig's rows as they arrive: from its server if one runs on this computer, otherwise from its devices.

    ``only``: the name of the only device that is needed. Raises HilserverError if the running server has another
    configuration.
    """
    with contextlib.ExitStack() as stack:
        memory = _running(rig)
        yield RunningServer(memory) if memory is not None else OpenDevices(rig, stack, only)


def _running(rig: Rig) -> LoopMemory | None:
    try:
        memory = LoopMemory.attach(find_segment(rig.settings.name))
    except SharedMemoryError:
        return None
    if memory.loop_heartbeat.age() > ALIVE:
        return None
    if (memory.info.layout, memory.ring.width) != (rig.layout.fingerprint, rig.layout.width):
        raise HilserverError(
            f'{rig.file}: a server of rig "{rig.settings.name}" runs with another configuration, '
            "so its channels differ. Restart it with this file, or name the file with which it runs."
        )
    return memory


def readings(rig: Rig, row: Floats) -> list[Reading]:
    """The measured channels of a row."""
    plan, found = rig.plan, []
    for number, (name, settings) in enumerate(rig.settings.channels.items()):
        slot = int(plan.channel[number].slot)
        if slot < 0:
            continue
        raw, age = float(row[plan.layout[0].raw + slot]), float(row[plan.layout[0].age + slot])
        raw = raw if math.isfinite(age) else math.nan
        stale = float(row[plan.layout[0].stale + number])
        trouble = settings.why_invalid(raw)
        if not trouble and stale - age > plan.channel[number].least_interval:  # more than jitter
            trouble = "it changes faster than valid_rate"
        trouble = trouble or _too_old(rig, row, number)
        value = float(row[plan.layout[0].channel + number]) if math.isfinite(stale) else math.nan
        found.append(Reading(name, raw, value, stale, trouble))
    return found


def settled(rig: Rig, source: Source) -> Floats:
    """A row with samples of all channels, or the last row if some samples do not arrive within a second."""
    deadline = time.monotonic() + SETTLING
    while True:
        row = source.row()
        if time.monotonic() > deadline or not any(reading.trouble for reading in readings(rig, row)):
            return row
        time.sleep(0.02)


def units_of_raw(rig: Rig) -> dict[str, str]:
    """Unit of the raw reading of every measured channel, as its device reports it."""
    found: dict[str, str] = {}
    for device in rig.devices:
        units = {info.name: info.unit for info in device.driver.channels(device.config)[0]}
        found |= {n: units[s.source] for n, s in rig.settings.channels.items() if s.source and s.device == device.name}
    return found


def _too_old(rig: Rig, row: Floats, channel: int) -> str:
    """The channel's age limit, if it is violated, in words."""
    for number, line in enumerate(rig.plan.limit):
        if line.channel == channel and line.watched == Watched.AGE:
            if row[rig.plan.layout[0].limit + number] > 0.0:
                return f"too old: {line.upper * 1e3:g} ms are allowed"
    return ""
