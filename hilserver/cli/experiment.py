"""``hilserver experiment``: published experiments, repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
