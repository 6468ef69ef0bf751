"""The Modbus driver's values and requests, over TCP: types, orders of bytes, groups, changes, watchdog register."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from driver_bench import Session
from modbus_bench import TcpBench
from modbus_server import Server
from modbus_session import opened, place
from pymodbus.client.mixin import ModbusClientMixin

from hilserver.errors import DriverError

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tcp: TcpBench) -> Server:
    return tcp.server


@pytest.fixture
def open_(server: Server) -> Iterator[Callable[..., Session]]:
    sessions = []

    def open_session(**settings: Any) -> Session:
        sessions.append(opened(server, **settings))
        return sessions[-1]

    yield open_session
    for session in sessions:
        session.driver.close()


# --- values ----------------------------------------------------------------------------------------------------------


SAMPLES = {
    "int16": -12_345,
    "uint16": 54_321,
    "int32": -123_456_789,
    "uint32": 3_123_456_789,
    "int64": -(2**53) + 1,
    "uint64": 2**53 - 1,
    "float32": -123.456,
    "float64": 1.0 / 3.0,
}
"""Every byte of them differs from its neighbours, so that no wrong order goes unnoticed."""


@pytest.mark.parametrize("words", ["big", "little"])
@pytest.mark.parametrize("kind", SAMPLES)
def test_types_are_read_and_written_as_pymodbus_does(
    open_: Callable[..., Session], server: Server, kind: str, words: str
) -> None:
    """Independent reference: the conversions of pymodbus' client."""
    kinds = ModbusClientMixin.DATATYPE
    registers = ModbusClientMixin.convert_to_registers(SAMPLES[kind], kinds[kind.upper()], word_order=words)  # type: ignore[arg-type]
    place = {"table": "holding", "type": kind, "order": "ABCD" if words == "big" else "CDAB"}
    session = open_(inputs={"x": {**place, "address": 10}}, outputs={"y": {**place, "address": 20, "safe": 0}})
    server.set("holding", 10, registers)
    assert session.read()["x"] == pytest.approx(SAMPLES[kind], rel=1e-7 if kind == "float32" else 1e-15)
    session.write({"y": SAMPLES[kind]})
    assert server.get("holding", 20, len(registers)) == registers


@pytest.mark.parametrize(
    ("order", "registers"),
    [
        ("ABCD", [0x42F6, 0xE979]),
        ("CDAB", [0xE979, 0x42F6]),
        ("BADC", [0xF642, 0x79E9]),
        ("DCBA", [0x79E9, 0xF642]),
    ],
)
def test_orders_of_bytes(open_: Callable[..., Session], server: Server, order: str, registers: list[int]) -> None:
    """123.456 is 42 F6 E9 79 in IEEE 754."""
    place = {"table": "holding", "type": "float32"}
    session = open_(
        order=order, inputs={"x": {**place, "address": 10}}, outputs={"y": {**place, "address": 20, "safe": 0}}
    )
    server.set("holding", 10, registers)
    assert session.read()["x"] == pytest.approx(123.456, rel=1e-7)
    session.write({"y": 123.456})
    assert server.get("holding", 20, 2) == registers


def test_bits_of_registers_and_tables(open_: Callable[..., Session], server: Server) -> None:
    inputs: dict[str, Any] = {f"bit{k}": {"table": "input", "address": 7, "bit": k} for k in range(16)}
    inputs |= {f"coil{k}": {"table": "coil", "address": 20 + k} for k in range(12)}
    session = open_(inputs=inputs)
    for k in range(16):
        server.set("input", 7, [1 << k])
        values = session.read()
        assert [values[f"bit{j}"] for j in range(16)] == [float(j == k) for j in range(16)]
    for k in range(12):
        server.set("coil", 20, [int(j == k) for j in range(12)])
        values = session.read()
        assert [values[f"coil{j}"] for j in range(12)] == [float(j == k) for j in range(12)]


def test_a_float_that_is_not_a_number_is_rejected(open_: Callable[..., Session], server: Server) -> None:
    session = open_(inputs={"x": {"table": "holding", "address": 10, "type": "float32"}})
    for registers in ([0x7FC0, 0], [0x7F80, 0], [0xFF80, 0]):
        server.set("holding", 10, registers)
        assert np.isnan(session.read()["x"])
    assert session.driver.errors == {"not a number": 3}
    server.set("holding", 10, [0x3F80, 0])
    assert session.read()["x"] == 1.0


