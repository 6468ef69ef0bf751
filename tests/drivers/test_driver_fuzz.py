"""10 000 damaged answers of each kind: nothing crashes, only what can be checked is believed, every failure has a name.

The bytes come from a wire without a device, so that a time-out takes no time. What may be believed says a judge that is
written here anew, from the specification: of Modbus TCP, header, function and byte count; of Modbus RTU, frames and
lines with a check value, also that (computed bit by bit); of lines without one, their form.
"""

from __future__ import annotations

import functools
import re
import struct
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hilserver.driver import Driver
from hilserver_drivers.modbus import Modbus
from hilserver_drivers.serial_line import SerialLine
from hilserver_drivers.serial_line.messages import FrameReader
from hilserver_drivers.serial_line.settings import Frame, SerialInput
from hilserver_drivers.wire import Retry, Wire

pytestmark = pytest.mark.slow

COUNT = 10_000
PATIENT = {"timeout": "10 s", "hang_time": "60 s"}
"""Of a call: a busy machine, which interrupts it, must not look like a silent device."""
PAGE = Path(__file__).parents[2] / "docs" / "modbus-and-serial.md"


class FuzzedWire(Wire):
    """Answers each request with what ``answer`` makes of it, in pieces; then nothing comes, at once."""

    def __init__(self, answer: Callable[[bytes], bytes], random: np.random.Generator) -> None:
        super().__init__("nowhere")
        self._answer, self._random = answer, random
        self._pieces: deque[bytes] = deque()

    def connect(self, deadline: float) -> None:
        self._pieces.clear()
        self._fd = 0

    def close(self) -> None:
        self._pieces.clear()
        self._fd = -1

    def settle(self, seconds: float) -> None:
        """Time does not matter here."""

    def send(self, data: bytes, deadline: float) -> None:
        self.say(self._answer(data))

    def say(self, data: bytes) -> None:
        while data:
            size = int(self._random.integers(1, len(data) + 1))
            self._pieces.append(data[:size])
            data = data[size:]

    def receive(self, deadline: float) -> bytes:
        return self._pieces.popleft() if self._pieces else b""


class Damage:
    """Damages messages, in nine of ten cases, in one of many ways."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self._earlier = [b"?"]
        self._ways = (
            self._flip,
            self._change,
            self._cut,
            self._lose,
            self._insert,
            self._swap,
            self._repeat,
            self._mix,
        )

    def __call__(self, message: bytes) -> bytes:
        self._earlier = [*self._earlier[-9:], message]
        if self.random.random() < 0.1:
            return message
        for _ in range(int(self.random.integers(1, 4))):
            message = self._ways[self._index(len(self._ways))](message) or b"\0"
        return message if self.random.random() < 0.98 else b""

    def _index(self, size: int) -> int:
        return int(self.random.integers(size))

    def _flip(self, m: bytes) -> bytes:
        at = self._index(len(m))
        return m[:at] + bytes([m[at] ^ 1 << self._index(8)]) + m[at + 1 :]

    def _change(self, m: bytes) -> bytes:
        at = self._index(len(m))
        return m[:at] + self.random.bytes(1) + m[at + 1 :]

    def _cut(self, m: bytes) -> bytes:
        return m[: self._index(len(m) + 1)]

    def _lose(self, m: bytes) -> bytes:
        at = self._index(len(m))
        return m[:at] + m[at + 1 + self._index(3) :]

    def _insert(self, m: bytes) -> bytes:
        at = self._index(len(m) + 1)
        return m[:at] + self.random.bytes(1 + self._index(4)) + m[at:]

    def _swap(self, m: bytes) -> bytes:
        at = self._index(len(m))
        return m[:at] + m[at : at + 2][::-1] + m[at + 2 :]

    def _repeat(self, m: bytes) -> bytes:
        return m + m[self._index(len(m)) :]

    def _mix(self, m: bytes) -> bytes:
        """With an earlier message before, behind or instead."""
        earlier = self._earlier[self._index(len(self._earlier))]
        return (earlier + m, m + earlier, earlier)[self._index(3)]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Retry, "FIRST", 0.0)
    monkeypatch.setattr(Retry, "LONGEST", 0.0)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)


@functools.cache
def documented() -> set[str]:
    """The names of failures in the table of the page."""
    return set(re.findall(r"`([^`]+)`", "".join(re.findall(r"^\| (`[^|]*) \|", PAGE.read_text(), re.M))))


class Reading:
    """Reads a driver again and again, and keeps what it counted."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._values, self._ages = np.zeros(len(driver.inputs)), np.zeros(len(driver.inputs))
        self.before: Counter[str] = Counter()

    def __call__(self, asked: bool = True) -> list[float | None]:
        """The values, None for those missing, which was counted if they were asked for; all names are documented."""
        before = self.driver.errors.copy()
        self.driver.read(self._values, self._ages)
        found = [None if np.isnan(value) else float(value) for value in self._values]
        new = self.driver.errors - before
        assert None not in found or new or not asked, "a missing value was not counted"
        assert all(name in documented() or name.startswith("exception ") for name in new), new
        assert not new or "io" in self.driver.last_error
        return found


