"""Plots of runs as PNG files. No window, no global state of matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.runs.latency import BATCH, CYCLICTEST, EDGES, PERIODIC, LatencyReport
from hilserver.runs.simulate import Fidelity

SHOWN = {"Pa": ("bar", 1e-5), "m^3/s": ("l/min", 6e4), "m": ("mm", 1e3), "": ("", 1.0)}
"""Unit and factor in which an SI unit is shown."""
MOST_POINTS = 20_000
"""Points per line: beyond that a plot shows the extremes of every few ticks."""
MOST_INSIDE = 6
"""Lines whose legend is inside the panel; that of more is beside it."""

Lines = Mapping[str, Floats]


def shown_unit(unit: str) -> tuple[str, float]:
    """Unit for the reader, and the factor from SI to it."""
    return SHOWN.get(unit, (unit, 1.0))


def plot_panels(time: Floats, panels: Sequence[tuple[str, str, Lines]], title: str, path: Path) -> Path:
    """One panel per (label, SI unit, lines by name) above a common time axis; returns ``path``."""
    figure, axes = _figure(len(panels), title)
    for axis, (label, unit, lines) in zip(axes, panels, strict=True):
        _panel(axis, time, label, unit, lines)
    return _save(figure, axes, path)


def plot_fidelity(result: Fidelity, path: Path) -> Path:
    """Every quantity of truth and variants over time, and below it the bridges' deviation from the truth."""
    figure, axes = _figure(
        2 * len(result.quantities), f"{result.rig}: virtual circuit joined directly (truth) and bridged rig"
    )
    for number, quantity in enumerate(result.quantities):
        name, unit = quantity.name, quantity.unit
        series = {variant.name: variant.series[name] for variant in result.variants}
        _panel(axes[2 * number], result.time, name, unit, series)
        factor = shown_unit(unit)[1]
        axes[2 * number].plot(*_thinned(result.time, result.truth[name] * factor), "k--", lw=1.0, label="truth")
        axes[2 * number].legend(loc="upper right", fontsize=7)
        errors = {name: values - result.truth[quantity.name] for name, values in series.items()}
        _panel(axes[2 * number + 1], result.time, f"deviation of {name}", unit, errors)
    return _save(figure, axes, path)


def _figure(panels: int, title: str) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(10, 2.6 * panels + 0.6), layout="constrained")
    figure.suptitle(title)
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0])


def _panel(axis: Axes, time: Floats, label: str, unit: str, lines: Lines) -> None:
    shown, factor = shown_unit(unit)
    if many := len(lines) > MOST_INSIDE:
        axis.set_prop_cycle(color=colormaps["tab20"](range(20)))
    for name, values in lines.items():
        axis.plot(*_thinned(time, values * factor), lw=0.9, label=name)
    axis.set_ylabel(f"{label}, {shown}" if shown else label)
    axis.grid(alpha=0.3)
    if many:
        axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=7, ncols=-(-len(lines) // 15))
    else:
        axis.legend(loc="upper right", fontsize=7)


def _save(figure: Figure, axes: Sequence[Axes], path: Path) -> Path:
    axes[-1].set_xlabel("time, s")
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


def plot_latency(report: LatencyReport, path: Path) -> Path:
    """Histograms of every measurement, and below them the largest value of every 500 ticks over time."""
    figure = Figure(figsize=(10, 10), layout="constrained")
    FigureCanvasAgg(figure)
    rate = report.conditions.rate
    figure.suptitle(f"Wake-up of a loop at {rate:g} Hz, {report.conditions.duration:g} s each")
    periodic, semaphore, course = figure.subplots(3, 1)
    for m in report.measured:
        axis = periodic if m.test == PERIODIC else semaphore
        axis.stairs(m.samples.histogram(EDGES), EDGES * 1e6, label=m.name, ls="--" if m.by == CYCLICTEST else "-")
        if m.batches is not None:
            time = np.arange(len(m.batches)) * BATCH / rate
            course.step(time, m.batches[:, 1] * 1e6, where="post", lw=0.9, label=m.name)
    longest = max(m.samples.max for m in report.measured) * 1e6
    for axis, title in ((periodic, "from the deadline to the wake-up"), (semaphore, "from the post to the wake-up")):
        axis.set(xscale="log", yscale="log", xlim=(0.5, 2.0 * max(longest, 1.0)), ylim=(0.5, None))
        axis.set(xlabel=f"{title}, µs", ylabel="how often")
    course.set(yscale="log", ylabel=f"largest of {BATCH} ticks, µs")
    for axis in (periodic, semaphore, course):
        axis.grid(alpha=0.3)
        axis.legend(loc="upper right", fontsize=7)
    return _save(figure, [course], path)