# --- requests --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "group", "requests"),
    [
        ({"a": place(0), "b": place(1), "c": place(9)}, {}, [(1, 3, 0, 10)]),
        ({"a": place(0), "b": place(10)}, {}, [(1, 3, 0, 1), (1, 3, 10, 1)]),  # nine registers in between
        ({"a": place(9), "b": place(0)}, {}, [(1, 3, 0, 10)]),
        ({"a": place(0), "b": place(1), "c": place(3)}, {"gap": 0}, [(1, 3, 0, 2), (1, 3, 3, 1)]),
        ({"a": place(0, kind="float64"), "b": place(2)}, {"gap": 0}, [(1, 3, 0, 4)]),  # one inside the other
        ({"a": place(0), "b": place(0, "input")}, {}, [(1, 3, 0, 1), (1, 4, 0, 1)]),
        ({"a": place(0), "b": place(1, unit=2)}, {}, [(1, 3, 0, 1), (2, 3, 1, 1)]),
        ({f"i{k}": place(k) for k in range(130)}, {}, [(1, 3, 0, 125), (1, 3, 125, 5)]),
        ({f"i{k}": place(k) for k in range(5)}, {"size": 2}, [(1, 3, 0, 2), (1, 3, 2, 2), (1, 3, 4, 1)]),
        ({"a": place(0, "coil", None), "b": place(129, "coil", None)}, {}, [(1, 1, 0, 130)]),
        ({"a": place(0, "discrete", None), "b": place(130, "discrete", None)}, {}, [(1, 2, 0, 1), (1, 2, 130, 1)]),
    ],
)
def test_neighbours_are_read_in_one_request(
    open_: Callable[..., Session], server: Server, inputs: Any, group: Any, requests: list[tuple[int, ...]]
) -> None:
    session = open_(inputs=inputs, group=group)
    server.reads()  # those of open
    session.read()
    if "coil" not in str(inputs) and "discrete" not in str(inputs):
        assert sorted(server.reads()) == sorted(requests)
    else:  # the server tells bits in whole registers
        assert sorted(r[:3] for r in server.reads()) == sorted(r[:3] for r in requests)


def new(server: Server, call: Callable[[], None]) -> list[tuple[int, int, int, list[int]]]:
    """The writes that come of it."""
    before = len(server.written())
    call()
    return server.written()[before:]


def test_only_changes_are_written(open_: Callable[..., Session], server: Server) -> None:
    session = open_(refresh="1 h", outputs={"a": {**place(200), "safe": 0}, "b": {**place(300), "safe": 0}})
    assert new(server, session.driver.make_safe) == [(1, 16, 200, [0]), (1, 16, 300, [0])]
    assert new(server, lambda: session.write({"a": 0, "b": 0})) == []
    assert new(server, lambda: session.write({"a": 5, "b": 0})) == [(1, 16, 200, [5])]
    assert new(server, lambda: session.write({"a": 5.4, "b": 0})) == []  # the same register
    assert new(server, lambda: session.write({"a": 5, "b": 7})) == [(1, 16, 300, [7])]


def test_unchanged_values_are_refreshed(open_: Callable[..., Session], server: Server) -> None:
    session = open_(refresh="50 ms", outputs={"a": {**place(200), "safe": 0}})
    session.write({"a": 5})
    time.sleep(0.06)
    assert new(server, lambda: session.write({"a": 5})) == [(1, 16, 200, [5])]


def test_neighbours_are_written_at_once(open_: Callable[..., Session], server: Server) -> None:
    outputs = {
        "a": {**place(200), "safe": 0},
        "b": {**place(201, kind="float32"), "safe": 0},
        "c": {**place(204), "safe": 0},
        "d": {**place(30, "coil", None), "safe": 0},
        "e": {**place(31, "coil", None), "safe": 1},
    }
    session = open_(outputs=outputs)
    written = new(server, lambda: session.write({"a": -1, "b": 1.0, "c": 2, "d": 1, "e": 0}))
    assert sorted(written) == [(1, 15, 30, [1, 0]), (1, 16, 200, [0xFFFF, 0x3F80, 0]), (1, 16, 204, [2])]
    assert server.get("coil", 29, 4) == [0, 1, 0, 0]


