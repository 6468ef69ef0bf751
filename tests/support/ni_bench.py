"""The card of the fake NI library as a driver's bench, and NI drivers with just the settings that a test wants."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
from driver_bench import HardwareBench
from fake_nidaqmx import AI, DI, FakeNi

from hilserver_drivers.ni import NiDaq


class NiBench(HardwareBench):
    """The card Dev1 with analog and digital channels."""

    driver = NiDaq
    terminals: ClassVar = {
        "valve": "Dev1/ao1",
        "pump": "Dev1/ao0",
        "enable": "Dev1/port0/line4",
        "block": "Dev1/port0/line5",
    }

    def __init__(self, ni: FakeNi) -> None:
        self.ni = ni
        self.environment = ni.environment
        self.settings = {
            "device": "Dev1",
            "inputs": {
                "p_A": {"channel": "ai2"},
                "p_B": {"channel": "ai0"},
                "e_stop": {"channel": "port0/line1"},
                "p_S": {"channel": "Dev1/ai5", "range": [0, 10]},
                "door": {"channel": "port0/line0"},
            },
            "outputs": {
                "valve": {"channel": "ao1", "safe": 0.25},
                "enable": {"channel": "port0/line4"},
                "pump": {"channel": "ao0", "range": [0, 10]},
                "block": {"channel": "port0/line5", "safe": 1},
            },
        }
        self.input_span = {"p_A": (-1, 9.5), "p_B": (0.5, 3), "e_stop": (0, 1), "p_S": (1, 2), "door": (0, 1)}
        self.output_span = {"valve": (-10, 10), "enable": (1, 0), "pump": (1, 9), "block": (0, 1)}
        self.safe = {"valve": 0.25, "enable": 0.0, "pump": 0.0, "block": 1.0}
        self.timeout = 0.01

    def measure(self, values: Mapping[str, float]) -> None:
        device = self.ni.device()
        places = {"p_A": (AI, 2), "p_B": (AI, 0), "e_stop": (DI, 1), "p_S": (AI, 5), "door": (DI, 0)}
        for name, value in values.items():
            kind, index = places[name]
            device.value[kind][index] = value

    def written(self) -> list[tuple[str, float]]:
        names = {terminal: name for name, terminal in self.terminals.items()}
        return [(names[terminal], value) for terminal, value in self.ni.written()]

    def unplug(self) -> None:
        self.ni.unplug()

    def plug(self) -> None:
        self.ni.plug()


Opened = Callable[..., NiDaq]


@contextmanager
def opening() -> Iterator[Opened]:
    """A function that opens a driver for a device with these settings; all are closed at the end."""
    made = []

    def make(**settings: Any) -> NiDaq:
        config = NiDaq.Config.model_validate({"device": "Dev1", **settings})
        io = NiDaq("io", config, tuple(config.inputs), tuple(config.outputs))
        made.append(io)
        io.open()
        return io

    yield make
    for io in made:
        io.close()


def read(io: NiDaq) -> dict[str, float]:
    values, ages = np.full(len(io.inputs), 1e33), np.full(len(io.inputs), -1.0)
    io.read(values, ages)
    return dict(zip(io.inputs, values.tolist(), strict=True))


def write(io: NiDaq, **values: float) -> None:
    io.write(np.array([values[name] for name in io.outputs], dtype=np.float64))


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def of(calls: list[str], *names: str) -> list[str]:
    """The calls of these functions."""
    return [call for call in calls if call.split()[0] in names]


EVERYTHING: dict[str, Any] = {
    "inputs": {
        "p": {"channel": "ai0"},
        "stop": {"channel": "port0/line7"},
        "x": {"channel": "ctr0", "signal": "encoder"},
    },
    "outputs": {"valve": {"channel": "ao0"}, "enable": {"channel": "port0/line0"}},
}
