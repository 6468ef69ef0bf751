"""The three changes of which all edits consist, made in a table, and in the TOML text of that table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hilserver.editor.toml_parts import Path, Statement, TomlSection, key_text, read_sections, value_text


@dataclass(frozen=True)
class Put:
    """Give a key this value, a new one or another one. Tables that lead to it are made."""

    path: Path
    value: Any


@dataclass(frozen=True)
class Drop:
    """Remove a key, with everything below it."""

    path: Path


@dataclass(frozen=True)
class Rename:
    """Give the last key of a path another name, in its table."""

    path: Path
    name: str


Change = Put | Drop | Rename
WITH_HEADERS = ("components", "devices", "valves", "actuators", "cylinders", "motors")
"""The tables whose entries have many values, so that each gets a header of its own unless the others have none.

In such an entry, a table of entries gets one, too, such as the sensors of a device; these have a line each.
"""


def changed_table(table: Mapping[str, Any], change: Change) -> dict[str, Any]:
    """A table with a change."""
    first, *rest = change.path
    if rest:
        inner = table.get(first, {})
        below = _below(change, tuple(rest))
        return {**table, first: changed_table(inner if isinstance(inner, Mapping) else {}, below)}
    if isinstance(change, Put):
        return {**table, first: change.value}
    if isinstance(change, Drop):
        return {key: value for key, value in table.items() if key != first}
    return {change.name if key == first else key: value for key, value in table.items()}


def _below(change: Change, path: Path) -> Change:
    if isinstance(change, Put):
        return Put(path, change.value)
    return Drop(path) if isinstance(change, Drop) else Rename(path, change.name)


def changed_text(text: str, changes: Iterable[Change]) -> str:
    """A TOML text with changes; everything else stays as it is, to the byte."""
    written = _Text(text)
    for change in changes:
        written.make(change)
    return "".join(section.text for section in written.sections)


class _Text:
    def __init__(self, text: str) -> None:
        self.end = "\r\n" if "\r\n" in text else "\n"
        self.sections = read_sections(text)

    def make(self, change: Change) -> None:
        if isinstance(change, Put):
            self.put(change.path, change.value)
        elif isinstance(change, Drop):
            self.drop(change.path)
        else:
            self.rename(change.path, change.name)

    def put(self, path: Path, value: Any) -> None:
        if self._inside(path, lambda table, rest: changed_table(table, Put(rest, value))):
            return
        known = self._statement(path)
        if known is not None:
            known.value = value_text(value)
            return
        if self._has(path):
            self.drop(path)
        self._add(path, value)

    def drop(self, path: Path) -> None:
        if self._inside(path, lambda table, rest: changed_table(table, Drop(rest))):
            return
        for section in self.sections:
            if len(section.path) < len(path):
                gone = [each for each in section.statements if each.path and _starts(section.path + each.path, path)]
                section.statements = [each for each in section.statements if all(each is not one for one in gone)]
        for k in range(len(self.sections) - 1, 0, -1):
            if _starts(self.sections[k].path, path):
                self._take_out(k)

    def rename(self, path: Path, name: str) -> None:
        if self._inside(path, lambda table, rest: changed_table(table, Rename(rest, name))):
            return
        at = len(path) - 1
        for section in self.sections:
            whole = section.path
            if _starts(whole, path):
                begin, end = section.header.index("["), section.header.rindex("]", 0, _comment(section.header)) + 1
                section.path = (*whole[:at], name, *whole[at + 1 :])
                section.header = f"{section.header[:begin]}[{key_text(section.path)}]{section.header[end:]}"
                continue
            for each in section.statements:
                full = whole + each.path
                if each.path and _starts(full, path):
                    each.path = (*full[:at], name, *full[at + 1 :])[len(whole) :]
                    key = each.head[: each.head.rindex("=")]
                    indent, spaces = key[: len(key) - len(key.lstrip())], key[len(key.rstrip()) :]
                    each.head = f"{indent}{key_text(each.path)}{spaces}{each.head[len(key) :]}"

    def _inside(self, path: Path, changed: Callable[[Mapping[str, Any], Path], object]) -> bool:
        """Change a value within an inline table; returns whether there was one."""
        for section in self.sections:
            for each in section.statements:
                full = section.path + each.path
                if each.path and len(full) < len(path) and _starts(path, full):
                    table = each.parsed()
                    each.value = value_text(changed(table if isinstance(table, Mapping) else {}, path[len(full) :]))
                    return True
        return False

    def _statement(self, path: Path) -> Statement | None:
        every = ((section, each) for section in self.sections for each in section.statements if each.path)
        return next((each for section, each in every if section.path + each.path == path), None)

    def _has(self, path: Path) -> bool:
        """Whether there is anything at this path or below it."""
        return any(
            _starts(section.path, path)
            or any(_starts(section.path + each.path, path) for each in section.statements if each.path)
            for section in self.sections
        )

    def _add(self, path: Path, value: Any) -> None:
        """Write a key that is not there."""
        parent = path[:-1]
        home = next((section for section in self.sections if section.path == parent), None)
        if isinstance(value, Mapping) and (not parent or (path[0] == "components" and len(path) == 2)):
            self._add_section(path, value)
        elif home is not None and home.header and path[0] in WITH_HEADERS and len(path) == 3 and _has_entries(value):
            self._add_section(path, value)
        elif home is not None:
            self._append(home, path[len(parent) :], value)
        elif (dotted := self._dotted(parent)) is not None:
            self._append(dotted, path[len(dotted.path) :], value)
        elif isinstance(value, Mapping) and self._has(parent):
            self._add_section(path, value)
        elif self._has(parent):
            self._add_section(parent, {path[-1]: value})
        elif isinstance(value, Mapping) and path[0] in WITH_HEADERS and len(path) == 2:
            self._add_section(path, value)
        else:
            self.put(parent, {path[-1]: value})

    def _dotted(self, parent: Path) -> TomlSection | None:
        """The section that makes this table by dotted keys."""
        shorter = [section for section in self.sections if len(section.path) < len(parent)]
        made = (s for s in shorter if any(each.path and _starts(s.path + each.path, parent) for each in s.statements))
        return next(made, None)

    def _append(self, section: TomlSection, key: Path, value: Any) -> None:
        if not section.header and not section.statements and section.tail:  # below the comment that begins the file
            section.statements = [Statement(line) for line in section.tail]
            section.tail = [self.end] if len(self.sections) > 1 else []
        before = section.statements[-1] if section.statements else None
        if before is not None and not before.text.endswith("\n"):
            before.rest += self.end
        elif before is None and section.header and not section.header.endswith("\n"):
            section.header += self.end
        section.statements.append(Statement(f"{key_text(key)} = ", value_text(value), self.end, key))

    def _add_section(self, path: Path, value: Mapping[str, Any]) -> None:
        """Write a table below a header of its own: behind the others of its kind, else at the end."""
        headed = [(k, section.path) for k, section in enumerate(self.sections) if section.header]
        alike = [k for k, of in headed if _starts(of, path[:2])] or [k for k, of in headed if _starts(of, path[:1])]
        after = alike[-1] if alike and len(path) > 1 else len(self.sections) - 1
        new = TomlSection(path, [], f"[{key_text(path)}]{self.end}")
        for name, each in value.items():
            self._append(new, (name,), each)
        before = self.sections[after]
        if before.text and not before.text.endswith("\n"):
            before.tail.append(self.end)
        if after + 1 < len(self.sections):
            new.tail, before.tail = before.tail, []
            if not any(not line.strip() for line in new.tail):
                new.tail.append(self.end)
        if "".join(section.text for section in self.sections[: after + 1]).strip() and (
            not before.tail or before.tail[-1].strip()
        ):
            before.tail.append(self.end)
        self.sections.insert(after + 1, new)

    def _take_out(self, k: int) -> None:
        """Remove a section; comments behind it that are not its own stay, and no blank line too many."""
        gone, before = self.sections.pop(k), self.sections[k - 1]
        while gone.tail and not gone.tail[0].strip() and before.tail and not before.tail[-1].strip():
            gone.tail.pop(0)
        before.tail += gone.tail
        while not before.text.strip() and before.tail:  # nothing comes before: no blank line at the beginning
            before.tail.pop(0)
        if k == len(self.sections):
            while before.tail and not before.tail[-1].strip():
                before.tail.pop()


def _has_entries(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(value) and all(isinstance(each, Mapping) for each in value.values())


def _starts(path: Path, with_: Path) -> bool:
    return path[: len(with_)] == with_


def _comment(header: str) -> int:
    """Where the comment behind a header begins."""
    depth = 0
    quote = ""
    for k, letter in enumerate(header):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "[]":
            depth += 1 if letter == "[" else -1
        elif letter == "#" and not depth:
            return k
    return len(header)
