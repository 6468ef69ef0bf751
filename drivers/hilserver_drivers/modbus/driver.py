"""The Modbus driver: channels grouped into requests, asked in turn; what fails is counted and tried again later."""

from __future__ import annotations

import functools
import math
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hilserver.driver import ChannelInfo, Driver, Floats, Pace
from hilserver.errors import DriverError
from hilserver_drivers.binary import decode, encode, limits
from hilserver_drivers.modbus.line import (
    BITS_PER_REGISTER,
    WRITTEN_AT_ONCE,
    BadAnswer,
    ExceptionAnswer,
    Line,
    Request,
    RtuLine,
    Table,
    TcpLine,
    read_request,
    write_request,
)
from hilserver_drivers.modbus.settings import Input, ModbusConfig, Output, WatchdogRegister, WordOrder
from hilserver_drivers.wire import Retry, WireError, library

WRONG_SETTINGS = (1, 2, 3)
"""Exceptions that trying again does not mend."""
ATTEMPTS = 3
"""Requests before a device is given up at the start, and before a safe value is said to be lost."""
PAUSE = 0.02
"""s between attempts to connect for the safe values."""


# --- what is asked for -----------------------------------------------------------------------------------------------


def in_order(data: bytes, order: WordOrder) -> bytes:
    """Bytes in the device's order from high word and high byte first, or back.

    >>> in_order(b"ABCD", "CDAB"), in_order(b"ABCD", "BADC"), in_order(b"ABCDEFGH", "DCBA")
    (b'CDAB', b'BADC', b'HGFEDCBA')
    """
    words = [data[k : k + 2] for k in range(0, len(data), 2)]
    if order in ("CDAB", "DCBA"):
        words.reverse()
    return b"".join(word[::-1] if order in ("BADC", "DCBA") else word for word in words)


