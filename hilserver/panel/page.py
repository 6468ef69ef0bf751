"""The page: state and buttons at the top, always visible, and a tab for each view."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nicegui import ui

from hilserver.drawing.schematic import STYLE
from hilserver.panel.alarms_view import AlarmsView
from hilserver.panel.connection import Connection
from hilserver.panel.health import TimingView
from hilserver.panel.operate import OperateView
from hilserver.panel.plots_view import PlotsView
from hilserver.panel.recordings import Recorded, RecordingsView
from hilserver.panel.studies import StudiesView
from hilserver.panel.view import Page
from hilserver.protocol import commands
from hilserver.web.display import CHOICES, QUANTITIES, Units
from hilserver.web.style import CIRCUIT_STYLE, AppearanceChoice, add_style, add_zoom

HERE = Path(__file__).parent
WALL = "/wall"
"""Address of the view for a monitor on the wall."""
STOP = """
<button id="stop" type="button" aria-label="STOP"
  title="Running: valves to null within their slew limit, actuators to their safe displacement. Armed: disarm."
  ><b>STOP</b><small></small></button>
<div id="lost-link" role="alert" hidden><b></b> <span></span></div>
"""
"""Outside of what NiceGUI manages (link.js): they work and are seen whatever else is on the page."""


def build(
    connection: Connection,
    units: Units,
    recordings: Path | None,
    recorded: Recorded,
    studies: Path,
    log_out: Callable[[], None] | None,
) -> None:
    """Build a page. Called once for each page that is opened. ``recordings``: the folder that was given.

    ``studies``: the folder of the results of studies.
    """
    assets()
    link_to_rig()
    page = Page(connection, units, "Operate")
    Header(page, log_out)
    with ui.column().classes("w-full gap-3 px-3 py-3 max-w-[1700px] mx-auto"):
        Notes(page)
        with ui.tabs().props("dense no-caps inline-label align=left").classes("views w-full text-slate-600") as tabs:
            operate = ui.tab("Operate", icon="account_tree")
            plots = ui.tab("Plots", icon="show_chart")
            timing = ui.tab("Timing", icon="timer")
            alarms = ui.tab("Alarms", icon="notifications")
            with alarms:
                ui.html('<span class="alarm-count" data-value="alarms"></span>', sanitize=False)
            recordings_tab = ui.tab("Recordings", icon="folder")
            studies_tab = ui.tab("Studies", icon="science")
        with ui.tab_panels(tabs, value=operate, animated=False, keep_alive=True).classes("w-full bg-transparent"):
            with ui.tab_panel(operate).classes("p-0"):
                OperateView(page)
            with ui.tab_panel(plots).classes("p-0 gap-3"):
                PlotsView(page, recorded)
            with ui.tab_panel(timing).classes("p-0"):
                TimingView(page)
            with ui.tab_panel(alarms).classes("p-0 gap-3"):
                AlarmsView(page)
            with ui.tab_panel(recordings_tab).classes("p-0"):
                view = RecordingsView(page, recordings)
            with ui.tab_panel(studies_tab).classes("p-0"):
                listed = StudiesView(page, studies)

    async def switch_tab() -> None:
        page.tab = str(tabs.value)
        page.show_again()
        if page.tab == "Recordings":
            await view.refresh()
        if page.tab == "Studies":
            await listed.refresh()

    def count_alarms() -> None:
        page.show("texts", {"alarms": str(len(connection.alarms.open()) or "")})

    page.each_round(count_alarms)
    tabs.on_value_change(switch_tab)
    page.start()


def assets() -> None:
    """Add the style sheet and the scripts."""
    add_style(STYLE + CIRCUIT_STYLE + (HERE / "panel.css").read_text())
    ui.add_body_html(f"<script>{(HERE / 'panel.js').read_text()}</script>")
    add_zoom()


def link_to_rig() -> None:
    """Add STOP, and what shows that the link to the rig is lost."""
    ui.add_body_html(STOP + f"<script>{(HERE / 'link.js').read_text()}</script>")


class Header:
    """Rig, mode, and the buttons that change it."""

    def __init__(self, page: Page, log_out: Callable[[], None] | None) -> None:
        self.page = page
        self._buttons: dict[str, tuple[ui.button, tuple[str, ...]]] = {}
        with (
            ui.header()
            .classes("bg-white text-slate-800 items-center gap-3 px-4 py-2 no-wrap-lg")
            .style("border-bottom: 1px solid #cbd5e1")
        ):
            with ui.column().classes("gap-0"):
                ui.label("hilserver").classes("heading")
                ui.label(page.connection.rig).classes("text-lg font-bold leading-5")
            self._mode = ui.label("–").classes("mode")
            self._link = ui.label().classes("text-sm text-slate-500 link")
            ui.space()
            self._button("Arm", "power_settings_new", commands.Arm(), ("SAFE",))
            self._button("Start", "play_arrow", commands.Start(), ("ARMED",), "color=positive unelevated")
            self._button("Disarm", "lock", commands.Disarm(), ("ARMED", "RUNNING"))
            self._button("Reset", "restart_alt", commands.Reset(), ("FAULT",))
            trip = self._button(
                "Trip",
                "bolt",
                commands.Trip(),
                ("SAFE", "SAFE_NOT_CONFIRMED", "ARMED", "RUNNING"),
                "color=negative outline",
            )
            trip.tooltip("FAULT immediately, latched. This does not replace an emergency stop.")
            self._menu(log_out)
            ui.element("div").classes("room-for-stop")
        page.each_round(self._follow)

    def _button(
        self, text: str, icon: str, command: commands.Command, modes: tuple[str, ...], look: str = "outline"
    ) -> ui.button:
        async def send() -> None:
            await self.page.command(command)

        button = ui.button(text, icon=icon, on_click=send).props(f"no-caps {look}").classes("command")
        self._buttons[text] = button, modes
        return button

    def _menu(self, log_out: Callable[[], None] | None) -> None:
        with (
            ui.button(icon="tune").props("flat round dense").tooltip("Units and appearance").classes("units"),
            ui.menu(),
            ui.column().classes("p-4 gap-2"),
        ):
            ui.label("Units").classes("heading")
            for si, choices in CHOICES.items():
                shown = [choice.unit for choice in choices]
                ui.select(
                    shown,
                    value=self.page.units.of(si).unit,
                    label=QUANTITIES[si],
                    on_change=lambda e, si=si: self._choose(si, e.value),
                ).props("outlined dense options-dense").classes(f"w-40 unit-{QUANTITIES[si]}")
            ui.label("Appearance").classes("heading")
            AppearanceChoice()
            ui.link("Wall view", WALL, new_tab=True)
            if log_out is not None:
                user = self.page.connection.address.user
                ui.button(f"Log {user} out", icon="logout", on_click=log_out).props("flat no-caps dense")

    def _choose(self, si: str, unit: str) -> None:
        self.page.units.chosen[si] = unit
        for action in self.page.when_units_change:
            action()

    def _follow(self) -> None:
        connection, mode = self.page.connection, self.page.connection.mode
        self._mode.set_text(mode.replace("_", " "))
        self._mode.classes(replace=f"mode {mode}")
        role = {"operator": "operator", "viewer": "viewer, read-only", "unknown": "…"}[connection.role]
        user = connection.address.user
        who = f"{user} · {role}" if user else role
        self._link.set_text(who if connection.online else connection.status())
        allowed = self.page.may_command
        for button, modes in self._buttons.values():
            button.set_enabled(allowed and mode in modes)


class Notes:
    """Fault and warnings, above all else."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self._shown: list[tuple[str, str]] | None = None
        self._box = ui.column().classes("w-full gap-1 notes")
        page.each_round(self._follow)

    def _follow(self) -> None:
        connection, state = self.page.connection, self.page.connection.state
        notes: list[tuple[str, str]] = []
        if connection.online and state is not None:
            notes += [("fault", f"FAULT: {state.fault}")] if state.fault else []
            notes += [("fault" if text in state.unconfirmed else "warn", text) for text in state.warnings]
        if notes != self._shown:
            self._shown = notes
            self._box.clear()
            with self._box:
                for kind, text in notes:
                    ui.label(text).classes(f"note {kind} w-full")
