"""Parts of the service that need no running server: what is told about rows, recording over a gap, notes, children."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hilserver.compiler import is_compiled, loading
from hilserver.compiler.loading import FINGERPRINT_FILE, folder_in_cache
from hilserver.compiler.seal import seal
from hilserver.compiler.sources import fingerprint
from hilserver.numerics.arrays import Floats
from hilserver.protocol.address import BrokerAddress
from hilserver.protocol.running import announce, find, running, withdraw, working_folder
from hilserver.realtime.setup import swap_payload
from hilserver.realtime.shared import LoopMemory
from hilserver.record.format import RecordError, is_circuit
from hilserver.record.reader import LogReader
from hilserver.record.recorder import CIRCUIT_VERSION, LogRecorder
from hilserver.record.run import packed_record, run_header
from hilserver.record.writer import LogWriter
from hilserver.rig.build import Rig, assemble, load_rig
from hilserver.rig.plan import first_row
from hilserver.service import device_reports
from hilserver.service.children import Child, ChildFailed, Prepared, all_ready
from hilserver.service.forking import OF_SERVICE_MANAGER, fork
from hilserver.service.telemetry import TelemetryReader
from hilserver.service.telemetry_samples import LONGEST_GAP
from hilserver.tick.codes import FIRST_LIMIT_FAULT, CommandKind, Mode
from hilserver.tick.program import no_command
from hilserver.tick.row import command_in, header


@pytest.fixture(scope="module")
def rig() -> Rig:
    return load_rig(Path(__file__).parents[2] / "config" / "rigs" / "demo.toml")


@pytest.fixture(scope="module")
def demo_with_key(rig: Rig) -> Rig:
    """The demo's rig with a channel more, the local enable."""
    sources = json.loads(json.dumps(rig.sources))
    sources["rig"]["channels"]["key"] = {"device": "rig", "source": "x", "scale": {"raw": [0, 10], "value": [0, 1]}}
    sources["rig"]["enable"] = {"channel": "key"}
    return assemble(sources, rig.file, rig.library)


def memory_for(rig: Rig, folder: Path) -> LoopMemory:
    return LoopMemory.create(folder / "segment", row_width=rig.layout.width, ring_rows=1000, mailbox_slots=4)


@pytest.fixture
def memory(rig: Rig, tmp_path: Path) -> Iterator[LoopMemory]:
    with memory_for(rig, tmp_path) as memory:
        yield memory


class Loop:
    """Publishes rows as the loop does, without one."""

    def __init__(self, rig: Rig, memory: LoopMemory) -> None:
        self.rig, self.memory = rig, memory
        self.row = first_row(rig.layout, rig.plan, rig.packed)
        self.row[rig.layout.names.index("channel.x")] = 0.25

    def tick(self, count: int = 1, missed: int = 0, **values: float) -> None:
        for _ in range(count):
            header(self.row).tick += missed + 1
            header(self.row).utc = 1.8e9 + header(self.row).tick * 1e-3
            header(self.row).missed, missed = missed, 0
            for name, value in values.items():
                self.rig.layout.values(self.row, name.replace("__", "."))[...] = value
            self.memory.ring.publish(self.row)

    def take(self, kind: int, first: float = 0.0, payload: bytes = b"") -> None:
        """The tick that takes a command."""
        record = no_command()
        order = command_in(record)
        order.kind, order.a = kind, first
        number = self.memory.mailbox.post(record, payload) + 1
        self.memory.mailbox.take()
        self.memory.mailbox.take()  # done with it
        values: dict[str, Any] = {"circuit_version": first} if kind == CommandKind.SWAP else {}
        self.tick(command=number, **values)

    def swap(self, version: int) -> None:
        packed = self.rig.packed
        about = {k: v for k, v in packed_record(packed, self.rig.circuit.source).items() if k not in ("index", "value")}
        carried = packed.carried_from(packed)
        self.take(CommandKind.SWAP, version, swap_payload(packed, carried, json.dumps(about).encode()))


# ---------------------------------------------------------------------------------------------------------------------
# telemetry


