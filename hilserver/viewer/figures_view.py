"""The table under the plot: values at the cursors, their differences, and statistics over the span."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

from nicegui import run, ui

from hilserver.errors import HilserverError
from hilserver.viewer.overlay import DrawnSignal, Overlay
from hilserver.viewer.plot_view import PlotView

_COLUMNS = {
    "signal": "signal",
    "unit": "unit",
    "one": "cursor 1",
    "other": "cursor 2",
    "difference": "2 − 1",
    "minimum": "min",
    "maximum": "max",
    "mean": "mean",
    "rms": "rms",
    "std": "std. dev.",
    "count": "samples",
}
SETTLED = 0.4
"""Seconds for which section and cursors must rest before statistics are computed: they read every sample."""


class FiguresView:
    """The table. It follows the plot; while statistics are computed, the previous ones are not shown."""

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay
        self._asked = 0
        self._span = ui.label().classes("text-sm text-slate-600 span")
        left = ("signal", "unit")
        columns: list[dict[str, Any]] = [
            {"name": name, "label": title, "field": name, "align": "left" if name in left else "right"}
            for name, title in _COLUMNS.items()
        ]
        self._table = ui.table(rows=[], columns=columns, row_key="id", pagination=0)
        self._table.props("flat dense hide-bottom").classes("w-full figures")

    async def follow(self, plot: PlotView) -> None:
        """Show the figures of what the plot shows now; given up if it changes meanwhile."""
        self._asked += 1
        asked = self._asked

        def wanted() -> bool:
            return asked == self._asked

        begin, end = plot.measured_span
        cursors, curves = list(plot.cursors), self.overlay.curves()
        self._span.set_text(_span_text(plot))
        rows = {id_of(c): {"id": id_of(c), "signal": c.name, "unit": c.shown.unit} for c in curves}
        try:
            for curve in curves:
                rows[id_of(curve)] |= await run.io_bound(_at_cursors, curve, cursors) or {}
            self._table.rows = list(rows.values())
            await asyncio.sleep(SETTLED)
            if not wanted():
                return
            for curve in curves:
                rows[id_of(curve)] |= await run.io_bound(_over_span, curve, begin, end, wanted) or {}
                if not wanted():
                    return
        except HilserverError as error:
            self._span.set_text(str(error))
        if wanted():
            self._table.rows = list(rows.values())


def id_of(curve: DrawnSignal) -> str:
    """What tells the row of a curve from others: a signal may be in several plots, in different units."""
    return f"{curve.name} {curve.shown.unit}"


def _at_cursors(curve: DrawnSignal, cursors: list[float | None]) -> dict[str, str]:
    one, other = (math.nan if time is None else curve.value(time) for time in cursors)
    return {"one": figure(one), "other": figure(other), "difference": figure(other - one)}


def _over_span(curve: DrawnSignal, begin: float, end: float, wanted: Callable[[], bool]) -> dict[str, str]:
    found = curve.statistics(begin, end, wanted)
    names = ("minimum", "maximum", "mean", "rms", "std")
    missing = f" (+ {found.missing} missing)" if found.missing else ""
    return {name: figure(getattr(found, name)) for name in names} | {"count": f"{found.count}{missing}"}


def _span_text(plot: PlotView) -> str:
    begin, end = plot.measured_span
    both = None not in plot.cursors
    what = "Between the cursors" if both else "Visible section (set both cursors for another span)"
    frequency = f", 1/Δt = {1 / (end - begin):.6g} Hz" if both and end > begin else ""
    return f"{what}: {begin:.6f} s … {end:.6f} s, Δt = {end - begin:.6f} s{frequency}"


def figure(value: float) -> str:
    """A number of the table with seven digits; a dash if there is none.

    >>> figure(-123.456789), figure(1.5e-9), figure(float("nan"))
    ('−123.4568', '1.5e−09', '–')
    """
    return f"{value:.7g}".replace("-", "\N{MINUS SIGN}") if not math.isnan(value) else "–"
