"""A whole server whose processes are killed: the valve comes to null, and nothing of the log is lost."""

from __future__ import annotations

import asyncio
import resource
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from message_schemas import SCHEMAS
from service_bench import assert_no_gap, assert_ramped_to_null, commands, set_in_motion
from service_harness import Panel, Server, applied, eventually, read_log, talk

from hilserver.realtime.rig_setup import RING_SECONDS
from hilserver.realtime.segment_folder import segment_path
from hilserver.record.recorder import FLUSH_EVERY
from hilserver.tick.codes import FaultCode, Mode

pytestmark = pytest.mark.realtime


def test_without_its_supervisor_the_loop_ramps_to_null_and_everything_ends(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        device = set_in_motion(server)
        server.kill("supervisor")
        eventually(lambda: applied(device) == 0.0)
        eventually(lambda: not server.alive())
        table = read_log(server.logs[0])
        assert not table.torn
        assert_ramped_to_null(table)
        assert table.columns["mode"][-1] == Mode.FAULT
        assert table.columns["fault"][-1] == FaultCode.SUPERVISOR
        assert not segment_path(f"{server.name}-rig").exists()


def test_a_restart_ends_the_processes_of_a_killed_supervisor(tmp_path: Path) -> None:
    with Server(tmp_path) as killed:
        set_in_motion(killed)
        killed.kill("supervisor")
        with Server(tmp_path, killed.name, options=("--report", str(tmp_path / "pages"))) as server:
            eventually(lambda: not killed.alive())
            assert_ramped_to_null(read_log(killed.logs[0]))
            set_in_motion(server)
            server.kill("supervisor", number=signal.SIGTERM)
            assert server.wait_exit() == 0
            assert server.leaves() == []
            log = server.logs[-1]
            assert not read_log(log).torn
            page = (tmp_path / "pages" / f"{log.stem}.html").read_text()
            assert "command cycle" in page
            assert "work per tick" in page


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_dead_or_hanging_loop_is_made_safe_by_the_supervisor(tmp_path: Path, how: signal.Signals) -> None:
    async def watch(user: Panel) -> None:
        await user.run_cycle()
        device = server.device
        await asyncio.to_thread(eventually, lambda: abs(applied(device)) > 1.0)
        server.kill("loop", number=how)
        fault = await user.see("event", lambda event: event["kind"] == "fault")
        assert "real-time process ended (killed by SIGKILL)" in fault["text"]
        assert "wrote the safe values" in fault["text"]
        assert fault["tick"] > 0
        state = await user.see("state", lambda state: state["mode"] == "FAULT")
        assert state["fault"] == fault["text"]
        await user.see("availability", lambda text: text == "offline")
        command = np.zeros(device.commands.width)
        device.commands.latest(command)
        assert command[1] == 0.0
        assert applied(device) == 0.0

    with Server(tmp_path) as server:
        talk(server, watch)
        assert server.wait_exit() == 1
        assert server.leaves() == []
        assert "Traceback" not in server.stderr
        table = read_log(server.logs[0])
        assert not table.torn
        assert np.abs(commands(table)).max() > 0.1


def test_without_any_process_the_watchdog_of_the_device_makes_it_safe(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        device = set_in_motion(server)
        server.kill("supervisor", "loop")
        eventually(lambda: applied(device) == 0.0)
        command = np.zeros(device.commands.width)
        device.commands.latest(command)
        assert command[1] != 0.0, "somebody wrote a safe command: this was not the watchdog"
        eventually(lambda: not server.alive())
        assert not read_log(server.logs[0]).torn


def test_a_dead_device_trips_by_the_age_of_its_samples(tmp_path: Path) -> None:
    async def watch(user: Panel) -> None:
        await user.run_cycle()
        server.kill("device")
        fault = await user.see("event", lambda event: event["kind"] == "fault")
        assert "age was violated" in fault["text"]
        warning = await user.see("event", lambda event: "device rig ended" in event["text"])
        assert warning["kind"] == "warning"
        refused = await user.command("reset")
        assert not refused["ok"]
        assert "limit" in refused["reason"]
        state = await user.see(
            "state", lambda state: state["mode"] == "FAULT" and "device rig" in str(state["warnings"])
        )
        assert any("age" in warning for warning in state["warnings"])

    with Server(tmp_path) as server:
        talk(server, watch)
        server.kill("supervisor", number=signal.SIGINT)
        assert server.wait_exit() == 0
        assert server.leaves() == []


def test_another_recorder_takes_over_with_the_circuit_that_runs_now(tmp_path: Path) -> None:
    pauses = []

    async def resumed(user: Panel, start: int, ended: float) -> None:
        await user.see("event", lambda event: "recording resumed" in event["text"], start)
        pauses.append(time.monotonic() - ended)

    async def watch(user: Panel) -> None:
        await user.run_cycle()
        await recorded(user, await user.do("switch", component="relief", set={"opening_pressure": "120 bar"}))
        server.kill("recorder")
        ended = time.monotonic()
        await user.see("event", lambda event: "not recorded" in event["text"])
        await resumed(user, 0, ended)
        await recorded(user, await user.do("switch", component="relief", set={"opening_pressure": "130 bar"}))
        server.note_children()
        # a full disk: the kernel refuses to let the file grow
        resource.prlimit(server.pids["recorder"], resource.RLIMIT_FSIZE, (1000, 1000))
        ended = time.monotonic()
        full = await user.see("event", lambda event: "can't be written" in event["text"])
        assert full["kind"] == "warning"
        state = await user.see("state", lambda state: "can't be written" in str(state["warnings"]))
        assert state["mode"] == "RUNNING"
        await resumed(user, len(user.seen), ended)
        state = await user.see("state", start=len(user.seen))
        assert "can't be written" not in str(state["warnings"])
        await user.do("stop")
        await user.see("margins")
        published = {topic for topic in SCHEMAS if not topic.startswith("command/")}
        assert {topic for topic, _ in user.seen} == published | {"availability"}  # each is checked at the end

    with Server(tmp_path) as server:
        talk(server, watch)
        server.kill("supervisor", number=signal.SIGTERM)
        assert server.wait_exit() == 0
        killed, full, last = map(read_log, server.logs)
        assert (killed.torn, last.torn) == (True, False)
        assert killed.header.packed["source"]["components"]["relief"]["opening_pressure"] == "150 bar"
        assert full.header.packed["source"]["components"]["relief"]["opening_pressure"] == "120 bar"
        assert last.header.packed["source"]["components"]["relief"]["opening_pressure"] == "130 bar"
        for table, version in ((full, 2), (last, 3)):
            assert table.columns["circuit_version"][0] == version
            assert table.header.circuit_names == table.circuits[0].version.names
        for before, after, pause in zip((killed, full), (full, last), pauses, strict=True):
            missing = after.columns["tick"][0] - before.columns["tick"][-1] - 1
            assert missing <= 0 or pause > RING_SECONDS - FLUSH_EVERY, "rows are missing that the ring held"
            assert_no_gap(after)


def test_rows_that_a_killed_recorder_had_not_written_are_in_the_next_log(
    tmp_path: Path,
) -> None:
    async def watch(user: Panel) -> None:
        server.kill("recorder")  # at once: it has written nothing
        for bar in (110, 120, 130):
            answer = await user.do("switch", component="relief", set={"opening_pressure": f"{bar} bar"})
        await recorded(user, answer)

    with Server(tmp_path) as server:
        talk(server, watch)
        server.kill("supervisor", number=signal.SIGTERM)
        assert server.wait_exit() == 0
        tables = [read_log(path) for path in server.logs]
        assert tables[0].columns["tick"][0] == tables[0].columns["missed"][0]
        assert [event for table in tables for _, event in table.events if event["kind"] == "lost"] == []
        assert len(tables[-1].circuits) == 4
        assert_no_gap(tables[-1])


async def recorded(user: Panel, answer: Any) -> None:
    """Wait until the tick of this answer is in the log."""
    await user.see("state", lambda state: (state["recording"]["tick"] or -1) > answer["tick"])


def test_a_signal_ends_the_run_in_order(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        set_in_motion(server)
        server.kill("supervisor", number=signal.SIGTERM)
        assert server.wait_exit() == 0
        assert server.leaves() == []
        table = read_log(server.logs[0])
        assert not table.torn
        assert_ramped_to_null(table)
        assert_no_gap(table)
        assert table.columns["mode"][-1] == Mode.SAFE
        assert "Traceback" not in server.stderr


def test_all_processes_are_asked_to_end_simultaneously(tmp_path: Path) -> None:
    """As systemd does it, unless it is told otherwise."""
    with Server(tmp_path) as server:
        set_in_motion(server)
        server.kill(*server.pids, number=signal.SIGTERM)
        server.wait_exit()
        eventually(lambda: not server.leaves())
        table = read_log(server.logs[0])
        assert not table.torn
        assert_ramped_to_null(table)
