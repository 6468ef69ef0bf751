"""``hilserver log``: list, check and repair recordings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hilserver.record.reader import Damage

LogFile = Annotated[
    Path, typer.Argument(help="Log of hilserver (.arrow); the parts of a long run are found by themselves.")
]
log = typer.Typer(help="List, check and repair recordings.", no_args_is_help=True)


@log.command("list")
def list_(folder: Annotated[Path, typer.Argument(help="Folder of the logs.")] = Path("logs")) -> None:
    """List the recordings in a folder: rig, begin, end, files, size, and how the last file ends."""
    from datetime import UTC, datetime

    from rich.console import Console
    from rich.table import Table

    from hilserver.record.folder import recordings

    table = Table("recording", "rig", "begun (UTC)", "last written", "files", "MB", "state", box=None)
    for recorded in recordings(folder):
        header = recorded.header
        table.add_row(
            recorded.files[0].name,
            header.rig if header else "",
            f"{datetime.fromisoformat(header.started):%Y-%m-%d %H:%M:%S}" if header else "",
            f"{datetime.fromtimestamp(recorded.modified, UTC):%Y-%m-%d %H:%M:%S}",
            f"{len(recorded.files)}",
            f"{recorded.size / 1e6:.1f}",
            recorded.state + (f", continues {header.previous}" if header and header.previous else ""),
        )
    Console(highlight=False, markup=False, width=200).print(table)


@log.command()
def check(path: LogFile) -> None:
    """Read a log and compare all checksums. Exit code 1 where something is missing or damaged."""
    from hilserver.record.repair import check_log

    checked = check_log(path)
    files = f"{len(checked.files)} file{'s' if len(checked.files) != 1 else ''}"
    print(f"{path}: {files}, {checked.rows} whole rows.")
    _name(checked.damages)
    if checked.being_written:
        print("It is being written.")
    elif checked.torn and not checked.damages:
        print("It has no end mark: its writer was killed, or the machine went down.")
    if not checked.ok:
        print(f"hilserver log repair {path} saves what is whole.")
        raise typer.Exit(1)


@log.command()
def repair(
    path: LogFile,
    out: Annotated[
        Path | None, typer.Option("--output", "-o", help="New log. Default: <name>-repaired.arrow beside the old one.")
    ] = None,
) -> None:
    """Write all that is whole in a damaged log to a new log, and say what is lost. The damaged one stays as it is."""
    from hilserver.record.repair import repair_log

    repaired = repair_log(path, out)
    if repaired is None:
        print(f"{path} is whole: there is nothing to repair.")
        return
    _name(repaired.damages)
    more = f" and {len(repaired.files) - 1} more" if len(repaired.files) > 1 else ""
    print(f"{repaired.files[0]}{more}: {repaired.rows} rows saved.")


def _name(damages: Iterable[Damage]) -> None:
    for damage in damages:
        print(f"  {damage}.")
