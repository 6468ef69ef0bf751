"""Numbers in the bytes of a message, as in register maps and frames."""

from __future__ import annotations

import math
import string
import struct
from typing import Literal

NumberType = Literal[
    "int8", "uint8", "int16", "uint16", "int24", "uint24", "int32", "uint32", "int64", "uint64", "float32", "float64"
]

ByteOrder = Literal["little", "big"]


def size_of(kind: NumberType) -> int:
    """Size of a number in bytes.

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
    """A finite ``value`` as bytes: rounded for integers, and limited to the type's range instead of wrapping around.

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
