"""Plots of runs as PNG files, without windows and without matplotlib's global state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
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

DPI = 120
"""Resolution of the PNG files, pixels per inch."""
COMPRESSION = 3
"""Of PNG files, from 1 to 9: with 6, they are 5 % smaller and take half as long again."""
MAX_POINTS = 20_000
"""Maximum number of points per line; longer ones are plotted as minimum and maximum of groups of ticks."""
REFERENCE = "reference"
"""Name of the line that is plotted dashed and black."""
VIRTUAL = " virtual"
"""A line whose name ends with this is wide, so that the measured one on top of it leaves it visible."""
MAX_INSIDE = 6
"""Maximum number of lines for a legend inside the panel; with more it is beside the panel."""

Lines = Mapping[str, Floats]


Panel = tuple[str, str, Lines]
"""A panel: label, SI unit, lines by name."""


def plot_panels(time: Floats, panels: Sequence[Panel], title: str, path: Path) -> Path:
    """Panels above a common time axis as a PNG file; returns ``path``."""
    return save(panels_figure(time, panels, title), path)


def panels_figure(
    time: Floats, panels: Sequence[Panel], title: str, colours: Mapping[str, object] | None = None
) -> Figure:
    """Panels above a common time axis; ``colours``: of lines by name that keep their colour in all panels."""
    figure = new_figure(len(panels), title)
    axes = list(figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0])
    for axis, (label, unit, lines) in zip(axes, panels, strict=True):
        _panel(axis, time, label, unit, lines, colours or {})
    axes[-1].set_xlabel("time, s")
    return figure


def new_figure(panels: int, title: str) -> Figure:
    """An empty figure with the height for this number of panels."""
    figure = Figure(figsize=(10, 2.6 * panels + 0.6), layout="constrained")
    figure.suptitle(title)
    return figure


def _panel(axis: Axes, time: Floats, label: str, unit: str, lines: Lines, colours: Mapping[str, object]) -> None:
    shown, factor = shown_unit(unit)
    if many := len(lines) > MAX_INSIDE:
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
        axis.legend(loc="upper right", fontsize=7).set_in_layout(False)  # it takes no room beside the panel


def png(figure: Figure) -> bytes:
    """A figure as PNG. (`Figure.savefig` makes the same file, but draws twice, the first time for the layout only.)"""
    buffer = BytesIO()
    figure.set_dpi(DPI)
    FigureCanvasAgg(figure).print_png(buffer, pil_kwargs={"compress_level": COMPRESSION})  # type: ignore[no-untyped-call]
    return buffer.getvalue()


def save(figure: Figure, path: Path) -> Path:
    """Write a figure as PNG; returns ``path``. Raises HilserverError if it can't be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(figure))
    except OSError as error:
        raise HilserverError(f"{path}: can't be written: {error.strerror or error}.") from error
    return path


def _thinned(time: Floats, values: Floats) -> tuple[Floats, Floats]:
    """At most MAX_POINTS points: minimum and maximum of each group, so that no peak is lost."""
    group = -(-2 * len(values) // MAX_POINTS)
    if group <= 2:
        return time, values
    count = len(values) // group
    blocks = values[: count * group].reshape(count, group)
    finite = np.where(np.isfinite(blocks), blocks, np.nan)
    low, high = np.fmin.reduce(finite, axis=1), np.fmax.reduce(finite, axis=1)
    return np.repeat(time[: count * group : group], 2), np.stack([low, high], axis=1).ravel()