# --- Modbus ----------------------------------------------------------------------------------------------------------

INPUTS = {"x": {"table": "holding", "address": 0, "type": "uint32"}}


def crc16(data: bytes) -> int:
    """Of Modbus, bit by bit as in the specification."""
    crc = 0xFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ 0xA001 if crc & 1 else crc >> 1
    return crc


def modbus(line: dict[str, Any], wire: Wire, monkeypatch: pytest.MonkeyPatch) -> Reading:
    """A driver with one input, opened."""
    for kind in ("TcpWire", "SerialWire"):
        monkeypatch.setattr(f"hilserver_drivers.modbus.line.{kind}", lambda settings: wire)
    settings = {**PATIENT, **line, "inputs": INPUTS}
    driver = Modbus("io", Modbus.Config.model_validate(settings), ["x"], [])
    driver.open()
    return Reading(driver)


class TcpDevice:
    """Answers each request with another value, damaged, and says what may be believed of it."""

    def __init__(self, seed: int) -> None:
        self._damage = Damage(seed)
        self.wire = FuzzedWire(self.answer, self._damage.random)
        self.value, self.good = 0, True
        self._stream = b""

    def answer(self, request: bytes) -> bytes:
        assert request[2:] == bytes.fromhex("0000 0006 01 03 0000 0002")
        self._head = request[:2] + bytes.fromhex("0000 0007 01 03 04")
        self.value += 1
        answer = self._head + struct.pack(">I", self.value)
        answer = answer if self.good else self._damage(answer)
        self._stream += answer
        return answer

    def may_be_believed(self) -> int | None:
        """The value of the first frame with the right transaction, if all that can be checked of it is right."""
        while len(self._stream) >= 7:
            transaction, protocol, length = struct.unpack(">HHH", self._stream[:6])
            if protocol != 0 or not 3 <= length <= 254 or len(self._stream) < 6 + length:
                break
            frame, self._stream = self._stream[: 6 + length], self._stream[6 + length :]
            if transaction == int.from_bytes(self._head[:2], "big"):
                return int.from_bytes(frame[9:], "big") if frame[:9] == self._head else None
        self._stream = b""  # no border of frames is known any more, or there is nothing
        return None


def test_damaged_answers_over_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    device = TcpDevice(seed=1)
    read = modbus({"tcp": {"host": "127.0.0.1"}}, device.wire, monkeypatch)
    device.good, device._stream = False, b""
    believed = 0
    for number in range(COUNT):
        (found,) = read()
        assert found == device.may_be_believed(), number
        believed += found is not None
    assert 0.1 * COUNT < believed < 0.5 * COUNT
    assert {"timeout", "wrong length", "wrong transaction", "wrong protocol", "wrong unit", "wrong function"} <= set(
        read.driver.errors
    )
    device.good = True
    read(), read()
    assert read() == [device.value], "it still works"


