"""The connection to an MQTT broker, as clients, panel and server use it."""

import asyncio
import contextlib
import logging
import math
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar, cast

import aiomqtt
import paho.mqtt.client as paho
from aiomqtt.types import PahoSocket
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from hilserver.protocol.address import BrokerAddress

_log = logging.getLogger(__name__)

KEEP_ALIVE = 15
"""Seconds; the broker publishes the last will after 1.5 times as long without a message."""
LOST = "connection lost"
_Result = TypeVar("_Result")


class _Client(aiomqtt.Client):
    """Lets the event loop watch a socket for writing only while the socket is open, and ignores late answers.

    aiomqtt hands the loop the file descriptor, for its next iteration. Where the connection is lost in the present one,
    the descriptor is invalid by then, which puts a traceback into the log, or already belongs to another socket.
    aiomqtt also logs one when a busy broker answers a subscription that was abandoned.

    It also waits with `asyncio.wait_for`, which before Python 3.12 loses a cancellation that arrives together with the
    result: a task that sends heartbeats would continue forever, and the task that ends it would wait forever.
    """

    async def _wait_for(self, fut: Awaitable[_Result], timeout: float | None) -> _Result:  # noqa: ASYNC109 - its name
        limit = self.timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(None if limit == math.inf else limit):
                return await fut
        except TimeoutError:
            raise aiomqtt.MqttError("Operation timed out") from None

    def _on_subscribe(self, client: paho.Client, userdata: object, mid: int, *answer: Any) -> None:
        if mid in self._pending_subscribes:
            super()._on_subscribe(client, userdata, mid, *answer)

    def _on_socket_register_write(self, client: paho.Client, userdata: object, sock: PahoSocket) -> None:
        self._loop.call_soon_threadsafe(self._watch, client, sock)

    def _watch(self, client: paho.Client, sock: PahoSocket) -> None:
        if sock.fileno() >= 0:
            self._loop.add_writer(sock.fileno(), self._write, client)

    def _write(self, client: paho.Client) -> None:
        try:
            client.loop_write()
        except Exception as error:  # of a broken connection
            if not self._disconnected.done():
                self._disconnected.set_exception(error)


def new_client(
    address: BrokerAddress,
    protocol: aiomqtt.ProtocolVersion,
    *,
    identifier: str | None = None,
    packet_limit: int | None = None,
    will: aiomqtt.Will | None = None,
    timeout: float = 5.0,
    queue: Callable[..., asyncio.Queue[aiomqtt.Message]] = asyncio.Queue,
) -> aiomqtt.Client:
    """A client for this broker, not connected yet. ``timeout``: s; ``packet_limit``: bytes of a packet, with MQTT 5.

    ``queue`` makes the queue of received messages; the usual one has no limit.

    Raises LoginError if the login can't be used.
    """
    properties = None
    if protocol is aiomqtt.ProtocolVersion.V5 and packet_limit is not None:
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.MaximumPacketSize = packet_limit
    return _Client(
        address.host,
        address.port,
        username=address.user,
        password=address.password(),
        identifier=identifier,
        protocol=protocol,
        will=will,
        timeout=timeout,
        queue_type=cast("type[asyncio.Queue[aiomqtt.Message]]", queue),
        keepalive=KEEP_ALIVE,
        logger=_log.getChild("client"),
        properties=properties,
        tls_context=address.tls(),
        socket_options=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],  # Nagle would delay small messages by 40 ms
    )


@contextlib.asynccontextmanager
async def connection(client: aiomqtt.Client) -> AsyncIterator[aiomqtt.Client]:
    """Connect a client for the duration of the context. Raises MqttError if that fails."""
    disconnected = client._disconnected
    try:
        await client.__aenter__()
    except BaseException:
        # aiomqtt keeps the socket of a failed attempt: when a stalled broker wakes up, it would log in under our
        # identifier and end the live connection. Its callback can't cope with a cancelled attempt.
        client._client.on_disconnect = None
        client._client.disconnect()
        raise
    try:
        if disconnected.done():  # lost again at once, which aiomqtt forgets
            raise aiomqtt.MqttError(LOST)
        yield client
    finally:
        for future in (disconnected, client._disconnected):  # otherwise asyncio reports them as never retrieved
            future.add_done_callback(lambda done: done.cancelled() or done.exception())
        with contextlib.suppress(aiomqtt.MqttError):  # it ends anyway; a cancellation must not get lost
            await client.__aexit__(None, None, None)
