"""CPU levels: what a processor can do, as defined for x86-64 by its psABI. The results are the same at each level."""

from __future__ import annotations

import functools
import platform
from pathlib import Path

X86_64 = "x86-64"
V2 = "x86-64-v2"
V3 = "x86-64-v3"
NEEDED_FOR_V3 = {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}
"""Flags in /proc/cpuinfo of a processor of level 3."""


def levels() -> tuple[str, ...]:
    """The levels for which a program is built on this kind of machine."""
    return (V2, V3) if platform.machine() == "x86_64" else (platform.machine(),)


@functools.cache
def level_of_this_machine(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The highest of these levels that this processor has."""
    if platform.machine() != "x86_64":
        return platform.machine()
    flags = [line for line in cpuinfo.read_text().splitlines() if line.startswith("flags")]
    return V3 if flags and set(flags[0].split()) >= NEEDED_FOR_V3 else V2
