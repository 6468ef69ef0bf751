"""The whole server, in real processes with a real broker: started, fed with nonsense, switched live."""

from __future__ import annotations

import asyncio
import functools
import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from service_bench import assert_no_gap, commands, fastest, set_in_motion
from service_harness import Panel, Server, busy_processors, children_of, eventually, is_alive, listens, read_log, talk
from service_inputs import malformed, random_switch

from hilserver.realtime.segment_folder import segment_path
from hilserver.realtime.simulated_device import DeviceMemory
from hilserver.record.reader import LogTable
from hilserver.tick.codes import Mode

pytestmark = pytest.mark.realtime

# ---------------------------------------------------------------------------------------------------------------------
# starts


def test_two_servers_of_one_rig_refuse_and_two_rigs_run_side_by_side(tmp_path: Path) -> None:
    with Server(tmp_path, really=True) as first, Server(tmp_path) as second:
        rival = Server(tmp_path, first.name)
        assert refused_start(rival).startswith(
            f"{segment_path(first.name)}: in use by process {first.pids['supervisor']}"
        )
        set_in_motion(first)
        set_in_motion(second)
        for server in (first, second):
            server.kill("supervisor", number=signal.SIGTERM)
        assert [server.wait_exit() for server in (first, second)] == [0, 0]
        assert [server.leaves() for server in (first, second)] == [[], []]


def refused_start(server: Server) -> str:
    """What a server says that does not start; it leaves nothing behind and ends with exit code 2."""
    server.launch()
    try:
        assert server.wait_exit() == 2
        said = [line for line in server.stderr.splitlines() if " WARNING " not in line and " ERROR " not in line]
        assert len(said) == 1, server.stderr
        return said[0]
    finally:
        server.close()


def test_a_start_without_a_place_for_the_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    server = Server(tmp_path, changes={"folder =": f'folder = "{tmp_path}/file/logs"'})
    assert refused_start(server) == f"{tmp_path}/file/logs: the folder of the logs can't be created: Not a directory."
    assert server.leaves() == []


def test_a_start_on_a_taken_port_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = Server(tmp_path, changes={"port = 0": f"port = {port}"})
        assert refused_start(server) == f"port {port} on 127.0.0.1 is already in use: is another broker running?"
    assert server.leaves() == []


def test_a_start_without_its_device_is_refused(tmp_path: Path) -> None:
    server = Server(tmp_path)
    path = segment_path(f"{server.name}-rig")
    device = DeviceMemory.create(path, 6, 1)
    said = refused_start(server)
    assert said == f"{path}: in use by process {os.getpid()}. Is hilserver running already?"
    device.close()
    assert server.leaves() == []


def test_a_stop_while_it_starts(tmp_path: Path) -> None:
    server = Server(tmp_path, really=True)
    server.launch()
    eventually(segment_path(server.name).exists)
    server.note_children()
    server.kill("supervisor", number=signal.SIGTERM)
    assert server.wait_exit() == 0
    server.close()
    assert server.leaves() == []


def test_it_runs_without_a_broker_too(tmp_path: Path) -> None:
    with Server(tmp_path, changes={"embedded =": "embedded = false", "port = 0": "port = 1"}) as server:
        eventually(lambda: "MQTT broker 127.0.0.1:1" in server.stderr)
        server.kill("supervisor", number=signal.SIGTERM)
        assert server.wait_exit() == 0
        assert len(read_log(server.logs[0]).columns["tick"]) > 0


# ---------------------------------------------------------------------------------------------------------------------
# a server that goes on, whatever happens


AT_1_KHZ = {"max_missed =": "max_missed = 1000", "rate =": 'rate = "1 kHz"\nheartbeat_timeout = "2.5 s"'}


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One that the tests below share: each brings it to RUNNING by itself."""
    with Server(tmp_path_factory.mktemp("server"), changes=AT_1_KHZ, really=True) as running:
        yield running
        assert "Traceback" not in running.stderr


def test_its_processes_map_only_the_libraries_that_they_need(lasting: Server) -> None:
    """No compiler in any of them; of SciPy, nothing but what Pint loads of it; no Arrow in the loop."""

    async def until_margins(user: Panel) -> None:
        await user.see("margins", lambda margins: margins["calculated"])

    talk(lasting, until_margins)
    libraries = {name: shared_libraries(pid) for name, pid in lasting.pids.items() if is_alive(pid)}
    assert {"loop", "device", "recorder", "supervisor"} <= libraries.keys()
    for name, found in libraries.items():
        assert not {file for file in found if re.search("llvm|numba|scipy/[a-z]|scipy[.]libs/|matplotlib", file)}, name
    assert any("/x86-64-v" in file for file in libraries["loop"])
    assert not {file for file in libraries["loop"] if "arrow" in file}
    assert any("arrow" in file for file in libraries["recorder"])


def shared_libraries(pid: int) -> set[str]:
    """The files with machine code that a process has mapped."""
    lines = [line.split(maxsplit=5) for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    return {fields[5] for fields in lines if len(fields) == 6 and "x" in fields[1] and fields[5].startswith("/")}


async def be_running(user: Panel) -> int:
    """From whatever mode to RUNNING, with the circuit of the beginning; returns the circuit's version."""
    for name in ("reset", "arm", "start"):
        await user.command(name)
    switched = await user.do("switch_circuit", file="lift.toml")
    await user.do("cycle", action="start")
    return int(switched["result"]["version"])


