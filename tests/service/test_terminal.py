"""A terminal that stands still (Ctrl-S, a hung connection, a reader that hangs) holds up nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import signal
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from service_harness import Server, eventually, panel, rig_text
from warm_start import COMMAND

pytestmark = pytest.mark.realtime

HEARTBEAT_TIMEOUT = 2.5
"""Of the harness's rigs, s."""


@contextlib.contextmanager
def stopped_terminal() -> Iterator[int]:
    """A terminal after Ctrl-S: the end that a program has."""
    master, slave = pty.openpty()
    termios.tcflow(slave, termios.TCOOFF)
    try:
        yield slave
    finally:
        os.close(slave)
        os.close(master)


@contextlib.contextmanager
def full_pipe() -> Iterator[int]:
    """A pipe whose reader hangs: the end that a program has."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"." * 4096)
    os.set_blocking(writing, True)
    try:
        yield writing
    finally:
        os.close(writing)
        os.close(reading)


class MuteServer(Server):
    """A server whose standard output and error are ``terminal``."""

    terminal = -1

    def launch(self) -> None:
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.folder), "PYTHONPATH": self.path}
        self.process = subprocess.Popen(
            (*COMMAND, "run", "--verbose", str(self.rig)),
            stdin=subprocess.DEVNULL,
            stdout=self.terminal,
            stderr=self.terminal,
            env=environment,
            text=True,
        )
        self.pids = {"supervisor": self.process.pid}

    def wait_ready(self) -> None:
        note = self.notes / f"{self.name}.json"
        eventually(note.exists)
        self.read_note()


@contextlib.contextmanager
def launched(folder: Path, terminal: int) -> Iterator[MuteServer]:
    """A server that is ready, and whose output goes to this terminal."""
    server = MuteServer(folder)
    server.terminal = terminal
    server.launch()
    try:
        server.wait_ready()
        yield server
    finally:
        server.__exit__()


@pytest.mark.parametrize("standing_still", [stopped_terminal, full_pipe])
def test_a_blocked_terminal_stops_neither_the_run_nor_its_end(
    tmp_path: Path, standing_still: Callable[[], contextlib.AbstractContextManager[int]]
) -> None:
    async def talk() -> None:
        async with panel(server) as user:
            await user.do("arm")
            await user.do("start")
            began = time.monotonic()
            while time.monotonic() - began < HEARTBEAT_TIMEOUT + 1.5:
                answer = await user.command("jog", valve="main", command=0.01)
                assert not answer["ok"], "a refusal is logged"
                await asyncio.sleep(0.05)
            start = len(user.seen)
            state = await user.see("state", start=start)
            assert state["mode"] == "RUNNING", state["fault"]

    with standing_still() as terminal, launched(tmp_path, terminal) as server:
        asyncio.run(talk())
        server.kill("supervisor", number=signal.SIGTERM)
        assert server.wait_exit() == 0
        assert server.leaves() == []


def test_ctrl_c_ends_a_start_with_a_blocked_terminal(tmp_path: Path) -> None:
    with stopped_terminal() as terminal, launched(tmp_path, terminal) as server:
        server.kill("supervisor", number=signal.SIGINT)
        assert server.wait_exit() == 0


def test_errors_of_a_child_process_are_logged(tmp_path: Path) -> None:
    """Its standard error is not the terminal, which could stop it."""
    with Server(tmp_path) as server:
        for name in ("loop", "recorder", "device"):
            assert str(Path(f"/proc/{server.pids[name]}/fd/2").readlink()).startswith("pipe:")


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ("identify", "--drive", "--yes", "--seconds", "5", "--longest", "5"),
        ("calibrate", "p_S", "--points", "points.csv", "--yes"),
    ],
    ids=lambda command: command[0],
)
def test_commands_end_even_with_a_blocked_terminal(command: tuple[str, ...], tmp_path: Path) -> None:
    name, *options = command
    rig = tmp_path / "rig.toml"
    rig.write_text('calibration = "found.toml"\n' + rig_text(f"mute_{os.getpid()}_{name}", tmp_path))
    (tmp_path / "points.csv").write_text("raw,value\n0,0\n10,250\n")
    with stopped_terminal() as terminal:
        process = subprocess.Popen(
            (*COMMAND, name, str(rig), *options),
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=terminal,
            cwd=tmp_path,
        )
        try:
            assert process.wait(600) == 0
        finally:
            process.kill()
            process.wait()
    results = {"identify": "reports/*.toml", "calibrate": "found.toml"}
    assert list(tmp_path.glob(results[name]))