def test_telemetry_is_on_the_grid_with_null_for_what_is_missing_or_no_number(rig: Rig, memory: LoopMemory) -> None:
    loop, reader = Loop(rig, memory), TelemetryReader(rig, memory)
    loop.tick(25)
    loop.tick(missed=30)  # tick 40 is missing
    loop.tick(10, channel__p_A=np.nan)
    telemetry = reader.samples.batch(reader.read())
    assert telemetry is not None
    assert telemetry.channels["tick"] == (0, 20, None, 60)
    assert telemetry.channels["p_A"] == (0.0, 0.0, None, None)
    assert telemetry.channels["x"] == (0.25, 0.25, None, 0.25)
    assert (telemetry.t0, telemetry.dt) == (1.8e9, 0.02)
    loop.tick(19)
    telemetry = reader.samples.batch(reader.read())
    assert telemetry is not None
    assert telemetry.channels["tick"] == (80,)
    loop.tick(5)
    assert reader.samples.batch(reader.read()) is None


def test_a_long_pause_makes_no_long_telemetry(rig: Rig, memory: LoopMemory) -> None:
    loop, reader = Loop(rig, memory), TelemetryReader(rig, memory)
    loop.tick(5)
    loop.tick(missed=20 * (LONGEST_GAP + 1))
    loop.tick(40)
    telemetry = reader.samples.batch(reader.read())
    assert telemetry is not None
    assert len(telemetry.channels["tick"]) == 2


def test_samples_of_another_circuit_keep_the_names_they_share(rig: Rig, memory: LoopMemory) -> None:
    source = {**rig.circuit.source, "components": {**rig.circuit.source["components"]}}
    source["components"]["line"] = {"type": "volume", "ports": {"P": "supply"}, "volume": "3 l"}
    source["components"]["pump"] = {
        "type": "fixed_pump",
        "ports": {"P": "supply", "T": "tank"},
        "displacement": "40 cm^3/rev",
        "speed": "1450 rpm",
    }
    packed = rig.pack(rig.read_circuit(source))
    start = len(rig.layout.names)
    loop, reader = Loop(rig, memory), TelemetryReader(rig, memory)
    reader.samples.expect(2, packed)
    loop.row[start + rig.packed.names.index("supply.p")] = 1e7
    loop.tick(30)
    loop.row[start:] = 0.0
    loop.row[start + packed.names.index("supply.p")] = 2e7
    loop.row[start + packed.names.index("pump.q_P")] = 1e-3
    loop.tick(20, circuit_version=2.0)
    telemetry = reader.samples.batch(reader.read())
    assert telemetry is not None
    assert telemetry.channels["circuit.supply.p"] == (1e7, 1e7, 2e7)
    assert telemetry.channels["circuit.pump.q_P"][2] == 1e-3
    assert "circuit.pump.Q" not in telemetry.channels


def test_an_invalid_reading_is_reported_with_its_reason(memory: LoopMemory) -> None:
    demo = load_rig(Path(__file__).parents[2] / "config" / "rigs" / "demo.toml")
    channels = {**demo.settings.channels, "p_S": demo.settings.channels["p_S"].model_copy(update={"valid_raw": (1, 9)})}
    rig = dataclasses.replace(demo, settings=demo.settings.model_copy(update={"channels": channels}))
    loop, reader = Loop(rig, memory), TelemetryReader(rig, memory)
    plan = rig.plan
    loop.row[plan.layout[0].age : plan.layout[0].errors] = loop.row[plan.layout[0].stale : plan.layout[0].change] = 0.0
    loop.tick(raw__p_S=5.0)
    assert list(reader.warnings(reader.read()[-1])) == []
    loop.tick(raw__p_S=0.5, stale__p_S=1e-3, raw__p_A=np.nan, stale__p_A=1e-3, raw__x=5.0, stale__x=1e-3)
    assert list(reader.warnings(reader.read()[-1])) == [
        "channel p_A: the device has no sample",
        "channel p_S: raw 0.5 is outside 1 … 9",
        "channel x: it changes faster than valid_rate",
    ]
    loop.tick(raw__p_S=5.0, raw__p_A=5.0, stale__p_S=4e-4, stale__p_A=0.0, stale__x=4e-4)  # the jitter of a slow device
    assert list(reader.warnings(reader.read()[-1])) == []


