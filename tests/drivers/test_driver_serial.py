"""The serial driver against devices at a pty: lines and frames, by themselves and when asked, damaged and cut."""

from __future__ import annotations

import binascii
import struct
import sys
import termios
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from driver_conformance import Bench, HardwareConformance, Session, patterns
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from pymodbus.framer import FramerRTU
from serial_bench import (
    AnsweringLineBench,
    AskedFrameBench,
    AskedLineBench,
    FrameBench,
    LineBench,
    SerialBench,
    bitwise_crc,
)
from serial_port import Port, Served

from hilserver.errors import DriverError, problems_of
from hilserver_drivers.binary import decode, encode, limits, size_of
from hilserver_drivers.serial_line import SerialLine
from hilserver_drivers.serial_line.checks import CRCS, check_size, check_value
from hilserver_drivers.serial_line.messages import FrameJob, FrameReader, LineReader
from hilserver_drivers.serial_line.settings import Frame, Input, Lines, Output, SerialConfig

pytestmark = pytest.mark.slow

TIMEOUT = 0.3


@pytest.fixture(params=[LineBench, AskedLineBench, FrameBench])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SerialBench]:
    made: SerialBench = request.param(tmp_path)
    yield made
    made.close()


class TestSerial(HardwareConformance):
    """With lines and frames, by themselves and when asked, with and without answers to commands."""


@pytest.mark.parametrize("kind", [AnsweringLineBench, AskedFrameBench])
def test_all_values_come_through(tmp_path: Path, kind: type[SerialBench]) -> None:
    bench = kind(tmp_path)
    session = Session(bench.make(bench.inputs, bench.outputs), bench)
    session.driver.open()
    session.driver.make_safe()
    assert dict(bench.written()) == bench.safe
    for values, command in zip(patterns(bench.input_span), patterns(bench.output_span), strict=False):
        bench.measure(values)
        session.reads(values)
        session.arrives(command)
    assert not session.driver.errors
    session.driver.close()
    bench.close()


# --- check values and numbers ----------------------------------------------------------------------------------------

PUBLISHED = {
    "crc8": 0xF4,
    "crc8-maxim": 0xA1,
    "crc8-j1850": 0x4B,
    "crc16-arc": 0xBB3D,
    "crc16-modbus": 0x4B37,
    "crc16-ccitt-false": 0x29B1,
    "crc16-xmodem": 0x31C3,
    "crc16-kermit": 0x2189,
    "crc16-x25": 0x906E,
    "crc32": 0xCBF43926,
    "crc32c": 0xE3069283,
    "crc32-mpeg2": 0x0376E6E7,
}
"""Of "123456789", from the Catalogue of Parametrised CRC Algorithms (reveng.sourceforge.io/crc-catalogue)."""


@pytest.mark.parametrize("name", CRCS)
def test_crc_has_its_published_check_value(name: Any) -> None:
    assert check_value(name, b"123456789") == PUBLISHED[name]
    assert 8 * check_size(name) == CRCS[name][0]


@given(st.binary(max_size=300))
def test_crcs_and_sums_agree_with_other_implementations(data: bytes) -> None:
    assert check_value("crc32", data) == zlib.crc32(data)
    assert check_value("crc16-xmodem", data) == binascii.crc_hqx(data, 0)
    assert check_value("crc16-ccitt-false", data) == binascii.crc_hqx(data, 0xFFFF)
    assert check_value("crc16-modbus", data).to_bytes(2, "little") == FramerRTU.compute_CRC(data).to_bytes(2, "big")
    assert (sum(data) + check_value("sum8-complement", data)) % 256 == 0
    assert check_value("sum16", data) == sum(data) % 65_536
    assert check_value("sum8", data) == sum(data) % 256
    assert check_value("xor8", data + bytes([check_value("xor8", data)])) == 0


CODES = {
    "int8": "b",
    "uint8": "B",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
}


