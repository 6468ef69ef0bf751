"""The embedded broker, for the demo and small set-ups: mosquitto where it is installed, otherwise amqtt.

It listens on the loopback interface only, accepts every local client, or those with accounts, and stores nothing on
disk. For a network of machines, run the system's mosquitto instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import logging
import os
import re
import signal
import socket
import sys
from collections import Counter
from types import TracebackType
from typing import Literal, Self

from hilserver.errors import HilserverError
from hilserver.protocol.accounts import Accounts
from hilserver.service import broker_process
from hilserver.service.backoff import Backoff
from hilserver.service.broker_process import HOST, installed_mosquitto

_log = logging.getLogger(__name__)

START_TIMEOUT = 10.0
STOP_TIMEOUT = 3.0

_COMMAND_RECEIVED = re.compile(r"Received PUBLISH from (.+) \(d\d, q\d, r\d, m\d+, 'hil/[^/']+/command/")
"""What mosquitto's log says of a message."""
Program = Literal["mosquitto", "amqtt"]


class BrokerError(HilserverError):
    """The embedded broker can't be started."""


def find_program() -> Program:
    """Which broker can be started here; raises BrokerError if none."""
    if installed_mosquitto() is not None:
        return "mosquitto"
    if importlib.util.find_spec("amqtt") is not None:
        return "amqtt"
    raise BrokerError(
        "no MQTT broker is installed here. Install mosquitto (Debian: apt install mosquitto), "
        "or the broker in Python: pip install 'hilserver[embedded-broker]'. "
        "Or give the address of a running broker in the rig file."
    )


class EmbeddedBroker:
    """A broker child process: ``async with EmbeddedBroker() as broker`` starts it; ``broker.port`` is its TCP port.

    It is restarted on the same port if it dies, and ends with this process even if that is killed.
    ``port`` 0 picks a free one; ``program`` None takes mosquitto where it is installed, otherwise amqtt. With
    ``accounts`` only they may log in, and only operators may command; requires mosquitto. Entering raises BrokerError
    where no broker can be started, and AccountsError or LoginError where the accounts can't be used.
    """

    def __init__(self, port: int = 0, program: Program | None = None, accounts: Accounts | None = None) -> None:
        if not 0 <= port <= 65535:
            raise ValueError(f"port {port} is out of range: must be 0 (a free one) ... 65535")
        self.host = HOST
        self.port = port
        self.program: Program | None = program
        self._accounts = accounts
        self._process: asyncio.subprocess.Process | None = None
        self._guard: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._last_words = ""
        self._settings = -1
        self._observed: Counter[str] | None = None

    @property
    def pid(self) -> int:
        """Process id of the broker child that runs now."""
        if self._process is None:
            raise BrokerError("the embedded broker is not running")
        return self._process.pid

    async def __aenter__(self) -> Self:
        self.program = self.program or find_program()
        if self._accounts is not None and self.program != "mosquitto":
            raise BrokerError("mqtt.accounts needs mosquitto, which is not installed (Debian: apt install mosquitto).")
        self.port = self.port or _free_port()
        try:
            await self._start()
        except BaseException:
            await self._stop()
            raise
        self._guard = asyncio.create_task(self._keep_alive())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._guard is not None:
            self._guard.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._guard
        await self._stop()
        self._close_settings()

    async def _start(self) -> None:
        """Start the child and wait until it listens."""
        assert self.program is not None
        if await self._listens():
            raise BrokerError(f"port {self.port} on {HOST} is already in use: is another broker running?")
        access = {}
        if self._accounts is not None:
            access = {"password_file": self._accounts.passwords(), "acl_file": self._accounts.rules()}
        self._close_settings()
        self._settings = os.memfd_create("mosquitto.conf")
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", broker_process.__name__, self.program, str(self.port), str(os.getpid())),
            str(self._settings),
            pass_fds=(self._settings,),
            stdin=asyncio.subprocess.PIPE,  # not as arguments: every user of this computer can read those
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the server, which still needs this broker
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(access).encode())
        self._process.stdin.close()
        listening = asyncio.create_task(self._listening())
        self._reading = asyncio.create_task(self._read_complaints(self._process))
        try:
            await asyncio.wait((listening, self._reading), timeout=START_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
        finally:
            listening.cancel()
        if self._process.returncode is not None or not listening.done():
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            raise BrokerError(f"the embedded broker ({self.program}) does not start: {self._last_words or 'no answer'}")

    async def _listening(self) -> None:
        while not await self._listens():  # noqa: ASYNC110 - another process: only its port shows that it is ready
            await asyncio.sleep(0.02)

    async def _listens(self) -> bool:
        try:
            _, writer = await asyncio.open_connection(HOST, self.port)
        except OSError:
            return False
        writer.close()
        # where nobody listens, TCP may connect a port with itself
        return bool(writer.get_extra_info("sockname") != writer.get_extra_info("peername"))

    async def _read_complaints(self, process: asyncio.subprocess.Process) -> None:
        """Log what the child writes; ends when the child does."""
        assert process.stderr is not None
        async for line in process.stderr:
            text = line.decode(errors="replace").strip()
            if self._observed is None:
                self._last_words = text
                _log.debug("%s: %s", self.program, text)
            elif sent := _COMMAND_RECEIVED.match(text):
                self._observed[sent[1]] += 1

    async def senders(self, seconds: float) -> Counter[str]:
        """How many commands each client sends within this time; empty if the broker does not tell (amqtt).

        mosquitto writes into its log who sends what, for this time only: that is two lines per message.
        """
        if self.program != "mosquitto" or self._process is None or self._observed is not None:
            return Counter()
        self._observed, size = Counter(), os.fstat(self._settings).st_size
        try:
            os.pwrite(self._settings, b"log_type debug\n", size)
            self._process.send_signal(signal.SIGHUP)  # it reads its settings again
            await asyncio.sleep(seconds)
        except ProcessLookupError:  # it has just ended
            return Counter()
        finally:
            found, self._observed = self._observed, None
            os.ftruncate(self._settings, size)
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGHUP)
        return found

    def _close_settings(self) -> None:
        if self._settings >= 0:
            os.close(self._settings)
        self._settings = -1

    async def _keep_alive(self) -> None:
        backoff = Backoff(first=0.1, longest=5.0, stable_after=5.0)
        loop = asyncio.get_running_loop()
        while self._process is not None:
            began = loop.time()
            code = await self._process.wait()
            _log.warning("the embedded broker ended (%s); starting it again on port %d", _ending(code), self.port)
            await asyncio.sleep(backoff.ended(loop.time() - began))
            try:
                await self._start()
            except (BrokerError, OSError) as error:
                _log.warning("%s", error)

    async def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_TIMEOUT):
                    await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _ending(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name