def test_events_name_what_happened_in_order(rig: Rig, memory: LoopMemory) -> None:
    loop, reader = Loop(rig, memory), TelemetryReader(rig, memory)
    loop.tick(3, mode=Mode.SAFE)
    assert reader.events(reader.read()) == []
    loop.tick(mode=Mode.ARMED)
    loop.tick(mode=Mode.RUNNING)
    for violated in (1.0, 0.0, 1.0, 1.0, 0.0):
        loop.tick(limit__stroke=violated)
    loop.swap(2)
    loop.tick(missed=4)
    loop.tick(missed=1)
    loop.tick(mode=Mode.FAULT, fault=FIRST_LIMIT_FAULT + rig.layout.limits.index("p_A_high"))
    events = reader.events(reader.read())
    assert [(event.kind, event.text, event.tick) for event in events] == [
        ("info", "ARMED", 3),
        ("info", "RUNNING", 4),
        ("warning", "limit stroke is violated", 5),
        ("switch", "version 2 of the circuit is active", 10),
        ("warning", "5 ticks missed and compensated", 15),
        ("fault", "FAULT: limit p_A_high was violated (action trip)", 18),
    ]
    assert events[5].details == {"mode": "FAULT", "ended": "limit p_A_high"}
    assert events[2].details == {"ticks": [5, 7]}
    assert events[4].details == {"ticks": [15, 17]}
    assert reader.missed == 5
    assert reader.events(reader.read()) == []


@pytest.mark.parametrize(("violated", "told"), [(1.0, "ARMED: limit stroke"), (0.0, "ARMED")])
def test_the_limit_that_ends_the_run_without_a_trip_is_named(
    violated: float, told: str, rig: Rig, tmp_path: Path
) -> None:
    sources = json.loads(json.dumps(rig.sources))
    sources["rig"]["limits"]["stroke"]["action"] = "ramp"
    rig = assemble(sources, rig.file, rig.library)
    with memory_for(rig, tmp_path) as memory:
        loop, reader = Loop(rig, memory), TelemetryReader(rig, memory)
        for mode in (Mode.SAFE, Mode.ARMED, Mode.RUNNING):
            loop.tick(mode=mode)
        reader.events(reader.read())
        loop.tick(mode=Mode.ARMED, limit__stroke=violated)
        event = reader.events(reader.read())[0]
        assert (event.text, event.details.get("ended", "")) == (told, told.removeprefix("ARMED").removeprefix(": "))


def test_the_local_enable_is_reported_and_displayed(demo_with_key: Rig, tmp_path: Path) -> None:
    rig = demo_with_key
    with memory_for(rig, tmp_path) as memory:
        loop, reader = Loop(rig, memory), TelemetryReader(rig, memory)
        plan = rig.plan
        loop.row[plan.layout[0].stale : plan.layout[0].change] = 0.0
        loop.tick(channel__key=1.0)
        assert reader.events(reader.read()) == []
        assert reader.state(loop.row, 0).enabled is True
        loop.tick(channel__key=0.0)
        assert [(event.kind, event.text) for event in reader.events(reader.read())] == [
            ("warning", "the local enable is off")
        ]
        state = reader.state(loop.row, 0)
        assert state.enabled is False
        assert "the local enable is off: the rig can't be armed or started" in state.warnings
        for on in (1.0, 0.0, 1.0):  # a contact that bounces
            loop.tick(channel__key=on)
        assert [event.text for event in reader.events(reader.read())] == ["the local enable is on"]


def test_without_a_local_enable_it_is_not_mentioned(rig: Rig, memory: LoopMemory) -> None:
    loop, reader = Loop(rig, memory), TelemetryReader(rig, memory)
    loop.tick()
    state = reader.state(loop.row, 0)
    assert state.enabled is None
    assert not [text for text in state.warnings if "enable" in text]


# ---------------------------------------------------------------------------------------------------------------------
# recorder


def recorder(rig: Rig, memory: LoopMemory, path: Path, version: int = 1) -> LogRecorder:
    header = run_header(rig, "program", "real time")
    header = header.model_copy(update={"extra": {**header.extra, CIRCUIT_VERSION: version}})
    return LogRecorder(memory, LogWriter(path, header))


def logged(path: Path) -> tuple[Floats, list[tuple[int, Any]]]:
    table = LogReader(path).read_all()
    return table.columns["tick"], table.events


def test_commands_in_lost_rows_are_still_logged(rig: Rig, memory: LoopMemory, tmp_path: Path) -> None:
    loop, path = Loop(rig, memory), tmp_path / "log.arrow"
    log = recorder(rig, memory, path)
    loop.tick(10)
    log.step()
    loop.swap(2)
    loop.take(CommandKind.SET_INPUT)
    loop.tick(1500)
    log.step()
    log._writer.close()
    ticks, events = logged(path)
    row = int(np.flatnonzero(np.diff(ticks) > 1)[0]) + 1
    assert log.lost == ticks[row] - 10
    assert [event["kind"] for _, event in events] == ["command", "circuit", "command", "lost"]
    assert {number for number, _ in events} == {row}


