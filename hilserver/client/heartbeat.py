"""Heartbeats of an operator, over a separate connection whose end the broker reports to the server."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import time
from collections.abc import Callable

import aiomqtt

from hilserver.errors import HilserverError
from hilserver.protocol.address import BrokerAddress
from hilserver.protocol.connection import connection, new_client
from hilserver.protocol.heartbeat import OperatorHeartbeat
from hilserver.protocol.published import OperatorDescription
from hilserver.protocol.topics import Topics

BEATS = 4
"""Number of heartbeats within the time after which the operator counts as lost."""
RETRY = 0.2
"""Seconds between two attempts to connect."""
ASLEEP = 60.0
"""Seconds without a reason for a heartbeat after which the connection is ended."""


def operator_name(program: str) -> str:
    """A name for this operator: the program, its machine, and a random suffix that makes it unique.

    >>> operator_name("panel").startswith("panel on ")
    True
    """
    return f"{program} on {socket.gethostname()[:30]} {secrets.token_hex(2)}"


class HeartbeatSender:
    """Sends heartbeats under a ``name`` from `start` to `end`, as long as ``alive()`` is true."""

    def __init__(
        self,
        address: BrokerAddress,
        rig: str,
        name: str,
        required: OperatorDescription,
        alive: Callable[[], bool] = lambda: True,
    ) -> None:
        self.name = name
        self._address = address
        self._topic = Topics(rig).heartbeat
        self._pause = required.lost_after / BEATS
        self._alive = alive
        self._sent = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None

    async def start(self, within: float) -> None:
        """Connect, and return when the broker has received the first heartbeat. Raises HilserverError if it receives
        none."""
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send())
        try:
            async with asyncio.timeout(within):
                await self._sent.wait()
        except TimeoutError:
            raise HilserverError(
                f"MQTT broker {self._address}: it accepted no heartbeat within {within:g} s, which this rig requires."
            ) from None

    async def end(self) -> None:
        """Announce that this operator leaves."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])

    async def _send(self) -> None:
        """Stay connected and send, until cancelled, or until there has been no reason for a heartbeat for some time."""
        awake = time.monotonic()
        while time.monotonic() < awake + ASLEEP:
            id = secrets.token_hex(8)
            last = OperatorHeartbeat(client=self.name, connection=id, lost=True).payload()
            will = aiomqtt.Will(self._topic, last, qos=1)
            try:
                client = new_client(self._address, aiomqtt.ProtocolVersion.V311, will=will, timeout=5.0)
                async with connection(client):
                    awake = await self._beat(client, id, last)
            except (aiomqtt.MqttError, OSError, HilserverError):
                await asyncio.sleep(RETRY)
            finally:
                self._sent.clear()

    async def _beat(self, client: aiomqtt.Client, id: str, last: bytes) -> float:
        """Send heartbeats until there has been no reason for one for some time; returns the time of the last reason."""
        beat = OperatorHeartbeat(client=self.name, connection=id).payload()
        awake = time.monotonic()
        try:
            while time.monotonic() < awake + ASLEEP:
                if self._alive():
                    await client.publish(self._topic, beat, qos=1)
                    awake = time.monotonic()
                    self._sent.set()
                await asyncio.sleep(self._pause)
        finally:  # a connection that is closed in an orderly way has no last will
            with contextlib.suppress(aiomqtt.MqttError):
                await client.publish(self._topic, last, qos=1, timeout=1.0)
        return awake
