"""The tab of plots: tabs of live plots in a layout that can be saved, one time window for all, pause, and triggers."""

from __future__ import annotations

from functools import partial

from nicegui import background_tasks, ui

from hilserver.errors import HilserverError
from hilserver.panel.live_layout import LiveLayout, channels_of, signals
from hilserver.panel.live_trigger import LiveTriggerView
from hilserver.panel.plots import Plot, default_plots
from hilserver.panel.recordings import Recorded
from hilserver.panel.view import Page, refuse
from hilserver.viewer.layout import ViewLayout, ViewPlot, layout_file
from hilserver.viewer.layout_view import LayoutMenu, TabsView

WINDOWS = {10: "10 s", 30: "30 s", 60: "1 min", 300: "5 min"}


class PlotsView:
    """The tab. It begins with the layout that has the rig's name, where there is one, else with the usual plots."""

    def __init__(self, page: Page, recorded: Recorded) -> None:
        self.page, self._recorded, self._begun = page, recorded, False
        self._held: int | None = None
        self.shown = LiveLayout()
        self.plots: list[Plot] = []
        with ui.row().classes("w-full items-center gap-3"):
            self._window = ui.toggle(WINDOWS, value=30, on_change=self._set_window).props("no-caps unelevated size=sm")
            self._pause = ui.button("Pause", icon="pause", on_click=self._toggle).props("outline no-caps dense")
            self._pause.classes("px-3 pause")
            unzoom = ui.button("Whole window", icon="zoom_out_map", on_click=self._unzoom)
            unzoom.props("flat no-caps dense")
            ui.label("Wheel or two fingers: zoom in time; drag: pan.").classes("text-xs text-slate-500")
        with ui.row().classes("w-full items-center gap-2"):
            self._tabs = TabsView(self.shown, lambda _: self._rebuild())
            ui.space()
            self._add = ui.row()
            self._layouts = LayoutMenu(self.shown, recorded.files, self._load, refuse, page.connection.rig)
        self._grid = ui.element("div").classes("grid grid-cols-1 lg:grid-cols-2 gap-3 w-full")
        LiveTriggerView(page, recorded)
        page.each_round(self._start, "Plots")

    def _start(self) -> None:
        if self._begun or not self.page.connection.history.count or self.page.connection.description is None:
            return
        self._begun = True
        self.shown.begin(default_plots(self.page), self.page.connection.description)
        self._rebuild()
        if (folder := self._recorded.files.folder()) is not None:
            try:
                self._layouts.file = layout_file(folder, self.page.connection.rig)
            except HilserverError:  # a name that no file can have
                return
            background_tasks.create(self._layouts.open_given())

    async def _load(self, layout: ViewLayout) -> None:
        self.shown.load(layout)
        self._rebuild()

    def _rebuild(self) -> None:
        """Show tabs and plots as the layout has them now."""
        self._tabs.refresh()
        self._add.clear()
        with self._add:
            self._tabs.add_plot_button()
        for plot in self.plots:
            plot.end()
        self._grid.clear()
        with self._grid:
            self.plots = [self._plot(place, plot) for place, plot in enumerate(self.shown.tabs.shown.plots)]

    def _plot(self, place: int, plot: ViewPlot) -> Plot:
        made = Plot(
            self.page,
            "Plots",
            plot.name or f"Plot {place + 1}",
            channels_of(plot, self.page.connection.description),
            seconds=self._window.value,
            chosen=partial(self._choose, place),
            tools=partial(self._tabs.plot_menu, place),
        )
        made.hold(self._held)
        return made

    def _choose(self, place: int, channels: list[str]) -> None:
        self.shown.tabs.select(place)
        try:
            self.shown.tabs.choose(signals(channels, self.page.connection.description))
        except HilserverError as error:
            refuse(str(error))
            self._rebuild()  # what is shown is what is in the layout

    def _set_window(self) -> None:
        for plot in self.plots:
            plot.seconds = self._window.value
            plot.restart()

    def _unzoom(self) -> None:
        ui.run_javascript("panel.unzoom('Plots')")

    def _toggle(self) -> None:
        self._held = self.page.connection.history.count if self._held is None else None
        for plot in self.plots:
            plot.hold(self._held)
        paused = self._held is not None
        self._pause.set_text("Continue" if paused else "Pause")
        self._pause.props(f"icon={'play_arrow' if paused else 'pause'}")
