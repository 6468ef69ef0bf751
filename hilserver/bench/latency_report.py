"""The result of a latency measurement: sentences, plot, figures."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from hilserver.bench.latency import BATCH, CYCLICTEST, EDGES, PERIODIC, LatencyReport, load_words
from hilserver.record.machine import machine
from hilserver.report.plots import save


def latency_sentences(report: LatencyReport) -> list[str]:
    """The comparison with cyclictest, the notes, and what the system did not grant."""
    found = []
    for loaded in (False, True):
        if (ratio := report.ratio(loaded)) is not None:
            found.append(f"{load_words(loaded)}: the loop's median is {ratio:.2f} times that of cyclictest.")
    return [*found, *report.notes, *report.degradations]


def plot_latency(report: LatencyReport, path: Path) -> Path:
    """Histograms of all measurements, and the maximum of every 500 ticks over time."""
    figure = Figure(figsize=(10, 10), layout="constrained")
    rate = report.conditions.rate
    figure.suptitle(f"Wake-up latency of a loop at {rate:g} Hz, {report.conditions.duration:g} s each")
    periodic, semaphore, maxima = figure.subplots(3, 1)
    for m in report.measured:
        axis = periodic if m.test == PERIODIC else semaphore
        axis.stairs(m.samples.histogram(EDGES), EDGES * 1e6, label=m.name, ls="--" if m.by == CYCLICTEST else "-")
        if m.batches is not None:
            time = np.arange(len(m.batches)) * BATCH / rate
            maxima.step(time, m.batches[:, 1] * 1e6, where="post", lw=0.9, label=m.name)
    longest = max(m.samples.max for m in report.measured) * 1e6
    for axis, title in ((periodic, "from the deadline to the wake-up"), (semaphore, "from the post to the wake-up")):
        axis.set(xscale="log", yscale="log", xlim=(0.5, 2.0 * max(longest, 1.0)), ylim=(0.5, None))
        axis.set(xlabel=f"{title}, µs", ylabel="count")
    maxima.set(yscale="log", xlabel="time, s", ylabel=f"maximum of {BATCH} ticks, µs")
    for axis in (periodic, semaphore, maxima):
        axis.grid(alpha=0.3)
        axis.legend(loc="upper right", fontsize=7)
    return save(figure, path)


def latency_figures(report: LatencyReport) -> dict[str, Any]:
    """The result as data; times in s."""
    conditions = asdict(report.conditions)
    cpus = report.conditions.scheduling.cpus
    conditions["scheduling"]["cpus"] = sorted(cpus) if cpus else None
    return {
        "machine": machine(),
        "conditions": conditions,
        "degradations": list(report.degradations),
        "notes": list(report.notes),
        "median_over_cyclictest": {"no load": report.ratio(False), "with load": report.ratio(True)},
        "histogram_edges": EDGES.tolist(),
        "measured": [
            {
                "test": m.test,
                "by": m.by,
                "loaded": m.loaded,
                "figures": asdict(m.samples.figures()),
                "histogram": m.samples.histogram(EDGES).tolist(),
                "batches": {"ticks": BATCH, "min_max": m.batches.tolist()} if m.batches is not None else None,
            }
            for m in report.measured
        ],
    }
