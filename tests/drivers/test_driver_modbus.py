"""The Modbus driver against a real pymodbus server in a process of its own: over TCP, and over a pty as serial line."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from driver_conformance import Bench, HardwareConformance, Session
from modbus_bench import ModbusBench, RtuBench, TcpBench
from modbus_server import Server
from pydantic import ValidationError
from pymodbus.client.mixin import ModbusClientMixin

from hilserver.errors import DriverError, problems_of
from hilserver_drivers.modbus import Modbus
from hilserver_drivers.modbus.line import (
    BadAnswer,
    ExceptionAnswer,
    Request,
    answered_data,
    read_request,
    write_request,
)
from hilserver_drivers.modbus.settings import ModbusConfig
from hilserver_drivers.wire import Retry

pytestmark = pytest.mark.slow

TIMEOUT = 0.4
"""s for tests that wait for it; the benches have more, as nothing may time out there on a busy machine."""
TCP = {"tcp": {"host": "127.0.0.1", "port": 502}}


@pytest.fixture(scope="module")
def at_network() -> Iterator[TcpBench]:
    """One server process for all tests over TCP."""
    bench = TcpBench()
    yield bench
    bench.close()


@pytest.fixture(scope="module")
def at_line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RtuBench]:
    """One server process for all tests over a serial line."""
    bench = RtuBench(tmp_path_factory.mktemp("line"))
    yield bench
    bench.close()


@pytest.fixture
def tcp(at_network: TcpBench) -> TcpBench:
    """As just switched on."""
    at_network.server.do("anew")
    return at_network


@pytest.fixture
def rtu(at_line: RtuBench) -> RtuBench:
    """As just switched on, with a good cable."""
    at_line.cable.mend()
    at_line.server.do("anew")
    return at_line


@pytest.fixture(params=["tcp", "rtu"])
def bench(request: pytest.FixtureRequest) -> ModbusBench:
    made: ModbusBench = request.getfixturevalue(request.param)
    return made


class TestModbus(HardwareConformance):
    """Over TCP, and over a serial line."""


# --- settings --------------------------------------------------------------------------------------------------------


def problem(settings: Mapping[str, Any]) -> str:
    with pytest.raises(ValidationError) as caught:
        ModbusConfig.model_validate(settings)
    return "\n".join(map(str, problems_of(caught.value, settings, names=ModbusConfig.model_fields)))


VALVE = {"table": "holding", "address": 100, "type": "int16", "safe": 0}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "give either tcp"),
        ({**TCP, "rtu": {"port": "/dev/ttyUSB0"}}, "give either tcp"),
        ({**TCP, "timeout": "3 s"}, "timeout (3 s) must be at most a third of hang_time (2 s)"),
        (
            {**TCP, "inputs": {"p": {"table": "holding", "address": 1}}},
            'inputs.p: a register needs a type, like "int16"',
        ),
        ({**TCP, "inputs": {"p": {"table": "coil", "address": 1, "type": "int16"}}}, "inputs.p: a coil is 0 or 1"),
        ({**TCP, "inputs": {"p": {"table": "coil", "address": 1, "bit": 1}}}, "inputs.p: bit is for holding and input"),
        (
            {**TCP, "inputs": {"p": {"table": "input", "address": 65_535, "type": "float32"}}},
            "inputs.p: a float32 at address 65535 reaches beyond the last register",
        ),
        ({**TCP, "inputs": {"p": {"table": "holdings", "address": 1}}}, "inputs.p.table"),
        ({**TCP, "outputs": {"v": {"table": "input", "address": 1, "type": "int16", "safe": 0}}}, "outputs.v.table"),
        ({**TCP, "outputs": {"v": {"table": "coil", "address": 1}}}, "outputs.v.safe: missing"),
        (
            {**TCP, "outputs": {"v": {**VALVE, "safe": 40_000}}},
            "outputs.v: safe = 40000 does not fit: the range of int16",
        ),
        (
            {**TCP, "outputs": {"v": VALVE, "w": {**VALVE, "address": 99, "type": "int32"}}},
            "outputs.w and outputs.v share holding 100",
        ),
        (
            {**TCP, "outputs": {"v": {**VALVE, "type": "float32"}}, "writes": "single"},
            "outputs.v: a float32 can't be written with writes",
        ),
        (
            {**TCP, "outputs": {"v": VALVE}, "watchdog_register": {"address": 100}},
            "watchdog_register and outputs.v share holding 100",
        ),
        ({**TCP, "watchdog_register": {"table": "coil", "address": 1, "mode": "count"}}, "a coil can only toggle"),
        ({"rtu": {"port": "/dev/ttyUSB0"}, "unit": 255}, "unit = 255: on a serial line units are 1 to 247"),
        (
            {"rtu": {"port": "/dev/ttyUSB0"}, "inputs": {"p": {"table": "coil", "address": 1, "unit": 250}}},
            "inputs.p.unit = 250",
        ),
    ],
)
def test_wrong_settings_are_named(settings: Mapping[str, Any], expected: str) -> None:
    assert expected in problem(settings)


def test_configuration_needs_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pymodbus", "serial"):
        monkeypatch.setitem(sys.modules, name, None)
    driver = Modbus("io", ModbusConfig.model_validate({**ModbusBench.channels, **TCP}), ["p_A"], ["valve"])
    with pytest.raises(
        DriverError, match=r"device io: pymodbus can't be imported .* pip install 'hilserver\[modbus\]'"
    ):
        driver.open()


# --- values ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def server(tcp: TcpBench) -> Server:
    return tcp.server


class AnyBench(Bench):
    """For a session with a device that a test has in its own hand."""

    timeout = TIMEOUT

    def measure(self, values: Mapping[str, float]) -> None:
        """The test does that."""

    def written(self) -> list[tuple[str, float]]:
        return []


def opened(server: Server, **settings: Any) -> Session:
    """A driver with just these settings, opened, all channels in use."""
    return opened_at({"tcp": {"host": "127.0.0.1", "port": server.port}}, **settings)


def opened_at(line: Mapping[str, Any], **settings: Any) -> Session:
    config = ModbusConfig.model_validate({"timeout": f"{TIMEOUT} s", **line, **settings})
    driver = Modbus("io", config, list(config.inputs), list(config.outputs))
    driver.open()
    return Session(driver, AnyBench())


@pytest.fixture
def open_(server: Server) -> Iterator[Callable[..., Session]]:
    sessions = []

    def open_session(**settings: Any) -> Session:
        sessions.append(opened(server, **settings))
        return sessions[-1]

    yield open_session
    for session in sessions:
        session.driver.close()


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


def test_float_that_is_no_number_is_no_sample(open_: Callable[..., Session], server: Server) -> None:
    session = open_(inputs={"x": {"table": "holding", "address": 10, "type": "float32"}})
    for registers in ([0x7FC0, 0], [0x7F80, 0], [0xFF80, 0]):
        server.set("holding", 10, registers)
        assert np.isnan(session.read()["x"])
    assert session.driver.errors == {"not a number": 3}
    server.set("holding", 10, [0x3F80, 0])
    assert session.read()["x"] == 1.0


# --- requests --------------------------------------------------------------------------------------------------------


def place(address: int, table: str = "holding", kind: str | None = "int16", **more: Any) -> dict[str, Any]:
    return {"table": table, "address": address, **({"type": kind} if kind else {}), **more}


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
    deadline = time.monotonic() + 5.0
    while tcp.server.get("holding", 400) == [1]:
        assert time.monotonic() < deadline
        session.write({"valve": 6})
    assert tcp.server.get("holding", 200) == [6]
    session.driver.close()


def test_safe_values_are_written_in_the_order_of_the_outputs(tcp: TcpBench) -> None:
    """Valves first, as the rig has them, whatever their addresses, and whatever was written before."""
    outputs = {"valve": {**place(300), "safe": 7}, "block": {"table": "coil", "address": 9, "safe": 0}}
    outputs["pump"] = {**place(200), "safe": 8}
    session = opened(tcp.server, outputs=outputs)
    session.write({"valve": 1, "block": 1, "pump": 1})
    before = len(tcp.server.written())
    session.driver.make_safe()
    assert [address for _, _, address, _ in tcp.server.written()[before:]] == [300, 9, 200]
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


# --- answers that are none -------------------------------------------------------------------------------------------


READ = Request(1, bytes.fromhex("0300000002"), bytes.fromhex("0304"), 6)
WRITE = Request(1, bytes.fromhex("10006400010200ff"), bytes.fromhex("1000640001"), 5)


@pytest.mark.parametrize(
    ("request_", "unit", "pdu", "name"),
    [
        (READ, 2, "030400010002", "wrong unit"),
        (READ, 1, "040400010002", "wrong function"),
        (READ, 1, "1000640001", "wrong function"),
        (READ, 1, "8402", "wrong function"),
        (READ, 1, "8302", "exception 2 illegal data address"),
        (READ, 1, "8363", "exception 99"),
        (READ, 1, "83", "wrong length"),
        (READ, 1, "830200", "wrong length"),
        (READ, 1, "03040001", "wrong length"),
        (READ, 1, "03020001", "wrong length"),
        (READ, 1, "030300010002", "wrong length"),
        (READ, 1, "0304000100020003", "wrong length"),
        (WRITE, 1, "1000650001", "wrong echo"),
        (WRITE, 1, "1000640002", "wrong echo"),
        (WRITE, 1, "100064000100", "wrong length"),
        (WRITE, 1, "9003", "exception 3 illegal data value"),
    ],
)
def test_answers_to_something_else_are_refused(request_: Request, unit: int, pdu: str, name: str) -> None:
    with pytest.raises(BadAnswer) as caught:
        answered_data(request_, unit, bytes.fromhex(pdu))
    assert caught.value.name == name
    assert isinstance(caught.value, ExceptionAnswer) == name.startswith("exception")


def test_right_answers_are_taken() -> None:
    assert answered_data(READ, 1, bytes.fromhex("030400010002")) == bytes.fromhex("00010002")
    assert answered_data(WRITE, 1, bytes.fromhex("1000640001")) == b""
    assert read_request(1, "holding", 0, 2) == READ
    assert write_request(1, "holding", 100, b"\0\xff", single=False) == WRITE
    assert read_request(1, "coil", 3, 9) == Request(1, bytes.fromhex("0100030009"), bytes.fromhex("0102"), 4)


INPUT = {"x": {"table": "holding", "address": 0, "type": "uint32"}}
"""Read with function 3, two registers. The server has 0x00010002 there."""


@pytest.fixture
def one(bench: ModbusBench) -> Iterator[Session]:
    """A driver with one input, opened."""
    bench.server.set("holding", 0, [1, 2])
    line = {key: bench.settings[key] for key in ("tcp", "rtu") if key in bench.settings}
    session = opened_at(line, inputs=INPUT)
    assert session.read() == {"x": 0x10002}
    yield session
    session.driver.close()


def read_until_good(session: Session) -> None:
    deadline = time.monotonic() + 5.0
    while session.read() != {"x": 0x10002}:
        assert np.isnan(session.values).all(), "a wrong value"
        assert time.monotonic() < deadline, session.driver.errors
        time.sleep(0.005)


def test_exceptions_are_counted_by_their_names(one: Session, bench: ModbusBench) -> None:
    bench.server.do("fault", exception=6)
    assert np.isnan(one.read()["x"])
    assert one.driver.errors == {"exception 6 server device busy": 1}
    assert (
        "device io: holding 0 to 1 of unit 1 (x): the device refuses: server device busy (6)" in one.driver.last_error
    )
    bench.server.do("fault", exception=0)
    read_until_good(one)


def test_late_answer_is_a_timeout_and_no_value(one: Session, bench: ModbusBench) -> None:
    bench.server.do("fault", delay=TIMEOUT * 1.6)
    assert np.isnan(one.read()["x"])
    assert one.driver.errors == {"timeout": 1}
    bench.server.do("fault", delay=0.0)
    read_until_good(one)


def test_late_answer_on_a_serial_line_is_no_answer_to_the_next_request(rtu: RtuBench) -> None:
    """Each answer comes after its time; nothing but the pause in between tells it from that to the next request."""
    rtu.server.set("holding", 0, [1, 2])
    session = opened_at({"rtu": rtu.settings["rtu"]}, inputs=INPUT, timeout="0.5 s")
    rtu.cable.through = rtu.cable.delayed(0.75)
    session.read()
    assert session.driver.errors == {"timeout": 1}
    rtu.server.set("holding", 0, [3, 4])
    begin = time.monotonic()
    while time.monotonic() < begin + 1.5:
        assert session.read()["x"] != 0x10002, "the answer to an earlier request"
        time.sleep(0.01)
    rtu.cable.mend()
    session.reads({"x": 0x30004})
    session.driver.close()


def test_lost_answers_are_counted_and_asked_again_with_pauses(one: Session, bench: ModbusBench) -> None:
    bench.server.do("fault", answers=["nothing"] * 2)
    assert np.isnan(one.read()["x"])
    read_until_good(one)
    assert one.driver.errors == {"timeout": 2}
    assert one.read() == {"x": 0x10002}


TCP_FAULTS = {
    "wrong transaction": ("ffff 0000 0007 01 0304 00030004", "wrong transaction"),
    "wrong protocol": ("{t} 0001 0007 01 0304 00030004", "wrong protocol"),
    "wrong unit": ("{t} 0000 0007 02 0304 00030004", "wrong unit"),
    "wrong function": ("{t} 0000 0007 01 0404 00030004", "wrong function"),
    "length too large": ("{t} 0000 0107 01 0304 00030004", "wrong length"),
    "length too small": ("{t} 0000 0001 01 0304 00030004", "wrong length"),
    "byte count": ("{t} 0000 0007 01 0302 00030004", "wrong length"),
    "fewer registers": ("{t} 0000 0005 01 0302 0003", "wrong length"),
    "incomplete": ("{t} 0000 0007 01 0304 0003", "wrong length"),
    "incomplete header": ("{t} 00", "wrong length"),
    "exception of another function": ("{t} 0000 0003 01 8402", "wrong function"),
}


@pytest.mark.parametrize("fault", TCP_FAULTS)
def test_faulty_answer_over_tcp(tcp: TcpBench, fault: str) -> None:
    tcp.server.set("holding", 0, [1, 2])
    session = opened(tcp.server, inputs=INPUT)  # request 1
    answer, name = TCP_FAULTS[fault]
    tcp.server.do("fault", answers=[answer.format(t="0002").replace(" ", "")])
    assert np.isnan(session.read()["x"])
    assert session.driver.errors[name] == 1
    assert session.driver.errors.total() - session.driver.errors["timeout"] == 1
    read_until_good(session)
    session.driver.close()


def test_answer_in_pieces_and_an_answer_behind_a_late_one(tcp: TcpBench) -> None:
    tcp.server.set("holding", 0, [1, 2])
    session = opened(tcp.server, inputs=INPUT)
    late, right = "0001 0000 0007 01 0304 00030004", "0002 0000 0007 01 0304 00010002"
    tcp.server.do("fault", answers=[(late + right).replace(" ", "")])
    assert session.read() == {"x": 0x10002}
    assert session.driver.errors == {"wrong transaction": 1}
    session.driver.close()


RTU_FAULTS = {
    "crc": ("01 03 04 0001 0003 2a32", "crc"),
    "noise before": ("ff 01 03 04 0001 0002 2a32", "crc"),
    "nothing but noise": ("3c 99 55 a0 ff ff 00 01 02 03 04 05", "crc"),
    "incomplete": ("01 03 04 0001", "wrong length"),
    "wrong unit": ("02 03 04 0001 0002 {crc}", "wrong unit"),
    "wrong function": ("01 04 04 0001 0002 {crc}", "wrong function"),
    "byte count": ("01 03 02 0001 0002 {crc}", "wrong length"),
    "fewer registers": ("01 03 02 0001 {crc}", "wrong length"),
    "exception of another function": ("01 84 02 {crc}", "wrong function"),
}


def with_crc(text: str) -> bytes:
    """The frame of a text; ``{crc}``: computed bit by bit, as in the specification's appendix."""
    data = bytes.fromhex(text.replace("{crc}", ""))
    crc = 0xFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ 0xA001 if crc & 1 else crc >> 1
    return data + (crc.to_bytes(2, "little") if "{crc}" in text else b"")


