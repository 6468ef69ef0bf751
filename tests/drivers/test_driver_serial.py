"""The serial driver against devices at a pty: conformance, latest values, requests and answers, commands, noise."""

from __future__ import annotations

import struct
import termios
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from driver_bench import AnyBench, Session, patterns
from driver_conformance import HardwareConformance
from serial_bench import AnsweringLineBench, AskedFrameBench, AskedLineBench, FrameBench, LineBench, SerialBench
from serial_port import Port, Served

from hilserver.errors import DriverError
from hilserver_drivers.serial_line import SerialLine
from hilserver_drivers.serial_line.settings import SerialConfig

pytestmark = pytest.mark.slow

TIMEOUT = 0.3


@pytest.fixture(params=[LineBench, AskedLineBench, FrameBench])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SerialBench]:
    made: SerialBench = request.param(tmp_path)
    yield made
    made.close()


class TestSerial(HardwareConformance):
    """With lines and frames, by themselves and when asked, with and without answers to commands."""


@pytest.mark.parametrize("kind", [AnsweringLineBench, AskedFrameBench])
def test_all_values_are_transferred(tmp_path: Path, kind: type[SerialBench]) -> None:
    bench = kind(tmp_path)
    session = Session(bench.make(bench.inputs, bench.outputs), bench)
    session.driver.open()
    session.driver.make_safe()
    assert dict(bench.written()) == bench.safe
    for values, command in zip(patterns(bench.input_span), patterns(bench.output_span), strict=False):
        bench.measure(values)
        session.reads(values)
        session.arrives(command)
    assert not session.driver.errors
    session.driver.close()
    bench.close()


# --- at the port -----------------------------------------------------------------------------------------------------


@pytest.fixture
def port(tmp_path: Path) -> Iterator[Port]:
    made = Port(tmp_path / "ttyUSB0")
    yield made
    made.close()


@pytest.fixture
def open_(port: Port) -> Iterator[Callable[..., Session]]:
    sessions = []

    def open_session(**settings: Any) -> Session:
        config = SerialConfig.model_validate({"port": str(port.path), "timeout": f"{TIMEOUT} s", **settings})
        driver = SerialLine("io", config, list(config.inputs), list(config.outputs))
        driver.open()
        sessions.append(Session(driver, AnyBench(TIMEOUT)))
        return sessions[-1]

    yield open_session
    for session in sessions:
        session.driver.close()


X = {"x": {"column": 0}}


def test_the_latest_line_is_valid_until_the_timeout(open_: Callable[..., Session], port: Port) -> None:
    session = open_(lines={}, inputs=X)
    assert np.isnan(session.read()["x"])
    assert np.isinf(session.ages).all()
    port.send(b"3.45\n1\n2\n3")
    session.reads({"x": 2})
    port.send(b"0\n")
    session.reads({"x": 30})
    first = session.ages[0]
    time.sleep(0.02)
    assert session.read() == {"x": 30}, "the device sends less often"
    assert session.ages[0] >= first + 0.02
    time.sleep(TIMEOUT)
    assert np.isnan(session.read()["x"])
    assert session.ages[0] >= TIMEOUT
    assert session.driver.errors == {"timeout": 1}
    assert session.driver.last_error.startswith("device io: nothing received for 0.")


def test_age_counts_from_the_previous_read(open_: Callable[..., Session], port: Port) -> None:
    """A line may have come right after it."""
    session = open_(lines={}, inputs=X)
    port.send(b"0\n")
    session.read()
    time.sleep(0.05)
    port.send(b"1\n")
    session.reads({"x": 1})
    assert session.ages[0] >= 0.05


def test_partial_line_waits_for_its_end(open_: Callable[..., Session], port: Port) -> None:
    session = open_(lines={}, inputs=X)
    port.send(b"\n12")
    session.sees_nothing()
    port.send(b"3\n")
    session.reads({"x": 123})


