"""Timing health of the loop."""

from __future__ import annotations

from nicegui import ui

from hilserver.panel.pieces import piece
from hilserver.panel.plots import Plot
from hilserver.panel.view import Page
from hilserver.protocol.published import DurationFigures, LoopStatus
from hilserver.web.display import Units
from hilserver.web.style import heading

_FIGURES = {"median": "median", "p99": "99 %", "p999": "99.9 %", "max": "max"}


class TimingView:
    """Timing of the loop: now, and since the server started."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self._plot: Plot | None = None
        with ui.element("div").classes("grid grid-cols-1 lg:grid-cols-3 gap-3 w-full"):
            with ui.column().classes("card gap-2 w-full"):
                heading("Since the server started")
                self._table = ui.html("", sanitize=False).classes("w-full")
                self._worst = ui.html("", sanitize=False).classes("w-full")
            with ui.column().classes("lg:col-span-2 gap-3 w-full"):
                self._box = ui.column().classes("w-full")
                with ui.column().classes("card w-full gap-1"):
                    heading("Devices and this computer")
                    self._devices = ui.html("", sanitize=False).classes("w-full text-sm")
        page.each_round(self._follow, "Timing")

    def _follow(self) -> None:
        state = self.page.connection.state
        if state is None:
            return
        if self._plot is None and self.page.connection.history.count:
            with self._box:
                channels = ["loop.wake_up", "loop.work"]
                self._plot = Plot(self.page, "Timing", "Maximum wake-up delay and work per tick", channels, seconds=60)
        if state.loop is not None:
            self._table.set_content(self._figures(state.loop))
            us = self.page.units
            lines = {
                "period": us.text(state.loop.period, "s"),
                "ticks": f"{state.tick:,}".replace(",", "\N{NARROW NO-BREAK SPACE}"),
                "missed ticks": str(state.missed_ticks),
                "time synchronisation error": us.text(state.loop.time_sync_error, "s"),
                "minimum step": us.text(state.loop.minimum_step, "s"),
                "telemetry dropped": str(state.telemetry_dropped),
            }
            self._worst.set_content(piece("lines", texts=lines))
        devices = {
            name: ", ".join(f"{n} × {kind}" for kind, n in d.errors.items()) or "no failure"
            for name, d in state.devices.items()
        }
        notes = piece("notes", texts=[("warn", text) for text in state.degradations], margin="top")
        self._devices.set_content(piece("lines", texts=devices) + notes)

    def _figures(self, loop: LoopStatus) -> str:
        rows = {"wake-up delay": loop.wake_up, "work per tick": loop.work, **loop.parts}
        texts = {name: _figure_texts(figures, self.page.units) for name, figures in rows.items() if figures is not None}
        return piece("figures", unit=self.page.units.of("s").unit, titles=_FIGURES.values(), rows=texts)


def _figure_texts(figures: DurationFigures, units: Units) -> list[str]:
    return [units.number(getattr(figures, key), "s") for key in _FIGURES]
