"""Live plots: channels over time in the user's units, with pause, zoom and choice of channels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from nicegui import ui
from nicegui.events import ValueChangeEventArguments
from numpy.typing import NDArray

from hilserver.panel.pieces import piece
from hilserver.panel.view import Page
from hilserver.units import BAR, L_MIN
from hilserver.web.display import label
from hilserver.web.style import heading

Floats = NDArray[np.float64]
COLOURS = (
    *("#0f4c81", "#d97706", "#15803d", "#b91c1c", "#7c3aed", "#0891b2"),
    *("#be185d", "#4d7c0f", "#475569", "#a16207", "#4338ca", "#0d9488"),
)
MIN_SPANS = {"": 0.02, "Pa": 5.0 * BAR, "m^3/s": 2.0 * L_MIN, "m": 2e-3, "m/s": 5e-3, "s": 20e-6}
"""Smallest range of an axis, in SI units, so that noise at standstill looks like noise."""
FLOWS = ("flow_virtual", "flow_measured")
DISPLACEMENTS = ("position", "measured")
FLOW, DISPLACEMENT = "Virtual and real flow", "Displacement to follow and measured"
MAX_POINTS = 3000
"""Largest number of samples of a channel in one message."""


class Plot:
    """One chart of a tab. It draws channels of at most two units: one axis on the left, one on the right.

    ``chosen`` is called with the channels that a user chooses; ``tools`` adds to what is beside the title.
    """

    def __init__(
        self,
        page: Page,
        tab: str,
        title: str,
        channels: Sequence[str],
        *,
        seconds: int = 30,
        chosen: Callable[[list[str]], None] = lambda _: None,
        tools: Callable[[], None] = lambda: None,
    ) -> None:
        self.page, self.tab, self.given, self.seconds, self._chosen = page, tab, list(channels), seconds, chosen
        self.channels: list[str] = []
        self._held: int | None = None
        self._id = 0
        with ui.column().classes("card w-full gap-1 live-plot"):
            with ui.row().classes("w-full items-center no-wrap gap-1"):
                heading(title).classes("grow min-w-0")
                choose = ui.button("Channels", icon="checklist", on_click=self._offer)
                choose.props("flat no-caps dense size=sm")
                with choose, ui.menu().props("max-height=60vh"):
                    self._choices = ui.column().classes("p-3 gap-0 channel-choice")
                save = ui.button(icon="image", on_click=self._save)
                save.props("flat dense round size=sm aria-label='Save as image'").tooltip("Save as image")
                tools()
            self._note = ui.label().classes("text-xs text-slate-500 not-drawn")
            self._legend = ui.html("", sanitize=False).classes("w-full")
            self._id = ui.echart({}).classes("w-full chart").id
        page.each_round(self._extend, tab, fast=True)
        page.each_round(self._show_values, tab)
        page.when_units_change.append(self.restart)
        self.restart()

    def restart(self) -> None:
        """Redraw after a change of channels, units or time window."""
        self._new, self._cursor = True, 0
        self.channels = self._of_two_units(self.given)
        left = [label(channel) for channel in self.given if channel not in self.channels]
        self._note.set_text(f"Not drawn (there is no third axis): {', '.join(left)}." if left else "")
        self._note.visible = bool(left)
        colours = COLOURS * len(self.channels)
        keys = [(name, label(name), colour) for name, colour in zip(self.channels, colours, strict=False)]
        self._legend.set_content(piece("legend", plot=self._id, keys=keys))
        self.page.show_again()

    def hold(self, count: int | None) -> None:
        """Show nothing after this number of samples; with None, continue."""
        self._held = count

    def end(self) -> None:
        """The plot is removed."""
        self.page.forget(self._extend, self._show_values, self.restart)
        self.page.forget_chart(str(self._id))

    def _of_two_units(self, channels: Sequence[str]) -> list[str]:
        units = {channel: self.page.units.of(self.page.unit(channel)).unit for channel in channels}
        axes = [*dict.fromkeys(units.values())][:2]
        return [channel for channel, unit in units.items() if unit in axes]

    def _save(self) -> None:
        ui.run_javascript(f"panel.save({self._id})")

    def _offer(self) -> None:
        """List the channels that are available now."""
        known = [*self.given, *self.page.connection.history.channels()]
        self._choices.clear()
        with self._choices:
            for channel in dict.fromkeys(known):
                if channel not in ("tick", "circuit.t"):
                    box = ui.checkbox(label(channel), value=channel in self.given).props("dense size=sm")
                    box.on_value_change(lambda event, channel=channel: self._choose(channel, event))

    def _choose(self, channel: str, event: ValueChangeEventArguments[bool]) -> None:
        wanted = [c for c in self.given if c != channel] + [channel] * event.value
        if wanted == self.given:
            return
        if event.value and channel not in self._of_two_units(wanted):
            ui.notify("A plot has two axes: choose channels of at most two units.", type="warning")
            self._offer()
            return
        self.given = wanted
        self.restart()
        self._chosen(wanted)

    def _extend(self) -> None:
        """Send the samples that the chart does not have yet; after a long gap only those that it still shows."""
        history, units = self.page.connection.history, self.page.units
        end = history.count if self._held is None else self._held
        if self._cursor >= end and not self._new:
            return
        times, values = history.between(self._cursor, end, self.channels)
        kept = times >= times[-1] - self.seconds if len(times) else np.zeros(0, bool)
        times, values = thinned(times[kept], [v[kept] for v in values], MAX_POINTS)
        shown = [units.of(self.page.unit(channel)) for channel in self.channels]
        columns = [_numbers(v / unit.factor) for v, unit in zip(values, shown, strict=True)]
        chart: dict[str, Any] = {"times": times.round(4).tolist(), "columns": columns}
        if self._new:
            chart |= {"options": self._options(), "seconds": self.seconds, "group": self.tab}
        self._new, self._cursor = False, end
        self.page.show("charts", {str(self._id): chart})

    def _show_values(self) -> None:
        """Show the latest values, or those at the pause, next to the names; no more often than they can be read."""
        history, units = self.page.connection.history, self.page.units
        end = history.count if self._held is None else self._held
        _, values = history.between(end - 1, end, self.channels)
        latest = {
            f"now.{c}": units.text(_last(v), self.page.unit(c)) for c, v in zip(self.channels, values, strict=True)
        }
        self.page.show("texts", latest)

    def _options(self) -> dict[str, Any]:
        axes: dict[str, float] = {}
        for channel in self.channels:
            si = self.page.unit(channel)
            shown = self.page.units.of(si)
            axes.setdefault(shown.unit, MIN_SPANS.get(si, 0.0) / shown.factor)
        units = [self.page.units.of(self.page.unit(channel)).unit for channel in self.channels]
        series = [
            _series(
                channel, [*axes].index(unit), band=channel.replace("flow_virtual", "flow_measured") in self.channels
            )
            for channel, unit in zip(self.channels, units, strict=True)
        ]
        return _options(series, axes or {"": 0.0})


def thinned(times: Floats, values: Sequence[Floats], most: int) -> tuple[Floats, list[Floats]]:
    """At most ``most`` + 2 samples: each group is reduced to its minimum and maximum, so that no peak is lost.

    >>> times, (values,) = thinned(np.arange(8.0), [np.array([0.0, 9, 0, 1, 1, 1, -5, 1])], 4)
    >>> times.tolist(), values.tolist()
    ([0.0, 2.0, 4.0, 6.0], [0.0, 9.0, -5.0, 1.0])
    """
    group = 2 * math.ceil(len(times) / most)
    whole = len(times) // group * group if group > 2 else 0
    if not whole:
        return times, list(values)

    def extremes(column: Floats) -> Floats:
        groups = column[:whole].reshape(-1, group)
        pairs = np.stack([np.fmin.reduce(groups, axis=1), np.fmax.reduce(groups, axis=1)], axis=1)
        return np.concatenate([pairs.ravel(), column[whole:]])

    return np.concatenate([times[: whole : group // 2], times[whole:]]), [extremes(column) for column in values]


def _last(values: Floats) -> float | None:
    return float(values[-1]) if len(values) else None


def _numbers(values: Floats) -> list[float | None]:
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in values.tolist()]


def _series(channel: str, axis: int, band: bool) -> dict[str, Any]:
    """How a channel is drawn; a virtual flow as a broad ``band``, within which the real flow should stay."""
    band = band and channel.endswith(".flow_virtual")
    return {
        "name": label(channel),
        "type": "line",
        "showSymbol": False,
        "animation": False,
        "lineStyle": {"width": 6, "opacity": 0.35} if band else {"width": 1.6},
        "yAxisIndex": axis,
        "sampling": "minmax",
        "step": "end" if channel.endswith((".saturation", "missed")) else False,
    }


def _options(series: list[dict[str, Any]], axes: Mapping[str, float]) -> dict[str, Any]:
    return {
        "animation": False,
        "color": COLOURS,
        "textStyle": {"fontFamily": "Roboto, sans-serif"},
        "grid": {"left": 52, "right": 52 if len(axes) > 1 else 14, "top": 24, "bottom": 24},
        "legend": {"show": False, "top": 0, "itemWidth": 14, "itemHeight": 4, "icon": "rect", "type": "scroll"},
        "tooltip": {"trigger": "axis", "renderMode": "richText", "confine": True, "order": "seriesAsc"},
        "dataZoom": [{"type": "inside", "filterMode": "filter", "minValueSpan": 100}],
        "xAxis": {
            "type": "time",
            "axisLabel": {"hideOverlap": True},  # panel.js formats the times
            "splitNumber": 4,
            "splitLine": {"show": True, "lineStyle": {"color": "#f1f5f9"}},
        },
        "yAxis": [
            {
                "type": "value",
                "name": unit,
                "least": least,
                "scale": True,
                "nameGap": 8,
                "nameTextStyle": {"align": "right" if side == "left" else "left"},
                "position": side,
                "splitNumber": 4,
                "splitLine": {"show": side == "left", "lineStyle": {"color": "#e2e8f0"}},
            }
            for (unit, least), side in zip(axes.items(), ("left", "right"), strict=False)
        ],
        "series": series,
    }


def flow_channels(page: Page) -> list[str]:
    """Virtual and real flow of each valve; only the virtual one if the real flow is not measured."""
    description, now = page.connection.description, page.connection.history.latest()
    channels = [f"valve.{v}.{w}" for v in (description.valves if description else ()) for w in FLOWS]
    return [channel for channel in channels if now.get(channel) is not None]


def displacement_channels(page: Page) -> list[str]:
    """For each actuator, the displacement that it follows and the measured one."""
    description, now = page.connection.description, page.connection.history.latest()
    names = description.actuators if description else ()
    channels = [f"actuator.{name}.{word}" for name in names for word in DISPLACEMENTS]
    return [channel for channel in channels if now.get(channel) is not None]


def default_plots(page: Page) -> dict[str, list[str]]:
    """Titles and channels of the initial plots: pressures, flows, commands, positions, errors, forces, inputs."""
    description = page.connection.description
    if description is None:
        return {}
    measured = {
        name: info.unit for name, info in description.channels.items() if info.kind in ("measured", "configured")
    }
    valves, actuators = list(description.valves), list(description.actuators)
    virtual = [c for c in page.connection.history.channels() if c.startswith("circuit.") and c.endswith(".p")]
    supply = [c for c in virtual if not c.startswith("circuit.rig.") and c != "circuit.tank.p"][:2]
    plots = {
        "Pressures": [*(c for c, unit in measured.items() if unit == "Pa"), *supply][:6],
        FLOW: flow_channels(page),
        "Command and saturation": [f"valve.{v}.{w}" for v in valves for w in ("command", "saturation")],
        DISPLACEMENT: displacement_channels(page),
        "Error of the displacement": [f"actuator.{a}.error" for a in actuators],
        "Forces": [f"actuator.{a}.{w}" for a in actuators for w in ("force_measured", "force")],
        "Position": [c for c, unit in measured.items() if unit == "m"],
        "Operator inputs": [f"input.{name}" for name in description.inputs],
    }
    return {title: shown for title, shown in plots.items() if shown}
