"""The cost of a rig's devices: reading and writing, timed separately."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from hilserver.bench.parts import median_time
from hilserver.driver import Driver, Pace, PlantDriver, is_hardware
from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.realtime.devices import DeviceSetup
from hilserver.realtime.process import make_driver
from hilserver.realtime.rig_setup import device_setups
from hilserver.realtime.segment import SharedMemoryError
from hilserver.realtime.segment_folder import find_segment, segment_path
from hilserver.realtime.shared import ALIVE, LoopMemory
from hilserver.realtime.simulated_device import DeviceMemory
from hilserver.realtime.worker import RemoteDevice, WorkerMemory
from hilserver.rig.plan import first_row
from hilserver.rig.rig import Rig

LOOP, WORKER = "loop", "I/O process"


@dataclass(frozen=True)
class DriverCost:
    """The cost of a device per tick, µs; ``where``: in the loop, or in its own I/O process."""

    device: str
    driver: str
    where: str
    read: float
    write: float


def driver_costs(rig: Rig, opened: bool = False, turns: int = 500, repeats: int = 7) -> list[DriverCost]:
    """Time reading and writing of each device of the rig: medians of repeated batches of ``turns``.

    For simulated and slow devices, the loop's access to shared memory is timed; this needs neither their processes nor
    hardware. ``opened``: also open, read and write the devices themselves; only safe values are written.
    Raises DriverError if a device can't be opened, HilserverError if a server of this rig is running.
    """
    if opened:
        _refuse_while_it_runs(rig)
    row = first_row(rig.layout, rig.plan, rig.packed)
    found = []
    for setup in device_setups(rig, {}):
        for where, device in _devices(setup, opened):
            with device as driver:
                raw, ages = np.zeros(len(setup.inputs)), np.zeros(len(setup.inputs))
                safe = row[list(setup.output_columns)]
                read = median_time(repeats, turns, _reading(driver, raw, ages))
                write = median_time(repeats, turns, _writing(driver, safe))
                found.append(DriverCost(setup.name, setup.driver, where, read, write))
    return found


def _refuse_while_it_runs(rig: Rig) -> None:
    """Two processes must not write to the same device."""
    with contextlib.suppress(SharedMemoryError):
        memory = LoopMemory.attach(find_segment(rig.settings.name))
        if memory.loop_heartbeat.age() < ALIVE:
            raise HilserverError(f"the server of {rig.settings.name} is running: stop it before opening its devices.")


def _reading(driver: Driver, raw: Floats, ages: Floats) -> Callable[[], object]:
    return lambda: driver.read(raw, ages)


def _writing(driver: Driver, safe: Floats) -> Callable[[], object]:
    return lambda: driver.write(safe)


Opened = contextlib.AbstractContextManager[Driver]


def _devices(setup: DeviceSetup, opened: bool) -> Iterator[tuple[str, Opened]]:
    """The accesses to a device that can be timed: where they take place, and how it is opened."""
    kind, _ = setup.configured()
    if issubclass(kind, PlantDriver):
        yield LOOP, _simulated(setup)
    elif kind.pace is Pace.SLOW:
        yield LOOP, _opened_stand_in(setup)
    if opened and is_hardware(kind):
        yield (WORKER if kind.pace is Pace.SLOW else LOOP), _opened_device(setup)


@contextlib.contextmanager
def _simulated(setup: DeviceSetup) -> Iterator[Driver]:
    """A simulated device whose process has published one reading."""
    path = segment_path(f"bench-{os.getpid()}-{setup.name}")
    memory = DeviceMemory.create(path, len(setup.inputs), len(setup.outputs))
    with contextlib.closing(memory):
        memory.readings.publish(np.zeros(memory.readings.width))
        driver = make_driver(replace(setup, segment=str(path)))
        with contextlib.closing(driver):
            driver.open()
            yield driver


@contextlib.contextmanager
def _opened_stand_in(setup: DeviceSetup) -> Iterator[Driver]:
    """The loop's side of a slow device whose worker has published one reading."""
    path = segment_path(f"bench-{os.getpid()}-{setup.name}")
    memory = WorkerMemory.create(path, len(setup.inputs), len(setup.outputs))
    with contextlib.closing(memory):
        memory.samples.publish(np.zeros(memory.samples.width))
        device = RemoteDevice(replace(setup, segment=str(path)))
        with contextlib.closing(device):
            device.open()
            yield device


@contextlib.contextmanager
def _opened_device(setup: DeviceSetup) -> Iterator[Driver]:
    """The opened device at its safe values, which it keeps."""
    kind, config = setup.configured()
    driver = kind(setup.name, config, setup.inputs, setup.outputs)
    with contextlib.closing(driver):
        driver.open()
        try:
            driver.make_safe()
            yield driver
        finally:
            driver.make_safe()
