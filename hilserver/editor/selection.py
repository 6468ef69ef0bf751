"""The card beside the drawing: the selected part, node, or the circuit itself, with all values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from nicegui import ui

from hilserver.circuit.catalogue import component_types, values_of
from hilserver.circuit.model import NodeStart, Solver
from hilserver.circuit.subcircuits import is_subcircuit
from hilserver.components.base import Fluid
from hilserver.components.describe import in_plain_words
from hilserver.editor.checks import MECHANISM
from hilserver.editor.curve_view import CurveView
from hilserver.editor.edits import (
    Connect,
    Disconnect,
    RemoveComponent,
    RemoveMechanism,
    RemoveNode,
    RenameComponent,
    RenameNode,
    SetValue,
)
from hilserver.editor.entries import Entries, Guarded
from hilserver.editor.fields import component_fields, mechanism_fields
from hilserver.editor.parts import SIGNALS, PortEnd, below, tables
from hilserver.editor.session import EditorSession
from hilserver.protocol.published import DatasheetValue, TypeInfo
from hilserver.web.datasheet import DatasheetField, as_text, as_value, fields_of
from hilserver.web.style import heading
from hilserver.web.value_row import picture

STARTS = {
    "hydraulic": ("pressure", "pressure_from"),
    "mechanical": ("position", "velocity"),
    "shaft": ("angle", "speed"),
}
"""The initial values of each kind of node."""
_PARAMETER = DatasheetValue(description="", required=False)


class Selection:
    """Shows what is selected. ``select``: select something else; ``guarded``: do something that may be refused."""

    def __init__(self, session: EditorSession, select: Callable[[str], None], guarded: Guarded) -> None:
        self.session, self._select, self._guarded = session, select, guarded
        self._types = component_types(session.document.parts.library).types
        self._shown: object = None
        self._entries = Entries(session, guarded, self._refresh_curves)
        self._curves: CurveView | None = None
        self._content = ui.column().classes("card w-full gap-2 part-card no-wrap")

    def show(self, name: str) -> None:
        """Show a part, a node, or ("") the circuit; what is shown already stays, with what is being entered."""
        before, self._shown = self._shown, (name, self._state(name))
        if self._shown == before or self._entries.busy:
            return
        self._content.clear()
        self._curves = None
        with self._content:
            if name.startswith("node "):
                self._show_node(name.removeprefix("node "))
            elif name.startswith(MECHANISM):
                self._show_mechanism(name.removeprefix(MECHANISM))
            elif name:
                self._show_part(name)
            else:
                self._show_circuit()

    def _state(self, name: str) -> object:
        """All of the file that is shown."""
        document = self.session.document
        table, node = document.table, name.removeprefix("node ")
        nodes = document.parts.nodes(table)
        if node != name:
            return below(table, "nodes").get(node), document.parts.at(table, node)
        if name.startswith(MECHANISM):
            return tables(table, "mechanisms").get(name.removeprefix(MECHANISM))
        if name:
            return tables(table, "components").get(name), sorted(nodes)
        return {key: table.get(key) for key in ("description", "fluid", "solver", "parameters")}

    # --- a part ------------------------------------------------------------------------------------------------------

    def _show_part(self, name: str) -> None:
        document = self.session.document
        part = tables(document.table, "components")[name]
        kind = str(part.get("type", ""))
        known = document.parts.type_of(part)
        with ui.row().classes("w-full items-start no-wrap"):
            with ui.column().classes("gap-0 grow"):
                self._name_box(name, lambda new: self._rename(RenameComponent(name, new), new))
                ui.label(kind).classes("text-sm text-slate-500 part-kind")
            ui.html(picture(kind, part), sanitize=False).classes("text-slate-700")
        if known is not None:
            ui.label(in_plain_words(known)).classes("text-sm text-slate-500")
        self._ports(name, part)
        self._curves = None if is_subcircuit(part) else CurveView(self.session, name)
        if is_subcircuit(part):
            self._values(name, ("components", name), self._subcircuit_fields(part), "Values")
        else:
            first, others = component_fields(self._types.get(kind), part)
            self._values(name, ("components", name), first, "Datasheet values")
            if others:
                with ui.expansion(f"{len(others)} more values").classes("w-full more-values").props("dense"):
                    self._values(name, ("components", name), others)
        remove = ui.button("Remove", icon="delete", on_click=lambda: self._make(RemoveComponent(name)))
        remove.props("flat no-caps dense color=negative")

    def _subcircuit_fields(self, part: Mapping[str, Any]) -> list[DatasheetField]:
        info = DatasheetValue(description="", required=False)
        file = DatasheetValue(description="its file, in the folder of the circuit or below", required=True)
        given = below(part, "parameters")
        own = [] if "definition" in part else [DatasheetField("file", str(part.get("file", "")), file)]
        known = dict.fromkeys([*self.session.document.parts.parameters(part), *given])
        return own + [DatasheetField(f"parameters.{key}", as_text(given.get(key, "")), info) for key in known]

    def _name_box(self, name: str, rename: Callable[[str], bool]) -> None:
        box = ui.input(value=name).props("dense outlined aria-label=Name").classes("part-name")

        def entered() -> None:
            new = str(box.value or "").strip()
            if new != name and not box.is_deleted and not rename(new):
                box.set_value(name)

        for event in ("blur", "keydown.enter"):
            box.on(event, entered)

    def _rename(self, edit: RenameComponent | RenameNode, new: str) -> bool:
        if not self._make(edit):
            return False
        self._select(f"node {new}" if isinstance(edit, RenameNode) else new)
        return True

    def _make(self, edit: Any) -> bool:
        return self._guarded(self.session.make, edit)

    def _ports(self, name: str, part: Mapping[str, Any]) -> None:
        """A box for each port, with the node at it; choices are the nodes that there are."""
        document = self.session.document
        ports = document.parts.ports(part)
        if not ports:
            return
        heading("Connections")
        nodes = document.parts.nodes(document.table)
        with ui.element("div").classes("ports"):
            for port, kind in ports.items():
                end = PortEnd(name, port)
                self._port_label(f"{port} ({kind})" if kind else port, document.parts.node(document.table, end))
                given = document.parts.node(document.table, end) or as_text(part.get(port, ""))
                alike = sorted(n for n, of in nodes.items() if not kind or of in ("", kind.partition(" ")[0]))
                alike += [each for each in ("rig.A", "rig.B") if kind == "hydraulic" and each not in alike]
                box = ui.input(value=given, placeholder="not connected", autocomplete=alike)
                box.props("outlined dense").props.update({"data-port": port, "aria-label": f"Node at {port}"})
                for event in ("blur", "keydown.enter"):
                    box.on(event, lambda end=end, kind=kind, box=box, given=given: self._wire(end, kind, box, given))

    def _port_label(self, text: str, node: str) -> None:
        """The name of a port; where it is connected, a button that leads to its node."""
        if not node:
            ui.label(text)
            return
        button = ui.button(text, on_click=lambda: self._select(f"node {node}"))
        button.props("flat no-caps dense align=left").tooltip(f"To node {node}")

    def _wire(self, end: PortEnd, kind: str, box: ui.input, given: str) -> None:
        node = str(box.value or "").strip()
        if node == given or box.is_deleted:
            return
        value = as_value(node) if kind == SIGNALS[0] else node
        edit: Any = Connect(end, node)
        if not node:
            is_number = not self.session.document.parts.node(self.session.document.table, end)
            edit = SetValue(("components", end.component, end.port)) if is_number else Disconnect(end)
        elif isinstance(value, int | float):
            edit = SetValue(("components", end.component, end.port), value)
        if not self._make(edit):
            box.set_value(given)

    # --- values ------------------------------------------------------------------------------------------------------

    def _values(self, name: str, path: tuple[str, ...], fields: list[DatasheetField], title: str = "") -> None:
        of_part = path[:1] in (("components",), ("nodes",), ("mechanisms",))
        fields = [replace(field, is_text=field.key == "description") for field in fields]

        def where(key: str) -> str:
            return key if of_part else ".".join((*path, key))

        self._entries.show(name, path, fields, title, heads=bool(name), where=where)

    def _refresh_curves(self) -> None:
        if self._curves is not None:
            self._curves.refresh()

    def _show_mechanism(self, name: str) -> None:
        """Its file, the nodes of its actuators, its parameters; what is written in the circuit itself."""
        document = self.session.document
        table = tables(document.table, "mechanisms")[name]
        ui.label(name).classes("text-lg font-bold")
        ui.label("mechanism").classes("text-sm text-slate-500 part-kind")
        self._values(f"{MECHANISM}{name}", ("mechanisms", name), mechanism_fields(table, document.parts), "Values")
        remove = ui.button("Remove", icon="delete", on_click=lambda: self._make(RemoveMechanism(name)))
        remove.props("flat no-caps dense color=negative")

    # --- a node, the circuit -----------------------------------------------------------------------------------------

    def _show_node(self, name: str) -> None:
        document = self.session.document
        kind = document.parts.nodes(document.table).get(name, "")
        self._name_box(name, lambda new: self._rename(RenameNode(name, new), new))
        ui.label("signal" if kind == "signal" else f"{kind} node").classes("text-sm text-slate-500")
        heading("Ports")
        for end in document.parts.at(document.table, name):
            with ui.row().classes("items-center gap-1"):
                ui.button(str(end), on_click=lambda end=end: self._select(end.component)).props("flat no-caps dense")
                cut = ui.button(icon="link_off", on_click=lambda end=end: self._make(Disconnect(end)))
                cut.props("flat round dense size=sm").tooltip("Disconnect").props["aria-label"] = f"Disconnect {end}"
        start, values = below(below(document.table, "nodes"), name), values_of(NodeStart)
        keys = STARTS.get(kind, ())
        fields = [DatasheetField(key, as_text(start.get(key, "")), values[key]) for key in keys]
        self._values(name, ("nodes", name), fields, "Initial values")
        remove = ui.button("Remove", icon="delete", on_click=lambda: self._make(RemoveNode(name)))
        remove.props("flat no-caps dense color=negative")

    def _show_circuit(self) -> None:
        table = self.session.document.table
        ui.label("Circuit").classes("text-lg font-bold")
        text = DatasheetValue(description="what the circuit is", required=False)
        self._values("", (), [DatasheetField("description", str(table.get("description", "")), text)])
        given = below(table, "parameters")
        parameters = TypeInfo(description="", ports=(), values=dict.fromkeys(given, _PARAMETER))
        self._values("", ("parameters",), fields_of(parameters, given), "Parameters")
        for title, key, kind in (("Oil", "fluid", Fluid), ("Integration", "solver", Solver)):
            given = below(table, key)
            fields = [
                DatasheetField(name, as_text(given.get(name, "")), info) for name, info in values_of(kind).items()
            ]
            self._values("", (key,), fields, title)
