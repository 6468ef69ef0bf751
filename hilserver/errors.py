"""Errors for the user: the problem, its place (file, key, value) and its remedy."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

MOST_MEANT = 3
"""Number of names beyond which a hint lists all that are allowed."""
CHANNEL = "channel."
"""Beginning of the columns of a log that hold the values of the channels."""


class HilserverError(Exception):
    """Base of all errors that hilserver raises on purpose; its text is a sentence for the user."""


@dataclass(frozen=True)
class Problem:
    """One problem in a configuration or a message.

    ``key`` is the dotted path of the value (``components.relief.override[1]``), ``file`` the file that contains it.
    ``line`` counts from 1; 0 if it is not known (see `with_lines`).
    """

    message: str
    key: str = ""
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        file = f"{self.file}:{self.line}" if self.file and self.line else self.file
        return ": ".join(part for part in (file, self.key, self.message) if part)


class ConfigurationError(HilserverError):
    """A configuration or a request that can't be used; ``problems`` lists all problems, not only the first.

    As a text it names the line of each key in its file, as far as the file is there.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(map(str, with_lines(self.problems)))


def with_lines(
    problems: Iterable[Problem], folder: Path = Path(), texts: Mapping[str, str] | None = None
) -> list[Problem]:
    """The problems with the lines of their keys, as far as their files are TOML files that exist.

    ``folder``: which names of files may be relative to, instead of to the working folder. ``texts``: by name of file,
    instead of what is on the disk.
    """
    from hilserver.toml_lines import key_lines, toml_text  # not needed where nothing is wrong: hilserver send stop

    given = texts or {}

    @cache  # once per file
    def lines(file: str) -> Callable[[str], int]:
        return key_lines(given[file] if file in given else toml_text(folder / file) or toml_text(Path(file)))

    return [p if p.line or not p.file else replace(p, line=lines(p.file)(p.key)) for p in problems]


@contextmanager
def collected(problems: list[Problem]) -> Iterator[None]:
    """Add the problems of a ConfigurationError to others, instead of stopping at it.

    >>> found = []
    >>> with collected(found):
    ...     raise ConfigurationError([Problem("is wrong.")])
    >>> found
    [Problem(message='is wrong.', key='', file='', line=0)]
    """
    try:
        yield
    except ConfigurationError as error:
        problems += error.problems


class DriverError(HilserverError):
    """A device that can't be opened, read or written; names the device and, if known, the channel."""


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """`` Did you mean x?`` for other names of a choice and for similar words, otherwise the list of allowed names.

    A word without a dot means a plain name, or the value of a channel, rather than ``raw.x`` or ``age.x``.

    >>> did_you_mean("piston_diameter", ["bore", "stroke"]), did_you_mean("rod", ["bore", "rod_diameter"])
    (' Did you mean bore?', ' Did you mean rod_diameter?')
    >>> did_you_mean("p_A", ["age.p_A", "channel.p_A", "raw.p_A"])
    ' Did you mean channel.p_A?'
    """
    names = sorted(choices)
    found: list[str] = []
    if "." not in word:
        found = _similar(word, [name for name in names if "." not in name])
        channels = [name.removeprefix(CHANNEL) for name in names if name.startswith(CHANNEL)]
        found = found or [CHANNEL + name for name in _similar(word, channels)]
    found = found or _similar(word, names)
    return _meant(found) or (f" Allowed: {', '.join(names)}." if names else "")


def _nearest(value: object, expected: str) -> str:
    """`` Did you mean x?`` if the value is similar to a few of the expected ones, which are quoted in a list."""
    found = _similar(value, re.findall("'([^']*)'", expected)) if isinstance(value, str) else []
    return _meant(found)


def _meant(found: Sequence[str]) -> str:
    return f" Did you mean {' or '.join(found)}?" if 0 < len(found) <= MOST_MEANT else ""


def _similar(word: str, names: Sequence[str]) -> list[str]:
    """The names that a word may mean, by the closest kind of similarity that there is."""
    from hilserver.key_synonyms import keys_called  # not needed where nothing is wrong: hilserver send stop

    found = [name for name in names if name.casefold() == word.casefold()][:1]
    found = found or [name for name in keys_called(word) if name in names]
    found = found or [name for name in names if _words(word) <= _words(name)]
    found = found or difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return found or [name for name in names if _words(name) <= _words(word)]


def _words(name: str) -> set[str]:
    return set(name.casefold().split("_"))


def as_sentence(error: object) -> str:
    """A message with a full stop, unless it ends with one, or with a question."""
    text = str(error)
    return text if text.endswith((".", "?")) else f"{text}."


