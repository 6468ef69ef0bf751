"""Child processes of the supervisor: forked, or started as ``python -m module``, they report in JSON lines."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from hilserver.errors import HilserverError
from hilserver.service.forking import Forked

_log = logging.getLogger(__name__)
START_TIMEOUT = 120.0
"""Seconds allowed for a child to get ready; the first start of a version compiles it."""
LONGEST_LINE = 1 << 20
DRAIN_TIMEOUT, LOG_DELAY = 0.5, 0.05
"""Seconds for which the standard error of an ended child is read; seconds without output after which it is logged."""


class ChildFailed(HilserverError):
    """A child process did not start; the text states why."""


class ForkedProcess:
    """A forked child process, in the form of `asyncio.subprocess.Process`."""

    def __init__(
        self, pid: int, stdin: asyncio.WriteTransport, stdout: asyncio.StreamReader, stderr: asyncio.StreamReader
    ) -> None:
        self.pid, self.stdin, self.stdout, self.stderr = pid, stdin, stdout, stderr
        self.returncode: int | None = None
        self._ended = asyncio.Event()
        self._descriptor = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._descriptor, self._end)

    @classmethod
    async def of(cls, forked: Forked) -> Self:
        """Connect to the pipes of a process."""
        stdin, _ = await asyncio.get_running_loop().connect_write_pipe(
            asyncio.BaseProtocol, os.fdopen(forked.stdin, "wb", buffering=0)
        )
        return cls(forked.pid, stdin, await _reader(forked.stdout), await _reader(forked.stderr))

    async def wait(self) -> int:
        """Wait for the end of the process; returns its exit code, negative for a signal."""
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        """Send SIGTERM, unless it has ended."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL, unless it has ended."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self.returncode is None:  # until then the number belongs to this process
            os.kill(self.pid, number)

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.stdin.close()
        self._ended.set()


async def _reader(descriptor: int) -> asyncio.StreamReader:
    """Reads from a pipe, which is closed where it ends."""
    reader = asyncio.StreamReader(limit=LONGEST_LINE)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", buffering=0)
    )
    return reader


class Prepared:
    """Child processes that have imported their modules, and wait for their arguments."""

    def __init__(self, forked: Mapping[str, Forked] | None = None) -> None:
        self._waiting = dict(forked or {})

    async def take(self, module: str, arguments: Sequence[str], *, keep_input: bool = False) -> ForkedProcess | None:
        """Give a waiting process of this module its arguments; None if there is none."""
        if (forked := self._waiting.pop(module, None)) is None:
            return None
        process = await ForkedProcess.of(forked)
        process.stdin.write(json.dumps(arguments).encode() + b"\n")
        if not keep_input:
            process.stdin.close()
        return process

    def end(self) -> None:
        """End those that were not needed."""
        for forked in self._waiting.values():
            os.kill(forked.pid, signal.SIGKILL)
            os.waitpid(forked.pid, 0)
            for pipe in (forked.stdin, forked.stdout, forked.stderr):
                os.close(pipe)
        self._waiting.clear()


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
        self,
        name: str,
        process: asyncio.subprocess.Process | ForkedProcess,
        heard: Callable[[dict[str, Any]], None] | None = None,
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
        process = await prepared.take(module, arguments, keep_input=keep_input) if prepared is not None else None
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
                async with asyncio.timeout(patience):
                    await self.process.wait()
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
                    async with asyncio.timeout(LOG_DELAY):
                        more = await stream.read(LONGEST_LINE)
                    if not more:
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
            elif "warning" in message:
                _log.warning("%s: %s", self.name, message["warning"])
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
