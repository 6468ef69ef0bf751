"""The Modbus driver: channels are grouped into requests, sent in turn; failures are counted and retried later."""

from __future__ import annotations

import functools
import math
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hilserver.driver import ChannelInfo, Floats
from hilserver.errors import DriverError
from hilserver_drivers.binary import decode, encode, limits
from hilserver_drivers.modbus.line import (
    BITS_PER_REGISTER,
    WRITTEN_AT_ONCE,
    BadAnswer,
    ExceptionAnswer,
    ModbusLine,
    ModbusRequest,
    RtuLine,
    Table,
    TcpLine,
    read_request,
    write_request,
)
from hilserver_drivers.modbus.settings import ModbusConfig, ModbusInput, ModbusOutput, WatchdogRegister, WordOrder
from hilserver_drivers.wire import WireError, library
from hilserver_drivers.wire_driver import ATTEMPTS, WireDriver, WriteJob

WRONG_SETTINGS = (1, 2, 3)
"""Exceptions that a retry does not clear."""


# --- requests --------------------------------------------------------------------------------------------------------


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
    """One channel's part of a request: its place, ``offset`` registers (bits) after the request's address."""

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
        """The raw value as data of a request to write it; the safe value if it is not a number."""
        value = value if math.isfinite(value) else self.place.safe
        if self.place.is_bit:
            return bytes([value >= 0.5])
        return in_order(encode(value, self.place.type), self.order)

    def fault(self, value: float) -> tuple[str, str] | None:
        """The problem of a value that is to be written, as name and text; None if there is none."""
        low, high = (0, 1) if self.place.is_bit else limits(self.place.type)
        if not math.isfinite(value):
            return "not a number", f"output {self.name} has the command {value}: its safe value was written"
        if not low <= value <= high:
            text = f"output {self.name} has the command {value:g}: only {low:g} to {high:g} can be written"
            return "value out of range", text
        return None


class Span(WriteJob):
    """Neighbouring places that are read, or written, with one request."""

    def __init__(self, unit: int, table: Table, address: int, count: int = 1, parts: Sequence[Part] = ()) -> None:
        super().__init__()
        self.unit, self.table, self.address, self.count, self.parts = unit, table, address, count, parts

    @classmethod
    def of(cls, parts: Sequence[Part], config: ModbusConfig) -> Span:
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
    def request(self) -> ModbusRequest:
        """To read all parts."""
        return read_request(self.unit, self.table, self.address, self.count)

    @functools.cached_property
    def slots(self) -> list[int]:
        """Numbers of its channels."""
        return [part.slot for part in self.parts]

    def data(self, values: Floats) -> bytes:
        """All parts' values as data of a request to write them."""
        return b"".join(part.data(float(values[part.slot])) for part in self.parts)

    def faults(self, values: Floats) -> Iterable[tuple[str, str]]:
        """Problems of values that can't be written unchanged."""
        return filter(None, (part.fault(float(values[part.slot])) for part in self.parts))


def spans(
    parts: Sequence[Part], config: ModbusConfig, gap: int, size: int, *, in_sequence: bool = False
) -> Iterator[Span]:
    """Group channels that are at most ``gap`` registers apart, at most ``size`` registers per group.

    ``in_sequence``: only those that follow each other among the channels, so that groups can be kept in their order.
    """
    chosen: list[Part] = []
    for part in sorted(parts, key=lambda p: (config.unit_of(p.place), p.place.table, p.place.address)):
        scale = BITS_PER_REGISTER if part.place.is_bit else 1
        follows = not in_sequence or any(abs(part.slot - other.slot) == 1 for other in chosen)
        if chosen and not (follows and _belongs(part, chosen, config, gap * scale, size * scale)):
            yield Span.of(chosen, config)
            chosen = []
        chosen.append(part)
    if chosen:
        yield Span.of(chosen, config)


def _belongs(part: Part, chosen: Sequence[Part], config: ModbusConfig, gap: int, size: int) -> bool:
    first, place = chosen[0].place, part.place
    end = max(p.place.address + p.place.count for p in chosen)
    same = (config.unit_of(first), first.table) == (config.unit_of(place), place.table)
    return same and place.address <= end + gap and place.address + place.count - first.address <= size


# --- the driver ------------------------------------------------------------------------------------------------------


