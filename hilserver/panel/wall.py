"""The view for a monitor on the wall of the lab: state, values and plots that can be read from afar."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from nicegui import ui

from hilserver.panel.connection import Connection
from hilserver.panel.live_layout import channels_of
from hilserver.panel.page import Notes, assets, link_to_rig
from hilserver.panel.plots import Plot, default_plots
from hilserver.panel.view import Page
from hilserver.viewer.layout import ViewTab
from hilserver.web.display import Units, label
from hilserver.web.style import AppearanceChoice

SECONDS = (5, 600)
"""Shortest and longest time that its plots show."""
DEFAULT_SECONDS = 60
MOST_CHANNELS, MOST_PLOTS = 50, 4


def build_wall(
    connection: Connection,
    units: Units,
    channels: Sequence[str],
    seconds: int,
    layout: ViewTab | str | None = None,
) -> None:
    """Build the page. ``channels``: those shown as values and in one plot for each unit; without any, the usual ones.

    ``layout``: the tab of a layout whose plots are shown instead, or why there is none.
    """
    assets()
    link_to_rig()
    page = Page(connection, units, "Wall")
    with ui.column().classes("wall w-full gap-4 p-4"):
        with ui.row().classes("w-full items-center no-wrap gap-6"):
            with ui.column().classes("gap-0"):
                ui.label("hilserver").classes("heading")
                ui.label(connection.rig).classes("rig")
            ModeSign(page)
            ui.html('<span class="alarm-count" data-value="alarms"></span>', sanitize=False)
            with ui.button(icon="contrast").props('flat round dense aria-label="Appearance"'), ui.menu():
                AppearanceChoice()
        Notes(page)
        if isinstance(layout, str):
            ui.label(layout).classes("note warn w-full no-layout")
        Tiles(page, channels)
        tab = layout if isinstance(layout, ViewTab) else None
        WallPlots(page, channels, min(max(seconds, SECONDS[0]), SECONDS[1]), tab)
    page.each_round(lambda: page.show("texts", {"alarms": str(len(connection.alarms.open()) or "")}))
    page.start()


class ModeSign:
    """The mode, which is OFFLINE without a server."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self._mode = ui.label("–").classes("mode")
        page.each_round(self._follow)

    def _follow(self) -> None:
        mode = self.page.connection.mode
        self._mode.set_text(mode.replace("_", " "))
        self._mode.classes(replace=f"mode {mode}")


class Tiles:
    """The latest value of each channel in large figures."""

    def __init__(self, page: Page, channels: Sequence[str]) -> None:
        self.page, self._wanted, self._shown = page, channels, list[str]()
        self._box = ui.html("", sanitize=False).classes("w-full tiles")
        page.each_round(self._follow, "Wall")

    def _follow(self) -> None:
        description = self.page.connection.description
        if description is None:
            return
        kinds = ("measured", "configured")
        channels = [*self._wanted] or [name for name, info in description.channels.items() if info.kind in kinds]
        if channels != self._shown:
            self._shown = channels
            tile = '<div class="tile card"><span>{}</span><b data-value="tile.{}"></b></div>'
            self._box.set_content("".join(tile.format(escape(label(c)), escape(c)) for c in channels))
            self.page.show_again()
        texts = {f"tile.{c}": self.page.units.text(self.page.value(c), self.page.unit(c)) for c in channels}
        self.page.show("texts", texts)


class WallPlots:
    """The plots, as soon as there are values."""

    def __init__(self, page: Page, channels: Sequence[str], seconds: int, tab: ViewTab | None) -> None:
        self.page, self._channels, self._seconds, self._tab = page, list(channels), seconds, tab
        self._box = ui.element("div").classes("grid grid-cols-1 lg:grid-cols-2 gap-4 w-full")
        self.plots: list[Plot] = []
        page.each_round(self._start, "Wall")

    def _start(self) -> None:
        if self.plots or not self.page.connection.history.count or self.page.connection.description is None:
            return
        description = self.page.connection.description
        if self._tab is not None:
            plots = [(plot.name, channels_of(plot, description)) for plot in self._tab.plots]
        else:
            usual = by_unit(self.page, self._channels) if self._channels else default_plots(self.page)
            plots = [*usual.items()][:MOST_PLOTS]
        with self._box:
            for title, channels in plots:
                self.plots.append(Plot(self.page, "Wall", title, channels, seconds=self._seconds))


def by_unit(page: Page, channels: Sequence[str]) -> dict[str, list[str]]:
    """Titles and channels of plots, one for each unit."""
    found: dict[str, list[str]] = {}
    for channel in channels:
        found.setdefault(page.units.of(page.unit(channel)).unit or "–", []).append(channel)
    return found