def logged_until(server: Server, tick: float) -> LogTable:
    """The log, once it holds this tick."""

    def long_enough() -> LogTable | None:
        table = read_log(server.logs[-1])
        return table if table.columns["tick"][-1] >= tick else None

    table: LogTable = eventually(long_enough)
    return table


def test_invalid_commands_are_refused_with_a_reason_and_without_effect(lasting: Server) -> None:
    async def send_all(user: Panel) -> None:
        version = await be_running(user)
        before = await user.see("circuit", lambda circuit: circuit["version"] == version)
        nonsense = list(malformed())
        assert len(nonsense) >= 150
        for name, payload, word in nonsense:
            start = len(user.seen)
            await user.client.publish(f"{user.prefix}command/{name}", payload, qos=1)
            answer = await user.see("answer", start=start)
            assert not answer["ok"], (name, payload[:200])
            assert word in answer["reason"], (name, payload[:200], answer["reason"])
            assert "defect" not in answer["reason"], answer["reason"]
            assert answer["problems"]
        state = await user.see("state", start=len(user.seen))
        assert state["mode"] == "RUNNING"
        assert user.all("circuit")[-1] == before
        again = await user.do("switch", component="relief", set={"opening_pressure": "125 bar"})
        assert again["result"]["version"] == before["version"] + 1

    talk(lasting, send_all)
    assert "Traceback" not in lasting.stderr


def test_mosquitto_pub_switches_a_component(lasting: Server) -> None:
    async def watch(user: Panel) -> None:
        await be_running(user)
        start = len(user.seen)
        payload = '{"component": "relief", "set": {"opening_pressure": "110 bar"}}'
        topic = f"{user.prefix}command/switch"
        command = ("mosquitto_pub", "-p", str(lasting.port), "-t", topic, "-m", payload)
        sender = await asyncio.create_subprocess_exec(*command)
        answer = await user.see("answer", start=start)
        assert await sender.wait() == 0
        assert answer["ok"]
        version = answer["result"]["version"]
        event = await user.see("event", lambda event: event["details"].get("version") == version, start)
        assert event["kind"] == "switch"
        assert event["tick"] == answer["tick"]
        circuit = await user.see("circuit", lambda circuit: circuit["version"] == version, start)
        assert circuit["tick"] == answer["tick"]
        assert circuit["source"]["components"]["relief"]["opening_pressure"] == "110 bar"

    talk(lasting, watch)


def test_telemetry_is_every_twentieth_row_of_the_log(lasting: Server) -> None:
    seen: list[Any] = []

    async def collect(user: Panel) -> None:
        await be_running(user)
        start = len(user.seen)
        await user.see("telemetry", lambda telemetry: "circuit.pump.Q" in telemetry["channels"], start)
        start = len(user.seen)
        await asyncio.sleep(0.5)
        await user.do(
            "switch", component="pump", type="fixed_pump", values={"displacement": "40 cm^3/rev", "speed": "1450 rpm"}
        )
        await asyncio.sleep(0.7)
        seen.extend(payload for topic, payload in user.seen[start:] if topic == "telemetry")

    talk(lasting, collect)
    ticked = [tick for message in seen for tick in message["channels"]["tick"] if tick is not None]  # None: missed
    table = logged_until(lasting, max(ticked))
    row_of = {tick: row for row, tick in enumerate(table.columns["tick"])}
    last = None
    for message in seen:
        channels, ticks = message["channels"], message["channels"]["tick"]
        assert message["dt"] == 0.02
        assert {len(samples) for samples in channels.values()} == {len(ticks)}
        known = {number: tick for number, tick in enumerate(ticks) if tick is not None}
        if not known:
            continue
        first = next(tick - 20 * number for number, tick in known.items())
        assert first % 20 == 0
        since = table.columns["missed"][table.columns["tick"] >= (last or 0.0)]
        assert last is None or first == last + 20 or since.any(), "a sample is missing"
        assert 0 not in known or message["t0"] == table.columns["utc"][row_of[first]]
        for number, tick in enumerate(ticks):
            assert tick == first + 20 * number if tick is not None else first + 20 * number not in row_of
            if tick is not None:
                row = row_of[tick]
                for name in ("p_A", "x"):
                    assert channels[name][number] == table.columns[f"channel.{name}"][row]
                assert channels["valve.main.command"][number] == table.columns["valve.main.command"][row]
        last = first + 20 * (len(ticks) - 1)
    before, after = seen[0]["channels"], seen[-1]["channels"]
    assert "circuit.pump.Q" in before
    assert "circuit.pump.Q" not in after
    assert "circuit.supply.p" in after
    (mixed,) = [m for m in seen if "circuit.pump.Q" not in m["channels"]][:1]
    missed = [tick is None for tick in mixed["channels"]["tick"]]
    assert [p is None for p in mixed["channels"]["circuit.supply.p"]] == missed, "a value that both circuits have"


