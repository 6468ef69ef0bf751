"""A TOML text in pieces: sections under their headers, and in them statements; together they are the text again.

What a person wrote keeps its comments, order and spaces, since only the pieces that an edit concerns are written anew.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import tomlkit

Path = tuple[str, ...]
"""Of a value: ``("components", "pump", "speed")``."""
_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|[\[\]{}=\n]', re.DOTALL
)
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_IN_ARRAY = "[[]]"
"""Stands in the path of a header ``[[…]]``: nothing below it is edited."""


@dataclass
class Statement:
    """A line (or several) of a section: its text up to the value, the value, the rest. A comment has no path."""

    head: str
    value: str = ""
    rest: str = ""
    path: Path = ()
    """Of the key, from its section."""

    @property
    def text(self) -> str:
        """The statement as written in the file."""
        return self.head + self.value + self.rest

    def parsed(self) -> Any:
        """The value."""
        return tomllib.loads(f"x = {self.value}")["x"]


@dataclass
class TomlSection:
    """A header with the comment right above it, its statements, and what follows the last one of these.

    The first section of a file has no header.
    """

    path: Path = ()
    lead: list[str] = field(default_factory=list)
    header: str = ""
    statements: list[Statement] = field(default_factory=list)
    tail: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The section as written in the file."""
        return "".join((*self.lead, self.header, *(each.text for each in self.statements), *self.tail))


def read_sections(text: str) -> list[TomlSection]:
    """The sections of a valid TOML text; the first one has no header and may be empty."""
    sections = [TomlSection()]
    for line in _lines(text):
        if line.lstrip(" \t").startswith("["):
            before = sections[-1]
            sections.append(TomlSection(_header_path(line), _lead(before), line))
        elif not line.strip() or line.lstrip().startswith("#"):
            sections[-1].tail.append(line)
        else:
            here = sections[-1]
            here.statements += [Statement(comment) for comment in here.tail]
            here.tail = []
            here.statements.append(_statement(line))
    return sections


def _lead(before: TomlSection) -> list[str]:
    """Take the comment that ends a section's tail without a blank line after it: it belongs to the next header."""
    lead: list[str] = []
    while before.tail and before.tail[-1].strip():
        lead.insert(0, before.tail.pop())
    if lead and not before.tail:  # right below the last key, it is of that; at the beginning, of the whole file
        before.tail, lead = lead, []
    return lead


def _lines(text: str) -> Iterator[str]:
    """The lines of a TOML text; values over several lines count as one."""
    start = depth = 0
    for token in _TOKEN.finditer(text):
        word = token[0]
        if word in "[{":
            depth += 1
        elif word in "]}":
            depth -= 1
        elif word == "\n" and depth <= 0:
            yield text[start : token.end()]
            start, depth = token.end(), 0
    if start < len(text):
        yield text[start:]


def _header_path(line: str) -> Path:
    path: list[str] = []
    found: Any = tomllib.loads(line)
    while found:
        if isinstance(found, list):
            path.append(_IN_ARRAY)
            found = found[0]
        else:
            name, found = next(iter(found.items()))
            path.append(name)
    return tuple(path)


def _statement(line: str) -> Statement:
    equals, end, depth = -1, len(line), 0
    for token in _TOKEN.finditer(line):
        if token[0] == "=" and equals < 0:
            equals = token.end()
        elif token[0] in ("[", "{"):
            depth += 1
        elif token[0] in ("]", "}"):
            depth -= 1
        elif token[0].startswith("#") and depth == 0:
            end = token.start()
            break
    value = line[equals:end]
    begin = equals + len(value) - len(value.lstrip())
    until = equals + len(value.rstrip())
    path: list[str] = []
    found: Any = tomllib.loads(f"{line[:equals]} 0")
    while isinstance(found, dict):
        name, found = next(iter(found.items()))
        path.append(name)
    return Statement(line[:begin], line[begin:until], line[until:], tuple(path))


def key_text(path: Path) -> str:
    """A key as it is written.

    >>> key_text(("components", "pump 1"))
    'components."pump 1"'
    """
    return ".".join(name if _BARE.fullmatch(name) else tomlkit.string(name).as_string() for name in path)


def value_text(value: object) -> str:
    """A value as a person writes it, on one line.

    >>> value_text({"flow": "40 l/min", "points": [[1, 2.5]]}), value_text(True)
    ('{ flow = "40 l/min", points = [[1, 2.5]] }', 'true')
    """
    if isinstance(value, Mapping):
        inner = ", ".join(f"{key_text((name,))} = {value_text(each)}" for name, each in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(value_text, value))}]"
    return str(tomlkit.item(value).as_string())
