"""Extraction of samples from the bytes of a serial device, and messages from commands.

A line is checked for: completeness (data before the first end of line is dropped), printable ASCII, length, number of
columns, numbers in their places, and the checksum if it has one. A frame is checked for: start, length, check value. A
failed check is counted under its name, and there is no sample.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from hilserver.driver import Floats
from hilserver_drivers.binary import decode, encode, limits, size_of
from hilserver_drivers.serial_line.checks import check_size, check_value
from hilserver_drivers.serial_line.settings import Frame, Lines, SerialInput, SerialOutput, as_line
from hilserver_drivers.wire_driver import WriteJob

Sample = list[tuple[int, float]]
"""Slots of inputs and their values in one message."""
Failed = Callable[[str, str], None]
"""Takes the name and the text of a failure."""


class Reader(ABC):
    """Takes bytes as they arrive, in any pieces, and returns a sample for each message."""

    def __init__(self, slots: Mapping[int, tuple[str, SerialInput]], failed: Failed) -> None:
        self._slots, self._failed = slots, failed
        self._buffer = b""

    @abstractmethod
    def begin(self, in_the_middle: bool) -> None:
        """Discard the received data. ``in_the_middle``: the next byte may be anywhere within a message."""

    @abstractmethod
    def feed(self, data: bytes) -> Iterator[Sample]:
        """The samples in newly received data; an empty one for a message that is complete but can't be used."""

    def _taken(self, slot: int, value: float) -> Sample:
        """A value, if it is a number."""
        if math.isfinite(value):
            return [(slot, value)]
        self._failed("not a number", f"input {self._slots[slot][0]} is {value}")
        return []


# --- lines -----------------------------------------------------------------------------------------------------------

PRINTABLE = re.compile(rb"[\t\x20-\x7e]*")
NMEA = re.compile(r"\$([^$*]*)\*([0-9A-Fa-f]{2})")


class LineReader(Reader):
    """Lines of text."""

    def __init__(
        self, form: Lines, slots: Mapping[int, tuple[str, SerialInput]], failed: Failed, answer: str | None = None
    ) -> None:
        super().__init__(slots, failed)
        self._form = form
        self._end = form.end.encode("latin-1")
        self._separator = None if form.separator == " " else form.separator
        self._answer = None if answer is None else answer.strip()
        self.answered = False
        """Whether the answer to a command has come."""
        decimal = re.escape(form.decimal)
        self._number = re.compile(rf"[+-]?(?:\d+(?:{decimal}\d*)?|{decimal}\d+)(?:[eE][+-]?\d+)?", re.ASCII)
        self._patterns = {slot: re.compile(i.pattern) for slot, (_, i) in slots.items() if i.pattern is not None}
        self._last_column = max((i.column for _, i in slots.values() if i.column is not None), default=-1)
        self._skipping = False

    @property
    def in_step(self) -> bool:
        """Whether the next line will be whole."""
        return not self._skipping

    def begin(self, in_the_middle: bool) -> None:
        """A line whose beginning was not received is dropped."""
        self._buffer, self._skipping = b"", in_the_middle

    def feed(self, data: bytes) -> Iterator[Sample]:
        """A sample for each line."""
        *lines, self._buffer = (self._buffer + data).split(self._end)
        for line in lines:
            if self._skipping:
                self._skipping = False
            elif len(line) > self._form.longest:
                self._too_long()
            else:
                sample = self._read(line)
                if sample is not None:
                    yield sample
        if len(self._buffer) > self._form.longest + len(self._end):
            if not self._skipping:
                self._too_long()
            self._buffer, self._skipping = self._buffer[-len(self._end) :], True

    def _too_long(self) -> None:
        self._failed("line too long", f"a line has more than {self._form.longest} characters")

    def _read(self, line: bytes) -> Sample | None:
        """The sample in a line; None for an empty line and for the answer to a command."""
        if not PRINTABLE.fullmatch(line.strip(b"\r\n")):
            self._failed("noise", f"{line!r} is not text")
            return []
        text = line.decode("ascii").strip(" \r\n")
        if text and text == self._answer:
            self.answered = True
            return None
        if not text:
            return None
        if self._form.checksum == "nmea":
            return self._checked(text)
        return self._sample(text)

    def _checked(self, text: str) -> Sample:
        found = NMEA.fullmatch(text)
        if found is None or check_value("xor8", found[1].encode("ascii")) != int(found[2], 16):
            self._failed("checksum", f'"{text}" has no checksum, or the wrong one')
            return []
        return self._sample(found[1])

    def _sample(self, text: str) -> Sample:
        if not self._slots:
            return []
        columns = [part.strip() for part in text.split(self._separator)]
        expected = self._form.columns or self._last_column + 1
        if len(columns) < expected or self._form.columns not in (None, len(columns)):
            self._failed("wrong number of columns", f'"{text}" has {len(columns)} columns instead of {expected}')
            return []
        sample, found = [], False
        for slot, (name, entry) in self._slots.items():
            number = self._find(slot, entry, text, columns)
            if number is None:
                continue
            found = True
            if self._number.fullmatch(number):
                sample += self._taken(slot, float(number.replace(self._form.decimal, ".")))
            else:
                self._failed("not a number", f'input {name} is "{number}"')
        if not found:
            self._failed("unknown line", f'no input matches "{text}"')
        return sample

    def _find(self, slot: int, entry: SerialInput, text: str, columns: Sequence[str]) -> str | None:
        """The text of an input's number; None if the line does not contain it."""
        if entry.column is not None:
            return columns[entry.column]
        if entry.pattern is not None:
            found = self._patterns[slot].search(text)
            return None if found is None or found[1] is None else found[1].strip()
        for column in columns:
            name, mark, number = column.replace("=", ":", 1).partition(":")
            if mark and name.strip() == entry.name:
                return number.strip()
        return None