class Modbus(WireDriver):
    """A Modbus device, or several on one serial line, polled by one I/O process."""

    Config = ModbusConfig

    def __init__(self, name: str, config: Any, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        super().__init__(name, config, inputs, outputs)
        c: ModbusConfig = config
        read = [Part(n, slot, c.inputs[n], c.order_of(c.inputs[n])) for slot, n in enumerate(inputs)]
        written = [Part(n, slot, c.outputs[n], c.order_of(c.outputs[n])) for slot, n in enumerate(outputs)]
        self._single = c.writes == "single"
        self._reads = deque(spans(read, c, c.group.gap, c.group.size))
        size = 1 if self._single else WRITTEN_AT_ONCE
        self._writes = deque(spans(written, c, 0, size, in_sequence=True))  # in order: valve, block valve, pump
        register = c.watchdog_register
        spans_of_it = [] if register is None else [Span(c.unit_of(register), register.table, register.address)]
        self._watchdog: deque[Span] = deque(spans_of_it)
        self._watchdog_value = 0
        self._line: ModbusLine

    @classmethod
    def channels(cls, config: ModbusConfig) -> tuple[Sequence[ChannelInfo], Sequence[ChannelInfo]]:
        """The configured inputs and outputs."""
        return [_info(*entry) for entry in config.inputs.items()], [_info(*entry) for entry in config.outputs.items()]

    def prepare(self) -> None:
        """Import pymodbus, and make the requests to read, which imports the parts that are needed."""
        library("pymodbus", self.name, "modbus")
        for span in self._reads:
            _ = span.request

    def open(self) -> None:
        """Connect and read every input once. Raises DriverError if no unit answers, or one refuses an address."""
        self.close()
        library("pymodbus", self.name, "modbus")
        if self.config.rtu is not None:
            library("serial", self.name, "modbus")
            self._line = RtuLine(self.config.rtu, self.config.timeout)
        else:
            self._line = TcpLine(self.config.tcp)
        try:
            self._begin(self._line.wire)
            self._try_out()
        except (WireError, DriverError) as error:
            self.close()
            raise DriverError(f"device {self.name}: {error}") from None

    def _connected(self) -> None:
        self._line.start_anew()
        for watchdog in self._watchdog:
            watchdog.retry.worked()

    def _try_out(self) -> None:
        refused, silent = [], {}
        for span in self._reads:
            try:
                if span.unit not in silent:
                    self._ask_patiently(span.request)
            except BadAnswer as error:
                if isinstance(error, ExceptionAnswer):
                    refused += [f"{span}: {error}"] if error.code in WRONG_SETTINGS else []
                else:
                    silent[span.unit] = f"{span}: {error}"
        if refused:
            hint = "check table and addresses (from 0); group.gap = 0 if registers in between do not exist"
            raise DriverError(f"{'; '.join(refused)}; {hint}")
        if silent and silent.keys() == {span.unit for span in self._reads}:
            raise DriverError("; ".join(silent.values()))

    def _ask_patiently(self, request: ModbusRequest) -> None:
        """Send a request up to three times, so that a single corrupted answer does not prevent the start."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                if not self._line.wire.connected:
                    self._line.wire.connect(self._deadline())
                    self._line.start_anew()
                self._line.ask(request, self._deadline())
                return
            except BadAnswer as error:
                if isinstance(error, ExceptionAnswer) or attempt == ATTEMPTS:
                    raise
            while not self._line.wire.ready:
                time.sleep(0.001)

    def read(self, values: Floats, ages: Floats) -> None:
        """Read all groups; NaN without a valid answer."""
        deadline = self._deadline()
        values[:] = np.nan
        for span in self._in_turn(self._reads, deadline):
            asked = time.monotonic()
            data = self._ask(span, span.request, deadline)
            if data is not None:
                self._take(span, data, asked, values)
        np.subtract(time.monotonic(), self._sampled, out=ages)

    def _take(self, span: Span, data: bytes, asked: float, values: Floats) -> None:
        for part in span.parts:
            value = part.value(data)
            if math.isfinite(value):
                values[part.slot], self._sampled[part.slot] = value, asked
            else:
                self._failed("not a number", f"input {part.name} is {value}")

    def _write(self, values: Floats, deadline: float) -> None:
        """Write, then trigger the device's watchdog if all outputs have their values."""
        super()._write(values, deadline)
        if all(span.written is not None for span in self._writes):
            for watchdog in self._in_turn(self._watchdog, deadline):
                self._feed(watchdog, deadline)

    def _feed(self, watchdog: Span, deadline: float) -> None:
        settings: WatchdogRegister = self.config.watchdog_register
        if time.monotonic() - watchdog.written_at >= settings.period:
            value = self._watchdog_value = (self._watchdog_value + 1) % (2 if settings.mode == "toggle" else 0x10000)
            data = bytes([value]) if watchdog.table == "coil" else value.to_bytes(2, "big")
            self._remember(watchdog, data, self._send(watchdog, data, deadline))

    def _put(self, job: Span, data: bytes, deadline: float) -> bool:
        return self._send(job, data, deadline) and (not self.config.read_back or self._has(job, data, deadline))

    def _send(self, job: Span, data: bytes, deadline: float) -> bool:
        """Write these values; returns whether the device has acknowledged them."""
        request = write_request(job.unit, job.table, job.address, data, self._single)
        return self._ask(job, request, deadline) is not None

    def _has(self, job: Span, data: bytes, deadline: float) -> bool:
        """Read these outputs back; returns whether the device has the values."""
        found = self._ask(job, job.request, deadline)
        if found is not None and job.table == "coil":
            found = bytes(found[k // 8] >> k % 8 & 1 for k in range(job.count))
        if found is not None and found != data:
            self._failed("not applied", f"{job}: the device acknowledged the value, but has not applied it")
        return found == data

    def _ask(self, span: Span, request: ModbusRequest, deadline: float) -> bytes | None:
        """The data of the answer; None if there is none, which is counted as a failure."""
        try:
            data = self._line.ask(request, deadline)
        except BadAnswer as error:
            self._failed(error.name, f"{span}: {error}")
            span.retry.failed()
            if not isinstance(error, ExceptionAnswer):
                self._forget()
        except WireError as error:
            self._lost(error)
        else:
            span.retry.worked()
            self._reconnect.worked()
            return data
        finally:
            for stray in self._line.stray:
                self._failed(stray.name, str(stray))
            self._line.stray.clear()
        return None


def _info(name: str, place: ModbusInput | ModbusOutput) -> ChannelInfo:
    unit = "" if place.type is None or place.type.startswith("float") else "count"
    bit = "" if getattr(place, "bit", None) is None else f", bit {place.bit}"  # type: ignore[union-attr]
    return ChannelInfo(name, unit, " ".join(filter(None, (place.table, f"{place.address}{bit}", place.type))))
