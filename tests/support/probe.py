"""A device for tests in a file: what it measures and what is done to it comes from there, what it gets goes there.

Two drivers for it, `FastProbe` for the loop and `SlowProbe` for a worker. Its file is shared memory: a test that holds
a `ProbeDevice` sees and moves the same device as the processes of a server.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.driver import ChannelInfo, Driver, DriverConfig, Floats, FoundDevice, Pace, SlowDriverConfig
from hilserver.errors import DriverError

INPUTS, OUTPUTS = ("a", "b", "c", "d"), ("u", "v")
SAFE = {"u": -1.0, "v": -2.0}
WORKS, UNPLUGGED, HANGS, GIVES_UP, IS_DEFECT, CRASHES = range(6)
"""What happens at the next read."""
CONDITION, READS, FIRST_INPUT, FIRST_OUTPUT, SIZE = 0, 1, 2, 6, 8


class ProbeDevice:
    """The device: condition, inputs, outputs; and a journal of what its drivers did, one line each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal_path = path.with_suffix(".journal")
        if not path.exists():
            path.write_bytes(np.zeros(SIZE).tobytes())
            self.journal_path.touch()
        with path.open("r+b") as file:
            self._memory = np.frombuffer(mmap.mmap(file.fileno(), 8 * SIZE), np.float64)

    @property
    def condition(self) -> int:
        return int(self._memory[CONDITION])

    @condition.setter
    def condition(self, condition: int) -> None:
        self._memory[CONDITION] = condition

    @property
    def reads(self) -> int:
        return int(self._memory[READS])

    def measure(self, **values: float) -> None:
        for name, value in values.items():
            self._memory[FIRST_INPUT + INPUTS.index(name)] = value

    def output(self, name: str) -> float:
        return float(self._memory[FIRST_OUTPUT + OUTPUTS.index(name)])

    def journal(self) -> list[str]:
        return self.journal_path.read_text().splitlines()

    # --- for its drivers ---

    def note(self, what: str) -> None:
        with self.journal_path.open("a") as file:
            file.write(f"{what} {os.getpid()}\n")

    def input(self, name: str) -> float:
        return float(self._memory[FIRST_INPUT + INPUTS.index(name)])

    def put(self, name: str, value: float) -> None:
        self._memory[FIRST_OUTPUT + OUTPUTS.index(name)] = value

    def count_read(self) -> None:
        self._memory[READS] += 1


class FastProbeConfig(DriverConfig):
    """Settings of a probe that the loop reads."""

    file: str


class SlowProbeConfig(SlowDriverConfig):
    """Settings of a probe that a worker reads."""

    file: str


class FastProbe(Driver):
    """The probe as the loop reads it."""

    Config = FastProbeConfig

    @classmethod
    def channels(cls, config: Any) -> tuple[Sequence[ChannelInfo], Sequence[ChannelInfo]]:
        return [ChannelInfo(name, "V", f"input {name}") for name in INPUTS], [ChannelInfo(n, "V") for n in OUTPUTS]

    @classmethod
    def discover(cls) -> Sequence[FoundDevice]:
        return [FoundDevice("probe", "a device in a file", {"file": "probe"}, *cls.channels(None))]

    def open(self) -> None:
        self._device = ProbeDevice(Path(self.config.file))
        if self._device.condition == UNPLUGGED:
            raise DriverError(f"device {self.name}: it is unplugged.")
        self._device.note("open")
        self._last = dict.fromkeys(self.outputs, float("nan"))

    def read(self, values: Floats, ages: Floats) -> None:
        device = self._device
        device.count_read()
        if device.condition == GIVES_UP:
            raise DriverError(f"device {self.name}: it must not go on.")
        if device.condition == IS_DEFECT:
            raise ZeroDivisionError("a defect")
        if device.condition == CRASHES:
            os._exit(3)
        while device.condition == HANGS:
            time.sleep(0.01)
        if device.condition == UNPLUGGED:
            self.failed("unplugged", f"device {self.name}: it is unplugged.")
            values[:] = float("nan")
            return
        values[:], ages[:] = [device.input(name) for name in self.inputs], 0.0

    def write(self, values: Floats) -> None:
        self._put(dict(zip(self.outputs, values.tolist(), strict=True)), "write")

    def make_safe(self) -> None:
        if self._device.condition == UNPLUGGED:
            self.failed("unplugged", f"device {self.name}: it is unplugged.")
            raise DriverError(self.last_error)
        self._put({name: SAFE[name] for name in self.outputs}, "safe")

    def _put(self, values: dict[str, float], how: str) -> None:
        if self._device.condition == UNPLUGGED:
            return
        for name, value in values.items():
            self._device.put(name, value)
        if values != self._last:
            self._last = values
            self._device.note(how)

    def close(self) -> None:
        if hasattr(self, "_device"):
            self._device.note("close")
            del self._device


class SlowProbe(FastProbe):
    """The probe as a worker reads it."""

    Config = SlowProbeConfig  # type: ignore[assignment]
    pace = Pace.SLOW


def install(folder: Path) -> tuple[Path, Path]:
    """A package that offers both drivers; returns what belongs on the path of those who are to find it."""
    info = folder / "probe-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: probe\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[hilserver.drivers]\nfast_probe = probe:FastProbe\nslow_probe = probe:SlowProbe\n"
    )
    return folder, Path(__file__).parent
