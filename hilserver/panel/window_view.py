"""The window of a trigger at full rate: any signals of the row, as the recorder has written them."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from nicegui import run, ui

from hilserver.errors import HilserverError
from hilserver.panel.recordings import VIEW, Recorded
from hilserver.record.cuts import FOLDER
from hilserver.viewer.layout import ViewLayout
from hilserver.viewer.overlay import Overlay, first_signals
from hilserver.viewer.plot_view import PlotView


class WindowView:
    """The plot of one window; the signals that are chosen stay for the next one."""

    def __init__(self, recorded: Recorded) -> None:
        self._recorded = recorded
        self.overlay = Overlay()
        self._name, self._shows = "", 0
        self._setting = False
        with ui.column().classes("w-full gap-2 trigger-window") as self._box:
            with ui.row().classes("w-full items-center gap-3"):
                self._title = ui.label().classes("font-semibold")
                self._signals = ui.select([], label="signals", multiple=True, with_input=True, on_change=self._choose)
                self._signals.props("outlined dense options-dense use-chips").classes("grow window-signals")
                ui.button("Open viewer", icon="query_stats", on_click=self._view).props("flat no-caps dense").tooltip(
                    "Cursors, statistics, spectra and exports, in a new tab"
                )
            self.plot = PlotView(self.overlay, lambda: None, lambda error: self._say(str(error)))
        self._note = ui.label().classes("note warn w-full window-note")
        self._box.visible = self._note.visible = False

    def _say(self, text: str) -> None:
        self._note.set_text(text)
        self._note.visible = bool(text)

    async def show(self, file: str, signals: list[str]) -> None:
        """Show the window in this file, of the server; ``signals`` are drawn unless others were chosen before."""
        self._shows += 1
        mine, name = self._shows, f"{FOLDER}/{Path(file).name}"
        path = self._recorded.offered().get(name)
        if path is None:
            self._say(f"{file} is not on this computer: run the panel on the rig's PC, or specify the folder.")
            return
        try:
            opened = await run.io_bound(self._recorded.store.open, path)
            if opened is None or mine != self._shows:  # the panel ends, or another one is to be shown meanwhile
                return
            self._name = name
            chosen = list(self.overlay.signals)
            overlay = Overlay([opened])
        except HilserverError as error:
            self._say(str(error))
            return
        self.overlay.placed = overlay.placed
        self.overlay.load(ViewLayout())
        known = self.overlay.available()
        wanted = [name for name in chosen or signals if name in known] or first_signals([opened])
        self.overlay.choose(wanted)
        self._say("")
        self._box.visible = True
        self._title.set_text(path.name)
        self._setting = True
        self._signals.set_options(list(known), value=wanted)
        self._setting = False
        self.plot.draw(whole=True)
        triggers = [moment.time for moment in opened.log.happened if moment.kind == "trigger"]
        if triggers:
            self.plot.place(0, triggers[-1])

    def _choose(self) -> None:
        if self._setting:
            return
        try:
            self.overlay.choose(list(self._signals.value))
        except HilserverError as error:
            self._say(str(error))
            return
        self.plot.draw()

    def _view(self) -> None:
        ui.navigate.to(f"{VIEW}?log={quote(self._name)}", new_tab=True)
