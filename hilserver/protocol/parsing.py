"""Parsing the payload of a command.

It is one JSON object, read strictly: UTF-8 only, no duplicate key, no NaN or infinity, no unknown key, no number
instead of a string. A refusal lists all problems at once, each with its key.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from pydantic import ValidationError

from hilserver.errors import HilserverError, Problem, did_you_mean, dotted, problems_of, shown
from hilserver.protocol.commands import COMMANDS, Command, is_id

PAYLOAD_LIMIT = 64 * 1024
"""Largest payload of a command in bytes."""

NESTING_LIMIT = 32
"""Deepest nesting of lists and objects in a command."""

KEY_LIMIT = 32
"""Maximum number of keys at the top level of a command, so that no payload keeps the server busy listing its
problems."""

PROBLEM_LIMIT = 20
"""Maximum number of problems that an answer lists."""


class PayloadError(HilserverError):
    """A payload that is not a valid command. ``problems``: all of them; ``id``: the payload's, where it is readable."""

    def __init__(self, problems: Iterable[Problem], id: str | None = None) -> None:
        found = list(dict.fromkeys(_one_line(str(problem)) for problem in problems))
        more = len(found) - PROBLEM_LIMIT
        self.problems = tuple(found[:PROBLEM_LIMIT] + ([f"and {more} more problems."] if more > 0 else []))
        self.id = id
        super().__init__("; ".join(self.problems))


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 300 else line[:200] + " ... " + line[-95:]


def read_command(name: str, payload: bytes) -> Command:
    """The command in a message on ``hil/<rig>/command/<name>``; raises PayloadError with all problems."""
    if len(payload) > PAYLOAD_LIMIT:
        size = f"{len(payload) / 1024:.0f} KiB"
        raise _refused(f"the payload has {size}; at most {PAYLOAD_LIMIT // 1024} KiB are read.", leading_id(payload))
    value = _read_json(payload)
    id = value.get("id")
    id = id if isinstance(id, str) and is_id(id) else None
    model = COMMANDS.get(name)
    if model is None:
        raise _refused(f"{shown(name)}: unknown command.{did_you_mean(name, COMMANDS)}", id)
    if len(value) > KEY_LIMIT:
        raise _refused(f"{len(value)} keys: more than any command has. Allowed: {', '.join(model.model_fields)}.", id)
    if flaws := list(_flaws(value, (), 0)):
        raise PayloadError(flaws, id)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise PayloadError(problems_of(error, value, names=model.model_fields), id) from None


def leading_id(payload: bytes) -> str | None:
    """The id of a payload that is too large or malformed: found only where it is the object's first key."""
    match = re.match(rb'\s*\{\s*"id"\s*:\s*"([^"\\]{1,256})"', payload)
    text = match[1].decode(errors="replace") if match else ""
    return text if is_id(text) and "\ufffd" not in text else None


def _refused(message: str, id: str | None = None) -> PayloadError:
    return PayloadError([Problem(message)], id)


def _read_json(payload: bytes) -> dict[str, object]:
    if not payload.strip():
        raise _refused("the payload is empty. A command without arguments is written {}.")
    id = leading_id(payload)
    try:
        value = json.loads(payload.decode("utf-8"), object_pairs_hook=_unique, parse_int=_number)
    except UnicodeDecodeError as error:
        byte = f"byte {error.start + 1} (0x{payload[error.start]:02x})"
        raise _refused(f"{byte} is not UTF-8: the payload must be JSON text.", id) from None
    except json.JSONDecodeError as error:
        raise _refused(f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}.", id) from None
    except RecursionError:
        raise _refused(f"nested too deeply: at most {NESTING_LIMIT} levels are read.", id) from None
    except _KeyTwice as error:
        raise _refused(f"{shown(error.key)}: this key appears twice in one object: which value is meant?", id) from None
    if not isinstance(value, dict):
        kind = "a list" if isinstance(value, list) else "a single value"
        raise _refused(f'{kind} is not a JSON object. Write {{...}} with keys, such as {{"id": "1"}}.')
    return value


class _KeyTwice(Exception):
    def __init__(self, key: str) -> None:
        self.key = key


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) < len(pairs):
        key, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise _KeyTwice(key.encode(errors="replace").decode())
    return result


def _number(text: str) -> int | float:
    return int(text) if len(text) <= 15 else float(text)  # beyond 2**53 an integer is no exact number in JSON


def _flaws(value: object, path: tuple[str | int, ...], depth: int) -> Iterator[Problem]:
    """What JSON allows and a command does not, with its key."""
    if depth > NESTING_LIMIT:
        yield Problem(f"nested too deeply: at most {NESTING_LIMIT} levels are read.", dotted(path[:3]) + "...")
    elif isinstance(value, float) and not math.isfinite(value):
        yield Problem(f"{value} is not a finite number.", dotted(path))
    elif isinstance(value, str) and _has_surrogate(value):
        yield Problem("contains half a character (a lone \\ud800 ... \\udfff).", dotted(path))
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _flaws(item, (*path, position), depth + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            if _has_surrogate(key):
                yield Problem("a key contains half a character (a lone \\ud800 ... \\udfff).", dotted(path))
            else:
                yield from _flaws(item, (*path, key), depth + 1)


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)
