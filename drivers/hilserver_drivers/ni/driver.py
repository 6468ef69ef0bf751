"""The NI-DAQmx driver.

Reads and writes on demand, with nidaqmx's low-overhead readers and writers on arrays made once; analog inputs are
sampled by the device's own clock instead if ``sample_clock`` is given and the device supports it (hardware-timed single
point). Outputs are always written at once, so that a safe value waits for no clock.

A separate thread searches for a disconnected device, because creating NI-DAQmx tasks takes tens of milliseconds.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from hilserver.driver import Bools, ChannelInfo, Driver, Floats, FoundDevice
from hilserver.errors import DriverError
from hilserver_drivers.ni.connection import InputGroup, NiConnection
from hilserver_drivers.ni.settings import UNITS, NiConfig
from hilserver_drivers.ni.system import (
    EXPIRED,
    LATE,
    TIMEOUT,
    Refused,
    check_names,
    doing,
    found_device,
    local_system,
    meaning_of,
    name_of,
    store_safe_values,
)

SEARCH_PAUSES = (0.1, 2.0)
"""Seconds between attempts to find a device again: the first pause and the longest."""
SAFE_TIMEOUT = 1.0
"""Seconds that make_safe waits for a disconnected device."""
SILENCE = 1.0
"""Seconds of timeouts after which the tasks are created again."""


class NiDaq(Driver):
    """An NI-DAQmx device."""

    Config = NiConfig

    def __init__(self, name: str, config: NiConfig, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        super().__init__(name, config, inputs, outputs)
        self._safe = [config.outputs[output].safe for output in outputs]
        self._sampled = np.full(len(inputs), -np.inf)
        self._connection: NiConnection | None = None
        self._is_open = False
        self._DaqError: type[Exception] | tuple[()] = ()
        self._lock = threading.Lock()
        self._over, self._wake, self._back = threading.Event(), threading.Event(), threading.Event()
        self._searcher: threading.Thread | None = None

    @classmethod
    def channels(cls, config: NiConfig) -> tuple[Sequence[ChannelInfo], Sequence[ChannelInfo]]:
        """One channel per entry of ``inputs`` and ``outputs``."""
        inputs, outputs = (
            [
                ChannelInfo(name, UNITS[channel.kind], f"{channel.kind}, {channel.physical(config.device)}")
                for name, channel in table.items()
            ]
            for table in (config.inputs, config.outputs)
        )
        return inputs, outputs

    @classmethod
    def safe_after(cls, config: NiConfig, output: str) -> float:
        """The time-out of the device's own watchdog, if that monitors the output."""
        watchdog = config.watchdog
        return float(watchdog.timeout) if watchdog is not None and output in watchdog.outputs else math.inf

    @classmethod
    def discover(cls) -> Sequence[FoundDevice]:
        """The NI devices that are plugged in, with analog inputs and outputs, and digital lines."""
        system = local_system("NI-DAQmx")
        import nidaqmx

        found = []
        for name in filter(None, system.devices.device_names):
            with suppress(nidaqmx.DaqError):  # known to NI-DAQmx, but not plugged in
                found.append(found_device(system.devices[name]))
        return found

    def open(self) -> None:
        """Build and start all tasks; the outputs get their safe values."""
        system = local_system(f"device {self.name}")
        import nidaqmx

        self._DaqError = nidaqmx.DaqError
        self._sampled.fill(-np.inf)
        if self.config.store_safe:
            store_safe_values(self, system)
        self._connection = self._connect(system, counting=True)
        self._over, self._is_open = threading.Event(), True

    def read(self, values: Floats, ages: Floats) -> None:
        """Read the present inputs; with ``sample_clock`` the analog ones at the device's next sample clock."""
        connection, now = self._live(), time.monotonic()
        values.fill(np.nan)
        if connection is not None:
            self._read_groups(connection, values, now)
        np.subtract(time.monotonic(), self._sampled, out=ages)

    def _read_groups(self, connection: NiConnection, values: Floats, now: float) -> None:
        for group in connection.groups:
            try:
                group.read(values, self.config.timeout)
                self._sampled[group.slots] = now
            except self._DaqError as error:
                if self._has_failed(connection, group, error):
                    values.fill(np.nan)
                    return

    def write(self, values: Floats) -> None:
        """Write all outputs at once. A value that is not a number is replaced by the safe one."""
        self._write(values.tolist(), refresh=False)

    def _write(self, values: Sequence[float], refresh: bool) -> None:
        connection = self._live()
        if not all(map(math.isfinite, values)):
            text = "a command is not a number; this output is set to its safe value"
            self.failed("not a number", f"device {self.name}: {text}.")
            values = [value if math.isfinite(value) else self._safe[slot] for slot, value in enumerate(values)]
        if connection is not None:
            try:
                connection.write(values, refresh)
            except self._DaqError as error:
                self._lose(connection, "outputs", error)
        if self._connection is None and not self.inputs:  # with inputs, their ages tell the loop
            raise DriverError(self.last_error)

    def holds(self, values: Floats) -> Bools | None:
        """No output while the device is lost: then nothing is written."""
        return None if self._connection is not None else np.zeros(len(values), dtype=np.bool_)

    def make_safe(self) -> None:
        """Write the safe values. Waits SAFE_TIMEOUT for a disconnected device, then raises DriverError."""
        if len(self.outputs) == 0:
            return
        with suppress(DriverError):
            self._write(self._safe, refresh=True)
        if self._connection is None:
            self._wake.set()
            if not self._back.wait(SAFE_TIMEOUT):  # the thread that finds the device writes its safe values
                raise DriverError(f"device {self.name} was not set to its safe values: {self.last_error}")

    def close(self) -> None:
        """Release the device; its outputs keep their values, and its watchdog is switched off."""
        self._over.set()
        self._wake.set()
        if self._searcher is not None:
            self._searcher.join(SAFE_TIMEOUT)
        with self._lock:
            connection, self._connection, self._is_open = self._connection, None, False
        if connection is not None:
            connection.close()

    # --- losing and finding the device ---

    def _live(self) -> NiConnection | None:
        if not self._is_open:
            raise DriverError(f"device {self.name} is not open.")
        return self._connection

    def _has_failed(self, connection: NiConnection, group: InputGroup, error: Any) -> bool:
        """Count an error of a read; returns whether the connection is lost."""
        silent_since = max(connection.made, self._sampled[group.slots].max())
        if error.error_code in LATE:
            if silent_since > connection.made:  # otherwise: clocks between the start of the task and its first read
                self._count(group.what, error)
            return False
        if error.error_code in TIMEOUT and time.monotonic() - silent_since < SILENCE:
            self._count(group.what, error)
            return False
        self._lose(connection, group.what, error)
        return True

    def _count(self, what: str, error: Any) -> None:
        self.failed(name_of(error.error_code), f"device {self.name}: {what}: {meaning_of(error)}.")

    def _lose(self, connection: NiConnection, what: str, error: Any) -> None:
        """Continue without the device and search for it in a separate thread."""
        self._count(what, error)
        self._connection = None
        self._back.clear()
        self._wake.clear()
        arguments = (connection, self._over)
        self._searcher = threading.Thread(target=self._search, args=arguments, name=f"search {self.name}", daemon=True)
        self._searcher.start()

    def _search(self, lost: NiConnection, over: threading.Event) -> None:
        """The body of the searching thread: runs until the device is back or the driver is closed."""
        with suppress(OSError):  # not with the loop's real-time priority, which a new thread inherits
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        lost.close()
        pause, longest = SEARCH_PAUSES
        while not over.is_set():
            try:
                connection = self._connect(local_system(f"device {self.name}"), counting=False)
            except Exception as error:  # after any error the next attempt may succeed
                self.last_error = str(error)
            else:
                self._take(connection, over)
                return
            self._wake.wait(pause)
            self._wake.clear()
            pause = min(2.0 * pause, longest)

    def _take(self, connection: NiConnection, over: threading.Event) -> None:
        """Give the loop a new connection, unless the driver was closed meanwhile."""
        counters = [name for name in self.inputs if self.config.inputs[name].terminal == "ctr"]
        if counters:
            text = (
                f"the count of {', '.join(counters)} was lost with the connection: restart the run, then reference it"
            )
            self.failed("count lost", f"device {self.name}: {text}.")
        with self._lock:
            if not over.is_set():
                self._connection = connection
                self._back.set()
                return
        connection.close()

    def _connect(self, system: Any, counting: bool) -> NiConnection:
        """Build all tasks. A device whose watchdog has expired is reset first: nothing else unlocks its outputs."""
        check_names(self, system)
        try:
            return NiConnection(self, self._safe, system, counting)
        except Refused as error:
            if error.code not in EXPIRED:
                raise
            self.failed("watchdog expired", str(error))
        with doing(self.name, "reset after its watchdog expired"):
            system.devices[self.config.device].reset_device()
        return NiConnection(self, self._safe, system, counting)
