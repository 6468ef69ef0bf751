"""Devices at a serial line for tests: lines and frames, by themselves and when asked."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from driver_bench import HardwareBench
from serial_port import Port, Served

from hilserver_drivers.serial_line import SerialLine


def bitwise_crc(data: bytes, width: int, polynomial: int, initial: int) -> int:
    """A CRC of reflected bits, bit by bit: another way than the driver's tables. ``polynomial`` is reflected, too."""
    crc = initial
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ polynomial if crc & 1 else crc >> 1
    return crc & ((1 << width) - 1)


class SerialBench(HardwareBench):
    """A device with two outputs, "V 1.5" and "E 1" in lines of text."""

    driver = SerialLine
    timeout = 1.0
    message: Mapping[str, Any]
    answers = False
    asked = False

    def __init__(self, folder: Path) -> None:
        self.log: list[tuple[str, float]] = []
        self.values = {"p_A": 0.0, "p_B": 0.0, "stop": 0.0}
        self.requests = 0
        self._heard = b""
        self.output_span = {"valve": (-1.5, 7.25), "enable": (0, 1)}
        self.safe = {"valve": 0.5, "enable": 0}
        self.line = Served(Port(folder / "ttyUSB0"), self.hear, bytes if self.asked else self.say)
        self.settings = {
            "port": str(self.line.port.path),
            "baud": 115_200,
            "timeout": "1 s",
            "hang_time": "3 s",
            "outputs": {
                "valve": {"format": "V {:.3f}\r\n", "safe": 0.5},
                "enable": {"format": "E {:.0f}\r\n", "safe": 0},
            },
            **({"answer": "OK"} if self.answers else {}),
            **self.message,
        }

    def say(self) -> bytes:
        """The device's message."""
        raise NotImplementedError

    def hear(self, data: bytes) -> bytes:
        """What it answers: to commands OK, if it does so; to a question its message."""
        *lines, self._heard = (self._heard + data).split(b"\n")
        said = b""
        for line in lines:
            word, _, number = line.decode("ascii").strip().partition(" ")
            if word == "?":
                self.requests += 1
                said += self.say()
            else:
                self.log.append(({"V": "valve", "E": "enable"}[word], float(number)))
                said += b"OK\r\n" if self.answers else b""
        return said

    def measure(self, values: Mapping[str, float]) -> None:
        self.values = dict(values)

    def written(self) -> list[tuple[str, float]]:
        time.sleep(0.003)  # what was written may still be in the kernel
        self.line.serve()
        return list(self.log)

    def unplug(self) -> None:
        self._heard = b""
        self.line.unplug()

    def plug(self) -> None:
        self.line.plug()

    def close(self) -> None:
        self.line.close()


class LineBench(SerialBench):
    """Numbers in columns, ten significant digits."""

    def __init__(self, folder: Path) -> None:
        self.input_span = {"p_A": (-1.25, 200.5), "p_B": (0.001, 3e6), "stop": (0, 1)}
        super().__init__(folder)

    message: Mapping[str, Any] = {
        "lines": {"separator": ";", "columns": 3},
        "inputs": {"p_A": {"column": 0}, "p_B": {"column": 2}, "stop": {"column": 1}},
    }

    def say(self) -> bytes:
        v = self.values
        return f"{v['p_A']:.9e}; {v['stop']:.0f};{v['p_B']:.9e}\r\n".encode("ascii")


class AskedLineBench(LineBench):
    """The same, when asked; commands are answered with OK."""

    asked = answers = True
    message: Mapping[str, Any] = {**LineBench.message, "request": "?\r\n"}


class AnsweringLineBench(LineBench):
    """Lines come by themselves, with the answers to commands among them."""

    answers = True


class FrameBench(SerialBench):
    """Frames with a length and the CRC of Modbus."""

    def __init__(self, folder: Path) -> None:
        self.input_span = {"p_A": (-3, 0x5AA), "p_B": (0xAA55AA, 7), "stop": (0, 1)}
        super().__init__(folder)

    message: Mapping[str, Any] = {
        "frame": {"start": "AA 55", "length": "uint8", "size": 7, "check": "crc16-modbus", "check_from": 2},
        "inputs": {
            "p_A": {"byte": 0, "type": "int16"},
            "p_B": {"byte": 3, "type": "uint24"},
            "stop": {"byte": 2, "type": "uint8", "bit": 5},
        },
    }

    def say(self) -> bytes:
        v = {name: int(value) for name, value in self.values.items()}
        payload = struct.pack("<hB", v["p_A"], 0xDF | v["stop"] << 5) + struct.pack("<I", v["p_B"])[:3] + b"\xaa"
        body = bytes([len(payload)]) + payload
        return b"\xaa\x55" + body + bitwise_crc(body, 16, 0xA001, 0xFFFF).to_bytes(2, "little")


class AskedFrameBench(FrameBench):
    """The same, when asked."""

    asked = True
    message: Mapping[str, Any] = {**FrameBench.message, "request": b"?\n".hex()}
