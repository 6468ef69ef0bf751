"""``hilserver report``: the report on a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    log: Annotated[
        Path, typer.Argument(help="log of hilserver (.arrow); further files of a long run are found automatically")
    ],
    out: Annotated[Path, typer.Option("--output", "-o", help="folder to write to")] = Path("reports"),
) -> None:
    """Write the report on a run: plots, accuracy of each valve, timing, events, circuit, configuration and version.

    The report is one self-contained HTML file, and the same as Markdown with its pictures.
    """
    from hilserver.report.run_report import write_run_report

    typer.echo(f"Report: {write_run_report(log, out)}")
