"""The fidelity of a rig as plots: errors over frequency, quantities and commands over time."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

from hilserver.fidelity.results import NO_BRIDGE, Fidelity, SegmentResult
from hilserver.numerics.arrays import Floats
from hilserver.report.plots import REFERENCE, Lines, Panel, new_figure, panels_figure

BAND = 5.0
"""Per cent and degrees that are shaded in the plot over frequency."""


def frequency_figure(result: Fidelity) -> Figure | None:
    """Amplitude and phase errors of the quantities that the valves follow, over frequency; None without a sweep."""
    quantities = [q for q in result.followed() if result.sweep_responses(q.name)]
    if not quantities:
        return None
    against = "reference simulation" if result.reference else "virtual flow"
    figure = new_figure(2 * len(quantities), f"{result.rig}: sines on {result.swept}, error against the {against}")
    axes = figure.subplots(2 * len(quantities), 1, sharex=True, squeeze=False)[:, 0]
    unachievable = result.unachievable()
    for quantity, (upper, lower) in zip(quantities, zip(axes[::2], axes[1::2], strict=True), strict=True):
        found = result.sweep_responses(quantity.name)
        for axis, label, values in (
            (upper, "amplitude, %", {n: [100 * (r.ratio - 1) for r in rs] for n, rs in found.items()}),
            (lower, "phase, °", {n: [r.phase for r in rs] for n, rs in found.items()}),
        ):
            axis.axhspan(-BAND, BAND, color="0.93", zorder=0)
            for name, line in values.items():
                axis.semilogx(
                    [r.frequency for r in found[name]],
                    line,
                    "o-",
                    ms=3,
                    lw=0.9,
                    label=name,
                    color=_colour(result, name),
                )
            plotted = [
                abs(value)
                for name, line in values.items()
                for r, value in zip(found[name], line, strict=True)
                if name != NO_BRIDGE and isfinite(value) and r.frequency not in unachievable
            ]
            limit = max(1.15 * max(plotted, default=BAND), 2 * BAND)
            axis.set_ylim(-limit, limit)
            axis.set_ylabel(f"{quantity.name}\n{label}")
            axis.grid(alpha=0.3, which="both")
        upper.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=7)
    ticks = sorted({r.frequency for rs in found.values() for r in rs})
    axes[-1].set_xticks(ticks, [f"{f:g}{' *' if f in unachievable else ''}" for f in ticks])
    axes[-1].minorticks_off()
    axes[-1].set_xlabel("frequency, Hz" + ("   (*: a valve is saturated)" if unachievable else ""))
    return figure


def _colour(result: Fidelity, name: str) -> object:
    """The colour of a strategy, the same in all plots."""
    return colormaps["tab20"](2 * [variant.name for variant in result.variants].index(name) % 20)


def time_figure(result: Fidelity) -> Figure | None:
    """Every quantity over the work cycle, its deviation with a bridge, and the commands; None without a work cycle."""
    cycles = {v.name: v.cycle for v in result.variants if v.cycle is not None}
    if not cycles:
        return None
    time = next(iter(cycles.values())).time
    panels = list(_panels(result, cycles, time))
    against = "reference simulation" if result.reference else "virtual circuit"
    colours = {name: _colour(result, name) for name in cycles}
    return panels_figure(time, panels, f"{result.rig}: {against} and bridged rig", colours)


def _panels(result: Fidelity, cycles: dict[str, SegmentResult], time: Floats) -> Iterator[Panel]:
    for quantity in result.quantities:
        name = quantity.name
        references = {n: c.reference if result.reference else c.virtual for n, c in cycles.items()}
        lines: dict[str, Floats] = {n: _on(time, c.time, c.actual[name]) for n, c in cycles.items() if name in c.actual}
        errors: Lines = {
            n: _on(time, c.time, c.actual[name] - references[n][name])
            for n, c in cycles.items()
            if n != NO_BRIDGE and name in c.actual and name in references[n]
        }
        known = [_on(time, cycles[n].time, r[name]) for n, r in references.items() if name in r]
        if known:
            lines[REFERENCE if result.reference else "virtual"] = known[0]
        yield name, quantity.unit, lines
        if errors:
            yield f"deviation of {name}", quantity.unit, errors
    for valve in result.valves:
        yield f"command of {valve}", "", {n: _on(time, c.time, c.command[valve]) for n, c in cycles.items()}


def _on(time: Floats, times: Floats, values: Floats) -> Floats:
    found: Floats = values if len(times) == len(time) else np.interp(time, times, values)
    return found
