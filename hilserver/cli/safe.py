"""``hilserver safe``: safe values for the devices of a rig whose server is no longer running."""

from __future__ import annotations

import typer

from hilserver.cli.run import RigFile


def safe(rig: RigFile) -> None:
    """Write the safe values of all devices of a rig whose server is no longer running.

    The service does this after a failure (ExecStopPost in its unit). Exit code 1 if it failed for a device.
    """
    from hilserver.rig.build import load_rig
    from hilserver.service.safe import make_rig_safe

    troubles = make_rig_safe(load_rig(rig))
    for device, trouble in troubles.items():
        if trouble is None:
            typer.echo(f"device {device} has its safe values.")
        else:
            typer.echo(f"device {device}: the safe values could not be written: {trouble}", err=True)
    if not troubles:
        typer.echo("The rig has only simulated devices.")
    raise typer.Exit(int(any(troubles.values())))
