"""Stands for ``systemctl --user`` where no systemd runs: reads the unit, starts its process, waits until it is ready.

State: ``enabled`` and ``pid`` files beside the unit. It restarts nothing.
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path.home() / ".config/systemd/user"
ABSENT = Path.home() / "no-systemd"
"""A file that lets it fail as without a systemd for this user."""


def settings(unit: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def start(unit: Path) -> int:
    found = settings(unit)
    place = f"\0hilserver-notify-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notes:
        notes.bind(place)
        own = dict(word.split("=", 1) for line in found["Environment"] for word in shlex.split(line))
        own |= {"NOTIFY_SOCKET": f"@{place[1:]}", "HOME": str(Path.home()), "PATH": os.environ["PATH"]}
        words, none = shlex.split(found["ExecStart"][0]), subprocess.DEVNULL
        with Path(found["StandardOutput"][0].removeprefix("append:")).open("ab") as log:
            server = subprocess.Popen(
                words,
                env=own,
                cwd=found["WorkingDirectory"][0],
                stdin=none,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        unit.with_suffix(".pid").write_text(str(server.pid))
        notes.settimeout(0.2)
        end = time.monotonic() + float(found["TimeoutStartSec"][0])
        while server.poll() is None and time.monotonic() < end:
            try:
                if b"READY=1" in notes.recv(4096):
                    return 0
            except TimeoutError:
                pass
    unit.with_suffix(".pid").write_text("0")
    return 1


def stop(unit: Path) -> int:
    pid = int(pid_of(unit))
    if pid:
        os.kill(pid, signal.SIGTERM)
        while (
            Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0]
        ):
            time.sleep(0.05)
    unit.with_suffix(".pid").write_text("0")
    return 0


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def pid_of(unit: Path) -> str:
    file = unit.with_suffix(".pid")
    return file.read_text() if file.exists() else "0"


def main() -> int:
    user, action, *rest = sys.argv[1:]
    assert user == "--user"
    if ABSENT.exists():
        sys.stderr.write("Failed to connect to bus: No medium found\n")
        return 1
    unit = FOLDER / rest[-1] if rest else FOLDER
    if action in ("enable", "disable"):
        enabled = unit.with_suffix(".enabled")
        enabled.touch() if action == "enable" else enabled.unlink(missing_ok=True)
    elif action == "show":
        print(pid_of(unit))
    elif action in ("start", "stop"):
        return start(unit) if action == "start" else stop(unit)
    else:
        assert action in ("daemon-reload", "reset-failed", "show-environment"), action
    return 0


if __name__ == "__main__":
    sys.exit(main())
