"""The client for scripts, and ``hilserver status --watch``, against a real server."""

from __future__ import annotations

import copy
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from service_harness import Server, eventually

from hilserver.client import Client, CommandRefused, RequestFailed, TelemetryRecorder, connect
from hilserver.client.plotjuggler import LARGEST, datagrams
from hilserver.errors import HilserverError
from hilserver.protocol.published import Telemetry

pytestmark = pytest.mark.realtime

PATIENCE = 60.0
"""s; a loaded machine takes long to start a program."""
STATUS = (sys.executable, "-c", "from hilserver.cli import main; main()", "status")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("client")) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with connect(server.name, f"127.0.0.1:{server.port}") as client:
        yield client
        if client.state.mode != "SAFE":
            client.disarm()
            client.wait(lambda state: state.mode == "SAFE")  # and so does the next test's client find it


def watching(server: Server, *options: str) -> subprocess.Popen[str]:
    command = (*STATUS, "--watch", "--rig", server.name, "--broker", f"127.0.0.1:{server.port}", *options)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1)


def test_a_script_operates_the_rig(client: Client, server: Server) -> None:
    assert client.state.mode == "SAFE"
    assert client.description.rig == server.name
    client.arm()
    client.start()
    assert client.wait(lambda state: state.mode == "RUNNING").mode == "RUNNING"
    before = client.circuit.version
    answer = client.switch("relief", {"opening_pressure": "120 bar"})
    assert answer.result["version"] == before + 1
    client.wait(lambda _: client.circuit.version == before + 1)
    with client.recorder("input.joystick", "valve.main.command", "circuit.supply.p") as recording:
        time.sleep(0.2)
        set_at = client.set_input("joystick", 0.4).time
        time.sleep(0.4)
    samples = recording.samples()
    assert set(samples.channels) == {"input.joystick", "valve.main.command", "circuit.supply.p"}
    assert samples.units["input.joystick"] == ""
    assert samples.units["circuit.supply.p"] == "Pa"
    assert re.fullmatch(r"<\d+ samples, [\d.]+ s: .*circuit.supply.p>", repr(samples))
    assert repr(client) == f"<rig {server.name} at 127.0.0.1:{server.port}: RUNNING>"
    assert len(samples) == len(samples["input.joystick"]) > 10
    assert np.all(np.diff(samples.time) > 0)
    moved = samples.time[np.flatnonzero(samples["input.joystick"] == 0.4)[0]]
    assert moved == pytest.approx(set_at, abs=0.3)
    assert np.nanmax(np.abs(samples["valve.main.command"])) > 0.05  # a missed tick has no sample
    assert np.nanmax(samples["circuit.supply.p"]) > 50e5
    with pytest.raises(KeyError, match="Did you mean input"):
        samples["input.joystik"]
    client.stop()
    client.disarm()
    assert client.wait(lambda state: state.mode == "SAFE").fault is None


def test_a_whole_circuit_is_switched(client: Client) -> None:
    """As a table made in the script, and by the name of a file on the server."""
    before = client.circuit
    circuit: Any = copy.deepcopy(before.source)
    circuit["components"]["relief"]["opening_pressure"] = "90 bar"
    switched = client.switch_circuit(circuit)
    version = switched.result["version"]
    assert switched.result["warnings"] == []
    client.wait(lambda _: client.circuit.version == version)
    assert client.circuit.source == circuit
    assert client.circuit.file is None
    version = client.switch_circuit(file="lift.toml").result["version"]
    client.wait(lambda _: client.circuit.version == version)
    version = client.switch("relief", {"opening_pressure": "120 bar"}).result["version"]
    client.wait(lambda _: client.circuit.version == version)
    assert client.circuit.file == "lift.toml"
    with pytest.raises(CommandRefused, match=r"no\.toml"):
        client.switch_circuit(file="no.toml")
    circuit["components"]["main_valve"]["ports"] |= {"A": "plug", "B": "plug"}
    circuit["components"]["plug"] = {"type": "volume", "ports": {"P": "plug"}, "volume": "0.1 l"}
    assert client.switch_circuit(circuit).result["warnings"] == [
        f"ports.{port}: no component of the circuit connects to rig.{port}: its virtual flow is 0." for port in "AB"
    ]
    client.switch_circuit(file="lift.toml")


def test_a_refused_command_is_an_error_with_the_reason(client: Client) -> None:
    with pytest.raises(CommandRefused, match=r"start was refused: .*needs ARMED") as refused:
        client.start()
    assert not refused.value.answer.ok
    with pytest.raises(CommandRefused, match="wrong unit"):
        client.switch("relief", {"opening_pressure": "20 l/min"})
    with pytest.raises(HilserverError, match='no channel "p_a"'):
        client.recorder("p_a")
    with pytest.raises(RequestFailed, match=r"not met within 0\.2 s; the server is in SAFE"):
        client.wait(lambda state: state.mode == "FAULT", within=0.2)


def test_a_connection_that_fails_leaves_no_thread(server: Server) -> None:
    before = threading.active_count()
    with pytest.raises(RequestFailed, match="knows no rig"):
        connect("elsewhere", f"127.0.0.1:{server.port}", within=0.5)
    assert threading.active_count() == before