class ReplyReader(LineReader):
    """Waits for the answer to a command: any other line is a wrong answer."""

    def __init__(self, form: Lines, failed: Failed, answer: str) -> None:
        super().__init__(form, {}, failed, answer)

    def _sample(self, text: str) -> Sample:
        self._failed("wrong answer", f'"{text}" was received instead of "{self._answer}"')
        return []


class LineJob(WriteJob):
    """An output that is written as a line."""

    def __init__(self, name: str, slot: int, output: SerialOutput, decimal: str) -> None:
        super().__init__()
        self._name, self._slot, self._output, self._decimal = name, slot, output, decimal

    def __str__(self) -> str:
        return f"output {self._name}"

    @property
    def slots(self) -> list[int]:
        """The number of its output."""
        return [self._slot]

    def data(self, values: Floats) -> bytes:
        """The line."""
        value = float(values[self._slot])
        text = str(self._output.format)
        return as_line(text, value if math.isfinite(value) else self._output.safe, self._decimal).encode("latin-1")

    def faults(self, values: Floats) -> Iterable[tuple[str, str]]:
        """Problems of values that can't be written unchanged."""
        return _faults(self._name, float(values[self._slot]), -math.inf, math.inf)


def _faults(name: str, value: float, low: float, high: float) -> Iterator[tuple[str, str]]:
    if not math.isfinite(value):
        yield "not a number", f"output {name} has the command {value}: its safe value was written"
    elif not low <= value <= high:
        yield "value out of range", f"output {name} has the command {value:g}: only {low:g} to {high:g} can be written"


# --- frames ----------------------------------------------------------------------------------------------------------


