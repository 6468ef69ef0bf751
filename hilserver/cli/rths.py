"""``hilserver rths``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def rths(
    strategy: Annotated[
        list[str] | None,
        typer.Option(help="strategy of the displacement bridge; may be repeated; default: all"),
    ] = None,
    case: Annotated[
        list[str] | None, typer.Option(help="case of the benchmark, 1 to 4; may be repeated; default: all")
    ] = None,
    plants: Annotated[
        int, typer.Option(min=0, help="number of perturbed plants in addition to the nominal one; the benchmark: 20")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="seed of the perturbed plants")] = 1,
    out: Annotated[Path, typer.Option("--output", "-o", help="folder of the report")] = Path("reports"),
) -> None:
    """Run the benchmark problem of real-time hybrid simulation (RTHS): how well a virtual structure moves a specimen.

    A simulated hydraulic actuator moves a specimen to the position of a virtual frame under an earthquake, and the
    measured force acts on the frame. The nine criteria are those of Silva et al. (2020), with the published values
    beside them. The report is written as HTML, Markdown and JSON.
    """
    from hilserver.cli.fidelity import grid_table
    from hilserver.cli.progress import progress_bar
    from hilserver.cli.tables import new_console
    from hilserver.hybrid.benchmark import CASES
    from hilserver.hybrid.report import write_report
    from hilserver.hybrid.study import cases_grid, nominal_grid, perturbed_grid, study
    from hilserver.tick.hybrid.displacement import DisplacementStrategy, Law

    names = _known(strategy, "strategy", [each.name for each in DisplacementStrategy if each.law is not Law.MANUAL])
    numbers = _known(case, "case", [each.name for each in CASES])
    chosen = [each for each in CASES if each.name in numbers]
    with progress_bar() as tell:
        rows = study([DisplacementStrategy[name] for name in names], chosen, plants, seed, tell)
    console = new_console()
    console.print(grid_table(cases_grid(chosen), "Benchmark problem for real-time hybrid simulation", compact=True))
    console.print(grid_table(nominal_grid(rows), "Criteria", compact=True))
    if plants:
        console.print(grid_table(perturbed_grid(rows), "Perturbed plants", compact=True))
    for path in write_report(rows, out):
        console.print(f"Written: {path}", soft_wrap=True)


def _known(given: list[str] | None, kind: str, allowed: list[str]) -> list[str]:
    """The given names, or all. Raises HilserverError for an unknown one."""
    from hilserver.errors import HilserverError, did_you_mean

    for name in given or ():
        if name not in allowed:
            raise HilserverError(f"--{kind} {name}: there is no such {kind}.{did_you_mean(name, allowed)}")
    return [name for name in allowed if not given or name in given]
