"""``hilserver check``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def check(rig: Annotated[Path, typer.Argument(help="rig file (TOML).")]) -> None:
    """Is the configuration right? Nothing is started or written.

    Says all that is wrong with the rig file, its circuit and its work cycle. Otherwise shows the channels, the virtual
    circuit as a table, the limits and the rates; and whether the real valves are large and fast enough for the virtual
    circuit, the tick short enough, and the loop of circuit, bridge and machine stable, with all margins.
    """
    from rich.console import Console

    from hilserver.realtime.compiled import compiled_program
    from hilserver.rig.load import load_rig
    from hilserver.runs.check import tables, warnings
    from hilserver.runs.margins import margins

    console = Console(highlight=False, markup=False)
    loaded = load_rig(rig)
    found = margins(loaded, compiled_program(loaded.library))
    for table in tables(loaded, found):
        console.print(table)
    for line in warnings(loaded, found):
        console.print(f"Note: {line}", soft_wrap=True)
    console.print(f"{rig}: no problems.", soft_wrap=True)
