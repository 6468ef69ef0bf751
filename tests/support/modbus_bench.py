"""A Modbus device for tests, in a process of its own: at the network, and at a serial line."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from driver_bench import HardwareBench
from modbus_server import Server
from serial_port import Cable, Port

from hilserver_drivers.modbus import Modbus


class ModbusBench(HardwareBench):
    """A device with all four tables."""

    driver = Modbus
    timeout = 1.0
    channels: Mapping[str, Any] = {
        "timeout": "1 s",
        "hang_time": "3 s",
        "inputs": {
            "p_A": {"table": "input", "address": 0, "type": "int16"},
            "p_B": {"table": "input", "address": 1, "type": "int16"},
            "force": {"table": "holding", "address": 40, "type": "float32", "order": "CDAB"},
            "stop": {"table": "discrete", "address": 3},
        },
        "outputs": {
            "valve": {"table": "holding", "address": 100, "type": "int16", "safe": 0},
            "pump": {"table": "holding", "address": 101, "type": "float32", "safe": -1.5},
            "enable": {"table": "coil", "address": 9, "safe": 0},
        },
    }

    def __init__(self, server: Server, line: Mapping[str, Any]) -> None:
        self.server = server
        self.settings = {**self.channels, **line}
        self.input_span = {"p_A": (-20_000, 12_345), "p_B": (17, 32_000), "force": (-0.75, 1234.5), "stop": (0, 1)}
        self.output_span = {"valve": (-3000, 3000), "pump": (0.25, 750.5), "enable": (0, 1)}
        self.safe = {"valve": 0.0, "pump": -1.5, "enable": 0.0}

    def measure(self, values: Mapping[str, float]) -> None:
        both = struct.unpack(">HH", struct.pack(">hh", int(values["p_A"]), int(values["p_B"])))
        self.server.set("input", 0, list(both))
        self.server.set("holding", 40, [*struct.unpack(">HH", struct.pack(">f", values["force"]))][::-1])
        self.server.set("discrete", 3, [int(values["stop"])])

    def written(self) -> list[tuple[str, float]]:
        return list(itertools.chain.from_iterable(self._values(*entry) for entry in self.server.written()))

    @staticmethod
    def _values(unit: int, function: int, address: int, values: list[int]) -> Iterator[tuple[str, float]]:
        assert unit == 1
        if function == 15:
            assert (address, len(values)) == (9, 1)
            yield "enable", values[0]
            return
        assert function == 16
        data = struct.pack(f">{len(values)}H", *values)
        if address == 100:
            yield "valve", struct.unpack(">h", data[:2])[0]
            address, data = 101, data[2:]
        if data:
            assert address == 101
            yield "pump", struct.unpack(">f", data)[0]

    def close(self) -> None:
        self.server.close()


class TcpBench(ModbusBench):
    """At the network; unplugged, it refuses connections."""

    def __init__(self) -> None:
        server = Server("tcp", "0")
        super().__init__(server, {"tcp": {"host": "127.0.0.1", "port": server.port}})

    def unplug(self) -> None:
        self.server.do("down")

    def plug(self) -> None:
        self.server.do("up")


class RtuBench(ModbusBench):
    """At a serial line; unplugged, the port's device file is gone."""

    def __init__(self, folder: Path) -> None:
        self.cable = Cable(Port(folder / "near"), Port(folder / "far"))
        super().__init__(Server("rtu", str(folder / "far")), {"rtu": {"port": str(folder / "near"), "baud": 115_200}})

    def unplug(self) -> None:
        self.cable.unplug()

    def plug(self) -> None:
        self.cable.plug()

    def close(self) -> None:
        super().close()
        self.cable.close()
