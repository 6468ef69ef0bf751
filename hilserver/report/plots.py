"""Plots of runs as PNG files. No window, no global state of matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.units import shown_unit

MOST_POINTS = 20_000
"""Points per line: beyond that a plot shows the extremes of every few ticks."""
REFERENCE = "reference"
"""The line of this name is dashed and black."""
VIRTUAL = " virtual"
"""A line whose name ends so is broad, for the measured one to be seen on it."""
MOST_INSIDE = 6
"""Lines whose legend is inside the panel; that of more is beside it."""

Lines = Mapping[str, Floats]


Panel = tuple[str, str, Lines]
"""Label, SI unit, lines by name."""


def plot_panels(time: Floats, panels: Sequence[Panel], title: str, path: Path) -> Path:
    """One panel after the other above a common time axis, as a PNG file; returns ``path``."""
    return save(panels_figure(time, panels, title), path)


def panels_figure(
    time: Floats, panels: Sequence[Panel], title: str, colours: Mapping[str, object] | None = None
) -> Figure:
    """The same as a figure; ``colours`` of lines by name, where one is to keep its colour from panel to panel."""
    figure = new_figure(len(panels), title)
    axes = list(figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0])
    for axis, (label, unit, lines) in zip(axes, panels, strict=True):
        _panel(axis, time, label, unit, lines, colours or {})
    axes[-1].set_xlabel("time, s")
    return figure


def new_figure(panels: int, title: str) -> Figure:
    """An empty figure as high as so many panels need."""
    figure = Figure(figsize=(10, 2.6 * panels + 0.6), layout="constrained")
    figure.suptitle(title)
    FigureCanvasAgg(figure)
    return figure


def _panel(axis: Axes, time: Floats, label: str, unit: str, lines: Lines, colours: Mapping[str, object]) -> None:
    shown, factor = shown_unit(unit)
    if many := len(lines) > MOST_INSIDE:
        axis.set_prop_cycle(color=colormaps["tab20"](range(20)))
    for name, values in lines.items():
        style: dict[str, Any] = {"lw": 0.9, "color": colours[name]} if name in colours else {"lw": 0.9}
        if name.endswith(VIRTUAL):
            style["lw"] = 2.0
        if name == REFERENCE:
            style = {"color": "black", "ls": "--", "lw": 1.0}
        axis.plot(*_thinned(time, values * factor), label=name, **style)
    axis.set_ylabel(f"{label}, {shown}" if shown else label)
    axis.grid(alpha=0.3)
    if many:
        axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=7, ncols=-(-len(lines) // 15))
    else:
        axis.legend(loc="upper right", fontsize=7)


def save(figure: Figure, path: Path) -> Path:
    """Write a figure as PNG; returns ``path``. Raises HilserverError where it can't be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise HilserverError(f"{path}: can't be written: {error.strerror or error}.") from error
    return path


def _thinned(time: Floats, values: Floats) -> tuple[Floats, Floats]:
    """At most MOST_POINTS points: smallest and largest value of every few, so that no peak is lost."""
    group = -(-2 * len(values) // MOST_POINTS)
    if group <= 2:
        return time, values
    count = len(values) // group
    blocks = values[: count * group].reshape(count, group)
    finite = np.where(np.isfinite(blocks), blocks, np.nan)
    low, high = np.fmin.reduce(finite, axis=1), np.fmax.reduce(finite, axis=1)
    return np.repeat(time[: count * group : group], 2), np.stack([low, high], axis=1).ravel()
