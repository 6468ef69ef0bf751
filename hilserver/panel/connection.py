"""One login at the broker: the server's topics, kept up to date, and commands with their answers.

It connects automatically and reconnects after a loss. No state needs to be kept: retained messages are sent again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import uuid
from collections.abc import Mapping
from typing import Literal, get_args

import aiomqtt
from paho.mqtt.reasoncodes import ReasonCode
from pydantic import PrivateAttr, ValidationError

from hilserver.errors import HilserverError
from hilserver.panel.alarms import Alarms
from hilserver.panel.history import History
from hilserver.protocol.address import BrokerAddress
from hilserver.protocol.commands import Command, Disarm, Stop
from hilserver.protocol.connection import connection, new_client
from hilserver.protocol.published import (
    Answer,
    CircuitStatus,
    ComponentTypes,
    Description,
    Event,
    Events,
    Mode,
    ServerState,
    Telemetry,
    TypeInfo,
)
from hilserver.protocol.server_clock import ServerClock
from hilserver.protocol.topics import Topics

RETRY = 1.0
"""Seconds between two attempts to reach the broker."""
PROBE_WITHIN, PROBE_AGAIN = 2.0, 5.0
"""Seconds that the server has to answer a probe, and after which one that was not answered is repeated."""
STOP_WAITS = 10.0
"""Seconds for which a stop waits for a lost connection to the broker to be there again."""
FRESH = 2.0
"""Seconds after the server's latest message within which its mode counts as known."""
_LOGIN_REFUSED = (4, 5, 134, 135, 140)  # bad user or password, not authorised: MQTT 3.1.1 and 5

Role = Literal["unknown", "viewer", "operator"]


class Login(BrokerAddress):
    """A broker's address with a password entered by the user."""

    _typed: str | None = PrivateAttr(default=None)

    def password(self) -> str | None:
        return self._typed

    @classmethod
    def typed(cls, address: BrokerAddress, user: str | None, password: str | None) -> Login:
        """The broker at ``address`` with this user; the login in ``address`` is not used."""
        own = {"user": user, "password_file": None}
        login = cls.model_validate({**address.model_dump(), **own})
        login._typed = password
        return login


