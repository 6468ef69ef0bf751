"""What the serial driver reads and writes, without a port: check values, numbers, lines and frames."""

from __future__ import annotations

import binascii
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymodbus.framer import FramerRTU
from serial_bench import bitwise_crc

from hilserver_drivers.binary import decode, encode, limits, size_of
from hilserver_drivers.serial_line.checks import CRCS, check_size, check_value
from hilserver_drivers.serial_line.messages import FrameJob, FrameReader, LineReader
from hilserver_drivers.serial_line.settings import Frame, Lines, SerialInput, SerialOutput

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
    slots = {slot: (name, SerialInput.model_validate(entry)) for slot, (name, entry) in enumerate(inputs.items())}
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


def test_unknown_lines_are_counted() -> None:
    assert samples(b"READY\n", {"t": {"name": "T"}}) == ([{}], ["unknown line"])


def test_line_whose_beginning_was_not_seen_is_dropped() -> None:
    """The tail of 123.45 is 3.45."""
    reader = LineReader(Lines(), {0: ("a", SerialInput(column=0))}, (failures := Failures()))
    reader.begin(in_the_middle=True)
    assert list(reader.feed(b"3.45\n")) == []
    assert list(reader.feed(b"123.45\n")) == [[(0, 123.45)]]
    assert failures.names == []


def test_an_endless_line_uses_bounded_memory() -> None:
    failures = Failures()
    reader = LineReader(Lines(), {0: ("a", SerialInput(column=0))}, failures)
    for _ in range(1000):
        assert list(reader.feed(b"9" * 1000)) == []
        assert len(reader._buffer) < 300
    assert list(reader.feed(b"\n5\n")) == [[(0, 5.0)]]
    assert failures.names == ["line too long"]


# --- frames ----------------------------------------------------------------------------------------------------------


def frame_samples(data: bytes, pieces: int = 1_000_000, **form: Any) -> tuple[list[float], list[str]]:
    """Values of a byte 0 … as int16, and failures, that a frame reader finds."""
    failures = Failures()
    reader = FrameReader(Frame.model_validate(form), {0: ("x", SerialInput(byte=0, type="int16"))}, failures)
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


def test_a_float_that_is_not_a_number_is_rejected() -> None:
    failures = Failures()
    reader = FrameReader(
        Frame(start="AA", size=4, check="none"), {0: ("x", SerialInput(byte=0, type="float32"))}, failures
    )
    assert list(reader.feed(b"\xaa" + struct.pack("<f", float("nan")))) == [[]]
    assert list(reader.feed(b"\xaa" + struct.pack("<f", 1.5))) == [[(0, 1.5)]]
    assert failures.names == ["not a number"]


def test_command_frame() -> None:
    """Outputs that the rig does not use have their safe values in it."""
    form = Frame(start="C0", length="uint8", counts="frame", size=6, check="crc8", order="big")
    outputs = {
        "valve": SerialOutput(byte=0, type="int16", safe=0),
        "pump": SerialOutput(byte=3, type="uint8", safe=9),
        "unused": SerialOutput(byte=4, type="uint16", safe=0x1234),
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
