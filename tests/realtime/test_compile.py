"""Building the program ahead of a run: of several processes that need it, one builds."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hilserver.compiler.loading import FINGERPRINT_FILE, folder_in_cache
from hilserver.compiler.sources import SHIPPED, only_one

PATIENCE = 120.0
"""Seconds; a busy machine takes its time to start a process."""
COMMAND = [sys.executable, "-m", "hilserver.realtime.compile"]


def group(leader: int) -> set[int]:
    """The living processes of a process group."""
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                state, _, number = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
                if int(number) == leader and state != "Z":
                    found.add(int(folder.name))
    return found


def one_waits_for_a_lock(pids: set[int]) -> bool:
    """Whether the kernel lists one of these processes among those that wait for a file lock."""
    waiting = [line.split() for line in Path("/proc/locks").read_text().splitlines() if "->" in line]
    return any(str(pid) in words for words in waiting for pid in pids)


@contextmanager
def started() -> Iterator[subprocess.Popen[str]]:
    """The process that a server starts, in a group of its own, of which nothing remains."""
    with subprocess.Popen(COMMAND, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.skipif((SHIPPED / FINGERPRINT_FILE).exists(), reason="the program is part of this package")
def test_a_second_process_waits_for_the_first_to_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And ends when its server does, with all that it has started: nothing builds on for nobody."""
    monkeypatch.setenv("CACHE_DIRECTORY", str(tmp_path))
    with only_one(folder_in_cache()), started() as second:
        deadline = time.monotonic() + PATIENCE
        while not one_waits_for_a_lock(group(second.pid)):
            assert second.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        second.terminate()
        assert second.wait() != 0
        deadline = time.monotonic() + 60.0
        while left := group(second.pid):
            assert time.monotonic() < deadline, left
            time.sleep(0.05)


HOLDER = """
import sys, time
from hilserver.compiler.loading import folder_in_cache
from hilserver.compiler.sources import only_one

with only_one(folder_in_cache()):
    print("held", flush=True)
    time.sleep(600.0)
"""


def test_the_lock_ends_with_its_holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However that ends: a builder that was killed keeps nobody waiting."""
    monkeypatch.setenv("CACHE_DIRECTORY", str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        holder.kill()
    with only_one(folder_in_cache()):
        pass


def test_a_prebuilt_program_is_ready_at_once() -> None:
    done = subprocess.run(COMMAND, capture_output=True, text=True, check=True)
    assert '"ready": true' in done.stdout
