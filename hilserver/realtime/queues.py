"""Rows and commands between processes in shared memory, without locks: a ring of rows, a mailbox of commands.

Any process may be killed at any instant; the others continue. Ring and mailbox follow one rule: slots are used in turn,
a counter holds the number of complete entries, and the writer fills the slot first and stores the counter last. So
while the counter is n, only the slot of entry ``n - capacity`` may be changing. A reader copies an entry and *then*
reads the counter again: the copy of entry s is valid if ``n - s < capacity``. No entry is ever read half-written, and a
writer that is killed while writing an entry leaves only an unused slot.

One writer per ring and per mailbox, one taker per mailbox, any number of readers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.realtime.segment import LINE, lines

Bytes = npt.NDArray[np.uint8]

RECORD_WIDTH = 8
"""float64 values in the record of a command: MESSAGE_CELLS of the tick, whose import costs an I/O worker 14 ms."""


class MailboxFull(HilserverError):
    """The reader is more than a mailbox behind: it hangs or has died."""


class Ring:
    """The last rows of a run: `capacity` rows of `width` float64, numbered 0, 1, ... in order of publishing."""

    def __init__(self, buffer: memoryview, width: int, capacity: int) -> None:
        """Lay the ring over a `buffer` of `Ring.nbytes(width, capacity)` bytes of a segment."""
        self.width = width
        self.capacity = capacity
        self._published = buffer[:LINE].cast("q")
        self._rows = np.frombuffer(buffer, np.float64, width * capacity, LINE).reshape(capacity, width)

    @staticmethod
    def nbytes(width: int, capacity: int) -> int:
        """Memory that a ring needs. Raises ValueError for less than 1 value or 2 rows."""
        if width < 1 or capacity < 2:
            raise ValueError(f"a ring of {capacity} rows of {width} values: needs at least 2 rows of 1 value")
        return LINE + lines(8 * width * capacity)

    @property
    def published(self) -> int:
        """Rows published so far: the cursor of a reader that starts now."""
        return self._published[0]

    def publish(self, row: Floats) -> int:
        """Copy a row in (the one writer only); returns its sequence number."""
        sequence = self._published[0]
        self._rows[sequence % self.capacity] = row
        self._published[0] = sequence + 1
        return sequence

    def prepare(self, row: Floats) -> None:
        """Write a row where the next one will be published, so that this memory is in the processor's caches then."""
        self._rows[self._published[0] % self.capacity] = row

    def latest(self, out: Floats) -> int:
        """Copy the newest row to `out` (float64[width]); returns its sequence number, or -1 if there is none yet."""
        while (sequence := self._published[0] - 1) >= 0:
            out[:] = self._rows[sequence % self.capacity]
            if self._published[0] - sequence < self.capacity:
                return sequence
        return -1

    def read(self, cursor: int, out: Floats) -> tuple[int, int, int]:
        """Copy the rows from number `cursor` on, as many as there are, to the first rows of `out` (float64[n, width]).

        Returns (rows copied, next cursor, rows lost): from `cursor` on, first the rows that were overwritten before
        they could be read, then the copied ones, so ``next cursor == cursor + lost + copied``. Raises ValueError for a
        cursor beyond the rows published.
        """
        published = self._published[0]
        if not 0 <= cursor <= published:
            raise ValueError(f"cursor {cursor} of a ring with {published} rows published")
        first = max(cursor, self._oldest(published))
        count = min(published - first, len(out))
        slot = first % self.capacity
        before_wrap = min(count, self.capacity - slot)
        out[:before_wrap] = self._rows[slot : slot + before_wrap]
        out[before_wrap:count] = self._rows[: count - before_wrap]
        torn = min(max(self._oldest(self._published[0]) - first, 0), count)
        if torn:  # the writer overwrote the row during the copy
            out[: count - torn] = out[torn:count]
        return count - torn, first + count, first + torn - cursor

    def _oldest(self, published: int) -> int:
        return max(published - self.capacity + 1, 0)


def private_ring(width: int) -> Ring:
    """A ring of two rows in the memory of this process, for rehearsals."""
    return Ring(memoryview(bytearray(Ring.nbytes(width, 2))), width, 2)


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """A command: `record` is float64[8], `payload` raw bytes, aligned so that ``payload.view(np.float64)`` is too."""

    sequence: int
    record: Floats
    payload: Bytes


