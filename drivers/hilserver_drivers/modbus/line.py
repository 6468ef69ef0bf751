"""Modbus requests, the check of their answers, and the two kinds of framing: TCP and RTU.

A value must come from the answer to its request and from nothing else. Checked are: transaction, protocol and length
(TCP) or CRC (RTU), unit, function, byte count, and that the answer to a write repeats the written data.

Requests and exceptions as in MODBUS Application Protocol Specification V1.1b3; serial timing as in MODBUS over Serial
Line V1.02; the header as in MODBUS Messaging on TCP/IP Implementation Guide V1.0b (all from modbus.org).
"""

from __future__ import annotations

import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from hilserver_drivers.wire import PortSettings, SerialWire, TcpSettings, TcpWire, Wire

Table = Literal["holding", "input", "coil", "discrete"]

READ_FUNCTION: Mapping[Table, int] = {"coil": 1, "discrete": 2, "holding": 3, "input": 4}
BITS = ("coil", "discrete")
READ_AT_ONCE, WRITTEN_AT_ONCE, BITS_PER_REGISTER = 125, 123, 16
"""Maximum number of registers in one request; for coils and discrete inputs 16 times as many (2000 and 1968)."""
EXCEPTIONS = {
    1: "illegal function",
    2: "illegal data address",
    3: "illegal data value",
    4: "server device failure",
    5: "acknowledge",
    6: "server device busy",
    8: "memory parity error",
    10: "gateway path unavailable",
    11: "gateway target device failed to respond",
}
SILENT_ANSWERS = 3
"""Number of requests without an answer after which a TCP connection counts as dead."""
SILENCE = 0.02
"""s without a character after which a disturbed serial line is used again (a USB converter delays them by 16 ms)."""


@dataclass(frozen=True)
class ModbusRequest:
    """A request, and the first bytes and the length of its answer."""

    unit: int
    pdu: bytes
    head: bytes
    size: int


class BadAnswer(Exception):
    """There is no usable answer; failures are counted by ``name``, the text is for the user."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


class ExceptionAnswer(BadAnswer):
    """The device refused the request."""

    def __init__(self, code: int) -> None:
        words = EXCEPTIONS.get(code, "")
        reason = f"{words} ({code})" if words else f"code {code}"
        super().__init__(f"exception {code} {words}".strip(), f"rejected by the device: {reason}")
        self.code = code


def read_request(unit: int, table: Table, address: int, count: int) -> ModbusRequest:
    """Read ``count`` registers or bits."""
    from pymodbus.pdu import bit_message, register_message

    kind: Any = {
        "coil": bit_message.ReadCoilsRequest,
        "discrete": bit_message.ReadDiscreteInputsRequest,
        "holding": register_message.ReadHoldingRegistersRequest,
        "input": register_message.ReadInputRegistersRequest,
    }[table]
    n_bytes = (count + 7) // 8 if table in BITS else 2 * count
    function = READ_FUNCTION[table]
    pdu = bytes([function]) + kind(address=address, count=count).encode()
    return ModbusRequest(unit, pdu, bytes([function, n_bytes]), 2 + n_bytes)


def write_request(unit: int, table: Table, address: int, data: bytes, single: bool) -> ModbusRequest:
    """Write registers (``data``: two bytes each) or coils (one byte each, 0 or 1); the answer repeats the request."""
    from pymodbus.pdu import bit_message, register_message

    message: Any
    if table == "coil" and single:
        message = bit_message.WriteSingleCoilRequest(address=address, bits=[bool(data[0])])
    elif table == "coil":
        message = bit_message.WriteMultipleCoilsRequest(address=address, bits=[bool(bit) for bit in data])
    elif single:
        message = register_message.WriteSingleRegisterRequest(address=address, registers=[*_registers(data)])
    else:
        message = register_message.WriteMultipleRegistersRequest(address=address, registers=[*_registers(data)])
    pdu = bytes([message.function_code]) + message.encode()
    return ModbusRequest(unit, pdu, pdu[:5], 5)


def _registers(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f">{len(data) // 2}H", data)


def answered_data(request: ModbusRequest, unit: int, pdu: bytes) -> bytes:
    """The data of an answer. Raises BadAnswer unless it is the answer to this request."""
    function = request.pdu[0]
    if unit != request.unit:
        raise BadAnswer("wrong unit", f"unit {unit} answered instead of {request.unit}")
    if pdu[0] & 0x7F != function:
        raise BadAnswer("wrong function", f"the answer is to function {pdu[0] & 0x7F} instead of {function}")
    if pdu[0] & 0x80:
        if len(pdu) != 2:
            raise BadAnswer("wrong length", f"an exception of {len(pdu)} bytes instead of 2")
        raise ExceptionAnswer(pdu[1])
    if len(pdu) != request.size:
        raise BadAnswer("wrong length", f"an answer of {len(pdu)} bytes instead of {request.size}")
    if not pdu.startswith(request.head):
        if len(request.head) == 2:
            raise BadAnswer("wrong length", f"the answer announces {pdu[1]} bytes of data instead of {request.head[1]}")
        raise BadAnswer("wrong echo", "the answer does not repeat the data to be written")
    return pdu[len(request.head) :]


# --- the two kinds of connection -------------------------------------------------------------------------------------


class ModbusLine(ABC):
    """Sends requests and receives the frames of answers."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.stray: list[BadAnswer] = []
        """Bytes that arrived without a request, not yet counted."""

    @abstractmethod
    def start_anew(self) -> None:
        """Discard all data of the previous connection."""

    @abstractmethod
    def ask(self, request: ModbusRequest, deadline: float) -> bytes:
        """The data of the answer. Raises BadAnswer, WireError."""


