"""A system clock that jumps, a disk that is full or slow (fake_system.c), for a server that a test starts."""

from __future__ import annotations

import ctypes
import mmap
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("fake_system.c")

needs_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc, which builds the fake system, is missing")


class State(ctypes.Structure):
    """What is to happen, as ``struct state``."""

    _fields_ = (
        ("clock_offset", ctypes.c_double),
        ("free_bytes", ctypes.c_double),
        ("write_delay", ctypes.c_double),
        ("full", ctypes.c_int64),
    )


class FakeSystem:
    """The fake for processes with this `environment`; its values may be changed at any time.

    ``clock_offset``: s that the system clock is ahead; ``free_bytes``: room on every disk, -1: as it is;
    ``write_delay``: s that each write to a log takes longer; ``full``: whether such a write fails.
    """

    def __init__(self, folder: Path) -> None:
        library, file = folder / "fake_system.so", folder / "fake_system.state"
        flags = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
        subprocess.run(["gcc", *flags, str(SOURCE), "-o", str(library), "-ldl"], check=True)
        file.write_bytes(bytes(State(free_bytes=-1.0)))
        with file.open("r+b") as opened:
            self._memory = mmap.mmap(opened.fileno(), ctypes.sizeof(State))
        self._state = State.from_buffer(self._memory)
        self.environment = {"LD_PRELOAD": str(library), "FAKE_SYSTEM": str(file)}

    def set(self, **values: float) -> None:
        """Change what is to happen, from now on."""
        for name, value in values.items():
            if name not in {field[0] for field in State._fields_}:
                raise ValueError(f"{name} is not a value of the fake system")
            setattr(self._state, name, value)

    def repair(self) -> None:
        """All as it really is, but for the clock."""
        self.set(free_bytes=-1.0, write_delay=0.0, full=0)
