"""Cuts: windows of a recording around triggers, each in a separate file, while the recording itself continues.

A cut is a log like a later part of a recording: it begins with any row, names the file that it was taken from, and can
be replayed on its own. Each trigger has cuts of its own, so that none disturbs another one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.numerics.arrays import Floats, Integers
from hilserver.record.crossings import Crossings, Edge
from hilserver.record.format import CIRCUIT_EVENT, Event, LogHeader, RecordError, is_circuit
from hilserver.record.row_events import REACTION
from hilserver.record.writer import LogWriter
from hilserver.tick.row import header, headers

FOLDER = "cuts"
"""Folder of the cuts, within that of the recordings: there, they do not count for `keep`."""
MOST, LONGEST = 1000, 10
"""Cuts of one trigger, and length of one in windows of its trigger; a condition that is met again and again must not
fill the disk."""
MOST_LEAVING = 8
"""Cuts that may still be completed after their triggers have ended."""
AT_ONCE = 10
"""Cuts of one trigger that may begin one after the other; beyond them, one in a second may. Each costs the recorder
some 30 ms, in which it does not write the log."""


@dataclass(frozen=True)
class CutTrigger:
    """A trigger: a signal crosses a level, a mode begins, or an event happens; the window around it in rows.

    ``column``: of the row's fixed part, or ``circuit.<value>``; level and hysteresis (see `Crossings`) in SI.
    ``once``: it is disarmed when it has occurred. ``armed``: tells it from the one of this name that it replaces.
    ``since``: the first tick in which it can occur; a recorder that replaces another one is given earlier rows, too.
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
    since: int = 0


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
    """A cut that is being written: the next row, the row behind the last one, and where that is at the latest.

    ``marks``: the rows in which the trigger has occurred.
    """

    writer: LogWriter
    next: int
    end: int
    latest: int
    marks: list[int] = field(default_factory=list)


class TriggeredCuts:
    """Looks for triggers in the rows of a recording, and writes the cuts to ``folder``.

    ``written`` are the files of the finished cuts since it was last emptied; ``news``: a cut was begun or finished, to
    be reset by the caller. ``hindrance`` is set by the caller: why no cut can be written at present; those that are
    being written end then. A trigger whose cut can't be written has no more of them. Nothing is raised: the recording
    continues.
    """

    def __init__(self, folder: Path, first: LogHeader, triggers: Sequence[CutTrigger]) -> None:
        self.written: list[str] = []
        self.news = False
        self.hindrance = ""
        self._folder = folder
        self._header, self._circuit, self._row = first, first.first_circuit, first.first_row
        self._finders: list[_Finder] = []
        self._leaving: list[_Finder] = []
        """Those that are no longer looked for, and whose cut is not complete yet."""
        self._past: deque[_Rows] = deque()
        self.watch(triggers)

    @property
    def trouble(self) -> str:
        """Why the cuts of a trigger, or all of them, are not written; empty if they are."""
        if self.hindrance and self._finders:
            return f"there are no triggered recordings at present: {self.hindrance}"
        broken = (finder for finder in self._finders if finder.trouble)
        return next((f"trigger {finder.trigger.name}: {finder.trouble}" for finder in broken), "")

    def watch(self, triggers: Sequence[CutTrigger]) -> None:
        """Look for these triggers from now on, and for no others. Those that it already knows continue unchanged."""
        known = {finder.trigger: finder for finder in self._finders}
        self._finders = [
            known.pop(trigger) if trigger in known else _Finder(trigger, self._header) for trigger in triggers
        ]
        self._leaving += [finder for finder in known.values() if finder.cut is not None]
        for finder in self._leaving[:-MOST_LEAVING]:
            with self._going_on(finder):
                self._end(finder)
        del self._leaving[:-MOST_LEAVING]
        self._kept = max((trigger.before for trigger in triggers), default=0)
        self.news = True

    def states(self) -> dict[str, dict[str, Any]]:
        """By trigger: as which it was ``armed``, how often it has occurred, whether its window is being written, the
        ``file`` of the last one that is complete, how many occurrences are in complete ones (``kept``), the tick
        ``since`` which the others are, and the ``trouble`` for which it has no more windows."""
        return {
            finder.trigger.name: {
                "armed": finder.trigger.armed,
                "count": finder.count,
                "writing": finder.cut is not None,
                "file": finder.file,
                "kept": finder.kept,
                "since": finder.since,
                "trouble": finder.trouble,
            }
            for finder in self._finders
        }

    def take(self, rows: Floats, events: Mapping[int, Sequence[Event]], source: Path) -> None:
        """Take the next rows of the recording, which are in the file ``source``, with their events."""
        for part in self._by_circuit(rows, events):
            self._past.append(part)
            for finder in self._finders:
                found = finder.find(part)
                with self._going_on(finder):
                    for row in found:
                        self._trigger(part, row, finder, source)
                    self._write(finder)
            for finder in self._leaving:
                with self._going_on(finder):
                    self._write(finder)
            self._leaving = [finder for finder in self._leaving if finder.cut is not None]
            while self._past and self._past[0].end <= self._row - self._kept:
                self._past.popleft()
        if self.hindrance:
            self.close()

    def flush(self) -> None:
        """Hand what is pending to the operating system."""
        for finder in (*self._finders, *self._leaving):
            with self._going_on(finder):
                if finder.cut is not None:
                    finder.cut.writer.flush()

    def close(self) -> None:
        """End the cuts that are being written, incomplete as they are."""
        for finder in (*self._finders, *self._leaving):
            with self._going_on(finder):
                self._end(finder)
        self._leaving = []

    @contextmanager
    def _going_on(self, finder: _Finder) -> Iterator[None]:
        """A failure ends the cuts of this trigger, and nothing else."""
        try:
            yield
        except (RecordError, OSError, ValueError) as error:
            finder.trouble = finder.trouble or f"its recordings end here: {error}"
            finder.cut, self.news = None, True

    def _end(self, finder: _Finder) -> None:
        """End the cut that is being written, if there is one."""
        cut, finder.cut = finder.cut, None
        if cut is not None:
            cut.writer.close()
            finder.keep(cut)
            self.written.append(finder.file)
            self.news = True

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
        if finder.cut is not None and number >= finder.cut.end:
            self._write(finder)
        if finder.cut is None:
            if self.hindrance or not finder.may_begin(number):
                return
            self._begin(number, part.rows[row], finder, source)
        assert finder.cut is not None
        finder.cut.end = min(max(finder.cut.end, number + trigger.after + 1), finder.cut.latest)
        finder.cut.marks.append(number)

    def _begin(self, number: int, row: Floats, finder: _Finder, source: Path) -> None:
        """Begin a cut after the previous one: a trigger writes no row twice."""
        trigger = finder.trigger
        first = max(number - trigger.before, finder.written_to, self._past[0].first)
        self._folder.mkdir(exist_ok=True)
        start = next(part for part in self._past if part.end > first)
        place = {"part": 1, "first_row": first, "first_circuit": start.circuit, "previous": source.name}
        extra = {**start.header.extra, "cut": {"trigger": trigger.name, "tick": int(header(row).tick)}}
        path = self._free_name(float(header(row).utc), trigger.name)
        writer = LogWriter(path, start.header.model_copy(update={**place, "extra": extra}))
        finder.cut = _Open(writer, first, first, first + LONGEST * (trigger.before + trigger.after + 1))
        self.news = True

    def _free_name(self, utc: float, trigger: str) -> Path:
        stamp = datetime.fromtimestamp(utc, UTC).strftime("%Y-%m-%dT%H-%M-%S")
        number, free = 1, self._folder / f"{stamp}_{self._header.rig}_{trigger}.arrow"
        while free.exists():
            number += 1
            free = self._folder / f"{stamp}-{number}_{self._header.rig}_{trigger}.arrow"
        return free

    def _write(self, finder: _Finder) -> None:
        """Write the rows that the open cut still lacks, and end it where it is complete."""
        cut = finder.cut
        if cut is None:
            return
        lacking = [*takewhile(lambda part: part.end > cut.next, reversed(self._past))]
        for part in reversed(lacking):
            begin, end = max(cut.next, part.first), min(cut.end, part.end)
            if begin < end:
                cut.writer.append(part.rows[begin - part.first : end - part.first], _events(part, cut, finder.trigger))
                cut.next = end
        finder.written_to = cut.next
        if cut.next >= cut.end:
            self._end(finder)


