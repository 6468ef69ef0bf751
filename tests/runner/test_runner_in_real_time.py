"""The runner in real time: commands, rows in shared memory and in a file, memory, its end; devices with workers."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from lift_bench import lift
from modbus_bench import TcpBench
from runner_bench import Packed, demo, last_line, rig_named
from slow_lift import modbus, slow_lift

from hilserver.circuit.library import standard_library
from hilserver.numerics.arrays import Floats
from hilserver.realtime.rig_setup import device_setups
from hilserver.realtime.segment_folder import segment_path
from hilserver.realtime.shared import LoopMemory
from hilserver.realtime.worker import MAKE_SAFE, VALUES, WHAT, WRITE, WorkerMemory, write_worker_file
from hilserver.rig.build import assemble
from hilserver.runner.rows import RowsFile, log_of
from hilserver.simulation.replay import replay_log
from hilserver.tick.codes import CommandKind, Mode, ResultCode
from hilserver.tick.program import command_record
from hilserver.tick.row import header, headers

pytestmark = pytest.mark.realtime

MOST_MEMORY = 10 * 1024
"""KiB."""


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    return Packed(demo("runner_live"), tmp_path_factory.mktemp("packed") / "rig")


def resident(process: subprocess.Popen[str]) -> int:
    """Memory of a process, KiB: private, shared, and that of files."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


def wait_for(memory: LoopMemory, is_so: Callable[[Floats], bool]) -> Floats:
    """The first row in the ring for which something is so."""
    row, end = np.zeros(memory.ring.width), time.monotonic() + 30.0
    while memory.ring.latest(row) < 0 or not is_so(row):
        assert time.monotonic() < end, header(row)
        time.sleep(0.005)
    return row


def test_a_run_from_its_start_to_sigterm(packed: Packed, tmp_path: Path) -> None:
    name, file = packed.rig.settings.name, tmp_path / "run.rows"
    with packed.running("--rows", file) as process:
        assert packed.done("--status")["mode"] == "SAFE"
        assert resident(process) <= MOST_MEMORY
        assert "refused: not possible in this mode" in packed.refusal("--send", "start")
        assert packed.done("--send", "arm")["mode"] == "ARMED"
        assert packed.done("--send", "start")["mode"] == "RUNNING"
        assert packed.done("--send", "input joystick 0.6")["mode"] == "RUNNING"
        assert "in use by process" in packed.refusal("--for", "1"), "a second one"
        memory = LoopMemory.attach(segment_path(name))
        assert memory.info.loop_pid == process.pid
        memory.mailbox.post(command_record(CommandKind.SET_INPUT, 0.0, 0.4))  # of Python, as the runner's own
        column = packed.rig.layout.column("valve.main.command")
        row = wait_for(memory, lambda row: header(row).command == 5 and abs(row[column]) > 0.02)
        memory.mailbox.post(command_record(CommandKind.SWAP, 7.0, 1.0))
        refused = wait_for(memory, lambda row: header(row).command == 6)
        assert (header(refused).result, header(refused).circuit_version) == (ResultCode.UNKNOWN_COMMAND, 1)
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
    assert last_line(output)["rig"] == name
    assert memory.loop_heartbeat.beats > header(row).tick - 10
    assert not segment_path(name).exists()

    rows = RowsFile(file).rows()
    same = rows[headers(rows)["tick"] == header(row).tick]
    assert same.tobytes() == row.tobytes(), "the ring and the file hold the same"
    assert np.isin((Mode.SAFE, Mode.ARMED, Mode.RUNNING), headers(rows)["mode"]).all()
    assert rows[-1, column] == packed.rig.plan.valve["safe_value"][0], "the valve ends at null"

    assert packed.done("--replay", file) == {"rows": len(rows), "bit_identical": True}
    log_of(file, tmp_path / "run.arrow")
    replayed = replay_log(tmp_path / "run.arrow", tolerance=0.0)
    assert (replayed.compared, replayed.differences, replayed.same_program) == (len(rows), (), True)


