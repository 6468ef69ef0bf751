"""``hilserver view``: look at recordings in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def view(
    logs: Annotated[
        list[Path],
        typer.Argument(help="logs: .arrow (further files of a long run are found automatically), .mf4, .parquet, .csv"),
    ],
    layout: Annotated[
        Path | None,
        typer.Option(help="layout to show (.toml): tabs, plots, units, alignment; it is saved there by the page, too"),
    ] = None,
    port: Annotated[int, typer.Option(help="port; default: any free one")] = 0,
    browser: Annotated[bool, typer.Option(help="open the page in the browser")] = True,
) -> None:
    """Show recordings in the browser: zoom, cursors, statistics, spectra, several runs overlaid.

    The page is served on this computer only, until Ctrl-C, and shows the given logs and no others. Neither a rig nor a
    network is needed.
    """
    import threading
    import webbrowser

    from hilserver.viewer.app import ViewerSettings, named, view
    from hilserver.viewer.layout import read_layout
    from hilserver.viewer.store import LogStore
    from hilserver.web.listening import LOOPBACK, free_port
    from hilserver.web.local_page import require_nicegui

    require_nicegui()
    if layout is not None and layout.exists():
        read_layout(layout)  # what is wrong is said here, too
    listening = free_port(LOOPBACK, port)
    store, chosen = LogStore(), named([path.absolute() for path in logs])
    opened = [store.open(path) for path in chosen.values()]  # what can't be read is said here, not in the browser
    for one in opened:
        for note in one.log.notes:
            typer.echo(note)
    settings = ViewerSettings(chosen, listening, None if layout is None else layout.absolute())
    typer.echo(f"Recordings: {settings.url}    Ctrl-C ends it.")
    if browser:
        threading.Timer(1.0, webbrowser.open, (settings.url,)).start()
    view(settings, store)
