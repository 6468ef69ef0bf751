"""The dialog of a component: change its datasheet values live, or replace it by another type."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from nicegui import ui

from hilserver.panel.view import Page
from hilserver.protocol.commands import Switch
from hilserver.protocol.published import Answer
from hilserver.web.datasheet import as_value, fields_of, fitting_types, parameter_tables
from hilserver.web.value_row import ValueRow, picture

PUBLISHED_WITHIN = 5.0
"""Seconds within which a circuit is expected once the server has said that it is active."""
UNANSWERED = (
    "No answer came. The values shown here are those of the running circuit: if they are the old ones, try again."
)


def effect_of(answer: Answer) -> str:
    """From which tick a change is active, how long that took, and how far it moved the valve commands."""
    moved = answer.result.get("command_moved_percent")
    percent = ", ".join(f"{v} {p:.1f} %" for v, p in moved.items()) if isinstance(moved, dict) else ""
    active = answer.result.get("active_ms")
    within = f" after {active:.0f} ms" if isinstance(active, int | float) else ""
    return f"Active since tick {answer.tick}{within}. Command moved by {percent or '0 %'} of its range."


class ComponentDialog:
    """Opened by a click on a component in the schematic. It follows the circuit while it is open.

    A change is sent with the version of the circuit for which it was made: the server refuses it if somebody else has
    changed the circuit meanwhile.
    """

    def __init__(self, page: Page) -> None:
        self.page, self.name, self._kind = page, "", ""
        self._version: int | None = None
        self._sending = False
        self._effect = ""
        self._rows: dict[str, ValueRow] = {}
        self._undo: dict[str, Switch] = {}
        """By component, the command that takes back the change last made here."""
        # next to the page, not over it
        dialog = ui.dialog().props("seamless position=right")
        with dialog as self.dialog, ui.column().classes("card component-dialog gap-3"):
            self._content = ui.column().classes("w-full gap-3 no-wrap")
        page.each_round(self._follow)

    def open(self, name: str) -> None:
        """Show a component of the running circuit, or parameters."""
        table = self._table(name)
        if table is None:
            return
        self.name = name
        circuit = self.page.connection.circuit
        self._version = circuit.version if circuit is not None else None
        self._build(str(table.get("type", "")))
        self.dialog.open()

    def _table(self, name: str) -> Mapping[str, Any] | None:
        circuit = self.page.connection.circuit
        components = circuit.source.get("components") if circuit is not None else None
        table = components.get(name) if isinstance(components, Mapping) else None
        if table is None and circuit is not None and circuit.written is not None:
            return dict(parameter_tables(circuit.written)).get(name)
        return table if isinstance(table, Mapping) else None

    # --- what is shown -----------------------------------------------------------------------------------------------

    def _build(self, kind: str) -> None:
        table = self._table(self.name) or {}
        running = str(table.get("type", ""))
        self._kind = kind
        self._content.clear()
        self._rows.clear()
        with self._content:
            with ui.row().classes("w-full items-start no-wrap"):
                with ui.column().classes("gap-0 grow"):
                    ui.label(self.name).classes("text-lg font-bold")
                    ui.label(str(table.get("description", ""))).classes("text-sm text-slate-500")
                ui.html(picture(kind, table if kind == running else {}), sanitize=False).classes("text-slate-700")
            if running:
                self._add_types(kind, {*fitting_types(self.page.connection.types, table), running})
            about = self.page.connection.types.get(kind)
            ui.label(about.description if about is not None else "").classes("text-sm text-slate-500")
            given = table if kind == running else {"type": kind, **self._kept(kind, table)}
            with ui.element("div").classes("datasheet w-full"):
                for head in ("", "now", "new"):
                    ui.label(head).classes("heading")
                self._rows |= {field.key: ValueRow(field, self._look) for field in fields_of(about, given)}
            self._notice = ui.label().classes("note warn w-full changed-by-others whitespace-pre-line")
            self._reason = ui.label().classes("note fault w-full refusal-reason whitespace-pre-line")
            self._done = ui.label().classes("note good w-full applied")
            self._add_buttons("Apply live" if kind == running else f"Switch to {kind}")
        for note in (self._notice, self._reason, self._done):
            note.visible = False
        self._look()

    def _add_types(self, kind: str, types: set[str]) -> None:
        choice = ui.select(sorted(types), value=kind, label="Type", on_change=lambda e: self._build(e.value))
        choice.props("outlined dense options-dense").classes("w-full component-type")

    def _add_buttons(self, apply: str) -> None:
        with ui.row().classes("w-full justify-end gap-2"):
            self._undo_button = ui.button("Undo", icon="undo", on_click=self._take_back).props("flat no-caps")
            self._undo_button.tooltip("Take back the change that was last made here.")
            ui.button("Close", on_click=self.dialog.close).props("flat no-caps")
            self._apply_button = ui.button(apply, on_click=self._apply).props("unelevated no-caps").classes("apply")
            if not self.page.may_command:
                self._apply_button.tooltip("This login is read-only, or the server is offline.")

    def _look(self) -> None:
        """What can be pressed now."""
        wrong = any(row.problem for row in self._rows.values())
        self._apply_button.set_enabled(self.page.may_command and not wrong)
        self._undo_button.visible = self.name in self._undo
        self._undo_button.set_enabled(self.page.may_command)

    def _kept(self, kind: str, table: Mapping[str, Any]) -> dict[str, Any]:
        """Values and signals of the running component that the new type also has."""
        other = self.page.connection.types[kind]
        return {key: table[key] for key in (*other.values, *other.inputs, *other.outputs) if key in table}

    def _follow(self) -> None:
        """Show what somebody else has changed, and keep what was entered here."""
        circuit = self.page.connection.circuit
        if not self.dialog.value or self._sending or circuit is None or circuit.version == self._version:
            return
        self._version = circuit.version
        table = self._table(self.name)
        if table is None or str(table.get("type", "")) != self._kind:
            self._undo.pop(self.name, None)
            if table is not None and self._kind:
                self._build(str(table.get("type", "")))
            self._tell(f"Somebody else has {'removed' if table is None else 'replaced'} this meanwhile.")
            return
        about = self.page.connection.types.get(self._kind)
        now = {field.key: field for field in fields_of(about, table)}
        changes = [
            f"{row.field.title}: {row.field.given or row.field.default or '–'} → {now[key].given or '–'}"
            for key, row in self._rows.items()
            if key in now and now[key].given != row.field.given
        ]
        for key, row in self._rows.items():
            if key in now:
                row.follow(now[key])
        if changes:
            self._undo.pop(self.name, None)
            self._tell("Somebody else changed this meanwhile:\n" + "\n".join(changes))
        self._look()

    def _tell(self, text: str) -> None:
        self._notice.set_text(text)
        self._notice.visible = True

    # --- what is sent ------------------------------------------------------------------------------------------------

    async def _apply(self) -> None:
        table = self._table(self.name) or {}
        if self._kind == str(table.get("type", "")):
            changes = {key: as_value(row.entry) for key, row in self._rows.items() if row.is_changed}
            if not changes:
                self._refuse("No value was changed.")
                return
            command = Switch(component=self.name, set=changes, version=self._version)
        else:
            values = nested({key: as_value(row.entry) for key, row in self._rows.items() if row.entry})
            command = Switch(component=self.name, type=self._kind, values=values, version=self._version)
        reverse = self._reverse(command, table)
        if await self._send(command):
            self._undo[command.component] = reverse
            self._show_result(command)

    async def _take_back(self) -> None:
        command = self._undo[self.name].model_copy(update={"version": self._version})
        if await self._send(command):
            del self._undo[command.component]
            self._show_result(command, "Taken back. ")

    def _show_result(self, command: Switch, text: str = "") -> None:
        """Show the values that a change has made the present ones, and what it did to the valves."""
        if command.component != self.name:  # the dialog shows another component by now
            return
        self._build(command.type or self._kind)
        for key, value in (command.set or {}).items():
            self._rows[key].put(value)
        self._done.set_text(text + self._effect)
        self._done.visible = True

    def _reverse(self, command: Switch, before: Mapping[str, Any]) -> Switch:
        """The command that takes back this one, which was carried out on the component as it was before."""
        given = {key: self._rows[key].field.given for key in command.set or {} if key in self._rows}
        if not before.get("type") or (command.set is not None and all(given.values())):
            return Switch(component=self.name, set={key: as_value(text) for key, text in given.items()})
        values = {key: value for key, value in before.items() if key not in ("type", "ports")}
        return Switch(component=self.name, type=str(before["type"]), values=values)

    async def _send(self, command: Switch) -> bool:
        """Send a change, and show its answer; returns whether it was carried out."""
        self._reason.visible = self._done.visible = self._notice.visible = False
        self._sending = True
        try:
            answer = await self.page.command(command, quiet=True)
            if answer is None:
                self._refuse(UNANSWERED)
                return False
            if not answer.ok:
                self._refuse("\n".join(answer.problems) or str(answer.reason))
                return False
            self._version = int(str(answer.result["version"]))
            await self._published(self._version)
        finally:
            self._sending = False
        self._effect = effect_of(answer)
        return True

    async def _published(self, version: int) -> None:
        """Wait until the server has published this version: that can be before its answer, or some time after it."""
        deadline = time.monotonic() + PUBLISHED_WITHIN
        while (circuit := self.page.connection.circuit) is None or circuit.version < version:
            if time.monotonic() > deadline:
                return
            await asyncio.sleep(0.02)

    def _refuse(self, reason: str) -> None:
        self._reason.set_text(reason)
        self._reason.visible = True


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by dotted key as tables.

    >>> nested({"nominal_flow.flow": "60 l/min", "f90": "30 Hz"})
    {'nominal_flow': {'flow': '60 l/min'}, 'f90': '30 Hz'}
    """
    found: dict[str, Any] = {}
    for key, value in values.items():
        *parents, last = key.split(".")
        target = found
        for parent in parents:
            target = target.setdefault(parent, {})
        target[last] = value
    return found
