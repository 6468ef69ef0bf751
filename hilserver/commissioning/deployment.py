"""Brings a rig, with the program that runs it, to another computer over ssh; and operates it there.

The old release keeps running until the new one is there completely and checked by `doctor`, and runs again if the new
one does not start.
"""

from __future__ import annotations

import contextlib
import json
import platform
import re
import shlex
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Collection
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

from packaging.version import Version

from hilserver.commissioning import on_target
from hilserver.commissioning.bundle import Bundle, program, release
from hilserver.errors import HilserverError
from hilserver.rig.build import load_rig

FOLDER = "~/hilserver"
"""Folder of the deployments in the user's home directory on the target."""
CONNECT_TIMEOUT, ALIVE_EVERY = 10, 5
"""Seconds in which the target must answer a new connection; and between two signs of life of an idle one."""
RESERVE = 200e6
"""Bytes that must be left on the target's disk, for bytecode and a beginning of the logs."""
MOVING = ("ARMED", "RUNNING")
UNCHANGED = "Nothing was changed there."


class DeploymentError(HilserverError):
    """A deployment that was not possible, with the reason and with what runs on the target now."""


class Target:
    """A machine that is reached by ssh as ``user@host``, with what a rig has there.

    ``ssh_config``: instead of the user's own (port, key, known hosts). Raises DeploymentError in all its methods.
    """

    def __init__(self, address: str, rig: str, ssh_config: Path | None = None, root: str = FOLDER) -> None:
        if not re.fullmatch(r"[\w@.:%-]+", address) or address.startswith("-"):
            raise DeploymentError(f'"{address}" is not the address of a machine, such as hil@rig-pc.')
        self.address, self.rig, self.root = address, rig, root
        self._options = ["-F", str(ssh_config)] if ssh_config is not None else []

    def ask(self, action: str, data: Bundle | None = None, **arguments: Any) -> dict[str, Any]:
        """Carry out an action of `on_target`; ``data`` is sent to it."""
        process = self._started(action, **arguments)
        assert process.stdin is not None
        sending = threading.Thread(target=_send, args=(data, process.stdin))
        sending.start()
        output, errors = self._read(process)
        sending.join()
        if process.wait() != 0:
            raise DeploymentError(self._trouble(process.returncode, errors))
        answer: dict[str, Any] = json.loads(output.splitlines()[-1])
        if "error" in answer:
            raise DeploymentError(f"{self.address}: {answer['error']}.".replace("..", "."))
        return answer

    def fetch(self, names: Collection[str], folder: Path) -> None:
        """Fetch logs into a folder."""
        with self._started("send", names=list(names)) as process:  # closes its pipes
            assert process.stdout is not None
            assert process.stderr is not None
            broken = contextlib.suppress(tarfile.TarError)  # the exit code says why
            with broken, tarfile.open(fileobj=process.stdout, mode="r|") as archive:
                archive.extractall(folder, **on_target.SAFELY)
            errors = process.stderr.read().decode(errors="replace")
        if process.returncode != 0:
            raise DeploymentError(self._trouble(process.returncode, errors))

    def state(self) -> dict[str, Any]:
        """The state of the rig's server, as `hilserver status --json` prints it there; see `state_of`."""
        found = self.ask("facts", program="none")
        if found["current"] is None:
            raise DeploymentError(f"{self.address}: {self.rig} is not deployed there.")
        state: dict[str, Any] = {"online": False, "state": None}
        if found["running"]:
            done = self.ask("call", release="current", arguments=["status", "--rig", self.rig, "--json"])
            try:
                state = json.loads(done["output"])  # whatever the exit code says of the mode
            except ValueError:
                raise DeploymentError(f"{self.address}: {done['errors'].strip()}") from None
        return {**state, "release": found["current"]}

    def _remote(self, action: str, **arguments: Any) -> str:
        """The command that carries out an action on the target, for its shell."""
        request = {"action": action, "root": self.root, "rig": self.rig, **arguments}
        python = "python{}.{}".format(*sys.version_info[:2])
        source = Path(on_target.__file__).read_text()
        command = f"P=$(command -v {python} || command -v python3) || exit 127; exec $P -c {shlex.quote(source)} "
        return command + shlex.quote(json.dumps(request))

    def _started(self, action: str, **arguments: Any) -> subprocess.Popen[bytes]:
        options = [f"-oConnectTimeout={CONNECT_TIMEOUT}", f"-oServerAliveInterval={ALIVE_EVERY}", "-oBatchMode=yes"]
        words = ["ssh", *self._options, *options, self.address, self._remote(action, **arguments)]
        try:
            pipe = subprocess.PIPE
            return subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe)
        except FileNotFoundError:
            raise DeploymentError("ssh is not installed (Debian: apt install openssh-client).") from None

    def _read(self, process: subprocess.Popen[bytes]) -> tuple[str, str]:
        """All that a process writes."""
        assert process.stdout is not None
        assert process.stderr is not None
        errors: list[bytes] = []
        reading = threading.Thread(target=lambda: errors.append(process.stderr.read()))  # type: ignore[union-attr]
        reading.start()
        output = process.stdout.read()
        reading.join()
        process.stdout.close()
        process.stderr.close()
        return output.decode(errors="replace"), errors[0].decode(errors="replace")

    def _trouble(self, code: int, errors: str) -> str:
        """Why a command has failed, and the remedy."""
        text = errors.strip()
        last = (text.splitlines() or ["no message"])[-1].strip()
        if code == 127:
            text = "has no python3. A rig runs there without it, too: hilserver deploy --runner"
            return f"{self.address}: {text}. {UNCHANGED}"
        if code != 255:
            return f"{self.address}: {text[-1000:]}"
        if "REMOTE HOST IDENTIFICATION HAS CHANGED" in text or "Host key verification failed" in text:
            return (
                f"{self.address}: its host key is not the one that is known here: it may be another computer. Compare "
                f"the key, and accept it with: ssh {self.address}. {UNCHANGED}"
            )
        if "Permission denied" in text:
            remedy = f"Give it your key: ssh-copy-id {self.address}"
            return f"{self.address}: refuses the login ({last}). {remedy}. {UNCHANGED}"
        reason = f"can't be reached, or the connection was lost ({last})"
        return f"{self.address}: {reason}. What runs there keeps running."