def test_hang_up_in_the_middle_of_a_line(open_: Callable[..., Session], port: Port) -> None:
    """Half a line before and half a line after make no number."""
    session = open_(lines={}, inputs=X)
    port.send(b"\n1\n12")
    session.reads({"x": 1})
    port.unplug()
    assert np.isnan(session.read()["x"])
    assert session.driver.errors == {"disconnected": 1}
    assert str(port.path) in session.driver.last_error
    assert np.isnan(session.read()["x"])
    assert session.driver.errors == {"disconnected": 1, "no connection": 1}
    assert session.driver.last_error.endswith("ttyUSB0: No such file or directory")
    port.plug()
    deadline = time.monotonic() + 60.0
    while not session.driver._wire.connected:  # type: ignore[attr-defined]
        assert np.isnan(session.read()["x"])
        assert time.monotonic() < deadline
        time.sleep(0.01)
    port.send(b"45\n")
    session.sees_nothing()
    port.send(b"67\n")
    session.reads({"x": 67})


def answering(port: Port, *answers: bytes) -> Served:
    """A device that gives these answers, one per request, then none."""
    waiting = iter(answers)
    return Served(port, lambda _: next(waiting, b""))


def test_each_request_has_its_own_answer(open_: Callable[..., Session], port: Port) -> None:
    device = Served(port, lambda data: {b"A?\r": b"1.5\r", b"B?\r": b"-2\r"}[data])
    inputs = {"a": {"column": 0, "request": "A?\r"}, "b": {"column": 0}}
    session = open_(lines={"end": "\r"}, request="B?\r", inputs=inputs)
    for _ in range(20):
        assert session.read() == {"a": 1.5, "b": -2}
    assert not session.driver.errors
    session.driver.close()
    device.close()


@pytest.mark.parametrize(
    ("answer", "name"),
    [(b"1,2\n", "wrong number of columns"), (b"x\n", "not a number"), (b"\xff1\n", "noise"), (b"1", "timeout")],
)
def test_bad_answers_are_counted_and_requests_repeated(
    open_: Callable[..., Session], port: Port, answer: bytes, name: str
) -> None:
    device = answering(port, answer, b"7\n", b"7\n")
    session = open_(lines={"columns": 1}, request="?", inputs=X)
    assert np.isnan(session.read()["x"])
    assert session.driver.errors == {name: 1}
    session.reads({"x": 7})
    session.driver.close()
    device.close()


def test_late_answer_is_dropped(open_: Callable[..., Session], port: Port) -> None:
    session = open_(lines={}, request="?", inputs=X)
    assert np.isnan(session.read()["x"])
    assert session.driver.errors == {"timeout": 1}
    port.send(b"111\n")  # the answer to the first request
    device = Served(port, lambda _: b"222\n")
    deadline = time.monotonic() + 60.0
    while np.isnan(value := session.read()["x"]):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    assert value == 222
    assert session.driver.errors == {"timeout": 1, "unexpected bytes": 1}
    session.driver.close()
    device.close()


def test_a_late_answer_is_not_taken_for_the_next_one(open_: Callable[..., Session], port: Port) -> None:
    """Each answer comes after its time, and nothing in it tells to which request it belongs."""
    requests = 0

    def count(_: bytes) -> bytes:
        nonlocal requests
        requests += 1
        return f"{requests}\n".encode("ascii")

    device = Served(port, count)
    device.through = device.delayed(0.75)
    session = open_(lines={}, request="?", inputs=X, timeout="0.5 s")
    begin = time.monotonic()
    while time.monotonic() < begin + 2.0:
        value = session.read()["x"]
        assert np.isnan(value) or value == requests, "the answer to an earlier request"
        time.sleep(0.01)
    assert session.driver.errors["timeout"] > 0
    device.repair()
    session.reads_something()
    assert session.values[0] == requests
    session.driver.close()
    device.close()


OUTPUT = {"v": {"format": "V {:+.2f}\r\n", "safe": 0}}


def test_lines_are_written_on_change_and_again_after_a_while(open_: Callable[..., Session], port: Port) -> None:
    session = open_(outputs=OUTPUT, refresh="50 ms")
    session.driver.make_safe()
    assert port.heard(1.0) == b"V +0.00\r\n"
    session.write({"v": 1.5})
    assert port.heard(1.0) == b"V +1.50\r\n"
    session.write({"v": 1.501})
    time.sleep(0.06)
    session.write({"v": 1.501})
    assert port.heard(1.0) == b"V +1.50\r\n"
    session.driver.write(np.array([np.nan]))
    assert port.heard(1.0) == b"V +0.00\r\n"
    assert session.driver.errors == {"not a number": 1}


