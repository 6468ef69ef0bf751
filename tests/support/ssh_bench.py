"""An sshd of the test's own, on a free port of the loopback, with keys and a home directory in the test's folder."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
needs_sshd = pytest.mark.skipif(
    SSHD is None or shutil.which("ssh") is None, reason="sshd or ssh is not installed (Debian: apt install ssh)"
)
SERVER = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
PidFile none
AuthorizedKeysFile {folder}/user.pub
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
SetEnv HOME={folder}/home{path}
"""
CLIENT = """\
Host *
  Port {port}
  IdentityFile {key}
  IdentitiesOnly yes
  UserKnownHostsFile {known}
  StrictHostKeyChecking yes
  Ciphers aes128-gcm@openssh.com
"""
ONE_CONNECTION = """\
  ControlMaster auto
  ControlPath {folder}/control
  ControlPersist 30
"""


@dataclass(frozen=True)
class SshBench:
    """``home``: of the user there; ``config``: settings of ssh that reach it."""

    folder: Path
    port: int
    one_connection: bool = False
    """All calls of ssh with the usual settings share one: key exchange and login take most of their time."""

    @property
    def address(self) -> str:
        return f"{getpass.getuser()}@127.0.0.1"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def config(self, name: str = "config", **changes: object) -> Path:
        """Settings of ssh: ``port``, ``key``, ``known``."""
        values = {"port": self.port, "key": self.folder / "user", "known": self.folder / "known", **changes}
        file = self.folder / name
        shared = ONE_CONNECTION.format(folder=self.folder) if self.one_connection and not changes else ""
        file.write_text(CLIENT.format(**values) + shared)
        return file

    def key(self, name: str) -> Path:
        """A new key."""
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / name], check=True)
        return self.folder / name

    def known(self, name: str, key: Path) -> Path:
        """A list of known hosts with this key for the sshd."""
        words = key.with_suffix(".pub").read_text().split()[:2]
        (self.folder / name).write_text(f"[127.0.0.1]:{self.port} {' '.join(words)}\n")
        return self.folder / name


@contextlib.contextmanager
def running_sshd(folder: Path, tools: Collection[str] = (), *, one_connection: bool = False) -> Iterator[SshBench]:
    """Start it, and end it. ``tools``: the only programs that are found there; default: those of this computer."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        bench = SshBench(folder, free.getsockname()[1], one_connection)
    bench.home.mkdir()
    bench.key("user")
    bench.known("known", bench.key("host"))
    (folder / "sshd_config").write_text(SERVER.format(port=bench.port, folder=folder, path=_only(tools, folder)))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # without it, root's does not start
    with (folder / "sshd.log").open("w") as log:
        assert SSHD is not None
        server = subprocess.Popen([SSHD, "-D", "-e", "-f", folder / "sshd_config"], stderr=log)
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", bench.port)) == 0:
                    break
            time.sleep(0.05)
        else:
            raise AssertionError((folder / "sshd.log").read_text())
        yield bench
    finally:
        if one_connection:
            subprocess.run(["ssh", "-F", bench.config(), "-O", "exit", bench.address], capture_output=True)
        server.terminate()
        server.wait(10)


def _only(tools: Collection[str], folder: Path) -> str:
    """Setting of a path on which only these programs are."""
    if not tools:
        return ""
    place = folder / "tools"
    place.mkdir()
    for name in tools:
        found = shutil.which("dash" if name == "sh" and shutil.which("dash") else name)
        assert found is not None, name
        (place / name).symlink_to(found)
    return f" PATH={place}"