class FrameReader(Reader):
    """Frames of bytes. After a corrupted one, the search for the next starts one byte after its beginning."""

    def __init__(self, form: Frame, slots: Mapping[int, tuple[str, SerialInput]], failed: Failed) -> None:
        super().__init__(slots, failed)
        self._form = form
        self._start, self._head = bytes.fromhex(form.start), form.head
        self._lost = False

    def begin(self, in_the_middle: bool) -> None:
        """Bytes before the first frame are not a failure if they may be the rest of an earlier frame."""
        self._buffer, self._lost = b"", in_the_middle

    def feed(self, data: bytes) -> Iterator[Sample]:
        """A sample for each frame."""
        self._buffer += data
        while self._find_start():
            head = self._buffer[: len(self._head)]
            if not self._head.startswith(head):
                self._wrong("wrong length", f"a frame announces another length ({head.hex(' ')})")
            elif len(self._buffer) < self._form.total:
                return
            elif not self._is_right(frame := self._buffer[: self._form.total]):
                self._wrong("crc" if self._form.check.startswith("crc") else "checksum", "a frame is corrupted")
            else:
                self._buffer, self._lost = self._buffer[self._form.total :], False
                yield self._sample(frame[len(self._head) :])

    def _find_start(self) -> bool:
        """Drop the bytes before the next start, or before its possible beginning; False if nothing is left."""
        at = self._buffer.find(self._start)
        if at < 0:
            may_be = (n for n in range(len(self._start) - 1, 0, -1) if self._buffer.endswith(self._start[:n]))
            at = len(self._buffer) - next(may_be, 0)
        if at and not self._lost:
            self._lost = True
            self._failed("unexpected bytes", f"{self._buffer[:at].hex(' ', -1)[:60]} arrived between two frames")
        self._buffer = self._buffer[at:]
        return len(self._buffer) >= max(len(self._start), 1)

    def _wrong(self, name: str, text: str) -> None:
        self._failed(name, text)
        self._buffer, self._lost = self._buffer[1:], True

    def _is_right(self, frame: bytes) -> bool:
        return frame == frame[: len(frame) - check_size(self._form.check)] + _check_bytes(self._form, frame)

    def _sample(self, payload: bytes) -> Sample:
        sample: Sample = []
        for slot, (_, entry) in self._slots.items():
            assert entry.byte is not None
            assert entry.type is not None
            data = payload[entry.byte : entry.byte + size_of(entry.type)]
            if entry.bit is not None:
                sample.append((slot, float(int.from_bytes(data, self._form.order) >> entry.bit & 1)))
            else:
                sample += self._taken(slot, decode(data, entry.type, self._form.order))
        return sample


def _check_bytes(form: Frame, frame: bytes) -> bytes:
    """The check value of a frame (whose own is left out) as its last bytes."""
    size = check_size(form.check)
    covered = frame[form.check_from : form.total - size]
    return check_value(form.check, covered).to_bytes(size, form.check_order or form.order) if size else b""


class FrameJob(WriteJob):
    """All outputs that are written in one frame; those not in use have their safe values there."""

    def __init__(self, form: Frame, outputs: Mapping[str, SerialOutput], slots: Mapping[str, int]) -> None:
        super().__init__()
        self._form, self._outputs, self._slots = form, outputs, slots

    def __str__(self) -> str:
        return "outputs " + ", ".join(self._slots)

    @property
    def slots(self) -> list[int]:
        """Numbers of the outputs in use."""
        return [*self._slots.values()]

    def data(self, values: Floats) -> bytes:
        """The frame."""
        payload = bytearray(self._form.size)
        for name, output in self._outputs.items():
            assert output.byte is not None
            assert output.type is not None
            value = float(values[self._slots[name]]) if name in self._slots else output.safe
            number = encode(value if math.isfinite(value) else output.safe, output.type, self._form.order)
            payload[output.byte : output.byte + len(number)] = number
        frame = self._form.head + payload
        return frame + _check_bytes(self._form, frame)

    def faults(self, values: Floats) -> Iterable[tuple[str, str]]:
        """Problems of values that can't be written unchanged."""
        for name, slot in self._slots.items():
            kind = self._outputs[name].type
            assert kind is not None
            yield from _faults(name, float(values[slot]), *limits(kind))
