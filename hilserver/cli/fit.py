"""``hilserver fit``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hilserver.cli.changing import change_file
from hilserver.cli.output import never_waiting
from hilserver.cli.prose import say

if TYPE_CHECKING:
    from hilserver.studies.fitting import FitOfCircuit

Logs = Annotated[
    list[Path],
    typer.Option(
        "--log", help="recorded data: text table, .parquet or log (.arrow); may be repeated", show_default=False
    ),
]
Free = Annotated[
    str,
    typer.Option(help='parameters to be identified, such as "relief.opening_pressure,load.mass"', show_default=False),
]
Columns = Annotated[
    Path | None,
    typer.Option(help="file (TOML) that says which column is which quantity; default: columns of the same name"),
]
HeldOut = Annotated[
    float, typer.Option(min=0.0, max=0.9, help="share at the end of each log kept for validation of the fit")
]


@never_waiting()
def fit(
    file: Annotated[Path, typer.Argument(metavar="CIRCUIT", help="circuit file (TOML)", show_default=False)],
    log: Logs,
    free: Free,
    columns: Columns = None,
    start: Annotated[str, typer.Option("--start", help="start of the part of the log that is used")] = "0 s",
    end: Annotated[str | None, typer.Option("--end", help="end of this part; default: that of the log")] = None,
    tick: Annotated[str, typer.Option(help="time that is divided into solver.substeps")] = "1 ms",
    held_out: HeldOut = 0.25,
    apply: Annotated[
        bool, typer.Option("--apply", help="show the changes of the circuit file, and make them; a dated copy is kept")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="don't ask before the file is changed")] = False,
    out: Annotated[Path, typer.Option("--output", "-o", help="folder of the page")] = Path("reports"),
) -> None:
    """Identify values of a circuit from recorded data: which of them explain the log?

    The circuit is driven by the recorded inputs and simulated over the log, and the values are changed until its
    quantities deviate least from the measured ones. The page has the values with their 95 % intervals, their
    correlations, inseparable parameters, and predicted against measured quantities, also over the part of each log
    that was held out. Values with a tolerance stay within it, others within a tenth to ten times the file's value.
    """
    from hilserver.cli.fidelity import grid_table
    from hilserver.cli.simulate import seconds
    from hilserver.cli.tables import new_console
    from hilserver.studies.fit_report import deviations_grid, fit_sentences, values_grid, write_fit
    from hilserver.studies.fitting import fit_circuit
    from hilserver.studies.measured import read_columns

    keys = [key.strip() for key in free.split(",") if key.strip()]
    begin, stop = seconds("--start", start), seconds("--end", end) if end is not None else float("inf")
    named = read_columns(columns) if columns is not None else None
    result = fit_circuit(file, log, keys, named, seconds("--tick", tick), held_out, begin, stop)
    console = new_console()
    console.print(grid_table(values_grid(result), f"{file.name}: values found", compact=True))
    console.print(grid_table(deviations_grid(result), "Predicted and measured", compact=True))
    for line in [*fit_sentences(result), *(f"Written: {path}" for path in write_fit(result, out))]:
        say(line, console)
    if apply:
        _apply(result, yes)


def _apply(result: FitOfCircuit, yes: bool) -> None:
    """Show the difference, ask, and write the values into the circuit file."""
    from datetime import datetime

    from hilserver.studies.applying import load_circuit, with_fitted

    before, now = result.file.read_text(), datetime.now().astimezone()
    after, left = with_fitted(before, result, now.date())
    for line in left:
        say(line)
    change_file(result.file, before, after, now, load_circuit, "fitted", yes=yes)
