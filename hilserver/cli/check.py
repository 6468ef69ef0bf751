"""``hilserver check``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def check(rig: Annotated[Path, typer.Argument(help="rig file (TOML).")]) -> None:
    """Is the configuration right? Nothing is started or written.

    Says all that is wrong with the rig file, its circuit and its work cycle. Otherwise shows the channels, the virtual
    circuit as a table, the real valves with their margins against the virtual ones, the limits and the rates.
    """
    from rich.console import Console

    from hilserver.rig.load import load_rig
    from hilserver.runs.check import tables, warnings

    console = Console(highlight=False, markup=False)
    loaded = load_rig(rig)
    for table in tables(loaded):
        console.print(table)
    for line in warnings(loaded):
        console.print(f"Note: {line}", soft_wrap=True)
    console.print(f"{rig}: no problems.", soft_wrap=True)
