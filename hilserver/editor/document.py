"""A circuit file that is being edited."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hilserver.circuit.library import circuit_library, standard_library
from hilserver.editor.edited_file import EditedFile
from hilserver.editor.edits import Edit
from hilserver.editor.parts import Parts
from hilserver.errors import HilserverError
from hilserver.rig.file_kinds import kind_of
from hilserver.toml import is_there


@dataclass
class CircuitDocument(EditedFile):
    """The text of a circuit file; ``parts``: what its component types know."""

    parts: Parts

    def make(self, edit: Edit) -> None:
        """Make an edit. Raises HilserverError if it can't be made; then nothing is changed."""
        self.apply(edit.changes(self.table, self.parts), edit.label())


def open_circuit(file: Path) -> CircuitDocument:
    """Open a circuit file, or begin a new one. Raises ConfigurationError or HilserverError if that is not possible."""
    if not file.parent.is_dir():
        raise HilserverError(f"{file.parent} is not a folder: create it, or choose another location for the file.")
    if file.suffix != ".toml":
        raise HilserverError(f"{file}: the name of a circuit file ends with .toml.")
    library = circuit_library(file) if is_there(file) else standard_library()
    document = CircuitDocument.open(file, Parts(library, file.parent))
    if (kind := kind_of(document.table)) not in ("", "circuit", "sub-circuit"):
        raise HilserverError(f"{file} is a {kind}, not a circuit: edit it as text.")
    return document
