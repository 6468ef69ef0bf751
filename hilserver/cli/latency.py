"""``hilserver latency``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def latency(
    rig: Annotated[
        Path | None,
        typer.Argument(help="rig file (TOML) whose loop's rate, priority, CPUs and memory lock are taken."),
    ] = None,
    duration: Annotated[float, typer.Option("--duration", "-d", min=0.1, help="seconds of each measurement.")] = 10.0,
    rate: Annotated[
        float | None, typer.Option(min=1, max=20_000, help="ticks per second. default: the rig's, else 1000.")
    ] = None,
    priority: Annotated[
        int | None, typer.Option(min=0, max=99, help="SCHED_FIFO priority; 0: none. default: the rig's, else 80.")
    ] = None,
    cpu: Annotated[
        list[int] | None, typer.Option(min=0, help="a CPU to run on; may be given several times. default: the rig's.")
    ] = None,
    lock: Annotated[bool | None, typer.Option("--lock/--no-lock", help="keep all memory in RAM.")] = None,
    busy: Annotated[
        float, typer.Option(min=0, max=1, help="share of each CPU that the background load takes; 0: no loaded runs.")
    ] = 2 / 3,
    compare: Annotated[
        bool, typer.Option("--cyclictest/--no-cyclictest", help="run cyclictest beside it, where it is installed.")
    ] = True,
    output: Annotated[Path, typer.Option("--output", "-o", help="folder for the plot (PNG) and the figures.")] = Path(
        "reports"
    ),
    json: Annotated[bool, typer.Option("--json", help="the figures as JSON; writes no files.")] = False,
) -> None:
    """How late does the loop wake on this machine?

    Measures in a process that is set up exactly as the real-time process is: how late a periodic thread wakes after its
    deadline, side by side with cyclictest; and how long a thread takes to wake after a semaphore was posted. Both
    without load and beside a load on every CPU that the loop may use. No device is touched.
    """
    import sys

    from rich.console import Console

    from hilserver.bench.latency import Conditions, latency_figures, measure
    from hilserver.realtime.scheduling import Scheduling
    from hilserver.report.plots import plot_latency
    from hilserver.report.reports import json_text, latency_histograms, latency_sentences, latency_table, write_json
    from hilserver.rig.build import load_rig
    from hilserver.rig.settings import LoopSettings

    loop = load_rig(rig).settings.loop if rig is not None else LoopSettings()
    scheduling = Scheduling(
        priority=(loop.priority if priority is None else priority) or None,
        cpus=frozenset(cpu or loop.cpus) or None,
        lock_memory=loop.lock_memory if lock is None else lock,
    )
    conditions = Conditions(rate or loop.rate, duration, scheduling, busy)
    result = measure(conditions, cyclictest=compare, tell=lambda text: print(text, file=sys.stderr))
    if json:
        print(json_text(latency_figures(result)))
        return
    console = Console(highlight=False, markup=False)
    console.print(latency_table(result))
    for table in latency_histograms(result):
        console.print(table)
    for line in latency_sentences(result):
        console.print(line, soft_wrap=True)
    files = (plot_latency(result, output / "latency.png"), write_json(latency_figures(result), output / "latency.json"))
    for path in files:
        console.print(f"Written: {path}", soft_wrap=True)
