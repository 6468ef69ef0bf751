"""Common parts of drivers on byte streams: reconnection after failures, jobs in turn, writes on change."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from hilserver.driver import Bools, Driver, Floats, Pace
from hilserver.errors import DriverError
from hilserver_drivers.wire import Retry, Wire, WireError

ATTEMPTS = 3
"""Number of requests before the start fails, and before a safe value is reported as not written."""
PAUSE = 0.02
"""s between attempts to connect for the safe values."""


class Job:
    """A request that is sent in turn; ``retry``: times of retries after failures."""

    def __init__(self) -> None:
        self.retry = Retry()


class WriteJob(Job):
    """Outputs that are written together."""

    def __init__(self) -> None:
        super().__init__()
        self.written: bytes | None = None
        """The values in the device, as far as known."""
        self.written_at = float("-inf")
        self.tried: bytes | None = None
        """The values that were sent last, whether or not the device has taken them."""

    @property
    def slots(self) -> list[int]:
        """Numbers of its outputs."""
        raise NotImplementedError

    def data(self, values: Floats) -> bytes:
        """All outputs' values as they are written; the safe value for one that is not a number."""
        raise NotImplementedError

    def faults(self, values: Floats) -> Iterable[tuple[str, str]]:
        """Problems of values that can't be written unchanged: name and text."""
        raise NotImplementedError


AnyJob = TypeVar("AnyJob", bound=Job)


class WireDriver(Driver):
    """A device behind a byte stream. ``timeout`` (s) and ``refresh`` (s) are in its settings."""

    pace = Pace.SLOW

    def __init__(self, name: str, config: Any, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        super().__init__(name, config, inputs, outputs)
        self._reads: deque[Any] = deque()
        self._writes: deque[Any] = deque()
        self._safe = np.array([config.outputs[output].safe for output in outputs], dtype=np.float64)
        self._sampled = np.full(len(inputs), -np.inf)
        self._held = np.zeros(len(outputs), dtype=np.bool_)
        self._wire: Wire | None = None
        self._reconnect = Retry()

    @abstractmethod
    def _connected(self) -> None:
        """Reset the state: nothing of the previous connection is valid."""

    @abstractmethod
    def _put(self, job: Any, data: bytes, deadline: float) -> bool:
        """Write a job's data; returns whether the device has accepted it. A failure is counted."""

    def write(self, values: Floats) -> None:
        """Write values that have changed or are due again; safe values do not wait for the next retry."""
        for job in self._writes:
            if job.tried != job.data(values) == job.data(self._safe):
                job.retry.worked()
        self._write(values, self._deadline())

    def _write(self, values: Floats, deadline: float) -> None:
        for job in self._in_turn(self._writes, deadline):
            data = job.data(values)
            if data != job.written or time.monotonic() - job.written_at >= self.config.refresh:
                for fault in job.faults(values):
                    self._failed(*fault)
                self._remember(job, data, self._put(job, data, deadline))

    def holds(self, values: Floats) -> Bools:
        """The outputs whose values the device has acknowledged."""
        for job in self._writes:
            self._held[job.slots] = job.written == job.data(values)
        return self._held

    def make_safe(self) -> None:
        """Write all safe values, those of valves first, up to three times. Raises DriverError if this fails."""
        if self._wire is None:
            return
        waiting = deque(sorted(self._writes, key=lambda job: min(job.slots)))
        for _ in range(ATTEMPTS):
            self._put_safe(self._wire, waiting, self._deadline())
            if not waiting:
                return
        text = f"device {self.name}: no safe value for {'; '.join(map(str, waiting))}. {self.last_error}"
        raise DriverError(text)

    def _put_safe(self, wire: Wire, waiting: deque[Any], deadline: float) -> None:
        """Remove written outputs from those waiting; outputs that were not reached come first next time."""
        for _ in range(len(waiting)):
            if not wire.connected and not self._connect(wire, deadline):
                time.sleep(PAUSE)
            elif time.monotonic() < deadline:
                job = waiting.popleft()
                data = job.data(self._safe)
                self._remember(job, data, worked := self._put(job, data, deadline))
                if not worked:
                    waiting.append(job)

    def close(self) -> None:
        """Close the connection."""
        if self._wire is not None:
            self._wire.close()
        self._wire = None

    # --- for the drivers ----------------------------------------------------------------------------------------------

    def _begin(self, wire: Wire) -> None:
        """Connect for the first time. Raises WireError."""
        self._wire = wire
        self._sampled[:] = -np.inf
        self._reconnect.worked()
        wire.connect(self._deadline())
        self._start_anew()

    def _deadline(self) -> float:
        """Deadline of a call that begins now. Raises DriverError if the device is not open."""
        if self._wire is None:
            raise DriverError(f"device {self.name} is not open.")
        return time.monotonic() + float(self.config.timeout)

    def _in_turn(self, queue: deque[AnyJob], deadline: float) -> Iterator[AnyJob]:
        """Run all jobs, as far as time and connection allow; those that were not reached come first next time."""
        wire = self._wire
        assert wire is not None
        if not wire.connected and not (self._reconnect.due and self._connect(wire, deadline)):
            return
        for _ in range(len(queue)):
            if not wire.connected or not wire.ready or time.monotonic() >= deadline:
                return
            queue.rotate(-1)
            if queue[-1].retry.due:
                yield queue[-1]

    def _connect(self, wire: Wire, deadline: float) -> bool:
        try:
            wire.connect(deadline)
        except WireError as error:
            self._failed("no connection", str(error))
            self._reconnect.failed()
            return False
        self._start_anew()
        return True

    def _start_anew(self) -> None:
        for job in (*self._reads, *self._writes):
            job.retry.worked()
        self._forget()
        self._connected()

    def _lost(self, error: WireError) -> None:
        """The connection was lost."""
        self._failed("disconnected", str(error))
        self._reconnect.failed()
        self._forget()

    def _forget(self) -> None:
        """All outputs must be written again: the device may have been off."""
        for job in self._writes:
            job.written = None

    @staticmethod
    def _remember(job: WriteJob, data: bytes, worked: bool) -> None:
        job.written, job.written_at, job.tried = (data if worked else None), time.monotonic(), data

    def _failed(self, name: str, text: str) -> None:
        self.failed(name, f"device {self.name}: {text}")
