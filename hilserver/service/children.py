"""Child processes of the supervisor: started as ``python -m module``, they report in JSON lines."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, Self

from hilserver.errors import HilserverError

_log = logging.getLogger(__name__)
START_TIMEOUT = 120.0
"""Seconds allowed for a child to get ready; the first start of a version compiles it."""
LONGEST_LINE = 1 << 20
DRAIN_TIMEOUT, LOG_DELAY = 0.5, 0.05
"""Seconds for which the standard error of an ended child is read; seconds without output after which it is logged."""
USUAL_CHILDREN = ("hilserver.realtime.process", "hilserver.realtime.device", "hilserver.record.recorder")
"""Modules of the child processes of most runs."""


class ChildFailed(HilserverError):
    """A child process did not start; the text states why."""


class Prepared:
    """Child processes that import their modules while the supervisor loads its own, and wait for their arguments."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, *modules: str) -> None:
        """Start a process of each module; `end` them in any case."""
        for module in modules:
            self._waiting[module] = await _started(module, stdin=asyncio.subprocess.PIPE)

    def take(
        self, module: str, arguments: Sequence[str], *, keep_input: bool = False
    ) -> asyncio.subprocess.Process | None:
        """Give a waiting process of this module its arguments; None if there is none."""
        process = self._waiting.pop(module, None)
        if process is None or process.returncode is not None:
            return None
        assert process.stdin is not None
        process.stdin.write(json.dumps(arguments).encode() + b"\n")
        if not keep_input:
            process.stdin.close()
        return process

    async def end(self) -> None:
        """End those that were not needed."""
        while self._waiting:
            _, process = self._waiting.popitem()
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _started(module: str, *arguments: str, stdin: int) -> asyncio.subprocess.Process:
    """Start ``python -m module arguments`` in a separate session, so that Ctrl-C reaches the supervisor only."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments),
        stdin=stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,  # a blocked terminal would block the child process
        start_new_session=True,
        limit=LONGEST_LINE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


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
        self._passing_on = asyncio.create_task(self._pass_on())

    @classmethod
    async def start(
        cls,
        name: str,
        module: str,
        *arguments: str,
        heard: Callable[[dict[str, Any]], None] | None = None,
        prepared: Prepared | None = None,
        keep_input: bool = False,
    ) -> Self:
        """Start a module with these arguments, in a process that is ``prepared`` if there is one.

        ``heard`` receives all messages except those that it is ready or has failed. ``keep_input``: it waits for `go`,
        or takes what is sent with `send`.
        """
        process = prepared.take(module, arguments, keep_input=keep_input) if prepared is not None else None
        stdin = asyncio.subprocess.PIPE if keep_input else asyncio.subprocess.DEVNULL
        return cls(name, process or await _started(module, *arguments, stdin=stdin), heard)

    def go(self) -> None:
        """Let a process that waits for this continue."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")
        self.process.stdin.close()

    def send(self, **content: Any) -> None:
        """Send a line to its standard input, which it reads with `hilserver.realtime.reports.Orders`."""
        assert self.process.stdin is not None
        if not self.process.stdin.is_closing():
            self.process.stdin.write(json.dumps(content).encode() + b"\n")

    @property
    def running(self) -> bool:
        """Whether the process is running."""
        return self.process.returncode is None

    @property
    def was_ready(self) -> bool:
        """Whether the process has been ready."""
        return self.ready.done() and self.ready.exception() is None

    async def wait_ended(self) -> str:
        """Wait for the end of the process; returns why it ended: the reason that it reported, otherwise its exit
        code."""
        await asyncio.shield(self._reading)
        await self._all_passed_on()
        return self._complaint or _ending(await self.process.wait())

    async def stop(self, patience: float = 5.0) -> None:
        """Send SIGTERM, and SIGKILL where the process has not ended within ``patience`` s."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                self.process.terminate()
            try:
                await asyncio.wait_for(self.process.wait(), patience)
            except TimeoutError:
                _log.warning("%s did not end within %g s and was killed", self.name, patience)
                self.kill()
        await asyncio.shield(self._reading)
        await self._all_passed_on()

    def kill(self) -> None:
        """Send SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()

    async def _pass_on(self) -> None:
        """Log what the child writes to its standard error, such as a traceback."""
        assert self.process.stderr is not None
        stream = self.process.stderr
        while text := await stream.read(LONGEST_LINE):
            with contextlib.suppress(TimeoutError):  # a traceback arrives in pieces
                while len(text) < LONGEST_LINE:
                    if not (more := await asyncio.wait_for(stream.read(LONGEST_LINE), LOG_DELAY)):
                        break
                    text += more
            _log.warning("%s: %s", self.name, text.decode(errors="replace").rstrip())

    async def _all_passed_on(self) -> None:
        """Wait for the rest of the output, but not for a process that the child has left behind."""
        await asyncio.wait({self._passing_on}, timeout=DRAIN_TIMEOUT)

    async def _read(self) -> None:
        """Read the child's messages until it ends."""
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
            self.ready.exception()  # retrieved, otherwise asyncio reports it where nobody waits


async def all_ready(*children: Child, within: float = START_TIMEOUT) -> None:
    """Wait until all are ready. Raises ChildFailed with the reason of the first that fails."""
    waiting = [child.ready for child in children]
    done, _ = await asyncio.wait(waiting, timeout=within, return_when=asyncio.FIRST_EXCEPTION)
    for future in done:
        future.result()
    if late := [child.name for child in children if not child.ready.done()]:
        raise ChildFailed(f"{', '.join(late)} not ready within {within:g} s.")


def _ending(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
