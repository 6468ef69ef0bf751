"""``hilserver replay``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hilserver.cli.prose import say

if TYPE_CHECKING:
    from hilserver.cli.tables import TerminalTable
    from hilserver.simulation.audit import Audit
    from hilserver.simulation.replay import Replayed

Trust = Annotated[
    bool,
    typer.Option(
        "--trust", help="run the Python code in the log (components of its rig), although it was not run here before"
    ),
]


def replay(
    what: Annotated[
        Path,
        typer.Argument(help="log of hilserver (.arrow), or rig file (.toml) with a device of driver replay"),
    ],
    file: Annotated[
        Path | None,
        typer.Option(help="rig file only: samples (CSV or tab-separated) to use instead of the rig's file"),
    ] = None,
    out: Annotated[
        Path, typer.Option("--output", "-o", help="rig file only: folder for the log and its report")
    ] = Path("reports"),
    report: Annotated[
        Path | None, typer.Option(help="log only: folder for a report on the replay", metavar="FOLDER")
    ] = None,
    from_row: Annotated[int, typer.Option(min=0, help="log only: first row; it is taken from the log unchanged")] = 0,
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="log only: permitted deviation as a fraction of a column's range; default: 0 if the same program "
            "wrote the log, otherwise 1e-6",
        ),
    ] = None,
    balances: Annotated[
        bool, typer.Option("--balances", help="log only: also state the balances of the circuit: oil and energy")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="log only: the result as JSON")] = False,
    trust: Trust = False,
) -> None:
    """Run recorded measurements through the virtual circuit and the bridge again.

    A log of hilserver: the recorded inputs and commands are applied tick by tick, and every computed value is compared
    with the recorded one. Differences are listed; the exit code is 1 if one exceeds the tolerance. With --balances
    the oil and energy that entered the virtual circuit, left it and are stored in it are stated, with relative errors.

    A rig file: recorded pressures of another system drive the virtual circuit, the work cycle moves the operator's
    command, and the servo command is computed and logged for the whole recording. A report shows pressures, virtual
    flow and command.
    """
    if what.suffix == ".toml":
        _samples(what, file, out)
    elif not _log(what, from_row, tolerance, json, report, trust, balances):
        raise typer.Exit(1)


def _log(
    path: Path, from_row: int, tolerance: float | None, json: bool, report: Path | None, trust: bool, balances: bool
) -> bool:
    from hilserver.cli.tables import new_console
    from hilserver.report.figures import json_text
    from hilserver.simulation.replay import replay_log
    from hilserver.simulation.report import replay_figures, replay_sentences, write_replay_report

    result = replay_log(path, from_row=from_row, tolerance=tolerance, trust=trust)
    audits: tuple[Audit, ...] = ()
    if balances:
        from hilserver.simulation.audit import audit_log

        audits = audit_log(path, trust=trust)
    page = write_replay_report(result, report, audits) if report is not None else None
    if json:
        print(json_text(replay_figures(result) | ({"balances": [a.figures() for a in audits]} if audits else {})))
        return result.ok
    console = new_console()
    if result.differences:
        console.print(_differences_table(result))
    stated = [line for audit in audits for line in audit.sentences()]
    for line in [*replay_sentences(result), *stated, *([f"Report: {page}"] if page else [])]:
        say(line, console)
    return result.ok


def _differences_table(result: Replayed) -> TerminalTable:
    """The differences as a table for the terminal."""
    from hilserver.cli.tables import TerminalTable
    from hilserver.simulation.report import differences

    grid = differences(result)
    table = TerminalTable(
        title=f"{result.log.name}: values that the replay computes differently", caption="deviations in SI units"
    )
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
