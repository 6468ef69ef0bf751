"""A child process and the supervisor: its arguments, and its reports as JSON lines on its standard output."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from typing import Any

from hilserver.driver import Driver

BETWEEN_REPORTS = 1.0
"""Minimum time in s between two reports of a device's failures."""
LONGEST_SENTENCE = 500


def arguments() -> list[str]:
    """Those of the command line; a process started without any waits for a JSON list of them on its standard input.

    It ends where none comes: the supervisor has ended, or does not need it.
    """
    if given := sys.argv[1:]:
        return given
    with open(0, "rb", buffering=0, closefd=False) as unbuffered:  # what follows the line is for `Orders`
        line = unbuffered.readline()
    if not line:
        sys.exit(0)
    return [str(word) for word in json.loads(line)]


def send_report(**content: Any) -> None:
    """Write a line for the supervisor. Without a supervisor the line is dropped, and the process continues."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(content).encode() + b"\n")


class Orders:
    """What the supervisor sends to a child process while it runs: JSON lines on its standard input.

    The child continues if the supervisor has ended, or there is none.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._begun = b""
        with contextlib.suppress(OSError):  # it is closed
            os.set_blocking(descriptor, False)

    def new(self) -> list[dict[str, Any]]:
        """The messages that have arrived since the last call; does not wait."""
        with contextlib.suppress(OSError):  # nothing more has arrived, or ever will
            while part := os.read(self._descriptor, 1 << 16):
                self._begun += part
        *lines, self._begun = self._begun.split(b"\n")
        return [json.loads(line) for line in lines]


class FailureReport:
    """Reports a device's failures to the supervisor when they are counted, at most once per BETWEEN_REPORTS."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._reported = 0
        self._due = 0.0

    def send_if_due(self) -> None:
        """Report new failures, if there are any and a report is due."""
        errors = self._driver.errors
        if (count := errors.total()) == self._reported or (now := time.monotonic()) < self._due:
            return
        self._reported, self._due = count, now + BETWEEN_REPORTS
        send_report(
            device=self._driver.name, errors=dict(errors), last_error=self._driver.last_error[:LONGEST_SENTENCE]
        )
