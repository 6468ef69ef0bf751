"""``hilserver experiment``: published experiments, repeated."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hilserver.cli.prose import say

if TYPE_CHECKING:
    from hilserver.report.document import Document

experiment = typer.Typer(
    help="Repeat published experiments against independent solutions.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@experiment.callback()
def _group() -> None:
    """Repeat published experiments against independent solutions."""


@experiment.command("boom")
def boom(
    out: Annotated[Path, typer.Option("--output", "-o", help="folder for the plot")] = Path("reports"),
    seconds: Annotated[float, typer.Option(min=0.1, max=4.0, help="part of the work cycle that is run")] = 4.0,
) -> None:
    """The hydraulic boom of Asikainen's thesis: differences from an independent solution, and the time of a step."""
    from hilserver.bench.boom import BoomExperiment
    from hilserver.cli.examples import example

    circuit = example("circuits/boom.toml")
    found = BoomExperiment(circuit, circuit.parents[1] / "mechanisms", seconds)
    for line in found.accuracy():
        typer.echo(line)
    typer.echo("")
    for line in found.costs():
        typer.echo(line)
    typer.echo(f"\nWritten: {found.plot(out)}")


Folder = Annotated[Path, typer.Option("--output", "-o", help="folder for the report (HTML, Markdown, pictures)")]


@experiment.command("slider-crank")
def slider_crank(
    seconds: Annotated[
        list[int] | None,
        typer.Option(min=1, help="simulated seconds; may be repeated; default: 1 … 60, as in the source"),
    ] = None,
    out: Folder = Path("reports"),
) -> None:
    """The spatial slider-crank of the article on closed chains: cost over simulated time, with steps of 10 and 1 ms."""
    from hilserver.bench.closed_chains import SOURCE
    from hilserver.bench.closed_chains import slider_crank as run
    from hilserver.cli.examples import example

    _publish(run(example("mechanisms/spatial_slider_crank.toml"), seconds or tuple(SOURCE)), out, "slider-crank")


@experiment.command("loop")
def loop(
    joints: Annotated[
        list[int] | None,
        typer.Option(min=4, max=2001, help="joints of the loop; may be repeated; default: 5 … 251"),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="simulated seconds")] = 10.0,
    out: Folder = Path("reports"),
) -> None:
    """The generated loop of the article on closed chains: cost, closure, accuracy, gain by two threads over n."""
    from hilserver.bench.closed_chains import JOINTS, generated_loops

    _publish(generated_loops(joints or JOINTS, seconds), out, "loop")


def _publish(document: Document, out: Path, stem: str) -> None:
    """Print the tables and sentences of a report, and write it."""
    from hilserver.cli.fidelity import grid_table
    from hilserver.cli.tables import new_console
    from hilserver.report.document import Grid, Listing

    console = new_console()
    for block in document.blocks:
        if isinstance(block, Grid):
            console.print(grid_table(block, ""))
        elif isinstance(block, Listing):
            for item in block.items:
                say(item, console)
    for path in document.write(out, stem):
        say(f"Written: {path}", console)
