"""A document with what every page that shows it has to know: picture, problems, and who is told of changes."""

from __future__ import annotations

from hilserver.circuit.drawn import LAST
from hilserver.drawing.placed import GRID
from hilserver.drawing.symbols import symbol
from hilserver.editor.checks import CheckedCircuit, EditorFinding, check
from hilserver.editor.document import CircuitDocument
from hilserver.editor.edits import AddComponent, Move, Place
from hilserver.editor.file_session import FileSession
from hilserver.editor.parts import tables
from hilserver.editor.sketch import Sketch, sketch
from hilserver.errors import HilserverError


class EditorSession(FileSession):
    """The circuit that is edited, by one page or several."""

    document: CircuitDocument

    def __init__(self, document: CircuitDocument) -> None:
        super().__init__()
        self.document = document
        self.look()

    @property
    def findings(self) -> tuple[EditorFinding, ...]:
        """What is wrong with the circuit as it is now."""
        return self.checked.findings

    def look(self) -> None:
        """Evaluate the document again."""
        self.sketch: Sketch = sketch(self.document.table, self.document.parts)
        self.checked: CheckedCircuit = check(self.document)

    def is_about(self, finding: EditorFinding, part: str, key: str) -> bool:
        """Whether a problem is that of a value of a part, of a node, or ("") of the circuit itself."""
        where = (f"components.{part}.{finding.key}" if finding.part else finding.key).removeprefix(
            f"components.{part}."
        )
        if finding.node and not finding.part:
            where = finding.key.removeprefix(f"nodes.{part}.")
        return part in (finding.part, finding.node, "") and (
            where == key or where.startswith((f"{key}.", f"{key}[")) or key.startswith(f"{where}.")
        )

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
            raise HilserverError(f"{name} is not drawn as a part of its own: drag it to its position.")

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
