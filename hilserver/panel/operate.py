"""The first tab: the schematic of the virtual circuit; next to it inputs, valves, actuators, measured values."""

from __future__ import annotations

from collections.abc import Mapping

from nicegui import ui

from hilserver.panel.actuators import ActuatorsView
from hilserver.panel.automation import AutomationView
from hilserver.panel.driven import DrivenView
from hilserver.panel.inputs import InputsView
from hilserver.panel.jog import JogControl
from hilserver.panel.learned import learned_text
from hilserver.panel.pieces import piece
from hilserver.panel.plots import DISPLACEMENT, FLOW, FLOWS, Plot, displacement_channels, flow_channels
from hilserver.panel.schematic import SchematicView
from hilserver.panel.view import Page
from hilserver.protocol.driven import ValveDescription
from hilserver.protocol.published import Description
from hilserver.web.display import percent
from hilserver.web.style import heading


class ValvesView(DrivenView[ValveDescription]):
    """Each real valve: virtual against real flow, command, saturation, the choice of its strategy, jogging."""

    kind, title = "valve", "Real valve"

    def _described(self, description: Description) -> Mapping[str, ValveDescription]:
        return description.valves

    def _present(self, name: str) -> str | None:
        state = self.page.connection.state
        return None if state is None else state.strategies.get(name)

    def _build_values(self, name: str) -> None:
        fields = {"virtual flow": "flow_virtual", "real flow": "flow_measured", "command": "command"}
        ui.html(piece("valve_values", valve=name, fields=fields), sanitize=False).classes("w-full")

    def _jog(self, name: str, info: ValveDescription) -> JogControl:
        return JogControl(self.page, {self.kind: name}, info.jog_limit)

    def _update(self) -> None:
        units, now = self.page.units, self.page.connection.history.latest()
        texts: dict[str, str] = {}
        bars: dict[str, float] = {}
        for valve in self._names:
            flows = [now.get(f"valve.{valve}.{word}") for word in FLOWS]
            largest = max(1e-3, *(abs(flow) for flow in flows if flow is not None), 0.0)
            for word, flow in zip(FLOWS, flows, strict=True):
                texts[f"valve.{valve}.{word}"] = units.text(flow, "m^3/s")
                bars[f"{valve}.{word}"] = round((flow or 0.0) / largest, 3)
            command = now.get(f"valve.{valve}.command")
            texts[f"valve.{valve}.command"] = percent(command)
            bars[f"{valve}.command"] = round(command or 0.0, 3)
            texts[f"limited.valve.{valve}"] = "saturated" if now.get(f"valve.{valve}.saturation") else ""
            state = self.page.connection.state
            texts[f"learned.valve.{valve}"] = "" if state is None else learned_text(state.learned.get(valve, {}))
        self.page.show("texts", texts)
        self.page.show("bars", bars)


class MeasuredView:
    """All measured channels and their values."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self._channels: tuple[str, ...] = ()
        with ui.column().classes("card w-full gap-1"):
            heading("Measured")
            self._table = ui.html("", sanitize=False).classes("w-full")
        page.each_round(self._follow, "Operate")

    def _follow(self) -> None:
        description = self.page.connection.description
        if description is None:
            return
        channels = tuple(name for name, info in description.channels.items() if info.kind in ("measured", "configured"))
        if channels != self._channels:
            self._channels = channels
            descriptions = {name: description.channels[name].description for name in channels}
            self._table.set_content(piece("channel_values", descriptions=descriptions))
            self.page.show_again()
        now, units = self.page.connection.history.latest(), self.page.units
        self.page.show("texts", {f"value.{c}": units.text(now.get(c), self.page.unit(c)) for c in channels})


class OperateView:
    """The tab."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self._plots: dict[str, Plot] = {}
        with ui.element("div").classes("grid grid-cols-1 lg:grid-cols-3 gap-3 w-full"):
            with ui.column().classes("lg:col-span-2 gap-3 w-full"):
                SchematicView(page)
                self._followed = ui.column().classes("w-full")
            with ui.column().classes("gap-3 w-full"):
                InputsView(page)
                ValvesView(page)
                ActuatorsView(page)
                AutomationView(page)
                MeasuredView(page)
        page.each_round(self._start, "Operate")

    def _start(self) -> None:
        """A plot of what the valves and actuators follow, as soon as there are samples."""
        shown = {FLOW: flow_channels(self.page), DISPLACEMENT: displacement_channels(self.page)}
        for title, channels in shown.items():
            if channels and title not in self._plots:
                with self._followed:
                    self._plots[title] = Plot(self.page, "Operate", title, channels, seconds=20)