def test_samples_of_channels_that_come_and_go() -> None:
    recorder = TelemetryRecorder((), {"p_A": "Pa"})
    recorder.take(Telemetry(t0=10.0, dt=0.5, channels={"p_A": (1.0, None), "old": (3.0, 4.0)}))
    recorder.take(Telemetry(t0=11.0, dt=0.5, channels={"p_A": (2.0,)}))
    samples = recorder.samples()
    assert samples.time.tolist() == [10.0, 10.5, 11.0]
    assert [math.isnan(value) for value in samples["p_A"]] == [False, True, False]
    assert [math.isnan(value) for value in samples["old"]] == [False, False, True]
    assert samples.units == {"p_A": "Pa", "old": ""}
    assert len(TelemetryRecorder(("p_A",), {}).samples()) == 0


def test_watching_prints_each_state_for_other_programs(server: Server, client: Client) -> None:
    process = watching(server, "--json")
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["state"]["mode"] == "SAFE"
        client.arm()
        modes = (json.loads(line)["state"]["mode"] for line in process.stdout)
        assert next(mode for mode in modes if mode != "SAFE") == "ARMED"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
        assert (process.returncode, errors) == (0, "")
    finally:
        process.kill()
        process.wait()


def test_watching_continues_after_a_broker_restart(tmp_path: Path) -> None:
    """In a terminal: a pseudo-terminal is read as a person would see it."""
    with Server(tmp_path) as server:
        master, slave = os.openpty()
        command = (*STATUS, "--watch", "--rig", server.name, "--broker", f"127.0.0.1:{server.port}")
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "50"}
        process = subprocess.Popen(command, stdout=slave, stderr=slave, env=environment)
        os.close(slave)
        os.set_blocking(master, False)
        seen = b""

        def shows(text: str, but: str = "nothing") -> bool:
            """Whether a text is in the picture now, and another one is not."""
            nonlocal seen
            try:
                seen += os.read(master, 65536)
            except BlockingIOError:
                time.sleep(0.02)
            picture = seen.rpartition(b"\x1b[H")[2]
            return text.encode() in picture and but.encode() not in picture

        try:
            eventually(lambda: shows("SAFE") and shows("p_A") and shows("feedback"), PATIENCE)
            server.note_children()
            server.kill("broker")
            eventually(lambda: shows("Is it running"), PATIENCE)
            server.note_children()
            eventually(lambda: shows("SAFE", but="Is it running"), PATIENCE)
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 0
        finally:
            process.kill()
            process.wait()
            os.close(master)


def test_telemetry_goes_to_plotjuggler(server: Server, client: Client, tmp_path: Path) -> None:
    """What PlotJuggler's UDP server would read: JSON of at most 2048 bytes, every channel, at the telemetry's rate."""
    expected = client.record(0.3)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(PATIENCE)
        place = ("--rig", server.name, "--broker", f"127.0.0.1:{server.port}")
        to = ("--to", f"127.0.0.1:{listener.getsockname()[1]}", "--layout", str(tmp_path / "layout.xml"))
        program = (sys.executable, "-c", "from hilserver.cli import main; main()", "plotjuggler")
        process = subprocess.Popen((*program, *place, *to), stdout=subprocess.PIPE, text=True)
        try:
            samples = [json.loads(listener.recv(2048)) for _ in range(100)]
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0
        finally:
            process.kill()
            process.wait()
    assert "Layout: " in said
    times = sorted({sample["timestamp"] for sample in samples})
    assert np.median(np.diff(times)) == pytest.approx(np.diff(expected.time)[0], rel=1e-3)  # a late tick makes a gap
    valid = {name for name, values in expected.channels.items() if not np.isnan(values).all()}
    assert {name for sample in samples for name in sample} == {"timestamp", *valid}
    layout = ElementTree.parse(tmp_path / "layout.xml").getroot()
    curves = {str(curve.get("name")) for curve in layout.iter("curve")}
    assert curves <= {f"/{name}" for name in expected.channels}
    assert {"/p_A", "/valve.main.command", "/circuit.supply.p", "/loop.wake_up"} <= curves
    assert all(re.fullmatch("#[0-9a-f]{6}", curve.get("color", "")) for curve in layout.iter("curve"))
    splitters = list(layout.iter("DockSplitter"))
    assert [int(s.get("count", "0")) for s in splitters] == [len(s) for s in splitters]
    assert [len(s.get("sizes", "").split(";")) for s in splitters] == [len(s) for s in splitters]
    assert [tab.get("tab_name") for tab in layout.iter("Tab")] == ["rig", "virtual circuit", "loop"]


def test_a_sample_of_many_channels_is_sent_in_pieces() -> None:
    telemetry = Telemetry(t0=1.0, dt=0.1, channels={f"circuit.component_{k}.value": (1.0 / 3.0,) for k in range(200)})
    sent = list(datagrams(telemetry))
    assert len(sent) > 1
    assert max(map(len, sent)) <= LARGEST
    merged: dict[str, float] = {}
    for piece in map(json.loads, sent):
        assert piece.pop("timestamp") == 1.0
        assert not merged.keys() & piece.keys()
        merged |= piece
    assert merged == {name: values[0] for name, values in telemetry.channels.items()}
