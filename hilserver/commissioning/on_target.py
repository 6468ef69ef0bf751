"""The part of a deployment that runs on the target: sent there as text, so it uses nothing but Python's own library.

Called with a JSON object: ``action`` and its arguments. It answers with a JSON object on the last line of its output;
an ``error`` in it is for the user. Files come as a tar archive on standard input, and leave as one on standard output.

Folder of the deployments: ``programs/ID`` (hilserver and its libraries), and for each rig ``rigs/RIG`` with
``releases/N`` (its files, and in release.json what they need), ``current`` and ``previous`` (links to two of these),
the log of the server and its directories. A server is a process of the user, or a service of the user's systemd.
"""

from __future__ import annotations

import errno
import fcntl
import getpass
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

READY_WITHIN, ENDED_WITHIN = 60.0, 30.0
"""Seconds allowed for a server to be ready, and for one to end with its valves at null."""
LAST_LINES = 15
CHANGING = ("receive", "activate", "remove", "stop")
"""Actions of which one takes place at a time."""
RELEASE, LOG, PID = "release.json", "server.log", "server.pid"
SAFELY: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""No file outside of the folder; in Python before 3.11.4 there is no such option."""
START = "from hilserver.cli import main; main()"
UNIT = """\
# Written by hilserver deploy at each start of a release. systemctl --user edit {unit} adds to it.
[Unit]
Description=Virtual hydraulics on a real servo valve (rig {rig}, deployed)
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
WorkingDirectory={place}
{environment}
ExecStart={python} -c "{start}" run "{file}"
# Stop: first the supervisor alone, which ramps the valves to null, writes safe values and closes the log.
ExecStop=/bin/sh -c 'kill $$MAINPID; while kill -0 $$MAINPID; do sleep 0.05; done 2>/dev/null'
# Unless the service ended in an orderly way: writes the safe values again.
ExecStopPost=/bin/sh -c 'test "$$SERVICE_RESULT" = success || exec {python} -c "{start}" safe "{file}"'
TimeoutStartSec={ready:.0f}
TimeoutStopSec={ended:.0f}
WatchdogSec=10s
WatchdogSignal=SIGTERM
Restart=on-failure
RestartSec=1s
StandardOutput=append:{log}
StandardError=append:{log}

[Install]
WantedBy=default.target
"""
"""A service of the user. After a failure it starts again, in SAFE; docs/service.md gives the reasons."""
ENDS_WITH_LOGIN = "the service ends when this user logs out there; root can change that: loginctl enable-linger USER"


class ActionRefused(Exception):
    """What the user is told."""


class Service:
    """The service of a rig in the user's systemd; ``is_there`` after a deployment that asked for one."""

    def __init__(self, rig: str) -> None:
        self.unit = f"hilserver-{rig}.service"
        self.file = Path("~/.config/systemd/user").expanduser() / self.unit

    @property
    def is_there(self) -> bool:
        """Whether the rig's server is a service."""
        return self.file.exists()

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Call systemctl for this user. Raises ActionRefused if there is none."""
        own = {"XDG_RUNTIME_DIR": f"/run/user/{os.getuid()}", **os.environ}
        try:
            return subprocess.run(["systemctl", "--user", *words], env=own, capture_output=True, text=True)
        except FileNotFoundError:
            raise ActionRefused("has no systemd: deploy without --service") from None

    def require(self) -> None:
        """Raise ActionRefused unless the user's systemd can be reached."""
        if (done := self.call("show-environment")).returncode:
            said = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise ActionRefused(f"the systemd of this user can't be reached ({said}): deploy without --service")

    def pid(self) -> int | None:
        """The process of the running service."""
        done = self.call("show", "--property=MainPID", "--value", self.unit)
        return int(done.stdout) if done.returncode == 0 and done.stdout.strip() not in ("", "0") else None

    def start(self, text: str) -> bool:
        """Start the service with this unit, now and with the machine; whether it is ready."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(text)
        self.call("daemon-reload")
        self.call("reset-failed", self.unit)
        self.call("enable", self.unit)
        return self.call("start", self.unit).returncode == 0

    def stop(self) -> None:
        """End the service, which does not start with the machine any longer."""
        self.call("stop", self.unit)
        self.call("disable", self.unit)


def stays(user: str) -> bool:
    """Whether the services of this user run without a login; lets them, where that is allowed."""
    try:
        asked = ["loginctl", "show-user", user, "--property=Linger", "--value"]
        if subprocess.run(asked, capture_output=True, text=True).stdout.strip() == "yes":
            return True  # to enable it again may be forbidden
        return subprocess.run(["loginctl", "enable-linger", user], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def facts(root: Path, rig: str, program: str) -> dict[str, Any]:
    """What the target is, and what is deployed there."""
    root.mkdir(parents=True, exist_ok=True)
    place = root / "rigs" / rig
    return {
        "machine": platform.machine(),
        "python": list(sys.version_info[:2]),
        "executable": sys.executable,
        "root": str(root.resolve()),
        "free": shutil.disk_usage(root).free,
        "has_program": (root / "programs" / program).is_dir(),
        "current": described(place / "current"),
        "previous": described(place / "previous"),
        "running": server_of(place) is not None,
        "service": Service(rig).is_there,
    }


def described(release: Path) -> dict[str, Any] | None:
    """What is written about a release, and its name; None if there is none."""
    try:
        found: dict[str, Any] = json.loads((release / RELEASE).read_text())
    except OSError:
        return None
    return {**found, "name": release.resolve().name}


def receive(folder: Path) -> None:
    """Unpack the archive from standard input, completely or not at all."""
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
            for member in archive:
                archive.extract(member, part, **SAFELY)
        part.rename(folder)
    except (OSError, tarfile.TarError, EOFError) as error:
        shutil.rmtree(part, ignore_errors=True)
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise ActionRefused("the disk is full" if full else f"the transfer failed ({error})") from None


def server_of(place: Path) -> int | None:
    """The process of a rig's running server."""
    service = Service(place.name)
    if service.is_there and (found := service.pid()) is not None:
        return found
    try:
        pid = int((place / PID).read_text())
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, ValueError):
        return None
    return pid if START.encode() in words and state != "Z" else None


