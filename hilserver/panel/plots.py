"""Live plots: channels over time in the user's units, with pause, zoom and choice of channels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from nicegui import ui
from nicegui.events import ValueChangeEventArguments

from hilserver.numerics.arrays import Floats
from hilserver.panel.display import label
from hilserver.panel.view import Page, heading

WINDOWS = {10: "10 s", 30: "30 s", 60: "1 min", 300: "5 min"}
COLOURS = ["#0f4c81", "#d97706", "#15803d", "#b91c1c", "#7c3aed", "#0891b2", "#be185d", "#4d7c0f", "#475569", "#a16207"]
MOST_POINTS = 3000
"""Samples of a channel that are sent at most when a plot begins anew."""


class Plot:
    """One chart. Its channels have at most two units: one axis at the left, one at the right."""

    def __init__(
        self, page: Page, title: str, channels: Sequence[str], *, seconds: int = 30, height: int = 230
    ) -> None:
        self.page, self.channels, self.seconds, self.paused = page, list(channels), seconds, False
        self._cursor = 0
        with ui.column().classes("card w-full gap-1") as self.card, ui.row().classes("w-full items-center no-wrap"):
            heading(title).classes("whitespace-nowrap")
            ui.space()
            choose = ui.button("Channels", icon="checklist", on_click=self._offer).props("flat no-caps dense size=sm")
            with choose, ui.menu().props("max-height=60vh"):
                self._choices = ui.column().classes("p-3 gap-0 channel-choice")
        with self.card:
            self.chart = ui.echart({"series": []}).classes("w-full").style(f"height: {height}px")
        page.fast.append(self._extend)
        page.when_units_change.append(self.begin)
        self.begin()

    def begin(self) -> None:
        """Draw anew: other channels, units or window."""
        shown = {c: self.page.units.of(self.page.unit(c)) for c in self.channels}
        axes = list(dict.fromkeys(unit.unit for unit in shown.values()))[:2] or [""]
        series = [
            {
                "name": label(channel),
                "type": "line",
                "showSymbol": False,
                "animation": False,
                "lineStyle": {"width": 1.6},
                "yAxisIndex": axes.index(shown[channel].unit),
                "step": "end" if channel.endswith((".saturation", "missed")) else False,
            }
            for channel in self.channels
        ]
        self.chart.options.clear()
        self.chart.options.update(_options(series, axes))
        self.chart.update()
        ui.run_javascript(f"panel.reset({self.chart.id}, {self.seconds}, {len(self.channels)})")
        history = self.page.connection.history
        times, _ = history.since(history.count - 1, [])
        self._cursor = history.number_at(float(times[-1]) - self.seconds) if len(times) else 0

    def show(self, channels: Sequence[str]) -> None:
        """Show these channels from now on."""
        self.channels = list(channels)
        self.begin()

    def _offer(self) -> None:
        """The channels to choose from, as they are now."""
        known = [*self.channels, *self.page.connection.history.channels()]
        self._choices.clear()
        with self._choices:
            for channel in dict.fromkeys(known):
                if channel not in ("tick", "circuit.t"):
                    box = ui.checkbox(label(channel), value=channel in self.channels).props("dense size=sm")
                    box.on_value_change(lambda event, channel=channel: self._choose(channel, event))

    def _choose(self, channel: str, event: ValueChangeEventArguments[bool]) -> None:
        wanted = [c for c in self.channels if c != channel] + [channel] * event.value
        if wanted == self.channels:
            return
        if len({self.page.units.of(self.page.unit(c)).unit for c in wanted}) > 2:
            ui.notify("A plot has two axes: choose channels of at most two units.", type="warning")
            self._offer()
            return
        self.show(wanted)

    def _extend(self) -> None:
        history = self.page.connection.history
        if self.paused or self._cursor >= history.count:
            return
        times, values = history.since(self._cursor, self.channels)
        self._cursor = history.count
        every = max(math.ceil(len(times) / MOST_POINTS), 1)
        factors = [self.page.units.of(self.page.unit(channel)).factor for channel in self.channels]
        columns = [_numbers(v[::every] / factor) for v, factor in zip(values, factors, strict=True)]
        self.page.show("charts", {str(self.chart.id): [times[::every].round(4).tolist(), columns]})


def _numbers(values: Floats) -> list[float | None]:
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in values.tolist()]


def _options(series: list[dict[str, Any]], axes: list[str]) -> dict[str, Any]:
    return {
        "animation": False,
        "color": COLOURS,
        "textStyle": {"fontFamily": "inherit"},
        "grid": {"left": 58, "right": 58 if len(axes) > 1 else 18, "top": 52, "bottom": 26},
        "legend": {
            "top": 0,
            "left": 0,
            "itemWidth": 14,
            "itemHeight": 4,
            "icon": "rect",
            "type": "scroll",
            "width": "80%",
        },
        "tooltip": {"trigger": "axis", "confine": True, "transitionDuration": 0, "order": "seriesAsc"},
        "toolbox": {
            "top": -4,
            "right": 8,
            "itemSize": 13,
            "feature": {"dataZoom": {"yAxisIndex": False}, "restore": {}, "saveAsImage": {"title": "Save"}},
        },
        "dataZoom": [{"type": "inside", "filterMode": "none"}],
        "xAxis": {
            "type": "time",
            "axisLabel": {"hideOverlap": True, "margin": 10},
            "splitNumber": 4,
            "splitLine": {"show": True, "lineStyle": {"color": "#f1f5f9"}},
        },
        "yAxis": [
            {
                "type": "value",
                "name": unit,
                "scale": True,
                "nameGap": 8,
                "nameTextStyle": {"align": "right" if side == "left" else "left"},
                "position": side,
                "splitNumber": 4,
                "splitLine": {"show": side == "left", "lineStyle": {"color": "#e2e8f0"}},
            }
            for unit, side in zip(axes, ("left", "right"), strict=False)
        ],
        "series": series,
    }


def usual_plots(page: Page) -> dict[str, list[str]]:
    """Titles and channels of the plots to begin with: pressures, flows, commands, positions, inputs."""
    description = page.connection.description
    if description is None:
        return {}
    measured = {
        name: info.unit for name, info in description.channels.items() if info.kind in ("measured", "configured")
    }
    valves = list(description.valves)
    virtual = [c for c in page.connection.history.channels() if c.startswith("circuit.") and c.endswith(".p")]
    supply = [c for c in virtual if not c.startswith("circuit.rig.") and c != "circuit.tank.p"][:2]
    plots = {
        "Pressures": [*(c for c, unit in measured.items() if unit == "Pa"), *supply][:6],
        "Virtual and real flow": [f"valve.{v}.{w}" for v in valves for w in ("flow_virtual", "flow_measured")],
        "Command and saturation": [f"valve.{v}.{w}" for v in valves for w in ("command", "saturation")],
        "Position": [c for c, unit in measured.items() if unit == "m"],
        "Operator inputs": [f"input.{name}" for name in description.inputs],
    }
    return {title: shown for title, shown in plots.items() if shown}


class PlotsView:
    """The tab of plots: one window of time for all, pause, and plots of the user's own."""

    def __init__(self, page: Page) -> None:
        self.page, self._begun = page, False
        self.plots: list[Plot] = []
        with ui.row().classes("w-full items-center gap-3"):
            self._window = ui.toggle(WINDOWS, value=30, on_change=self._set_window).props("no-caps unelevated size=sm")
            self._pause = ui.button("Pause", icon="pause", on_click=self._toggle).props("outline no-caps dense")
            self._pause.classes("px-3 pause")
            ui.button("Add a plot", icon="add", on_click=self._add).props("flat no-caps dense")
            ui.label("Wheel: zoom in time; drag: move.").classes("text-xs text-slate-500")
        self._grid = ui.element("div").classes("grid grid-cols-1 lg:grid-cols-2 gap-3 w-full")
        page.slow.append(self._start)

    def _start(self) -> None:
        if not self._begun and self.page.connection.history.count and (plots := usual_plots(self.page)):
            self._begun = True
            with self._grid:
                self.plots += [Plot(self.page, title, channels) for title, channels in plots.items()]

    def _add(self) -> None:
        with self._grid:
            plot = Plot(self.page, "Own plot", [], seconds=self._window.value)
        plot.paused = any(other.paused for other in self.plots)
        self.plots.append(plot)

    def _set_window(self) -> None:
        for plot in self.plots:
            plot.seconds = self._window.value
            plot.begin()

    def _toggle(self) -> None:
        paused = not any(plot.paused for plot in self.plots)
        for plot in self.plots:
            plot.paused = paused
            if not paused:
                plot.begin()
        self._pause.set_text("Go on" if paused else "Pause")
        self._pause.props(f"icon={'play_arrow' if paused else 'pause'}")
