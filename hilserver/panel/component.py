"""The dialog of a component: change its datasheet values live, or replace it by another type."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nicegui import ui

from hilserver.drawing.symbols import symbol
from hilserver.panel.view import Page
from hilserver.protocol.commands import Switch
from hilserver.protocol.published import Answer, TypeInfo


@dataclass(frozen=True)
class DatasheetField:
    """A datasheet value: dotted key, description, text as given ("" if not given), default."""

    key: str
    description: str
    given: str
    default: str
    required: bool


def fields_of(kind: TypeInfo | None, table: Mapping[str, Any]) -> list[DatasheetField]:
    """The datasheet values of a component of this type, as given in its table.

    For a type that the server does not describe, only the given ones.
    """
    if kind is None:
        skipped = ("type", "ports", "description")
        return [f for key, value in table.items() if key not in skipped for f in _given(key, value, "")]
    found: list[DatasheetField] = []
    for key, info in kind.values.items():
        if isinstance(value := table.get(key), Mapping):
            found.extend(_given(key, value, info.description))
        else:
            given = "" if value is None else as_text(value)
            default = "" if info.default is None else as_text(info.default)
            found.append(DatasheetField(key, info.description, given, default, info.required))
    signals = [DatasheetField(p, "signal or number", as_text(table[p]), "", False) for p in kind.inputs if p in table]
    return found + signals


def _given(key: str, value: object, description: str) -> Iterator[DatasheetField]:
    if isinstance(value, Mapping):
        for inner, part in value.items():
            yield from _given(f"{key}.{inner}", part, description)
    else:
        yield DatasheetField(key, description, as_text(value), "", False)


def as_text(value: object) -> str:
    """A value as it is entered: texts unchanged, everything else as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def as_value(text: str) -> Any:
    """The value of an entry: parsed as JSON if possible (numbers, lists), otherwise a text such as ``120 bar``.

    >>> as_value("120 bar"), as_value("0.8"), as_value('[["5 bar", "20 l/min"]]')
    ('120 bar', 0.8, [['5 bar', '20 l/min']])
    """
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()