def test_a_recording_continues_in_further_files(tmp_path: Path) -> None:
    rig = demo("runner_parts")
    recording = rig.settings.recording.model_copy(update={"max_megabytes": 0.6})
    rig = replace(rig, settings=rig.settings.model_copy(update={"recording": recording}))
    packed = Packed(rig, tmp_path / "rig")
    (tmp_path / "run-002.rows").write_text("of another run")
    packed.done("--rows", tmp_path / "run.rows", "--for", 1.0)
    assert (tmp_path / "run-002.rows").read_text() == "of another run"
    parts = sorted({*tmp_path.glob("run*.rows")} - {tmp_path / "run-002.rows"})
    assert len(parts) == 2, "the older ones make room"
    assert parts[0].name != "run.rows"
    for part in parts:
        assert packed.run("--replay", part).returncode == 0
        log_of(part, part.with_suffix(".arrow"))
        assert replay_log(part.with_suffix(".arrow"), tolerance=0.0).differences == ()
    ticks = [headers(RowsFile(part).rows())["tick"] for part in parts]
    assert ticks[1][0] == ticks[0][-1] + headers(RowsFile(parts[1]).rows())["missed"][0] + 1


def test_a_recording_that_can_not_go_on(packed: Packed, tmp_path: Path) -> None:
    """The loop does; and the file ends with a complete row."""
    file = tmp_path / "run.rows"
    with packed.running("--rows", file) as process:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1_000_001, 1_000_001))
        wait_for(LoopMemory.attach(segment_path(packed.rig.settings.name)), lambda row: header(row).tick > 400)
        assert packed.done("--status")["mode"] == "SAFE"
        process.send_signal(signal.SIGTERM)
        errors = process.communicate(timeout=30)[1]
    assert (process.returncode, errors.count("\n")) == (1, 1)
    assert "run.rows: the recording ends here: File too large" in errors
    assert packed.done("--replay", file)["rows"] > 100


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGQUIT, signal.SIGINT])
def test_other_signals_end_it_as_sigterm_does(packed: Packed, number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_DFL)  # a shell lets what runs in its background ignore some of them
    try:
        with packed.running() as process:
            process.send_signal(number)
            assert process.wait(timeout=30) == 0
    finally:
        signal.signal(number, before)
    assert not segment_path(packed.rig.settings.name).exists()


def test_it_ends_although_a_reader_hangs(packed: Packed) -> None:
    with packed.running() as process:
        assert process.stdout is not None
        same = os.open(f"/proc/{process.pid}/fd/1", os.O_WRONLY | os.O_NONBLOCK)
        with contextlib.suppress(BlockingIOError):
            while os.write(same, bytes(4096)):
                pass
        os.close(same)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0


def test_a_rig_that_was_killed_does_not_run(packed: Packed) -> None:
    with packed.running() as process:
        process.kill()
        process.wait()
    for options in (["--status"], ["--send", "arm"]):
        assert "does not run here: its process was killed" in packed.refusal(*options)
    packed.done("--for", "0.01")  # nothing prevents the next one
    assert not segment_path(packed.rig.settings.name).exists()


def test_the_rig_of_a_server_is_left_to_it(packed: Packed) -> None:
    width = packed.rig.layout.width
    path = segment_path(packed.rig.settings.name)
    with contextlib.closing(LoopMemory.create(path, row_width=width, ring_rows=1000)):
        assert "is run here by hilserver itself" in packed.refusal("--send", "arm")


