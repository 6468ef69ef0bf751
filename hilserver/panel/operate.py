"""The first tab: the schematic of the virtual circuit; next to it inputs, valves, actuators, measured values."""

from __future__ import annotations

import time

from nicegui import ui

from hilserver.panel.actuators import ActuatorsView
from hilserver.panel.automation import AutomationView
from hilserver.panel.inputs import FreeSlider, InputsView
from hilserver.panel.learned import learned_text
from hilserver.panel.pieces import piece
from hilserver.panel.plots import DISPLACEMENT, FLOW, FLOWS, Plot, displacement_channels, flow_channels
from hilserver.panel.schematic import SchematicView
from hilserver.panel.view import HOLD_OFF, Page
from hilserver.protocol import commands
from hilserver.protocol.driven import ValveDescription
from hilserver.web.display import percent
from hilserver.web.style import heading


class ValvesView:
    """Each real valve: virtual against real flow, command, saturation, the choice of its strategy, jogging."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self._valves: tuple[str, ...] = ()
        self._box = ui.column().classes("w-full gap-3")
        self._choices: dict[str, ui.select] = {}
        self._chosen: dict[str, float] = {}
        self._jogs: dict[str, JogControl] = {}
        page.each_round(self._follow, "Operate")
        page.each_round(self._update, "Operate")

    def _follow(self) -> None:
        description = self.page.connection.description
        if description is not None and tuple(description.valves) != self._valves:
            self._valves = tuple(description.valves)
            self._box.clear()
            with self._box:
                for name, info in description.valves.items():
                    self._build(name, info)
        for name, choice in self._choices.items():
            choice.set_enabled(self.page.may_command)
            strategy = self._present(name)
            if choice.value != strategy and time.monotonic() - self._chosen.get(name, 0.0) > HOLD_OFF:
                choice.set_value(strategy)
            self._jogs[name].follow(strategy == "manual")

    def _present(self, valve: str) -> str | None:
        """The strategy that drives a valve, as reported by the server."""
        state = self.page.connection.state
        return None if state is None else state.strategies.get(valve)

    def _build(self, name: str, info: ValveDescription) -> None:
        with ui.column().classes("card w-full gap-2"):
            with ui.row().classes("w-full items-center no-wrap"):
                heading(f"Real valve {name}").tooltip(info.description or name)
                ui.space()
                ui.html(piece("saturation", valve=name), sanitize=False)
            fields = {"virtual flow": "flow_virtual", "real flow": "flow_measured", "command": "command"}
            ui.html(piece("valve_values", valve=name, fields=fields), sanitize=False).classes("w-full")
            ui.html(piece("learned", valve=name), sanitize=False).classes("w-full")
            self._choices[name] = ui.select(
                list(info.strategies), label="Strategy", on_change=lambda e: self._select(name, e.value)
            )
            self._choices[name].props("outlined dense options-dense").classes("w-full strategy")
            self._jogs[name] = JogControl(self.page, name, info.jog_limit)

    async def _select(self, valve: str, strategy: str | None) -> None:
        if strategy is not None and strategy != self._present(valve):
            self._chosen[valve] = time.monotonic()
            await self.page.command(commands.SelectStrategy(valve=valve, strategy=strategy))

    def _update(self) -> None:
        units, now = self.page.units, self.page.connection.history.latest()
        texts: dict[str, str] = {}
        bars: dict[str, float] = {}
        for valve in self._valves:
            flows = [now.get(f"valve.{valve}.{word}") for word in FLOWS]
            largest = max(1e-3, *(abs(flow) for flow in flows if flow is not None), 0.0)
            for word, flow in zip(FLOWS, flows, strict=True):
                texts[f"valve.{valve}.{word}"] = units.text(flow, "m^3/s")
                bars[f"{valve}.{word}"] = round((flow or 0.0) / largest, 3)
            command = now.get(f"valve.{valve}.command")
            texts[f"valve.{valve}.command"] = percent(command)
            bars[f"{valve}.command"] = round(command or 0.0, 3)
            texts[f"saturated.{valve}"] = "saturated" if now.get(f"valve.{valve}.saturation") else ""
            state = self.page.connection.state
            texts[f"learned.{valve}"] = "" if state is None else learned_text(state.learned.get(valve, {}))
        self.page.show("texts", texts)
        self.page.show("bars", bars)


class JogControl:
    """Moves a valve manually while a button is held; the server ends a command that is not renewed (``jog_time``)."""

    def __init__(self, page: Page, valve: str, limit: float) -> None:
        self.page, self._valve, self._limit, self._ended = page, valve, limit, False
        with ui.row().classes("w-full items-center no-wrap gap-3 jog") as self._row:
            self._buttons = [self._button("remove", -1.0), self._button("add", 1.0)]
            low, high = 0.1 * limit, limit
            self._size = FreeSlider(min=low, max=high, step=low, value=0.5 * limit).props("aria-label='jog'")
            self._shown = ui.label().classes("text-sm whitespace-nowrap")
            self._size.on_value_change(self._show_size)
        self._show_size()

    def follow(self, manual: bool) -> None:
        """Visible if the valve is driven by hand, enabled while the rig is running."""
        self._row.visible = manual and self._limit > 0.0
        self._ended = self._ended or not self.page.may_operate  # until it is pressed again
        for button in self._buttons:
            button.set_enabled(self.page.may_operate)

    def _button(self, icon: str, sign: float) -> ui.button:
        button = ui.button(icon=icon).props(f"outline aria-label='jog {'+' if sign > 0 else '-'}'").classes("hold")
        button.on("pointerdown", lambda e: self._jog(sign, e.args), js_handler="(e) => panel.hold(e, emit)")
        return button.tooltip("Hold: the valve moves by this fraction of its range. Release: it goes to null.")

    def _show_size(self) -> None:
        self._shown.set_text(f"jog {100 * self._size.value:.1f} %")

    async def _jog(self, sign: float, what: str) -> None:
        """The button is pressed, held or released. A refusal, or a rig that stops, ends it until the next press."""
        if what == "release":
            self._ended = True
            await self.page.command(commands.Jog(valve=self._valve, command=0.0), quiet=True)
            return
        if what == "press":
            self._ended = False
        if not self._ended:
            command = sign * float(self._size.value)
            answer = await self.page.command(commands.Jog(valve=self._valve, command=command))
            self._ended = self._ended or answer is None or not answer.ok


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