def dotted(location: Sequence[str | int]) -> str:
    """``("override", 1)`` -> ``override[1]``."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else str(part))
    return text


def shown(value: object) -> str:
    """A value as the user wrote it, shortened to one line of at most 60 characters."""
    try:
        text = f'"{value[:100]}"' if isinstance(value, str) else repr(value)
    except (ValueError, RecursionError):  # a whole number of thousands of digits, a list nested a thousand times
        text = f"this {type(value).__name__}"
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "..."


_TYPE_WORDS = {
    "string": "a string in quotes",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "dict": "a table",
    "model": "a table",
    "list": "a list",
    "tuple": "a list",
}


def problems_of(
    error: ValidationError, raw: object, *, file: str = "", prefix: str = "", names: Iterable[str] = ()
) -> list[Problem]:
    """The problems of a pydantic error in the user's words.

    ``raw`` is the value that was validated (to quote what the user wrote), ``names`` the keys allowed at the top level;
    given as a model's fields, they also define the keys allowed at lower levels.
    """
    found = []
    for entry in error.errors(include_url=False):
        location = tuple(
            part for part in entry["loc"] if part not in _INTERNAL and not str(part).startswith("function-")
        )
        of_key = entry["loc"][-1:] == ("[key]",)  # the key itself is wrong, not the value there
        value = entry["input"] if of_key else _lookup(raw, location, entry["input"])
        key = ".".join(part for part in (prefix, dotted(location)) if part)
        text = _sentence(entry, value, _names_at(names, location[:-1]))
        found.append(Problem(*_at_its_key(text, key, _names_at(names, location)), file))
    return found


_NAMED = re.compile(r"((\w+)(?:\.\w+)*): (.+)", re.DOTALL)


def _at_its_key(text: str, key: str, names: Iterable[str]) -> tuple[str, str]:
    """A text on the table ``key`` that names one of its keys first, ``safe: …``: without it, and the key in full."""
    named = _NAMED.fullmatch(text)
    if named is None or named[2] not in names:
        return text, key
    return named[3], f"{key}.{named[1]}".removeprefix(".")


_INTERNAL = {"__root__", "[key]"}

_PATTERN_WORDS = {
    r"^[A-Za-z0-9_-]{1,40}$": "1 to 40 letters, digits, - and _",
    r"^[A-Za-z_][A-Za-z0-9_-]{0,39}$": "1 to 40 letters, digits, - and _, and begin with a letter or _",
    r"^[^\x00-\x1f\x7f]*$": "a single line without control characters",
}


def _lookup(raw: object, location: Sequence[str | int], default: object) -> object:
    for part in location:
        if isinstance(raw, Mapping) and part in raw:
            raw = raw[part]
        elif isinstance(raw, Sequence) and not isinstance(raw, str) and isinstance(part, int) and part < len(raw):
            raw = raw[part]
        else:
            return default
    return raw


def _names_at(names: Iterable[str], location: Sequence[str | int]) -> Iterable[str]:
    """The keys allowed in the table at ``location``, as far as the models' fields tell."""
    inside: Any = None
    for part in location:
        field = names.get(str(part)) if isinstance(names, Mapping) else None
        inside = _model_in(field.annotation) if isinstance(field, FieldInfo) else inside  # else: an entry of a table
        names = inside.model_fields if inside is not None else ()
    return names


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that a field's type consists of: ``Dither``, ``Leakage | None``, ``dict[str, ChannelSettings]``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in get_args(annotation) if (model := _model_in(part))), None)


_AMOUNT = re.compile(r"\s*([+-]?[\d.]+(?:[eE][+-]?\d+)?)\s*(.*)")


def _limit(limit: float, value: object, si: object) -> str:
    """A limit in the unit in which the user wrote the value, of which ``si`` is the value in SI units."""
    written = _AMOUNT.fullmatch(value) if isinstance(value, str) else None
    if written is None or not isinstance(si, float):
        return f"{limit:g}"
    number, unit = written.groups()
    if limit and not si:
        return f"{limit:g} (SI unit)"
    return f"{limit and limit * float(number) / si:.6g} {unit.strip()}".rstrip()


def _is_table(field: object) -> bool:
    if not isinstance(field, FieldInfo):
        return False
    kind: Any = get_origin(field.annotation) or field.annotation
    return isinstance(kind, type) and issubclass(kind, BaseModel | Mapping)


def _sentence(entry: Any, value: object, names: Iterable[str]) -> str:
    kind, context = entry["type"], entry.get("ctx", {})
    if kind == "extra_forbidden":
        return "unknown key." + did_you_mean(str(entry["loc"][-1]), names)
    if kind == "missing":
        name = str(entry["loc"][-1])
        if isinstance(names, Mapping) and _is_table(names.get(name)):
            return f"missing: the table {name} must be given."
        return "missing: this value has no default and must be given."
    bounds = {"greater_than": ">", "greater_than_equal": ">=", "less_than": "<", "less_than_equal": "<="}
    if kind in bounds:
        limit = context[{">": "gt", ">=": "ge", "<": "lt", "<=": "le"}[bounds[kind]]]
        return f"{shown(value)} is out of range: must be {bounds[kind]} {_limit(limit, value, entry['input'])}."
    if kind in ("literal_error", "enum"):
        return f"{shown(value)} is not one of {context['expected']}.{_nearest(value, context['expected'])}"
    if kind == "finite_number":
        return f"{shown(value)} is not a finite number."
    if kind == "string_pattern_mismatch" and context["pattern"] in _PATTERN_WORDS:
        return f"{shown(value)} must be {_PATTERN_WORDS[context['pattern']]}."
    if kind in ("value_error", "assertion_error"):
        return str(context.get("error", entry["msg"]))
    for word, meaning in _TYPE_WORDS.items():
        if kind.startswith(word) and kind.endswith(("_type", "_parsing", "_from_float")):
            return f"{shown(value)} is not {meaning}."
    return f"{shown(value)}: {entry['msg']}."
