"""Equal events as one entry: of alarms in the panel, and of events in reports."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"(?<![\w.,])\d+(?:[.,]\d+)?(?:e[+-]?\d+)?(?!\w)")


_COUNTED = re.compile(rf"({_NUMBER.pattern} \w+?)s?\b")


def number_of_ticks(count: float) -> str:
    """So many ticks, in words.

    >>> number_of_ticks(1), number_of_ticks(3)
    ('1 tick', '3 ticks')
    """
    return f"{count:.0f} tick{'' if count == 1 else 's'}"


def without_numbers(text: str) -> str:
    """The text of an event without its numbers, the same for events that differ in them only; names remain as they are.

    >>> without_numbers("1 tick missed") == without_numbers("12 ticks missed")
    True
    >>> without_numbers("limit p_1_high is violated: 201.5 bar")
    'limit p_1_high is violated:  bar'
    """
    return _NUMBER.sub("", _COUNTED.sub(r"\1", text))


def how_often(count: int, varied: bool) -> str:
    """What is written before the text of the latest of ``count`` events; ``varied``: their numbers differ.

    >>> how_often(1, False), how_often(3, False), how_often(3, True)
    ('', '3 × ', '3 ×, latest: ')
    """
    return "" if count == 1 else f"{count} ×, latest: " if varied else f"{count} × "