def test_a_log_ends_where_a_switch_was_lost(rig: Rig, memory: LoopMemory, tmp_path: Path) -> None:
    loop = Loop(rig, memory)
    log = recorder(rig, memory, tmp_path / "log.arrow")
    loop.tick(10)
    log.step()
    loop.swap(2)
    for _ in range(5):  # the mailbox has 4 slots
        loop.take(CommandKind.SET_INPUT)
    loop.tick(1500)
    with pytest.raises(RecordError, match="a switch of the circuit was lost"):
        log.step()


def test_a_new_recorder_begins_with_the_circuit_of_its_header(rig: Rig, memory: LoopMemory, tmp_path: Path) -> None:
    loop, path = Loop(rig, memory), tmp_path / "log.arrow"
    loop.tick(10)
    loop.swap(2)
    loop.tick(10)
    loop.swap(3)
    log = recorder(rig, memory, path, 2)
    log.step()
    log._writer.close()
    ticks, events = logged(path)
    assert ticks.tolist() == list(range(10, 22))
    assert [row for row, event in events if is_circuit(event)] == [11]
    with pytest.raises(RecordError, match="started too late"):
        recorder(rig, memory, tmp_path / "late.arrow", 0).step()


# ---------------------------------------------------------------------------------------------------------------------
# notes and children


def test_notes_of_running_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    address = BrokerAddress(port=1234)
    note = announce("lab", address)
    (note.parent / "dead.json").write_text(json.dumps({"pid": 2**22 + 1, **address.model_dump(mode="json")}))
    (note.parent / "half.json").write_text('{"pid"')
    (note.parent / "other.json").write_text('{"request": 1}')
    assert running() == {"lab": address}
    assert find(None) == ("lab", address)
    withdraw(note)
    withdraw(note)
    assert running() == {}


def test_a_failure_of_a_device_is_an_event_after_a_quiet_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that fails again and again would fill the log; its failures are counted."""
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    reports, said = device_reports.DeviceReports(["card"]), []
    for count, at in enumerate((1.0, 2.0, 10.0, 20.1), 1):
        now = at
        reports.heard({"device": "card", "errors": {"unplugged": count}, "last_error": "device card: it is unplugged."})
        said.append(reports.news())
    assert said == [["device card: it is unplugged."], [], [], ["device card: it is unplugged."]]
    assert reports.news() == []
    assert reports.status()["card"].errors == {"unplugged": 4}


def test_a_pending_build_of_the_program_is_announced(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That takes a minute, in which the supervisor would hear nothing: another process is to do it."""
    assert is_compiled(rig.library)
    monkeypatch.setenv("CACHE_DIRECTORY", str(tmp_path))
    monkeypatch.setattr(loading, "SHIPPED", tmp_path / "nothing")
    assert not is_compiled(rig.library)
    folder_in_cache().mkdir()
    (folder_in_cache() / FINGERPRINT_FILE).write_text("of other sources")
    seal(folder_in_cache())
    assert not is_compiled(rig.library)
    (folder_in_cache() / FINGERPRINT_FILE).write_text(fingerprint())
    seal(folder_in_cache())
    assert is_compiled(rig.library)


def test_the_working_folder_is_private_and_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    left_behind = working_folder("lab") / "setup.npz"
    left_behind.touch()
    folder = working_folder("lab")
    assert not left_behind.exists()
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_child_that_does_not_start_reports_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    says = "import json\nprint(json.dumps({'error': 'first'}))\nprint(json.dumps({'error': 'then'}))\n"
    (tmp_path / "sick_child.py").write_text(says)
    (tmp_path / "mute_child.py").write_text("raise SystemExit(7)")

    async def start(module: str) -> str:
        child = await Child.start("child", module)
        with pytest.raises(ChildFailed) as failure:
            await all_ready(child)
        await child.stop()
        return str(failure.value)

    assert asyncio.run(start("sick_child")) == "first"
    assert asyncio.run(start("mute_child")) == "child ended before it was ready (exit code 7)."


FORKING = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
"""Python 3.12 warns of a fork where the process has threads, as this one has in parallel tests."""


