"""``hilserver simulate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def simulate(
    rig: Annotated[Path, typer.Argument(help="rig file (TOML) with a simulated rig and a work cycle.")],
    out: Annotated[
        Path, typer.Option("--output", "-o", help="folder for the plot (PNG) and the figures (JSON).")
    ] = Path("reports"),
    strategy: Annotated[
        list[str] | None,
        typer.Option(help="bridge strategy to try; may be given several times. default: all possible ones."),
    ] = None,
) -> None:
    """How closely does the rig follow the virtual circuit?

    Runs the work cycle with the virtual circuit joined directly to the simulated machine (the truth), and with the
    bridged rig beside it: once for each bridge strategy and once without compensation, where the virtual valve's
    command goes straight to the real valve. Reports how far position and flow are from the truth. No hardware, no real
    time.
    """
    from rich.console import Console

    from hilserver.rig.load import load_rig
    from hilserver.runs.reports import fidelity_sentences, fidelity_table, write_fidelity
    from hilserver.runs.simulate import fidelity

    console = Console(highlight=False, markup=False)
    result = fidelity(load_rig(rig), strategy)
    console.print(fidelity_table(result))
    for line in [*fidelity_sentences(result), *(f"Written: {path}" for path in write_fidelity(result, out))]:
        console.print(line, soft_wrap=True)
