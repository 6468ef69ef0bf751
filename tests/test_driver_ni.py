"""The NI-DAQmx driver through the real nidaqmx package, on a fake of the library below it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pytest
from driver_conformance import HardwareBench, HardwareConformance
from fake_nidaqmx import AI, DI, FakeNi, needs_compiler

from hilserver_drivers.ni import NiDaq

pytestmark = needs_compiler


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


class TestNi(HardwareConformance):
    """On demand."""

    @pytest.fixture
    def bench(self, fake_ni: FakeNi) -> NiBench:
        return NiBench(fake_ni)