def _send(data: Bundle | None, stream: BinaryIO) -> None:
    with contextlib.suppress(BrokenPipeError), stream:  # the exit code, or the answer, says why
        if data is not None:
            data.write(stream)


def deploy(
    file: Path,
    target: Target,
    extras: Collection[str] = (),
    tell: Callable[[str], None] = lambda text: None,
    *,
    downgrade: bool = False,
    service: bool = False,
) -> str:
    """Bring a rig to a target and let it run there, in place of its present release; returns the new one's name.

    ``downgrade``: even if a newer hilserver runs there. ``service``: as a service of the user's systemd, from now on.
    Raises DeploymentError, or ConfigurationError if the rig can't be used.
    """
    load_rig(file)
    software = program(extras)
    program_id = software.id
    rig = release(file, program_id)
    found = target.ask("facts", program=program_id)
    _require_suitable(target, found, rig.size + (0 if found["has_program"] else software.size))
    if not downgrade:
        require_no_newer(target, found)
    require_at_rest(target, found)
    if (old := found["current"]) is not None:
        tell(f"{target.address}: release {old['name']} of {target.rig}, hilserver {old['version']}")
    if not found["has_program"]:
        tell(f"sending hilserver and its libraries ({software.size / 1e6:.0f} MB)")
        target.ask("receive", software, folder=f"programs/{program_id}")
    name = str(found["next"])
    tell(f"sending the rig ({len(rig.files)} files) as release {name}")
    target.ask("receive", rig, folder=f"rigs/{target.rig}/releases/{name}")
    try:
        _require_doctor(target, name, tell)
        tell("starting it")
        answer = target.ask("activate", release=name, service=service)
        if "warning" in answer:
            tell(f"warning: {answer['warning']}")
    except DeploymentError as error:
        with contextlib.suppress(DeploymentError):  # it may be in use: the connection was lost while it was started
            target.ask("remove", release=name)
        raise DeploymentError(f"{error} {_what_runs(target, program_id)}") from None
    return name


