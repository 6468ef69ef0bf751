"""The files that are open in an editor: the one that was named, and the circuits that are opened from there."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from hilserver.editor.document import open_circuit
from hilserver.editor.file_session import FileSession
from hilserver.editor.kept import UnsavedChanges, kept_before
from hilserver.editor.rig_session import RigDocument, RigSession
from hilserver.editor.session import EditorSession
from hilserver.errors import HilserverError
from hilserver.rig.file_kinds import kind_of
from hilserver.toml import is_there, read_plain_toml

_NEW_RIG = 'name = "{name}"\n\n[loop]\nrate = "1 kHz"\n'
"""What a rig file begins with: enough to be known as one when it is opened again."""


class OpenFiles:
    """Opens the file that was named. Raises HilserverError or ConfigurationError if that is not possible."""

    def __init__(self, file: Path) -> None:
        self._sessions: dict[Path, FileSession] = {}
        self._unsaved: list[UnsavedChanges] = []
        self.followers: list[Callable[[], None]] = []
        """Called when the first file becomes that of a rig."""
        path = _place(file)
        self.first: FileSession = self._take(path, self._opened(path))

    def open(self, file: Path) -> FileSession:
        """The session of a file, which is opened if it is not yet. Raises HilserverError or ConfigurationError."""
        path = _place(file)
        if path not in self._sessions:
            session = self._take(path, self._opened(path))
            if isinstance(self.first, RigSession):
                session.listeners.append(self.first.changed)  # it is checked with the circuits as they are drawn
        return self._sessions[path]

    def _take(self, path: Path, session: FileSession) -> FileSession:
        for earlier in kept_before(path):
            session.notes.append(f"{earlier} contains unsaved changes: compare it with the file, then remove it.")
        unsaved = UnsavedChanges(session.document)
        session.listeners.append(unsaved.keep)
        self._unsaved.append(unsaved)
        self._sessions[path] = session
        return session

    @property
    def can_become_rig(self) -> bool:
        """Whether there is nothing yet in the file that was named."""
        return isinstance(self.first, EditorSession) and not self.first.document.text.strip()

    def is_of_rig(self, session: EditorSession) -> bool:
        """Whether a circuit is what a rig runs, and not the machine of one of its devices."""
        rig = self.first
        if not isinstance(rig, RigSession):
            return session is rig
        named = rig.document.table.get("circuit")
        return isinstance(named, str) and self._sessions.get(_place(rig.document.file.parent / named)) is session

    def begin_rig(self) -> None:
        """Make the file that was named a rig file, unless there is something in it."""
        if not self.can_become_rig:
            raise HilserverError(f"{self.first.document.file.name} is not empty: begin the rig in a new file.")
        path, before = next((path, each) for path, each in self._sessions.items() if each is self.first)
        document = RigDocument(before.document.file, before.document.text, before.document.saved)
        name = re.sub(r"[^A-Za-z0-9_-]|^(?![A-Za-z_])", "_", path.stem)[:40]
        document.replace(_NEW_RIG.format(name=name), "begin a rig")
        self.first = RigSession(document, self.texts)
        self._take(path, self.first)
        self.first.changed()
        for follower in list(self.followers):
            follower()

    def _opened(self, path: Path) -> FileSession:
        if path.suffix == ".toml" and is_there(path) and kind_of(read_plain_toml(path)) == "rig":
            return RigSession(RigDocument.open(path), self.texts)
        return EditorSession(open_circuit(path))

    def texts(self) -> dict[Path, str]:
        """The texts of open files that are not saved."""
        return {path: each.document.text for path, each in self._sessions.items() if each.document.is_changed}

    @property
    def kind(self) -> str:
        """What the file is that was named."""
        return "Rig" if isinstance(self.first, RigSession) else "Circuit"

    def kept(self) -> Iterator[str]:
        """Keep what is not saved; yields where it is kept, or why it is lost."""
        for unsaved in self._unsaved:
            unsaved.keep()
            if unsaved.file is not None:
                yield f"Not saved: your changes are kept in {unsaved.file}."
            if unsaved.problem:
                yield f"Your last changes are lost: {unsaved.problem}"


def _place(file: Path) -> Path:
    """The file as messages name it: links are kept."""
    return Path(os.path.normpath(file.absolute()))
