"""A test sequence as a table from a spreadsheet: one line per time."""

from __future__ import annotations

import csv
import json
import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, TextIO

from hilserver.errors import ConfigurationError, Problem, shown

_LIMIT = re.compile(r"(?P<channel>\S+)\s+(?P<bound>min|max|value)(\s*[(\[](?P<unit>[^)\]]*)[)\]])?")

JUST_BEFORE = 1e-6
"""The limits of a line hold until this time, s, before the next line, when its commands have no effect yet."""


def read_csv(path: Path) -> dict[str, Any]:
    """Read the table into the structure of a TOML file. Raises ConfigurationError naming the line.

    Columns: ``time`` (s); ``send``: a command as for ``hilserver send``; ``fault``: likewise, such as ``stuck
    sensor=p_A``; ``<channel> min (bar)`` and ``<channel> max (bar)``: limits from the line's time up to that of the
    next; ``<channel> value``: an exact value, ``mode value`` by name; ``delay``: s allowed to get within the limits;
    any other column is an operator input, which holds its value until the next line.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            (_, head), *lines = [(number, line) for number, line in _numbered(file) if any(line)]
    except FileNotFoundError:
        raise ConfigurationError([Problem("no such file.", file=str(path))]) from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigurationError([Problem(f"can't be read: {error}.", file=str(path))]) from None
    except ValueError:
        raise ConfigurationError([Problem("is empty.", file=str(path))]) from None
    if "time" not in head or len(lines) < 1:
        raise ConfigurationError(
            [Problem("a column time and at least one line below the header are required.", file=str(path))]
        )
    problems: list[Problem] = []
    rows = []
    for number, line in lines:
        row = dict(zip(head, [*line, *[""] * (len(head) - len(line))], strict=False))
        if (at := _number(row["time"])) is None or len(line) > len(head):
            wrong = f"{len(line)} cells for {len(head)} columns" if at is not None else f"time {shown(row['time'])}"
            problems.append(Problem(f"{wrong}: can't be read.", file=str(path), line=number))
        else:
            rows.append((number, at, row))
    if early := [number for (_, before, _), (number, at, _) in pairwise(rows) if at <= before]:
        problems.append(Problem("the times must increase from one line to the next.", "time", str(path), early[0]))
    source = _source(head, rows, problems, str(path)) if rows else {}
    if problems:
        raise ConfigurationError(problems)
    return source


def _numbered(file: TextIO) -> Iterator[tuple[int, list[str]]]:
    """The rows of a table with the lines on which they begin: a cell in quotes may have several lines."""
    reader, number = csv.reader(file), 1
    for row in reader:
        yield number, [cell.strip() for cell in row]
        number = reader.line_num + 1


_Rows = list[tuple[int, float, dict[str, str]]]


def _source(head: list[str], rows: _Rows, problems: list[Problem], file: str) -> dict[str, Any]:
    done: dict[str, list[dict[str, Any]]] = {"send": [], "fault": []}
    expected: list[dict[str, Any]] = []
    inputs: dict[str, Any] = {}
    ends = [*(f"{at - JUST_BEFORE} s" for _, at, _ in rows[1:]), None]
    for column in head:
        limit = _LIMIT.fullmatch(column)
        for (number, at, row), end in zip(rows, ends, strict=True):
            text, time = row[column], f"{at} s"
            if not text or column in ("time", "delay"):
                continue
            try:
                if column in done:
                    done[column].append({"at": time, **_words(column, text)})
                elif limit is not None:
                    is_mode = (limit["channel"], limit["bound"]) == ("mode", "value")
                    band = {limit["bound"]: text if is_mode else _quantity(text, limit["unit"] or "")}
                    until = {"until": end} if end is not None else {}
                    until |= {"delay": f"{_plain(delay)} s"} if (delay := row.get("delay")) else {}
                    expected.append({"channel": limit["channel"], "at": time, **until, **band})
                else:
                    points = inputs.setdefault(column, {"shape": "hold", "points": []})["points"]
                    points.append([time, _plain(text)])
            except ValueError as error:
                problems.append(Problem(str(error), column, file, number))
    length = f"{rows[-1][1]} s"
    return {"length": length, "step": done["send"], "fault": done["fault"], "inputs": inputs, "expect": expected}


def _words(column: str, text: str) -> dict[str, Any]:
    """``switch component=relief set.opening_pressure="100 bar"`` as a table; ``column``: the key of its first word."""
    name, *words = shlex.split(text)
    command: dict[str, Any] = {column: name}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise ValueError(f"{shown(word)} is not of the form key=value.")
        table, _, rest = key.partition(".")
        target: dict[str, Any] = command.setdefault(table, {}) if rest else command
        target[rest or key] = _value(value)
    return command


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _quantity(text: str, unit: str) -> object:
    value = _plain(text)
    return f"{value} {unit}" if unit else value


def _plain(text: str) -> float:
    value = _number(text)
    if value is None:
        raise ValueError(f"{shown(text)} is not a number.")
    return value


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
