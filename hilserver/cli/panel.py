"""``hilserver panel``: operate and monitor a rig in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hilserver.cli.output import never_waiting
from hilserver.cli.switch import Broker, Rig


@never_waiting()
def panel(
    rig: Rig = None,
    broker: Broker = None,
    host: Annotated[str, typer.Option(help="address to listen on; 0.0.0.0: all devices on the network")] = "127.0.0.1",
    port: Annotated[int | None, typer.Option(help="port; default: 8080 or the next free one")] = None,
    recordings: Annotated[
        Path | None, typer.Option(help="folder of the recordings; default: the one that the server reports")
    ] = None,
    studies: Annotated[
        Path, typer.Option(help="folder of the results of studies (--output of hilserver study)")
    ] = Path("reports"),
    certificate: Annotated[Path | None, typer.Option(help="TLS: certificate (PEM); with --key")] = None,
    key: Annotated[Path | None, typer.Option(help="TLS: private key (PEM) of the certificate")] = None,
    open_to_all: Annotated[
        bool, typer.Option("--open", help="admit every browser without token where the broker has no accounts")
    ] = False,
    name: Annotated[
        list[str] | None, typer.Option(help="host name of the panel in the browser; may be repeated")
    ] = None,
    with_parent: Annotated[
        bool,
        typer.Option("--with-parent", help="end when the program that started it ends; read the token from its input"),
    ] = False,
) -> None:
    """Serve the panel of a rig until Ctrl-C; open the printed address in a browser.

    Where the broker has accounts, each user logs in with their own; read-only accounts can watch but not operate.
    Elsewhere the printed address, which contains a token, admits a browser. To the broker, the panel is an ordinary
    client: it may run on the rig's PC or on another computer.
    """
    import sys

    from hilserver.errors import HilserverError
    from hilserver.panel.app import serve
    from hilserver.panel.settings import PORT, PanelSettings
    from hilserver.protocol.place import where
    from hilserver.web.listening import free_port, new_token

    if (certificate is None) != (key is None):
        raise HilserverError("--certificate and --key belong together: give both or neither.")
    of, address = where(rig, broker)
    chosen = free_port(host, PORT, tries=50) if port is None else free_port(host, port)
    settings = PanelSettings(
        of,
        address,
        host,
        chosen,
        recordings,
        certificate,
        key,
        with_parent,
        open_to_all,
        tuple(name or ()),
        studies,
        sys.stdin.readline().strip() if with_parent else new_token(),
    )
    typer.echo(f"Panel of {of}: {settings.url}    Ctrl-C ends it.")
    serve(settings)
