"""The Modbus driver against a real pymodbus server in a process of its own: over TCP, and over a pty as serial line."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest
from driver_bench import Session
from driver_conformance import HardwareConformance
from modbus_bench import ModbusBench, RtuBench, TcpBench
from modbus_server import Server
from modbus_session import INPUT, TIMEOUT, opened, opened_at, place, read_until_good

from hilserver.errors import DriverError
from hilserver_drivers.modbus import Modbus
from hilserver_drivers.modbus.line import (
    BadAnswer,
    ExceptionAnswer,
    ModbusRequest,
    answered_data,
    read_request,
    write_request,
)
from hilserver_drivers.modbus.settings import ModbusConfig
from hilserver_drivers.wire import Retry

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def at_line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RtuBench]:
    """One server process for all tests over a serial line."""
    with closing(RtuBench(tmp_path_factory.mktemp("line"))) as bench:
        yield bench


@pytest.fixture
def rtu(at_line: RtuBench) -> RtuBench:
    """As just switched on, with a good cable."""
    at_line.cable.repair()
    at_line.server.do("anew")
    return at_line


@pytest.fixture(params=["tcp", "rtu"])
def bench(request: pytest.FixtureRequest) -> ModbusBench:
    made: ModbusBench = request.getfixturevalue(request.param)
    return made


class TestModbus(HardwareConformance):
    """Over TCP, and over a serial line."""


# --- answers that are none -------------------------------------------------------------------------------------------


READ = ModbusRequest(1, bytes.fromhex("0300000002"), bytes.fromhex("0304"), 6)
WRITE = ModbusRequest(1, bytes.fromhex("10006400010200ff"), bytes.fromhex("1000640001"), 5)


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
def test_answers_to_something_else_are_refused(request_: ModbusRequest, unit: int, pdu: str, name: str) -> None:
    with pytest.raises(BadAnswer) as caught:
        answered_data(request_, unit, bytes.fromhex(pdu))
    assert caught.value.name == name
    assert isinstance(caught.value, ExceptionAnswer) == name.startswith("exception")


def test_correct_answers_are_accepted() -> None:
    assert answered_data(READ, 1, bytes.fromhex("030400010002")) == bytes.fromhex("00010002")
    assert answered_data(WRITE, 1, bytes.fromhex("1000640001")) == b""
    assert read_request(1, "holding", 0, 2) == READ
    assert write_request(1, "holding", 100, b"\0\xff", single=False) == WRITE
    assert read_request(1, "coil", 3, 9) == ModbusRequest(1, bytes.fromhex("0100030009"), bytes.fromhex("0102"), 4)


@pytest.fixture
def one(bench: ModbusBench) -> Iterator[Session]:
    """A driver with one input, opened."""
    bench.server.set("holding", 0, [1, 2])
    line = {key: bench.settings[key] for key in ("tcp", "rtu") if key in bench.settings}
    session = opened_at(line, inputs=INPUT)
    assert session.read() == {"x": 0x10002}
    yield session
    session.driver.close()


def test_exceptions_are_counted_by_their_names(one: Session, bench: ModbusBench) -> None:
    bench.server.do("fault", exception=6)
    assert np.isnan(one.read()["x"])
    assert one.driver.errors == {"exception 6 server device busy": 1}
    assert (
        "device io: holding 0 to 1 of unit 1 (x): rejected by the device: server device busy (6)"
        in one.driver.last_error
    )
    bench.server.do("fault", exception=0)
    read_until_good(one)


def test_safe_values_do_not_wait_for_the_pause_after_refused_writes(bench: ModbusBench) -> None:
    """A device that has refused for a while is asked less and less often, but what makes it safe is sent at once."""
    line = {key: bench.settings[key] for key in ("tcp", "rtu") if key in bench.settings}
    session = opened_at(line, outputs={"valve": {**place(100), "safe": 7}})
    bench.server.do("fault", refusal=4)
    began = time.monotonic()
    while time.monotonic() - began < 1.0:
        session.driver.write(np.array([300.0]))
    bench.server.do("fault", refusal=0)
    session.driver.write(np.array([300.0]))
    assert not np.any(session.driver.holds(np.array([300.0]))), "it is in a pause"
    session.driver.write(np.array([7.0]))
    assert bench.server.get("holding", 100) == [7]
    session.driver.close()


def test_late_answer_is_a_timeout_and_no_value(one: Session, bench: ModbusBench) -> None:
    bench.server.do("fault", delay=TIMEOUT * 1.6)
    assert np.isnan(one.read()["x"])
    assert one.driver.errors == {"timeout": 1}
    bench.server.do("fault", delay=0.0)
    read_until_good(one)


def test_a_late_answer_on_a_serial_line_is_not_taken_for_the_next_one(rtu: RtuBench) -> None:
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
    rtu.cable.repair()
    session.reads({"x": 0x30004})
    session.driver.close()


def test_lost_answers_are_counted_and_requests_repeated_with_pauses(one: Session, bench: ModbusBench) -> None:
    bench.server.do("fault", answers=["nothing"] * 2)
    assert np.isnan(one.read()["x"])
    read_until_good(one)
    assert one.driver.errors["timeout"] >= 2  # more if a busy machine answers late
    read_until_good(one)


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
    """Unit 2 does not answer any more: its channel has no samples, the other one goes on having them."""
    inputs = {"x": INPUT["x"], "y": {**INPUT["x"], "unit": 2}}
    rtu.server.set("holding", 0, [1, 2])
    rtu.server.set("holding", 0, [3, 4], unit=2)
    session = opened_at({"rtu": rtu.settings["rtu"]}, timeout="50 ms", inputs=inputs)
    session.read()
    rtu.cable.through = lambda data: b"" if data[0] == 2 else data
    good, deadline = 0, time.monotonic() + 60.0
    while good < 50 or session.driver.errors["timeout"] < 4:
        assert time.monotonic() < deadline, (good, session.driver.errors)
        values = session.read()
        assert np.isnan(values["y"])
        good += values["x"] == 0x10002
        time.sleep(0.01)
    # On a busy machine, the unit that works may answer too late. Its answer is then found before the next request, or
    # after it, when the silent unit is to answer; it is never taken for that of the other unit (see above).
    assert set(session.driver.errors) <= {"timeout", "unexpected bytes", "wrong unit"}
    session.driver.close()


def test_wrong_address_is_reported_at_the_start(tcp: TcpBench) -> None:
    inputs = {"x": place(5), "far": place(5000)}
    with pytest.raises(
        DriverError, match=r"device io: holding 5000 of unit 1 \(far\): rejected by the device: illegal data"
    ):
        opened(tcp.server, inputs=inputs)


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


def test_silent_device_is_reported_at_the_start(tcp: TcpBench) -> None:
    tcp.server.do("fault", answers=["nothing"] * 3)
    with pytest.raises(DriverError, match=r"device io: holding 0 of unit 1 \(x\): no answer"):
        opened(tcp.server, timeout="20 ms", inputs={"x": place(0), "y": place(100)})


def test_unit_that_does_not_answer_is_reported_at_the_start(rtu: RtuBench) -> None:
    rtu.cable.through = lambda data: b""
    with pytest.raises(DriverError, match=r"device io: holding 0 to 1 of unit 9 \(x\): no answer"):
        opened_at({"rtu": rtu.settings["rtu"]}, timeout="20 ms", unit=9, inputs=INPUT)


def test_port_in_use_is_reported(rtu: RtuBench) -> None:
    first = opened_at({"rtu": rtu.settings["rtu"]}, inputs=INPUT)
    with pytest.raises(DriverError, match=r"device io: no connection to .*: another program has it open"):
        opened_at({"rtu": rtu.settings["rtu"]}, inputs=INPUT)
    first.driver.close()
