"""Which servers run on this machine: a small file per rig with its broker's address, so that commands find it."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path

from hilserver.errors import HilserverError, did_you_mean
from hilserver.service.mqtt import BrokerAddress


def folder() -> Path:
    """$XDG_RUNTIME_DIR/hilserver, or a private folder of this user under the temporary folder."""
    if base := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(base) / "hilserver"
    return Path(tempfile.gettempdir()) / f"hilserver-running-{os.getuid()}"


def announce(rig: str, address: BrokerAddress) -> Path:
    """Note that a server for this rig runs here."""
    folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder() / f"{rig}.json"
    path.write_text(json.dumps({"pid": os.getpid(), **address.model_dump(mode="json")}))
    return path


def withdraw(path: Path) -> None:
    """It doesn't any more."""
    with contextlib.suppress(OSError):
        path.unlink()


def running() -> dict[str, BrokerAddress]:
    """The servers that run on this machine; notes of dead ones are passed over."""
    found = {}
    for path in sorted(folder().glob("*.json")):
        with contextlib.suppress(OSError, ValueError):
            note = json.loads(path.read_text())
            os.kill(int(note.pop("pid")), 0)
            found[path.stem] = BrokerAddress.model_validate(note)
    return found


def find(rig: str | None) -> tuple[str, BrokerAddress]:
    """The running server of this name, or the only one. Raises HilserverError naming those there are."""
    found = running()
    if not found:
        raise HilserverError("no hilserver runs on this machine for this user. Start one: hilserver run RIG.toml")
    if rig is None:
        if len(found) > 1:
            raise HilserverError(f"several servers run here: choose one with --rig: {', '.join(found)}.")
        return next(iter(found.items()))
    if rig not in found:
        raise HilserverError(f'no server of rig "{rig}" runs on this machine.' + did_you_mean(rig, found))
    return rig, found[rig]
