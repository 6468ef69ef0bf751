"""The page that shows recordings: logs, signals, plot, figures, analysis, exports."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nicegui import background_tasks, run, ui
from pydantic import ValidationError

from hilserver.errors import HilserverError, problems_of
from hilserver.record.export import FORMATS
from hilserver.viewer.alignment import common_events
from hilserver.viewer.analysis_view import AnalysesView
from hilserver.viewer.figures_view import FiguresView
from hilserver.viewer.layout import ViewAlign, ViewLayout
from hilserver.viewer.layout_view import LayoutMenu, TabsAndPlots, ViewerFiles
from hilserver.viewer.measurement import Moment
from hilserver.viewer.notes_view import NotesView, notes_table
from hilserver.viewer.overlay import Overlay, first_signals
from hilserver.viewer.plot_view import PlotView
from hilserver.viewer.span_export import export_span
from hilserver.viewer.store import LogStore, OpenedLog
from hilserver.viewer.trigger import MOST_OCCURRENCES
from hilserver.viewer.trigger_view import TriggerView
from hilserver.web.style import AppearanceChoice, add_style, heading

LISTED = 150
"""Signals that are listed at a time; the others are found by searching."""
MOST_EVENTS = 1000
"""Events in the list of those to jump to."""
ALIGNMENTS = {"start": "start", "clock": "clock", "event": "event", "trigger": "trigger"}
_CSS = """
.time-plot { min-height: 380px; }
.signals { max-height: 62vh; overflow: auto; }
@media (max-width: 1023px) { .signals { max-height: 24vh; } }
.figures td { font-variant-numeric: tabular-nums; }
"""


class ViewerPage:
    """A page with some logs.

    ``offered`` are the logs that may be opened here, by name; no other file can be. ``files`` is where layouts and
    notes are kept.
    """

    def __init__(
        self,
        store: LogStore,
        offered: Callable[[], Mapping[str, Path]],
        names: Sequence[str],
        files: ViewerFiles = ViewerFiles(),  # noqa: B008 - frozen
    ) -> None:
        self._store, self._offered = store, offered
        self.overlay = Overlay()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._listed: list[Moment] = []
        self._setting = False
        add_style(_CSS)
        with ui.column().classes("w-full gap-3 px-3 py-3 max-w-[1900px] mx-auto"):
            with ui.column().classes("card w-full gap-2"):
                self._logs = ui.column().classes("w-full gap-0 logs")
                self._tools()
                self._note = ui.label().classes("note warn w-full trouble")
                self._missing = ui.label().classes("note warn w-full missing")
            with ui.row().classes("w-full items-center gap-2"):
                self._tabs = TabsAndPlots(self.overlay, self._rearranged)
                ui.space()
                self._layouts = LayoutMenu(self.overlay, files, self._load, self._say)
            with ui.element("div").classes(
                "grid grid-cols-1 lg:grid-cols-[19rem_minmax(0,1fr)] gap-3 w-full items-start"
            ):
                self._signal_list()
                with ui.column().classes("w-full min-w-0 gap-3"):
                    with ui.column().classes("card w-full gap-2"):
                        self._tabs.plots_here()
                        self.plot = PlotView(self.overlay, self._changed, lambda error: self._say(str(error)))
                        self._figures = FiguresView(self.overlay)
                    self._trigger = TriggerView(self.overlay, self.plot, self._searched)
                    self._notes = NotesView(self.overlay, self.plot, files.may_write, self._list_moments, self._show_at)
                    self._analyses = AnalysesView(self.overlay, self.plot, self._draw)
                    self._analyses.rebuild()
        ui.context.client.on_delete(self._clean)
        ui.timer(0.0, lambda: self._begin(names), once=True)

    def _signal_list(self) -> None:
        with ui.column().classes("card w-full gap-2"):
            heading("Signals")
            self._words = ui.input(placeholder="Search", on_change=self._list).props("outlined dense clearable")
            self._words.classes("w-full search")
            with ui.column().classes("w-full gap-0 signals no-wrap"):
                self._signals = ui.column().classes("w-full gap-0 no-wrap")
                self._left = ui.label().classes("text-xs text-slate-500")
            self._boxes: dict[str, ui.checkbox] = {}

    def _tools(self) -> None:
        with ui.row().classes("w-full items-center gap-3"):
            self._align = ui.toggle(ALIGNMENTS, value="start", on_change=self._align_otherwise).props(
                "no-caps unelevated size=sm"
            )
            self._align.tooltip("Moment that is time 0 in all logs")
            self._event = ui.select([], label="event", on_change=self._align_otherwise).props(
                "outlined dense options-dense"
            )
            self._event.classes("w-48 event")
            self._number = ui.number(
                "no.", value=1, min=1, max=MOST_OCCURRENCES, precision=0, on_change=self._align_otherwise
            )
            self._number.props("outlined dense debounce=500").classes("w-20 number").tooltip("The first, the second, …")
            self._moments = ui.select({}, label="go to event or note", with_input=True, on_change=self._go_to)
            self._moments.props("outlined dense options-dense")
            self._moments.classes("w-64 moments")
            ui.space()
            for text, icon, action in (
                ("Whole", "zoom_out_map", lambda: self.plot.zoom(*self.overlay.extent())),
                ("To cursors", "center_focus_strong", lambda: self.plot.zoom(*self.plot.measured_span)),
                ("No cursors", "clear", self._no_cursors),
            ):
                ui.button(text, icon=icon, on_click=action).props("flat no-caps dense")
            cursor = ui.toggle({0: "Cursor 1", 1: "Cursor 2"}, value=0).props("no-caps unelevated size=sm")
            cursor.on_value_change(lambda event: self.plot.plot.run_method("choose", event.value))
            cursor.tooltip("A click in the plot sets this cursor; with Shift, the other one.")
            with ui.button("Export", icon="download").props("outline no-caps dense").classes("px-3"), ui.menu():
                for kind in FORMATS:
                    ui.menu_item(f"{kind.upper()}: samples of the span", lambda kind=kind: self._export(kind))
                ui.menu_item("Notes (CSV)", lambda: ui.download.content(notes_table(self.overlay), "notes.csv"))
                for kind in ("png", "svg"):
                    ui.menu_item(f"{kind.upper()}: the plot", lambda kind=kind: self._picture(kind))
            with ui.button(icon="contrast").props('flat round dense aria-label="Appearance"'), ui.menu():
                AppearanceChoice()

    async def _begin(self, names: Sequence[str]) -> None:
        """Open the logs, and the layout if one was given and exists."""
        await self._open(names)
        await self._layouts.open_given()

    async def _load(self, layout: ViewLayout) -> None:
        """Show a layout, with the logs as they are."""
        problem = ""
        try:
            await run.io_bound(self.overlay.load, layout)
        except HilserverError as error:
            problem = str(error)
        aligned = self.overlay.aligned
        self._setting = True
        self._align.value, self._event.value, self._number.value = aligned.by, None, aligned.number
        self._setting = False
        self._say(problem)
        self._analyses.rebuild()
        self._show(whole=True)
        self._trigger.show(layout.trigger)
        background_tasks.create(self._analyses.compute())

    def _rearranged(self, other_tab: bool) -> None:
        """The plots have changed, or another tab is shown."""
        self._list()
        self._show_tabs()
        if other_tab:
            self._analyses.rebuild()
        self._draw()
        if other_tab:
            background_tasks.create(self._analyses.compute())

    def _show_tabs(self) -> None:
        missing = self.overlay.missing()
        self._missing.set_text(f"Not in these logs: {', '.join(missing)}." if missing else "")
        self._tabs.refresh()

    async def _open(self, names: Sequence[str]) -> None:
        """Open logs that are offered, beside those that are open."""
        problems = []
        self._say("Reading …")
        for name in names:
            path = self._offered().get(name)
            try:
                if path is None:
                    raise HilserverError(f"{name} is not among the logs that can be opened here.")
                opened = await run.io_bound(self._store.open, path)
                if opened is None:  # the program ends
                    return
                await run.io_bound(self.overlay.add, opened)
            except HilserverError as error:
                problems.append(str(error))
        if not self.overlay.layout.signals():
            self.overlay.choose(first_signals(self.overlay.logs))
        self._say(" ".join(problems))
        self._show(whole=True)

    def _show(self, *, whole: bool = False) -> None:
        """Show what has changed in the logs, or in how they are aligned."""
        self._show_alignment()
        events = common_events([opened.log for opened in self.overlay.logs])
        aligned = self.overlay.aligned.event
        kept = next((event for event in (self._event.value, aligned) if event in events), None)
        self._setting = True
        self._event.set_options(events, value=kept)
        self._setting = False
        self._list_logs()
        self._list()
        self._show_tabs()
        self._draw(whole=whole)

    def _draw(self, *, whole: bool = False) -> None:
        self.plot.draw(whole=whole)
        self._list_moments()
        self._notes.refresh()
        self._trigger.refresh()
        self._analyses.refresh()

    def _list_moments(self) -> None:
        """List the events and notes to go to, and mark them in the plot."""
        self._listed = self.overlay.moments()[:MOST_EVENTS]
        self._moments.set_options({k: f"{m.time:.3f} s  {m.text}" for k, m in enumerate(self._listed)}, value=None)
        self._moments.visible = bool(self._listed)
        self.plot.show_lines()

    def _list_logs(self) -> None:
        self._logs.clear()
        with self._logs:
            for place, opened in enumerate(self.overlay.logs, 1):
                log = opened.log
                begin, end = log.span
                with ui.row().classes("w-full items-center gap-2 no-wrap"):
                    ui.label(f"{place}").classes("font-bold")
                    ui.label(log.name).classes("font-semibold log-name")
                    ui.label(f"{end - begin:.6g} s, {len(log.units)} signals").classes("text-sm text-slate-500")
                    for note in [*log.notes, *filter(None, [opened.trouble])]:
                        ui.label(note).classes("note warn")
                    ui.space()
                    close = ui.button(icon="close", on_click=lambda opened=opened: self._close(opened))
                    close.props(f'flat dense round size=sm aria-label="Close log {place}"')
            open_already = {opened.log.path for opened in self.overlay.logs}
            others = [name for name, path in self._offered().items() if path not in open_already]
            if others:
                more = ui.select(others, label="Open another log beside", with_input=True, on_change=self._add)
                more.props("outlined dense options-dense").classes("w-96 add-log")

    async def _add(self, event: object) -> None:
        await self._open([str(getattr(event, "value", ""))])

    def _close(self, opened: OpenedLog) -> None:
        self.overlay.remove(opened)
        self._show(whole=True)

    def _show_alignment(self) -> None:
        """Show what is to be chosen for the alignment."""
        several, by = len(self.overlay.logs) > 1, self._align.value
        self._align.visible = several
        self._event.visible = several and by == "event"
        self._number.visible = several and by in ("event", "trigger")

    def _align_otherwise(self) -> None:
        """The user has chosen (unless the page itself sets the choices)."""
        if not self._setting:
            background_tasks.create(self._realign())

    async def _realign(self) -> None:
        """Align the logs as chosen, as soon as the choice is complete."""
        self._show_alignment()
        by, event = self._align.value, str(self._event.value or "")
        if (by == "event" and not event) or not self._number.value:
            return
        given = {"by": by, "event": event, "number": int(self._number.value)}
        try:
            await run.io_bound(self.overlay.align, ViewAlign.model_validate(given))
        except ValidationError as error:
            self._say(" ".join(map(str, problems_of(error, given, names=ViewAlign.model_fields))))
            return
        except HilserverError as error:
            self._say(str(error))
            return
        self._say("")
        self._draw(whole=True)

    async def _searched(self) -> None:
        """A trigger was found: logs that are aligned by one are aligned by this one."""
        if self._align.value == "trigger":
            await self._realign()
        self.plot.show_lines()
        self._trigger.refresh()

    def _go_to(self) -> None:
        """Show the chosen event."""
        if self._moments.value is not None:
            self._show_at(self._listed[int(self._moments.value)].time)

    def _show_at(self, time: float) -> None:
        """Show a time in the middle: in a section as wide as now, at most a tenth of everything."""
        (first, last), (begin, end) = self.overlay.extent(), self.plot.section
        half = min(end - begin, (last - first) / 10) / 2
        self.plot.zoom(max(time - half, first), min(time + half, last))

    def _list(self) -> None:
        """List the signals that have all words of the search; the chosen ones first."""
        words = str(self._words.value or "").lower().split()
        known = self.overlay.available()
        chosen = self.overlay.signals
        found = [name for name in known if name not in chosen and all(word in name.lower() for word in words)]
        rows: dict[str, str] = {}
        for name in [*chosen, *found[:LISTED]]:
            unit = self.overlay.unit(self.overlay.tabs.selected, known.get(name, "")).unit
            rows[name] = (f"{name}  [{unit}]" if unit else name) if name in known else f"{name}  (in no log)"
        self._show_boxes(rows)
        more = f"{len(found) - LISTED} more: search for them." if len(found) > LISTED else ""
        self._left.set_text("No other matching signal." if words and not found else more)

    def _show_boxes(self, rows: dict[str, str]) -> None:
        """One box for each signal. Boxes that stay are kept: a click on a box that was replaced meanwhile is lost."""
        chosen = self.overlay.signals
        for name, box in list(self._boxes.items()):
            if (box.text, box.value) != (rows.get(name), name in chosen):
                self._boxes.pop(name).delete()
        for place, (name, text) in enumerate(rows.items()):
            if name not in self._boxes:
                with self._signals:
                    self._boxes[name] = box = ui.checkbox(text, value=name in chosen).props("dense size=sm")
                box.on_value_change(lambda event, name=name: self._choose(name, event.value))
            if self._signals.default_slot.children[place] is not self._boxes[name]:
                self._boxes[name].move(target_index=place)

    def _choose(self, name: str, wanted: bool) -> None:
        try:
            self.overlay.choose([n for n in self.overlay.signals if n != name] + [name] * wanted)
        except HilserverError as error:
            self._say(str(error))
        self._list()
        self._show_tabs()
        self._draw()

    def _changed(self) -> None:
        background_tasks.create(self._figures.follow(self.plot))

    def _no_cursors(self) -> None:
        for cursor in (0, 1):
            self.plot.place(cursor, None)

    def _say(self, text: str) -> None:
        self._note.set_text(text)

    async def _export(self, kind: str) -> None:
        """Write the samples of the span of each log to files, which the browser then fetches."""
        self._folder = self._folder or tempfile.TemporaryDirectory(prefix="hilserver-view-")
        folder = Path(self._folder.name)
        begin, end = self.plot.measured_span
        chosen: dict[OpenedLog, tuple[float, list[str]]] = {}
        for curve in self.overlay.curves():
            signals = chosen.setdefault(curve.opened, (curve.offset, []))[1]
            if curve.signal not in signals:  # it may be in several plots
                signals.append(curve.signal)
        self._say("" if chosen else "Choose a signal first: there is nothing to export.")
        for opened, (offset, signals) in chosen.items():
            try:
                files = await run.io_bound(export_span, opened.log, signals, begin - offset, end - offset, folder, kind)
            except (HilserverError, OSError) as error:
                self._say(str(error))
                continue
            for file in files or ():
                ui.download.file(file, file.name)

    def _picture(self, kind: str) -> None:
        name = self.overlay.logs[0].log.path.stem if self.overlay.logs else "plot"
        self.plot.plot.run_method("save", kind, name)

    async def _clean(self) -> None:
        """The page is gone, and with it the files that it has exported."""
        if self._folder is not None:
            await asyncio.to_thread(self._folder.cleanup)