class RtuDevice:
    """The same on a serial line."""

    def __init__(self, seed: int) -> None:
        self._damage = Damage(seed)
        self.wire = FuzzedWire(self.answer, self._damage.random)
        self.value, self.good = 0, True
        self.said = b""

    def answer(self, request: bytes) -> bytes:
        assert request == bytes.fromhex("01 03 0000 0002 C40B")
        self.value += 1
        frame = bytes.fromhex("01 03 04") + struct.pack(">I", self.value)
        frame += crc16(frame).to_bytes(2, "little")
        self.said = frame if self.good else self._damage(frame)
        return self.said

    def may_be_believed(self) -> int | None:
        """The value of a frame with the right beginning and CRC."""
        frame = self.said[:9]
        right = (
            len(frame) == 9 and frame[:3] == b"\x01\x03\x04" and crc16(frame[:7]) == int.from_bytes(frame[7:], "little")
        )
        return int.from_bytes(frame[3:7], "big") if right else None


def test_damaged_answers_on_a_serial_line(monkeypatch: pytest.MonkeyPatch) -> None:
    device = RtuDevice(seed=2)
    read = modbus({"rtu": {"port": "/dev/none"}}, device.wire, monkeypatch)
    device.good = False
    earlier, wrong = deque([device.value], maxlen=12), 0
    for number in range(COUNT):
        (found,) = read()
        assert found == device.may_be_believed(), number
        earlier.append(device.value)
        wrong += found is not None and found not in earlier  # an earlier answer again is a right frame
    assert wrong <= 2, "one of 65 536 may pass"
    assert {"timeout", "crc", "wrong length", "unexpected bytes"} <= set(read.driver.errors)
    device.good = True
    read()
    assert read() == [device.value], "it still works"


# --- serial ----------------------------------------------------------------------------------------------------------


def serial(settings: dict[str, Any], wire: Wire, monkeypatch: pytest.MonkeyPatch) -> Reading:
    """A driver with the inputs of the settings, opened."""
    monkeypatch.setattr("hilserver_drivers.serial_line.driver.SerialWire", lambda config: wire)
    config = SerialLine.Config.model_validate({"port": "/dev/none", **PATIENT, **settings})
    driver = SerialLine("io", config, list(config.inputs), [])
    driver.open()
    return Reading(driver)


def frame_of(number: int) -> bytes:
    """Two numbers that belong together, so that a wrong one shows; CRC-16."""
    body = bytes.fromhex("AA55") + struct.pack("<II", number, number ^ 0xFFFFFFFF)
    return body + crc16(body).to_bytes(2, "little")


FRAMES = {
    "frame": {"start": "AA 55", "size": 8, "check": "crc16-modbus"},
    "inputs": {"x": {"byte": 0, "type": "uint32"}, "y": {"byte": 4, "type": "uint32"}},
}


def right_frames(stream: bytes) -> Iterator[tuple[int, int]]:
    """All frames with a right beginning and CRC, none overlapping another, from the left."""
    at = 0
    while (at := stream.find(b"\xaa\x55", at)) >= 0:
        frame = stream[at : at + 12]
        right = len(frame) == 12 and crc16(frame[:10]) == int.from_bytes(frame[10:], "little")
        if right:
            yield struct.unpack("<II", frame[2:10])
        at += 12 if right else 1


def test_damaged_frames_that_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    damage, number, said = Damage(seed=3), 0, b""

    def answer(request: bytes) -> bytes:
        nonlocal number, said
        number += 1
        said = damage(frame_of(number))
        return said

    read = serial({**FRAMES, "request": "01"}, FuzzedWire(answer, damage.random), monkeypatch)
    wrong = believed = 0
    for _ in range(COUNT):
        x, y = read()
        right = list(right_frames(said))
        assert (x, y) in right or ((x, y) == (None, None) and not right)
        believed += x is not None
        wrong += x is not None and int(x) ^ 0xFFFFFFFF != y
    assert believed > 0.1 * COUNT
    assert wrong <= 2, "one of 65 536 may pass"
    assert {"timeout", "crc", "unexpected bytes"} <= set(read.driver.errors)


