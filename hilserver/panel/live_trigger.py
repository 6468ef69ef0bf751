"""Triggers as on an oscilloscope: armed from the panel, found by the recorder, and shown with every sample."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from nicegui import background_tasks, ui
from pydantic import ValidationError

from hilserver.errors import HilserverError, problems_of
from hilserver.panel.live_layout import signals
from hilserver.panel.recordings import Recorded
from hilserver.panel.view import Page, refuse
from hilserver.panel.window_view import WindowView
from hilserver.protocol.commands import ArmTrigger, EndTrigger
from hilserver.protocol.published import Description, TriggerStatus
from hilserver.record.crossings import EDGES
from hilserver.units import CIRCUIT
from hilserver.viewer.trigger import level_text
from hilserver.web.display import label
from hilserver.web.style import heading

KINDS = {"when": "Level", "mode": "Mode", "event": "Event"}
MODES = ("ARMED", "RUNNING", "FAULT", "SAFE")
EVENTS = {"switch": "circuit switch", "reaction": "reaction", "missed": "missed ticks", "limit": "limit"}
WATCHED = ("measured", "configured", "command", "bridge")
"""Kinds of the channels that a trigger can wait for, beside the values of the circuit."""
NOT_WATCHED = (".saturation", ".strategy")
"""Endings of the channels that it can't wait for: their numbers stand for words."""


class LiveTriggerView:
    """The card: what is waited for, the triggers of the rig with their states, and the window of one of them.

    The window of the trigger that was armed here is shown when it is complete, and with Normal each one that follows.
    """

    def __init__(self, page: Page, recorded: Recorded) -> None:
        self.page = page
        self._followed = ""
        self._file: str | None = None
        self._signal_of: dict[str, str] = {}
        self._listed: list[tuple[str, str, bool]] = []
        self._rows: list[_Row] = []
        self._operating: list[ui.button] = []
        """Buttons for operators only."""
        with ui.column().classes("card w-full gap-2 live-trigger"):
            with ui.row().classes("w-full items-center gap-3"):
                heading("Trigger")
                self._add_condition()
                self._name = self._text("name", "panel")
                with ui.row().classes("gap-2 no-wrap"):
                    for text, repeat in (("Single", False), ("Normal", True)):
                        button = ui.button(text, on_click=lambda repeat=repeat: self._arm(repeat))
                        button.props("outline no-caps dense").classes("px-3 arm-trigger")
                        button.tooltip("Trigger on every occurrence" if repeat else "Trigger only once")
                        self._operating.append(button)
            self._list = ui.column().classes("w-full gap-1 trigger-list")
            self._window = WindowView(recorded)
        self._show_kind()
        page.each_round(self._follow, "Plots")
        page.when_units_change.append(self._show_units)

    def _add_condition(self) -> None:
        self._kind = ui.toggle(KINDS, value="when", on_change=self._show_kind).props("no-caps unelevated size=sm")
        self._signal = ui.select({}, label="signal", with_input=True, on_change=self._show_units)
        self._signal.props("outlined dense options-dense")
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
        description = self.page.connection.description
        channels = [name for name in self.page.connection.history.channels() if is_watched(name, description)]
        if channels != list(self._signal.options):
            value = self._signal.value if self._signal.value in channels else next(iter(channels), None)
            self._signal.set_options({name: label(name) for name in channels}, value=value)

    def _show_units(self) -> None:
        """Show the unit of level and hysteresis in their fields."""
        unit = self.page.units.of(self.page.unit(str(self._signal.value or ""))).unit
        for each in (self._level, self._hysteresis):
            each.props["suffix"] = unit
            each.update()

    def _show_kind(self) -> None:
        kind = self._kind.value
        for element in (self._signal, self._edge, self._level, self._hysteresis):
            element.visible = kind == "when"
        self._mode.visible, self._event.visible = kind == "mode", kind == "event"

    def _entered(self, repeat: bool) -> ArmTrigger:
        """The command, as entered. Raises HilserverError."""
        given: dict[str, Any] = {"trigger": self._own_name(str(self._name.value).strip()), "repeat": repeat}
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

    @property
    def _triggers(self) -> Mapping[str, TriggerStatus]:
        state = self.page.connection.state
        return state.triggers if state is not None else {}

    def _own_name(self, name: str) -> str:
        """This name, with a number appended if a trigger of this name was armed elsewhere."""
        taken = self._triggers.keys() - self._signal_of.keys()
        numbered = (f"{name[:36]}-{number}" for number in itertools.count(2))
        return next(each for each in itertools.chain([name], numbered) if each not in taken)

    async def _arm(self, repeat: bool) -> None:
        try:
            command = self._entered(repeat)
        except HilserverError as error:
            refuse(str(error))
            return
        known = self._triggers.get(command.trigger)
        answer = await self.page.command(command)
        if answer is not None and answer.ok:
            self._followed, self._file = command.trigger, known.file if known is not None else None
            self._name.set_value(command.trigger)
            self._signal_of[command.trigger] = str(self._signal.value or "") if command.when else ""

    def _follow(self) -> None:
        self._offer()
        triggers = self._triggers
        if (keys := [(name, each.text, each.configured) for name, each in triggers.items()]) != self._listed:
            self._listed = keys
            self._list.clear()
            with self._list:
                self._rows = [_Row(name, each, self._show, self.page.command) for name, each in triggers.items()]
        for row, trigger in zip(self._rows, triggers.values(), strict=True):
            row.follow(trigger)
        for button in (*self._operating, *(row.end for row in self._rows if row.end is not None)):
            button.set_enabled(self.page.may_command)
        followed = triggers.get(self._followed)
        if followed is not None and followed.file is not None and followed.file != self._file:
            self._file = followed.file
            background_tasks.create(self._show(self._followed, followed.file))

    async def _show(self, name: str, file: str) -> None:
        signal = self._signal_of.get(name, "")
        with self._list:  # a place on the page, where this runs in the background
            await self._window.show(file, list(signals([signal], self.page.connection.description)))


