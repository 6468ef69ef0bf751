"""A real pymodbus server in a process of its own, with a hand on its registers and its faults.

    python tests/support/modbus_server.py tcp PORT            (0: any; it says which)
    python tests/support/modbus_server.py rtu DEVICE_FILE

Takes one command per line on its standard input, in JSON, and answers each with one line. Used by the tests and
benchmarks of the Modbus driver through :class:`Server`.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any, ClassVar

from pymodbus.constants import ExcCodes
from pymodbus.framer import FramerType
from pymodbus.server import ModbusSerialServer, ModbusTcpServer
from pymodbus.simulator import DataType, SimData, SimDevice

UNITS = (1, 2)
SIZE = 1000
"""Registers and bits per table; beyond is an illegal address."""


class Server:
    """The server's process, as its tests see it."""

    def __init__(self, kind: str, where: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, kind, where], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.port: int = self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def do(self, command: str, **arguments: Any) -> Any:
        """Carry out a command; returns its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"command": command, **arguments}) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def set(self, table: str, address: int, values: list[int], unit: int = 1) -> None:
        """Values of registers (bits), as the device's own doing."""
        self.do("set", table=table, address=address, values=values, unit=unit)

    def get(self, table: str, address: int, count: int = 1, unit: int = 1) -> list[int]:
        """What registers (bits) hold."""
        return list(self.do("get", table=table, address=address, count=count, unit=unit))

    def written(self) -> list[tuple[int, int, int, list[int]]]:
        """All writes so far: unit, function, address, values."""
        return [tuple(entry) for entry in self.do("written")]

    def reads(self) -> list[tuple[int, int, int, int]]:
        """All reads since this was last asked: unit, function, address, count."""
        return [tuple(entry) for entry in self.do("reads")]

    def close(self) -> None:
        """End the process."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


class Device:
    """The server's side."""

    FUNCTION: ClassVar = {"coil": 1, "discrete": 2, "holding": 3, "input": 4}
    READS = (1, 2, 3, 4)

    def __init__(self, kind: str, where: str) -> None:
        self.kind, self.where = kind, where
        self.server: Any = None
        self.working = 0
        """Requests that are not answered yet."""
        self.forget()

    def forget(self) -> None:
        """No faults, nothing asked or written so far."""
        self.log: list[tuple[int, int, int, list[int]]] = []
        self.asked: list[tuple[int, int, int, int]] = []
        self.exception = 0
        """Exception with which every request is answered, 0 for none; and every write."""
        self.refusal = 0
        self.deaf = False
        """Whether what was written and acknowledged is 0 when it is read."""
        self.lost: list[tuple[int, int, int, list[int]]] = []
        self.delay = 0.0
        self.answers: list[str] = []
        """What is sent in the place of the next answers: bytes as hexadecimal digits, nothing, disconnect."""
        self.asleep = False

    async def start(self) -> int:
        """Listen, with all values 0; returns the port."""
        bits, registers = ({"count": SIZE, "datatype": kind} for kind in (DataType.BITS, DataType.REGISTERS))
        blocks = ([SimData(0, **bits, values=False)] * 2, [SimData(0, **registers)] * 2)  # type: ignore[arg-type]
        devices = [
            SimDevice(
                id=unit,
                simdata=([blocks[0][0]], [blocks[0][1]], [blocks[1][0]], [blocks[1][1]]),
                action=self.action_of(unit),
            )
            for unit in UNITS
        ]
        if self.kind == "rtu":
            self.server = ModbusSerialServer(
                devices, framer=FramerType.RTU, port=self.where, baudrate=115_200, trace_packet=self.trace
            )
            await self.server.serve_forever(background=True)
            return 0
        self.server = ModbusTcpServer(devices, address=("127.0.0.1", int(self.where)), trace_packet=self.trace)
        await self.server.serve_forever(background=True)
        port: int = self.server.transport.sockets[0].getsockname()[1]
        self.where = str(port)
        return port

    def action_of(self, unit: int) -> Any:
        async def action(function: int, _: int, address: int, count: int, __: Any, values: Any) -> ExcCodes | None:
            if self.asleep:  # the test's own look
                return None
            if values is not None:
                self.log.append((unit, function, address, [int(value) for value in values]))
                if self.deaf:
                    self.lost.append((unit, 1 if function in (5, 15) else 3, address, [0] * len(values)))
            elif function in self.READS:
                self.asked.append((unit, function, address, count))
                await self.lose()
            self.working += 1
            try:
                await asyncio.sleep(self.delay)
            finally:
                self.working -= 1
            refused = self.exception or (self.refusal if values is not None else 0)
            return ExcCodes(refused) if refused else None

        return action

    async def lose(self) -> None:
        """Let go of what was not applied."""
        lost, self.lost, self.asleep = self.lost, [], True
        for unit, function, address, zeros in lost:
            await self.server.async_setValues(unit, function, address, zeros if function > 1 else [False] * len(zeros))
        self.asleep = False

    def trace(self, sending: bool, data: bytes) -> bytes:
        """Damages an answer, where the test wants it."""
        if not sending or not self.answers:
            return data
        what = self.answers.pop(0)
        if what == "nothing":
            return b""
        if what == "disconnect":
            self.drop()
            return b""
        return bytes.fromhex(what)

    def drop(self) -> None:
        """Close all connections."""
        for connection in list(self.server.active_connections.values()):
            connection.close()

    async def carry_out(self, command: str, **given: Any) -> Any:
        """One command of the test."""
        if command in ("set", "get"):
            function = self.FUNCTION[given["table"]]
            self.asleep = True
            try:
                place = given["unit"], function, given["address"]
                if command == "set":
                    values = [bool(v) if function < 3 else v for v in given["values"]]
                    return await self.server.async_setValues(*place, values)
                return [int(v) for v in await self.server.async_getValues(*place, given["count"])]
            finally:
                self.asleep = False
        if command == "written":
            return self.log
        if command == "reads":
            asked, self.asked = self.asked, []
            return asked
        if command == "fault":
            # a late answer to an earlier request must not take this fault
            while self.working:  # noqa: ASYNC110 - there is nothing else to wait for
                await asyncio.sleep(0.001)
            for name, value in given.items():
                setattr(self, name, value)
        elif command == "drop":
            self.drop()
        elif command == "down":
            await self.server.shutdown()
        elif command == "up":
            await self.start()
        elif command == "anew":
            await self.server.shutdown()
            self.forget()
            await self.start()
        return None


async def main(kind: str, where: str) -> None:
    """Serve until the standard input ends."""
    device = Device(kind, where)
    print(json.dumps(await device.start()), flush=True)
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        print(json.dumps(await device.carry_out(**json.loads(line))), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