@given(st.data())
def test_numbers_are_packed_as_struct_does(data: st.DataObject) -> None:
    kind: Any = data.draw(st.sampled_from([*CODES, "float32", "float64"]))
    order: Any = data.draw(st.sampled_from(["little", "big"]))
    code = {"little": "<", "big": ">"}[order] + {**CODES, "float32": "f", "float64": "d"}[kind]
    if kind.startswith("float"):
        value = data.draw(st.floats(allow_nan=False, allow_infinity=False, width=32 if kind == "float32" else 64))
    else:
        value = data.draw(st.integers(*(int(min(max(x, -(2**53)), 2**53)) for x in limits(kind))))
    assert encode(value, kind, order) == struct.pack(code, value)
    assert decode(struct.pack(code, value), kind, order) == value


@given(st.integers(-(2**23), 2**23 - 1))
def test_numbers_of_three_bytes(value: int) -> None:
    assert decode(encode(value, "int24", "little"), "int24", "little") == value
    assert encode(value, "int24", "big") == struct.pack(">i", value)[1:]
    assert decode(encode(value + 2**23, "uint24"), "uint24") == value + 2**23


@pytest.mark.parametrize("kind", [*CODES, "int24", "uint24", "float32", "float64"])
def test_too_large_numbers_stay_at_the_end_of_the_range(kind: Any) -> None:
    low, high = limits(kind)
    assert decode(encode(1e300 if kind != "float64" else high, kind), kind) == float(high)
    assert decode(encode(-1e300 if kind != "float64" else low, kind), kind) == float(low)
    assert len(encode(0.0, kind)) == size_of(kind)


# --- settings --------------------------------------------------------------------------------------------------------

PORT = {"port": "/dev/ttyUSB0"}
LINES = {**PORT, "lines": {}}
FRAME = {**PORT, "frame": {"start": "AA", "size": 4, "check": "crc8"}}
BYTE = {"byte": 0, "type": "uint8"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({**PORT, "inputs": {"a": {"column": 0}}}, "give either lines or frame"),
        ({**LINES, "frame": FRAME["frame"], "inputs": {"a": {"column": 0}}}, "give either lines or frame"),
        ({**LINES, "inputs": {"a": {}}}, "inputs.a: give one of column, name, pattern (lines) or byte (frames)"),
        ({**LINES, "inputs": {"a": {"column": 0, "name": "a"}}}, "inputs.a: give one of column"),
        ({**LINES, "inputs": {"a": BYTE}}, "inputs.a: lines have no byte and type"),
        ({**FRAME, "inputs": {"a": {"column": 0}}}, "inputs.a: a frame has byte and type"),
        ({**FRAME, "inputs": {"a": {"byte": 0}}}, "inputs.a: byte and type belong together"),
        ({**FRAME, "inputs": {"a": {"byte": 2, "type": "int24"}}}, "inputs.a reaches beyond the payload of 4 bytes"),
        ({**FRAME, "inputs": {"a": {**BYTE, "bit": 8}}}, "inputs.a: bit = 8 needs a type with more bits"),
        ({**LINES, "inputs": {"a": {"pattern": "(x"}}}, 'inputs.a.pattern: "(x" is not a regular expression'),
        ({**LINES, "inputs": {"a": {"pattern": "x"}}}, 'inputs.a.pattern: "x" has 0 groups'),
        ({**PORT, "lines": {"columns": 2}, "inputs": {"a": {"column": 2}}}, "inputs.a: there is no column 2 of 2"),
        ({**PORT, "lines": {"decimal": ","}}, 'lines: separator and decimal are both ","'),
        ({**PORT, "frame": {"size": 4, "check": "none"}}, "frame: without start and check the beginning"),
        ({**PORT, "frame": {"size": 4, "start": "AA"}}, "frame.check: missing"),
        (
            {**PORT, "frame": {"size": 4, "start": "AAx", "check": "crc8"}},
            'frame.start: "AAx" are not bytes in hexadecimal',
        ),
        ({**PORT, "frame": {"size": 4, "check": "crc9"}}, 'frame.check: "crc9" is not one of'),
        (
            {**PORT, "frame": {"size": 4, "check": "crc8", "check_from": 4}},
            "frame: check_from = 4 is after the payload",
        ),
        ({**FRAME, "request": "4x"}, 'request: "4x" are not bytes in hexadecimal digits'),
        ({**LINES, "request": "€"}, 'request: "€" has characters that are not bytes'),
        (
            {**LINES, "inputs": {"a": {"column": 0, "request": "?"}, "b": {"column": 0}}},
            "some inputs have a request and others do not",
        ),
        ({**FRAME, "answer": "OK"}, "answer is a line: give lines, too"),
        ({**PORT, "outputs": {"v": {"format": "V {:.3f}\n"}}}, "outputs.v.safe: missing"),
        ({**PORT, "outputs": {"v": {"safe": 0}}}, "outputs.v: give either format (a line), or byte and type"),
        (
            {**PORT, "outputs": {"v": {"safe": 0, "format": "V\n"}}},
            "can't be used to write a number (it needs {} once)",
        ),
        (
            {**PORT, "outputs": {"v": {"safe": 0, "format": "V {:d}\n"}}},
            "can't be used to write a number (Unknown format",
        ),
        ({**PORT, "outputs": {"v": {"safe": 0, "format": "{0.real}"}}}, "{0.real} names something"),
        ({**PORT, "outputs": {"v": {"safe": 0, **BYTE}}}, "outputs.v has a byte: give command"),
        (
            {**PORT, "command": FRAME["frame"], "outputs": {"v": {"safe": 256, **BYTE}}},
            "safe = 256 does not fit into a uint8",
        ),
        (
            {**PORT, "command": FRAME["frame"], "outputs": {"v": {"safe": 0, **BYTE}, "w": {"safe": 0, **BYTE}}},
            "outputs.w and outputs.v share byte 0",
        ),
        ({**LINES, "timeout": "3 s"}, "timeout (3 s) must be at most a third of hang_time (2 s)"),
        ({**LINES, "parity": "mark"}, 'parity: "mark" is not one of'),
    ],
)
def test_wrong_settings_are_named(settings: Mapping[str, Any], expected: str) -> None:
    with pytest.raises(ValidationError) as caught:
        SerialConfig.model_validate(settings)
    said = "\n".join(map(str, problems_of(caught.value, settings, names=SerialConfig.model_fields)))
    assert expected in said


