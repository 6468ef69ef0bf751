"""``hilserver edit``: draw a circuit in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hilserver.cli.switch import Broker


def edit(
    file: Annotated[Path, typer.Argument(help="circuit file (TOML); a new one if there is none of this name")],
    port: Annotated[int, typer.Option(help="port; default: any free one")] = 0,
    browser: Annotated[bool, typer.Option(help="open the page in the browser")] = True,
    rig: Annotated[str | None, typer.Option("--rig", "-r", help="rig to which the circuit can be applied")] = None,
    broker: Broker = None,
) -> None:
    """Draw a circuit in the browser: components, lines, datasheet values, checked while you draw.

    The file keeps comments and order, and gets the places of the parts that you move. It is written when you save. The
    page is served on this machine only, until Ctrl-C. Neither a rig nor a network is needed.

    With --rig, the circuit can also be applied to a rig that runs: all changes at one tick, after a question that lists
    them.
    """
    import threading
    import webbrowser

    from hilserver.editor.document import open_circuit
    from hilserver.editor.kept import UnsavedChanges, kept_before
    from hilserver.editor.live import RigLink
    from hilserver.editor.session import EditorSession
    from hilserver.protocol.place import where
    from hilserver.web.listening import LOOPBACK, free_port, new_token
    from hilserver.web.local_page import local_url, require_nicegui, serve_locally

    require_nicegui()
    session = EditorSession(open_circuit(file.absolute()))
    for earlier in kept_before(session.document.file):
        session.notes.append(f"{earlier} has changes that were not saved: compare it, and remove it.")
    unsaved = UnsavedChanges(session.document)
    session.listeners.append(unsaved.keep)
    link = RigLink(*where(rig, broker)) if rig is not None else None
    listening, token = free_port(LOOPBACK, port), new_token()

    def build() -> None:
        from hilserver.editor.page import EditorPage

        EditorPage(session, link)

    def at_end() -> None:
        unsaved.keep()
        if unsaved.file is not None:
            typer.echo(f"Not saved: your changes are kept in {unsaved.file}.")
        if unsaved.problem:
            typer.echo(f"Your last changes are lost: {unsaved.problem}", err=True)

    url = local_url(listening, token)
    for note in session.notes:
        typer.echo(note)
    typer.echo(f"Circuit {file}: {url}    Ctrl-C ends it.")
    if browser:
        threading.Timer(1.0, webbrowser.open, (url,)).start()
    serve_locally(f"{file.name} · hilserver", "hilserver edit", listening, token, build, at_end)
