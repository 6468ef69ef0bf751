"""Child processes of the supervisor: started as ``python -m module``, they say what they have to say in JSON lines."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, Self

from hilserver.errors import HilserverError

_log = logging.getLogger(__name__)
START_TIMEOUT = 120.0
"""Seconds a child has to get ready; the first start on a machine compiles the circuit engine."""
LONGEST_LINE = 1 << 20


class ChildFailed(HilserverError):
    """A child process that did not start; its text says why."""


class Child:
    """A running child process. Lines that it writes to its standard output are JSON objects."""

    def __init__(
        self, name: str, process: asyncio.subprocess.Process, heard: Callable[[dict[str, Any]], None] | None = None
    ) -> None:
        self.name = name
        self.process = process
        self._heard = heard
        self.ready: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._complaint = ""
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(
        cls, name: str, module: str, *arguments: str, heard: Callable[[dict[str, Any]], None] | None = None
    ) -> Self:
        """Start ``python -m module arguments`` in a session of its own, so that Ctrl-C reaches the supervisor alone.

        ``heard`` gets what it says beside that it is ready, and what went wrong with it.
        """
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module, *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=LONGEST_LINE,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        return cls(name, process, heard)

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self.process.returncode is None

    @property
    def was_ready(self) -> bool:
        """Whether it came as far as to be ready."""
        return self.ready.done() and self.ready.exception() is None

    async def wait_ended(self) -> str:
        """Wait for the end of the process; returns why it ended: its own words if it said any, else how."""
        await asyncio.shield(self._reading)
        return self._complaint or _ending(await self.process.wait())

    async def stop(self, patience: float = 5.0) -> None:
        """SIGTERM, and SIGKILL for one that doesn't listen."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                self.process.terminate()
            try:
                await asyncio.wait_for(self.process.wait(), patience)
            except TimeoutError:
                _log.warning("%s did not end within %g s and was killed", self.name, patience)
                self.kill()
        await asyncio.shield(self._reading)

    def kill(self) -> None:
        """SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()

    async def _read(self) -> None:
        """Follow what the child says, to its end."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                _log.info("%s: %s", self.name, line.decode(errors="replace").rstrip())
                continue
            if "error" in message:
                _log.error("%s: %s", self.name, message["error"])
                self._complaint = self._complaint or str(message["error"])  # what follows is a consequence
            elif "ready" in message:
                self.ready.set_result(message)
            elif self._heard is not None:
                self._heard(message)
        code = await self.process.wait()
        if not self.ready.done():
            reason = self._complaint or f"{self.name} ended before it was ready ({_ending(code)})."
            self.ready.set_exception(ChildFailed(reason))
            self.ready.exception()  # noticed by whoever waits; nobody needs to


async def all_ready(*children: Child, within: float = START_TIMEOUT) -> None:
    """Wait until all are ready. Raises ChildFailed with the reason of the first that isn't going to be."""
    waiting = [child.ready for child in children]
    done, _ = await asyncio.wait(waiting, timeout=within, return_when=asyncio.FIRST_EXCEPTION)
    for future in done:
        future.result()
    if late := [child.name for child in children if not child.ready.done()]:
        raise ChildFailed(f"{', '.join(late)} not ready within {within:g} s.")


def _ending(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
