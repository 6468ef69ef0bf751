"""Alarms: the faults and warnings that nobody has acknowledged yet, and the history of all events."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from hilserver.protocol.event_text import how_often, without_numbers
from hilserver.protocol.published import Event

ENTRIES_KEPT = 1000


@dataclass
class Entry:
    """One or more equal events. ``text`` and ``tick`` are those of the latest; ``first``, ``last`` in Unix time, s."""

    number: int
    kind: str
    text: str
    tick: int
    first: float
    last: float
    open: bool
    """A fault or warning that nobody has acknowledged."""
    count: int = 1
    varied: bool = False
    """The texts differ, in their numbers."""

    @property
    def times(self) -> str:
        """How often it happened, as it is written before the text; empty for once."""
        return how_often(self.count, self.varied)


class Alarms:
    """The events of a server. Faults and warnings of the same text, numbers apart, are one entry while it is open.

    ``changes`` counts what has changed, for views.
    """

    def __init__(self) -> None:
        self.changes = 0
        self._entries: deque[Entry] = deque(maxlen=ENTRIES_KEPT)
        self._number = 0
        self._heard: dict[tuple[object, ...], None] = {}  # an ordered set

    def add(self, event: Event) -> None:
        """Add an event to the open entry of the same text, or as a new one; one that was heard before changes nothing.

        An event arrives twice: by itself, and among the latest ones, which a server retains.
        """
        known = (event.time, event.tick, event.kind, event.text)
        if known in self._heard:
            return
        self._heard[known] = None
        if len(self._heard) > ENTRIES_KEPT:
            del self._heard[next(iter(self._heard))]
        self.changes += 1
        alarm = event.kind in ("fault", "warning")
        same = next((entry for entry in self._entries if entry.open and _same(entry, event)), None) if alarm else None
        if same is not None:
            same.varied |= same.text != event.text
            same.count, same.text, same.tick, same.last = same.count + 1, event.text, event.tick, event.time
            return
        self._number += 1
        self._entries.append(Entry(self._number, event.kind, event.text, event.tick, event.time, event.time, alarm))

    def acknowledge(self, number: int | None = None) -> None:
        """Acknowledge this entry, or all. A later event of the same text is a new alarm."""
        self.changes += 1
        for entry in self._entries:
            if number in (None, entry.number):
                entry.open = False

    def open(self) -> list[Entry]:
        """The entries that nobody has acknowledged."""
        return [entry for entry in self._entries if entry.open]

    def listed(self, kind: str = "all", words: str = "") -> list[Entry]:
        """Entries of this kind that contain these words: open faults, open warnings, then all others; latest first."""
        rank = {"fault": 0, "warning": 1}
        of_kind = [entry for entry in self._entries if kind in ("all", entry.kind)]
        found = [entry for entry in of_kind if words.lower() in entry.text.lower()]
        return sorted(found, key=lambda entry: (rank[entry.kind] if entry.open else 2, -entry.last, -entry.number))


def _same(entry: Entry, event: Event) -> bool:
    return entry.kind == event.kind and without_numbers(entry.text) == without_numbers(event.text)