def test_single_writes(open_: Callable[..., Session], server: Server) -> None:
    outputs = {
        "a": {**place(200), "safe": 0},
        "b": {**place(201), "safe": 0},
        "c": {**place(30, "coil", None), "safe": 0},
    }
    session = open_(writes="single", outputs=outputs)
    written = new(server, lambda: session.write({"a": -1, "b": 2, "c": 1}))
    assert sorted(written) == [(1, 5, 30, [1]), (1, 6, 200, [0xFFFF]), (1, 6, 201, [2])]


def test_values_that_do_not_fit_are_kept_at_the_end_of_the_range(open_: Callable[..., Session], server: Server) -> None:
    """Never wrapped round: 40 000 as int16 would be −25 536, full speed the other way."""
    session = open_(outputs={"a": {**place(200), "safe": 123}})
    session.write({"a": 40_000})
    assert server.get("holding", 200) == [32_767]
    session.write({"a": -1e300})
    assert server.get("holding", 200) == [0x8000]
    assert session.driver.errors == {"value out of range": 2}
    assert "output a has the command -1e+300: only -32768 to 32767 can be written" in session.driver.last_error
    session.driver.write(np.array([np.nan]))
    assert server.get("holding", 200) == [123]
    assert session.driver.errors["not a number"] == 1


@pytest.mark.parametrize(("mode", "expected"), [("toggle", [1, 0, 1]), ("count", [1, 2, 3])])
def test_watchdog_register_keeps_changing(
    open_: Callable[..., Session], server: Server, mode: str, expected: list[int]
) -> None:
    session = open_(watchdog_register={"address": 400, "mode": mode, "period": "5 ms"})
    for value in expected:
        time.sleep(0.006)
        assert new(server, lambda: session.write({})) == [(1, 16, 400, [value])]


def test_watchdog_register_is_fed_no_faster_than_asked_for(open_: Callable[..., Session], server: Server) -> None:
    session = open_(watchdog_register={"table": "coil", "address": 40, "period": "60 s"})
    session.write({})
    assert new(server, lambda: session.write({})) == []
    assert server.get("coil", 40) == [1]


def test_watchdog_register_is_not_fed_while_an_output_is_not_as_commanded(tcp: TcpBench) -> None:
    outputs = {"valve": {**place(200), "safe": 0}}
    dog = {"address": 400, "mode": "count", "period": "1 ms"}
    session = opened(tcp.server, outputs=outputs, watchdog_register=dog)
    session.write({"valve": 5})  # requests 1 and 2
    assert tcp.server.get("holding", 400) == [1]
    time.sleep(0.002)
    tcp.server.do("fault", answers=["0003 0000 0003 01 9004".replace(" ", "")])  # the device refuses
    session.write({"valve": 6})
    assert session.driver.errors == {"exception 4 server device failure": 1}
    assert tcp.server.get("holding", 400) == [1]
    deadline = time.monotonic() + 60.0
    while tcp.server.get("holding", 400) == [1]:
        assert time.monotonic() < deadline
        session.write({"valve": 6})
    assert tcp.server.get("holding", 200) == [6]
    session.driver.close()


@pytest.mark.parametrize("pump", [200, 301], ids=["elsewhere", "beside the valve"])
def test_safe_values_are_written_in_the_order_of_the_outputs(tcp: TcpBench, pump: int) -> None:
    """Valves first, as the rig has them, whatever their addresses, and whatever was written before."""
    outputs = {"valve": {**place(300), "safe": 7}, "block": {"table": "coil", "address": 9, "safe": 0}}
    outputs["pump"] = {**place(pump), "safe": 8}
    session = opened(tcp.server, outputs=outputs)
    session.write({"valve": 1, "block": 1, "pump": 1})
    before = len(tcp.server.written())
    session.driver.make_safe()
    assert [address for _, _, address, _ in tcp.server.written()[before:]] == [300, 9, pump]
    session.driver.close()


