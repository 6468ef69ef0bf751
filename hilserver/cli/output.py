"""Output that never waits for the terminal: a blocked terminal must not block the server.

A terminal stops accepting output on Ctrl-S or when its connection hangs, a pipe when its reader hangs. A thread that
writes to it is then blocked indefinitely, with everything else that the thread has to do.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import TextIO

ROOM = 256 * 1024
"""Maximum number of bytes that wait for the terminal; further output is dropped, and counted in lines."""
PATIENCE, LONGEST = 1.0, 5.0
"""Seconds after which unwritten output is abandoned at the end: without progress, and in total."""


class OutputQueue:
    """Writes to file descriptors in a separate thread. Output that arrives while its queue is full is dropped.

    Once something has been dropped, everything is, until the queue is empty: there is one gap, and it is reported.
    """

    def __init__(self, room: int = ROOM) -> None:
        self._room = room
        self._changed = threading.Condition()
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._size = 0
        self._written = 0
        self._dropped = 0
        self._drop_to = -1
        # a daemon: the interpreter does not wait for it when it exits
        threading.Thread(target=self._work, name="output", daemon=True).start()

    def put(self, file: int, data: bytes) -> None:
        """Queue these bytes for writing, or drop them; returns at once."""
        with self._changed:
            if self._dropped or self._size + len(data) > self._room:
                self._dropped += max(data.count(b"\n"), 1)
                self._drop_to = file
                return
            self._waiting.append((file, data))
            self._size += len(data)
            self._changed.notify_all()

    def finish(self, patience: float = PATIENCE) -> bool:
        """Wait until everything is written, or for ``patience`` s without progress; returns whether it is."""
        end = time.monotonic() + LONGEST
        with self._changed:
            written, deadline = self._written, time.monotonic() + patience
            while self._size and (left := min(deadline, end) - time.monotonic()) > 0.0:
                self._changed.wait(left)
                if self._written > written:
                    written, deadline = self._written, time.monotonic() + patience
            return self._size == 0

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    self._changed.wait()
                file, data = self._waiting.popleft()
            self._write(file, data)
            with self._changed:
                self._size -= len(data)
                if not self._waiting and self._dropped:
                    self._report_gap()
                self._changed.notify_all()

    def _report_gap(self) -> None:
        lines, self._dropped = self._dropped, 0
        text = f"({lines} lines are missing here: the terminal did not accept them.)\n".encode()
        self._waiting.append((self._drop_to, text))
        self._size += len(text)

    def _write(self, file: int, data: bytes) -> None:
        """Write all of it, however long that takes. If nobody can ever read it, it is discarded."""
        while data:
            try:
                count = os.write(file, data)
            except BlockingIOError:  # another program has made the terminal non-blocking
                select.select([], [file], [])
                continue
            except OSError:
                count = len(data)
            data = data[count:]
            with self._changed:
                self._written += count
                self._changed.notify_all()


class QueuedStream(io.TextIOBase):
    """A text stream that replaces ``original`` and passes on whole lines; it never waits."""

    def __init__(self, original: TextIO, queue: OutputQueue) -> None:
        self._original, self._queue = original, queue
        self._file = original.fileno()
        self._line = ""
        self._lock = threading.RLock()

    @property
    def original(self) -> TextIO:
        """The stream that it replaces."""
        return self._original

    def finish(self) -> bool:
        """Wait briefly until all output is written; returns whether it is."""
        self.flush()
        return self._queue.finish()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """That of the original."""
        return self._original.encoding or "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]
        """How characters that the encoding does not contain are handled."""
        return self._original.errors or "replace"

    def writable(self) -> bool:
        """It can be written to."""
        return True

    def isatty(self) -> bool:
        """Whether the original is a terminal."""
        return self._original.isatty()

    def fileno(self) -> int:
        """That of the original."""
        return self._file

    def write(self, text: str) -> int:
        """Queue the lines in this text; the rest of it follows with the next line, or with `flush`."""
        if not isinstance(text, str):
            raise TypeError(f"write() takes text, not {type(text).__name__}")
        with self._lock:
            lines, newline, rest = text.rpartition("\n")
            if newline:
                self._put(self._line + lines + newline)
                self._line = rest
            else:
                self._line += rest
        return len(text)

    def flush(self) -> None:
        """Queue the line that has begun, too; it does not wait for the original."""
        with self._lock:
            if self._line:
                self._put(self._line)
                self._line = ""

    def _put(self, text: str) -> None:
        self._queue.put(self._file, text.encode(self.encoding, self.errors))


@contextlib.contextmanager
def never_waiting() -> Iterator[None]:
    """Make standard output and error of this process non-waiting; at the end, wait briefly for queued output.

    Streams that are not files, as in a test, remain unchanged.
    """
    originals = sys.stdout, sys.stderr
    try:
        files = [stream.fileno() for stream in originals]
    except (OSError, ValueError):
        yield
        return
    first = OutputQueue()
    # one queue for both if they are the same file, so that their order is kept
    queues = [first, first if os.path.sameopenfile(*files) else OutputQueue()]
    for stream in originals:
        stream.flush()
    streams = [QueuedStream(stream, queue) for stream, queue in zip(originals, queues, strict=True)]
    sys.stdout, sys.stderr = streams
    try:
        yield
    finally:
        for stream in streams:
            stream.flush()
        everything = [queue.finish() for queue in queues]
        if all(everything):
            sys.stdout, sys.stderr = originals
        # else the process ends with them: what is printed to the originals now would wait


@contextlib.contextmanager
def asking() -> Iterator[None]:
    """Within `never_waiting`, the terminal itself, for a question to the user; earlier output appears first."""
    queued = sys.stdout, sys.stderr
    for stream in queued:
        if isinstance(stream, QueuedStream):
            stream.finish()
    sys.stdout, sys.stderr = (stream.original if isinstance(stream, QueuedStream) else stream for stream in queued)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = queued
