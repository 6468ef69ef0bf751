"""The list of what happened in a run: faults first, equal warnings as one entry, so that no flood hides a fault."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hilserver.protocol.event_text import how_often, without_numbers

MAX_EVENTS = 200
"""Maximum number of faults, and of other events, in a report."""
Kind = Literal["fault", "warning", ""]


@dataclass
class Listed:
    """An event of the list, or several that are equal but for their numbers.

    ``time``: of the first, ``last``: of the latest; s. The text is that of the latest, ``varied``: others differ from
    it.
    """

    time: float
    tick: int
    text: str
    kind: Kind = ""
    count: int = 1
    last: float = 0.0
    varied: bool = False

    def cells(self) -> tuple[str, str, str]:
        """The row of the table."""
        if self.count == 1:
            return f"{self.time:.3f}", f"{self.tick}", self.text
        return f"{self.time:.3f} … {self.last:.3f}", f"{self.tick}", how_often(self.count, self.varied) + self.text


class EventList:
    """The events of a run, of which the first are kept. ``dropped``: number of those that are not listed."""

    def __init__(self) -> None:
        self.dropped = 0
        self._faults: list[Listed] = []
        self._others: list[Listed] = []
        self._warnings: dict[str, Listed] = {}

    def add(self, event: Listed) -> None:
        """Add an event, in any order within a batch of the log."""
        event.last = event.time
        known = self._warnings.get(without_numbers(event.text)) if event.kind == "warning" else None
        if known is not None:
            known.count, known.varied = known.count + 1, known.varied or event.text != known.text
            if event.time >= known.last:
                known.last, known.text = event.time, event.text
            if event.time < known.time:
                known.time, known.tick = event.time, event.tick
            return
        if event.kind == "warning":
            self._warnings[without_numbers(event.text)] = event
        (self._faults if event.kind == "fault" else self._others).append(event)

    def shorten(self) -> None:
        """Put the events in order, and keep the first `MAX_EVENTS` of the faults, and of all others."""
        for events in (self._faults, self._others):
            events.sort(key=lambda event: (event.time, event.tick))
            for event in events[MAX_EVENTS:]:
                self.dropped += event.count
                if event.kind == "warning":
                    self._warnings.pop(without_numbers(event.text), None)
            del events[MAX_EVENTS:]

    def listed(self) -> list[Listed]:
        """The events in the order of the list."""
        return self._faults + self._others
