"""``hilserver latency``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hilserver.cli.prose import say

if TYPE_CHECKING:
    from hilserver.bench.latency import LatencyMeasurement, LatencyReport
    from hilserver.cli.tables import TerminalTable
    from hilserver.realtime.scheduling import Scheduling
    from hilserver.rig.settings import LoopSettings


COARSE = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 1e6)
"""Edges of the bins in the terminal, µs."""
BAR = 12
"""Characters of the longest bar."""


def latency(
    rig: Annotated[
        Path | None,
        typer.Argument(help="rig file (TOML) with the rate, priority, CPUs and memory lock to use"),
    ] = None,
    duration: Annotated[float, typer.Option("--duration", "-d", min=0.1, help="seconds per measurement")] = 10.0,
    rate: Annotated[
        float | None, typer.Option(min=1, max=20_000, help="ticks per second; default: the rig's, or 1000")
    ] = None,
    priority: Annotated[
        int | None,
        typer.Option(min=0, max=99, help="SCHED_FIFO priority; 0: none; default: the rig's, or 80"),
    ] = None,
    cpu: Annotated[
        list[int] | None,
        typer.Option(min=0, help="CPU to run on; may be repeated; default: the rig's"),
    ] = None,
    lock: Annotated[bool | None, typer.Option("--lock/--no-lock", help="keep all memory in RAM")] = None,
    busy: Annotated[
        float,
        typer.Option(min=0, max=1, help="fraction of each CPU used by the background load; 0: no load"),
    ] = 2 / 3,
    compare: Annotated[
        bool, typer.Option("--cyclictest/--no-cyclictest", help="run cyclictest at the same time, if it is installed")
    ] = True,
    output: Annotated[Path, typer.Option("--output", "-o", help="folder for the plot (PNG) and the figures")] = Path(
        "reports"
    ),
    json: Annotated[bool, typer.Option("--json", help="print the figures as JSON and write no files")] = False,
) -> None:
    """Measure the wake-up latency of the real-time loop on this computer.

    Measures, in a process that is configured exactly like the real-time process: the delay with which a periodic thread
    wakes up after its deadline, compared with cyclictest running at the same time; and the delay with which a thread
    wakes up after a semaphore was posted. Both without load and with a load on every CPU that the loop may use. No
    device is accessed.
    """
    import sys

    from hilserver.bench.latency import Conditions, measure
    from hilserver.bench.latency_report import latency_figures
    from hilserver.report.figures import json_text
    from hilserver.rig.build import load_rig
    from hilserver.rig.settings import LoopSettings

    loop = load_rig(rig).settings.loop if rig is not None else LoopSettings()
    conditions = Conditions(rate or loop.rate, duration, _scheduling(loop, priority, cpu, lock), busy)
    result = measure(conditions, cyclictest=compare, tell=lambda text: print(text, file=sys.stderr))
    if json:
        print(json_text(latency_figures(result)))
    else:
        _report(result, output)


def _scheduling(loop: LoopSettings, priority: int | None, cpus: list[int] | None, lock: bool | None) -> Scheduling:
    """The rig's scheduling, with the options given on the command line."""
    from hilserver.realtime.scheduling import Scheduling

    return Scheduling(
        priority=(loop.priority if priority is None else priority) or None,
        cpus=frozenset(cpus or loop.cpus) or None,
        lock_memory=loop.lock_memory if lock is None else lock,
    )


def _report(result: LatencyReport, folder: Path) -> None:
    """Print the result, and write its plot and figures to a folder."""
    from hilserver.bench.latency_report import latency_figures, latency_sentences, plot_latency
    from hilserver.cli.tables import new_console
    from hilserver.report.figures import write_json

    console = new_console()
    console.print(latency_table(result))
    for table in latency_histograms(result):
        console.print(table)
    for line in latency_sentences(result):
        say(line, console)
    files = (plot_latency(result, folder / "latency.png"), write_json(latency_figures(result), folder / "latency.json"))
    for path in files:
        say(f"Written: {path}", console)


def latency_table(report: LatencyReport) -> TerminalTable:
    """The figures of all measurements."""
    from hilserver.cli.tables import TerminalTable

    c = report.conditions
    priority = f"SCHED_FIFO {c.scheduling.priority}" if c.scheduling.priority is not None else "ordinary scheduler"
    cpus = f", CPUs {', '.join(map(str, sorted(c.scheduling.cpus)))}" if c.scheduling.cpus else ""
    table = TerminalTable(title=f"wake-up at {c.rate:g} Hz, {priority}{cpus}: delay in µs, {c.duration:g} s each")
    table.add_column("what")
    for head in ("min", "avg", "median", "99 %", "99.9 %", "max"):
        table.add_column(head, justify="right", no_wrap=True, min_width=6)
    for m in report.measured:
        f = m.samples.figures()
        cells = [f"{1e6 * v:.1f}" if math.isfinite(v) else "> 1000" for v in (f.min, f.mean, f.median, f.p99, f.p999)]
        table.add_row(m.name, *cells, f"{1e6 * f.max:.1f}")
    return table


def latency_histograms(report: LatencyReport) -> list[TerminalTable]:
    """Histograms of the delays, without load and with load."""
    groups = [[m for m in report.measured if m.loaded is loaded] for loaded in (False, True)]
    return [_histogram(measured) for measured in groups if measured]


def _histogram(measured: list[LatencyMeasurement]) -> TerminalTable:
    """One column of bars per measurement; the length of a bar is logarithmic."""
    import numpy as np

    from hilserver.cli.tables import TerminalTable

    edges = 1e-6 * np.array(COARSE)
    table = TerminalTable(box=None)
    table.add_column("µs", justify="right", no_wrap=True)
    for m in measured:
        table.add_column(m.name, min_width=BAR + 7)
    counts = np.array([m.samples.histogram(edges) for m in measured]).T
    used = np.flatnonzero(counts.sum(axis=1))
    for k in range(used[0], used[-1] + 1):
        upper = f"… {COARSE[k + 1]:g}" if k + 2 < len(COARSE) else "and more"
        table.add_row(f"{COARSE[k]:g} {upper}", *map(_bar, counts[k], counts.max(axis=0)))
    return table


def _bar(count: int, largest: int) -> str:
    if count == 0:
        return ""
    return f"{'█' * max(round(BAR * math.log(count + 1) / math.log(largest + 1)), 1)} {count}"
