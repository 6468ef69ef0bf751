"""The recorder process: rows from the ring into the log, with the commands that were taken in them. It loses nothing when
the supervisor or the real-time process dies, and ends when the loop has ended.

Started as ``python -m hilserver.record.recorder SEGMENT HEADER LOG MAX_BYTES``; a line on its standard output is for the supervisor.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path

import numpy as np

from hilserver.numerics.arrays import Floats
from hilserver.realtime.setup import read_swap_payload, read_swap_text
from hilserver.realtime.shared import LoopMemory, Message
from hilserver.record.format import Event, LogHeader, RecordError, decode
from hilserver.record.run import command_event, swap_events
from hilserver.record.writer import LogWriter
from hilserver.rig import columns as c

ROWS = 2000
POLL = 0.02
LOOP_GONE = 5.0
"""Seconds without a row, after the first one, in which the loop counts as ended."""


class Recorder:
    """Follows the ring and writes every row to the log."""

    def __init__(self, memory: LoopMemory, writer: LogWriter) -> None:
        self.lost = 0
        self._memory = memory
        self._writer = writer
        self._rows = np.empty((ROWS, memory.ring.width))
        self._cursor = 0
        self._sequence = 0.0
        self._flushed = time.monotonic()

    def step(self) -> int:
        """Log what is new; returns how many rows that were."""
        count, self._cursor, lost = self._memory.ring.read(self._cursor, self._rows)
        rows = self._rows[:count]
        events = self._commands(rows)
        if lost and count:
            self.lost += lost
            events.setdefault(0, []).append({"kind": "lost", "rows": lost})
        self._writer.append(rows, events)
        if time.monotonic() - self._flushed > 1.0:
            self._writer.flush()
            self._flushed = time.monotonic()
        return count

    def _commands(self, rows: Floats) -> dict[int, list[Event]]:
        """The commands taken in these rows, by row: where the row's command number changes."""
        events: dict[int, list[Event]] = {}
        numbers = rows[:, c.COMMAND]
        for row in np.flatnonzero(np.diff(numbers, prepend=self._sequence)):
            message = self._memory.mailbox.peek(int(numbers[row]) - 1)
            if message is None:
                events[int(row)] = [{"kind": "lost", "command": int(numbers[row])}]
            else:
                events[int(row)] = message_events(message)
        if len(rows):
            self._sequence = float(numbers[-1])
        return events


def message_events(message: Message) -> list[Event]:
    """The events of one mailbox message."""
    record = message.record.copy()
    record[c.COMMAND_SEQUENCE] = message.sequence + 1
    if record[c.COMMAND_KIND] != c.SWAP:
        return [command_event(record)]
    index, value, carried = read_swap_payload(message.payload)
    about = json.loads(read_swap_text(message.payload))
    return swap_events(record, {**about, "index": index, "value": value, "carried": carried})


def record(segment: Path, header_file: Path, log: Path, max_bytes: int) -> int:
    """The body of the recorder process; returns its exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    header = LogHeader.model_validate(decode(header_file.read_text()))
    memory = LoopMemory.attach(segment)
    try:
        with LogWriter(log, header, max_bytes=max_bytes) as writer:
            recorder = Recorder(memory, writer)
            print(json.dumps({"ready": True}), flush=True)
            last = time.monotonic()
            while not stopping and time.monotonic() - last < LOOP_GONE:
                if recorder.step():
                    last = time.monotonic()
                elif memory.ring.published == 0:
                    last = time.monotonic() if memory.supervisor_heartbeat.age() < LOOP_GONE else last
                time.sleep(POLL)
            while recorder.step():
                pass
    except RecordError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(record(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])))
