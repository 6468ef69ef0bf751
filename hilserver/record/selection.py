"""The columns of a row that are recorded: those that a replay needs, and the signals that were chosen.

What is left out is computed again by a replay. For that it needs whole rows to start from: they are in the log as
events, the *snapshots*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise

import numpy as np

from hilserver.numerics.arrays import Floats
from hilserver.record.format import FORMAT, SNAPSHOT, Event, LogHeader, circuit_event, is_circuit
from hilserver.units import CIRCUIT

ALWAYS = (
    *("raw.*", "age.*", "errors.*", "confirmed.*", "confirmed_age.*"),
    *("input.*", "limit.*", "playout.*"),
)
"""Recorded in any case, with the header of the row: what the tick gets from outside, and what a report is about."""
SNAPSHOT_EVERY = 1000
"""Rows from one snapshot to the next: as many may remain unverified behind lost ones."""


def is_recorded(name: str, signals: Sequence[str]) -> bool:
    """Whether a column, or a value of the circuit (``circuit.<name>``), is recorded with this choice; ``()``: all.

    >>> [is_recorded(name, ["channel.p_*"]) for name in ("tick", "raw.x", "channel.p_A", "channel.x", "circuit.main.x")]
    [True, True, True, False, False]
    """
    if not signals or "." not in name:
        return True
    return any(fnmatchcase(name, pattern) for pattern in (*ALWAYS, *signals))


class ChosenColumns:
    """Takes the chosen columns out of the rows of a run, and adds the snapshots.

    ``header`` is that of the log with these columns, given that of whole rows with its ``signals``.
    """

    def __init__(self, whole: LogHeader) -> None:
        self._signals, self._names = whole.signals, whole.columns
        self._fixed = [place for place, name in enumerate(self._names) if is_recorded(name, self._signals)]
        self._circuit, self._width = self._places(whole.circuit_names)
        columns = tuple(self._names[place] for place in self._fixed)
        changes = {
            "format": FORMAT,
            "row": whole.columns,
            "columns": columns,
            "whole": tuple(name for name in whole.whole if name in set(columns)),
            "circuit_names": self._kept(whole.circuit_names),
        }
        self.header = whole.model_copy(update=changes)
        self._since = SNAPSHOT_EVERY

    def take(self, rows: Floats, events: Mapping[int, Sequence[Event]]) -> tuple[Floats, dict[int, list[Event]]]:
        """The chosen columns of the next whole rows, and their events with the snapshots.

        Snapshots are of the first row, of every 1000th one, and of those before which rows were lost.
        """
        found = {row: list(happened) for row, happened in events.items()}
        taken = np.empty((len(rows), rows.shape[1] - len(self._names) + len(self._fixed)))
        due = self._due(len(rows), found)
        switches = {row for row, happened in found.items() if any(map(is_circuit, happened))}
        for begin, end in pairwise([*sorted({0, *switches}), len(rows)]):
            if begin in switches:
                found[begin] = [self._switched(event) if is_circuit(event) else event for event in found[begin]]
            places = [*self._fixed, *self._circuit]
            taken[begin:end, : len(places)] = rows[begin:end, places]
            for row in (row for row in due if begin <= row < end):
                found.setdefault(row, []).append({"kind": SNAPSHOT, "row": rows[row, : self._width].copy()})
        return taken, found

    def _due(self, count: int, events: Mapping[int, Sequence[Event]]) -> set[int]:
        due = set(range(SNAPSHOT_EVERY - self._since, count, SNAPSHOT_EVERY))
        self._since = count - max(due) if due else self._since + count
        return due | {row for row, happened in events.items() if any(event["kind"] == "lost" for event in happened)}

    def _switched(self, event: Event) -> Event:
        """The event of a switch, with the names of the values that are recorded."""
        names = event["names"]
        self._circuit, self._width = self._places(names)
        return circuit_event(self._kept(names), event["packed"])

    def _kept(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(name for name in names if is_recorded(f"{CIRCUIT}{name}", self._signals))

    def _places(self, names: Sequence[str]) -> tuple[list[int], int]:
        """The places of the chosen values of a circuit in the row, and the width of the row."""
        start, kept = len(self._names), set(self._kept(names))
        return [start + place for place, name in enumerate(names) if name in kept], start + len(names)
