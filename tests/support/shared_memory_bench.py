"""Processes that share a segment of memory with the test."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from hilserver.realtime.shared import LoopMemory

WIDTH = 300
Start = Callable[..., "subprocess.Popen[str]"]

_HEADER = """
import os, resource, signal, sys, time
import numpy as np
from hilserver.realtime.queues import *
from hilserver.realtime.segment import *
from hilserver.realtime.shared import *
path = sys.argv[1]
"""


@contextlib.contextmanager
def starting(path: Path) -> Iterator[Start]:
    """Starts a Python process with the given code, which finds the segment's path in `path`; ends it after the test."""
    started: list[subprocess.Popen[str]] = []

    def run(code: str) -> subprocess.Popen[str]:
        arguments = [sys.executable, "-c", _HEADER + textwrap.dedent(code), str(path)]
        process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def create(path: Path, **changes: int) -> LoopMemory:
    shape = {"row_width": WIDTH, "ring_rows": 8, "mailbox_slots": 4, "payload_bytes": 4096} | changes
    return LoopMemory.create(path, **shape)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < deadline, "waited for 30 s in vain"
        time.sleep(0.001)


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    assert process.wait(30) == -signal.SIGKILL


def numbered(sequence: int, width: int = WIDTH) -> np.ndarray:
    return np.full(width, float(sequence))
