"""Cuts: windows of a recording around triggers, each in a file of its own, while the recording itself goes on.

A cut is a log like a later part of a recording: it begins with any row, names the file that it was taken from, and can
be replayed on its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.numerics.arrays import Floats, Integers
from hilserver.record.crossings import Crossings, Edge
from hilserver.record.format import CIRCUIT, Event, LogHeader, RecordError, is_circuit
from hilserver.record.row_events import REACTION
from hilserver.record.writer import LogWriter
from hilserver.tick.row import header, headers

FOLDER = "cuts"
"""Folder of the cuts, within that of the recordings: there, they do not count for `keep`."""
MOST, LONGEST = 1000, 10
"""Cuts of one recorder, and length of one in windows of its trigger; a condition that is met again and again must not
fill the disk."""


@dataclass(frozen=True)
class CutTrigger:
    """A trigger: a signal crosses a level, a mode begins, or an event happens; the window around it in rows.

    ``column``: of the row's fixed part, or ``circuit.<value>``; level and hysteresis (see `Crossings`) in SI.
    ``once``: it is disarmed when it has occurred. ``armed``: tells it from the one of this name that it replaces.
    """

    name: str
    text: str
    before: int
    after: int
    column: str = ""
    edge: Edge = "rising"
    level: float = 0.0
    hysteresis: float = 0.0
    mode: int = -1
    event: str = ""
    once: bool = False
    armed: int = 0


@dataclass
class _Rows:
    """Successive rows of one circuit, the number of the first one in the run, the header of a log that begins there."""

    first: int
    rows: Floats
    events: dict[int, list[Event]]
    header: LogHeader
    circuit: int

    @property
    def end(self) -> int:
        return self.first + len(self.rows)


@dataclass
class _Open:
    """A cut that is being written: the next row, the row behind the last one, and where that is at the latest."""

    writer: LogWriter
    next: int
    end: int
    latest: int
    finders: list[_Finder]
    """Those that it was written for."""


class TriggeredCuts:
    """Looks for triggers in the rows of a recording, and writes the cuts to ``folder``.

    ``written`` are the files of the finished cuts since it was last emptied; ``news``: a cut was begun or finished, to
    be reset by the caller. A cut that can't be written ends all cuts and is told in ``trouble``; it never raises: the
    recording goes on.
    """

    def __init__(self, folder: Path, first: LogHeader, triggers: Sequence[CutTrigger]) -> None:
        self.written: list[str] = []
        self.trouble = ""
        self.news = False
        self._folder = folder
        self._header, self._circuit, self._row = first, first.first_circuit, first.first_row
        self._finders: list[_Finder] = []
        self._past: deque[_Rows] = deque()
        self._open: _Open | None = None
        self._count = 0
        self.watch(triggers)

    def watch(self, triggers: Sequence[CutTrigger]) -> None:
        """Look for these triggers from now on, and for no others. Those that it knows already go on as they are."""
        known = {finder.trigger: finder for finder in self._finders}
        self._finders = [known.get(trigger) or _Finder(trigger, self._header.columns) for trigger in triggers]
        self._kept = max((trigger.before for trigger in triggers), default=0)
        self.news = True

    def states(self) -> dict[str, dict[str, Any]]:
        """By trigger: as which it was ``armed``, how often it has occurred, whether its window is being written, and
        the file of the last one that is complete."""
        return {
            finder.trigger.name: {
                "armed": finder.trigger.armed,
                "count": finder.count,
                "writing": self._open is not None and finder in self._open.finders,
                "file": finder.file,
            }
            for finder in self._finders
        }

    def take(self, rows: Floats, events: Mapping[int, Sequence[Event]], source: Path) -> None:
        """Take the next rows of the recording, which are in the file ``source``, with their events."""
        if self.trouble:
            return
        try:
            for part in self._by_circuit(rows, events):
                self._past.append(part)
                found = [(row, finder) for finder in self._finders for row in finder.find(part)]
                for row, finder in sorted(found, key=lambda occurrence: occurrence[0]):
                    self._trigger(part, row, finder, source)
                self._write()
                while self._past and self._past[0].end <= self._row - self._kept:
                    self._past.popleft()
        except (RecordError, OSError) as error:
            self.trouble = f"triggered recordings end here: {error}"
            self.close()

    def flush(self) -> None:
        """Hand what is pending to the operating system."""
        if self._open is not None:
            try:
                self._open.writer.flush()
            except (RecordError, OSError) as error:
                self.trouble = f"triggered recordings end here: {error}"
                self.close()

    def close(self) -> None:
        """End the cut that is being written, as far as it has come."""
        if self._open is None:
            return
        done, self._open = self._open, None
        try:
            done.writer.close()
            self.written.append(str(done.writer.path))
            self.news = True
            for finder in done.finders:
                finder.file = str(done.writer.path)
        except (RecordError, OSError) as error:
            self.trouble = f"triggered recordings end here: {error}"

    def _by_circuit(self, rows: Floats, events: Mapping[int, Sequence[Event]]) -> Iterator[_Rows]:
        """The rows, in parts of one circuit."""
        switches = [row for row in sorted(events) if any(map(is_circuit, events[row]))]
        for begin, end in zip([0, *switches], [*switches, len(rows)], strict=True):
            if begin in switches:
                new = next(filter(is_circuit, events[begin]))
                update = {"circuit_names": tuple(new["names"]), "packed": new["packed"]}
                self._header, self._circuit = self._header.model_copy(update=update), self._circuit + 1
            if begin < end:
                own = {row - begin: list(happened) for row, happened in events.items() if begin <= row < end}
                yield _Rows(self._row, rows[begin:end].copy(), own, self._header, self._circuit)
                self._row += end - begin

    def _trigger(self, part: _Rows, row: int, finder: _Finder, source: Path) -> None:
        """Begin a cut, or lengthen the one that is being written."""
        number, trigger = part.first + row, finder.trigger
        if self._open is not None and number >= self._open.end:
            self._write()
        if self._open is None:
            if self._count >= MOST:
                self.trouble = f"{MOST} triggered recordings since the start: no further ones are written"
                return
            self._open = self._begin(max(number - trigger.before, self._past[0].first), part.rows[row], trigger, source)
            self._count += 1
            self.news = True
        if finder not in self._open.finders:
            self._open.finders.append(finder)
        self._open.end = min(max(self._open.end, number + trigger.after + 1), self._open.latest)
        part.events.setdefault(row, []).append({"kind": "trigger", "name": trigger.name, "text": trigger.text})

    def _begin(self, first: int, row: Floats, trigger: CutTrigger, source: Path) -> _Open:
        self._folder.mkdir(exist_ok=True)
        start = next(part for part in self._past if part.end > first)
        place = {"part": 1, "first_row": first, "first_circuit": start.circuit, "previous": source.name}
        extra = {**start.header.extra, "cut": {"trigger": trigger.name, "tick": int(header(row).tick)}}
        path = self._free_name(float(header(row).utc), trigger.name)
        writer = LogWriter(path, start.header.model_copy(update={**place, "extra": extra}))
        return _Open(writer, first, first, first + LONGEST * (trigger.before + trigger.after + 1), [])

    def _free_name(self, utc: float, trigger: str) -> Path:
        stamp = datetime.fromtimestamp(utc, UTC).strftime("%Y-%m-%dT%H-%M-%S")
        number, free = 1, self._folder / f"{stamp}_{self._header.rig}_{trigger}.arrow"
        while free.exists():
            number += 1
            free = self._folder / f"{stamp}-{number}_{self._header.rig}_{trigger}.arrow"
        return free

    def _write(self) -> None:
        """Write the rows that the open cut still lacks, and end it where it is complete."""
        cut = self._open
        if cut is None:
            return
        for part in self._past:
            begin, end = max(cut.next, part.first), min(cut.end, part.end)
            if begin >= end:
                continue
            events = {
                row - (begin - part.first): happened
                for row, happened in part.events.items()
                if begin <= part.first + row < end
            }
            if begin == cut.writer.header.first_row and 0 in events:
                events[0] = [event for event in events[0] if not is_circuit(event)]  # it is that of the header
            cut.writer.append(part.rows[begin - part.first : end - part.first], events)
            cut.next = end
        if cut.next >= cut.end:
            self.close()


class _Finder:
    """Finds the rows in which a trigger occurs; the first row of a recording is none, whatever holds there."""

    def __init__(self, trigger: CutTrigger, columns: Sequence[str]) -> None:
        self.trigger = trigger
        self.count = 0
        self.file = ""
        self._crossings = Crossings(trigger.level, trigger.edge, trigger.hysteresis)
        self._column = columns.index(trigger.column) if trigger.column in columns else -1
        self._fixed = len(columns)
        limits = [column for column, name in enumerate(columns) if name.startswith("limit.")]
        self._limits = np.array(limits, dtype=np.int64)
        self._before: Integers | None = None

    def find(self, part: _Rows) -> list[int]:
        """The rows of a part in which it occurs, unless it has done so and does it only once."""
        found = self._find(part)
        if self.trigger.once:
            found = found[: 1 - min(self.count, 1)]
        self.count += len(found)
        return found

    def _find(self, part: _Rows) -> list[int]:
        if self.trigger.event in (REACTION, "switch"):
            kind = CIRCUIT if self.trigger.event == "switch" else REACTION
            return [row for row, events in sorted(part.events.items()) if any(e.get("kind") == kind for e in events)]
        if self.trigger.column:
            crossed: list[int] = self._crossings.take(self._values(part)).tolist()
            return crossed
        states = self._states(part)
        before = states[:1] if self._before is None else self._before
        self._before = states[-1:]
        begins = np.any(np.diff(states, axis=0, prepend=before) > 0, axis=1)
        found: list[int] = np.flatnonzero(begins).tolist()
        return found

    def _states(self, part: _Rows) -> Integers:
        """1 in the rows in which it holds, otherwise 0; a column for each limit, otherwise only one."""
        trigger, rows = self.trigger, part.rows
        if trigger.event == "limit":
            return np.asarray(rows[:, self._limits] > 0.0, dtype=np.int64)
        if trigger.mode >= 0:
            holds = np.asarray(headers(rows)["mode"] == trigger.mode, dtype=np.int64)
        else:
            holds = np.asarray(headers(rows)["missed"] > 0, dtype=np.int64)
        return holds[:, np.newaxis]

    def _values(self, part: _Rows) -> Floats:
        """The signal; NaN while another circuit runs, without this value."""
        column, name = self._column, self.trigger.column.removeprefix("circuit.")
        if column < 0 and name in part.header.circuit_names:
            column = self._fixed + part.header.circuit_names.index(name)
        return part.rows[:, column] if column >= 0 else np.full(len(part.rows), np.nan)
