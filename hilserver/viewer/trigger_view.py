"""The trigger of a page: what is looked for, the occurrences, and the way from one to the next."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import run, ui
from pydantic import ValidationError

from hilserver.errors import HilserverError, problems_of
from hilserver.record.crossings import EDGES
from hilserver.viewer.measurement import Moment, event_name
from hilserver.viewer.overlay import Overlay
from hilserver.viewer.plot_view import PlotView
from hilserver.viewer.trigger import Trigger, level_text, times_text
from hilserver.web.style import heading

LISTED_OCCURRENCES = 2000
"""Occurrences in the list of those to jump to."""


class TriggerView:
    """The card. ``found`` is called when a search has ended."""

    def __init__(self, overlay: Overlay, plot: PlotView, found: Callable[[], Awaitable[None]]) -> None:
        self.overlay, self.plot, self._found = overlay, plot, found
        self._moments: list[Moment] = []
        self._place = -1
        self._asked = 0
        self._listed: object = None
        with ui.column().classes("card w-full gap-2 trigger"):
            with ui.row().classes("w-full items-center gap-3"):
                heading("Trigger")
                self._kind = ui.toggle({"level": "Level", "event": "Event"}, value="level", on_change=self._show_kind)
                self._kind.props("no-caps unelevated size=sm")
                self._signal = ui.select([], label="signal", with_input=True).props("outlined dense options-dense")
                self._signal.classes("w-64 trigger-signal")
                self._edge = ui.toggle(list(EDGES), value="rising").props("no-caps unelevated size=sm")
                self._level = self._text("level", "0").classes("trigger-level")
                self._hysteresis = self._text("hysteresis", "0")
                self._event = ui.select([], label="event").props("outlined dense options-dense").classes("w-64")
                self._before, self._after = self._text("before", "0.1 s"), self._text("after", "0.5 s")
                find = ui.button("Find", icon="search", on_click=self._find).props("outline no-caps dense")
                find.classes("px-3")
            with ui.row().classes("w-full items-center gap-3") as self._results:
                for what, icon, by in (("Previous", "navigate_before", -1), ("Next", "navigate_next", 1)):
                    ui.button(icon=icon, on_click=lambda by=by: self._go(self._place + by)).props(
                        f'flat dense round aria-label="{what} occurrence"'
                    )
                self._list = ui.select({}, with_input=True, label="occurrence", on_change=self._chosen)
                self._list.props("outlined dense options-dense").classes("w-72")
            self._note = ui.label().classes("text-sm text-slate-600 trigger-note")
        self.refresh()

    def _text(self, label: str, value: str) -> ui.input:
        return ui.input(label, value=value).props("outlined dense").classes("w-28")

    def refresh(self) -> None:
        """Offer the signals and events of the logs; show the trigger of the layout, and the occurrences."""
        signals = list(self.overlay.available())
        events = list(dict.fromkeys(event_name(m) for opened in self.overlay.logs for m in opened.log.happened))
        shown = next(iter(self.overlay.signals), None)
        signal = self._signal.value if self._signal.value in signals else shown if shown in signals else None
        self._signal.set_options(signals, value=signal)
        self._event.set_options(events, value=self._event.value if self._event.value in events else None)
        self._show_kind()
        self._list_occurrences()

    def _list_occurrences(self) -> None:
        """List what was found, unless it is listed already: there may be thousands."""
        key = (self.overlay.found, self.overlay.placed)
        if key == self._listed:
            return
        self._listed = key
        self._moments = self.overlay.triggered()
        listed = {k: f"{k + 1}:  {m.time:.6f} s" + _log(m) for k, m in enumerate(self._moments[:LISTED_OCCURRENCES])}
        self._place = min(self._place, len(self._moments) - 1)
        self._list.set_options(listed, value=self._place if self._place in listed else None)
        self._results.visible = bool(self._moments)

    def show(self, trigger: Trigger | None) -> None:
        """Show a trigger that was loaded; it is not searched."""
        self._note.set_text("")
        self._place = -1
        if trigger is None:
            return
        self._kind.value = "event" if trigger.event else "level"
        for element, value in ((self._signal, trigger.signal), (self._event, trigger.event)):
            if value in element.options:
                element.value = value
        self._edge.value = trigger.edge
        self._level.value, self._hysteresis.value = str(trigger.level), str(trigger.hysteresis)
        self._before.value, self._after.value = trigger.before, trigger.after

    def _show_kind(self) -> None:
        is_level = self._kind.value == "level"
        for element in (self._signal, self._edge, self._level, self._hysteresis):
            element.visible = is_level
        self._event.visible = not is_level

    def _entered(self) -> Trigger:
        """The trigger as entered. Raises `HilserverError`."""
        signal = str(self._signal.value or "")
        si = self.overlay.available().get(signal, "")
        shown = self.overlay.unit(self.overlay.tabs.selected, si).unit
        words = {"before": self._before.value, "after": self._after.value}
        given: dict[str, object] = {name: level_text(str(text), "s", "s") for name, text in words.items()}
        if self._kind.value == "event":
            given["event"] = str(self._event.value or "")
        else:
            levels = {"level": self._level.value, "hysteresis": self._hysteresis.value}
            given |= {name: level_text(str(text), shown, si) for name, text in levels.items()}
            given |= {"signal": signal, "edge": self._edge.value}
        try:
            return Trigger.model_validate(given)
        except ValidationError as error:
            raise HilserverError(" ".join(map(str, problems_of(error, given, names=Trigger.model_fields)))) from None

    async def _find(self) -> None:
        self._asked += 1
        asked = self._asked
        try:
            trigger = self._entered()
            self._note.set_text("Searching …")
            counts = await run.io_bound(self.overlay.search, trigger, lambda: asked == self._asked)
        except HilserverError as error:
            self._note.set_text(str(error))
            return
        if counts is None or asked != self._asked:  # the program ends, or another search was begun
            return
        self._note.set_text(f"{times_text(counts)}." if sum(counts) else "No occurrence.")
        self._place = -1
        await self._found()
        if self._moments:
            self._go(0)

    def _chosen(self) -> None:
        if self._list.value is not None and int(self._list.value) != self._place:
            self._go(int(self._list.value))

    def _go(self, place: int) -> None:
        """Show the window around an occurrence, with cursor 1 on it."""
        if not self._moments or self.overlay.trigger is None:
            return
        self._place = min(max(place, 0), len(self._moments) - 1)
        self._list.value = self._place if self._place < LISTED_OCCURRENCES else None
        time = self._moments[self._place].time
        (first, last), (begin, end) = self.overlay.extent(), self.overlay.trigger.window(time)
        self.plot.zoom(max(begin, first), min(end, last))
        self.plot.place(0, time)


def _log(moment: Moment) -> str:
    number, colon, _ = moment.text.rpartition(": ")
    return f"  (log {number})" if colon else ""