@pytest.mark.parametrize("writes", ["single", "multiple"])
@pytest.mark.parametrize(
    ("answer", "error"),
    [("0003 0000 0003 01 {refused} 04", "exception 4"), ("0003 0000 0006 01 {function} 00c9 0001", "wrong echo")],
)
def test_a_refused_or_wrongly_answered_write_is_not_confirmed(
    tcp: TcpBench, writes: str, answer: str, error: str
) -> None:
    """The other output of the device is."""
    outputs = {"valve": {**place(200), "safe": 0}, "pump": {"table": "coil", "address": 9, "safe": 0}}
    session = opened(tcp.server, outputs=outputs, writes=writes)
    values, at, command = np.zeros(2), np.zeros(2), np.array([5.0, 1.0])
    session.driver.command(command, time.monotonic())
    session.driver.confirmed(values, at)
    assert values.tolist() == [5.0, 1.0]
    function = "06" if writes == "single" else "10"
    refused = f"{0x80 + int(function, 16):02x}"
    text = "0003" + answer.removeprefix("0003").format(function=function, refused=refused)
    tcp.server.do("fault", answers=[text.replace(" ", "")])
    begun = time.monotonic()
    session.driver.command(np.array([6.0, 1.0]), begun)
    session.driver.confirmed(values, at)
    assert any(error in name for name in session.driver.errors), session.driver.errors
    assert values[0] == 5.0
    assert at[0] < begun
    session.driver.close()


def held_by(session: Session, wanted: dict[str, float]) -> list[bool]:
    """Whether the device is known to have these values, each."""
    held = session.driver.holds(np.array([*wanted.values()]))
    assert held is not None
    return [bool(value) for value in held]


@pytest.mark.parametrize("writes", ["single", "multiple"])
@pytest.mark.parametrize("deaf", ["valve", "pump"])
def test_a_value_that_is_acknowledged_and_not_applied_is_confirmed_only_without_read_back(
    tcp: TcpBench, writes: str, deaf: str
) -> None:
    """The device repeats the request as it should; only another look at register or coil tells."""
    outputs = {"valve": {**place(200), "safe": 0}, "pump": {"table": "coil", "address": 9, "safe": 0}}
    wanted = {"valve": 5.0, "pump": 0.0} if deaf == "valve" else {"valve": 0.0, "pump": 1.0}
    tcp.server.do("fault", deaf=True)
    for read_back in (False, True):
        session = opened(tcp.server, outputs=outputs, writes=writes, read_back=read_back)
        session.write(wanted)
        held = held_by(session, wanted)
        assert dict(zip(wanted, held, strict=True)) == {name: not (read_back and name == deaf) for name in wanted}
        assert session.driver.errors == ({"not applied": 1} if read_back else {})
        if read_back:
            assert f"({deaf}): the device acknowledged the value, but has not applied it" in session.driver.last_error
            tcp.server.do("fault", deaf=False)
            session.write(wanted)
            assert all(held_by(session, wanted)), "it is written again until it is there"
        session.driver.close()


def test_safe_values_that_are_not_applied_are_reported(tcp: TcpBench) -> None:
    session = opened(tcp.server, outputs={"valve": {**place(200), "safe": 7}}, read_back=True)
    tcp.server.do("fault", deaf=True)
    with pytest.raises(DriverError, match=r"no safe value for holding 200 .*has not applied it"):
        session.driver.make_safe()
    session.driver.close()


def test_neighbouring_coils_and_registers_are_read_back_together(tcp: TcpBench) -> None:
    coils = {f"lamp{k}": {"table": "coil", "address": 20 + k, "safe": 0} for k in range(11)}
    registers = {"a": {**place(200), "safe": 0}, "b": {**place(201, kind="float32"), "safe": 0}}
    session = opened(tcp.server, outputs={**coils, **registers}, read_back=True)
    wanted = {name: float(k % 3 == 0) for k, name in enumerate(coils)} | {"a": -3.0, "b": 0.5}
    tcp.server.reads()
    session.write(wanted)
    assert sorted(read[:3] for read in tcp.server.reads()) == [(1, 1, 20), (1, 3, 200)]
    assert all(held_by(session, wanted))
    assert session.driver.errors == {}
    session.driver.close()
