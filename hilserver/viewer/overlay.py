"""What a page shows: logs over one another on a common time, and the chosen signals of each as curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.viewer.alignment import Alignment, offsets
from hilserver.viewer.difference import SignalDifference
from hilserver.viewer.measurement import Moment
from hilserver.viewer.statistics import SpanStatistics, sample_at, statistics
from hilserver.viewer.store import OpenedLog
from hilserver.web.display import Shown, Units

COLOURS = (
    *("#0f4c81", "#d97706", "#15803d", "#b91c1c", "#7c3aed", "#0891b2"),
    *("#be185d", "#4d7c0f", "#475569", "#a16207", "#4338ca", "#0d9488"),
)
DASHES = ("solid", "dashed", "dotted")
"""The lines of the first, second and third log; further ones begin again."""
MOST_MARKS = 60
"""Events that are drawn in a section; with more, none could be read."""


@dataclass(frozen=True)
class DrawnSignal:
    """A signal of a log as it is drawn: ``offset`` is added to its times, values are in ``shown``."""

    opened: OpenedLog
    signal: str
    name: str
    offset: float
    shown: Shown
    colour: str
    dash: str

    def points(self, begin: float, end: float, pixels: int) -> tuple[Floats, Floats]:
        """What to draw of it between these common times (see `OpenedLog.curve`)."""
        times, values = self.opened.curve(self.signal, begin - self.offset, end - self.offset, pixels)
        return times + self.offset, values / self.shown.factor

    def samples(self, begin: float, end: float) -> tuple[Floats, Floats]:
        """All samples between these common times, both included."""
        times, values = self.opened.log.between(self.signal, begin - self.offset, end - self.offset)
        return times + self.offset, values / self.shown.factor

    def value(self, time: float) -> float:
        """The value of the sample nearest to this common time; NaN if there is none."""
        return sample_at(self.opened.log, self.signal, time - self.offset)[1] / self.shown.factor

    def statistics(self, begin: float, end: float, wanted: Callable[[], bool] = lambda: True) -> SpanStatistics:
        """Exact figures between these common times, in the unit in which it is shown (see `statistics`)."""
        found = statistics(self.opened.log, self.signal, begin - self.offset, end - self.offset, wanted)
        factor = self.shown.factor
        names = ("minimum", "maximum", "mean", "rms", "std")
        return replace(found, **{name: getattr(found, name) / factor for name in names})


class Overlay:
    """The logs of a page, how they are aligned, and the signals that are chosen."""

    def __init__(self, logs: Sequence[OpenedLog] = ()) -> None:
        self.logs: list[OpenedLog] = []
        self.offsets: list[float] = []
        self.signals: list[str] = []
        self.differences: list[tuple[str, str]] = []
        self._differences: dict[tuple[str, str, float, float], OpenedLog] = {}
        self.units = Units({"s": "s"})
        self._aligned: tuple[Alignment, str, int] = ("start", "", 1)
        for opened in logs:
            self.add(opened)

    def add(self, opened: OpenedLog) -> None:
        """Add a log. Raises `HilserverError` if it can't be aligned with the others; it is not added then."""
        self._set([*self.logs, opened], self._aligned)

    def remove(self, opened: OpenedLog) -> None:
        """Remove a log."""
        self._set([other for other in self.logs if other is not opened], self._aligned)

    def align(self, how: Alignment, event: str = "", number: int = 1) -> None:
        """Align the logs (see `offsets`). Raises `HilserverError` if one can't be; nothing is changed then."""
        self._set(self.logs, (how, event, number))

    def _set(self, logs: list[OpenedLog], aligned: tuple[Alignment, str, int]) -> None:
        self.offsets = offsets([opened.log for opened in logs], *aligned)
        self.logs, self._aligned = logs, aligned
        self._differences.clear()

    def choose(self, signals: Sequence[str]) -> None:
        """Show these signals of all logs that have them. Raises `HilserverError` if none has one of them."""
        known = self.available()
        for signal in signals:
            if signal not in known:
                if not self.logs:
                    raise HilserverError("No log is open.")
                self.logs[0].log.require(signal)
        self.signals = list(dict.fromkeys(signals))

    def subtract(self, one: str, other: str) -> None:
        """Show the difference of two curves, given by their names, as long as both are shown; or stop showing it.

        Raises `HilserverError` if they are not shown, or their units differ.
        """
        curves = {curve.name: curve for curve in self.curves()}
        if one not in curves or other not in curves or one == other:
            raise HilserverError("Choose two signals that are shown.")
        units = [curves[name].shown.unit for name in (one, other)]
        if units[0] != units[1]:
            raise HilserverError(f"{one} is in {units[0] or 'no unit'}, {other} in {units[1] or 'no unit'}.")
        if (one, other) in self.differences:
            self.differences.remove((one, other))
        else:
            self.differences.append((one, other))

    def available(self) -> dict[str, str]:
        """All signals of all logs with their SI units, in the order of the logs."""
        found: dict[str, str] = {}
        for opened in self.logs:
            for signal, unit in opened.log.units.items():
                found[signal] = found.get(signal) or unit
        return found

    def curves(self) -> list[DrawnSignal]:
        """The chosen signals of all logs that have them; one log: a colour per signal, else per curve."""
        found: list[DrawnSignal] = []
        units, several = self.available(), len(self.logs) > 1
        for signal in self.signals:
            shown = self.units.of(units.get(signal, ""))
            for place, (opened, offset) in enumerate(zip(self.logs, self.offsets, strict=True)):
                if signal in opened.log.units:
                    name = f"{signal} · {place + 1}" if several else signal
                    colour = COLOURS[len(found) % len(COLOURS)]
                    found.append(DrawnSignal(opened, signal, name, offset, shown, colour, DASHES[place % len(DASHES)]))
        by_name = {curve.name: curve for curve in found}
        self.differences = [pair for pair in self.differences if set(pair) <= set(by_name)]
        return found + [self._difference(by_name[one], by_name[other]) for one, other in self.differences]

    def _difference(self, one: DrawnSignal, other: DrawnSignal) -> DrawnSignal:
        name = f"{one.name} − {other.name}"
        key = (one.name, other.name, one.offset, other.offset)
        known = self._differences.get(key)
        if known is None:
            pairs = [(curve.opened.log, curve.signal, curve.offset) for curve in (one, other)]
            known = self._differences[key] = OpenedLog(SignalDifference(name, pairs[0], pairs[1]))
        return DrawnSignal(known, name, name, 0.0, one.shown, "#0f172a", "solid")

    def extent(self) -> tuple[float, float]:
        """The first and the last common time of all logs, s; a second at least."""
        if not self.logs:
            return 0.0, 1.0
        pairs = list(zip(self.logs, self.offsets, strict=True))
        begin = min(opened.log.span[0] + offset for opened, offset in pairs)
        end = max(opened.log.span[1] + offset for opened, offset in pairs)
        return (begin, end) if end > begin else (begin, begin + 1.0)

    def moments(self, begin: float = -math.inf, end: float = math.inf) -> list[Moment]:
        """The events of all logs between two common times, at common times; with the number of the log if several."""
        several = len(self.logs) > 1
        found = [
            Moment(moment.time + offset, moment.kind, f"{place}: {moment.text}" if several else moment.text)
            for place, (opened, offset) in enumerate(zip(self.logs, self.offsets, strict=True), 1)
            for moment in opened.log.moments
            if begin <= moment.time + offset <= end
        ]
        return sorted(found, key=lambda moment: moment.time)


def first_signals(logs: Sequence[OpenedLog]) -> list[str]:
    """What is shown of a log at first: pressures and positions of the machine, else its first signals."""
    if not logs:
        return []
    units = logs[0].log.units
    channels = [name for name, unit in units.items() if name.startswith("channel.") and unit in ("Pa", "m")]
    others = [name for name in units if name.lower() not in ("time", "tick", "utc")]
    return channels[:4] or others[:2]
