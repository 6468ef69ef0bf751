"""Building the program ahead of a run: of several processes that need it, one builds."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hilserver.compiler.loading import folder_in_cache, only_one

PATIENCE = 120.0
"""Seconds; a busy machine takes its time to start a process."""
COMMAND = [sys.executable, "-m", "hilserver.realtime.compile"]


def waits_for_a_lock(pid: int) -> bool:
    """Whether the kernel lists a process among those that wait for a file lock."""
    return any("->" in line and f" {pid} " in line for line in Path("/proc/locks").read_text().splitlines())


def test_a_second_process_waits_for_the_first_to_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CACHE_DIRECTORY", str(tmp_path))
    with only_one(folder_in_cache()), subprocess.Popen(COMMAND, stdout=subprocess.PIPE, text=True) as second:
        deadline = time.monotonic() + PATIENCE
        while not (waiting := waits_for_a_lock(second.pid)) and time.monotonic() < deadline:
            assert second.poll() is None
            time.sleep(0.05)
        if not waiting:
            second.kill()
        assert waiting
        second.terminate()
    assert second.returncode != 0


def test_what_is_built_is_ready_at_once() -> None:
    done = subprocess.run(COMMAND, capture_output=True, text=True, check=True, env=dict(os.environ))
    assert '"ready": true' in done.stdout
