"""``hilserver edit``: draw a circuit, or edit a rig, in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hilserver.cli.switch import Broker


def edit(
    file: Annotated[Path, typer.Argument(help="circuit or rig file (TOML); a new one if it does not exist")],
    port: Annotated[int, typer.Option(help="port; default: any free one")] = 0,
    browser: Annotated[bool, typer.Option(help="open the page in the browser")] = True,
    rig: Annotated[str | None, typer.Option("--rig", "-r", help="rig to which the circuit can be applied")] = None,
    broker: Broker = None,
) -> None:
    """Draw a circuit or edit a rig in the browser; values are checked as you enter them.

    In a circuit: components, lines, datasheet values. In a rig file: channels, limits, valves and all other settings,
    with a diagram of the signals, from which its circuits can be opened. An empty file can become either.

    The file keeps comments and order, and stores the positions of the parts that you move. It is written when you save.
    The page is served on this computer only, until Ctrl-C. Neither a rig nor a network is needed.

    With --rig, the circuit can also be applied to a running rig: all changes at one tick, after a confirmation that
    lists them.
    """
    import threading
    import webbrowser

    from hilserver.editor.live import RigLink
    from hilserver.editor.open_files import OpenFiles
    from hilserver.protocol.place import where
    from hilserver.web.listening import LOOPBACK, free_port, new_token
    from hilserver.web.local_page import local_url, require_nicegui, serve_locally

    require_nicegui()
    files = OpenFiles(file)
    link = RigLink(*where(rig, broker)) if rig is not None else None
    listening, token = free_port(LOOPBACK, port), new_token()

    def build() -> None:
        from hilserver.editor.window import EditorWindow

        EditorWindow(files, link)

    def at_end() -> None:
        for text in files.kept():
            typer.echo(text, err=text.startswith("Your last changes are lost"))

    url = local_url(listening, token)
    for note in files.first.notes:
        typer.echo(note)
    typer.echo(f"{files.kind} {file}: {url}    Ctrl-C ends it.")
    if browser:
        threading.Timer(1.0, webbrowser.open, (url,)).start()
    serve_locally(f"{file.name} · hilserver", "hilserver edit", listening, token, build, at_end)
