"""Changes that a command makes to a file of the user: shown first, confirmed, and with a copy of the file before."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import typer

from hilserver.cli.output import asking
from hilserver.cli.prose import say


def change_file(
    file: Path, before: str, after: str, now: datetime, load: Callable[[Path], object], how: str, *, yes: bool
) -> None:
    """Show how the text of a file changes, ask, and replace it.

    ``load`` reads the new file, and raises HilserverError if it has problems: then the file stays as it is. ``how``:
    the values were found, for the heading of the difference. ``yes``: don't ask.
    """
    from hilserver.rig.merge import difference, replace_keeping_copy

    if after == before:
        say(f"Nothing to change: {file} contains these values already.")
        return
    typer.echo(difference(before, after, str(file), how))
    if not yes:
        with asking():
            typer.confirm(f"Change {file}?", abort=True)
    copy = replace_keeping_copy(file, after, now, load)
    say(f"Changed: {file} (previous version: {copy})")
