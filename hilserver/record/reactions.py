"""Where reactions have fired in the rows of a run, as events of the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hilserver.numerics.arrays import Floats
from hilserver.record.format import Event
from hilserver.tick.row import as_whole

REACTION = "reaction"
"""Kind of the event, and key of what a command's event notes of the reaction that it arms."""


class ReactionEvents:
    """Follows the rows of a run, from any one on. ``columns``: names of the row's fixed part."""

    def __init__(self, columns: Sequence[str]) -> None:
        places = {name: column for column, name in enumerate(columns)}
        numbers = range(sum(name.startswith("reaction.") and name.endswith(".count") for name in columns))
        self._columns = [places[f"reaction.{number}.count"] for number in numbers]
        self._counts: Floats | None = None
        self._about: dict[int, Mapping[str, Any]] = {}

    def find(self, rows: Floats, events: Mapping[int, Sequence[Event]]) -> list[tuple[int, Event]]:
        """Each reaction that has fired in these rows: its row, and its event.

        ``events`` are those of the rows; the commands among them tell the reactions' names.
        """
        if not self._columns or len(rows) == 0:
            return []
        counts = as_whole(rows)[:, self._columns].astype(np.float64)
        before = counts[:1] if self._counts is None else self._counts
        fired = np.argwhere(np.diff(counts, axis=0, prepend=before) > 0)
        self._counts = counts[-1:]
        armed = [(row, e[REACTION]) for row in sorted(events) for e in events[row] if REACTION in e]
        found = []
        for row, number in fired.tolist():
            while armed and armed[0][0] <= row:
                self._note(armed.pop(0)[1])
            about = self._about.get(number, {"number": number, "name": f"{number}", "text": "", "then": ""})
            found.append((row, {"kind": REACTION, **about}))
        for _, about in armed:
            self._note(about)
        return found

    def _note(self, about: Mapping[str, Any]) -> None:
        self._about[int(about["number"])] = about


def with_reactions(events: Mapping[int, Sequence[Event]], fired: Sequence[tuple[int, Event]]) -> dict[int, list[Event]]:
    """Events by row, with those of the reactions that have fired."""
    found = {row: list(happened) for row, happened in events.items()}
    for row, event in fired:
        found.setdefault(row, []).append(event)
    return found


def reaction_text(event: Event) -> str:
    """A reaction that has fired, in words.

    >>> reaction_text({"name": "overload", "text": "p_A > 200 bar: stop"})
    'reaction overload: p_A > 200 bar: stop'
    """
    return f"reaction {event['name']}" + (f": {event['text']}" if event["text"] else "")
