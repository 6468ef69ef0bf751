"""Shared by the views of a page: the connection, the user's units, commands, and the update cycle."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from nicegui import ui

from hilserver.client.heartbeat import HeartbeatSender, operator_name
from hilserver.errors import HilserverError
from hilserver.panel.connection import Connection
from hilserver.protocol import commands
from hilserver.protocol.commands import Command
from hilserver.protocol.published import Answer, OperatorDescription
from hilserver.web.display import Units, unit_of

ROUND, SLOW = 0.025, 8
"""Period of the updates, s; everything except samples is updated in every eighth."""
LONGEST_SILENCE = 0.1
"""Seconds without a change after which a message is sent in any case: the browser's answer shows that it is alive."""
PATIENCE = 10.0
"""Seconds allowed for a browser to accept a message; until then it is sent no other one."""

HOLD_OFF = 1.0
"""Seconds during which what a user has just moved or chosen does not follow the server."""

Action = Callable[[], None]


class Channel(ui.element, component="channel.js"):
    """Sends messages into the page, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.taken_at = -math.inf
        """Monotonic time at which the browser has accepted the last message, s."""
        self._taken = asyncio.Event()
        self.on("taken", self._accepted)

    def _accepted(self) -> None:
        self.taken_at = time.monotonic()
        self._taken.set()

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message; returns when the browser has accepted it, or after a timeout."""
        self._taken.clear()
        self.client.outbox.enqueue_message("panel", {"text": json.dumps(message)}, self.client.id)
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await self._taken.wait()


class Page:
    """One open page. Values passed to ``show`` during an update go to the browser at its end.

    ``tab`` is the active one. A slow or sleeping browser gets fewer messages, not a queue of them.
    """

    def __init__(self, connection: Connection, units: Units, tab: str) -> None:
        self.connection, self.units, self.tab = connection, units, tab
        self.when_units_change: list[Action] = []
        self._slow: list[tuple[str, Action]] = []
        self._fast: list[tuple[str, Action]] = []
        self._shown: dict[str, dict[str, Any]] = {}
        self._message: dict[str, dict[str, Any]] = {}
        self._heartbeat: HeartbeatSender | None = None
        self._mode = (False, "")

    def start(self) -> None:
        """Start the updates; to be called within the page."""
        self._channel, self._rounds = Channel(), itertools.count()
        ui.timer(ROUND, self._round)

    def each_round(self, action: Action, tab: str = "", *, fast: bool = False) -> None:
        """Run this action in each update; with a ``tab`` only while that tab is active."""
        (self._fast if fast else self._slow).append((tab, action))

    def forget(self, *actions: Action) -> None:
        """Stop running these actions, both in the updates and when units change."""
        self._slow = [entry for entry in self._slow if entry[1] not in actions]
        self._fast = [entry for entry in self._fast if entry[1] not in actions]
        self.when_units_change = [action for action in self.when_units_change if action not in actions]

    def forget_chart(self, chart: str) -> None:
        """Stop sending and drawing this chart: its element is removed."""
        self._message.get("charts", {}).pop(chart, None)
        self._shown.get("charts", {}).pop(chart, None)
        self._message.setdefault("gone", {})[chart] = True

    def show(self, kind: str, values: dict[str, Any]) -> None:
        """Set texts, lines, bars or charts by name; they are sent with this update if they changed."""
        known = self._shown.setdefault(kind, {})
        for name, value in values.items():
            if kind == "charts" or known.get(name) != value:
                self._message.setdefault(kind, {})[name] = value
                known[name] = value if kind != "charts" else None

    def show_again(self) -> None:
        """Show the latest values in elements of the page that have just been replaced.

        Messages with values overtake the updates of elements, which NiceGUI queues; this does not.
        """
        ui.run_javascript("panel.again()")

    def unit(self, channel: str) -> str:
        """The SI unit of a channel."""
        return unit_of(channel, self.connection.description)

    def value(self, channel: str) -> float | None:
        """The latest value of a channel."""
        return self.connection.history.latest().get(channel)

    @property
    def may_command(self) -> bool:
        """Whether this user may send commands, and the server is online."""
        return self.connection.online and self.connection.role == "operator"

    @property
    def may_operate(self) -> bool:
        """Whether this user may move inputs and valves: the rig is running, too."""
        state = self.connection.state
        return self.may_command and state is not None and state.mode == "RUNNING"

    async def command(self, command: Command, *, quiet: bool = False) -> Answer | None:
        """Send a command; a refusal is shown with its reason. Returns None if no answer came."""
        try:
            if isinstance(command, commands.Arm | commands.Start):
                command = await self._signed(command)
            answer = await self.connection.send(command)
        except HilserverError as error:
            refuse(str(error))
            return None
        if not answer.ok and not quiet:
            refuse(f"{command.name} was refused: {answer.reason}")
        return answer

    def is_seen(self, within: float) -> bool:
        """Whether the browser has shown an update within this number of seconds."""
        return time.monotonic() - self._channel.taken_at < within

    async def _signed(self, command: commands.Arm | commands.Start) -> Command:
        """The command with the name of this page, where the rig requires the heartbeats of its operator.

        They are sent from now on, as long as a browser shows the page. Raises HilserverError if the broker takes
        none.
        """
        connection = self.connection
        required = connection.description.operator if connection.description is not None else OperatorDescription()
        if required.require != "client":
            return command
        if self._heartbeat is None:
            self._heartbeat = HeartbeatSender(
                connection.address,
                connection.rig,
                operator_name("panel"),
                required,
                alive=lambda: self.is_seen(required.lost_after / 2),
            )
        await self._heartbeat.start(command.patience)
        return command.model_copy(update={"client": self._heartbeat.name})

    async def _round(self) -> None:
        state = self.connection.state
        mode = (self.connection.online, state.mode if state is not None else "")
        is_new = mode != self._mode  # shown at once, also as the last known mode
        self._mode = mode
        slow = self._slow if next(self._rounds) % SLOW == 0 or is_new else []
        for tab, action in (*slow, *self._fast):
            if tab in ("", self.tab):
                action()
        if self._message or is_new or not self.is_seen(LONGEST_SILENCE):
            message, self._message = self._message, {}
            await self._channel.send(message | {"link": self._link()})

    def _link(self) -> dict[str, Any]:
        """The connection as the page has to know it (link.js)."""
        connection = self.connection
        trouble = connection.status()
        return {
            "age": round(connection.silence, 3),
            "trouble": "" if connection.online and not connection.is_late else trouble[0].upper() + trouble[1:],
            "mode": connection.state.mode.replace("_", " ") if connection.state is not None else "",
            "alarms": len(connection.alarms.open()),
            "viewer": connection.online and connection.role == "viewer",
        }


def refuse(text: str) -> None:
    """Show that something was not done, and why, until the user closes the message."""
    ui.notify(text, type="negative", multi_line=True, close_button="OK", timeout=12_000, classes="refusal")