def _events(part: _Rows, cut: _Open, trigger: CutTrigger) -> dict[int, list[Event]]:
    """The events of the next rows of a cut, from this part, with the occurrences of its trigger."""
    begin, end = max(cut.next, part.first), min(cut.end, part.end)
    events = {
        part.first + row - begin: list(happened)
        for row, happened in part.events.items()
        if begin <= part.first + row < end
    }
    if begin == cut.writer.header.first_row and 0 in events:
        events[0] = [event for event in events[0] if not is_circuit(event)]  # it is that of the header
    for mark in (mark for mark in cut.marks if begin <= mark < end):
        events.setdefault(mark - begin, []).append({"kind": "trigger", "name": trigger.name, "text": trigger.text})
    return events


class _Finder:
    """Finds the rows in which a trigger occurs; the first row of a recording is none, whatever holds there.

    ``cut`` is the one that is being written, ``written_to`` the row behind those that are in one.
    """

    def __init__(self, trigger: CutTrigger, first: LogHeader) -> None:
        self.trigger, columns = trigger, first.columns
        self.count = self.kept = 0
        self.since = trigger.since
        self.file = self.trouble = ""
        self.cut: _Open | None = None
        self.written_to = 0
        self._last_tick = -1
        self._cuts = 0
        self._per_second = max(round(1.0 / first.period_s), 1)
        self._due = 0
        self._crossings = Crossings(trigger.level, trigger.edge, trigger.hysteresis)
        self._column = columns.index(trigger.column) if trigger.column in columns else -1
        self._fixed = len(columns)
        limits = [column for column, name in enumerate(columns) if name.startswith("limit.")]
        self._limits = np.array(limits, dtype=np.int64)
        self._before: Integers | None = None

    def find(self, part: _Rows) -> list[int]:
        """The rows of a part in which it occurs, unless it has done so and does it only once."""
        ticks = headers(part.rows)["tick"]
        found = [row for row in self._find(part) if ticks[row] >= self.trigger.since]
        if self.trigger.once:
            found = found[: 1 - min(self.count, 1)]
        self.count += len(found)
        if found:
            self._last_tick = int(ticks[found[-1]])
        return found

    def may_begin(self, number: int) -> bool:
        """Whether a cut may begin for an occurrence in this row: not too many, nor too many at once."""
        due = max(self._due, number)
        if due - number >= AT_ONCE * self._per_second:
            return False
        self._due = due + self._per_second
        self._cuts += 1
        if self._cuts > MOST:
            self.trouble = self.trouble or f"it has {MOST} recordings; no more are written"
        return not self.trouble

    def keep(self, cut: _Open) -> None:
        """Note that this cut has ended: a recorder that replaces this one need not find what is in it."""
        self.file, self.kept, self.since = str(cut.writer.path), self.count, self._last_tick + 1

    def _find(self, part: _Rows) -> list[int]:
        if self.trigger.event in (REACTION, "switch"):
            kind = CIRCUIT_EVENT if self.trigger.event == "switch" else REACTION
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
