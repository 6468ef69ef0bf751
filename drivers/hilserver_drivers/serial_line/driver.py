"""The serial driver: requests or receives messages, and sends commands; failures are counted and retried."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from hilserver.driver import ChannelInfo, Floats, FoundDevice
from hilserver.errors import DriverError
from hilserver_drivers.serial_line.messages import (
    FrameJob,
    FrameReader,
    LineJob,
    LineReader,
    Reader,
    ReplyReader,
    Sample,
)
from hilserver_drivers.serial_line.settings import SerialConfig, SerialInput, SerialOutput
from hilserver_drivers.wire import SerialWire, Wire, WireError, library
from hilserver_drivers.wire_driver import Job, WireDriver, WriteJob


class ReadJob(Job):
    """Inputs that come in one message; ``request`` is sent for it, empty if the device sends without a request."""

    def __init__(self, request: bytes, reader: Reader, names: Iterable[str]) -> None:
        super().__init__()
        self.request, self.reader, self.names = request, reader, tuple(names)

    def __str__(self) -> str:
        return f"the request for {', '.join(self.names)}"


class SerialLine(WireDriver):
    """A device at a serial port that sends lines of text or frames of bytes."""

    Config = SerialConfig

    def __init__(self, name: str, config: Any, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        super().__init__(name, config, inputs, outputs)
        self._values = np.full(len(inputs), np.nan)
        self._listening = any(config.request_of(entry) is None for entry in config.inputs)
        """Whether the device sends without a request."""
        if not self._listening and config.lines is not None and config.answer is not None:
            self._replies: LineReader | None = ReplyReader(config.lines, self._failed, config.answer)
        else:
            self._replies = None
        self._reads = deque(self._read_jobs())
        self._writes = deque(self._write_jobs())
        self._looked = self._heard = 0.0

    def _read_jobs(self) -> Iterator[ReadJob]:
        c: SerialConfig = self.config
        slots: dict[str | None, dict[int, tuple[str, SerialInput]]] = {}
        for slot, name in enumerate(self.inputs):
            slots.setdefault(c.request_of(name), {})[slot] = (name, c.inputs[name])
        if not slots and c.answer is not None and self._listening:
            slots[None] = {}  # only answers to commands are taken from its lines
        for text, chosen in slots.items():
            request = b"" if text is None else c.request_bytes(text)
            reader: Reader
            if c.frame is not None:
                reader = FrameReader(c.frame, chosen, self._failed)
            else:
                assert c.lines is not None
                reader = LineReader(c.lines, chosen, self._failed, c.answer)
            yield ReadJob(request, reader, (name for name, _ in chosen.values()))

    def _write_jobs(self) -> Iterator[WriteJob]:
        c: SerialConfig = self.config
        decimal = "." if c.lines is None else c.lines.decimal
        framed = {}
        for slot, name in enumerate(self.outputs):
            if c.outputs[name].format is not None:
                yield LineJob(name, slot, c.outputs[name], decimal)
            else:
                framed[name] = slot
        if framed and c.command is not None:
            yield FrameJob(c.command, {n: o for n, o in c.outputs.items() if o.byte is not None}, framed)

    @classmethod
    def channels(cls, config: SerialConfig) -> tuple[Sequence[ChannelInfo], Sequence[ChannelInfo]]:
        """The configured inputs and outputs."""
        return [_info(*entry) for entry in config.inputs.items()], [_info(*entry) for entry in config.outputs.items()]

    @classmethod
    def acknowledges(cls, config: SerialConfig) -> bool:
        """Whether it answers commands."""
        return config.answer is not None

    @classmethod
    def discover(cls) -> Sequence[FoundDevice]:
        """The serial ports of this computer; the attached devices are not known without communication."""
        ports = library("serial.tools.list_ports", "serial", "serial").comports(include_links=False)
        return [
            FoundDevice(
                port.name,
                "serial port" if port.description == "n/a" else port.description,
                {"driver": "serial", "port": port.device},
            )
            for port in sorted(ports, key=lambda port: port.device)
        ]

    def prepare(self) -> None:
        """Import pyserial."""
        library("serial", self.name, "serial")

    def open(self) -> None:
        """Open the port. Raises DriverError. A connected device is detected when it sends data."""
        self.close()
        library("serial", self.name, "serial")
        try:
            self._begin(SerialWire(self.config))
        except WireError as error:
            self.close()
            raise DriverError(f"device {self.name}: {error}") from None

    def _connected(self) -> None:
        for source in self._reads:
            source.reader.begin(in_the_middle=True)
        self._values[:] = np.nan
        self._looked = self._heard = time.monotonic()

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, values: Floats, ages: Floats) -> None:
        """Request all messages, or take those that have arrived; NaN if there is none.

        An unrequested message is valid for ``timeout``, because the device may send less often than this is
        called.
        """
        begin, deadline = time.monotonic(), self._deadline()
        wire = self._open_wire()
        for source in self._in_turn(self._reads, deadline):
            try:
                if source.request:
                    self._ask(wire, source, deadline)
                else:
                    self._listen(wire, source)
            except WireError as error:
                self._lost(error)
        now = time.monotonic()
        np.subtract(now, self._sampled, out=ages)
        holds = self.config.timeout if self._listening else now - begin
        values[:] = np.where((ages <= holds) & wire.connected, self._values, np.nan)

    def _ask(self, wire: Wire, source: ReadJob, deadline: float) -> None:
        self._drop(wire)
        failures = self.errors.total()
        source.reader.begin(in_the_middle=False)
        asked = time.monotonic()
        wire.send(source.request, deadline)
        while data := wire.receive(deadline):
            samples = list(source.reader.feed(data))
            for sample in samples:
                self._take(sample, asked)
            if any(samples):
                source.retry.worked()
                self._reconnect.worked()
                return
            if samples or time.monotonic() >= deadline:
                break
        if self.errors.total() == failures:
            self._failed("timeout", f"no answer to {source}")
        self._disturbed(wire, source)

    def _listen(self, wire: Wire, source: ReadJob) -> None:
        """Take the received data. The samples may be as old as the time since the last call."""
        looked, self._looked = self._looked, time.monotonic()
        for sample in source.reader.feed(wire.waiting()):
            self._take(sample, looked)
            self._heard = self._looked
            self._reconnect.worked()
        if self.inputs and self._looked - self._heard > self.config.timeout:
            self._failed("timeout", f"nothing received for {self._looked - self._heard:.2g} s")
            self._heard = self._looked
            self._forget()

    def _take(self, sample: Sample, when: float) -> None:
        for slot, value in sample:
            self._values[slot], self._sampled[slot] = value, when

    # --- writing ------------------------------------------------------------------------------------------------------

    def _put(self, job: WriteJob, data: bytes, deadline: float) -> bool:
        """Send a command, and wait for the answer if the device gives one."""
        wire = self._open_wire()
        try:
            if self.config.answer is None:
                wire.send(data, deadline)
                return True
            return self._put_and_wait(wire, job, data, deadline)
        except WireError as error:
            self._lost(error)
            return False

    def _put_and_wait(self, wire: Wire, job: WriteJob, data: bytes, deadline: float) -> bool:
        reader = self._reader_of_answers(wire, deadline)
        failures = self.errors.total()
        reader.answered = False
        wire.send(data, deadline)
        while not reader.answered:
            more = self._receive(wire, reader, deadline)
            refused = reader is self._replies and self.errors.total() > failures
            if not reader.answered and (refused or not more):
                if not refused:
                    self._failed("timeout", f'{job}: no answer "{self.config.answer.strip()}"')
                self._disturbed(wire, job)
                return False
        job.retry.worked()
        return True

    def _reader_of_answers(self, wire: Wire, deadline: float) -> LineReader:
        """Expect the answer, which may be among lines that the device sends without a request."""
        if self._replies is not None:
            self._drop(wire)
            self._replies.begin(in_the_middle=False)
            return self._replies
        reader: LineReader = self._reads[0].reader
        halfway = 0.5 * (time.monotonic() + deadline)
        while not reader.in_step and self._receive(wire, reader, halfway):
            pass  # just connected: the first data may be a partial line
        return reader

    def _receive(self, wire: Wire, reader: LineReader, deadline: float) -> bool:
        """Take the next data; False at the deadline."""
        data, now = wire.receive(deadline), time.monotonic()
        for sample in reader.feed(data):
            self._take(sample, now)
        return bool(data) and now < deadline

    # --- both ---------------------------------------------------------------------------------------------------------

    def _open_wire(self) -> Wire:
        assert self._wire is not None
        return self._wire

    def _drop(self, wire: Wire) -> None:
        """Drop data that arrived before the request, since they can't be its answer."""
        if dropped := wire.waiting().strip():
            self._failed("unexpected bytes", f"{dropped[:40]!r} arrived without a request")

    def _disturbed(self, wire: Wire, job: Job) -> None:
        """Let the line settle, so that a late answer is not mistaken for the answer to the next request."""
        wire.settle(self.config.timeout)
        job.retry.failed()
        self._forget()


def _info(name: str, value: SerialInput | SerialOutput) -> ChannelInfo:
    unit = "count" if value.type is not None and "int" in value.type else ""
    if value.byte is not None:
        return ChannelInfo(name, unit, f"byte {value.byte}, {value.type}")
    if isinstance(value, SerialOutput):
        return ChannelInfo(name, "", repr(value.format))
    place = value.column if value.column is not None else value.name or value.pattern
    return ChannelInfo(name, "", f"column {place}" if value.column is not None else str(place))
