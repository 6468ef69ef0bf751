"""What the views of a page share: the connection, the user's units, commands, and the round of updates."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from nicegui import ui

from hilserver.errors import HilserverError
from hilserver.panel.connection import Connection
from hilserver.panel.display import Units, unit_of
from hilserver.protocol.commands import Command
from hilserver.protocol.published import Answer

ROUND, SLOW = 0.025, 8
"""Seconds from round to round; all but samples takes its turn in every eighth."""
PATIENCE = 10.0
"""Seconds in which a browser should have taken a message; it gets no other one before."""

Action = Callable[[], None]


class Channel(ui.element, component="channel.js"):
    """The way of messages into the page, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self._number, self._taken = itertools.count(), asyncio.Event()
        self.on("taken", self._taken.set)

    async def send(self, message: dict[str, Any]) -> None:
        """Returns when the browser has taken it, or takes too long."""
        self._taken.clear()
        self._props["message"] = json.dumps({"number": next(self._number), **message})
        self.update()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._taken.wait(), PATIENCE)


class Page:
    """One open page. What is done in its rounds and ``show``n goes to the browser at the end of the round.

    ``tab`` is the one in front. A browser that is slow or asleep gets fewer messages, not a queue of them.
    """

    def __init__(self, connection: Connection, units: Units, tab: str) -> None:
        self.connection, self.units, self.tab = connection, units, tab
        self.when_units_change: list[Action] = []
        self._slow: list[tuple[str, Action]] = []
        self._fast: list[tuple[str, Action]] = []
        self._shown: dict[str, dict[str, Any]] = {}
        self._message: dict[str, dict[str, Any]] = {}

    def start(self) -> None:
        """Begin the rounds; to be called within the page."""
        self._channel, self._rounds = Channel(), itertools.count()
        ui.timer(ROUND, self._round)

    def each_round(self, action: Action, tab: str = "", *, fast: bool = False) -> None:
        """Do this in each round, with a ``tab`` only while it is in front."""
        (self._fast if fast else self._slow).append((tab, action))

    def show(self, kind: str, values: dict[str, Any]) -> None:
        """Texts, lines, bars or charts by name, sent with this round if they changed."""
        known = self._shown.setdefault(kind, {})
        for name, value in values.items():
            if kind == "charts" or known.get(name) != value:
                self._message.setdefault(kind, {})[name] = value
                known[name] = value if kind != "charts" else None

    def show_anew(self) -> None:
        """Something on the page was replaced: everything is sent once more."""
        self._shown.clear()
        self._message["anew"] = {}

    def unit(self, channel: str) -> str:
        """The SI unit of a channel."""
        return unit_of(channel, self.connection.description)

    def value(self, channel: str) -> float | None:
        """The newest value of a channel."""
        return self.connection.history.latest().get(channel)

    @property
    def may_command(self) -> bool:
        """Whether this user may command, and somebody is there to listen."""
        return self.connection.online and self.connection.role == "operator"

    async def command(self, command: Command, *, quiet: bool = False) -> Answer | None:
        """Send a command; the reason is shown where it is refused, and None returned where no answer came."""
        try:
            answer = await self.connection.send(command)
        except HilserverError as error:
            refuse(str(error))
            return None
        if not answer.ok and not quiet:
            refuse(f"{command.name} was refused: {answer.reason}")
        return answer

    async def _round(self) -> None:
        slow = self._slow if next(self._rounds) % SLOW == 0 else []
        for tab, action in (*slow, *self._fast):
            if tab in ("", self.tab):
                action()
        if self._message:
            message, self._message = self._message, {}
            await self._channel.send(message)


def refuse(text: str) -> None:
    """Tell that something was not done, and why; it stays until it is closed."""
    ui.notify(text, type="negative", multi_line=True, close_button="OK", timeout=12_000, classes="refusal")


def heading(text: str) -> ui.label:
    """The title of a card."""
    return ui.label(text).classes("heading")
