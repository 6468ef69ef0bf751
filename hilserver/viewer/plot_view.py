"""The plot of a page: sends the points of the visible section, and keeps the cursors."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import numpy as np
from nicegui import run, ui
from nicegui.events import GenericEventArguments

from hilserver.errors import HilserverError
from hilserver.viewer.overlay import MOST_MARKS, DrawnSignal, Overlay

_ = ui.echart
"""Makes the module of the charts known to the browser, from which time_plot.js imports."""


class TimePlot(ui.element, component="time_plot.js"):
    """Curves over time in the browser (see time_plot.js)."""


class PlotView:
    """The plot with its section and two cursors, in common time, s.

    ``changed`` is called when section or cursors have changed, and the points are sent; ``failed`` with the reason if
    a log can't be read.
    """

    def __init__(self, overlay: Overlay, changed: Callable[[], None], failed: Callable[[HilserverError], None]) -> None:
        self.overlay, self._changed, self._failed = overlay, changed, failed
        self.section = overlay.extent()
        self.cursors: list[float | None] = [None, None]
        self._request: dict[str, Any] | None = None
        self._busy = False
        self._status = ui.label().classes("text-sm text-slate-500 reading")
        self.plot = TimePlot().classes("w-full time-plot")
        self.plot.on("section", self._wanted)
        self.plot.on("place", self._place)

    @property
    def measured_span(self) -> tuple[float, float]:
        """What figures and exports refer to: between the cursors if both are set, else the visible section."""
        one, other = self.cursors
        return self.section if one is None or other is None else (min(one, other), max(one, other))

    def draw(self, *, whole: bool = False) -> None:
        """Draw anew, with other curves or logs; the section stays unless ``whole``, or it shows nothing any more."""
        begin, end = extent = self.overlay.extent()
        if whole or not (begin <= self.section[0] < self.section[1] <= end):
            self.section = extent
        if whole:
            self.cursors = [None, None]
        curves = self.overlay.curves()
        places = sorted(
            dict.fromkeys((c.plot, c.shown.unit) for c in curves),
            key=lambda pane: pane[0],  # those of a plot stay in the order of their signals
        )
        plots = self.overlay.tabs.shown.plots
        begun: set[int] = set()
        panes = []
        for plot, unit in places:
            panes.append({"unit": unit, "title": "" if plot in begun else plots[plot].name})
            begun.add(plot)
        series = [
            {"name": c.name, "pane": places.index((c.plot, c.shown.unit)), "colour": c.colour, "dash": c.dash}
            for c in curves
        ]
        message = {"panes": panes, "series": series, "extent": extent, "section": self.section}
        self.plot.run_method("draw", message)

    def zoom(self, begin: float, end: float) -> None:
        """Show this section."""
        self.plot.run_method("zoom", begin, end)

    async def _wanted(self, event: GenericEventArguments) -> None:
        """The browser shows a section: send its points. While they are read, only the latest request is kept."""
        self._request = dict(event.args)
        self.section = float(event.args["begin"]), float(event.args["end"])
        if self._busy:
            return
        self._busy = True
        try:
            while (request := self._request) is not None:
                self._request = None
                await self._answer(request)
        finally:
            self._busy = False
        self._changed()

    async def _answer(self, request: dict[str, Any]) -> None:
        begin, end, pixels = float(request["begin"]), float(request["end"]), min(int(request["pixels"]), 8000)
        points = []
        try:
            for curve in self.overlay.curves():
                first = not curve.opened.has_drawn(curve.signal)
                self._status.set_text(f"Reading {curve.name} for the first time …" if first else "")
                points.append(await run.io_bound(encoded, curve, begin, end, pixels))
        except HilserverError as error:
            self._failed(error)
            return
        finally:
            self._status.set_text("")
        self.plot.run_method("points", {"number": request["number"], "points": points, **self._lines()})

    def _lines(self) -> dict[str, Any]:
        """The cursors, and the events of the section unless they are too many."""
        moments = self.overlay.moments(*self.section)
        shown = moments if len(moments) <= MOST_MARKS else [m for m in moments if m.kind != "command"][:MOST_MARKS]
        begin, end = self.section
        shown = shown + self.overlay.triggered(begin, end)[:MOST_MARKS]
        cursors = [time if time is not None and begin <= time <= end else None for time in self.cursors]
        return {"marks": [{"time": m.time, "kind": m.kind, "text": m.text} for m in shown], "cursors": cursors}

    def _place(self, event: GenericEventArguments) -> None:
        self.place(int(event.args["cursor"]), float(event.args["time"]))

    def place(self, cursor: int, time: float | None) -> None:
        """Set a cursor (0 or 1), or remove it."""
        self.cursors[cursor] = time
        self.show_lines()
        self._changed()

    def show_lines(self) -> None:
        """Mark cursors, events and notes as they are now."""
        self.plot.run_method("show_lines", self._lines())


def encoded(curve: DrawnSignal, begin: float, end: float, pixels: int) -> str:
    """The points of a curve as the browser takes them: time, value, time, value, … as float64, in base64."""
    times, values = curve.points(begin, end, pixels)
    points = np.stack([times, np.where(np.isfinite(values), values, np.nan)], axis=1)  # infinity can't be drawn
    return base64.b64encode(points.astype("<f8").tobytes()).decode()
