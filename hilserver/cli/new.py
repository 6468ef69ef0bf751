"""``hilserver new``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

import typer


def new(
    folder: Annotated[Path, typer.Argument(help="folder to be created")],
    template: Annotated[
        Literal["demo", "lift", "boom"],
        typer.Option(help="demo: one servo valve for both ports; lift: one for each; boom: with a mechanism"),
    ] = "demo",
    name: Annotated[str | None, typer.Option(help="name of the rig; default: that of the folder")] = None,
    flow: Annotated[
        str | None, typer.Option(help='nominal flow of the real valve per edge, such as "40 l/min"')
    ] = None,
    drop: Annotated[str | None, typer.Option(help='pressure drop of this flow per edge, such as "35 bar"')] = None,
    f90: Annotated[str | None, typer.Option(help='frequency of the real valve at -90°, such as "60 Hz"')] = None,
) -> None:
    """Create a folder with a rig, its circuits, work cycle, test sequence and README, ready to run and to be adapted.

    The values of the real valve are written into the rig and into its simulated machine.
    """
    from hilserver.cli.examples import example
    from hilserver.commissioning.new_rig import RIG, new_rig

    valve = {key: value for key, value in (("flow", flow), ("drop", drop), ("f90", f90)) if value is not None}
    rig_name = name or re.sub(r"\W+", "_", folder.resolve().name)
    for path in new_rig(folder, example(f"rigs/{template}.toml"), rig_name, valve):
        typer.echo(f"Written: {path}")
    typer.echo(f"Next: hilserver check {folder / RIG}")
