"""What a page shows: overlaid logs on a common time axis, and the chosen signals of each as curves."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.viewer.alignment import offsets
from hilserver.viewer.axis_units import axis_unit
from hilserver.viewer.difference import SignalDifference
from hilserver.viewer.layout import ViewAlign, ViewLayout, ViewPlot
from hilserver.viewer.measurement import Moment
from hilserver.viewer.statistics import SpanStatistics, sample_at, statistics
from hilserver.viewer.store import OpenedLog
from hilserver.viewer.tabs import Tabs
from hilserver.viewer.trigger import Trigger, occurrences
from hilserver.web.display import Shown, Units

COLOURS = (
    *("#0f4c81", "#d97706", "#15803d", "#b91c1c", "#7c3aed", "#0891b2"),
    *("#be185d", "#4d7c0f", "#475569", "#a16207", "#4338ca", "#0d9488"),
)
DASHES = ("solid", "dashed", "dotted")
"""The lines of the first, second and third log; further ones begin again."""
OF_LOG = " · "
"""Between the name of a signal and the number of its log."""
MOST_MARKS = 60
"""Events that are drawn in a section; with more, none could be read."""


@dataclass(frozen=True)
class DrawnSignal:
    """A signal of a log as it is drawn: ``offset`` is added to its times, values are in ``shown``.

    ``plot`` is the place of its plot in the tab; the unit ``si`` that of the log.
    """

    opened: OpenedLog
    signal: str
    name: str
    offset: float
    shown: Shown
    colour: str
    dash: str
    si: str = ""
    plot: int = 0

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
    """The logs of a page, how they are aligned, and the tabs with the signals that are chosen.

    ``placed`` are the logs with what is added to their times, s. ``trigger`` is what was searched for last,
    ``aligned_trigger`` by what the logs are aligned. What reads samples may be called in another thread.
    """

    def __init__(self, logs: Sequence[OpenedLog] = ()) -> None:
        self.placed: list[tuple[OpenedLog, float]] = []
        self.tabs = Tabs()
        self.aligned = ViewAlign()
        self.trigger: Trigger | None = None
        self.aligned_trigger: Trigger | None = None
        self.found: list[tuple[OpenedLog, list[float]]] = []
        self._differences: dict[tuple[str, str, float, float], OpenedLog] = {}
        self._units = Units({"s": "s"})
        for opened in logs:
            self.add(opened)

    @property
    def logs(self) -> list[OpenedLog]:
        """The logs in their order."""
        return [opened for opened, _ in self.placed]

    @property
    def layout(self) -> ViewLayout:
        """What is shown, as it can be saved."""
        trigger = self.aligned_trigger if self.aligned.by == "trigger" else self.trigger
        return ViewLayout(align=self.aligned, trigger=trigger, tabs=self.tabs.all)

    def load(self, layout: ViewLayout) -> None:
        """Show what a layout says. Signals that the logs lack are kept in it, but not drawn (see `missing`).

        Raises `HilserverError` if the logs can't be aligned so: all else is done, and they are aligned as before.
        """
        self.tabs, self.trigger, self.found = Tabs(layout.tabs), layout.trigger, []
        self.align(layout.align)

    def missing(self) -> list[str]:
        """The signals of all tabs that no log has."""
        known = self.available()
        return [name for name in self.layout.signals() if name not in known]

    def add(self, opened: OpenedLog) -> None:
        """Add a log. Raises `HilserverError` if it can't be aligned with the others; it is not added then."""
        self._place([*self.logs, opened], self.aligned, self.aligned_trigger)

    def remove(self, opened: OpenedLog) -> None:
        """Remove a log. The others stay where they are; nothing is read."""
        self.placed = [(other, offset) for other, offset in self.placed if other is not opened]
        self.found = [(other, times) for other, times in self.found if other is not opened]
        self._differences.clear()

    def align(self, aligned: ViewAlign) -> None:
        """Align the logs (see `offsets`). Raises `HilserverError` if one can't be; nothing is changed then."""
        self._place(self.logs, aligned, self.trigger)

    def _place(self, logs: list[OpenedLog], aligned: ViewAlign, trigger: Trigger | None) -> None:
        before = set(self.logs)
        found = offsets([opened.log for opened in logs], aligned.by, aligned.event, aligned.number, trigger)
        closed = before - set(self.logs)  # meanwhile, if this runs in another thread
        self.placed = [(opened, offset) for opened, offset in zip(logs, found, strict=True) if opened not in closed]
        self.aligned, self.aligned_trigger = aligned, trigger
        self._differences.clear()

    def search(self, trigger: Trigger, wanted: Callable[[], bool] = lambda: True) -> list[int]:
        """Search all logs for a trigger, which then also serves for aligning. Returns how often each is triggered.

        Once the result is not ``wanted`` any more, it is not kept. Raises `HilserverError` if a log lacks its signal,
        unless another has it; nothing is changed then.
        """
        able = [opened for opened in self.logs if trigger.event or trigger.signal in opened.log.units]
        if not able and self.logs:
            self.logs[0].log.require(trigger.signal)
        found = [(opened, occurrences(opened.log, trigger, wanted=wanted)) for opened in able]
        if wanted():
            self.found, self.trigger = found, trigger
        counts = {id(opened): len(times) for opened, times in found}
        return [counts.get(id(opened), 0) for opened in self.logs]

    def triggered(self, begin: float = -math.inf, end: float = math.inf) -> list[Moment]:
        """The occurrences found between two common times, at common times; with the number of the log if several."""
        places = {id(opened): (place, offset) for place, (opened, offset) in enumerate(self.placed, 1)}
        found = []
        for opened, times in self.found:
            if id(opened) in places:
                place, offset = places[id(opened)]
                inside = times[bisect_left(times, begin - offset) : bisect_right(times, end - offset)]
                text = f"{place}: trigger" if len(places) > 1 else "trigger"
                found += [Moment(time + offset, "trigger", text) for time in inside]
        return sorted(found, key=lambda moment: moment.time)

    @property
    def signals(self) -> tuple[str, ...]:
        """The signals of the selected plot."""
        return self.tabs.selected.signals

    def choose(self, signals: Sequence[str]) -> None:
        """Show these signals in the selected plot, of all logs that have them.

        Raises `HilserverError` if no log has one of them, unless it is there already, or if they are too many.
        """
        known = self.available()
        for signal in signals:
            if signal not in known and signal not in self.signals:
                if not self.logs:
                    raise HilserverError("No log is open.")
                self.logs[0].log.require(signal)
        self.tabs.choose(tuple(dict.fromkeys(signals)))

    def subtract(self, one: str, other: str) -> None:
        """Show the difference of two curves, given by their names, as long as both are shown; or stop showing it.

        Raises `HilserverError` if they are not shown, their quantities differ, or there are too many differences.
        """
        first, second = self.find(one), self.find(other)
        if first is None or second is None or first.name == second.name:
            raise HilserverError("Choose two signals that are shown.")
        if first.si != second.si:
            units = [curve.shown.unit or "no unit" for curve in (first, second)]
            raise HilserverError(f"{one} is in {units[0]}, {other} in {units[1]}.")
        kept = tuple(pair for pair in self.tabs.shown.differences if pair != (one, other))
        added = ((one, other),) if kept == self.tabs.shown.differences else ()
        self.tabs.subtract(kept + added)

    def shows_difference(self, one: str, other: str) -> bool:
        """Whether the difference of two curves is shown in this tab."""
        return (one, other) in self.tabs.shown.differences

    def find(self, name: str) -> DrawnSignal | None:
        """The curve with this name; `None` if it is not shown.

        Where there is only one log, ``p_A · 1`` is ``p_A``; where there are several, ``p_A`` is its first curve.
        """
        return _named(name, self._signal_curves())

    def available(self) -> dict[str, str]:
        """All signals of all logs with their SI units, in the order of the logs."""
        found: dict[str, str] = {}
        for opened in self.logs:
            for signal, unit in opened.log.units.items():
                found[signal] = found.get(signal) or unit
        return found

    def unit(self, plot: ViewPlot, si: str) -> Shown:
        """The unit in which a plot shows values of this SI unit."""
        return axis_unit(plot.units[si], si) if si in plot.units else self._units.of(si)

    def curves(self) -> list[DrawnSignal]:
        """The curves of the tab: signals of its plots in all logs that have them, and differences of these.

        One log: a colour per signal, else per curve. A signal in several plots has one colour.
        """
        found = self._signal_curves()
        pairs = ((_named(one, found), _named(other, found)) for one, other in self.tabs.shown.differences)
        differences = [
            self._difference(one, other)
            for one, other in pairs
            if one is not None and other is not None and one.si == other.si
        ]
        return found + differences

    def _signal_curves(self) -> list[DrawnSignal]:
        units, several = self.available(), len(self.logs) > 1
        colours: dict[str, str] = {}
        found: list[DrawnSignal] = []
        for number, plot in enumerate(self.tabs.shown.plots):
            for signal in plot.signals:
                si = units.get(signal, "")
                shown = self.unit(plot, si)
                for place, (opened, offset) in enumerate(self.placed):
                    if signal in opened.log.units:
                        name = f"{signal}{OF_LOG}{place + 1}" if several else signal
                        colour = colours.setdefault(name, COLOURS[len(colours) % len(COLOURS)])
                        dash = DASHES[place % len(DASHES)]
                        found.append(DrawnSignal(opened, signal, name, offset, shown, colour, dash, si, number))
        return found

    def _difference(self, one: DrawnSignal, other: DrawnSignal) -> DrawnSignal:
        name = f"{one.name} − {other.name}"
        key = (one.name, other.name, one.offset, other.offset)
        known = self._differences.get(key)
        if known is None:
            pairs = [(curve.opened.log, curve.signal, curve.offset) for curve in (one, other)]
            known = self._differences[key] = OpenedLog(SignalDifference(name, pairs[0], pairs[1]))
        return DrawnSignal(known, name, name, 0.0, one.shown, "#0f172a", "solid", one.si, one.plot)

    def extent(self) -> tuple[float, float]:
        """The first and the last common time of all logs, s; a second at least."""
        if not self.logs:
            return 0.0, 1.0
        begin = min(opened.log.span[0] + offset for opened, offset in self.placed)
        end = max(opened.log.span[1] + offset for opened, offset in self.placed)
        return (begin, end) if end > begin else (begin, begin + 1.0)

    def moments(self, begin: float = -math.inf, end: float = math.inf) -> list[Moment]:
        """The events of all logs between two common times, at common times; with the number of the log if several."""
        several = len(self.logs) > 1
        found = [
            Moment(moment.time + offset, moment.kind, f"{place}: {moment.text}" if several else moment.text)
            for place, (opened, offset) in enumerate(self.placed, 1)
            for moment in opened.log.happened
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


def _named(name: str, curves: Sequence[DrawnSignal]) -> DrawnSignal | None:
    """See `Overlay.find`."""
    signal, _, number = name.rpartition(OF_LOG)
    exact = (curve for curve in curves if curve.name == name)
    other = (
        curve
        for curve in curves
        if curve.signal == name or (number == "1" and curve.signal == signal and curve.name == signal)
    )
    return next(exact, None) or next(other, None)
