"""Child processes of the supervisor: started as ``python -m module``, they say what they have to say in JSON lines."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from typing import Any, Self

from hilserver.errors import HilserverError

_log = logging.getLogger(__name__)
START_TIMEOUT = 120.0
"""Seconds a child has to get ready; the first start on a machine compiles the circuit engine."""


class ChildFailed(HilserverError):
    """A child process that did not start; its text says why."""


class Child:
    """A running child process. Lines that it writes to its standard output are JSON objects."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.process = process
        self.ready: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, name: str, module: str, *arguments: str) -> Self:
        """Start ``python -m module arguments`` in a session of its own, so that Ctrl-C reaches the supervisor alone."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module, *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        return cls(name, process)

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self.process.returncode is None

    async def wait_ready(self) -> dict[str, Any]:
        """What the child says once it is ready. Raises ChildFailed with its reason, or where it takes too long."""
        try:
            return await asyncio.wait_for(asyncio.shield(self.ready), START_TIMEOUT)
        except TimeoutError:
            raise ChildFailed(f"{self.name} was not ready within {START_TIMEOUT:g} s.") from None

    async def stop(self, patience: float = 5.0) -> None:
        """SIGTERM, and SIGKILL for one that doesn't listen."""
        if self.running:
            self.process.terminate()
            try:
                await asyncio.wait_for(self.process.wait(), patience)
            except TimeoutError:
                _log.warning("%s did not end within %g s and was killed", self.name, patience)
                self.process.kill()
                await self.process.wait()
        await self._reading

    async def _read(self) -> None:
        assert self.process.stdout is not None
        said = ""
        async for line in self.process.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                _log.info("%s: %s", self.name, line.decode(errors="replace").rstrip())
                continue
            if "error" in message:
                said = str(message["error"])
                _log.error("%s: %s", self.name, said)
            elif not self.ready.done():
                self.ready.set_result(message)
        code = await self.process.wait()
        if not self.ready.done():
            self.ready.set_exception(ChildFailed(said or f"{self.name} ended before it was ready (exit code {code})."))
            self.ready.exception()  # noticed by whoever waits; nobody needs to
