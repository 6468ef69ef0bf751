"""Movement by hand, while a button is held."""

from __future__ import annotations

from collections.abc import Mapping

from nicegui import ui

from hilserver.panel.inputs import FreeSlider
from hilserver.panel.view import Page
from hilserver.protocol import commands

OF_VALVES = "Hold: the valve moves by this fraction of its range. Release: it goes to null."
OF_ACTUATORS = "Hold: the actuator moves at this fraction of its jog speed. Release: it stays where it is."
"""What the buttons do."""


class JogControl:
    """Moves a valve or an actuator manually while a button is held; the server ends a command that is not renewed.

    ``driven``: its kind and name, as in the command; ``effect``: of the buttons, for the user.
    """

    def __init__(self, page: Page, driven: Mapping[str, str], limit: float, effect: str = OF_VALVES) -> None:
        self.page, self._driven, self._limit, self._ended = page, driven, limit, False
        self._effect = effect
        with ui.row().classes("w-full items-center no-wrap gap-3 jog") as self._row:
            self._buttons = [self._button("remove", -1.0), self._button("add", 1.0)]
            low, high = 0.1 * limit, limit
            self._size = FreeSlider(min=low, max=high, step=low, value=0.5 * limit).props("aria-label='jog'")
            self._shown = ui.label().classes("text-sm whitespace-nowrap")
            self._size.on_value_change(self._show_size)
        self._show_size()

    def follow(self, manual: bool) -> None:
        """Visible if it is driven by hand, enabled while the rig is running."""
        self._row.visible = manual and self._limit > 0.0
        self._ended = self._ended or not self.page.may_operate  # until it is pressed again
        for button in self._buttons:
            button.set_enabled(self.page.may_operate)

    def _button(self, icon: str, sign: float) -> ui.button:
        button = ui.button(icon=icon).props(f"outline aria-label='jog {'+' if sign > 0 else '-'}'").classes("hold")
        button.on("pointerdown", lambda e: self._jog(sign, e.args), js_handler="(e) => panel.hold(e, emit)")
        return button.tooltip(self._effect)

    def _command(self, command: float) -> commands.Jog:
        return commands.Jog.model_validate({**self._driven, "command": command})

    def _show_size(self) -> None:
        self._shown.set_text(f"jog {100 * self._size.value:.1f} %")

    async def _jog(self, sign: float, what: str) -> None:
        """The button is pressed, held or released. A refusal, or a rig that stops, ends it until the next press."""
        if what == "release":
            self._ended = True
            await self.page.command(self._command(0.0), quiet=True)
            return
        if what == "press":
            self._ended = False
        if not self._ended:
            command = sign * float(self._size.value)
            answer = await self.page.command(self._command(command))
            self._ended = self._ended or answer is None or not answer.ok
