"""Numbers and check values in the bytes of a message: what register maps and frames are made of."""

from __future__ import annotations

import functools
import math
import string
import struct
from dataclasses import dataclass
from typing import Literal

NumberType = Literal[
    "int8", "uint8", "int16", "uint16", "int24", "uint24", "int32", "uint32", "int64", "uint64", "float32", "float64"
]

ByteOrder = Literal["little", "big"]

CheckName = Literal[
    "none",
    "crc8",
    "crc8-maxim",
    "crc8-j1850",
    "crc16-arc",
    "crc16-modbus",
    "crc16-ccitt-false",
    "crc16-xmodem",
    "crc16-kermit",
    "crc16-x25",
    "crc32",
    "crc32c",
    "crc32-mpeg2",
    "sum8",
    "sum8-complement",
    "sum16",
    "xor8",
]


# --- numbers ---------------------------------------------------------------------------------------------------------


def size_of(kind: NumberType) -> int:
    """Bytes that a number takes.

    >>> size_of("int24")
    3
    """
    return int(kind.lstrip(string.ascii_lowercase)) // 8


def limits(kind: NumberType) -> tuple[float, float]:
    """Smallest and largest number of a type; whole numbers exactly.

    >>> limits("int16")
    (-32768, 32767)
    """
    bits = 8 * size_of(kind)
    if kind.startswith("uint"):
        return 0, 2**bits - 1
    if kind.startswith("int"):
        return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    largest = (2 - 2.0**-23) * 2.0**127 if kind == "float32" else math.nextafter(math.inf, 0.0)
    return -largest, largest


def decode(data: bytes, kind: NumberType, order: ByteOrder = "big") -> float:
    """The number in ``data``. 64-bit integers beyond 2^53 lose their last digits: raw values are floats.

    >>> decode(bytes.fromhex("ff38"), "int16")
    -200.0
    """
    if kind.startswith("float"):
        return float(struct.unpack(_form(kind, order), data)[0])
    return float(int.from_bytes(data, order, signed=kind.startswith("int")))


def encode(value: float, kind: NumberType, order: ByteOrder = "big") -> bytes:
    """A finite ``value`` as bytes: rounded for integers, kept at the end of the type's range rather than wrapped round.

    >>> encode(-200.4, "int16").hex(), encode(70_000, "uint16").hex()
    ('ff38', 'ffff')
    """
    low, high = limits(kind)
    if kind.startswith("float"):
        return struct.pack(_form(kind, order), min(max(value, low), high))
    whole = int(min(max(round(value), low), high))
    return whole.to_bytes(size_of(kind), order, signed=kind.startswith("int"))


def _form(kind: NumberType, order: ByteOrder) -> str:
    return (">" if order == "big" else "<") + ("f" if kind == "float32" else "d")


# --- check values ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Crc:
    """Parameters of a cyclic redundancy check, as in Cook's Catalogue of Parametrised CRC Algorithms (reveng)."""

    width: int
    polynomial: int
    initial: int
    reflected: bool
    final_xor: int


CRCS: dict[str, Crc] = {
    "crc8": Crc(8, 0x07, 0x00, False, 0x00),  # CRC-8/SMBUS
    "crc8-maxim": Crc(8, 0x31, 0x00, True, 0x00),  # CRC-8/MAXIM-DOW
    "crc8-j1850": Crc(8, 0x1D, 0xFF, False, 0xFF),  # CRC-8/SAE-J1850
    "crc16-arc": Crc(16, 0x8005, 0x0000, True, 0x0000),  # CRC-16/ARC
    "crc16-modbus": Crc(16, 0x8005, 0xFFFF, True, 0x0000),  # CRC-16/MODBUS
    "crc16-ccitt-false": Crc(16, 0x1021, 0xFFFF, False, 0x0000),  # CRC-16/IBM-3740
    "crc16-xmodem": Crc(16, 0x1021, 0x0000, False, 0x0000),  # CRC-16/XMODEM
    "crc16-kermit": Crc(16, 0x1021, 0x0000, True, 0x0000),  # CRC-16/KERMIT
    "crc16-x25": Crc(16, 0x1021, 0xFFFF, True, 0xFFFF),  # CRC-16/IBM-SDLC
    "crc32": Crc(32, 0x04C11DB7, 0xFFFFFFFF, True, 0xFFFFFFFF),  # CRC-32/ISO-HDLC: Ethernet, zip
    "crc32c": Crc(32, 0x1EDC6F41, 0xFFFFFFFF, True, 0xFFFFFFFF),  # CRC-32/ISCSI
    "crc32-mpeg2": Crc(32, 0x04C11DB7, 0xFFFFFFFF, False, 0x00000000),  # CRC-32/MPEG-2
}


def check_size(name: CheckName) -> int:
    """Bytes of a check value; 0 without one."""
    if name == "none":
        return 0
    return CRCS[name].width // 8 if name in CRCS else 2 if name == "sum16" else 1


def check_value(name: CheckName, data: bytes) -> int:
    """The check value of ``data``: a CRC, the sum of all bytes, its two's complement, or their exclusive or.

    >>> hex(check_value("crc16-modbus", b"123456789"))
    '0x4b37'
    """
    if name in CRCS:
        return _crc(CRCS[name], data)
    if name == "xor8":
        return functools.reduce(lambda total, byte: total ^ byte, data, 0)
    if name == "sum8-complement":
        return -sum(data) & 0xFF
    return sum(data) & (0xFFFF if name == "sum16" else 0xFF)


def _crc(crc: Crc, data: bytes) -> int:
    table, mask, shift = _crc_table(crc), (1 << crc.width) - 1, crc.width - 8
    value = _mirrored(crc.initial, crc.width) if crc.reflected else crc.initial
    for byte in data:
        if crc.reflected:
            value = (value >> 8) ^ table[(value ^ byte) & 0xFF]
        else:
            value = ((value << 8) & mask) ^ table[(value >> shift) ^ byte]
    return value ^ crc.final_xor


@functools.cache
def _crc_table(crc: Crc) -> tuple[int, ...]:
    """What a byte does to the check value: the remainder of its eight bits."""
    top, mask = 1 << (crc.width - 1), (1 << crc.width) - 1
    table = []
    for byte in range(256):
        value = (_mirrored(byte, 8) if crc.reflected else byte) << (crc.width - 8)
        for _ in range(8):
            value = ((value << 1) ^ crc.polynomial if value & top else value << 1) & mask
        table.append(_mirrored(value, crc.width) if crc.reflected else value)
    return tuple(table)


def _mirrored(value: int, width: int) -> int:
    """The bits in reverse order."""
    return int(f"{value:0{width}b}"[::-1], 2)