class Mailbox:
    """Commands in order, numbered 0, 1, ...: one process posts, one takes, others may peek.

    The last `slots` records are kept, so that a recorder that comes late still finds them; payloads are large and rare,
    and of these only the last `WAITING` are.
    """

    WAITING = 64
    """Maximum number of commands that may wait for the taker: more would be carried out late."""
    _POSTED, _TAKEN = 0, LINE // 8

    def __init__(self, buffer: memoryview, slots: int, payload_bytes: int) -> None:
        """Lay the mailbox over a `buffer` of `Mailbox.nbytes(slots, payload_bytes)` bytes of a segment."""
        self.slots = slots
        self.payload_bytes = payload_bytes
        self._waiting = min(slots, self.WAITING)
        self._counters = buffer[: 2 * LINE].cast("q")
        kept = np.frombuffer(buffer, np.uint8, slots * 2 * LINE, 2 * LINE).reshape(slots, 2 * LINE)
        self._records = kept[:, : 8 * RECORD_WIDTH].view(np.float64)
        self._lengths, self._numbers = kept[:, LINE : LINE + 16].view(np.int64).T
        size = lines(payload_bytes)
        payloads = np.frombuffer(buffer, np.uint8, self._waiting * size, 2 * LINE + slots * 2 * LINE)
        self._payloads = payloads.reshape(self._waiting, size)
        self._next = self._counters[self._TAKEN]
        self._released = self._next

    @staticmethod
    def nbytes(slots: int, payload_bytes: int) -> int:
        """Memory that a mailbox needs. Raises ValueError for less than 2 slots."""
        if slots < 2 or payload_bytes < 0:
            raise ValueError(f"a mailbox of {slots} slots of {payload_bytes} bytes: needs at least 2 slots of 0 bytes")
        records = slots * 2 * LINE  # record; length and number of its payload
        return 2 * LINE + records + min(slots, Mailbox.WAITING) * lines(payload_bytes)

    @property
    def posted(self) -> int:
        """Commands posted so far: the number of the next one."""
        return self._counters[self._POSTED]

    def post(self, record: npt.ArrayLike, payload: bytes | memoryview | npt.NDArray[Any] = b"") -> int:
        """Put a command in (the one writer only); returns its sequence number.

        Raises MailboxFull if too many commands wait for the taker, ValueError for a payload that doesn't fit or a
        record that isn't float64[8].
        """
        values = np.asarray(record, np.float64)
        content = np.frombuffer(payload, np.uint8)
        if values.shape != (RECORD_WIDTH,):
            raise ValueError(f"record of shape {values.shape}: must be ({RECORD_WIDTH},)")
        if len(content) > self.payload_bytes:
            raise ValueError(f"payload of {len(content)} bytes: the mailbox has room for {self.payload_bytes}")
        sequence = self._counters[self._POSTED]
        if sequence - self._counters[self._TAKEN] >= self._waiting:
            raise MailboxFull(
                f"The real-time process has not processed the last {self._waiting} commands. Is it running?"
            )
        slot, number = sequence % self.slots, self._next_payload(sequence)
        self._records[slot] = values
        self._lengths[slot], self._numbers[slot] = len(content), number
        if len(content):  # in the place of one that was taken: as many commands have been posted since
            self._payloads[number % self._waiting, : len(content)] = content
        self._counters[self._POSTED] = sequence + 1
        return sequence

    def take(self) -> Message | None:
        """The next command (the one taker only), or None. Record and payload are views, valid until the next `take`.

        A taker that attaches after the death of another continues after the last command that the other completed.
        """
        sequence = self._next
        if sequence != self._released:  # only now has the caller finished with the last one
            self._counters[self._TAKEN] = self._released = sequence
        if self._counters[self._POSTED] == sequence:
            return None
        self._next = sequence + 1
        return self._message(sequence)

    def peek(self, sequence: int) -> Message | None:
        """A copy of command number `sequence`; None if not posted yet (`sequence` >= `posted`) or overwritten."""
        if not 0 <= sequence < self._counters[self._POSTED]:
            return None
        view = self._message(sequence)
        message, number = Message(sequence, view.record.copy(), view.payload.copy()), self._number(sequence)
        posted = self._counters[self._POSTED]
        has_payload = not len(message.payload) or self._next_payload(posted) - number < self._waiting
        return message if posted - sequence < self.slots and has_payload else None

    def _message(self, sequence: int) -> Message:
        slot = sequence % self.slots
        payload = self._payloads[self._number(sequence) % self._waiting, : self._lengths[slot]]
        return Message(sequence, self._records[slot], payload)

    def _number(self, sequence: int) -> int:
        return int(self._numbers[sequence % self.slots])

    def _next_payload(self, sequence: int) -> int:
        """Number of the payload of command `sequence`; of the commands before it, only some have one."""
        if sequence == 0:
            return 0
        return self._number(sequence - 1) + bool(self._lengths[(sequence - 1) % self.slots])
