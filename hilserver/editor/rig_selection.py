"""The card beside the picture of a rig: the selected part with all its values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from nicegui import ui

from hilserver.editor.edits import SetValue
from hilserver.editor.entries import Entries, Guarded
from hilserver.editor.parts import below
from hilserver.editor.rig_edits import AddInner, RemoveEntry, RenameEntry, RigEdit, noun
from hilserver.editor.rig_fields import PORTS, SECTIONS, about, first_and_others, path_of
from hilserver.editor.rig_session import RigSession
from hilserver.editor.stable_rows import StableRows
from hilserver.toml import is_there
from hilserver.web.style import heading


class RigSelection:
    """Shows what is selected. ``select``: select something else; ``open_file``: show a circuit."""

    def __init__(
        self,
        session: RigSession,
        select: Callable[[str], None],
        guarded: Guarded,
        open_file: Callable[[Path], None],
    ) -> None:
        self._session, self._select, self._guarded, self._open = session, select, guarded, open_file
        self._entries = Entries(session, guarded)
        self._shown: object = None
        self._circuits: StableRows[tuple[str, Path]]
        self._content = ui.column().classes("card w-full gap-2 part-card no-wrap")

    def show(self, part: str) -> None:
        """Show a part, or ("") the rig itself; what is shown already stays, with what is being entered."""
        fields = self._session.fields.of(part)
        before, self._shown = self._shown, (part, fields)
        if self._shown == before or self._entries.busy:
            self._circuits.show(self._files(part))
            return
        self._content.clear()
        with self._content:
            self._head(part)
            self._circuits = StableRows(ui.column().classes("w-full gap-0"), self._circuit)
            self._circuits.show(self._files(part))
            path = path_of(part)
            stays, at = (1, path[:1]) if path[:1] == (PORTS,) else (len(path), path)
            first, others = first_and_others(fields)

            def where(key: str) -> str:
                return "" if at == (PORTS,) else key

            self._entries.show(part, at, first, "Values", stays=stays, where=where)
            if others:
                incomplete = any(each.part == part and not each.is_note for each in self._session.findings)
                more = ui.expansion(f"{len(others)} more values", value=incomplete)
                with more.classes("w-full more-values").props("dense"):
                    self._entries.show(part, at, others, stays=stays, where=where)
            for key, names in self._session.fields.lists(part).items():
                heading(key)
                self._inner(path, key, names)
            self._foot(part)

    def _head(self, part: str) -> None:
        section, _, name = part.partition(".")
        if name:
            box = ui.input(value=name).props("dense outlined aria-label=Name").classes("part-name")
            for event in ("blur", "keydown.enter"):
                box.on(event, lambda: self._rename(section, name, box))
            ui.label(noun(section)).classes("text-sm text-slate-500 part-kind")
        else:
            ui.label(section or "Rig").classes("text-lg font-bold")
        ui.label(about(part)).classes("text-sm text-slate-500")

    def _files(self, part: str) -> list[tuple[str, Path]]:
        """The circuit files that a part names, each with what can be done with it."""
        named = self._session.circuits(part).items()
        return [(f"{'Open' if is_there(file) else 'Draw'} {name}", file) for name, file in named]

    def _circuit(self, shown: tuple[str, Path]) -> ui.button:
        text, file = shown
        button = ui.button(text, icon="schema", on_click=lambda: self._show_circuit(file))
        return button.props("flat no-caps dense").classes("open-circuit")

    def _rename(self, section: str, name: str, box: ui.input) -> None:
        new = str(box.value or "").strip()
        if new == name or box.is_deleted:
            return
        if self._guarded(self._session.make, RenameEntry(section, name, new)):
            self._select(f"{section}.{new}")
        else:
            box.set_value(name)

    def _inner(self, path: tuple[str, ...], key: str, names: Sequence[str]) -> None:
        """The entries of a table of this part, which can be removed, and a box for the name of a new one."""
        with ui.row().classes("w-full items-center gap-1"):
            for name in names:
                remove = SetValue((*path, key, name), stays=len(path))
                button = ui.button(name, icon="delete", on_click=lambda edit=remove: self._make(edit))
                button.props("flat no-caps dense size=sm").props["aria-label"] = f"Remove {name} from {key}"
        with ui.row().classes("w-full items-center no-wrap gap-1"):
            box = ui.input(placeholder=f"new name in {key}").props("outlined dense").classes("grow")
            box.props.update({"data-new": key, "aria-label": f"New name in {key}"})

            def add() -> None:
                if name := str(box.value or "").strip():
                    self._make(AddInner((*path, key), name))

            box.on("keydown.enter", add)
            button = ui.button(icon="add", on_click=add).props("flat round dense size=sm")
            button.props["aria-label"] = f"Add to {key}"

    def _make(self, edit: RigEdit) -> None:
        self._guarded(self._session.make, edit)

    def _foot(self, part: str) -> None:
        section, _, name = part.partition(".")
        if section == "channels":
            add = ui.button("Add a limit", icon="add", on_click=lambda: self._add_limit(name))
            add.props("flat no-caps dense")
        if name and SECTIONS[section].is_list:
            remove = ui.button("Remove", icon="delete", on_click=lambda: self._remove(section, name))
            remove.props("flat no-caps dense color=negative")

    def _add_limit(self, channel: str) -> None:
        self._guarded(lambda: self._select(self._session.add("limits", channel=channel)))

    def _remove(self, section: str, name: str) -> None:
        if name in below(self._session.document.table, section):
            self._make(RemoveEntry(section, name))

    def _show_circuit(self, file: Path) -> None:
        self._guarded(self._open, file)
