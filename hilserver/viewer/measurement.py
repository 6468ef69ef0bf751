"""A log of any format, read by signal: what plots, statistics and exports work on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.errors import did_you_mean
from hilserver.numerics.arrays import Floats
from hilserver.record.format import RecordError
from hilserver.record.notes import LogNote


@dataclass(frozen=True)
class Moment:
    """Something that happened: its time in the log, s.

    ``kind`` is "switch", "mode", "fault", "command", "reaction", "playout", "lost", "note" if a person has written it,
    "trigger" if it was found by searching.
    """

    time: float
    kind: str
    text: str


def event_name(moment: Moment) -> str:
    """By which name events of different logs are the same: what a switch changed does not matter.

    >>> event_name(Moment(1.0, "switch", "switched: relief.opening_pressure: 150 bar → 120 bar"))
    'switch'
    >>> event_name(Moment(1.0, "mode", "RUNNING"))
    'mode RUNNING'
    """
    if moment.kind in ("switch", "fault", "lost"):
        return moment.kind
    return f"mode {moment.text}" if moment.kind == "mode" else moment.text


class Measurement(ABC):
    """A log. ``units``: the SI unit of each signal by name, "" if it has none or it is unknown.

    ``started``: Unix time of the log's time 0, None if unknown. ``moments`` are in the order of time, ``notes`` say
    what is missing or was left out. ``remarks`` are the notes of people, which are kept beside the log. All methods
    may be called by several threads.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.units: Mapping[str, str] = {}
        self.started: float | None = None
        self.moments: Sequence[Moment] = ()
        self.notes: Sequence[str] = ()
        self.remarks: Sequence[LogNote] = ()

    @property
    def name(self) -> str:
        """What it is called in lists."""
        return self.path.name

    @property
    def happened(self) -> list[Moment]:
        """Its moments and the notes of people, in the order of time."""
        remarks = [Moment(note.time, "note", f"note: {note.line}") for note in self.remarks]
        return sorted([*self.moments, *remarks], key=lambda moment: moment.time)

    def require(self, signal: str) -> None:
        """Raises `RecordError` if there is no such signal."""
        if signal not in self.units:
            why = self.why_not(signal)
            raise RecordError(self.path, f"has no signal {signal}.{why or did_you_mean(signal, self.units)}")

    def why_not(self, signal: str) -> str:
        """The reason for which it has no such signal, if that is known; with a space in front."""
        return ""

    @abstractmethod
    def times(self, signal: str) -> Floats:
        """The times of its samples, float64[n], s, ascending; the same array for all signals of one time base."""

    @abstractmethod
    def read(self, signal: str, start: int, stop: int) -> Floats:
        """Its samples ``start`` … ``stop`` − 1, as float64; NaN where there is none. Only these are read."""

    @property
    def span(self) -> tuple[float, float]:
        """The first and the last time of all signals, s; (0, 0) if there are none."""
        bases = {id(times): times for times in map(self.times, self.units) if len(times)}
        if not bases:
            return 0.0, 0.0
        return min(float(t[0]) for t in bases.values()), max(float(t[-1]) for t in bases.values())

    def rows(self, signal: str, begin: float, end: float) -> tuple[int, int]:
        """The samples from time ``begin`` to ``end``, both included: the first, and the one behind the last."""
        times = self.times(signal)
        return int(np.searchsorted(times, begin, "left")), int(np.searchsorted(times, end, "right"))

    def between(self, signal: str, begin: float, end: float) -> tuple[Floats, Floats]:
        """Times and samples of a signal from ``begin`` to ``end``, both included. Raises `RecordError`."""
        self.require(signal)
        start, stop = self.rows(signal, begin, end)
        return self.times(signal)[start:stop], self.read(signal, start, stop)

    def circuit_at(self, time: float) -> Mapping[str, Any]:
        """The table of the virtual circuit that ran at this time; empty if it is not known."""
        return {}

    def close(self) -> None:  # noqa: B027 - most have nothing open
        """Release files; nothing can be read afterwards."""
