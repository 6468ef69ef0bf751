"""What reactions and playouts have done in the rows of a run, as events of the log."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hilserver.numerics.arrays import Floats, Integers
from hilserver.record.format import Event
from hilserver.tick.codes import Mode, PlayoutState, ReactionState
from hilserver.tick.row import as_whole

REACTION, PLAYOUT = "reaction", "playout"
"""Kinds of the events, and keys of what a command's event notes of the reaction or playout that it begins."""
DISARMED = "disarmed"
"""Kind of the event of a reaction that a switch of the circuit has disarmed."""
ROW_EVENTS = (REACTION, PLAYOUT, DISARMED)
"""All kinds."""
TOLD = {
    PlayoutState.CONTROLLED: "the response is within its tolerance",
    PlayoutState.COMPLETED: "all cycles are done",
    PlayoutState.DEVIATED: "ended: the response is out of its tolerance",
    PlayoutState.ENDED: "ended by a command",
    PlayoutState.ABORTED: "aborted: the run has ended, its input was set, or the circuit was switched",
}
"""The states of playouts that are events."""
WAITING = (ReactionState.ARMED, ReactionState.WATCHING, ReactionState.HOLDING)
"""The states of reactions that a switch can end."""


def columns_looked_at(columns: Sequence[str]) -> list[int]:
    """Of the row's fixed part, the columns that `RowEvents` needs: none in a rig without reactions and playouts."""
    fields = ((REACTION, "count"), (REACTION, "state"), (REACTION, "repeats"), (PLAYOUT, "state"), (PLAYOUT, "count"))
    found = [column for kind, field in fields for column in _columns_of(tuple(columns), kind, field)]
    return [*(columns.index(name) for name in ("circuit_version", "mode")), *found] if found else []


class RowEvents:
    """Follows the rows of a run, from any one on. ``columns``: their names, see `columns_looked_at`."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._counts, self._states = _Followed(columns, REACTION, "count"), _Followed(columns, REACTION, "state")
        self._repeats = _Followed(columns, REACTION, "repeats")
        self._playouts = _Followed(columns, PLAYOUT, "state")
        self._version: int | None = None
        self._head = [list(columns).index(name) for name in ("circuit_version", "mode")] if self._states.exist else []
        self._cycles = _columns_of(tuple(columns), PLAYOUT, "count")

    def find(self, rows: Floats, events: Mapping[int, Sequence[Event]]) -> list[tuple[int, Event]]:
        """Each reaction that has fired or was disarmed by a switch, and each new state of a playout: row and event.

        ``events`` are those of the rows; the commands among them tell the names.
        """
        found: list[tuple[int, Event]] = []
        for row, before, now, about in self._counts.changes(rows, events):
            if now > before:
                found.append((row, {"kind": REACTION, **about}))
        switches = self._switches(rows)
        for row, before, now, about in self._states.changes(rows, events):
            if row in switches and before in WAITING and now == ReactionState.FREE:
                found.append((row, {"kind": DISARMED, **about}))
        for row, before, now, about in self._repeats.changes(rows, events):
            if row in switches and before > now:  # it completes its ramp first
                found.append((row, {"kind": DISARMED, **about}))
        for row, _, now, about in self._playouts.changes(rows, events):
            if now in TOLD:
                cycles = int(as_whole(rows)[row, self._cycles[int(about["number"])]])
                found.append((row, {"kind": PLAYOUT, **about, "state": PlayoutState(now).name, "cycles": cycles}))
        return sorted(found, key=lambda entry: entry[0])

    def _switches(self, rows: Floats) -> set[int]:
        """The rows with another circuit than the row before, in which reactions may still be armed."""
        if len(rows) == 0 or not self._states.exist:
            return set()
        versions, modes = as_whole(rows)[:, self._head].T
        new = np.diff(versions, prepend=versions[0] if self._version is None else self._version) != 0
        self._version = int(versions[-1])
        return set(np.flatnonzero(new & np.isin(modes, (Mode.ARMED, Mode.RUNNING))).tolist())


@functools.lru_cache(maxsize=64)
def _columns_of(columns: tuple[str, ...], kind: str, field: str) -> list[int]:
    """The columns of a field of all records of a kind, in the order of their numbers."""
    places = {name: column for column, name in enumerate(columns)}
    numbers = range(sum(name.startswith(f"{kind}.") and name.endswith(f".{field}") for name in columns))
    return [places[f"{kind}.{number}.{field}"] for number in numbers]


class _Followed:
    """A whole number of numbered records, such as ``reaction.0.count``, and what commands noted of each record."""

    def __init__(self, columns: Sequence[str], kind: str, field: str) -> None:
        self._kind = kind
        self._columns = _columns_of(tuple(columns), kind, field)
        self.exist = bool(self._columns)
        self._last: Integers | None = None
        self._about: dict[int, Mapping[str, Any]] = {}

    def changes(
        self, rows: Floats, events: Mapping[int, Sequence[Event]]
    ) -> list[tuple[int, int, int, Mapping[str, Any]]]:
        """Row, value before and value, and what is known of the record, for each change."""
        if not self.exist or len(rows) == 0:
            return []
        values = as_whole(rows)[:, self._columns]
        before = np.concatenate([values[:1] if self._last is None else self._last, values[:-1]])
        self._last = values[-1:].copy()
        noted = [(row, e[self._kind]) for row in sorted(events) for e in events[row] if self._kind in e]
        found = []
        for row, number in np.argwhere(values != before).tolist():
            while noted and noted[0][0] <= row:
                self._note(noted.pop(0)[1])
            about = self._about.get(number, {"number": number, "name": f"{number}", "text": "", "then": ""})
            found.append((row, int(before[row, number]), int(values[row, number]), about))
        for _, about in noted:
            self._note(about)
        return found

    def _note(self, about: Mapping[str, Any]) -> None:
        self._about[int(about["number"])] = about


def with_row_events(
    events: Mapping[int, Sequence[Event]], found: Sequence[tuple[int, Event]]
) -> dict[int, list[Event]]:
    """Events by row, with those that were found in the rows."""
    merged = {row: list(happened) for row, happened in events.items()}
    for row, event in found:
        merged.setdefault(row, []).append(event)
    return merged


def row_event_text(event: Event) -> str:
    """Such an event in words.

    >>> row_event_text({"kind": "reaction", "name": "overload", "text": "p_A > 200 bar: stop"})
    'reaction overload: p_A > 200 bar: stop'
    >>> row_event_text({"kind": "playout", "name": "fatigue", "text": "x", "state": "COMPLETED", "cycles": 1000})
    'playout fatigue: all cycles are done; 1000 cycles'
    """
    if event["kind"] == PLAYOUT:
        return f"playout {event['name']}: {TOLD[PlayoutState[event['state']]]}; {event['cycles']} cycles"
    if event["kind"] == DISARMED:
        return f"reaction {event['name']} is disarmed: it watched a value of the circuit that was switched"
    return f"reaction {event['name']}" + (f": {event['text']}" if event["text"] else "")
