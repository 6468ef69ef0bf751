"""The tabs of a page: which one is shown, which of its plots is selected, and every change to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hilserver.errors import HilserverError
from hilserver.viewer.layout import MOST_ANALYSES, MOST_PLOTS, MOST_SIGNALS, MOST_TABS, ViewAnalysis, ViewPlot, ViewTab

T = TypeVar("T")


class Tabs:
    """The tabs, one of which is shown: ``place``. ``plot`` is the place of the selected plot in it.

    What adds something raises `HilserverError` if a layout can't have more of it; nothing is changed then.
    """

    def __init__(self, tabs: Sequence[ViewTab] = (ViewTab(),)) -> None:
        self.all: tuple[ViewTab, ...] = tuple(tabs)
        self.place = self.plot = 0

    @property
    def shown(self) -> ViewTab:
        """The tab that is shown."""
        return self.all[self.place]

    @property
    def selected(self) -> ViewPlot:
        """The selected plot of the tab that is shown."""
        return self.shown.plots[self.plot]

    def show(self, place: int) -> None:
        """Show another tab."""
        self.place, self.plot = place, 0

    def change(self, **changes: object) -> None:
        """Change fields of the tab that is shown."""
        self.all = _replaced(self.all, self.place, self.shown.model_copy(update=changes))

    def add(self) -> None:
        """Add a tab behind all others, and show it."""
        self.all = _at_most(MOST_TABS, "tabs", (*self.all, ViewTab()))
        self.show(len(self.all) - 1)

    def remove(self) -> None:
        """Remove the tab that is shown; of the last one, only its content."""
        self.all = _without(self.all, self.place) or (ViewTab(),)
        self.show(min(self.place, len(self.all) - 1))

    def move(self, by: int) -> None:
        """Move the tab that is shown by this number of positions."""
        self.all, self.place = _moved(self.all, self.place, by)

    def select(self, plot: int) -> None:
        """Select another plot of the tab."""
        self.plot = plot

    def change_plot(self, **changes: object) -> None:
        """Change fields of the selected plot."""
        self.change(plots=_replaced(self.shown.plots, self.plot, self.selected.model_copy(update=changes)))

    def choose(self, signals: tuple[str, ...]) -> None:
        """Show these signals in the selected plot."""
        self.change_plot(signals=_at_most(MOST_SIGNALS, "signals in a plot", signals))

    def subtract(self, differences: tuple[tuple[str, str], ...]) -> None:
        """Show these differences in the tab."""
        self.change(differences=_at_most(MOST_SIGNALS, "differences in a tab", differences))

    def add_plot(self) -> None:
        """Add a plot below all others of the tab, and select it."""
        self.change(plots=_at_most(MOST_PLOTS, "plots in a tab", (*self.shown.plots, ViewPlot())))
        self.plot = len(self.shown.plots) - 1

    def remove_plot(self) -> None:
        """Remove the selected plot; of the last one, only its content."""
        self.change(plots=_without(self.shown.plots, self.plot) or (ViewPlot(),))
        self.plot = min(self.plot, len(self.shown.plots) - 1)

    def move_plot(self, by: int) -> None:
        """Move the selected plot down by this number of positions; up if negative."""
        plots, self.plot = _moved(self.shown.plots, self.plot, by)
        self.change(plots=plots)

    def change_analysis(self, place: int, **changes: object) -> None:
        """Change fields of an analysis of the tab that is shown."""
        old = self.shown.analyses
        self.change(analyses=_replaced(old, place, old[place].model_copy(update=changes)))

    def add_analysis(self) -> None:
        """Add an analysis below all others of the tab."""
        self.change(analyses=_at_most(MOST_ANALYSES, "analyses in a tab", (*self.shown.analyses, ViewAnalysis())))

    def remove_analysis(self, place: int) -> None:
        """Remove an analysis of the tab."""
        self.change(analyses=_without(self.shown.analyses, place))

    def move_analysis(self, place: int, by: int) -> None:
        """Move an analysis of the tab down by this number of positions; up if negative."""
        self.change(analyses=_moved(self.shown.analyses, place, by)[0])


def _at_most(most: int, what: str, items: tuple[T, ...]) -> tuple[T, ...]:
    if len(items) > most:
        raise HilserverError(f"A layout has at most {most} {what}.")
    return items


def _replaced(items: tuple[T, ...], place: int, item: T) -> tuple[T, ...]:
    return (*items[:place], item, *items[place + 1 :])


def _without(items: tuple[T, ...], place: int) -> tuple[T, ...]:
    return (*items[:place], *items[place + 1 :])


def _moved(items: tuple[T, ...], place: int, by: int) -> tuple[tuple[T, ...], int]:
    """The items with one of them moved, not beyond the ends, and its new place."""
    to = min(max(place + by, 0), len(items) - 1)
    rest = _without(items, place)
    return (*rest[:to], items[place], *rest[to:]), to