def test_configuration_needs_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "serial", None)
    driver = SerialLine("io", SerialConfig.model_validate({**LINES, "inputs": {"a": {"column": 0}}}), ["a"], [])
    with pytest.raises(DriverError, match=r"device io: serial can't be imported .* pip install 'hilserver\[serial\]'"):
        driver.open()


# --- lines -----------------------------------------------------------------------------------------------------------


class Failures:
    """Keeps what failed."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.text = ""

    def __call__(self, name: str, text: str) -> None:
        self.names.append(name)
        self.text = text


def samples(
    data: bytes, inputs: Mapping[str, Any], pieces: int = 1_000_000, **form: Any
) -> tuple[list[dict[str, float]], list[str]]:
    """Samples and failures that a line reader finds in data that arrive in pieces."""
    failures = Failures()
    slots = {slot: (name, Input.model_validate(entry)) for slot, (name, entry) in enumerate(inputs.items())}
    reader = LineReader(Lines.model_validate(form), slots, failures)
    found: list[dict[str, float]] = []
    for k in range(0, len(data), pieces):
        found += [{slots[slot][0]: value for slot, value in s} for s in reader.feed(data[k : k + pieces])]
    return found, failures.names


AB = {"a": {"column": 0}, "b": {"column": 2}}


@pytest.mark.parametrize(
    ("line", "form", "inputs", "expected"),
    [
        (b"1,2,3\n", {}, AB, {"a": 1, "b": 3}),
        (b" 1.5 , x , -3e2 \r\n", {}, AB, {"a": 1.5, "b": -300}),
        (b"1\t\t+.5\n", {"separator": "\t"}, AB, {"a": 1, "b": 0.5}),
        (b"\t1\t2\n", {"separator": "\t"}, {"a": {"column": 1}}, {"a": 1}),
        (b"  1   2\t3\n", {"separator": " "}, AB, {"a": 1, "b": 3}),
        (b"1,5;x;2,25\n", {"separator": ";", "decimal": ","}, AB, {"a": 1.5, "b": 2.25}),
        (b"1,2,3\r", {"end": "\r"}, AB, {"a": 1, "b": 3}),
        (b"T=23.5,RH: 40\n", {}, {"t": {"name": "T"}, "rh": {"name": "RH"}}, {"t": 23.5, "rh": 40}),
        (b"RH=40\n", {}, {"t": {"name": "T"}, "rh": {"name": "RH"}}, {"rh": 40}),
        (b"S +  12.50 kg\n", {}, {"m": {"pattern": r"S\s+\+\s*([\d.]+) kg"}}, {"m": 12.5}),
        (b"$GPGLL,4916.45,N,12311.12,W,225444,A*31\n", {"checksum": "nmea"}, {"x": {"column": 1}}, {"x": 4916.45}),
    ],
)
def test_numbers_are_found_in_lines(line: bytes, form: Any, inputs: Any, expected: dict[str, float]) -> None:
    for pieces in (1, 2, 3, 7, 1000):
        assert samples(line, inputs, pieces, **form) == ([expected], [])


@pytest.mark.parametrize(
    ("line", "form", "failure"),
    [
        (b"1,2\n", {}, "wrong number of columns"),
        (b"1,2,3,4\n", {"columns": 3}, "wrong number of columns"),
        (b"nan,2,inf\n", {}, "not a number"),
        (b"1_0,2,0x10\n", {}, "not a number"),
        (b"1 2,2,3 4\n", {}, "not a number"),
        (b",2,-\n", {}, "not a number"),
        (b"1e999,2,-1e999\n", {}, "not a number"),
        (b"1.5.2,2,1e\n", {}, "not a number"),
        ("١,2,٣\n".encode(), {}, "noise"),
        (b"1,2,3\x00\n", {}, "noise"),
        (b"1,\xff2,3\n", {}, "noise"),
        (b"1" * 300 + b",2,3\n", {}, "line too long"),
        (b"1,2,3\n", {"checksum": "nmea"}, "checksum"),
        (b"$GPGLL,4916.45,N,12311.12,W,225444,A*30\n", {"checksum": "nmea"}, "checksum"),
        (b"$GPGLL,4916.46,N,12311.12,W,225444,A*31\n", {"checksum": "nmea"}, "checksum"),
    ],
)
def test_bad_lines_give_no_values_and_are_counted(line: bytes, form: Any, failure: str) -> None:
    for pieces in (1, 2, 3, 7, 1000):
        found, failures = samples(line, AB, pieces, **form)
        assert not any(found), found
        assert set(failures) == {failure}
        found, _ = samples(line + b"1,2,3\n", AB, pieces)
        assert found[-1] == {"a": 1, "b": 3}, "the next line is read again"


def test_one_unreadable_column_does_not_spoil_the_others() -> None:
    assert samples(b"---,2,3\n", AB) == ([{"b": 3}], ["not a number"])


def test_line_that_says_nothing_known_is_counted() -> None:
    assert samples(b"READY\n", {"t": {"name": "T"}}) == ([{}], ["unknown line"])


def test_line_whose_beginning_was_not_seen_is_dropped() -> None:
    """The tail of 123.45 is 3.45."""
    reader = LineReader(Lines(), {0: ("a", Input(column=0))}, (failures := Failures()))
    reader.begin(in_the_middle=True)
    assert list(reader.feed(b"3.45\n")) == []
    assert list(reader.feed(b"123.45\n")) == [[(0, 123.45)]]
    assert failures.names == []


def test_endless_line_takes_no_memory() -> None:
    failures = Failures()
    reader = LineReader(Lines(), {0: ("a", Input(column=0))}, failures)
    for _ in range(1000):
        assert list(reader.feed(b"9" * 1000)) == []
        assert len(reader._buffer) < 300
    assert list(reader.feed(b"\n5\n")) == [[(0, 5.0)]]
    assert failures.names == ["line too long"]


# --- frames ----------------------------------------------------------------------------------------------------------


def frame_samples(data: bytes, pieces: int = 1_000_000, **form: Any) -> tuple[list[float], list[str]]:
    """Values of a byte 0 … as int16, and failures, that a frame reader finds."""
    failures = Failures()
    reader = FrameReader(Frame.model_validate(form), {0: ("x", Input(byte=0, type="int16"))}, failures)
    found = []
    for k in range(0, len(data), pieces):
        found += [value for sample in reader.feed(data[k : k + pieces]) for _, value in sample]
    return found, failures.names


PLAIN = {"start": "AA 55", "size": 2, "check": "sum8"}
ONE, TWO = bytes.fromhex("AA55 0100 00"), bytes.fromhex("AA55 FFFF FD")
"""Sums: AA + 55 + 01 = 0x100; AA + 55 + FF + FF = 0x2FD."""


@pytest.mark.parametrize("pieces", [1, 2, 3, 4, 5, 6, 1000])
@pytest.mark.parametrize(
    ("data", "values", "failures"),
    [
        (ONE + TWO, [1, -1], []),
        (b"\x00" + ONE, [1], ["unexpected bytes"]),
        (b"\xaa" + ONE, [1], ["unexpected bytes"]),
        (ONE + b"noise" + TWO, [1, -1], ["unexpected bytes"]),
        (ONE[:-1] + b"\x07" + TWO, [-1], ["checksum"]),
        (ONE[:-2] + TWO, [-1], ["checksum"]),  # a byte lost: the next frame begins within what is taken for this one
        (ONE[:3] + TWO + ONE, [-1, 1], ["checksum"]),
        (b"\xaa\x55" + TWO, [-1], ["checksum"]),
        (ONE[:4], [], []),
        (b"\xaa", [], []),
    ],
)
def test_frames_are_found(pieces: int, data: bytes, values: list[float], failures: list[str]) -> None:
    assert frame_samples(data, pieces, **PLAIN) == (values, failures)


@pytest.mark.parametrize(
    ("form", "frame"),
    [
        ({"length": "uint8", "check": "none"}, "AA55 02 0100"),
        ({"length": "uint8", "counts": "rest", "check": "crc16-modbus", "check_from": 2}, "AA55 04 0100 {crc}"),
        ({"length": "uint16", "counts": "frame", "check": "sum16"}, "AA55 0800 0100 0801"),
        ({"length": "uint16", "counts": "frame", "check": "xor8", "order": "big"}, "AA55 0007 0001 F9"),
        ({"check": "sum16", "check_order": "big"}, "AA55 0100 0100"),
        ({"check": "sum8-complement", "check_from": 2}, "AA55 0100 FF"),
    ],
)
def test_frames_with_length_and_checks(form: dict[str, Any], frame: str) -> None:
    crc = bitwise_crc(bytes.fromhex("04 0100"), 16, 0xA001, 0xFFFF).to_bytes(2, "little").hex()
    whole = {"start": "AA 55", "size": 2, **form}
    data = bytes.fromhex(frame.format(crc=crc))
    assert frame_samples(data, **whole) == ([1], [])
    if "length" in form:
        wrong = bytearray(data)
        wrong[2] += 1
        assert frame_samples(bytes(wrong) + data, **whole) == ([1], ["wrong length"])


def test_float_that_is_no_number_is_no_sample() -> None:
    failures = Failures()
    reader = FrameReader(Frame(start="AA", size=4, check="none"), {0: ("x", Input(byte=0, type="float32"))}, failures)
    assert list(reader.feed(b"\xaa" + struct.pack("<f", float("nan")))) == [[]]
    assert list(reader.feed(b"\xaa" + struct.pack("<f", 1.5))) == [[(0, 1.5)]]
    assert failures.names == ["not a number"]


def test_command_frame() -> None:
    """Outputs that the rig does not use have their safe values in it."""
    form = Frame(start="C0", length="uint8", counts="frame", size=6, check="crc8", order="big")
    outputs = {
        "valve": Output(byte=0, type="int16", safe=0),
        "pump": Output(byte=3, type="uint8", safe=9),
        "unused": Output(byte=4, type="uint16", safe=0x1234),
    }
    job = FrameJob(form, outputs, {"pump": 0, "valve": 1})
    frame = job.data(np.array([5.4, -2.0]))
    assert frame[:-1] == bytes.fromhex("C0 09 FFFE 00 05 1234")
    crc = 0
    for byte in frame[:-1]:  # CRC-8/SMBUS bit by bit
        crc ^= byte
        for _ in range(8):
            crc = (crc << 1 ^ 0x07 if crc & 0x80 else crc << 1) & 0xFF
    assert frame[-1] == crc
    assert job.data(np.array([np.nan, 1e9]))[2:6] == bytes.fromhex("7FFF 00 09")
    assert [name for name, _ in job.faults(np.array([np.nan, 1e9]))] == ["not a number", "value out of range"]


# --- at the port -----------------------------------------------------------------------------------------------------


class AnyBench(Bench):
    """For a session with a device that a test has in its own hand."""

    timeout = TIMEOUT

    def measure(self, values: Mapping[str, float]) -> None:
        """The test does that."""

    def written(self) -> list[tuple[str, float]]:
        return []


@pytest.fixture
def port(tmp_path: Path) -> Iterator[Port]:
    made = Port(tmp_path / "ttyUSB0")
    yield made
    made.close()


@pytest.fixture
def open_(port: Port) -> Iterator[Callable[..., Session]]:
    sessions = []

    def open_session(**settings: Any) -> Session:
        config = SerialConfig.model_validate({"port": str(port.path), "timeout": f"{TIMEOUT} s", **settings})
        driver = SerialLine("io", config, list(config.inputs), list(config.outputs))
        driver.open()
        sessions.append(Session(driver, AnyBench()))
        return sessions[-1]

    yield open_session
    for session in sessions:
        session.driver.close()


X = {"x": {"column": 0}}


def test_latest_line_counts_and_holds_for_the_timeout(open_: Callable[..., Session], port: Port) -> None:
    session = open_(lines={}, inputs=X)
    assert np.isnan(session.read()["x"])
    assert np.isinf(session.ages).all()
    port.send(b"3.45\n1\n2\n3")
    session.reads({"x": 2})
    port.send(b"0\n")
    session.reads({"x": 30})
    first = session.ages[0]
    time.sleep(0.02)
    assert session.read() == {"x": 30}, "the device sends less often"
    assert session.ages[0] >= first + 0.02
    time.sleep(TIMEOUT)
    assert np.isnan(session.read()["x"])
    assert session.ages[0] >= TIMEOUT
    assert session.driver.errors == {"timeout": 1}
    assert session.driver.last_error.startswith("device io: nothing received for 0.")


def test_age_counts_from_the_look_before(open_: Callable[..., Session], port: Port) -> None:
    """A line may have come right after it."""
    session = open_(lines={}, inputs=X)
    port.send(b"0\n")
    session.read()
    time.sleep(0.05)
    port.send(b"1\n")
    session.reads({"x": 1})
    assert session.ages[0] >= 0.05


def test_partial_line_waits_for_its_end(open_: Callable[..., Session], port: Port) -> None:
    session = open_(lines={}, inputs=X)
    port.send(b"\n12")
    session.sees_nothing()
    port.send(b"3\n")
    session.reads({"x": 123})


def test_hang_up_in_the_middle_of_a_line(open_: Callable[..., Session], port: Port) -> None:
    """Half a line before and half a line after make no number."""
    session = open_(lines={}, inputs=X)
    port.send(b"\n1\n12")
    session.reads({"x": 1})
    port.unplug()
    assert np.isnan(session.read()["x"])
    assert session.driver.errors == {"disconnected": 1}
    assert str(port.path) in session.driver.last_error
    assert np.isnan(session.read()["x"])
    assert session.driver.errors == {"disconnected": 1, "no connection": 1}
    assert session.driver.last_error.endswith("ttyUSB0: No such file or directory")
    port.plug()
    deadline = time.monotonic() + 5.0
    while not session.driver._wire.connected:  # type: ignore[attr-defined]
        assert np.isnan(session.read()["x"])
        assert time.monotonic() < deadline
        time.sleep(0.01)
    port.send(b"45\n")
    session.sees_nothing()
    port.send(b"67\n")
    session.reads({"x": 67})


def answering(port: Port, *answers: bytes) -> Served:
    """A device that gives these answers, one per request, then none."""
    waiting = iter(answers)
    return Served(port, lambda _: next(waiting, b""))


def test_each_request_has_its_own_answer(open_: Callable[..., Session], port: Port) -> None:
    device = Served(port, lambda data: {b"A?\r": b"1.5\r", b"B?\r": b"-2\r"}[data])
    inputs = {"a": {"column": 0, "request": "A?\r"}, "b": {"column": 0}}
    session = open_(lines={"end": "\r"}, request="B?\r", inputs=inputs)
    for _ in range(20):
        assert session.read() == {"a": 1.5, "b": -2}
    assert not session.driver.errors
    session.driver.close()
    device.close()


@pytest.mark.parametrize(
    ("answer", "name"),
    [(b"1,2\n", "wrong number of columns"), (b"x\n", "not a number"), (b"\xff1\n", "noise"), (b"1", "timeout")],
)
def test_bad_answers_are_counted_and_asked_again(
    open_: Callable[..., Session], port: Port, answer: bytes, name: str
) -> None:
    device = answering(port, answer, b"7\n", b"7\n")
    session = open_(lines={"columns": 1}, request="?", inputs=X)
    assert np.isnan(session.read()["x"])
    assert session.driver.errors == {name: 1}
    session.reads({"x": 7})
    session.driver.close()
    device.close()


def test_late_answer_is_dropped(open_: Callable[..., Session], port: Port) -> None:
    session = open_(lines={}, request="?", inputs=X)
    assert np.isnan(session.read()["x"])
    assert session.driver.errors == {"timeout": 1}
    port.send(b"111\n")  # the answer to the first request
    device = Served(port, lambda _: b"222\n")
    deadline = time.monotonic() + 5.0
    while np.isnan(value := session.read()["x"]):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    assert value == 222
    assert session.driver.errors == {"timeout": 1, "unexpected bytes": 1}
    session.driver.close()
    device.close()


def test_late_answer_is_no_answer_to_the_next_request(open_: Callable[..., Session], port: Port) -> None:
    """Each answer comes after its time, and nothing in it tells to which request it belongs."""
    requests = 0

    def count(_: bytes) -> bytes:
        nonlocal requests
        requests += 1
        return f"{requests}\n".encode("ascii")

    device = Served(port, count)
    device.through = device.delayed(0.75)
    session = open_(lines={}, request="?", inputs=X, timeout="0.5 s")
    begin = time.monotonic()
    while time.monotonic() < begin + 2.0:
        value = session.read()["x"]
        assert np.isnan(value) or value == requests, "the answer to an earlier request"
        time.sleep(0.01)
    assert session.driver.errors["timeout"] > 0
    device.mend()
    session.reads_something()
    assert session.values[0] == requests
    session.driver.close()
    device.close()


OUTPUT = {"v": {"format": "V {:+.2f}\r\n", "safe": 0}}


def test_lines_are_written_on_change_and_again_after_a_while(open_: Callable[..., Session], port: Port) -> None:
    session = open_(outputs=OUTPUT, refresh="50 ms")
    session.driver.make_safe()
    assert port.heard(1.0) == b"V +0.00\r\n"
    session.write({"v": 1.5})
    assert port.heard(1.0) == b"V +1.50\r\n"
    session.write({"v": 1.501})
    time.sleep(0.06)
    session.write({"v": 1.501})
    assert port.heard(1.0) == b"V +1.50\r\n"
    session.driver.write(np.array([np.nan]))
    assert port.heard(1.0) == b"V +0.00\r\n"
    assert session.driver.errors == {"not a number": 1}


def test_decimal_comma_is_written_too(open_: Callable[..., Session], port: Port) -> None:
    session = open_(lines={"decimal": ",", "separator": ";"}, outputs={"v": {"format": "1.V={:.2f}\n", "safe": 0}})
    session.write({"v": 1.5})
    assert port.heard(1.0) == b"1.V=1,50\n"


def test_wrong_and_missing_answers_to_commands(open_: Callable[..., Session], port: Port) -> None:
    device = answering(port, b"OK\r\n", b"ERR 3\r\n", b"", b"OK\r\n")
    session = open_(lines={}, answer="OK", outputs=OUTPUT, refresh="1 h")
    session.write({"v": 1})
    assert not session.driver.errors
    session.write({"v": 2})
    assert session.driver.errors == {"wrong answer": 1}
    assert session.driver.last_error == 'device io: "ERR 3" was received instead of "OK"'
    deadline = time.monotonic() + 5.0
    while session.driver.errors != {"wrong answer": 1, "timeout": 1}:
        session.write({"v": 2})
        assert time.monotonic() < deadline
    assert session.driver.last_error == 'device io: output v: no answer "OK"'
    session.driver.make_safe()
    session.driver.close()
    device.close()


def test_command_that_is_not_answered_is_no_safe_value(open_: Callable[..., Session]) -> None:
    session = open_(lines={}, answer="OK", outputs=OUTPUT, timeout="50 ms")
    with pytest.raises(
        DriverError, match=r'device io: no safe value for output v. device io: output v: no answer "OK"'
    ):
        session.driver.make_safe()


def test_wrong_parity_is_noticed(open_: Callable[..., Session]) -> None:
    """pyserial leaves the check of received characters off."""
    for parity, checked in (("even", True), ("none", False)):
        session = open_(parity=parity, lines={}, inputs=X)
        flags = termios.tcgetattr(session.driver._wire._fd)  # type: ignore[attr-defined]
        assert bool(flags[0] & termios.INPCK) == checked
        session.driver.close()


def test_port_in_use_is_said(open_: Callable[..., Session]) -> None:
    open_(lines={}, inputs=X)
    with pytest.raises(DriverError, match=r"device io: no connection to .*: another program has it open"):
        open_(lines={}, inputs=X)


def test_ports_are_discovered(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = [
        SimpleNamespace(name="ttyUSB1", description="FT232R", device="/dev/ttyUSB1"),
        SimpleNamespace(name="ttyACM0", description="balance", device="/dev/ttyACM0"),
        SimpleNamespace(name="ttyS0", description="n/a", device="/dev/ttyS0"),
    ]
    monkeypatch.setattr("serial.tools.list_ports.comports", lambda include_links: ports)
    found = SerialLine.discover()
    said = {device.name: device.description for device in found}
    assert said == {"ttyACM0": "balance", "ttyS0": "serial port", "ttyUSB1": "FT232R"}
    for device in found:
        settings = {key: value for key, value in device.settings.items() if key != "driver"}
        assert SerialConfig.model_validate(settings).port == f"/dev/{device.name}"


def test_noise_on_the_line_is_survived(open_: Callable[..., Session], port: Port) -> None:
    """Noise, cut frames and good ones in any pieces: only values that were sent are read."""
    session = open_(frame={"start": "AA 55", "size": 4, "check": "crc32"}, inputs={"x": {"byte": 0, "type": "int32"}})
    random = np.random.default_rng(3)
    sent, read = set(), set()
    for number in range(300):
        frame = bytes.fromhex("AA 55") + struct.pack("<i", number)
        frame += struct.pack("<I", zlib.crc32(frame))
        if random.random() < 0.4:
            sent.add(float(number))
        else:
            cut = int(random.integers(len(frame)))
            frame = (
                frame[:cut] + random.bytes(int(random.integers(0, 8))) + frame[cut + int(random.integers(0, 2)) + 1 :]
            )
        for piece in (frame[:3], frame[3:7], frame[7:]):
            port.send(piece)
            read.add(session.read()["x"])
    deadline = time.monotonic() + 5.0
    while max(sent) not in read:
        assert time.monotonic() < deadline
        read.add(session.read()["x"])
    assert {value for value in read if not np.isnan(value)} <= sent
    assert session.driver.errors.total() > 100