class TcpLine(ModbusLine):
    """Frames with a header: transaction, protocol, length, unit."""

    HEADER = struct.Struct(">HHHB")

    def __init__(self, settings: TcpSettings) -> None:
        from pymodbus.framer import FramerSocket
        from pymodbus.pdu import DecodePDU

        super().__init__(TcpWire(settings))
        self._framer = FramerSocket(DecodePDU(False))
        self._buffer = b""
        self._transaction = self._silent = 0

    def start_anew(self) -> None:
        """Discard partial frames and the count of requests without an answer."""
        self._buffer, self._silent = b"", 0

    def ask(self, request: ModbusRequest, deadline: float) -> bytes:
        """The data of the answer; late answers to earlier requests are skipped."""
        self._transaction = self._transaction % 0xFFFF + 1
        self.wire.send(self._framer.encode(request.pdu, request.unit, self._transaction), deadline)
        while True:
            transaction, unit, pdu = self._frame(deadline)
            if transaction == self._transaction:
                return answered_data(request, unit, pdu)
            text = f"the answer is to request {transaction}, not to {self._transaction}"
            self.stray.append(BadAnswer("wrong transaction", text))
            if time.monotonic() >= deadline:
                raise BadAnswer("timeout", "only answers to other requests arrived")

    def _frame(self, deadline: float) -> tuple[int, int, bytes]:
        """The next frame: transaction, unit, PDU. If frames can no longer be separated, a new connection is made."""
        while True:
            if len(self._buffer) >= self.HEADER.size:
                transaction, protocol, length, unit = self.HEADER.unpack_from(self._buffer)
                if protocol != 0:
                    raise self._lost("wrong protocol", f"protocol {protocol} instead of 0")
                if not 3 <= length <= 254:
                    raise self._lost("wrong length", f"a frame announces {length} bytes; only 3 to 254 are possible")
                if len(self._buffer) >= 6 + length:
                    pdu, self._buffer = self._buffer[7 : 6 + length], self._buffer[6 + length :]
                    self._silent = 0
                    return transaction, unit, pdu
            data = self.wire.receive(deadline)
            if not data and self._buffer:
                raise self._lost("wrong length", f"only {len(self._buffer)} bytes of an answer arrived")
            if not data:
                raise self._no_answer()
            self._buffer += data

    def _no_answer(self) -> BadAnswer:
        self._silent += 1
        if self._silent >= SILENT_ANSWERS:
            self.wire.close()
        return BadAnswer("timeout", "no answer")

    def _lost(self, name: str, text: str) -> BadAnswer:
        self.wire.close()
        return BadAnswer(name, text)


class RtuLine(ModbusLine):
    """Frames with unit and CRC on a serial line. They have no number, so late answers are distinguished by time alone.

    After a request without an answer, no request is sent for one more timeout, and bytes that arrive in this time are
    dropped.
    """

    def __init__(self, settings: PortSettings, timeout: float) -> None:
        from pymodbus.framer import FramerRTU
        from pymodbus.pdu import DecodePDU

        super().__init__(SerialWire(settings))
        self._framer = FramerRTU(DecodePDU(False))
        self._timeout = timeout
        self._gap = max(3.5 * settings.character_time, 0.00175)
        """s between two frames: 3.5 characters, at least 1.75 ms."""
        self._last = 0.0

    def start_anew(self) -> None:
        """Reset the time of the last frame."""
        self._last = 0.0

    def ask(self, request: ModbusRequest, deadline: float) -> bytes:
        """The data of the answer."""
        if dropped := self.wire.waiting():
            self.stray.append(BadAnswer("unexpected bytes", f"{len(dropped)} bytes arrived without a request"))
        time.sleep(max(self._last + self._gap - time.monotonic(), 0.0))
        self.wire.send(self._framer.encode(request.pdu, request.unit, 0), deadline)
        frame = self._frame(request, deadline)
        try:
            return answered_data(request, frame[0], frame[1:-2])
        except ExceptionAnswer:
            raise
        except BadAnswer:  # possibly of another request: the right one may still follow
            self.wire.settle(self._timeout)
            raise

    def _frame(self, request: ModbusRequest, deadline: float) -> bytes:
        """A frame with a correct CRC and the length of the expected answer, or five bytes for an exception."""
        frame = b""
        while len(frame) < (size := self._size(request, frame)):
            if data := self.wire.receive(deadline):
                frame += data
            elif not frame:
                self.wire.settle(self._timeout)
                raise BadAnswer("timeout", "no answer")
            elif self._is_whole(frame):
                break
            else:
                self.wire.settle(SILENCE)
                raise BadAnswer("wrong length", f"only {len(frame)} of {size} bytes of an answer arrived")
        self._last = time.monotonic()
        frame = frame[:size]
        if not self._is_whole(frame):
            self.wire.settle(SILENCE)
            raise BadAnswer("crc", "the answer is corrupted (wrong CRC)")
        return frame

    @staticmethod
    def _size(request: ModbusRequest, frame: bytes) -> int:
        return 5 if len(frame) > 1 and frame[1] & 0x80 else 1 + request.size + 2

    def _is_whole(self, frame: bytes) -> bool:
        return len(frame) >= 4 and self._framer.compute_CRC(frame[:-2]) == int.from_bytes(frame[-2:], "big")
