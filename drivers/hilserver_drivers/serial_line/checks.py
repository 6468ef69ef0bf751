"""Check values of messages: CRCs, calculated by fastcrc, and plain sums."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Literal

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

CRCS: dict[CheckName, tuple[int, str]] = {
    "crc8": (8, "smbus"),
    "crc8-maxim": (8, "maxim_dow"),
    "crc8-j1850": (8, "sae_j1850"),
    "crc16-arc": (16, "arc"),
    "crc16-modbus": (16, "modbus"),
    "crc16-ccitt-false": (16, "ibm_3740"),
    "crc16-xmodem": (16, "xmodem"),
    "crc16-kermit": (16, "kermit"),
    "crc16-x25": (16, "ibm_sdlc"),
    "crc32": (32, "iso_hdlc"),  # Ethernet, zip
    "crc32c": (32, "iscsi"),
    "crc32-mpeg2": (32, "mpeg_2"),
}
"""Width in bits and name in the Catalogue of Parametrised CRC Algorithms (reveng.sourceforge.io/crc-catalogue)."""


def check_size(name: CheckName) -> int:
    """Bytes of a check value; 0 without one."""
    if name == "none":
        return 0
    return CRCS[name][0] // 8 if name in CRCS else 2 if name == "sum16" else 1


def check_value(name: CheckName, data: bytes) -> int:
    """The check value of ``data``: a CRC, the sum of all bytes, its two's complement, or their exclusive or.

    >>> hex(check_value("crc16-modbus", b"123456789"))
    '0x4b37'
    """
    if name in CRCS:
        return _crc(name)(data)
    if name == "xor8":
        return functools.reduce(lambda total, byte: total ^ byte, data, 0)
    if name == "sum8-complement":
        return -sum(data) & 0xFF
    return sum(data) & (0xFFFF if name == "sum16" else 0xFF)


@functools.cache
def _crc(name: CheckName) -> Callable[[bytes], int]:
    """The function of fastcrc, which is imported only where a CRC is used: settings are read without it."""
    width, catalogued = CRCS[name]
    function: Callable[[bytes], int] = getattr(importlib.import_module(f"fastcrc.crc{width}"), catalogued)
    return function
