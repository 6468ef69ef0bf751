"""Opened logs with the pyramids of their signals, shared by all pages that show them."""

from __future__ import annotations

import threading
import weakref
from pathlib import Path

import numpy as np

from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.record.notes import LogNote, change_note, read_notes
from hilserver.viewer.measurement import Measurement
from hilserver.viewer.opening import open_log
from hilserver.viewer.pyramid import Pyramid


class OpenedLog:
    """A log with its notes, whose signals can be drawn.

    Pyramids are built when a signal is drawn for the first time, and kept.
    """

    def __init__(self, log: Measurement) -> None:
        self.log = log
        self.trouble = ""
        self._pyramids: dict[str, Pyramid] = {}
        self._building = threading.Lock()

    def read_notes(self) -> None:
        """Take the notes beside the log; ``trouble`` says what is wrong with them."""
        self.trouble = ""
        try:
            self.log.remarks = read_notes(self.log.path)
        except HilserverError as error:
            self.trouble = str(error)

    def change_note(self, old: LogNote | None, new: LogNote | None) -> None:
        """Replace a note, add one or remove one (see `hilserver.record.notes.change_note`)."""
        self.log.remarks = change_note(self.log.path, old, new)

    def curve(self, signal: str, begin: float, end: float, pixels: int) -> tuple[Floats, Floats]:
        """Times and values to draw from ``begin`` to ``end`` on ``pixels`` pixels; at most about two points for each.

        Where a pixel has several samples, its points are their minimum and their maximum. The curve extends to the
        next sample or group on both sides. Raises `RecordError` if there is no such signal.
        """
        self.log.require(signal)
        times = self.log.times(signal)
        start, stop = self.log.rows(signal, begin, end)
        outline = self._pyramid(signal).outline(start - 1, stop + 1, max(pixels, 1))
        if outline.group == 1:
            return times[outline.first], outline.low
        middle = np.minimum(outline.first + outline.group // 2, len(times) - 1)
        points = (
            np.stack(pair, axis=1).ravel()
            for pair in ((times[outline.first], times[middle]), (outline.low, outline.high))
        )
        at, values = points
        return at, values

    def has_drawn(self, signal: str) -> bool:
        """Whether this signal was drawn before; the first time takes longer."""
        return signal in self._pyramids

    def _pyramid(self, signal: str) -> Pyramid:
        with self._building:
            if signal not in self._pyramids:
                count = len(self.log.times(signal))
                self._pyramids[signal] = Pyramid(lambda start, stop: self.log.read(signal, start, stop), count)
            return self._pyramids[signal]


class LogStore:
    """Opens each log once, as long as anybody keeps it; again if its file has changed."""

    def __init__(self) -> None:
        self._opened: weakref.WeakValueDictionary[tuple[Path, int, int], OpenedLog] = weakref.WeakValueDictionary()
        self._opening = threading.Lock()

    def open(self, path: Path) -> OpenedLog:
        """The log in this file. Raises `HilserverError` if it can't be read."""
        with self._opening:
            status = path.stat() if path.is_file() else None
            key = (path, status.st_mtime_ns, status.st_size) if status is not None else (path, 0, 0)
            opened = self._opened.get(key)
            if opened is None:
                opened = OpenedLog(open_log(path))
                weakref.finalize(opened, opened.log.close)
                self._opened[key] = opened
            opened.read_notes()
            return opened
