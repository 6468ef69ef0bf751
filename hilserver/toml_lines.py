"""The lines of a TOML file: the position of each key, so that a message can name the line.

`tomllib` and tomlkit give no positions; of the parsers that do, one is unmaintained (spanned-toml), the other a
compiled grammar without the notion of a table (tree-sitter). So a text that `tomllib` accepts is read once more here.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class TomlPlace:
    """The position of a value in a text: its characters ``start`` to ``end``; of a table, those of its header or key.

    ``parts``: of a table by key, of a list by number.
    """

    start: int = 0
    end: int = 0
    parts: dict[str | int, TomlPlace] = field(default_factory=dict)

    @property
    def table(self) -> TomlPlace:
        """Itself; of a list of tables the last one, which the headers and keys that follow belong to."""
        return self.parts[len(self.parts) - 1] if 0 in self.parts else self

    def part(self, keys: Iterable[str], start: int) -> TomlPlace:
        """The table that a dotted key leads to from here; those that do not exist yet begin at ``start``."""
        here = self
        for key in keys:
            here = here.table.parts.setdefault(key, TomlPlace(start, start))
        return here


def places(text: str) -> TomlPlace:
    """The places of all keys and values of a TOML text. Raises ValueError if it is not valid TOML."""
    tomllib.loads(text)
    return _Reader(text).places()


def line_of(text: str, key: str) -> int:
    r"""The line on which the value of a key (``channels.p_A.scale``, ``points[1]``) begins in a TOML text, from 1.

    Of a key that is missing, that of the table where it is missing; 0 if there is none, or the text is not valid TOML.
    (A table without a header begins with its first part: its line is not given for what is missing in another part.)

    >>> line_of("[loop]\nrate = 5", "loop.rate"), line_of("[loop]\nrate = 5", "loop.cpus")
    (2, 1)
    """
    return key_lines(text)(key)


def key_lines(text: str) -> Callable[[str], int]:
    """Like `line_of`, for many keys of one text: it is read once."""
    lines = _lines(text)
    return lambda key: _line(lines, key)


def _lines(text: str) -> dict[str, tuple[int, bool]]:
    """The line of each key, as messages write it, and whether it is written (a table without a header is not).

    None of a text that is not valid TOML. Of two keys written the same in messages (``"a.b"``, ``a.b``), the first.
    """
    breaks, lines = [found.start() for found in re.finditer("\n", text)], dict[str, tuple[int, bool]]()
    try:
        for key, place in _keys(places(text)):
            lines.setdefault(key, (bisect_left(breaks, place.start) + 1, place.end > place.start))
    except (ValueError, RecursionError):
        return {}
    return lines


def _keys(place: TomlPlace, prefix: str = "") -> Iterator[tuple[str, TomlPlace]]:
    """All places in a place with their keys."""
    for name, part in place.parts.items():
        key = f"{prefix}[{name}]" if isinstance(name, int) else f"{prefix}.{name}".removeprefix(".")
        yield key, part
        yield from _keys(part, key)


def _line(lines: Mapping[str, tuple[int, bool]], key: str) -> int:
    """The line of a key, or of as much of its beginning as is written."""
    missing = 0
    while key and key not in lines:
        key, missing = key[: max(key.rfind("."), key.rfind("["), 0)], missing + 1
    line, written = lines[key] if key else (0, False)
    return line if written or missing < 2 else 0


def toml_text(file: Path) -> str:
    """The text of a TOML file; empty if it can't be read, or not a second time, as with a pipe."""
    try:
        return file.read_bytes().decode("utf-8-sig") if file.suffix == ".toml" and file.is_file() else ""
    except (OSError, ValueError):
        return ""


_STRING = r'"""(?:\\.|[^\\])*?"""(?:"{0,2})' r"|'''.*?'''(?:'{0,2})" r'|"(?:\\.|[^"\\])*"' r"|'[^']*'"
_VALUE = re.compile(rf"{_STRING}|[^\s,\]}}#](?:[^,\]}}#\r\n]*[^\s,\]}}#])?", re.DOTALL)
_KEY = re.compile(r'"(?:\\.|[^"\\])*"' r"|'[^']*'" r"|[A-Za-z0-9_-]+", re.DOTALL)
_SPACE, _BLANK = re.compile(r"[ \t]*"), re.compile(r"(?:\s|#[^\n]*)*+")


class _Reader:
    """Reads a text that is valid TOML."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def places(self) -> TomlPlace:
        whole = TomlPlace()
        table = whole
        while self._skip(_BLANK) < len(self._text):
            if self._text[self._at] == "[":
                table = self._header(whole)
            else:
                self._pair(table)
        return whole

    def _skip(self, pattern: re.Pattern[str]) -> int:
        """Go behind what matches here; returns where that is."""
        found = pattern.match(self._text, self._at)
        assert found is not None  # the text is valid TOML
        self._at = found.end()
        return self._at

    def _header(self, whole: TomlPlace) -> TomlPlace:
        start, brackets = self._at, 2 if self._text.startswith("[[", self._at) else 1
        self._at += brackets
        keys = self._keys()
        self._at += brackets
        found = whole.part(keys, start)
        if brackets == 2:
            found = found.parts.setdefault(len(found.parts), TomlPlace())
        found.start, found.end = start, self._at
        return found

    def _keys(self) -> list[str]:
        """The parts of a dotted key."""
        keys = list[str]()
        while not keys or self._text[self._at] == ".":
            self._at += bool(keys)  # behind the dot
            start = self._skip(_SPACE)
            written = self._text[start : self._skip(_KEY)]
            keys.append(tomllib.loads(f"key = {written}")["key"] if written[0] in "\"'" else written)
            self._skip(_SPACE)
        return keys

    def _pair(self, table: TomlPlace) -> None:
        start = self._at
        *outer, last = self._keys()
        self._at += 1  # behind the =
        self._skip(_SPACE)
        table.part(outer, start).parts[last] = self._value()

    def _value(self) -> TomlPlace:
        found = TomlPlace(self._at)
        opening = self._text[self._at]
        if opening in "[{":
            self._at += 1
            while self._text[self._skip(_BLANK)] not in "]}":
                if self._text[self._at] == ",":
                    self._at += 1
                elif opening == "{":
                    self._pair(found)
                else:
                    found.parts[len(found.parts)] = self._value()
            self._at += 1
        else:
            self._skip(_VALUE)
        found.end = self._at
        return found
