"""``hilserver pack``: write a rig, or a log, for the runner, which needs no Python."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def pack(
    what: Annotated[Path, typer.Argument(help="rig file (.toml), or log of hilserver (.arrow)", show_default=False)],
    folder: Annotated[Path, typer.Argument(help="new folder", show_default=False)],
    trust: Annotated[
        bool, typer.Option("--trust", help="log only: run the Python code in it, although it was not run here before")
    ] = False,
) -> None:
    """Write a rig as a folder that runs on a computer without Python.

    The folder contains the program hilserver-runner, the compiled program and the rig in one file. Run it there with
    FOLDER/hilserver-runner FOLDER (--help lists its options); hilserver deploy --runner brings it to another computer
    and operates it there.

    With a log instead of a rig file, the folder replays it: hilserver-runner FOLDER --replay FOLDER/log.rows.
    """
    from hilserver.rig.build import load_rig
    from hilserver.runner.pack import write_rig
    from hilserver.runner.rows import ROWS, write_log

    if what.suffix == ".arrow":
        result = write_log(what, folder, trust=trust)
        typer.echo(f"{folder}: {result.compared} rows of {what.name}.")
        typer.echo(f"{folder}/hilserver-runner {folder} --replay {folder}/{ROWS}")
        return
    size = sum(path.stat().st_size for path in write_rig(load_rig(what), folder))
    typer.echo(f"{folder}: {size / 1e6:.1f} MB. {folder}/hilserver-runner {folder} runs it.")
