"""The link to the operator: an armed or running rig is stopped when nobody can stop it any more.

The rig file defines the link: the server's connection to the broker, or also the heartbeat of the client that has armed
or started the rig. Nothing restarts automatically.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import ValidationError

from hilserver.protocol.commands import Arm, Command, Start
from hilserver.protocol.heartbeat import OperatorHeartbeat
from hilserver.rig.settings import OperatorSettings
from hilserver.service.rig_stop import Execute, RigStop
from hilserver.service.silence import LOOK, SilenceTimer
from hilserver.service.telemetry import TelemetryReader
from hilserver.service.troubles import Tell
from hilserver.tick.codes import Mode
from hilserver.tick.row import header

_log = logging.getLogger(__name__)
CLIENTS_KEPT = 100
SOURCE = "operator"


@dataclass
class _Client:
    """A client that sends heartbeats: which connection, how many, when the last one."""

    connection: str
    signs: int
    heard: float
    lost: bool = False


class OperatorLink:
    """Watches the link to the operator. ``broker``: number of responses of the broker, and its address in words.

    ``execute`` carries out a command, ``refuse_waiting`` refuses those that wait, with a reason.
    """

    def __init__(
        self,
        settings: OperatorSettings,
        telemetry: TelemetryReader,
        broker: Callable[[], tuple[int, str]],
        execute: Execute,
        refuse_waiting: Callable[[str], None],
    ) -> None:
        self.client: str | None = None
        """The operator: the client that armed or started last, where its heartbeat is required."""
        self._settings = settings
        self._telemetry = telemetry
        self._broker = broker
        self._stop = RigStop(telemetry, execute)
        self._refuse_waiting = refuse_waiting
        self._clients: OrderedDict[str, _Client] = OrderedDict()
        self._broker_silence, self._client_silence = SilenceTimer(), SilenceTimer()

    # --- clients -----------------------------------------------------------------------------------------------------

    def hear(self, payload: bytes) -> None:
        """Take a message on the topic of heartbeats."""
        try:
            beat = OperatorHeartbeat.model_validate_json(payload)
        except ValidationError as error:
            _log.debug("heartbeat not valid: %s", error)
            return
        known = self._clients.get(beat.client)
        if beat.lost:
            if known is not None and known.connection == beat.connection:
                known.lost = True
            return
        signs = known.signs + 1 if known is not None else 0
        self._clients[beat.client] = _Client(beat.connection, signs, time.monotonic())
        self._clients.move_to_end(beat.client)
        while len(self._clients) > CLIENTS_KEPT:
            self._clients.pop(next(name for name in self._clients if name != self.client))

    def refusal(self, command: Command) -> str | None:
        """Why an `arm` or `start` is refused: its sender is not a client with a heartbeat, where that is required."""
        if self._settings.require != "client" or not isinstance(command, Arm | Start):
            return None
        if command.client is None:
            return (
                "client: missing. This rig requires the heartbeat of its operator (operator.require in the rig file): "
                "use the panel, a test sequence or a Python client, which send it."
            )
        known = self._clients.get(command.client)
        if known is None or known.lost or time.monotonic() - known.heard > self._settings.lost_after:
            return f'client: no heartbeat of "{command.client}" within the last {self._settings.lost_after:g} s.'
        return None

    def take_over(self, command: Command) -> None:
        """Record the client that has armed or started the rig."""
        if not isinstance(command, Arm | Start):
            return
        self._telemetry.troubles.pop(SOURCE, None)
        if self._settings.require == "client":
            self.client = command.client
            self._client_silence = SilenceTimer()

    # --- watching ----------------------------------------------------------------------------------------------------

    async def keep(self, tell: Tell) -> None:
        """Stop the rig when the link is lost, for as long as the run lasts."""
        if self._settings.require == "none":
            return
        while True:
            await asyncio.sleep(LOOK)
            reason = self._lost()
            row = self._telemetry.latest()
            if row is None:
                continue
            if header(row).mode not in (Mode.ARMED, Mode.RUNNING):
                self.client = None
            elif reason:
                await self._act(reason, tell)

    def _lost(self) -> str:
        """Why the operator counts as lost; empty while the link exists."""
        settings = self._settings
        signs, broker = self._broker()
        if (silence := self._broker_silence.update(signs)) > settings.lost_after:
            return f"no answer from the MQTT broker {broker} for {silence:.1f} s"
        if self.client is None:
            return ""
        known = self._clients.get(self.client)
        if known is None or known.lost:
            return f'the connection of "{self.client}" has ended'
        if (silence := self._client_silence.update(known.signs)) > settings.lost_after:
            return f'no heartbeat of "{self.client}" for {silence:.1f} s'
        return ""

    async def _act(self, reason: str, tell: Tell) -> None:
        """Ramp to null, or trip; nothing that was sent before starts the rig again."""
        text = f"operator lost: {reason}"
        self._refuse_waiting(f"the link to the operator was lost: {reason}.")
        if done := await self._stop.stop(self._settings.action, text):
            text = f"{text}; {done} once the link is restored"
            tell(SOURCE, text, text)