@pytest.mark.parametrize("fault", RTU_FAULTS)
def test_faulty_answer_over_a_serial_line(rtu: RtuBench, fault: str) -> None:
    rtu.server.set("holding", 0, [1, 2])
    session = opened_at({"rtu": rtu.settings["rtu"]}, inputs=INPUT)
    text, name = RTU_FAULTS[fault]
    assert with_crc("01 03 04 0001 0002 {crc}") == bytes.fromhex("01 03 04 0001 0002 2a32")
    damaged = iter([with_crc(text)])
    rtu.cable.through = lambda data: next(damaged, b"") if data else b""
    assert np.isnan(session.read()["x"])
    rtu.cable.through = bytes
    assert session.driver.errors[name] == 1, session.driver.errors
    read_until_good(session)
    session.driver.close()


def test_serial_line_that_only_makes_noise(rtu: RtuBench) -> None:
    rtu.server.set("holding", 0, [1, 2])
    session = opened_at({"rtu": rtu.settings["rtu"]}, inputs=INPUT)
    noise = np.random.default_rng(5)
    rtu.cable.through = lambda data: noise.bytes(len(data))
    deadline = time.monotonic() + 0.5
    while time.monotonic() < deadline:
        assert np.isnan(session.read()["x"])
    assert session.driver.errors["crc"] > 0
    rtu.cable.through = bytes
    read_until_good(session)
    session.driver.close()