def test_a_killed_broker_restarts_with_all_retained_messages(lasting: Server) -> None:
    async def before(user: Panel) -> None:
        await be_running(user)
        lasting.note_children()

    async def after(user: Panel) -> None:
        for topic in ("state", "circuit", "description", "telemetry"):
            await user.see(topic)
        assert user.all("state")[-1]["mode"] == "RUNNING"
        await user.do("set_input", input="joystick", value=0.1)

    talk(lasting, before)
    killed = lasting.pids["broker"]
    lasting.kill("broker")
    eventually(lambda: children_of(lasting.pids["supervisor"]).get("broker", killed) != killed)
    eventually(lambda: listens(lasting.port))
    talk(lasting, after)


def missed_ticks(event: dict[str, Any]) -> int:
    """The number of missed ticks that an event reports; a busy machine misses others before and after."""
    found = re.fullmatch(r"(\d+) ticks? missed and compensated", event["text"])
    return int(found[1]) if found else 0


def test_missed_ticks_are_counted_and_caught_up_and_too_many_trip(lasting: Server) -> None:
    async def pause(seconds: float) -> None:
        lasting.kill("loop", number=signal.SIGSTOP)
        await asyncio.sleep(seconds)
        lasting.kill("loop", number=signal.SIGCONT)

    async def watch(user: Panel) -> None:
        await be_running(user)
        start = len(user.seen)
        await pause(0.05)
        event = await user.see("event", lambda event: missed_ticks(event) >= 20, start)
        ticks = event["details"]["ticks"]
        assert ticks[0] == event["tick"]
        assert user.all("state")[-1]["mode"] == "RUNNING"
        await user.do("disarm")
        table = await asyncio.to_thread(logged_until, lasting, ticks[-1])
        row = max(np.flatnonzero(np.isin(table.columns["tick"], ticks)), key=lambda row: table.columns["missed"][row])
        missed = table.columns["missed"][row]
        assert missed >= 20
        segment = next(s for s in reversed(table.circuits) if s.version.start <= row)
        time = segment.values[row - segment.version.start - 1 :, segment.version.names.index("t")]
        assert time[1] - time[0] == pytest.approx((missed + 1) * 1e-3)
        await be_running(user)
        start = len(user.seen)
        await pause(1.3)
        fault = await user.see("event", lambda event: event["kind"] == "fault", start)
        assert "missed" in fault["text"]
        assert (await user.command("start"))["reason"].endswith("(start needs ARMED, the mode is FAULT).")

    lasting.note_children()
    talk(lasting, watch)


# ---------------------------------------------------------------------------------------------------------------------
# switched live


def test_random_switches_under_load(tmp_path: Path) -> None:
    """Each in its tick, none lost, the command smooth; how long they take is told by tests/benchmarks/switching.py.

    Some of them are under load.
    """
    random = np.random.default_rng(1)
    answers: list[Any] = []

    async def switch(user: Panel, times: int) -> None:
        await user.do("cycle", action="start")
        for _ in range(times):
            name, payload = random_switch(random)
            answers.append(await user.do(name, **payload))

    async def switch_often(user: Panel) -> None:
        await user.run_cycle()
        await switch(user, 30)
        await switch(user, 30)

    with Server(tmp_path) as server:
        talk(server, switch_often)
        with busy_processors():
            talk(server, functools.partial(switch, times=10))
        server.kill("supervisor", number=signal.SIGTERM)
        assert server.wait_exit() == 0
        table = read_log(server.logs[0])
    results = [answer["result"] for answer in answers]
    assert [result["version"] for result in results] == list(range(2, 72))
    columns = table.columns
    steps = np.diff(columns["circuit_version"])
    assert set(steps) == {0.0, 1.0}
    switched = np.flatnonzero(steps) + 1
    assert [answer["tick"] for answer in answers] == columns["tick"][switched].tolist()
    assert fastest(table) <= 1 + 1e-12
    assert np.abs(commands(table)).max() > 0.1
    assert_no_gap(table)
    assert Mode.FAULT not in columns["mode"]
