"""TOML files: rig, circuit, work cycle, sequence, calibration, broker login; layouts and notes of the log viewer."""

from __future__ import annotations

import copy
import os
import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hilserver.errors import ConfigurationError, HilserverError, Problem

_LINE = re.compile(r"\(at line (\d+), column \d+\)")
"""How tomllib names the place of a syntax error."""


def read_toml(path: Path, shown_as: str = "") -> dict[str, Any]:
    """Parse a TOML file. Raises ConfigurationError naming the file, and the line of a syntax error.

    Values with a tolerance are `hilserver.tolerances.Toleranced`: the value, which carries its tolerance.
    ``shown_as``: the name of the file in errors, instead of its path.
    """
    name = shown_as or str(path)
    return _with_tolerances(read_plain_toml(path, name), name)


def read_plain_toml(path: Path, shown_as: str = "") -> dict[str, Any]:
    """Like `read_toml`, for files whose texts are words of a person: a ± in them means no tolerance."""
    name = shown_as or str(path)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        text = "no such file."
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        text = f"can't be read: {getattr(error, 'strerror', '') or error}."
    else:
        return parse_toml(content, name)
    raise ConfigurationError([Problem(text, file=name)])


def is_there(path: Path) -> bool:
    """Whether there is a file of this name; not if no file can have it, or nothing can be known of it."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def parse_toml(content: bytes, name: str) -> dict[str, Any]:
    """Parse the content of a TOML file. Raises ConfigurationError with its ``name``, and the line of a syntax error."""
    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        text = f"can't be read: {error}."
    except (ValueError, RecursionError) as error:  # also integers of thousands of digits, lists nested too deeply
        text = f"the file is not valid TOML: {error}."
    line = _LINE.search(text)
    raise ConfigurationError([Problem(text, file=name, line=int(line[1]) if line else 0)])


def parse_with_tolerances(content: bytes, name: str) -> dict[str, Any]:
    """Like `parse_toml`, with tolerances as `read_toml` reads them."""
    return _with_tolerances(parse_toml(content, name), name)


def copied(table: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a table at any depth; an order of magnitude faster than that of any objects."""
    return {key: _copied(value) for key, value in table.items()}


def _copied(value: Any) -> Any:
    if isinstance(value, float | int | str):
        return value
    if isinstance(value, Mapping):
        return copied(value)
    if isinstance(value, list):
        return [_copied(entry) for entry in value]
    return copy.deepcopy(value)


def replace_file(path: Path, text: str) -> None:
    """Write a text file at once: whoever reads it sees the old or the new text, never half of it. Its mode is kept.

    Raises HilserverError if it can't be written.
    """
    part = path.with_name(path.name + ".part")
    try:
        with part.open("w", encoding="utf-8") as new:
            with suppress(OSError):  # a new file
                os.fchmod(new.fileno(), path.stat().st_mode & 0o777)
            new.write(text)
            new.flush()
            os.fsync(new.fileno())
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise HilserverError(f"{path}: can't be written: {error.strerror or error}.") from error


def _with_tolerances(table: dict[str, Any], name: str) -> dict[str, Any]:
    from hilserver.tolerances import with_tolerances  # not needed where no file is read: hilserver send stop

    problems: list[Problem] = []
    found = with_tolerances(table, name, problems)
    if problems:
        raise ConfigurationError(problems)
    return found
