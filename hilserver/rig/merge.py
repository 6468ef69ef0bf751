"""Merges identified or learned values into a file: comments and order are kept, the old file stays as a dated copy."""

from __future__ import annotations

import difflib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from datetime import date, datetime
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.items import InlineTable, Item, Table

from hilserver.errors import HilserverError

NOTE = re.compile(r"(^# *|; )(unchanged; )?([^;]*, )?(identified|learned) on \d{4}-\d{2}-\d{2}$")
"""What an earlier value has brought into the comment of its line."""


def merged(text: str, fragment: str, obsolete: Mapping[str, Iterable[str]], day: date, how: str = "identified") -> str:
    """The text of a rig file with the values of a fragment, and without the ``obsolete`` keys of each valve.

    A value that replaces another keeps the comment of its line. Behind it, the value brings its own, with ``how`` it
    was found and the day, instead of what an earlier one has brought.
    """
    document = tomlkit.parse(text)
    valves: Any = document.get("valves")
    for name, keys in obsolete.items():
        for key in keys:
            valves[name].pop(key, None)
    _merge(document, tomlkit.parse(f"{fragment}\n"), f"{how} on {day}")
    return tomlkit.dumps(document)


def _merge(target: Any, source: Mapping[str, Any], origin: str) -> None:
    for key, value in source.items():
        old: Any = target.get(key)
        if isinstance(value, InlineTable) and isinstance(old, MutableMapping) and not isinstance(old, InlineTable):
            # a flow at a drop, in a table or with dotted keys of its own
            for gone in [each for each in old if each not in value]:
                del old[gone]
            for each, part in value.items():
                if old.get(each) != part:
                    _replace(old, each, part, _note(value, origin))
        elif isinstance(value, Mapping) and not isinstance(value, InlineTable):
            if not isinstance(old, Mapping):
                _put(target, key, tomlkit.inline_table() if isinstance(target, InlineTable) else _empty(value))
            _merge(target[key], value, origin)
        else:
            _replace(target, key, value, _note(value, origin))


def _note(value: Item, origin: str) -> str:
    """What a value of the fragment brings along: its comment, where it comes from, and the day."""
    comment = value.trivia.comment.removeprefix("#").strip()
    return f"{comment}, {origin}" if comment else origin


def _replace(target: Any, key: str, value: Item, note: str) -> None:
    """Set a value, with this note behind the comment of the line. The same value keeps its earlier note."""
    old = target.get(key)
    comment = old.trivia.comment if isinstance(old, Item) else ""
    if old == value and NOTE.search(comment):
        return
    own = NOTE.sub("", comment).rstrip()
    value.trivia.comment_ws = old.trivia.comment_ws if own else "  "
    value.trivia.comment = f"{own}; {note}" if own else f"# {note}"
    _put(target, key, value)


def has_values(fragment: str) -> bool:
    r"""Whether a fragment contains anything to merge, not only tables and comments.

    >>> has_values("[valves.A]\n# f90 = 1\n[valves.A.bridge]"), has_values("[valves.A]\nnull = 0.1")
    (False, True)
    """
    return _has_values(tomlkit.parse(fragment).unwrap())


def _has_values(value: Any) -> bool:
    return any(map(_has_values, value.values())) if isinstance(value, Mapping) else True


def _empty(table: Any) -> Table:
    """A table like this one, without its content."""
    return tomlkit.table(isinstance(table, Table) and table.is_super_table())


def _put(target: Any, key: str, value: Item) -> None:
    """Set a value. A new one stands before the comments at the end of its table: they belong to the next one.

    In an inline table, ``{ a = 1 }``, it stands before the space at the end, and after one of its own.
    """
    body = target.value.body if isinstance(target, Table | InlineTable) else []
    if isinstance(target, InlineTable) and key not in target and len(target):
        value.trivia.indent = " "
    end = len(body)
    while end and body[end - 1][0] is None:
        end -= 1
    after, body[end:] = body[end:], []
    target[key] = value
    body.extend(after)


def difference(before: str, after: str, name: str, how: str) -> str:
    """The changed lines of a file, in the unified format."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), name, f"{name} ({how})", lineterm="")
    return "\n".join(lines)


def replace_keeping_copy(file: Path, text: str, now: datetime, load: Callable[[Path], object]) -> Path:
    """Replace a file by this text and return the copy of the old one, ``NAME.toml.DATE.old``.

    Raises HilserverError if the new file can't be written, or if ``load`` refuses it; then the old one stays as it is.
    """
    file = file.resolve() if file.is_symlink() else file  # a link stays one
    copy = file.with_name(f"{file.name}.{now:%Y-%m-%dT%H-%M-%S}.old")
    part = file.with_name(f".{file.stem}.{os.getpid()}.toml")
    try:
        part.write_text(text)
        shutil.copymode(file, part)
        load(part)
        shutil.copy2(file, copy)
        part.replace(file)
    except OSError as error:
        raise HilserverError(f"{file}: can't be changed: {error.strerror}. Nothing was changed.") from error
    except HilserverError as error:
        why = str(error).replace(str(part), str(file))
        raise HilserverError(f"The new values do not fit. Nothing was changed.\n{why}") from error
    finally:
        part.unlink(missing_ok=True)
    return copy