def _require_suitable(target: Target, found: dict[str, Any], size: int) -> None:
    """Whether the target can run this program, and has room for it."""
    if found["machine"] != platform.machine():
        text = f"its processor is {found['machine']}, and this installation of hilserver is for {platform.machine()}"
        raise DeploymentError(f"{target.address}: {text}. Deploy from a machine of the same kind. {UNCHANGED}")
    here, there = (f"{v[0]}.{v[1]}" for v in (sys.version_info, found["python"]))
    if here != there:
        text = f"has Python {there}, and the libraries of this installation are for Python {here}"
        raise DeploymentError(f"{target.address}: {text}. Install python{here} there. {UNCHANGED}")
    if found["free"] < size + RESERVE:
        text = f"its disk has {found['free'] / 1e6:.0f} MB left, and {(size + RESERVE) / 1e6:.0f} MB are needed"
        raise DeploymentError(f"{target.address}: {text}. {UNCHANGED}")


def require_no_newer(target: Target, found: dict[str, Any]) -> None:
    """A newer version there may have settings, logs and calibrations that this one does not know."""
    here, old = version("hilserver"), found["current"]
    if old is not None and Version(old["version"]) > Version(here):
        text = f"runs hilserver {old['version']}, and this is {here}. Update it here, or deploy with --downgrade"
        raise DeploymentError(f"{target.address}: {text}. {UNCHANGED}")


def require_at_rest(target: Target, found: dict[str, Any]) -> None:
    """A rig that is armed or runs is not stopped from afar."""
    if found["running"] and (mode := mode_of(target)) in MOVING:
        text = f"{target.rig} is {mode}. Disarm it first, at the rig. {UNCHANGED}"
        raise DeploymentError(f"{target.address}: {text}")


def _require_doctor(target: Target, name: str, tell: Callable[[str], None]) -> None:
    """What `hilserver doctor` of the new release finds on the target; an error in it ends the deployment."""
    done = target.ask("call", release=name, arguments=["doctor", "RIG", "--json"])
    try:
        findings = json.loads(done["output"])["findings"]
    except (ValueError, KeyError):
        raise DeploymentError(f"{target.address}: {(done['errors'] or done['output']).strip()[-2000:]}") from None
    for finding in findings:
        if finding["state"] in ("warning", "error"):
            tell(f"{finding['state']}: {finding['check']}: {finding['found']}")
    if errors := [finding for finding in findings if finding["state"] == "error"]:
        text = "; ".join(f"{each['check']}: {each['found']}" for each in errors)
        raise DeploymentError(f"{target.address} is not suitable: {text}.")


def _what_runs(target: Target, program_id: str) -> str:
    found = target.ask("facts", program=program_id)
    if found["current"] is None:
        return "Nothing is deployed there."
    state = "runs" if found["running"] else "is in place, not running"
    return f"Release {found['current']['name']} {state}."


def roll_back(target: Target) -> str:
    """Let the release before the present one run again; returns its name."""
    found = target.ask("facts", program="none")
    require_at_rest(target, found)
    if found["previous"] is None:
        raise DeploymentError(f"{target.address}: has no release of {target.rig} before the present one. {UNCHANGED}")
    target.ask("activate", release=found["previous"]["name"])
    return str(found["previous"]["name"])


def state_of(target: Target) -> dict[str, Any]:
    """The state of the rig's server, as `hilserver status --json` prints it there; ``online`` is false without one."""
    return target.state()


def mode_of(target: Target) -> str:
    """The mode of a running server."""
    state = state_of(target)["state"]
    return str(state["mode"]) if state is not None else "unknown"


def fetch_logs(target: Target, folder: Path) -> list[Path]:
    """Fetch the logs that are not in this folder yet, or have grown; returns their files."""
    folder.mkdir(parents=True, exist_ok=True)
    there = target.ask("recordings")["files"]
    wanted = [name for name, size in there.items() if not _is_whole(folder / name, size)]
    if wanted:
        target.fetch(wanted, folder)
    return [folder / name for name in wanted]


def _is_whole(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size
