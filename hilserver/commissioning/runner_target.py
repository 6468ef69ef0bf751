"""Brings a rig to a machine without Python: packed for the runner, over the same connection as a server."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hilserver.commissioning.bundle import Bundle
from hilserver.commissioning.deployment import (
    UNCHANGED,
    DeploymentError,
    Target,
    fetch_logs,
    require_at_rest,
    require_no_newer,
)
from hilserver.commissioning.on_target import RELEASE
from hilserver.record.format import RecordError
from hilserver.rig.build import load_rig
from hilserver.runner.pack import write_rig
from hilserver.runner.rows import log_of

SCRIPT = Path(__file__).with_name("on_bare_target.sh")
"""What is carried out on the target, by its shell."""
MACHINE = "x86_64"
RESERVE = 20e6
"""Bytes that must be left on the target's disk, for messages and a beginning of the rows."""
ROWS, LOG = ".rows", ".arrow"
CAN_NOT_BE_EXECUTED = (126, 127)
"""Exit codes of a shell."""
OLDEST_GLIBC = "2.29"


class RunnerTarget(Target):
    """A computer that needs ssh, a POSIX shell and tar, but no Python."""

    def state(self) -> dict[str, Any]:
        """The state of the rig, as the runner prints it there; ``state`` is None where it does not run."""
        found = self.ask("facts")
        if found["current"] is None:
            raise DeploymentError(f"{self.address}: {self.rig} is not deployed there.")
        state = None
        if found["running"]:
            done = self.ask("call", release="current", arguments=["--status"])
            if done["code"] != 0:
                raise DeploymentError(f"{self.address}: {done['errors'].strip()}")
            state = json.loads(done["output"])
        return {"online": state is not None, "state": state, "release": found["current"]}

    def send(self, command: str) -> dict[str, Any]:
        """Send a command to the rig; its state then. Raises DeploymentError with the reason if it is refused."""
        done = self.ask("call", release="current", arguments=["--send", command])
        if done["code"] != 0:
            raise DeploymentError(f"{self.address}: {done['errors'].strip().removeprefix('hilserver-runner: ')}")
        state: dict[str, Any] = json.loads(done["output"])
        return state

    def _remote(self, action: str, **arguments: Any) -> str:
        given: dict[str, list[str]] = {
            "receive": [str(arguments.get("release"))],
            "activate": [str(arguments.get("release"))],
            "remove": [str(arguments.get("release"))],
            "call": [str(arguments.get("release")), *arguments.get("arguments", ())],
            "send": list(arguments.get("names", ())),
        }
        words = [SCRIPT.read_text(), "sh", action, self.root, self.rig, *given.get(action, [])]
        return f"exec sh -c {shlex.join(words)}"


def deploy_runner(
    file: Path, target: RunnerTarget, tell: Callable[[str], None] = lambda text: None, *, downgrade: bool = False
) -> str:
    """Bring a rig to a target and let the runner run it, in place of its present release; returns the new one's name.

    The running release continues until the new one is complete and the runner has found no error in it there; if the
    new one does not start, the old one is started again. Raises DeploymentError, and ConfigurationError if the rig
    can't be used.
    """
    rig = load_rig(file)
    with TemporaryDirectory(prefix="hilserver-runner-") as temporary:
        files = {path.name: path for path in write_rig(rig, Path(temporary) / "rig")}
        about = {"file": file.name, "version": version("hilserver")}
        release = Bundle(files, {RELEASE: json.dumps(about).encode()})
        found = target.ask("facts")
        _require_suitable(target, found, release.size)
        if not downgrade:
            require_no_newer(target, found)
        require_at_rest(target, found)
        if (old := found["current"]) is not None:
            tell(f"{target.address}: release {old['name']} of {target.rig}, hilserver {old['version']}")
        name = str(found["next"])
        tell(f"sending the runner and the rig ({release.size / 1e6:.1f} MB) as release {name}")
        target.ask("receive", release, release=name)
    try:
        _check(target, name, tell)
        tell("starting it")
        target.ask("activate", release=name)
    except DeploymentError as error:
        with contextlib.suppress(DeploymentError):  # it may be in use: the connection was lost while it was started
            target.ask("remove", release=name)
        raise DeploymentError(f"{error} {_what_runs(target)}") from None
    if workers := [device.name for device in rig.devices if device.rate is not None]:
        names = ", ".join(workers)
        tell(f"warning: {names}: deploy does not start the workers of these devices: start them there yourself")
    return name


def fetch_rows(target: RunnerTarget, folder: Path, tell: Callable[[str], None] = lambda text: None) -> list[Path]:
    """Fetch the recordings that are not in this folder yet, or have grown; returns the logs made of them.

    Files without a log are converted, too: an earlier call may have been interrupted. One that can't be is told.
    """
    fetched, logs = fetch_logs(target, folder), []
    for file in sorted(folder.glob(f"*{ROWS}")):
        log = file.with_suffix(LOG)
        if file not in fetched and log.exists():
            continue
        log.unlink(missing_ok=True)
        try:
            log_of(file, log)
        except RecordError as error:
            tell(f"warning: {error}")
        else:
            logs.append(log)
    return logs


def _require_suitable(target: Target, found: dict[str, Any], size: int) -> None:
    """Whether the target can run this program, and has room for it."""
    if found["machine"] != MACHINE:
        text = f"its processor is {found['machine']}, and the runner is for {MACHINE}"
        raise DeploymentError(f"{target.address}: {text}. {UNCHANGED}")
    if found["free"] < size + RESERVE:
        text = f"its disk has {found['free'] / 1e6:.0f} MB left, and {(size + RESERVE) / 1e6:.0f} MB are needed"
        raise DeploymentError(f"{target.address}: {text}. {UNCHANGED}")


def _check(target: RunnerTarget, name: str, tell: Callable[[str], None]) -> None:
    """Let the new release examine itself and the machine."""
    done = target.ask("call", release=f"releases/{name}", arguments=["--check"])
    if done["code"] in CAN_NOT_BE_EXECUTED:
        text = f"can't execute the runner ({done['errors'].strip()})"
        raise DeploymentError(
            f"{target.address}: {text}. It needs Linux with glibc {OLDEST_GLIBC} or later, and a home directory on a "
            "file system that permits programs."
        )
    if done["code"] != 0:
        text = (done["errors"] or done["output"]).strip()
        raise DeploymentError(f"{target.address} is not suitable: {text.removeprefix('hilserver-runner: ')}")
    for line in map(json.loads, done["output"].splitlines()):
        if "degradation" in line:
            tell(f"warning: {line['degradation']}")


def _what_runs(target: RunnerTarget) -> str:
    found = target.ask("facts")
    if found["current"] is None:
        return "Nothing is deployed there."
    state = "runs" if found["running"] else "is in place, not running"
    return f"Release {found['current']['name']} {state}."