def environment(root: Path, place: Path, release: Path) -> dict[str, str]:
    """Of a release's program: its libraries, and directories of the rig's own."""
    site = root / "programs" / json.loads((release / RELEASE).read_text())["program"]
    own = {f"XDG_{kind}": str(place / kind.lower()) for kind in ("CACHE_HOME", "STATE_HOME", "RUNTIME_DIR")}
    for folder in own.values():
        Path(folder).mkdir(mode=0o700, exist_ok=True)
    return {**os.environ, **own, "PYTHONPATH": str(site), "PYTHONUNBUFFERED": "1"}


def call(root: Path, rig: str, release: str, arguments: list[str]) -> dict[str, Any]:
    """Run a release's ``hilserver``; RIG in the arguments stands for its rig file."""
    place = root / "rigs" / rig
    folder = (place / release if release in ("current", "previous") else place / "releases" / release).resolve()
    file = str(folder / json.loads((folder / RELEASE).read_text())["file"])
    words = [file if word == "RIG" else word for word in arguments]
    command = [sys.executable, "-c", START, *words]
    own, none = environment(root, place, folder), subprocess.DEVNULL
    done = subprocess.run(command, cwd=place, env=own, stdin=none, capture_output=True, text=True)
    return {"code": done.returncode, "output": done.stdout, "errors": done.stderr}


def stop(place: Path) -> None:
    """End the server, which brings its valves to null first."""
    pid = server_of(place)
    if pid is None:
        return
    if (service := Service(place.name)).is_there and service.pid() == pid:
        service.stop()
    else:
        os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + ENDED_WITHIN
    while server_of(place) is not None:
        if time.monotonic() > end:
            raise ActionRefused(f"the running server did not end within {ENDED_WITHIN:g} s")
        time.sleep(0.05)


def start(root: Path, place: Path) -> None:
    """Start the server of the current release, and wait until it is ready. Raises ActionRefused with its last words."""
    release = (place / "current").resolve()
    about = json.loads((release / RELEASE).read_text())
    for note in (place / "runtime_dir/hilserver").glob("*.json"):
        note.unlink()
    file = str(release / about["file"])
    with (place / LOG).open("ab") as log:
        begin = log.tell()
    own = environment(root, place, release)
    service = Service(place.name)
    if not (service.start(unit(place, own, file)) if service.is_there else started(place, own, file)):
        stop(place)
        if service.is_there:
            service.stop()  # it would try again
        with (place / LOG).open("rb") as log:
            log.seek(begin)
            words = log.read().decode(errors="replace").splitlines()[-LAST_LINES:]
        raise ActionRefused("the server does not start:\n" + "\n".join(words))


