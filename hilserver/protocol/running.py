"""The servers that run on this computer: a small file per rig with its broker's address, by which clients find it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from pathlib import Path

from hilserver.errors import HilserverError, did_you_mean
from hilserver.protocol.address import BrokerAddress

SERVICES = Path("/run/hilserver")
"""Where systemd makes the runtime directories of the services (systemd/hilserver.service), one for each."""


def folder() -> Path:
    """A service's $RUNTIME_DIRECTORY (systemd), otherwise $XDG_RUNTIME_DIR/hilserver, otherwise a private temporary
    folder."""
    if own := os.environ.get("RUNTIME_DIRECTORY"):
        return Path(own.split(":")[0])
    if base := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(base) / "hilserver"
    return Path(tempfile.gettempdir()) / f"hilserver-running-{os.getuid()}"


def announce(rig: str, address: BrokerAddress) -> Path:
    """Write the file that announces a running server of this rig; returns its path."""
    path = _own_folder() / f"{rig}.json"
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"pid": os.getpid(), **address.model_dump(mode="json")}))
    part.replace(path)  # atomically, so that a partial file is never read
    return path


def withdraw(path: Path) -> None:
    """Remove the file of `announce`."""
    with contextlib.suppress(OSError):
        path.unlink()


def working_folder(rig: str) -> Path:
    """An empty, private folder for the files of this rig's server; those of a killed server are removed."""
    path = _own_folder() / f"{rig}.run"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(mode=0o700)
    return path


def running() -> dict[str, BrokerAddress]:
    """The servers that run on this computer, this user's and the services; files of dead servers are ignored."""
    found = {}
    for path in (*sorted(SERVICES.glob("*/*.json")), *sorted(folder().glob("*.json"))):
        with contextlib.suppress(OSError, ValueError, KeyError):
            note = json.loads(path.read_text())
            if _is_alive(int(note.pop("pid"))):
                found[path.stem] = BrokerAddress.model_validate(note)
    return found


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:  # another user's
        return True
    except ProcessLookupError:
        return False
    return True


def find(rig: str | None) -> tuple[str, BrokerAddress]:
    """The running server of this name, or the only one. Raises HilserverError with the names of those that run."""
    found = running()
    if not found:
        raise HilserverError(
            "no hilserver runs on this computer for this user. Start one: hilserver run RIG.toml; "
            "or name its broker: --broker"
        )
    if rig is None:
        if len(found) > 1:
            raise HilserverError(f"several servers run here: choose one with --rig: {', '.join(found)}.")
        return next(iter(found.items()))
    if rig not in found:
        raise HilserverError(f'no server of rig "{rig}" runs on this computer.' + did_you_mean(rig, found))
    return rig, found[rig]


def _own_folder() -> Path:
    """The folder, created where it is missing. Raises HilserverError if it does not belong to this user."""
    path = folder()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = path.stat().st_uid
    except OSError as error:
        raise HilserverError(f"{path}: can't be created: {error.strerror}.") from error
    if owner != os.getuid():  # in the temporary folder, another user may have created it
        raise HilserverError(
            f"{path} belongs to another user: remove it, or set XDG_RUNTIME_DIR to a folder of your own."
        )
    return path
