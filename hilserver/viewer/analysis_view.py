"""Spectrum, frequency response, one signal over another, of the measured span; the difference of two signals."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from nicegui import background_tasks, run, ui

from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.simulation.characteristics import components_with_curves
from hilserver.viewer.layout import name_of
from hilserver.viewer.overlay import DrawnSignal, Overlay
from hilserver.viewer.plot_view import PlotView
from hilserver.viewer.spectra import SEGMENTS, response, spectrum
from hilserver.viewer.xy_chart import values_at, xy_chart

KINDS = {"spectrum": "Spectrum (FFT)", "bode": "Bode", "xy": "X/Y", "difference": "Difference"}
NO_CURVE = "none"


class AnalysesView:
    """The analyses of the tab that is shown, a card for each."""

    def __init__(self, overlay: Overlay, plot: PlotView, redraw: Callable[[], None]) -> None:
        self.overlay, self.plot, self._redraw = overlay, plot, redraw
        self._column = ui.column().classes("w-full gap-3")
        self._cards: list[AnalysisView] = []
        ui.button("Add an analysis", icon="add", on_click=lambda: self._do(overlay.tabs.add_analysis)).props(
            "flat no-caps dense"
        )

    def refresh(self) -> None:
        """Offer the signals that are shown now."""
        for card in self._cards:
            card.refresh()

    def rebuild(self) -> None:
        """Show the analyses of the tab, none of them computed."""
        tabs = self.overlay.tabs
        self._column.clear()
        with self._column:
            self._cards = [
                AnalysisView(self.overlay, self.plot, self._redraw, place)
                for place, _ in enumerate(tabs.shown.analyses)
            ]
            for place, card in enumerate(self._cards):
                with card.head:
                    ui.space()
                    for what, icon, action in (
                        ("Move analysis {} up", "arrow_upward", lambda place=place: tabs.move_analysis(place, -1)),
                        ("Move analysis {} down", "arrow_downward", lambda place=place: tabs.move_analysis(place, 1)),
                        ("Remove analysis {}", "close", lambda place=place: tabs.remove_analysis(place)),
                    ):
                        button = ui.button(icon=icon, on_click=lambda action=action: self._do(action))
                        button.props(f'flat dense round size=sm aria-label="{what.format(place + 1)}"')

    def _do(self, action: Callable[[], None]) -> None:
        try:
            action()
        except HilserverError as error:
            ui.notify(str(error), type="negative")
            return
        self.rebuild()
        background_tasks.create(self.compute())

    async def compute(self) -> None:
        """Compute all of them whose signals are known."""
        for card in list(self._cards):
            await card.compute(asked=False)


class AnalysisView:
    """A card. It computes when asked: each of its plots reads all samples of the span.

    It does nothing any more as soon as another tab is shown, or another layout is loaded.
    """

    def __init__(self, overlay: Overlay, plot: PlotView, redraw: Callable[[], None], place: int) -> None:
        self.overlay, self.plot, self._redraw, self._place = overlay, plot, redraw, place
        self._tabs = overlay.tabs
        self._refreshing = False
        given = overlay.tabs.shown.analyses[place]
        with ui.column().classes("card w-full gap-2 analysis"):
            with ui.row().classes("w-full items-center gap-3") as self.head:
                self._name = ui.input(value=given.name, placeholder="Analysis of the span")
                self._name.props("borderless dense maxlength=60").classes("heading w-56 analysis-name")
                self._kind = ui.toggle(KINDS, value=given.kind).props("no-caps unelevated size=sm")
                self._one = ui.select([], label="signal").props("outlined dense options-dense").classes("w-64 one")
                self._other = ui.select([], label="signal 2").props("outlined dense options-dense")
                self._other.classes("w-64 other")
                self._curve = ui.select({"": NO_CURVE}, value="", label="datasheet curve of")
                self._curve.props("outlined dense options-dense").classes("w-48 curve-of")
                self._segments = ui.select(list(SEGMENTS), value=given.averages, label="averages of")
                self._segments.props("outlined dense").classes("w-28")
                ui.button("Compute", icon="insights", on_click=lambda: self.compute()).props(
                    "outline no-caps dense"
                ).classes("px-3")
                self._save = ui.button(icon="download")
                self._save.props(f'flat dense round aria-label="Save analysis {place + 1}"')
                with self._save, ui.menu():
                    for form in ("png", "svg"):
                        ui.menu_item(f"{form.upper()}: the picture", lambda form=form: self._save_picture(form))
                    ui.menu_item("CSV: its points", self._save_table)
            self._note = ui.label().classes("text-sm text-slate-600 analysis-note")
            self._chart = ui.echart({}).classes("w-full").style("height: 420px")
        self._chart.visible = False
        self._save.bind_visibility_from(self._chart)
        self.refresh()
        self._kind.on_value_change(self._kind_changed)
        for element in (self._name, self._one, self._other, self._segments, self._curve):
            element.on_value_change(self._keep)

    @property
    def _is_shown(self) -> bool:
        """Whether the page shows it, and what it shows is in the layout."""
        return not self._note.is_deleted and self.overlay.tabs is self._tabs

    def refresh(self) -> None:
        """Offer the signals that are shown now; chosen are those of the layout, or the first ones."""
        if not self._is_shown:
            return
        names = [curve.name for curve in self.overlay.curves()]
        wanted = self.overlay.tabs.shown.analyses[self._place].signals
        self._refreshing = True
        for select, place in ((self._one, 0), (self._other, 1)):
            if place < len(wanted):
                known = self.overlay.find(wanted[place])
                value = None if known is None else known.name
            elif select.value in names:
                value = select.value
            else:
                value = names[min(place, len(names) - 1)] if names else None
            select.set_options(names, value=value)
        curve = self.overlay.tabs.shown.analyses[self._place].curve
        offered = sorted({*self._components(), curve} - {""})
        self._curve.set_options({"": NO_CURVE, **dict(zip(offered, offered, strict=True))}, value=curve)
        self._refreshing = False
        kind = self._kind.value
        self._curve.visible = kind == "xy"
        self._other.visible = kind != "spectrum"
        self._segments.visible = kind in ("spectrum", "bode")
        one, other = {"xy": ("x", "y"), "bode": ("from", "to")}.get(str(kind), ("signal", "minus"))
        self._one.props(f'label="{one}"')
        self._other.props(f'label="{other}"')

    def _components(self) -> list[str]:
        """The components of the circuits of the logs that have a characteristic, at the beginning of the span."""
        begin = self.plot.measured_span[0]
        logs = {id(curve.opened): curve for curve in self.overlay.curves()}
        circuits = [curve.opened.log.circuit_at(begin - curve.offset) for curve in logs.values()]
        return sorted({name for circuit in circuits for name in components_with_curves(circuit)})

    def _kind_changed(self) -> None:
        self._keep()
        self.refresh()

    def _keep(self) -> None:
        """Take what is chosen into the layout (a difference is part of the plot)."""
        kind = self._kind.value
        if kind == "difference" or self._refreshing or not self._is_shown:
            return
        before = (*self.overlay.tabs.shown.analyses[self._place].signals, None, None)
        chosen = [self._one.value or before[0], self._other.value or before[1]]  # the latter: what these logs lack
        self.overlay.tabs.change_analysis(
            self._place,
            name=name_of(str(self._name.value or "")),
            kind=kind,
            signals=tuple(str(name) for name in chosen[: 1 if kind == "spectrum" else 2] if name),
            averages=int(self._segments.value),
            curve=str(self._curve.value or "") if kind == "xy" else "",
        )

    @property
    def _file(self) -> str:
        return str(self._name.value or self._kind.value)

    def _save_picture(self, form: str) -> None:
        self.plot.plot.run_method("save_other", self._chart.id, form, self._file)

    def _save_table(self) -> None:
        ui.download.content(chart_table(self._chart.options), f"{self._file}.csv")

    def _subtract(self, one: DrawnSignal, other: DrawnSignal) -> None:
        """Show the difference of two signals in the plot above, and in its table."""
        try:
            self.overlay.subtract(one.name, other.name)
        except HilserverError as error:
            self._note.set_text(str(error))
            return
        shown = self.overlay.shows_difference(one.name, other.name)
        self._note.set_text(f"{one.name} − {other.name} is {'in the plot' if shown else 'no longer in the plot'}.")
        self._chart.visible = False
        self._redraw()

    async def compute(self, *, asked: bool = True) -> None:
        """Compute; unless it is ``asked`` for by the user, only an analysis whose signals the layout names."""
        if not self._is_shown:
            return
        wanted = self.overlay.tabs.shown.analyses[self._place].signals
        if not asked and not wanted:
            return
        curves = {curve.name: curve for curve in self.overlay.curves()}
        one, other = curves.get(str(self._one.value)), curves.get(str(self._other.value))
        other = one if self._kind.value == "spectrum" else other
        if one is None or other is None:
            missing = [name for name in wanted if self.overlay.find(name) is None]
            said = f"Not in the plots of this tab: {', '.join(missing)}." if missing else "Choose a signal first."
            self._note.set_text(said)
            return
        if self._kind.value == "difference":
            self._subtract(one, other)
            return
        span, segments, kind = self.plot.measured_span, int(self._segments.value), str(self._kind.value)
        curve = str(self._curve.value or "") if kind == "xy" else ""
        computed: tuple[str, dict[str, Any] | None] | None
        try:
            computed = await run.io_bound(_computed, kind, one, other, span, segments, curve)
        except HilserverError as error:
            computed = str(error), None
        if computed is None or not self._is_shown:  # the program ends, or the page shows something else
            return
        note, options = computed
        self._chart.visible = options is not None
        if options is None:
            self._note.set_text(note)
            return
        self._note.set_text(f"{span[0]:.6g} s … {span[1]:.6g} s. {note}")
        self._chart.options.clear()
        self._chart.options.update(options)
        self._chart.update()


def chart_table(options: Mapping[str, Any]) -> str:
    """The points of an analysis as CSV: a column across, and one for each curve over the same points.

    >>> print(chart_table(_chart([("gain", np.array([2.0, 0.5]), "", "log")], np.array([1.0, 10.0]))), end="")
    "frequency, Hz",gain
    1.0,2.0
    10.0,0.5
    """
    across = [point[0] for point in options["series"][-1]["data"]]  # in front of it there may be a datasheet curve
    curves = [curve for curve in options["series"] if [point[0] for point in curve["data"]] == across]
    is_xy = not isinstance(options["xAxis"], list)
    titles = [options[axis]["name"] for axis in ("xAxis", "yAxis")] if is_xy else []
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(titles or ["frequency, Hz", *(curve["name"] for curve in curves)])
    table.writerows(zip(across, *([point[1] for point in curve["data"]] for curve in curves), strict=True))
    return out.getvalue()


def _computed(
    kind: str, one: DrawnSignal, other: DrawnSignal, span: tuple[float, float], segments: int, curve: str
) -> tuple[str, dict[str, Any]]:
    """What was done, and the options of the chart."""
    if kind == "spectrum":
        return _spectrum(one, span, segments)
    return _bode(one, other, span, segments) if kind == "bode" else xy_chart(one, other, span, curve)


def _spectrum(curve: DrawnSignal, span: tuple[float, float], segments: int) -> tuple[str, dict[str, Any]]:
    found = spectrum(*curve.samples(*span), segments)
    unit = f"amplitude, {curve.shown.unit}" if curve.shown.unit else "amplitude"
    return found.note, _chart([(unit, found.amplitude, curve.colour, "value")], found.frequency)


def _bode(one: DrawnSignal, other: DrawnSignal, span: tuple[float, float], segments: int) -> tuple[str, dict[str, Any]]:
    times, cause = one.samples(*span)
    effect = values_at(times, *other.samples(*span))
    found = response(times, cause, effect, segments)
    units = f", {other.shown.unit}/{one.shown.unit}" if one.shown.unit != other.shown.unit else ""
    panes = [
        (f"gain{units}", found.gain, one.colour, "log"),
        ("phase, °", found.phase, one.colour, "value"),
        ("coherence", found.coherence, "#475569", "value"),
    ]
    return found.note, _chart(panes, found.frequency, frequencies="log")


def _chart(panes: list[tuple[str, Floats, str, str]], frequency: Floats, frequencies: str = "value") -> dict[str, Any]:
    """Panes over frequency, one above the other: title, values, colour, scale."""
    height, last = 86 // len(panes), len(panes) - 1
    return {
        "animation": False,
        "tooltip": {"trigger": "axis", "renderMode": "richText", "confine": True},
        "axisPointer": {"link": [{"xAxisIndex": "all"}]},
        "dataZoom": [{"type": "inside", "xAxisIndex": "all", "filterMode": "none"}],
        "grid": [
            {"left": 80, "right": 20, "top": f"{7 + k * height}%", "height": f"{height - 8}%"}
            for k in range(len(panes))
        ],
        "xAxis": [
            {
                "type": frequencies,
                "gridIndex": k,
                "min": float(frequency[0]),
                "max": float(frequency[-1]),
                "name": "Hz" if k == last else "",
                "nameLocation": "middle",
                "nameGap": 24,
                "axisLabel": {"show": k == last, "showMinLabel": False, "showMaxLabel": False},
            }
            for k in range(len(panes))
        ],
        "yAxis": [
            {"type": scale, "gridIndex": k, "scale": True, "name": title, "nameTextStyle": {"align": "left"}}
            for k, (title, _, _, scale) in enumerate(panes)
        ],
        "series": [
            {
                "name": title,
                "type": "line",
                "showSymbol": False,
                "xAxisIndex": k,
                "yAxisIndex": k,
                "color": colour,
                "lineStyle": {"width": 1.3},
                "data": [
                    [float(f), float(value) if np.isfinite(value) else None]
                    for f, value in zip(frequency, values, strict=True)
                ],
            }
            for k, (title, values, colour, _) in enumerate(panes)
        ],
    }