def test_it_ends_by_itself_and_ignores_a_reader_that_is_gone(packed: Packed) -> None:
    process = subprocess.Popen(packed.command("--for", "0.2"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(30) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()


def test_a_device_with_a_worker(tmp_path: Path) -> None:
    """The worker's side is that of hilserver; here the test serves the device, as a process of another language may."""
    rig = rig_named(slow_lift(100.0, "inverse_static"), "runner_slow")
    packed = Packed(rig, tmp_path / "rig")
    pipe = subprocess.PIPE
    process = subprocess.Popen(packed.command("--rows", tmp_path / "run.rows"), stdout=pipe, stderr=pipe, text=True)
    path = segment_path(f"{rig.settings.name}-rig")
    try:
        while not path.exists() or path.stat().st_size == 0:
            assert process.poll() is None, process.communicate()
            time.sleep(0.005)
        time.sleep(0.05)
        memory = WorkerMemory.attach(path)
        sample, command = np.zeros(memory.samples.width), np.zeros(memory.commands.width)
        for number in range(40):
            time.sleep(0.005)
            memory.commands.latest(command)
            sample[0], sample[memory.raw], sample[memory.times] = 3.0, 10.0 + number, time.monotonic()
            sample[memory.confirmed], sample[memory.confirmed_at] = command[VALUES:], command[0]
            memory.samples.publish(sample)
        assert command[WHAT] == WRITE
        sample[memory.times] = time.time()  # of another clock: its age can't be known
        memory.samples.publish(sample)
        time.sleep(0.03)
        process.send_signal(signal.SIGTERM)
        while command[WHAT] != MAKE_SAFE:
            memory.commands.latest(command)
            time.sleep(0.001)
        memory.made_safe = memory.commands.published
        output, errors = process.communicate(timeout=30)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, errors) == (0, ""), output
    rows = RowsFile(tmp_path / "run.rows").rows()
    assert np.isnan(rows[0, rig.layout.column("raw.p_A")]), "before the worker's first sample"
    last = dict(zip(rig.layout.names, rows[-1], strict=False))
    assert last["raw.p_A"] == last["raw.x"] == 49.0
    assert last["age.x"] == np.inf
    assert 0.0 <= np.min(rows[:, rig.layout.column("age.x")]) < 0.1
    assert last["errors.rig"] == 3.0
    assert last["confirmed.valve.A"] == last["valve.A.output"]
    assert np.isfinite(last["confirmed_age.valve.A"])
    assert replays(packed, tmp_path)


def replays(packed: Packed, folder: Path) -> bool:
    return bool(packed.done("--replay", folder / "run.rows")["bit_identical"])


def test_hilservers_own_worker_serves_a_modbus_device(at_network: TcpBench, tmp_path: Path) -> None:
    """Where there is Python: the worker as `hilserver run` starts it, at a real server."""
    server, sources = at_network.server, dict(slow_lift(100.0, "inverse_static").sources)
    table = {**modbus(100.0), "tcp": {"host": "127.0.0.1", "port": server.port}}
    sources["rig"] = {**sources["rig"], "name": f"runner_modbus_{os.getpid()}", "devices": {"rig": table}}
    rig = assemble(sources, lift().file, standard_library())
    packed, name = Packed(rig, tmp_path / "rig"), rig.settings.name
    path = segment_path(f"{name}-rig")
    (setup,) = device_setups(rig, {"rig": str(path)})
    write_worker_file(setup, 80, tmp_path / "worker.json")
    server.set("input", 0, list(struct.unpack(">HH", struct.pack(">f", 3.25))))
    with packed.running() as runner:
        words = [sys.executable, "-m", "hilserver.realtime.worker", str(tmp_path / "worker.json"), str(runner.pid)]
        worker = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        memory, column = LoopMemory.attach(segment_path(name)), rig.layout.column
        row = wait_for(memory, lambda row: bool(np.isfinite(row[column("confirmed.valve.A")])))
        assert row[column("raw.p_A")] == 3.25
        assert row[column("confirmed.valve.A")] == row[column("valve.A.output")]
        runner.send_signal(signal.SIGTERM)
        assert runner.communicate(timeout=30)[1] == "", "the worker confirms its safe values"
    assert runner.returncode == 0
    assert worker.communicate(timeout=30)[0].startswith('{"ready": true}')
    assert worker.returncode == 0, "without commands, and without the runner, it ends"
    assert server.get("holding", 0, 4) == [0, 0, 0, 0]


def test_a_crash_requests_the_safe_values(tmp_path: Path) -> None:
    rig = rig_named(slow_lift(100.0, "inverse_static"), "runner_crash")
    with Packed(rig, tmp_path / "rig").running() as process:
        memory = WorkerMemory.attach(segment_path(f"{rig.settings.name}-rig"))
        process.send_signal(signal.SIGSEGV)
        assert process.wait(timeout=30) == -signal.SIGSEGV
        command = np.zeros(memory.commands.width)
        memory.commands.latest(command)
        assert command[WHAT] == MAKE_SAFE
        assert process.stderr is not None
        assert "the loop has crashed; the safe values were requested" in process.stderr.read()
    for path in (memory.segment.path, segment_path(rig.settings.name)):
        path.unlink()


def test_a_worker_that_does_not_confirm_its_safe_values(tmp_path: Path) -> None:
    packed = Packed(rig_named(slow_lift(100.0, "inverse_static"), "runner_dead"), tmp_path / "rig")
    text = packed.refusal("--for", "0.05")
    assert "its worker does not confirm the safe values. Switch the hydraulic supply off at the machine" in text
    assert not segment_path(f"runner_dead_{os.getpid()}").exists()