def parameter_tables(written: Mapping[str, Any], name: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Parameters that a circuit lets one set, by the component that a `switch` names.

    ``parameters`` are those of the circuit itself; each sub-circuit and each mechanism may have its own.
    """
    if not name and written.get("parameters"):
        yield "parameters", written["parameters"]
    for kind in ("components", "mechanisms"):
        for own, part in written.get(kind, {}).items():
            if kind == "components" and part.get("type") != "subcircuit":
                continue
            called, definition = f"{name}{own}", part.get("definition", {})
            if values := {**definition.get("parameters", {}), **part.get("parameters", {})}:
                yield called, values
            if kind == "components":
                yield from parameter_tables(definition, f"{called}.")


def fitting_types(types: Mapping[str, TypeInfo], table: Mapping[str, Any]) -> list[str]:
    """The types that can replace a component: those with ports of the same names."""
    return [name for name, kind in types.items() if {*kind.ports} == {*table.get("ports", {})}]


def picture(kind: str) -> str:
    """The symbol of a type as an SVG; empty if there is none."""
    drawn = symbol(kind)
    if drawn is None:
        return ""
    return (
        f'<svg viewBox="0 0 {drawn.width:g} {drawn.height:g}" width="{drawn.width * 0.9:g}" fill="none" '
        f'stroke="currentColor" stroke-width="1.2" style="overflow:visible">{drawn.body}</svg>'
    )


class ComponentDialog:
    """Opened by a click on a component in the schematic."""

    def __init__(self, page: Page) -> None:
        self.page, self.name = page, ""
        self._fields: dict[str, tuple[DatasheetField, ui.input]] = {}
        # next to the page, not over it: the buttons that stop the rig remain accessible
        dialog = ui.dialog().props("seamless position=right")
        with dialog as self.dialog, ui.column().classes("card component-dialog gap-3"):
            self._content = ui.column().classes("w-full gap-3")

    def open(self, name: str) -> None:
        """Show a component of the running circuit, or parameters."""
        table = self._table(name)
        if table is None:
            return
        self.name = name
        self._build(str(table.get("type", "")))
        self.dialog.open()

    def _table(self, name: str) -> Mapping[str, Any] | None:
        circuit = self.page.connection.circuit
        components = circuit.source.get("components") if circuit is not None else None
        table = components.get(name) if isinstance(components, Mapping) else None
        if table is None and circuit is not None and circuit.written is not None:
            return dict(parameter_tables(circuit.written)).get(name)
        return table if isinstance(table, Mapping) else None

    def _build(self, kind: str) -> None:
        table = self._table(self.name) or {}
        running = str(table.get("type", ""))
        self._kind = kind
        self._content.clear()
        self._fields.clear()
        with self._content:
            with ui.row().classes("w-full items-start no-wrap"):
                with ui.column().classes("gap-0 grow"):
                    ui.label(self.name).classes("text-lg font-bold")
                    ui.label(str(table.get("description", ""))).classes("text-sm text-slate-500")
                ui.html(picture(kind), sanitize=False).classes("text-slate-700")
            if running:
                self._add_types(kind, {*fitting_types(self.page.connection.types, table), running})
            about = self.page.connection.types.get(kind)
            ui.label(about.description if about is not None else "").classes("text-sm text-slate-500")
            given = table if kind == running else {"type": kind, **self._kept(kind, table)}
            with ui.column().classes("w-full gap-2 overflow-auto").style("max-height: 46vh"):
                for field in fields_of(about, given):
                    self._add_input(field)
            self._reason = ui.label().classes("note fault w-full refusal-reason whitespace-pre-line")
            self._reason.visible = False
            self._done = ui.label().classes("note good w-full applied")
            self._done.visible = False
            with ui.row().classes("w-full justify-end gap-2"):
                ui.button("Close", on_click=self.dialog.close).props("flat no-caps")
                text = "Apply live" if kind == running else f"Switch to {kind}"
                button = ui.button(text, on_click=self._apply).props("unelevated no-caps").classes("apply")
                button.set_enabled(self.page.may_command)
                if not self.page.may_command:
                    button.tooltip("This login is read-only, or the server is offline.")

    def _add_types(self, kind: str, types: set[str]) -> None:
        choice = ui.select(sorted(types), value=kind, label="Type", on_change=lambda e: self._build(e.value))
        choice.props("outlined dense options-dense").classes("w-full component-type")

    def _kept(self, kind: str, table: Mapping[str, Any]) -> dict[str, Any]:
        """Values and signals of the running component that the new type also has."""
        other = self.page.connection.types[kind]
        return {key: table[key] for key in (*other.values, *other.inputs, *other.outputs) if key in table}

    def _add_input(self, field: DatasheetField) -> None:
        title = field.key.replace("_", " ").replace(".", " · ")
        box = ui.input(title + (" *" if field.required else ""), value=field.given, placeholder=field.default)
        box.props(f'outlined dense stack-label data-field="{field.key}" hide-bottom-space').classes("w-full")
        if field.description:
            ui.label(field.description).classes("text-xs text-slate-500 -mt-1 mb-1 px-1")
        self._fields[field.key] = field, box

    def _changes(self) -> dict[str, Any]:
        return {
            k: as_value(box.value) for k, (field, box) in self._fields.items() if box.value and box.value != field.given
        }

    async def _apply(self) -> None:
        running = str((self._table(self.name) or {}).get("type", ""))
        self._reason.visible = self._done.visible = False
        if self._kind == running:
            changes = self._changes()
            if not changes:
                self._refuse("No value was changed.")
                return
            command = Switch(component=self.name, set=changes)
        else:
            values: dict[str, Any] = {}
            for key, (_, box) in self._fields.items():
                if box.value:
                    *parents, last = key.split(".")
                    target = values
                    for parent in parents:
                        target = target.setdefault(parent, {})
                    target[last] = as_value(box.value)
            command = Switch(component=self.name, type=self._kind, values=values)
        answer = await self.page.command(command, quiet=True)
        if answer is not None and answer.ok:
            self._report(answer)
        elif answer is not None:
            self._refuse("\n".join(answer.problems) or str(answer.reason))

    def _report(self, answer: Answer) -> None:
        moved = answer.result.get("command_moved_percent")
        percent = ", ".join(f"{v} {p:.1f} %" for v, p in moved.items()) if isinstance(moved, dict) else ""
        active = answer.result.get("active_ms")
        within = f" after {active:.0f} ms" if isinstance(active, int | float) else ""
        self._done.set_text(
            f"Active since tick {answer.tick}{within}. Command moved by {percent or 'nothing'} of its range."
        )
        self._done.visible = True
        for key, (field, box) in list(self._fields.items()):
            self._fields[key] = (
                DatasheetField(key, field.description, box.value or "", field.default, field.required),
                box,
            )

    def _refuse(self, reason: str) -> None:
        self._reason.set_text(reason)
        self._reason.visible = True
