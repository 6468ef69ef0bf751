"""What the cards of servo valves and actuators have in common: the choice of the strategy, and jogging."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Generic, TypeVar

from nicegui import ui

from hilserver.panel.jog import JogControl
from hilserver.panel.pieces import piece
from hilserver.panel.view import HOLD_OFF, Page
from hilserver.protocol import commands
from hilserver.protocol.driven import ActuatorDescription, ValveDescription
from hilserver.protocol.published import Description
from hilserver.web.style import heading

Info = TypeVar("Info", ValveDescription, ActuatorDescription)


class DrivenView(ABC, Generic[Info]):
    """A card for each of them; ``kind``: the word of the command that selects a strategy; ``title`` of a card."""

    kind: str
    title: str

    def __init__(self, page: Page) -> None:
        self.page = page
        self._names: tuple[str, ...] = ()
        self._box = ui.column().classes("w-full gap-3")
        self._choices: dict[str, ui.select] = {}
        self._chosen: dict[str, float] = {}
        self._jogs: dict[str, JogControl] = {}
        page.each_round(self._follow, "Operate")
        page.each_round(self._update, "Operate")

    @abstractmethod
    def _described(self, description: Description) -> Mapping[str, Info]:
        """All of the rig."""

    @abstractmethod
    def _present(self, name: str) -> str | None:
        """The strategy that drives it, as reported by the server."""

    @abstractmethod
    def _build_values(self, name: str) -> None:
        """Its values within the card."""

    @abstractmethod
    def _jog(self, name: str, info: Info) -> JogControl:
        """Its control for jogging."""

    @abstractmethod
    def _update(self) -> None:
        """Show the present values."""

    def _follow(self) -> None:
        description = self.page.connection.description
        described = {} if description is None else self._described(description)
        if description is not None and tuple(described) != self._names:
            self._names = tuple(described)
            self._choices.clear()
            self._jogs.clear()
            self._box.clear()
            with self._box:
                for name, info in described.items():
                    self._build(name, info)
        for name, choice in self._choices.items():
            choice.set_enabled(self.page.may_command)
            strategy = self._present(name)
            if choice.value != strategy and time.monotonic() - self._chosen.get(name, 0.0) > HOLD_OFF:
                choice.set_value(strategy)
            self._jogs[name].follow(strategy == "manual")

    def _build(self, name: str, info: Info) -> None:
        with ui.column().classes("card w-full gap-2"):
            with ui.row().classes("w-full items-center no-wrap"):
                heading(f"{self.title} {name}").tooltip(info.description or name)
                ui.space()
                ui.html(piece("limited", driven=f"{self.kind}.{name}"), sanitize=False)
            self._build_values(name)
            ui.html(piece("learned", driven=f"{self.kind}.{name}"), sanitize=False).classes("w-full")
            self._choices[name] = ui.select(
                list(info.strategies), label="Strategy", on_change=lambda e: self._select(name, e.value)
            )
            self._choices[name].props("outlined dense options-dense").classes("w-full strategy")
            self._jogs[name] = self._jog(name, info)

    async def _select(self, name: str, strategy: str | None) -> None:
        if strategy is not None and strategy != self._present(name):
            self._chosen[name] = time.monotonic()
            await self.page.command(commands.SelectStrategy.model_validate({self.kind: name, "strategy": strategy}))
