"""``hilserver plotjuggler``: live telemetry into PlotJuggler."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hilserver.cli.switch import Broker, Rig

if TYPE_CHECKING:
    from hilserver.protocol.address import BrokerAddress


def plotjuggler(
    to: Annotated[str, typer.Option(help="address of PlotJuggler's UDP server")] = "127.0.0.1:9870",
    layout: Annotated[Path | None, typer.Option(help="write a PlotJuggler layout for this rig to this file")] = None,
    rig: Rig = None,
    broker: Broker = None,
) -> None:
    """Send a running server's telemetry to PlotJuggler, until Ctrl-C.

    In PlotJuggler: Streaming, UDP Server, port 9870, protocol json, with "use field timestamp if available". Load the
    layout after that: it shows only curves that exist already. SI units.
    """
    import asyncio
    from contextlib import suppress

    from hilserver.client import where
    from hilserver.errors import HilserverError

    host, _, port = to.rpartition(":")
    if not host or not port.isdigit():
        raise HilserverError(f'--to "{to}": must be host:port.')
    name, address = where(rig, broker)
    with suppress(KeyboardInterrupt):
        try:
            asyncio.run(_stream(name, address, host, int(port), layout))
        except OSError as error:
            raise HilserverError(f"{to}: sending failed: {error.strerror or error}.") from None


async def _stream(rig: str, address: BrokerAddress, host: str, port: int, file: Path | None) -> None:
    from hilserver.client import RequestFailed, open_session
    from hilserver.client.plotjuggler import layout, stream
    from hilserver.protocol.published import Telemetry

    channels: dict[str, None] = {}

    def note(telemetry: Telemetry) -> None:
        channels.update(dict.fromkeys(telemetry.channels))

    async with open_session(address, rig, telemetry=True) as session:
        session.listeners.append(note)
        try:
            await session.until(lambda: bool(channels) and session.description is not None, within=5.0)
        except TimeoutError:
            raise RequestFailed(f"the server of rig {rig} sends no telemetry.") from None
        session.listeners.remove(note)
        if file is not None and session.description is not None:
            units = {name: info.unit for name, info in session.description.channels.items()}
            _write(file, layout(units, channels))
        typer.echo(f"Sending {len(channels)} channels of rig {rig} to {host}:{port} by UDP. Ctrl-C ends it.")
        await stream(session, host, port)


def _write(file: Path, layout: str) -> None:
    file.write_text(layout, encoding="utf-8")
    typer.echo(f"Layout: {file}")