class Connection:
    """One user's connection to one rig. ``run`` maintains it; all other methods except ``send`` return immediately.

    ``connected``: to the broker; ``online``: the rig's server is, too. ``role``: whether this login may send commands,
    once the server has answered. ``refused``: the broker's reason for refusing the login.
    """

    def __init__(self, address: BrokerAddress, rig: str) -> None:
        self.address, self.rig = address, rig
        self.connected = False
        self.online = False
        self.role: Role = "unknown"
        self.refused: str | None = None
        self.trouble = "not connected yet"
        self.description: Description | None = None
        self.state: ServerState | None = None
        self.clock = ServerClock()
        self.heard_at = time.monotonic()
        self.circuit: CircuitStatus | None = None
        self.types: Mapping[str, TypeInfo] = {}
        self.alarms = Alarms()
        self.history = History()
        self._topics = Topics(rig)
        self._client: aiomqtt.Client | None = None
        self._waiting: dict[str, asyncio.Future[Answer]] = {}
        self._probing: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Stay connected until cancelled, or until the broker refuses the login."""
        while True:
            try:
                await self._connect()
            except aiomqtt.MqttCodeError as error:
                code = error.rc.value if isinstance(error.rc, ReasonCode) else error.rc
                if code in _LOGIN_REFUSED:
                    self.refused, self.role = "The broker refuses this user and password.", "unknown"
                    return
                self.trouble = str(error)
            except (aiomqtt.MqttError, OSError, HilserverError) as error:
                self.trouble = str(error)
            finally:
                self.connected, self._client = False, None
                self._set_online(False)
            await asyncio.sleep(RETRY)

    async def send(self, command: Command) -> Answer:
        """Send one command and return its answer, a refusal included. Raises HilserverError if there is none."""
        if self._client is None or not self.online:
            raise HilserverError(f"{command.name} was not sent: {self.status()}.")
        command = command.model_copy(update={"id": uuid.uuid4().hex, "expires": self._expiry(command.patience)})
        payload = command.model_dump_json(exclude_unset=True)
        try:
            return await self._ask(command.name, str(command.id), payload, command.patience)
        except TimeoutError:
            raise HilserverError(
                f"No answer to {command.name} within {command.patience:g} s. It may still be carried out: "
                "see the state."
            ) from None
        except aiomqtt.MqttError as error:
            raise HilserverError(f"{command.name} was not sent: {error}.") from None

    async def stop(self) -> Answer:
        """Bring the rig to rest: by ``stop`` if the rig is known to run, otherwise by ``disarm``, which always does.

        A second press that overtakes the news of the first finds that the rig does not run any more: it disarms, too.
        Sent as soon as there is a connection to the broker, whatever is known of the server: late is better than
        never. Raises HilserverError without an answer.
        """
        until = time.monotonic() + STOP_WAITS
        runs = self.state is not None and self.state.mode == "RUNNING" and self.silence < FRESH
        command: Command = Stop() if runs else Disarm()
        while True:
            id = uuid.uuid4().hex
            try:
                if self._client is not None:
                    answer = await self._ask(command.name, id, json.dumps({"id": id}), command.patience)
                    if answer.ok or isinstance(command, Disarm):
                        return answer
                    command = Disarm()
                    continue
            except TimeoutError:
                raise HilserverError(f"{command.name} was sent, but not answered") from None
            except aiomqtt.MqttError:
                pass  # the connection was lost; it may be carried out twice, which does no harm
            if time.monotonic() > until:
                raise HilserverError(f"not sent: {self.status()}")
            await asyncio.sleep(0.02)

    @property
    def silence(self) -> float:
        """Age of the server's latest message, s: since when it has been here, and by how much it was late."""
        return time.monotonic() - self.heard_at + self.clock.lateness

    @property
    def is_late(self) -> bool:
        """Whether messages arrive too late to operate the rig by them: broker or panel are overloaded."""
        return self.clock.lateness > FRESH

    @property
    def mode(self) -> str:
        """The mode of the rig; OFFLINE if nobody knows it."""
        return self.state.mode if self.state is not None and self.online else "OFFLINE"

    def status(self) -> str:
        """The state of the connection, in words."""
        if not self.connected:
            return f"no connection to the broker {self.address}"
        if not self.online:
            return f"the server of {self.rig} is offline"
        return "messages of the server arrive late" if self.is_late else "online"

    def _expiry(self, patience: float) -> float | None:
        """When a command expires, by the server's clock as far as it is known from the state."""
        if not self.clock.is_known:
            return None
        lifetime = self.description.command_lifetime if self.description is not None else None
        return self.clock.now() + min(patience, lifetime or patience)

    async def _connect(self) -> None:
        async with connection(new_client(self.address, aiomqtt.ProtocolVersion.V311, timeout=5.0)) as client:
            wanted = [(topic, 1) for topic in self._topics.published]
            await client.subscribe(wanted)
            self._client, self.connected, self.trouble = client, True, ""
            async for message in client.messages:
                if not message.retain:
                    self.heard_at = time.monotonic()
                with contextlib.suppress(ValidationError):  # from another version: unreadable messages are skipped
                    self._take(message.topic.value.removeprefix(self._topics.prefix), bytes(message.payload))

    def _take(self, topic: str, payload: bytes) -> None:
        match topic:
            case "availability":
                self._set_online(payload == b"online")
            case "telemetry":
                self.history.add(Telemetry.model_validate_json(payload))
            case "state":
                self.state = ServerState.model_validate_json(payload)
                self.clock.hear(self.state.time)
            case "circuit":
                self.circuit = CircuitStatus.model_validate_json(payload)
            case "types":
                self.types = ComponentTypes.model_validate_json(payload).types
            case "event":
                self.alarms.add(Event.model_validate_json(payload))
            case "events":
                for event in Events.model_validate_json(payload).events:
                    self.alarms.add(event)
            case "description":
                self.description = Description.model_validate_json(payload)
            case "answer":
                answer = Answer.model_validate_json(payload)
                self._adopt(answer)
                waiting = self._waiting.get(answer.id or "")
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)

    def _adopt(self, answer: Answer) -> None:
        """The mode that an answer reports, before the next state does."""
        mode = answer.result.get("mode")
        if self.state is not None and mode in get_args(Mode):
            self.state = self.state.model_copy(update={"mode": mode, "tick": answer.tick or self.state.tick})

    def _set_online(self, online: bool) -> None:
        if online == self.online:
            return
        self.online = online
        if self._probing is not None:
            self._probing.cancel()
        if online:
            self.role, self._probing = "unknown", asyncio.create_task(self._probe())

    async def _probe(self) -> None:
        """Find out whether this login may send commands: if so, the server answers even an unknown one.

        The unknown command is refused and has no effect. Without an answer to two of them, the login counts as that of
        a viewer for now: the server may only be busy, so the probe is repeated for as long as it is online. (One may
        seem to be unanswered because this process itself was busy, with its first page.)
        """
        unanswered = 0
        while self.role != "operator":
            id = uuid.uuid4().hex
            try:
                await self._ask("probe", id, json.dumps({"id": id}), PROBE_WITHIN)
            except TimeoutError:
                unanswered += 1
                if unanswered == 1:
                    continue
                self.role = "viewer"
            except aiomqtt.MqttError:
                self.role = "unknown"
            else:
                self.role = "operator"
                return
            await asyncio.sleep(PROBE_AGAIN)

    async def _ask(self, name: str, id: str, payload: str, within: float) -> Answer:
        client = self._client
        assert client is not None
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[id] = waiting
        try:
            async with asyncio.timeout(within):
                await client.publish(self._topics.command(name), payload, qos=1)
                return await waiting
        finally:
            del self._waiting[id]
