"""Changes that are not saved are kept in a file of their own with each edit, whatever ends the program."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from pathlib import Path

from hilserver.editor.edited_file import EditedFile
from hilserver.errors import HilserverError
from hilserver.toml import replace_file

SUFFIX = ".unsaved"


def kept_before(file: Path) -> list[Path]:
    """The files in which changes of a circuit file are kept that nobody has saved."""
    folders = dict.fromkeys((file.parent, Path.home()))
    return [path for folder in folders for path in sorted(folder.glob(f"{_literal(file.name)}{SUFFIX}*"))]


def _literal(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


class UnsavedChanges:
    """Follows a document: what is not saved is in ``file``, beside the circuit or, if that can't be, in the user's
    own folder; ``problem``: why it can't be kept, if so. A file of an earlier session is never overwritten.
    """

    def __init__(self, document: EditedFile) -> None:
        self.file: Path | None = None
        self.problem = ""
        self._document, self._kept = document, ""

    def keep(self) -> None:
        """Keep what is not saved, if anything."""
        document, self.problem = self._document, ""
        if not document.is_changed:
            self._forget()
        elif self.file is None or document.text != self._kept:
            try:
                self._write(document.text)
            except HilserverError as error:
                self.problem = str(error)

    def _forget(self) -> None:
        if self.file is not None:
            with suppress(OSError):
                self.file.unlink()
            self.file = None

    def _write(self, text: str) -> None:
        if self.file is None:
            try:
                self.file = self._written(self._document.file.parent, text)
            except HilserverError:
                self.file = self._written(Path.home(), text)
        else:
            replace_file(self.file, text)
        self._kept = text

    def _written(self, folder: Path, text: str) -> Path:
        begin = folder / f"{self._document.file.name}{SUFFIX}"
        names = (begin if number == 1 else begin.with_name(f"{begin.name}-{number}") for number in count(1))
        file = next(path for path in names if not path.exists() and not path.is_symlink())
        replace_file(file, text)
        return file
