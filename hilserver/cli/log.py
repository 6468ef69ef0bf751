"""``hilserver log``: list, check and repair recordings, and convert those of the runner."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hilserver.record.folder import StoredRecording
    from hilserver.record.reader import Damage

LogFile = Annotated[
    Path, typer.Argument(help="log of hilserver (.arrow); further files of a long run are found automatically")
]
log = typer.Typer(help="List, check and repair recordings.", no_args_is_help=True)


@log.command("list")
def list_(folder: Annotated[Path, typer.Argument(help="folder of the logs")] = Path("logs")) -> None:
    """List the recordings in a folder, each with its cuts: rig, start, last change, number of files, size and state."""
    from datetime import UTC, datetime

    from hilserver.cli.tables import TerminalTable, new_console
    from hilserver.record.folder import recordings

    table = TerminalTable("recording", "rig", "started (UTC)", "last written", "files", "MB", "state", box=None)
    for recorded in (each for found in recordings(folder) for each in (found, *found.cuts)):
        header = recorded.header
        table.add_row(
            recorded.name_in(folder),
            header.rig if header else "",
            f"{datetime.fromisoformat(header.started):%Y-%m-%d %H:%M:%S}" if header else "",
            f"{datetime.fromtimestamp(recorded.modified, UTC):%Y-%m-%d %H:%M:%S}",
            f"{len(recorded.files)}",
            f"{recorded.size / 1e6:.1f}",
            recorded.state + _origin(recorded),
        )
    new_console().print(table)


def _origin(recorded: StoredRecording) -> str:
    """What a recording continues, or was cut from; a repaired cut no longer names its source."""
    previous = recorded.header.previous if recorded.header else ""
    if recorded.trigger:
        return f", trigger {recorded.trigger}" + (f" in {previous}" if previous else "")
    return f", continues {previous}" if previous else ""


@log.command()
def check(path: LogFile) -> None:
    """Read a log and verify all checksums. The exit code is 1 if anything is missing or damaged."""
    from hilserver.record.repair import check_log

    checked = check_log(path)
    files = f"{len(checked.files)} file{'s' if len(checked.files) != 1 else ''}"
    print(f"{path}: {files}, {checked.rows} complete rows.")
    _name(checked.damages)
    if checked.being_written:
        print("It is still being written.")
    elif checked.torn and not checked.damages:
        print("It has no end mark: the recorder was killed, or the computer lost power.")
    if not checked.ok:
        print(f"hilserver log repair {path} recovers all complete rows.")
        raise typer.Exit(1)


@log.command()
def repair(
    path: LogFile,
    out: Annotated[
        Path | None, typer.Option("--output", "-o", help="new log; default: <name>-repaired.arrow in the same folder")
    ] = None,
) -> None:
    """Write all complete rows of a damaged log to a new log and report what is lost. The damaged log is not changed."""
    from hilserver.record.repair import repair_log

    repaired = repair_log(path, out)
    if repaired is None:
        print(f"{path} is complete: there is nothing to repair.")
        return
    _name(repaired.damages)
    more = f" and {len(repaired.files) - 1} more" if len(repaired.files) > 1 else ""
    print(f"{repaired.files[0]}{more}: {repaired.rows} rows recovered.")


@log.command()
def unpack(
    path: Annotated[Path, typer.Argument(help="file of rows that hilserver-runner has recorded (--rows)")],
    out: Annotated[
        Path | None, typer.Option("--output", "-o", help="new log; default: <name>.arrow in the same folder")
    ] = None,
) -> None:
    """Write what hilserver-runner has recorded as a log of hilserver."""
    from hilserver.runner.rows import log_of

    log_file = out or path.with_suffix(".arrow")
    found = log_of(path, log_file)
    print(f"{log_file}: rig {found.about.rig}, started {found.about.started}.")
    if found.damage:
        print(f"warning: {path}: {found.damage}.")


def _name(damages: Iterable[Damage]) -> None:
    for damage in damages:
        print(f"  {damage}.")
