"""The schematic in the panel: the circuit that runs, with live pressures, flows and signals; a click opens a part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nicegui import ui

from hilserver.drawing.parts import RIG, DrawnComponent, read_parts
from hilserver.drawing.schematic import schematic
from hilserver.panel.component import ComponentDialog
from hilserver.panel.view import Page
from hilserver.web.datasheet import parameter_tables
from hilserver.web.display import Units
from hilserver.web.style import heading

_CLICK = """(event) => {
  const part = event.target.closest("[data-part]");
  if (part && (event.type !== "keydown" || event.key === "Enter")) emit(part.dataset.part);
}"""
_ZOOM = {"smaller": "zoom_out", "fit": "fit_screen", "larger": "zoom_in"}
"""The buttons above the schematic, named like the functions of zoom.js, and their icons."""
COLD, WARM = (37, 99, 235), (220, 38, 38)
"""Colours of a line without pressure and at the highest pressure; by convention, return is blue and pressure red."""
FULL_PRESSURE = 250e5


class SchematicView:
    """The running circuit, redrawn at each switch; its values are updated several times a second."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self._source: Mapping[str, Any] | None = None
        self._dialog = ComponentDialog(page)
        with ui.column().classes("card w-full gap-1"):
            with ui.row().classes("about-circuit w-full items-baseline no-wrap"):
                heading("Virtual circuit").classes("whitespace-nowrap")
                self._about = ui.label().classes("description text-sm text-slate-500 truncate grow")
                self._version = ui.label().classes("text-sm text-slate-500 whitespace-nowrap circuit-version")
                for name, icon in _ZOOM.items():
                    button = ui.button(icon=icon).props(f"flat round dense size=sm aria-label='{name}'")
                    button.on("click", js_handler=f"() => zoom.{name}()").tooltip(name)
            with ui.row().classes("text-xs text-slate-500 gap-1"):
                ui.label("Click a component to see and change its values.")
                ui.label("Scroll sideways to see the whole schematic.").classes("on-phones")
            self._parameters = ui.row().classes("w-full gap-1")
            self._picture = ui.html("", sanitize=False).classes("w-full schematic-view")
            self._picture.props("tabindex=0 role=region aria-label='Schematic: zoom with + and -, 0 fits it'")
            for event in ("click", "keydown"):
                self._picture.on(event, lambda e: self._dialog.open(str(e.args)), js_handler=_CLICK)
        self._parts: list[DrawnComponent] = []
        self._nodes: list[str] = []
        page.each_round(self._draw, "Operate")
        page.each_round(self._update, "Operate")

    def _draw(self) -> None:
        circuit = self.page.connection.circuit
        if circuit is None or circuit.source == self._source:
            return
        self._source = circuit.source
        self._parts = read_parts(circuit.source)
        self._nodes = list(dict.fromkeys(node for part in self._parts for node in part.hydraulic.values()))
        self._picture.set_content(schematic(circuit.source))
        self._about.set_text(str(circuit.source.get("description") or circuit.file or ""))
        self._version.set_text(f"version {circuit.version}")
        self._show_parameters(circuit.written)
        self.page.show_again()

    def _show_parameters(self, written: Mapping[str, Any] | None) -> None:
        """A button for the parameters of the circuit, and one for those of each sub-circuit and mechanism."""
        self._parameters.clear()
        with self._parameters:
            for name, _ in parameter_tables(written or {}):
                button = ui.button(name, icon="tune", on_click=lambda name=name: self._dialog.open(name))
                button.props("flat no-caps dense").classes("px-2 parameters")

    def _update(self) -> None:
        now = self.page.connection.history.latest()
        self.page.show("texts", live_texts(self._parts, now, self.page.units))
        self.page.show("lines", {node: colour(now.get(f"circuit.{node}.p")) for node in self._nodes})


def live_texts(parts: Iterable[DrawnComponent], now: Mapping[str, float | None], units: Units) -> dict[str, str]:
    """The texts of a schematic by their names: pressures of nodes, flows out of components, values of signals.

    ``now``: values of channels, SI. A pump shows the flow that it delivers, one value for both of its ports.
    """
    texts = {}
    for part in parts:
        for node in part.hydraulic.values():
            pressure = units.text(now.get(f"circuit.{node}.p"), "Pa")
            texts[f"node.{node}"] = f"{node.removeprefix(RIG)}  {pressure}"
        flows = {
            port: flow for port in part.hydraulic if (flow := now.get(f"circuit.{part.name}.q_{port}")) is not None
        }
        for port in part.flows:
            value = flows.get(port) if port else max(flows.values(), default=None)
            texts[part.flow_name(port)] = "" if value is None else f"{port} {units.text(value, 'm^3/s')}".strip()
        for signal in part.signals.values():
            value = now.get(f"circuit.{signal}")
            texts[f"signal.{signal}"] = signal if value is None else f"{signal} {units.number(value, '')}"
    return texts


def colour(pressure: float | None) -> str:
    """The colour of a line at this pressure, Pa; grey if it is not known.

    >>> colour(0.0), colour(250e5), colour(None)
    ('rgb(37,99,235)', 'rgb(220,38,38)', '#94a3b8')
    """
    if pressure is None:
        return "#94a3b8"
    share = round(20 * min(max(pressure / FULL_PRESSURE, 0.0), 1.0)) / 20
    return "rgb({},{},{})".format(*(round(c + share * (w - c)) for c, w in zip(COLD, WARM, strict=True)))
