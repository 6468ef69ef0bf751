"""``hilserver channels``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hilserver.cli.prose import say

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from hilserver.commissioning.live import Source
    from hilserver.numerics.arrays import Floats
    from hilserver.rig.rig import Rig

REFRESH = 0.2


def channels(
    rig: Annotated[Path | None, typer.Argument(help="rig file (TOML): show its channels live")] = None,
    once: Annotated[bool, typer.Option("--once", help="show the values once and exit")] = False,
) -> None:
    """List the devices and channels found; with a rig file: show its live values (raw, scaled, age, validity).

    Nothing is armed, and nothing written: the values come from the rig's running server, or from the devices, opened
    without their outputs. Ctrl-C ends it.
    """
    from hilserver.cli.tables import new_console

    console = new_console()
    if rig is None:
        from hilserver.commissioning.discovery import described

        for line in described():
            say(line, console)
        return
    from hilserver.commissioning.live import live
    from hilserver.rig.build import load_rig

    loaded = load_rig(rig)
    with live(loaded) as source:
        if once:
            from hilserver.commissioning.live import settled

            console.print(_table(loaded, source, settled(loaded, source)))
            raise typer.Exit(1 if source.failures else 0)
        _watch(loaded, source, console)


def _watch(rig: Rig, source: Source, console: Console) -> None:
    import contextlib
    import time

    from rich.live import Live

    with contextlib.suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False) as view:
        while True:
            view.update(_table(rig, source, source.row()), refresh=True)
            time.sleep(REFRESH)


def _table(rig: Rig, source: Source, row: Floats) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from hilserver.cli.tables import TerminalTable
    from hilserver.commissioning.live import readings, units_of_raw

    table = TerminalTable(title=f"{rig.settings.name}, {source.described}", title_justify="left")
    for head in ("channel", "source"):
        table.add_column(head)
    for head in ("raw", "value"):
        table.add_column(head, justify="right")
        table.add_column("")
    table.add_column("age", justify="right")
    table.add_column("")
    units = units_of_raw(rig)
    for reading in readings(rig, row):
        settings = rig.settings.channels[reading.channel]
        value, _, unit = settings.shown(reading.value, digits=5).partition(" ")
        table.add_row(
            reading.channel,
            f"{settings.device}.{settings.source}",
            f"{reading.raw:.5g}",
            units[reading.channel],
            value,
            unit,
            f"{reading.age * 1e3:.0f} ms",
            reading.trouble or "valid",
        )
    failures = [Text(text) for text in source.failures.values()]
    return Group(table, *failures)
