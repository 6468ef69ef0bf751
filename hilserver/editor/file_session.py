"""A file that is being edited, with what every page that shows it has to know: its problems, and who is told of it."""

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
        """What a user should know from the beginning."""

    @property
    @abstractmethod
    def findings(self) -> Sequence[EditorFinding]:
        """What is wrong with the file as it is now."""

    @abstractmethod
    def look(self) -> None:
        """Look at the document again."""

    @abstractmethod
    def is_about(self, finding: EditorFinding, part: str, key: str) -> bool:
        """Whether a problem is that of a value of a part."""

    def changed(self) -> None:
        """Look at the document again, and tell all pages."""
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
        """Take back the last edit; returns what that was."""
        label = self.document.undo()
        self.changed()
        return label

    def redo(self) -> str:
        """Make it again; returns what that was."""
        label = self.document.redo()
        self.changed()
        return label
