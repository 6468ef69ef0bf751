"""``hilserver size``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hilserver.cli.output import never_waiting
from hilserver.cli.prose import say
from hilserver.cli.study import Workers

CatalogueOption = Annotated[Path | None, typer.Option(help="catalogue of valves (TOML); default: public datasheets")]
ValveNames = Annotated[
    list[str] | None, typer.Option("--valve", help="valve of the rig to be replaced; may be repeated; default: all")
]


@never_waiting()
def size(
    file: Annotated[Path, typer.Argument(metavar="RIG", help="rig file (TOML)", show_default=False)],
    catalogue: CatalogueOption = None,
    strategy: Annotated[str | None, typer.Option(help="bridge strategy; default: that of the rig file")] = None,
    valve: ValveNames = None,
    samples: Annotated[int, typer.Option(min=2, max=10_000, help="rigs within the tolerances, per valve")] = 20,
    position: Annotated[str, typer.Option(help="permitted NRMSE of a position")] = "2 %",
    flow: Annotated[str, typer.Option(help="permitted NRMSE of a flow")] = "3.5 %",
    every: Annotated[bool, typer.Option("--all", help="examine the larger valves, too")] = False,
    workers: Workers = None,
    out: Annotated[Path, typer.Option("--output", "-o", help="folder of the page")] = Path("reports"),
) -> None:
    """Find the smallest real valve of a catalogue for a simulated rig and its virtual circuit.

    Each valve takes the place of the real valves, in the rig file and in the simulated drive. Its margins (capacity,
    speed, rate, delay) must be sufficient, and the fidelity over the work cycle must keep the limits on rigs within the
    tolerances of the rig's files and of the catalogue. The page has a table of all valves, and why each was rejected.
    """
    import os

    from hilserver.cli.examples import example
    from hilserver.cli.fidelity import grid_table
    from hilserver.cli.progress import progress_bar
    from hilserver.cli.tables import new_console
    from hilserver.studies.catalogue import load_catalogue
    from hilserver.studies.sizing import LIMITS, size_valves
    from hilserver.studies.sizing_report import candidates_grid, refusals, sizing_facts, verdict, write_sizing

    limits = {**LIMITS, "position": _share(position, "--position"), "flow": _share(flow, "--flow")}
    candidates = load_catalogue(catalogue or example("catalogue/servo_valves.toml"))
    processes = len(os.sched_getaffinity(0)) if workers is None else workers
    with progress_bar() as tell:
        result = size_valves(file, candidates, strategy, valve or (), samples, processes, every, limits, tell)
    console = new_console()
    console.print(grid_table(candidates_grid(result), file.stem, compact=True))
    lines = [*refusals(result), *(f"{name}: {text}" for name, text in sizing_facts(result)), verdict(result)]
    for line in [*lines, *(f"Written: {path}" for path in write_sizing(result, out))]:
        say(line, console)
    if result.chosen is None:
        raise typer.Exit(1)


def _share(text: str, option: str) -> float:
    """A fraction, from 0 to 1. Raises HilserverError."""
    from hilserver.errors import HilserverError, as_sentence
    from hilserver.units import si_value

    try:
        value, unit = si_value(text)
        if unit or not 0.0 < value <= 1.0:
            raise ValueError("must be above 0 and at most 100 %")
    except ValueError as error:
        raise HilserverError(f"{option} {text}: {as_sentence(error)}") from None
    return value
