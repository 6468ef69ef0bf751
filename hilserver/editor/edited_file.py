"""A TOML file that is being edited: its text is the model, every edit changes it, and each can be undone."""

from __future__ import annotations

import tomllib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from hilserver.editor.changes import Change, changed_table, changed_text
from hilserver.errors import HilserverError
from hilserver.toml import parse_toml, replace_file

KEPT = 1000
"""Number of edits that can be undone."""


class ChangedByOthersError(HilserverError):
    """The file on the disk has changed since it was read or saved here."""


@dataclass
class EditedFile(ABC):
    """The text of a file. ``saved``: as on the disk when it was read or written last; None: no file yet."""

    file: Path
    text: str
    saved: str | None
    past: list[tuple[str, str]] = field(default_factory=list, kw_only=True)
    """What can be undone: the text before, and what was done."""
    future: list[tuple[str, str]] = field(default_factory=list, kw_only=True)

    @classmethod
    def open(cls, file: Path, *more: Any) -> Self:
        """Read a file; a new one if there is none. Raises ConfigurationError if it is not TOML in UTF-8."""
        saved = _read(file)
        text = "" if saved is None else saved
        parse_toml(text.encode(), str(file))
        return cls(file, text, saved, *more)

    @property
    def table(self) -> Mapping[str, Any]:
        """The table that the text defines."""
        return tomllib.loads(self.text.removeprefix("\ufeff"))

    @property
    def is_changed(self) -> bool:
        """Whether there is anything to save."""
        return self.text != (self.saved or "")

    @abstractmethod
    def make(self, edit: Any) -> None:
        """Make an edit. Raises HilserverError if it can't be made; then nothing is changed."""

    def apply(self, changes: Iterable[Change], label: str) -> None:
        """Make the changes of an edit, called ``label``. Raises HilserverError if they can't be made; then none is."""
        wanted: Mapping[str, Any] = self.table
        made = list(changes)
        for change in made:
            wanted = changed_table(wanted, change)
        self.replace(_checked(self.text, made, wanted, label), label)

    def replace(self, text: str, label: str) -> None:
        """Another text, as an edit that can be undone. Raises ConfigurationError if it is not TOML."""
        parse_toml(text.encode(), str(self.file))
        if text == self.text:
            return
        self.past.append((self.text, label))
        del self.past[:-KEPT]
        self.future.clear()
        self.text = text

    def undo(self) -> str:
        """Undo the last edit; returns what was undone, "" if there was nothing."""
        return self._go(self.past, self.future)

    def redo(self) -> str:
        """Redo the edit that was undone last."""
        return self._go(self.future, self.past)

    def _go(self, back: list[tuple[str, str]], forth: list[tuple[str, str]]) -> str:
        if not back:
            return ""
        text, label = back.pop()
        forth.append((self.text, label))
        self.text = text
        return label

    def save(self, *, over: bool = False) -> None:
        """Write the file, at once.

        Raises ChangedByOthersError if it was changed on the disk meanwhile, unless it is to be written ``over``;
        HilserverError if it can't be written.
        """
        if not over and self.is_changed_by_others():
            text = f"{self.file} has been changed by somebody else since it was read here."
            raise ChangedByOthersError(text if self.file.exists() else f"{self.file} has been removed in the meantime.")
        replace_file(self.file.resolve(), self.text)  # a link stays one
        self.saved = self.text

    def is_changed_by_others(self) -> bool:
        """Whether the file on the disk differs from the one known here."""
        return _read(self.file) != self.saved

    def reload(self) -> None:
        """Take what is on the disk, as an edit that can be undone."""
        saved = _read(self.file)
        self.replace("" if saved is None else saved, "read the file again")
        self.saved = saved


def _read(file: Path) -> str | None:
    try:
        return file.read_bytes().decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise HilserverError(f"{file}: can't be read: {error}.") from None
    except OSError as error:
        raise HilserverError(f"{file}: can't be read: {error.strerror or error}.") from None


def _checked(text: str, changes: list[Change], wanted: Mapping[str, Any], label: str) -> str:
    """The text with changes, defining the same values as the table. Raises HilserverError if it can't be written so."""
    begin = "\ufeff" if text.startswith("\ufeff") else ""
    try:
        changed = changed_text(text.removeprefix(begin), changes)
        changed.encode()
        if _without_empty(tomllib.loads(changed)) == _without_empty(wanted):
            return begin + changed
    except ValueError:  # what TOML or UTF-8 can't hold
        pass
    text = "the layout of this file or the new value does not allow it. Edit the text instead."
    raise HilserverError(f"can't {label}: {text}")


def _without_empty(value: Any) -> Any:
    """A table without tables that have nothing in them: a header can vanish with its last key."""
    if not isinstance(value, Mapping):
        return value
    inner = {key: _without_empty(each) for key, each in value.items()}
    return {key: each for key, each in inner.items() if each != {}}
