"""A document with what every page that shows it has to know: picture, problems, and who is told of changes."""

from __future__ import annotations

from collections.abc import Callable

from hilserver.circuit.drawn import LAST
from hilserver.drawing.placed import GRID
from hilserver.drawing.symbols import symbol
from hilserver.editor.checks import CheckedCircuit, CircuitFinding, check
from hilserver.editor.document import CircuitDocument
from hilserver.editor.edits import AddComponent, Edit, Move, Place
from hilserver.editor.parts import tables
from hilserver.editor.sketch import Sketch, sketch
from hilserver.errors import HilserverError


class EditorSession:
    """The document that is edited, by one page or several."""

    def __init__(self, document: CircuitDocument) -> None:
        self.document = document
        self.listeners: list[Callable[[], None]] = []
        self.notes: list[str] = []
        """What a user should know from the beginning."""
        self._look()

    def _look(self) -> None:
        self.sketch: Sketch = sketch(self.document.table, self.document.parts)
        self.checked: CheckedCircuit = check(self.document)

    def changed(self) -> None:
        """Look at the document again, and tell all pages."""
        self._look()
        for listener in list(self.listeners):
            listener()

    def make(self, edit: Edit) -> None:
        """Make an edit. Raises HilserverError if it can't be made."""
        self.document.make(edit)
        self.changed()

    def try_value(self, edit: Edit, part: str, key: str) -> str:
        """Make an edit of a value unless the check then says that this very value is wrong; returns the reason."""
        document = self.document
        before = document.text, list(document.past), list(document.future)
        document.make(edit)
        wrong = [each.text for each in check(document).findings if _is_about(each, part, key)]
        if wrong:
            document.text, document.past, document.future = before
            return "\n".join(wrong)
        self.changed()
        return ""

    def undo(self) -> str:
        """Take back the last edit; returns what that was."""
        label = self.document.undo()
        self.changed()
        return label

    def redo(self) -> str:
        """Make it again; returns what that was."""
        label = self.document.redo()
        self.changed()
        return label

    def add(self, kind: str, at: tuple[float, float] | None, **more: object) -> str:
        """Add a component with the middle of its symbol at a point of the drawing, or where there is room.

        Returns its name. Raises HilserverError if it can't be added.
        """
        drawn = symbol(kind)
        width, height = (drawn.width, drawn.height) if drawn is not None else (80.0, 80.0)
        place = self._free_place() if at is None else _place(at[0] - width / 2, at[1] - height / 2)
        edit = AddComponent(kind, place, values=dict(more))
        name = edit.called(self.document.table)
        self.make(edit)
        return name

    def move(self, name: str, by: tuple[float, float], to: tuple[float, float] | None = None) -> None:
        """Move a part by a distance in the drawing; it snaps to columns and rows.

        ``to``: where a tank is put that was drawn only at the ports that lead to it.
        """
        item = next((each for each in self.sketch.drawing.items if each.part.name == name), None)
        if item is not None:
            self.make(Move({name: _place(item.x + by[0], item.y + by[1])}))
        elif to is not None:
            self.make(Move({name: _place(to[0] - GRID, to[1])}))
        else:
            raise HilserverError(f"{name} is not drawn as a part of its own: drag it to where it should stand.")

    def keep_places(self) -> None:
        """Write the places of all parts into the file, as they are drawn now."""
        known = {*tables(self.document.table, "components"), *self.document.parts.nodes(self.document.table)}
        self.make(Move({name: place for name, place in self.sketch.places.items() if name in known}))

    def _free_place(self) -> Place:
        """Below everything."""
        drawing = self.sketch.drawing
        low = max((item.y + item.symbol.height for item in drawing.items), default=0.0)
        return _place(2 * GRID, low + 2 * GRID)


def _place(x: float, y: float) -> Place:
    column, row = (min(max(round(value / GRID), 0), LAST) for value in (x, y))
    return column, row


def _is_about(finding: CircuitFinding, part: str, key: str) -> bool:
    where = (f"components.{part}.{finding.key}" if finding.part else finding.key).removeprefix(f"components.{part}.")
    if finding.node and not finding.part:
        where = finding.key.removeprefix(f"nodes.{part}.")
    return part in (finding.part, finding.node, "") and (
        where == key or where.startswith((f"{key}.", f"{key}[")) or key.startswith(f"{where}.")
    )
