"""``hilserver experiment``: the experiments of the sources, each by one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from hilserver.report.document import Document

Folder = Annotated[Path, typer.Option("--output", "-o", help="folder for the report (HTML, Markdown, pictures).")]
experiment = typer.Typer(help="The experiments of the sources, on this machine.", no_args_is_help=True)


@experiment.command("slider-crank")
def slider_crank(
    seconds: Annotated[
        list[int] | None,
        typer.Option(min=1, help="simulated seconds; may be given several times. default: 1 … 60 as in the source."),
    ] = None,
    out: Folder = Path("reports"),
) -> None:
    """Slider-crank in space: what its simulation costs, over simulated time, at steps of 0.01 and 0.001 s."""
    from hilserver.cli.examples import example
    from hilserver.simulation.chain_experiments import SOURCE
    from hilserver.simulation.chain_experiments import slider_crank as run

    _show(run(example("mechanisms/spatial_slider_crank.toml"), seconds or tuple(SOURCE)), out, "slider-crank")


@experiment.command("loop")
def loop(
    joints: Annotated[
        list[int] | None,
        typer.Option(min=4, max=2001, help="joints of the loop; may be given several times. default: 5 … 251."),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="simulated seconds.")] = 10.0,
    out: Folder = Path("reports"),
) -> None:
    """Generated loop of n revolute joints: cost over n, closure, accuracy, and what a second thread is worth."""
    from hilserver.simulation.chain_experiments import JOINTS, generated_loops

    _show(generated_loops(joints or JOINTS, seconds), out, "loop")


def _show(document: Document, out: Path, stem: str) -> None:
    """Print the tables and sentences of a report; write it."""
    from rich.console import Console
    from rich.table import Table

    from hilserver.report.document import Grid, Listing

    console = Console(highlight=False, markup=False)
    for block in document.blocks:
        if isinstance(block, Grid):
            table = Table(*block.head, caption=block.caption, caption_justify="left")
            for row in block.rows:
                table.add_row(*row)
            console.print(table)
        elif isinstance(block, Listing):
            for item in block.items:
                console.print(item, soft_wrap=True)
    for path in document.write(out, stem):
        console.print(f"Written: {path}", soft_wrap=True)
