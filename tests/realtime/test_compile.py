"""Compiling ahead of a run: of several processes that need the same machine code, one makes it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from hilserver.circuit.program import mechanisms_folder
from hilserver.realtime.compile import MECHANISMS, only_one

PATIENCE = 120.0
"""Seconds; a busy machine takes its time to start a process."""


def waits_for_a_lock(pid: int) -> bool:
    """Whether the kernel lists a process among those that wait for a file lock."""
    return any("->" in line and f" {pid} " in line for line in Path("/proc/locks").read_text().splitlines())


def test_a_second_process_waits_for_the_first_to_compile() -> None:
    command = [sys.executable, "-m", "hilserver.realtime.compile", MECHANISMS]
    with only_one(mechanisms_folder()), subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as second:
        deadline = time.monotonic() + PATIENCE
        while not (waiting := waits_for_a_lock(second.pid)) and time.monotonic() < deadline:
            assert second.poll() is None
            time.sleep(0.05)
        if not waiting:
            second.kill()
        assert waiting
        second.terminate()
    assert second.returncode != 0


def test_the_lock_ends_with_its_holder() -> None:
    command = [sys.executable, "-m", "hilserver.realtime.compile", MECHANISMS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert '"ready": true' in done.stdout
    with only_one(mechanisms_folder()):
        pass
