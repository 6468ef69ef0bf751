"""The recorder process: writes the rows of the ring and the commands taken in them to the log.

It loses no rows if the supervisor or the real-time process dies, and it ends after the loop has ended.

It starts with the oldest row in the ring that belongs to the header's circuit, so that a recorder that replaces a
killed one repeats some seconds rather than leaving a gap. It ends its log before the disk is full, and when its file is
gone.

Started as ``python -m hilserver.record.recorder SEGMENT HEADER LOG LIMITS``, the last being a JSON object as `Limits`;
it reports to the supervisor in lines on its standard output, the state of the recording once a second: these are its
heartbeat. While it runs, it takes other triggers as lines on its standard input.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.realtime.queues import Message
from hilserver.realtime.reports import Orders, arguments, send_report
from hilserver.realtime.segment import UNMAP_EVERY
from hilserver.realtime.setup import read_swap_payload, read_swap_text
from hilserver.realtime.shared import LoopMemory
from hilserver.record.cuts import FOLDER, CutTrigger, TriggeredCuts
from hilserver.record.format import Event, LogHeader, RecordError, decode
from hilserver.record.row_events import RowEvents, with_row_events
from hilserver.record.run import command_event, swap_events
from hilserver.record.writer import LogWriter
from hilserver.tick.codes import CommandKind
from hilserver.tick.row import command_in, header, headers

ROWS = 2000
POLL = 0.02
FLUSH_EVERY = 1.0
LOOP_GONE = 5.0
"""Seconds without a row after which the loop counts as ended if it has not reported its end."""
STOPPING = 0.3
"""The same after a request to end, or if the process of the loop has disappeared."""
CIRCUIT_VERSION = "circuit_version"
"""Key in the header's ``extra``: the version of the header's circuit, as counted in the rows."""
ROOM_FOR_CUTS = 1.5
"""Cuts end at this many times the free space at which the log ends: they must not take what is left for it."""
MOST_BEHIND = 0.5
"""Part of the ring that may wait to be written while there are cuts: the log comes first."""
PREVIOUS_TICK = "previous_tick"
"""Key in the header's ``extra``: the last tick of the run that is in an earlier log, -1 for none."""


@dataclass(frozen=True)
class Limits:
    """Maximum size and number of rows of a file; minimum free space on its disk; triggers of cuts. Sizes in bytes."""

    max_bytes: int | None = None
    max_rows: int | None = None
    min_free: int = 0
    triggers: tuple[dict[str, Any], ...] = ()
    """The fields of each `CutTrigger`."""