@FORKING
def test_a_prepared_child_gets_its_arguments_and_the_others_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.syspath_prepend(tmp_path)
    text = """
import os
from hilserver.realtime.reports import arguments, send_report
def main():
    send_report(ready=True, pid=os.getpid(), given=arguments())
    return 3
if __name__ == "__main__":
    main()
"""
    for name in ("wanted_child", "spare_child"):
        (tmp_path / f"{name}.py").write_text(text)
    descriptors = len(list(Path("/proc/self/fd").iterdir()))

    async def run() -> None:
        prepared = Prepared({name: fork(name) for name in ("wanted_child", "spare_child")})
        child = await Child.start("child", "wanted_child", "a b", '{"c": 1}', prepared=prepared)
        await all_ready(child)
        assert child.ready.result() == {"ready": True, "pid": child.process.pid, "given": ["a b", '{"c": 1}']}
        another = await Child.start("child", "wanted_child", "d", prepared=prepared)  # as after its end
        await all_ready(another)
        assert another.ready.result()["given"] == ["d"]
        assert await child.wait_ended() == "exit code 3"
        assert await another.wait_ended() == "exit code 0"
        prepared.end()
        assert await prepared.take("spare_child", []) is None

    asyncio.run(run())
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


@FORKING
def test_a_forked_child_that_fails_or_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "defective_child.py").write_text("def main():\n    raise ValueError('defect')\n")
    (tmp_path / "leaving_child.py").write_text("def main():\n    raise SystemExit(4)\n")
    (tmp_path / "waiting_child.py").write_text("import time\ndef main():\n    time.sleep(1e3)\n")

    async def run() -> None:
        names = ("defective_child", "leaving_child", "waiting_child")
        prepared = Prepared({name: fork(name) for name in names})
        defective, leaving, waiting = [await Child.start(name, name, prepared=prepared) for name in names]
        assert await defective.wait_ended() == "exit code 1"
        assert await leaving.wait_ended() == "exit code 4"
        assert waiting.running
        waiting.kill()
        assert await waiting.wait_ended() == "killed by SIGKILL"
        waiting.kill()  # which has no effect any more
        await waiting.stop()

    asyncio.run(run())


@FORKING
def test_a_forked_child_does_not_know_the_service_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the supervisor may notify it."""
    monkeypatch.syspath_prepend(tmp_path)
    for name in OF_SERVICE_MANAGER:
        monkeypatch.setenv(name, "1")
    text = "import os\nfrom hilserver.realtime.reports import send_report\n"
    text += "def main():\n    send_report(ready=True, names=sorted(os.environ))\n"
    (tmp_path / "telling_child.py").write_text(text)

    async def run() -> list[str]:
        child = await Child.start("c", "telling_child", prepared=Prepared({"telling_child": fork("telling_child")}))
        await all_ready(child)
        assert await child.wait_ended() == "exit code 0"
        return list(child.ready.result()["names"])

    names = asyncio.run(run())
    assert "PATH" in names
    assert not {*OF_SERVICE_MANAGER} & {*names}


@FORKING
def test_a_forked_child_is_shown_by_its_module_and_holds_no_pipe_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    text = """
import os
from pathlib import Path
from hilserver.realtime.reports import send_report
def main():
    shown = Path("/proc/self/cmdline").read_text().split("\\0")[:3]
    name = Path("/proc/self/comm").read_text()
    send_report(ready=True, shown=shown, name=name, session=os.getsid(0), files=len(os.listdir("/proc/self/fd")))
    os.read(0, 1)
"""
    (tmp_path / "shown_child.py").write_text(text)

    async def run() -> None:
        first, second = Prepared({"shown_child": fork("shown_child")}), Prepared({"shown_child": fork("shown_child")})
        children = [await Child.start("c", "shown_child", prepared=each, keep_input=True) for each in (first, second)]
        await all_ready(*children)
        for child in children:
            said = child.ready.result()
            assert said["shown"] == ["python", "-m", "shown_child"]
            assert said["name"] == "python\n"  # not that of the supervisor, which ``pkill hilserver`` is to end
            assert said["session"] == child.process.pid
            assert said["files"] == 4  # its standard three, and the folder in which it looks
            child.kill()
            await child.wait_ended()

    asyncio.run(run())


def test_a_prepared_child_ends_where_no_arguments_come() -> None:
    """Its standard input ends with the supervisor, even if that is killed before it knows the arguments."""
    command = [sys.executable, "-c", "from hilserver.realtime.reports import arguments\nprint(arguments())"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
