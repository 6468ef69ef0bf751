"""``hilserver report``: a page about a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    log: Annotated[
        Path, typer.Argument(help="log of hilserver (.arrow); the parts of a long run are found by themselves")
    ],
    out: Annotated[Path, typer.Option("--output", "-o", help="folder to write to")] = Path("reports"),
) -> None:
    """Write a page about a run: plots, how true it was, timing, what happened, circuit, configuration, version.

    One HTML file that needs nothing else, to be kept or sent; beside it the same as Markdown with its pictures.
    """
    from hilserver.report.run_report import write_run_report

    typer.echo(f"Report: {write_run_report(log, out)}")