class LogRecorder:
    """Follows the ring and writes every row to the log.

    ``lost`` counts rows that were overwritten in the ring before they could be written, ``gap`` the ticks that are
    neither in the log before this one nor in this one. Once a second, and when a cut begins or ends, the rows are
    flushed, and ``tell`` is called.
    """

    def __init__(
        self,
        memory: LoopMemory,
        writer: LogWriter,
        min_free: int = 0,
        tell: Callable[[dict[str, Any]], None] = lambda _: None,
        triggers: Sequence[CutTrigger] = (),
    ) -> None:
        self.lost = 0
        self.gap = 0
        self._min_free = min_free
        self._tell = tell
        self._tick = -1
        self._free: float | None = None
        self._has_caught_up = False
        self._memory = memory
        self._writer = writer
        self._version = float(writer.header.extra[CIRCUIT_VERSION])
        self._rows = np.empty((ROWS, memory.ring.width))
        self._cursor = 0
        self._sequence = -1
        self._reactions = RowEvents(writer.given.columns)
        self._cuts = TriggeredCuts(writer.path.parent / FOLDER, writer.given, triggers)
        self._flushed = time.monotonic()

    def step(self) -> int:
        """Log new rows; returns how many were read. Raises RecordError if they can't be written or read."""
        count, self._cursor, lost = self._memory.ring.read(self._cursor, self._rows)
        rows = self._rows[:count]
        if self._sequence < 0:
            rows = self._first(rows)
            lost = self.gap = self._gap_before(rows)
        else:
            self.lost += lost
        if len(rows):
            events = self._commands(rows)
            if lost:
                events.setdefault(0, []).append({"kind": "lost", "rows": lost})
            events = with_row_events(events, self._reactions.find(rows, events))
            self._writer.append(rows, events)
            self._cuts.hindrance = self._hindrance()
            self._cuts.take(rows, events, self._writer.file)
            self._tick = int(header(rows[-1]).tick)
        if time.monotonic() - self._flushed > FLUSH_EVERY or self._cuts.news:
            self._cuts.news = False
            self._flushed = time.monotonic()
            self._writer.flush()
            self._cuts.flush()
            self._writer.require_in_place()
            self._keep_room()
        return count

    def report(self, free: int | None = None) -> None:
        """Report the state of the recording; to be called when all rows are flushed."""
        if self._tick < 0:
            return
        cuts, self._cuts.written = self._cuts.written, []
        self._tell(
            {
                "cuts": cuts,
                "cut_trouble": self._cuts.trouble,
                "triggers": self._cuts.states(),
                "file": str(self._writer.file),
                "rows": self._writer.rows,
                "tick": self._tick,
                "lost": self.lost,
                "gap": self.gap,
                "bytes": self._writer.size,
                "free": free,
            }
        )

    def watch(self, triggers: Sequence[CutTrigger]) -> None:
        """Look for these triggers from now on, and for no others (see `TriggeredCuts`)."""
        self._cuts.watch(triggers)

    def end_cuts(self) -> None:
        """End the cut that is being written, where there is one."""
        self._cuts.close()

    def _keep_room(self) -> None:
        """End the log and raise RecordError if the disk is nearly full."""
        try:
            self._free = free = shutil.disk_usage(self._writer.path.parent).free
        except OSError:  # unknown; a failing write will report it
            self._free = None
            return self.report()
        if free < self._min_free:
            self._writer.close()
        self.report(free)
        if free < self._min_free:
            raise RecordError(self._writer.path, f"ends here: {no_room(free, self._min_free)}.")
        return None

    def _hindrance(self) -> str:
        """Why no cuts can be written at present, other than that nothing can; empty if they can."""
        behind, most = self._memory.ring.published - self._cursor, MOST_BEHIND * self._memory.ring.capacity
        self._has_caught_up = self._has_caught_up or behind <= most
        if self._has_caught_up and behind > most:
            return "the disk or the processor is too slow, and the log comes first"
        needed = ROOM_FOR_CUTS * self._min_free
        return no_room(self._free, needed, "for the log") if self._free is not None and self._free < needed else ""

    def _gap_before(self, rows: Floats) -> int:
        """Ticks between the log that this one continues and the first of these rows."""
        previous = self._writer.header.extra.get(PREVIOUS_TICK)
        if previous is None or len(rows) == 0:
            return 0
        return max(int(header(rows[0]).tick - header(rows[0]).missed) - 1 - int(previous), 0)

    def _first(self, rows: Floats) -> Floats:
        """These rows from the first one that belongs to the header's circuit."""
        found = np.flatnonzero(headers(rows)["circuit_version"] >= self._version)
        if len(found) == 0:
            return rows[:0]
        rows = rows[found[0] :]
        if header(rows[0]).circuit_version != self._version:
            raise RecordError(self._writer.path, "was started too late: the circuit had been switched again.")
        self._sequence = int(
            header(rows[0]).command
        )  # the effect of the first row's command is in the row and in the header
        return rows

    def _commands(self, rows: Floats) -> dict[int, list[Event]]:
        """The commands taken in these rows, by row: where the row's command number changes."""
        events: dict[int, list[Event]] = {}
        numbers = headers(rows)["command"]
        for row in np.flatnonzero(np.diff(numbers, prepend=self._sequence)):
            # a tick takes one command; there are more between two rows only if rows were lost
            taken = range(self._sequence + 1, int(numbers[row]) + 1)
            events[int(row)] = [event for number in taken for event in self._events_of(number)]
            self._sequence = int(numbers[row])
        if header(rows[-1]).circuit_version != self._version:
            raise RecordError(
                self._writer.path, "ends here: a switch of the circuit was lost, so the rows after it can't be read."
            )
        return events

    def _events_of(self, number: int) -> list[Event]:
        message = self._memory.mailbox.peek(number - 1)
        if message is None:
            return [{"kind": "lost", "command": number}]
        order = command_in(message.record)
        if order.kind == CommandKind.SWAP:
            self._version = float(order.a)
        return message_events(message)