def started(place: Path, own: dict[str, str], file: str) -> bool:
    """Start the server as a process of the user; whether it is ready."""
    none = subprocess.DEVNULL
    with (place / LOG).open("ab") as log:
        command = [sys.executable, "-c", START, "run", file]
        server = subprocess.Popen(
            command, cwd=place, env=own, stdin=none, stdout=log, stderr=log, start_new_session=True
        )
    (place / PID).write_text(f"{server.pid}\n")
    end = time.monotonic() + READY_WITHIN
    while not list((place / "runtime_dir/hilserver").glob("*.json")):
        if server.poll() is not None or time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def unit(place: Path, own: dict[str, str], file: str) -> str:
    """The unit of a release."""
    needed = {name: value for name, value in own.items() if name.startswith(("XDG_", "PYTHON"))}
    lines = "\n".join(f'Environment="{name}={value}"' for name, value in sorted(needed.items()))
    words = {"unit": Service(place.name).unit, "rig": place.name, "place": place, "log": place / LOG, "file": file}
    times = {"ready": READY_WITHIN, "ended": ENDED_WITHIN}
    return UNIT.format(environment=lines, python=sys.executable, start=START, **words, **times)


def point(link: Path, release: str) -> None:
    """Let a link name another release, in one step."""
    part = link.with_name(f"{link.name}.part")
    part.unlink(missing_ok=True)
    part.symlink_to(Path("releases") / release)
    part.replace(link)


def activate(root: Path, rig: str, release: str, as_service: bool = False) -> dict[str, Any]:
    """Let this release run in place of the current one; the latter runs again if the new one does not start.

    ``as_service``: as a service of the user's systemd, from now on.
    """
    place, service = (root / "rigs" / rig).resolve(), Service(rig)
    if as_service or service.is_there:
        service.require()
    old = described(place / "current")
    was_running = server_of(place) is not None
    stop(place)
    if as_service and not service.is_there:
        service.file.parent.mkdir(parents=True, exist_ok=True)
        service.file.touch()
    point(place / "current", release)
    try:
        start(root, place)
    except ActionRefused:
        if old is not None:
            point(place / "current", old["name"])
            if was_running:
                start(root, place)
        else:
            (place / "current").unlink()
        raise
    if old is not None and old["name"] != release:
        point(place / "previous", old["name"])
    if service.is_there and not stays(getpass.getuser()):
        return {"release": release, "warning": ENDS_WITH_LOGIN}
    return {"release": release}


def remove(place: Path, release: str) -> None:
    """Remove a release that does not run. (It may: the connection was lost while it was activated.)"""
    folder = place / "releases" / release
    if folder.resolve() in {(place / link).resolve() for link in ("current", "previous")}:
        raise ActionRefused(f"release {release} is in use")
    shutil.rmtree(folder)


def next_release(root: Path, rig: str) -> str:
    """The name of a new release: the next number."""
    folder = root / "rigs" / rig / "releases"
    names = [path.name for path in folder.glob("*")] if folder.is_dir() else []
    return str(1 + max((int(name) for name in names if name.isdigit()), default=0))


def recordings(place: Path) -> dict[str, int]:
    """The files of the rig's logs, with their sizes."""
    files = (path for path in (place / "logs").rglob("*") if path.is_file())
    return {str(path.relative_to(place / "logs")): path.stat().st_size for path in files}


def send(place: Path, names: list[str]) -> None:
    """Write these logs to standard output, as an archive; one that is being written is sent as far as it is."""
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as archive:
        for name in names:
            archive.add(place / "logs" / name, name)


def main(request: dict[str, Any]) -> None:
    """Carry out a request and print the answer."""
    root, rig, action = Path(request["root"]).expanduser(), request["rig"], request["action"]
    place = root / "rigs" / rig
    try:
        if action in CHANGING:
            root.mkdir(parents=True, exist_ok=True)
            lock = (root / "lock").open("w")  # until this process ends
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if action == "facts":
            answer = {**facts(root, rig, request["program"]), "next": next_release(root, rig)}
        elif action == "receive":
            receive(root / request["folder"])
            answer = {}
        elif action == "call":
            answer = call(root, rig, request["release"], request["arguments"])
        elif action == "activate":
            answer = activate(root, rig, request["release"], request.get("service", False))
        elif action == "remove":
            remove(place, request["release"])
            answer = {}
        elif action == "stop":
            stop(place)
            answer = {}
        elif action == "recordings":
            answer = {"files": recordings(place)}
        else:
            send(place, request["names"])
            return
    except ActionRefused as refusal:
        answer = {"error": str(refusal)}
    except BlockingIOError:
        answer = {"error": "somebody else is deploying there at the moment"}
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        answer = {"error": "the disk is full" if full else f"{error}"}
    print(json.dumps(answer))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
