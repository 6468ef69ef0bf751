"""What a user does to a rig file: each edit says which keys change, or why it can't be made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from hilserver.editor.changes import Change, Drop, Put, Rename
from hilserver.editor.edits import check_name
from hilserver.editor.parts import Table, below
from hilserver.errors import HilserverError
from hilserver.rig.references import NOUNS, references
from hilserver.rig.settings import RigSettings


class RigEdit(Protocol):
    """An edit of a rig file."""

    def label(self) -> str:
        """What it does, in a few words."""

    def changes(self, table: Table) -> Iterable[Change]:
        """The changes of the rig's table. Raises HilserverError with the reason why it can't be made."""


def noun(section: str) -> str:
    """What an entry of a table is called.

    >>> noun("channels"), noun("limits")
    ('channel', 'limit')
    """
    return NOUNS.get(section, "").removeprefix("a ").removeprefix("an ").partition(" ")[0] or section.removesuffix("s")


def _entry(table: Table, section: str, name: str) -> object:
    entries = below(table, section)
    if name not in entries:
        raise HilserverError(f'there is no {noun(section)} "{name}".')
    return entries[name]


@dataclass(frozen=True)
class AddEntry:
    """A new channel, limit, valve, …, with the values that are known of it."""

    section: str
    name: str
    value: Any = field(default_factory=dict)

    def label(self) -> str:
        return f"add {noun(self.section)} {self.name}"

    def changes(self, table: Table) -> Iterator[Change]:
        check_name(self.name, below(table, self.section), noun(self.section))
        yield Put((self.section, self.name), self.value)


@dataclass(frozen=True)
class AddInner:
    """A new entry of a table in an entry, such as a sensor of a simulated device."""

    path: tuple[str, ...]
    name: str

    def label(self) -> str:
        return f"add {self.name} to {'.'.join(self.path)}"

    def changes(self, table: Table) -> Iterator[Change]:
        known = table
        for key in self.path:
            known = below(known, key)
        check_name(self.name, known, f"name in {self.path[-1]}")
        yield Put((*self.path, self.name), {})


@dataclass(frozen=True)
class RemoveEntry:
    """Remove an entry. What refers to it stays, and is a problem until it refers to something else."""

    section: str
    name: str

    def label(self) -> str:
        return f"remove {noun(self.section)} {self.name}"

    def changes(self, table: Table) -> Iterator[Change]:
        _entry(table, self.section, self.name)
        yield Drop((self.section, self.name))


@dataclass(frozen=True)
class RenameEntry:
    """Give an entry another name; what refers to it in the rig file follows."""

    section: str
    name: str
    new: str

    def label(self) -> str:
        return f"rename {noun(self.section)} {self.name} to {self.new}"

    def changes(self, table: Table) -> Iterator[Change]:
        _entry(table, self.section, self.name)
        check_name(self.new, below(table, self.section), noun(self.section))
        for reference in references(RigSettings, table):
            if reference.to.table == self.section and reference.name == self.name:
                yield from self._follow(table, tuple(reference.key.split(".")))
        yield Rename((self.section, self.name), self.new)

    def _follow(self, table: Table, path: tuple[str, ...]) -> Iterator[Change]:
        """A reference is a text, or the key of a table; one in a name with dots can't be followed."""
        found: object = table
        for key in path:
            found = found.get(key) if isinstance(found, Mapping) else None
        if found == self.name:
            yield Put(path, self.new)
        elif found is not None and path[-1] == self.name:
            yield Rename(path, self.new)
