"""``hilserver replay``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from hilserver.simulation.replay import Replayed


def replay(
    what: Annotated[
        Path, typer.Argument(help="Log of hilserver (.arrow), or rig file (.toml) with a device of driver replay.")
    ],
    file: Annotated[
        Path | None,
        typer.Option(help="Rig file only: recorded samples (CSV or tab-separated) instead of the file named there."),
    ] = None,
    out: Annotated[
        Path, typer.Option("--output", "-o", help="Rig file only: folder for the log and the page about it.")
    ] = Path("reports"),
    report: Annotated[
        Path | None, typer.Option(help="Log only: write a page about the replay into this folder.", metavar="FOLDER")
    ] = None,
    from_row: Annotated[int, typer.Option(min=0, help="Log only: begin at this row; it is taken as it stands.")] = 0,
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Log only: allowed deviation, as a share of a column's range. Default: none where the same program "
            "wrote the log, 1e-6 where another version did.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Log only: the result as JSON.")] = False,
) -> None:
    """Run recorded measurements through the virtual circuit and the bridge once more.

    A log of hilserver: the same inputs and commands, tick by tick; every value is compared with the recorded one. What
    differs is listed, and the exit code is 1 where it differs by more than the tolerance.

    A rig file: recorded pressures of another system drive the virtual circuit, the work cycle moves the operator's
    command, and the servo command is computed and logged for the whole record. A page shows pressures, virtual flow
    and command.
    """
    if what.suffix == ".toml":
        _samples(what, file, out)
    elif not _log(what, from_row, tolerance, json, report):
        raise typer.Exit(1)


def _log(path: Path, from_row: int, tolerance: float | None, json: bool, report: Path | None) -> bool:
    from rich.console import Console

    from hilserver.report.figures import json_text
    from hilserver.simulation.replay import replay_log
    from hilserver.simulation.report import replay_figures, replay_sentences, write_replay_report

    result = replay_log(path, from_row=from_row, tolerance=tolerance)
    page = write_replay_report(result, report) if report is not None else None
    if json:
        print(json_text(replay_figures(result)))
        return result.ok
    console = Console(highlight=False, markup=False)
    if result.differences:
        console.print(_differences_table(result))
    for line in [*replay_sentences(result), *([f"Report: {page}"] if page else [])]:
        console.print(line, soft_wrap=True)
    return result.ok


def _differences_table(result: Replayed) -> Table:
    """The same for the terminal."""
    from rich.table import Table

    from hilserver.simulation.report import differences

    grid = differences(result)
    table = Table(title=f"{result.log.name}: what the replay computes otherwise", caption="deviations in SI units")
    for number, head in enumerate(grid.head):
        table.add_column(head, justify="right" if number else "left")
    for row in grid.rows:
        table.add_row(*row)
    return table


def _samples(path: Path, file: Path | None, out: Path) -> None:
    from datetime import UTC, datetime

    from hilserver.report.run_report import write_run_report
    from hilserver.simulation.third_party_log import replay_samples, rig_with_file, third_party_sentences

    rig = rig_with_file(path, file)
    out.mkdir(parents=True, exist_ok=True)
    name = out / f"{rig.settings.name}-{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}"
    result = replay_samples(rig, name.with_suffix(".arrow"))
    page = write_run_report(result.log, out)
    print("\n".join([*third_party_sentences(result), f"Log: {result.log}", f"Report: {page}"]))
