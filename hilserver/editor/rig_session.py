"""A rig file that is being edited: its text, its picture, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hilserver.drawing.flow import FlowPicture, flow_picture
from hilserver.editor.checks import EditorFinding
from hilserver.editor.edited_file import EditedFile
from hilserver.editor.edits import free_name
from hilserver.editor.file_session import FileSession
from hilserver.editor.parts import Table, below
from hilserver.editor.rig_edits import AddEntry, RigEdit, noun
from hilserver.editor.rig_fields import PORTS, SECTIONS, RigFields, circuit_files
from hilserver.editor.rig_flow import CIRCUIT, rig_blocks, rig_lines
from hilserver.errors import ConfigurationError, Problem, with_lines
from hilserver.rig.build import load_rig
from hilserver.rig.notes import notes


@dataclass
class RigDocument(EditedFile):
    """The text of a rig file."""

    def make(self, edit: RigEdit) -> None:
        """Make an edit. Raises HilserverError if it can't be made; then nothing is changed."""
        self.apply(edit.changes(self.table), edit.label())


def rig_findings(document: RigDocument, texts: Mapping[Path, str] | None = None) -> tuple[EditorFinding, ...]:
    """What `hilserver check` says of the rig file as it is edited, but for the margins, which need the whole program.

    ``texts``: of other files that are not as on the disk.
    """
    every = {**(texts or {}), document.file: document.text}
    try:
        rig = load_rig(document.file, texts=every)
    except ConfigurationError as error:
        named = {str(file): text.removeprefix("\ufeff") for file, text in every.items()}
        return tuple(_finding(problem, document) for problem in with_lines(error.problems, texts=named))
    return tuple(_noted(text, document) for text in notes(rig))


def _finding(problem: Problem, document: RigDocument) -> EditorFinding:
    if problem.file not in ("", str(document.file)):
        return EditorFinding(str(problem), problem.key, CIRCUIT, file=problem.file)
    part, key = located(problem.key, document.table)
    return EditorFinding(problem.message, key, part, line=problem.line)


def _noted(text: str, document: RigDocument) -> EditorFinding:
    key, _, rest = text.partition(": ")
    part, inner = located(key, document.table)
    return EditorFinding(rest if part else text, inner if part else "", part, is_note=True)


def located(key: str, table: Table) -> tuple[str, str]:
    """The part of a rig file in which a key is, "" for the rig itself, and the rest of the key."""
    section, _, rest = key.partition(".")
    if section not in SECTIONS:
        return "", key
    if not SECTIONS[section].is_list:
        return section, rest
    names = (n for n in below(table, section) if rest == n or rest.startswith((f"{n}.", f"{n}[")))
    name = max(names, key=len, default="")
    return (f"{section}.{name}", rest.removeprefix(name).lstrip(".")) if name else ("", key)


class RigSession(FileSession):
    """The rig file that is edited, by one page or several; ``texts``: of other files that are edited beside it."""

    document: RigDocument

    def __init__(self, document: RigDocument, texts: Callable[[], Mapping[Path, str]] = dict) -> None:
        super().__init__()
        self.document, self._texts = document, texts
        self.look()

    @property
    def findings(self) -> tuple[EditorFinding, ...]:
        """What is wrong with the rig as it is now."""
        return self._findings

    def look(self) -> None:
        """Evaluate the document again."""
        table = self.document.table
        self.picture: FlowPicture = flow_picture(rig_blocks(table), rig_lines(table))
        self.fields = RigFields(table, self.document.file.parent)
        self._findings = rig_findings(self.document, self._texts())

    def is_about(self, finding: EditorFinding, part: str, key: str) -> bool:
        """Whether a problem is that of this value itself, or of one in it."""
        where = finding.key
        own = where == key or (bool(key) and where.startswith((f"{key}.", f"{key}[")))
        return finding.part == part and own and not finding.file and not finding.is_note

    def add(self, section: str, **more: object) -> str:
        """Add an entry to a table, called as such entries are; returns its part."""
        table = self.document.table
        name = free_name(noun(section), below(table, section))
        value: object = {**self.fields.single(section), **more}
        if section == PORTS:
            taken = set(map(str, below(table, PORTS).values()))
            channels = self.fields.of(f"{PORTS}.{name}")[0].info.choices
            value = next((channel for channel in channels if channel not in taken), "")
        self.make(AddEntry(section, name, value))
        return f"{section}.{name}"

    def circuits(self, part: str) -> dict[str, Path]:
        """The circuit files that a part names, by how it names them: the rig's own, those of simulated devices.

        One that does not exist yet can be begun.
        """
        named = circuit_files(self.document.table).get(part, ())
        return {name: self.document.file.parent / name for name in named if "\0" not in name}
