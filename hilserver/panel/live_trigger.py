"""Triggers as on an oscilloscope: armed from the panel, found by the recorder, and shown with every sample."""

from __future__ import annotations

from typing import Any

from nicegui import background_tasks, ui
from pydantic import ValidationError

from hilserver.errors import HilserverError, problems_of
from hilserver.panel.live_layout import signals
from hilserver.panel.recordings import Recorded
from hilserver.panel.view import Page, refuse
from hilserver.panel.window_view import WindowView
from hilserver.protocol.commands import ArmTrigger, EndTrigger
from hilserver.protocol.published import TriggerStatus
from hilserver.record.crossings import EDGES
from hilserver.viewer.trigger import level_text
from hilserver.web.display import label
from hilserver.web.style import heading

KINDS = {"when": "Level", "mode": "Mode", "event": "Event"}
MODES = ("ARMED", "RUNNING", "FAULT", "SAFE")
EVENTS = {"switch": "switch of the circuit", "reaction": "reaction", "missed": "missed ticks", "limit": "limit"}
NOT_WATCHED = ("tick", "circuit.t", "loop.", "device.")
"""How the channels begin that no trigger can wait for."""


class LiveTriggerView:
    """The card: what is waited for, the triggers of the rig with their states, and the window of one of them.

    The window of the trigger that was armed here is shown when it is complete, and with Normal each one that follows.
    """

    def __init__(self, page: Page, recorded: Recorded) -> None:
        self.page = page
        self._followed, self._file = "", ""
        self._signal_of: dict[str, str] = {}
        self._listed: dict[str, TriggerStatus] | None = None
        self._operating: list[ui.button] = []
        """Those for operators only."""
        self._ending: list[ui.button] = []
        """The same, in the list."""
        with ui.column().classes("card w-full gap-2 live-trigger"):
            with ui.row().classes("w-full items-center gap-3"):
                heading("Trigger")
                self._add_condition()
                self._name = self._text("name", "panel")
                with ui.row().classes("gap-2 no-wrap"):
                    for text, repeat in (("Single", False), ("Normal", True)):
                        button = ui.button(text, on_click=lambda repeat=repeat: self._arm(repeat))
                        button.props("outline no-caps dense").classes("px-3 arm-trigger")
                        button.tooltip("Wait for all of them" if repeat else "Wait for the next occurrence")
                        self._operating.append(button)
            self._list = ui.column().classes("w-full gap-1 trigger-list")
            self._window = WindowView(recorded)
        self._show_kind()
        page.each_round(self._follow, "Plots")

    def _add_condition(self) -> None:
        self._kind = ui.toggle(KINDS, value="when", on_change=self._show_kind).props("no-caps unelevated size=sm")
        self._signal = ui.select({}, label="signal", with_input=True).props("outlined dense options-dense")
        self._signal.classes("w-56 trigger-signal")
        self._edge = ui.toggle(list(EDGES), value="rising").props("no-caps unelevated size=sm")
        self._level = self._text("level", "0").classes("trigger-level")
        self._hysteresis = self._text("hysteresis", "0")
        self._mode = ui.select(list(MODES), value="RUNNING", label="mode").props("outlined dense options-dense")
        self._event = ui.select(EVENTS, value="switch", label="event").props("outlined dense options-dense")
        self._before, self._after = self._text("before", "0.1 s"), self._text("after", "0.5 s")

    def _text(self, title: str, value: str) -> ui.input:
        return ui.input(title, value=value).props("outlined dense").classes("w-24")

    def _offer(self) -> None:
        """Offer the channels that there are now."""
        channels = [name for name in self.page.connection.history.channels() if not name.startswith(NOT_WATCHED)]
        if channels != list(self._signal.options):
            value = self._signal.value if self._signal.value in channels else next(iter(channels), None)
            self._signal.set_options({name: label(name) for name in channels}, value=value)

    def _show_kind(self) -> None:
        kind = self._kind.value
        for element in (self._signal, self._edge, self._level, self._hysteresis):
            element.visible = kind == "when"
        self._mode.visible, self._event.visible = kind == "mode", kind == "event"

    def _entered(self, repeat: bool) -> ArmTrigger:
        """The command, as entered. Raises HilserverError."""
        given: dict[str, Any] = {"trigger": str(self._name.value).strip(), "repeat": repeat}
        for key, field in (("before", self._before), ("after", self._after)):
            given[key] = level_text(str(field.value), "s", "s")
        kind = str(self._kind.value)
        if kind == "when":
            signal = str(self._signal.value or "")
            si = self.page.unit(signal)
            shown = self.page.units.of(si).unit
            level, width = (level_text(str(each.value), shown, si) for each in (self._level, self._hysteresis))
            sign = "<" if self._edge.value == "falling" else ">"
            given |= {"when": f"{signal} {sign} {level}", "either": self._edge.value == "either"}
            given |= {"hysteresis": str(width)} if str(self._hysteresis.value).strip() not in ("", "0") else {}
        else:
            given[kind] = str(self._mode.value if kind == "mode" else self._event.value)
        try:
            return ArmTrigger.model_validate(given)
        except ValidationError as error:
            raise HilserverError(" ".join(map(str, problems_of(error, given, names=ArmTrigger.model_fields)))) from None

    async def _arm(self, repeat: bool) -> None:
        try:
            command = self._entered(repeat)
        except HilserverError as error:
            refuse(str(error))
            return
        answer = await self.page.command(command)
        if answer is not None and answer.ok:
            self._followed, self._file = command.trigger, ""
            self._signal_of[command.trigger] = str(self._signal.value or "") if command.when else ""

    def _follow(self) -> None:
        self._offer()
        state = self.page.connection.state
        triggers = state.triggers if state is not None else {}
        if triggers != self._listed:
            self._listed = triggers
            self._list.clear()
            self._ending.clear()
            with self._list:
                for name, trigger in triggers.items():
                    self._row(name, trigger)
        for button in (*self._operating, *self._ending):
            button.set_enabled(self.page.may_command)
        followed = triggers.get(self._followed)
        if followed is not None and followed.file is not None and followed.file != self._file:
            self._file = followed.file
            background_tasks.create(self._show(self._followed, followed.file))

    def _row(self, name: str, trigger: TriggerStatus) -> None:
        with ui.row().classes("w-full items-center gap-3 no-wrap text-sm trigger-row"):
            ui.label(name).classes("font-semibold")
            ui.label(trigger.text).classes("text-slate-500")
            words = {"ARMED": "waits", "WRITING": "triggered, being recorded", "DONE": "triggered"}[trigger.state]
            ui.label(words + (f", {trigger.count} so far" if not trigger.once else "")).classes("grow trigger-state")
            if trigger.file is not None:
                show = ui.button("Show", icon="show_chart")
                show.on_click(lambda name=name, file=trigger.file: self._show(name, file)).props("flat no-caps dense")
            if not trigger.configured:
                end = ui.button("End", on_click=lambda name=name: self.page.command(EndTrigger(trigger=name)))
                self._ending.append(end.props("flat no-caps dense"))

    async def _show(self, name: str, file: str) -> None:
        signal = self._signal_of.get(name, "")
        with self._list:  # a place on the page, where this runs in the background
            await self._window.show(file, list(signals([signal], self.page.connection.description)))