def test_decimal_comma_is_written_too(open_: Callable[..., Session], port: Port) -> None:
    session = open_(lines={"decimal": ",", "separator": ";"}, outputs={"v": {"format": "1.V={:.2f}\n", "safe": 0}})
    session.write({"v": 1.5})
    assert port.heard(1.0) == b"1.V=1,50\n"


def test_wrong_and_missing_answers_to_commands(open_: Callable[..., Session], port: Port) -> None:
    device = answering(port, b"OK\r\n", b"ERR 3\r\n", b"", b"OK\r\n")
    session = open_(lines={}, answer="OK", outputs=OUTPUT, refresh="1 h")
    session.write({"v": 1})
    assert not session.driver.errors
    session.write({"v": 2})
    assert session.driver.errors == {"wrong answer": 1}
    assert session.driver.last_error == 'device io: "ERR 3" was received instead of "OK"'
    deadline = time.monotonic() + 60.0
    while session.driver.errors != {"wrong answer": 1, "timeout": 1}:
        session.write({"v": 2})
        assert time.monotonic() < deadline
    assert session.driver.last_error == 'device io: output v: no answer "OK"'
    session.driver.make_safe()
    session.driver.close()
    device.close()


def test_an_unanswered_command_is_not_confirmed(open_: Callable[..., Session]) -> None:
    session = open_(lines={}, answer="OK", outputs=OUTPUT, timeout="50 ms")
    with pytest.raises(
        DriverError, match=r'device io: no safe value for output v. device io: output v: no answer "OK"'
    ):
        session.driver.make_safe()


def test_wrong_parity_is_noticed(open_: Callable[..., Session]) -> None:
    """pyserial leaves the check of received characters off."""
    for parity, checked in (("even", True), ("none", False)):
        session = open_(parity=parity, lines={}, inputs=X)
        flags = termios.tcgetattr(session.driver._wire._fd)  # type: ignore[attr-defined]
        assert bool(flags[0] & termios.INPCK) == checked
        session.driver.close()


def test_port_in_use_is_reported(open_: Callable[..., Session]) -> None:
    open_(lines={}, inputs=X)
    with pytest.raises(DriverError, match=r"device io: no connection to .*: another program has it open"):
        open_(lines={}, inputs=X)


def test_ports_are_discovered(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = [
        SimpleNamespace(name="ttyUSB1", description="FT232R", device="/dev/ttyUSB1"),
        SimpleNamespace(name="ttyACM0", description="balance", device="/dev/ttyACM0"),
        SimpleNamespace(name="ttyS0", description="n/a", device="/dev/ttyS0"),
    ]
    monkeypatch.setattr("serial.tools.list_ports.comports", lambda include_links: ports)
    found = SerialLine.discover()
    said = {device.name: device.description for device in found}
    assert said == {"ttyACM0": "balance", "ttyS0": "serial port", "ttyUSB1": "FT232R"}
    for device in found:
        settings = {key: value for key, value in device.settings.items() if key != "driver"}
        assert SerialConfig.model_validate(settings).port == f"/dev/{device.name}"


def test_noise_on_the_line_is_survived(open_: Callable[..., Session], port: Port) -> None:
    """Noise, cut frames and good ones in any pieces: only values that were sent are read."""
    session = open_(frame={"start": "AA 55", "size": 4, "check": "crc32"}, inputs={"x": {"byte": 0, "type": "int32"}})
    random = np.random.default_rng(3)
    sent, read = set(), set()
    for number in range(300):
        frame = bytes.fromhex("AA 55") + struct.pack("<i", number)
        frame += struct.pack("<I", zlib.crc32(frame))
        if random.random() < 0.4:
            sent.add(float(number))
        else:
            cut = int(random.integers(len(frame)))
            frame = (
                frame[:cut] + random.bytes(int(random.integers(0, 8))) + frame[cut + int(random.integers(0, 2)) + 1 :]
            )
        for piece in (frame[:3], frame[3:7], frame[7:]):
            port.send(piece)
            read.add(session.read()["x"])
    deadline = time.monotonic() + 60.0
    while max(sent) not in read:
        assert time.monotonic() < deadline
        read.add(session.read()["x"])
    assert {value for value in read if not np.isnan(value)} <= sent
    assert session.driver.errors.total() > 100