def test_outputs_are_written_anew_to_a_device_that_was_silent(rtu: RtuBench) -> None:
    """It may have been off: what it had is lost then, though the serial port has noticed nothing."""
    config = ModbusConfig.model_validate({**rtu.settings, "timeout": "0.2 s", "refresh": "1 h"})
    session = Session(Modbus("io", config, rtu.inputs, rtu.outputs), rtu)
    command = {"valve": 5.0, "pump": 6.0, "enable": 1.0}
    session.driver.open()
    session.arrives(command)
    rtu.cable.through = lambda data: b""
    session.sees_nothing()
    rtu.cable.through = bytes
    before = len(rtu.written())
    session.reads_something()
    session.arrives(command, since=before)
    assert "disconnected" not in session.driver.errors
    session.driver.close()


def test_pauses_between_attempts_double_up_to_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    retry = Retry()
    retry.failed()
    assert retry.due, "the second attempt comes at once"
    for pause in (0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
        retry.failed()
        now += pause - 1e-3
        assert not retry.due
        now += 2e-3
        assert retry.due
    retry.worked()
    retry.failed()
    assert retry.due


# --- connections -----------------------------------------------------------------------------------------------------


def test_disconnect_in_the_middle(tcp: TcpBench) -> None:
    tcp.server.set("holding", 0, [1, 2])
    session = opened(tcp.server, inputs=INPUT)
    tcp.server.do("fault", answers=["disconnect"])
    assert np.isnan(session.read()["x"])
    assert session.driver.errors == {"disconnected": 1}
    assert "connection to 127.0.0.1" in session.driver.last_error
    assert session.read() == {"x": 0x10002}, "connected again at once"
    session.driver.close()


def test_killed_server_comes_back() -> None:
    first = Server("tcp", "0")
    first.set("holding", 0, [1, 2])
    session = opened(first, inputs=INPUT)
    first.close()
    assert np.isnan(session.read()["x"])
    assert np.isnan(session.read()["x"])
    assert set(session.driver.errors) == {"disconnected", "no connection"}
    assert session.driver.last_error.endswith(f"no connection to 127.0.0.1:{first.port}: Connection refused")
    second = Server("tcp", str(first.port))
    second.set("holding", 0, [1, 2])
    read_until_good(session)
    session.driver.close()
    second.close()


def test_dead_unit_does_not_silence_the_others(rtu: RtuBench) -> None:
    """Unit 7 does not exist: its channel has no samples, the other one goes on having them."""
    inputs = {"x": INPUT["x"], "y": {**INPUT["x"], "unit": 2}}
    rtu.server.set("holding", 0, [1, 2])
    rtu.server.set("holding", 0, [3, 4], unit=2)
    session = opened_at({"rtu": rtu.settings["rtu"]}, timeout="50 ms", inputs=inputs)
    session.read()
    rtu.cable.through = lambda data: b"" if data[0] == 2 else data
    good, deadline = 0, time.monotonic() + 10.0
    while good < 50 or session.driver.errors["timeout"] < 4:
        assert time.monotonic() < deadline, (good, session.driver.errors)
        values = session.read()
        assert np.isnan(values["y"])
        good += values["x"] == 0x10002
        time.sleep(0.01)
    assert set(session.driver.errors) == {"timeout"}
    session.driver.close()


def test_wrong_address_is_said_at_the_start(server: Server) -> None:
    inputs = {"x": place(5), "far": place(5000)}
    with pytest.raises(
        DriverError, match=r"device io: holding 5000 of unit 1 \(far\): the device refuses: illegal data"
    ):
        opened(server, inputs=inputs)


def test_safe_values_are_written_though_an_answer_is_lost(bench: ModbusBench) -> None:
    config = ModbusConfig.model_validate({**bench.settings, "timeout": "0.2 s"})
    session = Session(Modbus("io", config, (), bench.outputs), bench)
    session.driver.open()
    session.arrives({"valve": 5, "pump": 6, "enable": 1})
    bench.server.do("fault", answers=["nothing"])
    session.driver.make_safe()
    assert dict(bench.written()) == bench.safe
    assert session.driver.errors == {"timeout": 1}
    session.driver.close()


def test_silent_device_is_said_at_the_start(tcp: TcpBench) -> None:
    tcp.server.do("fault", answers=["nothing"] * 3)
    with pytest.raises(DriverError, match=r"device io: holding 0 of unit 1 \(x\): no answer"):
        opened(tcp.server, timeout="20 ms", inputs={"x": place(0), "y": place(100)})


def test_unit_that_does_not_answer_is_said_at_the_start(rtu: RtuBench) -> None:
    rtu.cable.through = lambda data: b""
    with pytest.raises(DriverError, match=r"device io: holding 0 to 1 of unit 9 \(x\): no answer"):
        opened_at({"rtu": rtu.settings["rtu"]}, timeout="20 ms", unit=9, inputs=INPUT)


def test_port_in_use_is_said(rtu: RtuBench) -> None:
    first = opened_at({"rtu": rtu.settings["rtu"]}, inputs=INPUT)
    with pytest.raises(DriverError, match=r"device io: no connection to .*: another program has it open"):
        opened_at({"rtu": rtu.settings["rtu"]}, inputs=INPUT)
    first.driver.close()