class _Row:
    """A trigger in the list; only its words and what *Show* opens change, so that nothing moves under the mouse."""

    def __init__(
        self,
        name: str,
        trigger: TriggerStatus,
        show: Callable[[str, str], Awaitable[None]],
        command: Callable[[EndTrigger], Awaitable[object]],
    ) -> None:
        self._name, self._open, self._file = name, show, ""
        self.end: ui.button | None = None
        with ui.row().classes("w-full items-center gap-3 no-wrap text-sm trigger-row"):
            ui.label(name).classes("font-semibold")
            ui.label(trigger.text).classes("text-slate-500")
            self._words = ui.label().classes("grow trigger-state")
            self._show = ui.button("Show", icon="show_chart", on_click=self._clicked).props("flat no-caps dense")
            if not trigger.configured:
                self.end = ui.button("End", on_click=lambda: command(EndTrigger(trigger=name)))
                self.end.props("flat no-caps dense")

    def follow(self, trigger: TriggerStatus) -> None:
        """Show its state as it is now."""
        self._words.set_text(state_words(trigger))
        self._file = trigger.file or ""
        self._show.visible = bool(self._file)

    async def _clicked(self) -> None:
        await self._open(self._name, self._file)


def state_words(trigger: TriggerStatus) -> str:
    """The state of a trigger in words.

    >>> state_words(TriggerStatus(text="p_A > 200 bar", state="ARMED", count=3))
    'waiting, 3 so far'
    """
    words = {"ARMED": "waiting", "WRITING": "triggered, recording", "DONE": "triggered"}[trigger.state]
    counted = words + (f", {trigger.count} so far" if not trigger.once else "")
    return f"ended: {trigger.trouble}" if trigger.trouble else counted


def is_watched(channel: str, description: Description | None) -> bool:
    """Whether a trigger can wait for this channel of telemetry."""
    if channel.startswith(CIRCUIT):
        return channel != f"{CIRCUIT}t"
    known = description.channels.get(channel) if description is not None else None
    return known is not None and known.kind in WATCHED and not channel.endswith(NOT_WATCHED)
