"""``hilserver bench``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def bench(
    rig: Annotated[Path, typer.Argument(help="rig file (TOML) with a simulated rig.")],
    substeps: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            max=1000,
            help="Integration steps of the virtual circuit per tick; may be given several times. Default: 2 and 10.",
        ),
    ] = None,
    ticks: Annotated[int | None, typer.Option(min=1, help="Ticks per batch. Default: one work cycle.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Batches; the median counts.")] = 7,
    json: Annotated[bool, typer.Option("--json", help="The figures as JSON.")] = False,
) -> None:
    """How fast is this machine with this rig?

    Times the tick alone (scaling, limits, virtual circuit, bridge), with the simulated rig, with full-rate logging,
    and the replay of that log, without waiting for real time. A tick must be clearly shorter than its period.
    """
    from dataclasses import asdict

    from rich.console import Console

    from hilserver.rig.load import load_rig
    from hilserver.runs.bench import benchmarks
    from hilserver.runs.reports import bench_table, json_text

    loaded = load_rig(rig)
    results = benchmarks(loaded, ticks=ticks, repeats=repeats, substeps=substeps or (2, 10))
    if json:
        print(json_text({"rig": loaded.settings.name, "unit": "us per tick", "results": [asdict(r) for r in results]}))
    else:
        Console(highlight=False, markup=False).print(bench_table(results, loaded.settings.name))
