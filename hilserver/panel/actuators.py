"""The actuators whose position is controlled, in the first tab: how each one follows its node, and its strategy."""

from __future__ import annotations

import time

from nicegui import ui

from hilserver.panel.jog import OF_ACTUATORS, JogControl
from hilserver.panel.learned import learned_text
from hilserver.panel.pieces import piece
from hilserver.panel.view import HOLD_OFF, Page
from hilserver.protocol import commands
from hilserver.protocol.driven import ActuatorDescription, ActuatorStatus
from hilserver.web.style import heading

FIELDS = {
    "position": ("displacement to follow", "m"),
    "measured": ("measured displacement", "m"),
    "error": ("error", "m"),
    "command": ("command", "m"),
    "force_measured": ("measured force", "N"),
    "force": ("force on the virtual circuit", "N"),
}
"""The values that are shown of each actuator: their titles and SI units."""
FINER = {"m": 2, "N": -2}
"""Decimal places more than usual: errors are a few micrometres."""


class ActuatorsView:
    """Each actuator: displacement to follow and measured, error, command, forces, limits, choice of the strategy."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self._actuators: tuple[str, ...] = ()
        self._box = ui.column().classes("w-full gap-3")
        self._choices: dict[str, ui.select] = {}
        self._chosen: dict[str, float] = {}
        self._jogs: dict[str, JogControl] = {}
        page.each_round(self._follow, "Operate")
        page.each_round(self._update, "Operate")

    def _follow(self) -> None:
        description = self.page.connection.description
        if description is not None and tuple(description.actuators) != self._actuators:
            self._actuators = tuple(description.actuators)
            self._choices.clear()
            self._jogs.clear()
            self._box.clear()
            with self._box:
                for name, info in description.actuators.items():
                    self._build(name, info)
        for name, choice in self._choices.items():
            choice.set_enabled(self.page.may_command)
            status = self._status(name)
            strategy = None if status is None else status.strategy
            self._jogs[name].follow(strategy == "manual")
            if choice.value != strategy and time.monotonic() - self._chosen.get(name, 0.0) > HOLD_OFF:
                choice.set_value(strategy)

    def _status(self, actuator: str) -> ActuatorStatus | None:
        """The actuator as the server reports it."""
        state = self.page.connection.state
        return None if state is None else state.actuators.get(actuator)

    def _build(self, name: str, info: ActuatorDescription) -> None:
        with ui.column().classes("card w-full gap-2"):
            with ui.row().classes("w-full items-center no-wrap"):
                heading(f"Actuator {name}").tooltip(info.description or name)
                ui.space()
                ui.html(piece("limited", actuator=name), sanitize=False)
            titles = {word: title for word, (title, _) in FIELDS.items()}
            ui.html(piece("actuator_values", actuator=name, fields=titles), sanitize=False).classes("w-full")
            ui.html(piece("tracked", actuator=name), sanitize=False).classes("w-full")
            self._choices[name] = ui.select(
                list(info.strategies), label="Strategy", on_change=lambda e: self._select(name, e.value)
            )
            self._choices[name].props("outlined dense options-dense").classes("w-full strategy")
            self._jogs[name] = JogControl(self.page, {"actuator": name}, 1.0, OF_ACTUATORS)

    async def _select(self, actuator: str, strategy: str | None) -> None:
        status = self._status(actuator)
        if strategy is not None and (status is None or strategy != status.strategy):
            self._chosen[actuator] = time.monotonic()
            await self.page.command(commands.SelectStrategy(actuator=actuator, strategy=strategy))

    def _update(self) -> None:
        units, now = self.page.units, self.page.connection.history.latest()
        texts: dict[str, str] = {}
        for name in self._actuators:
            for word, (_, unit) in FIELDS.items():
                channel = f"actuator.{name}.{word}"
                texts[channel] = units.text(now.get(channel), unit, FINER[unit])
            texts[f"limited.{name}"] = "at a limit" if now.get(f"actuator.{name}.saturation") else ""
            status = self._status(name)
            texts[f"tracked.{name}"] = "" if status is None else learned_text(status.learned)
        self.page.show("texts", texts)
