"""A file that is being edited, with what all its pages share: its problems, and the listeners to changes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from hilserver.editor.checks import EditorFinding
from hilserver.editor.edited_file import EditedFile


class FileSession(ABC):
    """The file that is edited, by one page or several."""

    document: EditedFile

    def __init__(self) -> None:
        self.listeners: list[Callable[[], None]] = []
        self.notes: list[str] = []
        """What the user should be told at the start."""

    @property
    @abstractmethod
    def findings(self) -> Sequence[EditorFinding]:
        """What is wrong with the file as it is now."""

    @abstractmethod
    def look(self) -> None:
        """Evaluate the document again."""

    @abstractmethod
    def is_about(self, finding: EditorFinding, part: str, key: str) -> bool:
        """Whether a problem is that of a value of a part."""

    def changed(self) -> None:
        """Evaluate the document again, and update all pages."""
        self.look()
        for listener in list(self.listeners):
            listener()

    def make(self, edit: Any) -> None:
        """Make an edit. Raises HilserverError if it can't be made."""
        self.document.make(edit)
        self.changed()

    def try_value(self, edit: Any, part: str, key: str) -> str:
        """Make an edit of a value unless the check then says that this very value is wrong; returns the reason."""
        document = self.document
        before = document.text, list(document.past), list(document.future)
        document.make(edit)
        self.look()
        wrong = [each.text for each in self.findings if self.is_about(each, part, key)]
        if wrong:
            document.text, document.past, document.future = before
            self.look()
            return "\n".join(wrong)
        for listener in list(self.listeners):
            listener()
        return ""

    def undo(self) -> str:
        """Undo the last edit; returns what it was."""
        label = self.document.undo()
        self.changed()
        return label

    def redo(self) -> str:
        """Redo it; returns what it was."""
        label = self.document.redo()
        self.changed()
        return label