def test_damaged_frames_that_come_by_themselves() -> None:
    """No right frame gets lost behind damaged ones, in whatever pieces they arrive."""
    damage, failures = Damage(seed=4), Counter[str]()
    stream = b"".join(damage(frame_of(number)) for number in range(COUNT))
    slots = {0: ("x", SerialInput(byte=0, type="uint32")), 1: ("y", SerialInput(byte=4, type="uint32"))}
    form = Frame(start="AA 55", size=8, check="crc16-modbus")
    reader = FrameReader(form, slots, lambda name, text: failures.update([name]))
    found, at = [], 0
    while at < len(stream):
        end = at + int(damage.random.integers(1, 40))
        found += [(dict(sample)[0], dict(sample)[1]) for sample in reader.feed(stream[at:end])]
        at = end
    assert found == list(right_frames(stream))
    assert len(found) > 0.2 * COUNT
    assert sum(int(x) ^ 0xFFFFFFFF != y for x, y in found) <= 2, "one of 65 536 may pass"
    assert set(failures) == {"crc", "unexpected bytes"}


def test_damaged_frames_are_listened_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same through the driver: of all that it believes, the two numbers belong together."""
    damage = Damage(seed=6)
    wire = FuzzedWire(lambda request: b"", damage.random)
    read = serial(FRAMES, wire, monkeypatch)
    found = set()
    for number in range(COUNT):
        wire.say(damage(frame_of(number)))
        x, y = read(asked=False)
        found.add(x)
        assert (x is None) == (y is None)
        assert x is None or int(x) ^ 0xFFFFFFFF == y
    assert len(found) > 0.2 * COUNT


def nmea(body: str) -> str:
    total = 0
    for character in body:
        total ^= ord(character)
    return f"${body}*{total:02X}\r\n"


NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"


class LineDevice:
    """Answers with two numbers that belong together, in a line, damaged."""

    def __init__(self, seed: int, checksum: bool) -> None:
        self._damage = Damage(seed)
        self.wire = FuzzedWire(self.answer, self._damage.random)
        self._checksum, self._number, self.said = checksum, 0, b""

    def answer(self, request: bytes) -> bytes:
        self._number += 1
        body = f"{self._number},{-self._number / 8}"
        self.said = self._damage((nmea(body) if self._checksum else f"{body}\r\n").encode("ascii"))
        return self.said

    def may_be_believed(self, column: int) -> Iterator[float]:
        """The numbers that stand in a column of a whole line of printable characters with a right checksum."""
        for line in self.said.split(b"\n")[:-1]:
            text = line.decode("latin-1").strip(" \r")
            if self._checksum:
                body, _, total = text.removeprefix("$").rpartition("*")
                text = body if nmea(body) == f"${body}*{total.upper()}\r\n" else ""
            columns = text.split(",")
            if re.fullmatch(r"[\t\x20-\x7e]*", text) and len(columns) == 2:
                if re.fullmatch(NUMBER, columns[column].strip()):
                    yield float(columns[column])


@pytest.mark.parametrize(("checksum", "most_wrong"), [("none", 0.5), ("nmea", 0.04)])
def test_damaged_lines(monkeypatch: pytest.MonkeyPatch, checksum: str, most_wrong: float) -> None:
    """Of damaged lines without checksum many pass; an exclusive or misses exchanged characters and more of the kind."""
    device = LineDevice(5, checksum == "nmea")
    inputs = {"x": {"column": 0}, "y": {"column": 1}}
    settings = {"lines": {"checksum": checksum, "columns": 2}, "inputs": inputs, "request": "?"}
    read = serial(settings, device.wire, monkeypatch)
    believed = wrong = 0
    for _ in range(COUNT):
        found = read()
        for column, value in enumerate(found):
            assert value is None or value in device.may_be_believed(column), device.said
        x, y = found
        believed += x is not None and y is not None
        wrong += x is not None and y is not None and y != -x / 8
    assert believed > 0.1 * COUNT
    assert wrong < most_wrong * COUNT
    assert {"timeout", "noise", "not a number"} <= set(read.driver.errors)