def no_room(free: float, needed: float, key: str = "min_free_megabytes") -> str:
    """The reason for not recording, in words; both in bytes. ``key``: what leaves that much free, or for what."""
    return f"only {free / 1e6:.0f} MB are free on its disk; {needed / 1e6:.0f} MB must stay free ({key})"


def message_events(message: Message) -> list[Event]:
    """The events of one mailbox message."""
    record = message.record.copy()
    order = command_in(record)
    order.sequence = message.sequence + 1
    if order.kind != CommandKind.SWAP:
        return [command_event(record, json.loads(message.payload.tobytes() or b"{}"))]
    index, value, carried = read_swap_payload(message.payload)
    about = json.loads(read_swap_text(message.payload))
    return swap_events(record, {**about, "index": index, "value": value, "carried": carried})


class _End:
    """The condition for the end: the loop has ended, or the recorder was asked to end and there are no more rows."""

    def __init__(self, memory: LoopMemory) -> None:
        self._memory = memory
        self._last_row = time.monotonic()
        self._asked = False

    def ask(self, *_: Any) -> None:
        """Request the end; a signal handler. Rows of a loop that is still ramping to null are recorded."""
        self._asked = True

    def reached(self, rows_read: int) -> bool:
        if rows_read:
            self._last_row = time.monotonic()
            return False
        silence = time.monotonic() - self._last_row
        if self._memory.ring.published == 0:  # a loop that is still compiling
            return self._asked or not _exists(self._memory.owner_pid)
        loop = self._memory.info.loop_pid
        return loop == 0 or silence > (STOPPING if self._asked or not _exists(loop) else LOOP_GONE)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _report(status: dict[str, Any]) -> None:
    send_report(recording=status)


def _triggers(tables: Iterable[dict[str, Any]]) -> list[CutTrigger]:
    return [CutTrigger(**table) for table in tables]


def record(segment: Path, header_file: Path, log: Path, limits: Limits, orders: Orders) -> int:
    """The body of the recorder process; returns its exit code. ``orders`` are lists of triggers, as in the limits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        header = LogHeader.model_validate(decode(header_file.read_text()))
        memory = LoopMemory.attach(segment)
        end = _End(memory)
        signal.signal(signal.SIGTERM, end.ask)
        with LogWriter(log, header, max_bytes=limits.max_bytes, max_rows=limits.max_rows) as writer:
            recorder = LogRecorder(memory, writer, limits.min_free, _report, _triggers(limits.triggers))
            send_report(ready=True)
            polls = itertools.cycle(range(round(UNMAP_EVERY / POLL)))
            try:
                while not end.reached(recorder.step()):
                    if next(polls) == 0:
                        memory.segment.unmap()
                    for order in orders.new():
                        recorder.watch(_triggers(order["triggers"]))
                    time.sleep(POLL)
            finally:
                recorder.end_cuts()
        recorder.report()
    except HilserverError as error:
        send_report(error=str(error))
        return 1
    return 0


def main() -> int:
    """The process; returns its exit code."""
    segment_file, header_file, log_file, limits_text = arguments()
    limits = Limits(**json.loads(limits_text))
    return record(Path(segment_file), Path(header_file), Path(log_file), limits, Orders(0))


if __name__ == "__main__":
    sys.exit(main())