@dataclass(frozen=True)
class Part:
    """One channel's part of a request: its place, ``offset`` registers (bits) behind the request's address."""

    name: str
    slot: int
    place: Any
    order: WordOrder
    offset: int = 0

    def value(self, data: bytes) -> float:
        """The raw value in the data of an answer."""
        if self.place.is_bit:
            return float(data[self.offset // 8] >> self.offset % 8 & 1)
        number = in_order(data[2 * self.offset : 2 * (self.offset + self.place.count)], self.order)
        if self.place.bit is not None:
            return float(int.from_bytes(number, "big") >> self.place.bit & 1)
        return decode(number, self.place.type)

    def data(self, value: float) -> bytes:
        """The raw value as data of a request to write it; the safe value where it is not a number."""
        value = value if math.isfinite(value) else self.place.safe
        if self.place.is_bit:
            return bytes([value >= 0.5])
        return in_order(encode(value, self.place.type), self.order)

    def fault(self, value: float) -> tuple[str, str] | None:
        """What is wrong with a value that is to be written, as name and text; None if nothing."""
        low, high = (0, 1) if self.place.is_bit else limits(self.place.type)
        if not math.isfinite(value):
            return "not a number", f"output {self.name} should become {value}: its safe value was written"
        if not low <= value <= high:
            text = f"output {self.name} should become {value:g}: only {low:g} to {high:g} can be written"
            return "value out of range", text
        return None


class Job:
    """Neighbouring places that are read, or written, with one request; ``retry``: when to ask again after failures."""

    def __init__(self, unit: int, table: Table, address: int, count: int = 1, parts: Sequence[Part] = ()) -> None:
        self.unit, self.table, self.address, self.count, self.parts = unit, table, address, count, parts
        self.retry = Retry()
        self.written: bytes | None = None
        """What the device has, as far as is known."""
        self.written_at = -math.inf

    @classmethod
    def of(cls, parts: Sequence[Part], config: ModbusConfig) -> Job:
        """One for all these parts, the first having the lowest address."""
        first = parts[0].place
        moved = [replace(part, offset=part.place.address - first.address) for part in parts]
        count = max(part.offset + part.place.count for part in moved)
        return cls(config.unit_of(first), first.table, first.address, count, moved)

    def __str__(self) -> str:
        last = f" to {self.address + self.count - 1}" if self.count > 1 else ""
        names = ", ".join(part.name for part in self.parts) or "watchdog_register"
        return f"{self.table} {self.address}{last} of unit {self.unit} ({names})"

    @functools.cached_property
    def request(self) -> Request:
        """To read all parts."""
        return read_request(self.unit, self.table, self.address, self.count)

    def data(self, values: Floats) -> bytes:
        """All parts' values as data of a request to write them."""
        return b"".join(part.data(float(values[part.slot])) for part in self.parts)


def jobs(parts: Sequence[Part], config: ModbusConfig, gap: int, size: int) -> Iterator[Job]:
    """Group channels that lie at most ``gap`` registers apart, ``size`` registers at most."""
    chosen: list[Part] = []
    for part in sorted(parts, key=lambda p: (config.unit_of(p.place), p.place.table, p.place.address)):
        scale = BITS_PER_REGISTER if part.place.is_bit else 1
        if chosen and not _belongs(part, chosen, config, gap * scale, size * scale):
            yield Job.of(chosen, config)
            chosen = []
        chosen.append(part)
    if chosen:
        yield Job.of(chosen, config)


def _belongs(part: Part, chosen: Sequence[Part], config: ModbusConfig, gap: int, size: int) -> bool:
    first, place = chosen[0].place, part.place
    end = max(p.place.address + p.place.count for p in chosen)
    same = (config.unit_of(first), first.table) == (config.unit_of(place), place.table)
    return same and place.address <= end + gap and place.address + place.count - first.address <= size


# --- the driver ------------------------------------------------------------------------------------------------------


class Modbus(Driver):
    """A Modbus device, or several on one serial line, polled by one I/O worker."""

    Config = ModbusConfig
    pace = Pace.SLOW

    def __init__(self, name: str, config: Any, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        super().__init__(name, config, inputs, outputs)
        c: ModbusConfig = config
        read = [Part(n, slot, c.inputs[n], c.order_of(c.inputs[n])) for slot, n in enumerate(inputs)]
        written = [Part(n, slot, c.outputs[n], c.order_of(c.outputs[n])) for slot, n in enumerate(outputs)]
        self._single = c.writes == "single"
        self._reads = deque(jobs(read, c, c.group.gap, c.group.size))
        self._writes = deque(jobs(written, c, 0, 1 if self._single else WRITTEN_AT_ONCE))
        self._safe = np.array([c.outputs[n].safe for n in outputs], dtype=np.float64)
        self._sampled = np.full(len(inputs), -np.inf)
        dog = c.watchdog_register
        self._dog = None if dog is None else Job(c.unit_of(dog), dog.table, dog.address)
        self._food = 0
        self._line: Line | None = None
        self._reconnect = Retry()

    @classmethod
    def channels(cls, config: ModbusConfig) -> tuple[Sequence[ChannelInfo], Sequence[ChannelInfo]]:
        """The configured inputs and outputs."""
        return [_info(*entry) for entry in config.inputs.items()], [_info(*entry) for entry in config.outputs.items()]

    def open(self) -> None:
        """Connect and read every input once. Raises DriverError where no unit answers, or one refuses an address."""
        self.close()
        library("pymodbus", self.name, "modbus")
        if self.config.rtu is not None:
            library("serial", self.name, "modbus")
            self._line = RtuLine(self.config.rtu, self.config.timeout)
        else:
            self._line = TcpLine(self.config.tcp)
        self._sampled[:] = -np.inf
        self._forget()
        try:
            self._line.connect(time.monotonic() + self.config.timeout)
            self._try_out(self._line)
        except (WireError, DriverError) as error:
            self.close()
            raise DriverError(f"device {self.name}: {error}") from None

    def _try_out(self, line: Line) -> None:
        refused, silent = [], {}
        for job in self._reads:
            try:
                if job.unit not in silent:
                    self._ask_patiently(line, job.request)
            except BadAnswer as error:
                if isinstance(error, ExceptionAnswer):
                    refused += [f"{job}: {error}"] if error.code in WRONG_SETTINGS else []
                else:
                    silent[job.unit] = f"{job}: {error}"
        if refused:
            hint = "check table and addresses (from 0); group.gap = 0 where registers in between do not exist"
            raise DriverError(f"{'; '.join(refused)}; {hint}")
        if silent and silent.keys() == {job.unit for job in self._reads}:
            raise DriverError("; ".join(silent.values()))

    def _ask_patiently(self, line: Line, request: Request) -> bytes:
        """Ask up to three times: one disturbed answer is no reason not to start."""
        for attempt in range(ATTEMPTS):
            deadline = time.monotonic() + self.config.timeout
            try:
                if not line.wire.connected:
                    line.connect(deadline)
                return line.ask(request, deadline)
            except BadAnswer as error:
                if isinstance(error, ExceptionAnswer) or attempt == ATTEMPTS - 1:
                    raise
            while not line.ready:
                time.sleep(0.001)
        raise AssertionError("unreachable")

    def read(self, values: Floats, ages: Floats) -> None:
        """Read all groups; NaN where there was no right answer."""
        line, deadline = self._opened(), time.monotonic() + self.config.timeout
        values[:] = np.nan
        for job in self._in_turn(line, self._reads, deadline):
            asked = time.monotonic()
            data = self._ask(line, job, job.request, deadline)
            if data is not None:
                self._take(job, data, asked, values)
        np.subtract(time.monotonic(), self._sampled, out=ages)

    def _take(self, job: Job, data: bytes, asked: float, values: Floats) -> None:
        for part in job.parts:
            value = part.value(data)
            if math.isfinite(value):
                values[part.slot], self._sampled[part.slot] = value, asked
            else:
                self._failed("not a number", f"input {part.name} is {value}")

    def write(self, values: Floats) -> None:
        """Write what changed or is due again; then feed the device's watchdog, if all outputs are as they should be."""
        line, deadline = self._opened(), time.monotonic() + self.config.timeout
        for job in self._in_turn(line, self._writes, deadline):
            data = job.data(values)
            if data != job.written or time.monotonic() - job.written_at >= self.config.refresh:
                for fault in filter(None, (part.fault(float(values[part.slot])) for part in job.parts)):
                    self._failed(*fault)
                self._put(line, job, data, deadline)
        if self._dog is not None and all(job.written is not None for job in self._writes):
            for dog in self._in_turn(line, deque([self._dog]), deadline):
                self._feed(line, dog, deadline)

    def make_safe(self) -> None:
        """Write all safe values, up to three times. Raises DriverError where that did not work."""
        if self._line is None:
            return
        waiting = deque(self._writes)
        for _ in range(ATTEMPTS):
            deadline = time.monotonic() + self.config.timeout
            self._put_safe(self._line, waiting, deadline)
            if not waiting:
                return
        raise DriverError(f"device {self.name}: no safe value for {'; '.join(map(str, waiting))}. {self.last_error}")

    def _put_safe(self, line: Line, waiting: deque[Job], deadline: float) -> None:
        """Take away from those waiting what could be written; those not reached come first the next time."""
        for _ in range(len(waiting)):
            if not line.wire.connected and not self._connect(line, deadline):
                time.sleep(PAUSE)
            elif time.monotonic() < deadline:
                job = waiting.popleft()
                if not self._put(line, job, job.data(self._safe), deadline):
                    waiting.append(job)

    def close(self) -> None:
        """Close the connection."""
        if self._line is not None:
            self._line.wire.close()
        self._line = None

    # --- one request --------------------------------------------------------------------------------------------------

    def _opened(self) -> Line:
        if self._line is None:
            raise DriverError(f"device {self.name} is not open.")
        return self._line

    def _in_turn(self, line: Line, queue: deque[Job], deadline: float) -> Iterator[Job]:
        """All jobs, as far as time and connection allow; the next time those go first that it did not suffice for."""
        if not line.wire.connected and not (self._reconnect.due and self._connect(line, deadline)):
            return
        for _ in range(len(queue)):
            if not line.wire.connected or not line.ready or time.monotonic() >= deadline:
                return
            queue.rotate(-1)
            if queue[-1].retry.due:
                yield queue[-1]

    def _connect(self, line: Line, deadline: float) -> bool:
        self._forget()
        try:
            line.connect(deadline)
        except WireError as error:
            self._failed("no connection", str(error))
            self._reconnect.failed()
            return False
        for job in (*self._reads, *self._writes, *filter(None, [self._dog])):
            job.retry.worked()
        return True

    def _ask(self, line: Line, job: Job, request: Request, deadline: float) -> bytes | None:
        """The data of the answer; None where there is none, which is counted."""
        try:
            data = line.ask(request, deadline)
        except BadAnswer as error:
            self._failed(error.name, f"{job}: {error}")
            job.retry.failed()
            if not isinstance(error, ExceptionAnswer):
                self._forget()  # a device that does not answer may have been started anew
        except WireError as error:
            self._failed("disconnected", str(error))
            self._reconnect.failed()
            self._forget()
        else:
            job.retry.worked()
            self._reconnect.worked()
            return data
        finally:
            for stray in line.stray:
                self._failed(stray.name, str(stray))
            line.stray.clear()
        return None

    def _put(self, line: Line, job: Job, data: bytes, deadline: float) -> bool:
        """Write ``data`` and remember whether the device has it."""
        request = write_request(job.unit, job.table, job.address, data, self._single)
        worked = self._ask(line, job, request, deadline) is not None
        job.written, job.written_at = (data if worked else None), time.monotonic()
        return worked

    def _feed(self, line: Line, dog: Job, deadline: float) -> None:
        settings: WatchdogRegister = self.config.watchdog_register
        if time.monotonic() - dog.written_at >= settings.period:
            self._food = (self._food + 1) % (2 if settings.mode == "toggle" else 0x10000)
            self._put(
                line, dog, bytes([self._food]) if dog.table == "coil" else self._food.to_bytes(2, "big"), deadline
            )

    def _forget(self) -> None:
        """All outputs are to be written anew."""
        for job in self._writes:
            job.written = None

    def _failed(self, name: str, text: str) -> None:
        self.failed(name, f"device {self.name}: {text}")


def _info(name: str, place: Input | Output) -> ChannelInfo:
    unit = "" if place.type is None or place.type.startswith("float") else "count"
    bit = "" if getattr(place, "bit", None) is None else f", bit {place.bit}"  # type: ignore[union-attr]
    return ChannelInfo(name, unit, " ".join(filter(None, (place.table, f"{place.address}{bit}", place.type))))
