"""``hilserver safe``: safe values for the devices of a rig whose server is no longer running."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator

import typer

from hilserver.cli.run import RigFile


def safe(rig: RigFile) -> None:
    """Write the safe values of all devices of a rig whose server is no longer running.

    The service does this after a failure (ExecStopPost in its unit). Exit code 1 if it failed for a device.
    """
    from hilserver.rig.build import load_rig
    from hilserver.service.safe import make_rig_safe

    with _usable_cache():
        troubles = make_rig_safe(load_rig(rig))
    for device, trouble in troubles.items():
        if trouble is None:
            typer.echo(f"device {device} is at its safe values.")
        else:
            typer.echo(f"device {device}: the safe values could not be written: {trouble}", err=True)
    if not troubles:
        typer.echo("The rig has only simulated devices.")
    raise typer.Exit(int(any(troubles.values())))


@contextlib.contextmanager
def _usable_cache() -> Iterator[None]:
    """Another cache, for this time, where the usual one is refused: that must not keep the safe values away."""
    from hilserver.compiler.private import flaw
    from hilserver.compiler.seal import broken_in
    from hilserver.compiler.sources import cache_root

    root = cache_root()
    if not root.exists() or (found := flaw(root, root) or broken_in(root)) is None:
        yield
        return
    typer.echo(f"Warning: {found.rstrip('.')}. The programs in it are not used.", err=True)
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="hilserver-cache-") as folder:
        os.environ.update(CACHE_DIRECTORY=folder, STATE_DIRECTORY=folder)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)
